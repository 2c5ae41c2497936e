// SPDX-License-Identifier: Apache-2.0
// Which communicators are meant by name: a list of patterns.
#ifndef FORGIVE_PLUGIN_NAME_PATTERNS_H_
#define FORGIVE_PLUGIN_NAME_PATTERNS_H_

#include <string>
#include <vector>

namespace forgive {

// Names with * (any letters) and ? (any one); `exclude`: all but these.
struct NamePatterns {
  bool exclude = false;
  std::vector<std::string> patterns;

  bool given() const { return !patterns.empty(); }
  // A communicator without a name (nullptr, or empty) is never meant, whatever the list says.
  bool Match(const char* name) const;
};

// "a*,b" or "^a*,b". False: a list without a name.
bool ParseNamePatterns(const std::string& text, NamePatterns* out);

}  // namespace forgive

#endif  // FORGIVE_PLUGIN_NAME_PATTERNS_H_
