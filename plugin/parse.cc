// SPDX-License-Identifier: Apache-2.0
// Parsers of the values that environment variables hold.
#include "plugin/parse.h"

#include <charconv>

namespace forgive {

bool ParseInteger(std::string_view text, uint64_t low, uint64_t high, uint64_t* out) {
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value < low || value > high) return false;
  *out = value;
  return true;
}

bool ParseSwitch(std::string_view text, bool* out) {
  if (text != "0" && text != "1") return false;
  *out = text == "1";
  return true;
}

bool ParseMillionths(std::string_view text, uint64_t high, uint64_t* out) {
  constexpr size_t kDecimals = 6;
  constexpr uint64_t kOne = 1000000;
  const size_t point = text.find('.');
  const std::string_view whole = text.substr(0, point);
  const std::string_view decimals = point == std::string_view::npos ? std::string_view() : text.substr(point + 1);
  if (whole.empty() && decimals.empty()) return false;
  if (decimals.size() > kDecimals) return false;
  uint64_t ones = 0;
  if (!whole.empty() && !ParseInteger(whole, 0, high, &ones)) return false;
  uint64_t millionths = 0;
  if (!decimals.empty() && !ParseInteger(decimals, 0, kOne - 1, &millionths)) return false;
  for (size_t i = decimals.size(); i < kDecimals; ++i) millionths *= 10;
  const uint64_t value = ones * kOne + millionths;
  if (value > high * kOne) return false;
  *out = value;
  return true;
}

bool ParseFraction(std::string_view text, Fraction* out) {
  static_assert(Fraction::kOne == 1000000);
  uint64_t ppm = 0;
  if (!ParseMillionths(text, 1, &ppm)) return false;
  out->ppm = static_cast<uint32_t>(ppm);
  return true;
}

bool ParsePortRange(std::string_view text, uint16_t* low, uint16_t* high) {
  const size_t dash = text.find('-');
  uint64_t first = 0;
  uint64_t last = 0;
  if (!ParseInteger(text.substr(0, dash), 1, UINT16_MAX, &first)) return false;
  last = first;
  if (dash != std::string_view::npos && !ParseInteger(text.substr(dash + 1), first, UINT16_MAX, &last)) return false;
  *low = static_cast<uint16_t>(first);
  *high = static_cast<uint16_t>(last);
  return true;
}

std::vector<std::string> SplitList(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = text.find(separator);
    if (end != 0) parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return parts;
}

}  // namespace forgive
