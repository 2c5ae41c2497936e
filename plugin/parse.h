// SPDX-License-Identifier: Apache-2.0
// Parsers of the values that environment variables hold: whole text or nothing, never a silent default.
#ifndef FORGIVE_PLUGIN_PARSE_H_
#define FORGIVE_PLUGIN_PARSE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "transport/units.h"

namespace forgive {

// Decimal digits only, from low to high.
bool ParseInteger(std::string_view text, uint64_t low, uint64_t high, uint64_t* out);
// "0" or "1".
bool ParseSwitch(std::string_view text, bool* out);
// 0 to 1, written as digits with at most six decimals: "0.005", "1", ".1".
bool ParseFraction(std::string_view text, Fraction* out);
// 0 to `high`, written as digits with at most six decimals; *out is in millionths.
bool ParseMillionths(std::string_view text, uint64_t high, uint64_t* out);
// "PORT" or "LOW-HIGH", 1 to 65535, LOW not above HIGH.
bool ParsePortRange(std::string_view text, uint16_t* low, uint16_t* high);
std::vector<std::string> SplitList(std::string_view text, char separator);

}  // namespace forgive

#endif  // FORGIVE_PLUGIN_PARSE_H_
