// SPDX-License-Identifier: Apache-2.0
// What FORGIVE_DPDK says: the ports of the dpdk driver and the memory of DPDK, parsed without DPDK.
#include "dataplane/dpdk_options.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "dataplane/parse_number.h"
#include "dataplane/socket_address.h"

namespace forgive {
namespace {

constexpr const char* kAccepted =
    "--vdev=NAME,ARGUMENTS, --allow=PCI or a PCI address, each with address=IP/BITS, gateway=IP, "
    "neighbour=IP@MAC and mtu=BYTES after it, and --no-huge, --in-memory, --socket-mem=MB, --huge-dir=FOLDER, "
    "--file-prefix=NAME, --iova-mode=pa|va";

// One frame of the af_packet rings holds the largest packet; 56 frames fill a block of 252 KiB with no rest, and 146
// blocks are enough frames for the scheduling gaps of a shared machine.
constexpr const char* kAfPacketRing = ",blocksz=258048,framesz=4608,framecnt=8176";
constexpr const char* kMemifBuffer = ",bsize=4608";

std::vector<std::string> Words(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : text + " ") {
    if (std::isspace(static_cast<unsigned char>(c)) == 0) {
      word += c;
    } else if (!word.empty()) {
      words.push_back(std::move(word));
      word.clear();
    }
  }
  return words;
}

// 0000:3b:00.0 or 3b:00.0; arguments may follow by comma.
bool IsPci(std::string_view text) {
  text = text.substr(0, text.find(','));
  std::string shape;
  for (const char c : text) shape += std::isxdigit(static_cast<unsigned char>(c)) != 0 ? 'x' : c;
  return shape == "xxxx:xx:xx.x" || shape == "xx:xx.x";
}

std::string InterfaceOfPci(std::string address) {
  if (address.size() == 7) address = "0000:" + address;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/bus/pci/devices/" + address + "/net", error)) {
    return entry.path().filename().string();
  }
  return "";
}

bool ParseMac(std::string_view text, MacAddress* out) {
  if (text.size() != 17) return false;
  for (size_t i = 0; i < 6; ++i) {
    if (i != 5 && text[i * 3 + 2] != ':') return false;
    uint8_t byte = 0;
    for (size_t j = 0; j < 2; ++j) {
      const char c = static_cast<char>(std::tolower(static_cast<unsigned char>(text[i * 3 + j])));
      if (std::isxdigit(static_cast<unsigned char>(c)) == 0) return false;
      byte = static_cast<uint8_t>(byte << 4 | (c <= '9' ? c - '0' : c - 'a' + 10));
    }
    (*out)[i] = byte;
  }
  return true;
}

bool IsAddress(const std::string& text) {
  Address address;
  return ParseAddress(text, 0, &address);
}

// The words that belong to the port before them.
bool PortWord(const std::string& key, const std::string& value, DpdkPortOptions* port) {
  if (key == "address") {
    const size_t slash = value.find('/');
    port->address = value.substr(0, slash);
    if (slash == std::string::npos || !IsAddress(port->address)) return false;
    const uint8_t most = port->address.find(':') == std::string::npos ? 32 : 128;
    return ParseNumber(value.substr(slash + 1), 1, most, &port->prefix_bits);
  }
  if (key == "gateway") {
    port->gateway = value;
    return IsAddress(value);
  }
  if (key == "neighbour") {
    const size_t at = value.find('@');
    MacAddress mac;
    if (at == std::string::npos || !IsAddress(value.substr(0, at)) || !ParseMac(value.substr(at + 1), &mac)) {
      return false;
    }
    port->neighbours.emplace_back(value.substr(0, at), mac);
    return true;
  }
  return key == "mtu" && ParseNumber(value, 256, 9216, &port->mtu_bytes);
}

bool MemoryWord(const std::string& key, const std::string& value, DpdkOptions* out) {
  uint32_t number = 0;
  if (key == "--no-huge" || key == "--in-memory") {
    out->huge_pages = key == "--no-huge" ? HugePages::kOff : HugePages::kRequired;
    return value.empty();
  }
  if (key == "--socket-mem") {
    std::string rest = value;
    std::ranges::replace(rest, ',', ' ');
    for (const std::string& one : Words(rest)) {
      if (!ParseNumber(one, 0, 1 << 20, &number)) return false;
    }
    out->huge_pages = HugePages::kRequired;
  } else if (key == "--huge-dir") {
    std::error_code error;
    if (!std::filesystem::is_directory(value, error)) return false;
    out->huge_pages = HugePages::kRequired;
  } else if (key == "--file-prefix") {
    if (value.find_first_of("/%") != std::string::npos) return false;
  } else if (key != "--iova-mode" || (value != "pa" && value != "va")) {
    return false;
  }
  if (value.empty()) return false;
  out->eal.push_back(key + "=" + value);
  return true;
}

