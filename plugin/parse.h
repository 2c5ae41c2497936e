// SPDX-License-Identifier: Apache-2.0
// Parsers of the values that only environment variables hold: whole text or nothing, never a silent default.
#ifndef FORGIVE_PLUGIN_PARSE_H_
#define FORGIVE_PLUGIN_PARSE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace forgive {

// "0" or "1".
bool ParseSwitch(std::string_view text, bool* out);
// "PORT" or "LOW-HIGH", 1 to 65535, LOW not above HIGH.
bool ParsePortRange(std::string_view text, uint16_t* low, uint16_t* high);
std::vector<std::string> SplitList(std::string_view text, char separator);

}  // namespace forgive

#endif  // FORGIVE_PLUGIN_PARSE_H_
