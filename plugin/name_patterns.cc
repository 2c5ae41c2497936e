// SPDX-License-Identifier: Apache-2.0
// Lists of name patterns.
#include "plugin/name_patterns.h"

#include <fnmatch.h>

#include <algorithm>

#include "plugin/parse.h"

namespace forgive {

bool NamePatterns::Match(const char* name) const {
  if (name == nullptr || *name == '\0') return false;
  const bool listed = std::ranges::any_of(
      patterns, [name](const std::string& pattern) { return fnmatch(pattern.c_str(), name, 0) == 0; });
  return listed != exclude;
}

bool ParseNamePatterns(const std::string& text, NamePatterns* out) {
  std::string_view rest = text;
  if (!rest.empty() && rest.front() == '^') {
    out->exclude = true;
    rest.remove_prefix(1);
  }
  for (const std::string& pattern : SplitList(rest, ',')) {
    if (!pattern.empty()) out->patterns.push_back(pattern);
  }
  return !out->patterns.empty();
}

}  // namespace forgive
