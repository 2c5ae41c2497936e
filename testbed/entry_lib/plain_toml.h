// SPDX-License-Identifier: Apache-2.0
// Where a TOML file has letters beyond ASCII that toml++ must not see.
#ifndef FORGIVE_TESTBED_ENTRY_LIB_PLAIN_TOML_H_
#define FORGIVE_TESTBED_ENTRY_LIB_PLAIN_TOML_H_

#include <cstddef>
#include <string_view>

namespace forgive {

// What a refusal says of the line.
inline constexpr std::string_view kNotPlainToml =
    "a letter beyond ASCII; such may stand in comments only; in a string write an escape such as \\u00e9";

// The line, from 1, of the first letter beyond ASCII outside of comments; 0: none. Where toml++ 3.3 looks for
// white space, such a letter takes it to a place that it calls unreachable; and it looks ahead so over what it will
// find to be no TOML, quotes included: strings are no exception. It does not pass its first error.
inline std::size_t LineBeyondAscii(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::size_t line = 1;
  char until = 0;  // the quote that ends the string, or the line's end for a comment; 0: neither
  bool many_lines = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const std::string_view next = text.substr(i, 3);
    const bool three = next == "\"\"\"" || next == "'''";
    if ((static_cast<unsigned char>(c) & 0x80) != 0 && until != '\n') return line;
    if (c == '\n') ++line;
    if (until == 0 && (c == '"' || c == '\'')) {
      until = c;
      many_lines = three;
      if (three) i += 2;
    } else if (until == 0 && c == '#') {
      until = '\n';
    } else if (until == '"' && c == '\\' && i + 1 < text.size()) {
      // What is escaped ends no string; a letter is looked at, and a line's end counted, like others.
      if (text[i + 1] == '"' || text[i + 1] == '\\') ++i;
    } else if (many_lines && c == until && three) {
      for (i += 2; i + 1 < text.size() && text[i + 1] == until;) ++i;  // up to two quotes belong to the string
      until = 0;
      many_lines = false;
    } else if (!many_lines && (c == until || c == '\n')) {
      until = 0;
    }
  }
  return 0;
}

}  // namespace forgive

#endif  // FORGIVE_TESTBED_ENTRY_LIB_PLAIN_TOML_H_
