// SPDX-License-Identifier: Apache-2.0
// The text of an error, which must come out where no memory is left, too.
#ifndef FORGIVE_PLUGIN_ERROR_TEXT_H_
#define FORGIVE_PLUGIN_ERROR_TEXT_H_

#include <cstdarg>
#include <cstdio>

namespace forgive {

// One line in place: writing it needs no memory. What is longer is cut.
class ErrorText {
 public:
  __attribute__((format(printf, 2, 3))) void Write(const char* format, ...) noexcept {
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text_, sizeof(text_), format, arguments);
    va_end(arguments);
  }

  bool empty() const { return text_[0] == '\0'; }
  const char* c_str() const { return text_; }

 private:
  char text_[1024] = "";
};

}  // namespace forgive

#endif  // FORGIVE_PLUGIN_ERROR_TEXT_H_
