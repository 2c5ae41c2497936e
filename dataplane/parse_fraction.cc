// SPDX-License-Identifier: Apache-2.0
// Fractions from text, without rounding: what has more than six decimals is refused.
#include "dataplane/parse_fraction.h"

#include "dataplane/parse_number.h"

namespace forgive {

bool ParseMillionths(std::string_view text, uint64_t high, uint64_t* out) {
  constexpr size_t kDecimals = 6;
  constexpr uint64_t kOne = 1000000;
  const size_t point = text.find('.');
  const std::string_view whole = text.substr(0, point);
  const std::string_view decimals = point == std::string_view::npos ? std::string_view() : text.substr(point + 1);
  if (whole.empty() && decimals.empty()) return false;
  if (decimals.size() > kDecimals) return false;
  uint64_t ones = 0;
  if (!whole.empty() && !ParseNumber(whole, 0, high, &ones)) return false;
  uint64_t millionths = 0;
  if (!decimals.empty() && !ParseNumber(decimals, 0, kOne - 1, &millionths)) return false;
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

}  // namespace forgive
