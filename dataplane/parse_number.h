// SPDX-License-Identifier: Apache-2.0
// The one parser of numbers in text that people write: the whole text or nothing, within bounds.
#ifndef FORGIVE_DATAPLANE_PARSE_NUMBER_H_
#define FORGIVE_DATAPLANE_PARSE_NUMBER_H_

// The standard library only: the lab's tools include it too, and see nothing else of this room.
#include <charconv>
#include <limits>
#include <string_view>
#include <system_error>
#include <type_traits>

namespace forgive {

// A number as std::from_chars reads it, from `low` to `high`: integers in decimal digits (a sign only where the type
// has one), floating point also with an exponent. *out changes only if it is one.
template <typename Number>
bool ParseNumber(std::string_view text, std::type_identity_t<Number> low, std::type_identity_t<Number> high,
                 Number* out) {
  static_assert(std::is_arithmetic_v<Number> && !std::is_same_v<Number, bool>);
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || !(value >= low && value <= high)) return false;  // NaN is within nothing
  *out = value;
  return true;
}

// Any that the type holds; no infinity.
template <typename Number>
bool ParseNumber(std::string_view text, Number* out) {
  return ParseNumber(text, std::numeric_limits<Number>::lowest(), std::numeric_limits<Number>::max(), out);
}

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_PARSE_NUMBER_H_
