// SPDX-License-Identifier: Apache-2.0
// Quoting of JSON strings.
#include "plugin/json.h"

#include <cstdio>

namespace forgive {

void JsonWriter::Quote(std::string_view value) {
  text_ += '"';
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      text_ += '\\';
      text_ += c;
    } else if (byte < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04x", byte);
      text_ += escape;
    } else {
      text_ += c;
    }
  }
  text_ += '"';
}

}  // namespace forgive
