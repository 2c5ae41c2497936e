// SPDX-License-Identifier: Apache-2.0
// Parsers of the values that environment variables hold.
#include "plugin/parse.h"

#include "dataplane/parse_number.h"

namespace forgive {

bool ParseSwitch(std::string_view text, bool* out) {
  if (text != "0" && text != "1") return false;
  *out = text == "1";
  return true;
}

bool ParsePortRange(std::string_view text, uint16_t* low, uint16_t* high) {
  const size_t dash = text.find('-');
  uint16_t first = 0;
  if (!ParseNumber(text.substr(0, dash), 1, UINT16_MAX, &first)) return false;
  uint16_t last = first;
  if (dash != std::string_view::npos && !ParseNumber(text.substr(dash + 1), first, UINT16_MAX, &last)) return false;
  *low = first;
  *high = last;
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
