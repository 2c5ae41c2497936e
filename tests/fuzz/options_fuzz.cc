// SPDX-License-Identifier: Apache-2.0
// Any text to the parsers of options: faults, DPDK ports, fractions, addresses, lists; what is accepted is in bounds.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "dataplane/dpdk_options.h"
#include "dataplane/fault_driver.h"
#include "dataplane/parse_fraction.h"
#include "dataplane/parse_number.h"
#include "dataplane/socket_address.h"
#include "plugin/name_patterns.h"
#include "plugin/parse.h"
#include "script.h"
#include "transport/check.h"

namespace forgive {
namespace {

// A complaint is one line and not empty.
void CheckComplaint(const std::string& error, const std::string& input) {
  FORGIVE_CHECK(!error.empty());
  // What the user wrote is quoted as it was: only its own line breaks may stand there.
  if (input.find('\n') == std::string::npos) FORGIVE_CHECK(error.find('\n') == std::string::npos);
}

void Faults(const std::string& text) {
  FaultSpec spec;
  std::string error;
  if (!ParseFaultSpec(text, &spec, &error)) return CheckComplaint(error, text);
  for (const Fraction chance : {spec.trim, spec.drop, spec.duplicate, spec.reorder, spec.corrupt}) {
    FORGIVE_CHECK(chance.ppm <= Fraction::kOne);
  }
  FORGIVE_CHECK(spec.delay >= Nanoseconds{0} && spec.delay <= Seconds(1));
}

void Dpdk(const std::string& text) {
  DpdkOptions options;
  std::string error;
  if (!ParseDpdkOptions(text, &options, &error)) return CheckComplaint(error, text);
  for (const DpdkPortOptions& port : options.ports) {
    FORGIVE_CHECK(!port.device.empty() && !port.name().empty());
    FORGIVE_CHECK(!port.address.empty() || !port.interface.empty());
    Address address;
    FORGIVE_CHECK(port.address.empty() || (ParseAddress(port.address, 0, &address) && port.prefix_bits != 0));
    FORGIVE_CHECK(port.gateway.empty() || ParseAddress(port.gateway, 0, &address));
    FORGIVE_CHECK(port.mtu_bytes == 0 || (port.mtu_bytes >= 256 && port.mtu_bytes <= 9216));
  }
}

// The text of a fraction as it would be written for a user.
std::string Written(uint64_t millionths) {
  std::string digits = std::to_string(1000000 + millionths % 1000000).substr(1);
  return std::to_string(millionths / 1000000) + "." + digits;
}

void Numbers(const std::string& text) {
  uint64_t millionths = 0;
  if (ParseMillionths(text, 1000, &millionths)) {
    FORGIVE_CHECK(millionths <= 1000 * 1000000ull);
    uint64_t again = 0;
    FORGIVE_CHECK(ParseMillionths(Written(millionths), 1000, &again) && again == millionths);
  }
  Fraction fraction;
  if (ParseFraction(text, &fraction)) FORGIVE_CHECK(fraction.ppm <= Fraction::kOne);
  uint32_t number = 0;
  if (ParseNumber(text, 5, 70000, &number)) FORGIVE_CHECK(number >= 5 && number <= 70000);
  int64_t whole = 0;
  if (ParseNumber(text, &whole)) {
    int64_t again = 0;
    FORGIVE_CHECK(ParseNumber(std::to_string(whole), &again) && again == whole);
  }
  bool on = false;
  if (ParseSwitch(text, &on)) FORGIVE_CHECK(text == (on ? "1" : "0"));
  uint16_t low = 0, high = 0;
  if (ParsePortRange(text, &low, &high)) FORGIVE_CHECK(low != 0 && low <= high);
}

void Addresses(const std::string& text) {
  Address address;
  if (ParseAddress(text, 4791, &address)) FORGIVE_CHECK(AddressPort(address) == 4791);
  if (!ParseAddressAndPort(text, &address)) return;
  Address again;
  FORGIVE_CHECK(ParseAddressAndPort(AddressText(address), &again));
  FORGIVE_CHECK(std::memcmp(&again, &address, sizeof address) == 0);
}

void Lists(const std::string& text) {
  NamePatterns patterns;
  FORGIVE_CHECK(ParseNamePatterns(text, &patterns) == patterns.given());
  for (const std::string& pattern : patterns.patterns) FORGIVE_CHECK(pattern.find(',') == std::string::npos);
  std::string joined;
  for (const std::string& part : SplitList(text, ',')) joined += (joined.empty() ? "" : ",") + part;
  FORGIVE_CHECK(joined.size() <= text.size());
}

}  // namespace
}  // namespace forgive

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  forgive::Script script(data, size);
  const size_t parser = script.Below(5);
  const std::string text = script.Rest();
  switch (parser) {
    case 0:
      forgive::Faults(text);
      break;
    case 1:
      forgive::Dpdk(text);
      break;
    case 2:
      forgive::Numbers(text);
      break;
    case 3:
      forgive::Addresses(text);
      break;
    case 4:
      forgive::Lists(text);
      break;
  }
  return 0;
}