DpdkPortOptions MakePort(const std::string& device) {
  DpdkPortOptions port;
  port.device = device;
  // A ring's geometry is one decision: who gives one part of it gives all.
  const bool ring_given = std::ranges::any_of(std::array{"blocksz", "framesz", "framecnt"},
                                              [&](const char* key) { return !port.argument(key).empty(); });
  if (device.starts_with("net_af_packet") && !ring_given) port.device += kAfPacketRing;
  if (port.is_memif() && port.argument("bsize").empty()) port.device += kMemifBuffer;
  // DPDK never closes a server's listening socket: a file can be made anew, an abstract name only by another process.
  if (port.is_memif() && port.argument("socket").starts_with("/") && port.argument("socket-abstract").empty()) {
    port.device += ",socket-abstract=no";
  }
  port.interface = port.is_pci() ? InterfaceOfPci(port.name()) : port.argument("iface");
  return port;
}

// A word that begins a port: *device is set. False: it does not.
bool PortBegins(const std::string& key, const std::string& value, std::string* device) {
  if (key == "--vdev" && value.starts_with("net_")) *device = value;
  if ((key == "--allow" || key == "-a") && IsPci(value)) *device = value;
  if (value.empty() && IsPci(key)) *device = key;
  return !device->empty();
}

bool CheckPorts(const DpdkOptions& options, std::string* error) {
  for (size_t i = 0; i < options.ports.size(); ++i) {
    const DpdkPortOptions& port = options.ports[i];
    for (size_t j = 0; j < i; ++j) {
      if (port.name() == options.ports[j].name()) {
        *error = "FORGIVE_DPDK: \"" + port.name() + "\" is there twice: a port serves one device";
        return false;
      }
    }
    if (port.address.empty() && port.interface.empty()) {
      *error = "FORGIVE_DPDK: port \"" + port.name() +
               "\" has no kernel interface with an address: give it one with address=IP/BITS after it";
      return false;
    }
    if (port.address.empty() && (!port.gateway.empty() || !port.neighbours.empty())) {
      *error = "FORGIVE_DPDK: port \"" + port.name() +
               "\" takes its routes and neighbours from the kernel: gateway= and neighbour= need address=IP/BITS";
      return false;
    }
  }
  return true;
}

}  // namespace

std::string DpdkPortOptions::argument(const std::string& key) const {
  const size_t at = device.find("," + key + "=");
  if (at == std::string::npos) return "";
  const size_t begin = at + key.size() + 2;
  return device.substr(begin, device.find(',', begin) - begin);
}

bool ParseDpdkOptions(const std::string& text, DpdkOptions* out, std::string* error) {
  *out = DpdkOptions{};
  std::vector<std::string> words = Words(text);
  for (size_t i = 0; i < words.size(); ++i) {
    // EAL also takes an option and its value as two words.
    const bool apart = words[i] == "-a" || words[i] == "--vdev" || words[i] == "--allow";
    if (apart && i + 1 < words.size()) {
      words[i + 1] = words[i] + "=" + words[i + 1];
      continue;
    }
    const size_t equals = words[i].find('=');
    const bool pci = IsPci(words[i]);
    const std::string key = pci ? words[i] : words[i].substr(0, equals);
    const std::string value = pci || equals == std::string::npos ? "" : words[i].substr(equals + 1);
    std::string device;
    if (PortBegins(key, value, &device)) {
      out->ports.push_back(MakePort(device));
      continue;
    }
    const bool good = key.starts_with("--") ? MemoryWord(key, value, out)
                                            : !out->ports.empty() && PortWord(key, value, &out->ports.back());
    if (!good) {
      *error = "FORGIVE_DPDK=" + text + ": \"" + words[i] + "\" is not accepted here; accepted: " + kAccepted;
      return false;
    }
  }
  return CheckPorts(*out, error);
}

DpdkPortOptions PortOfInterface(const std::string& interface, uint32_t number) {
  return MakePort("net_af_packet" + std::to_string(number) + ",iface=" + interface);
}

}  // namespace forgive
