// SPDX-License-Identifier: Apache-2.0
// The text behind forgive_last_error, and that function.
#include "plugin/last_error.h"

#include "plugin/forgive.h"

namespace forgive {

ErrorText& LastError() {
  thread_local constinit ErrorText text;
  return text;
}

}  // namespace forgive

extern "C" const char* forgive_last_error(void) { return forgive::LastError().c_str(); }
