// SPDX-License-Identifier: Apache-2.0
// The text behind forgive_last_error, one a thread, and what stands between exceptions and the C interface.
#ifndef FORGIVE_PLUGIN_LAST_ERROR_H_
#define FORGIVE_PLUGIN_LAST_ERROR_H_

#include <new>

#include "plugin/error_text.h"

namespace forgive {

// This thread's last error; empty: none yet.
ErrorText& LastError();

// Runs the body of a function of forgive.h. Where it runs out of memory the caller gets `no_memory` and the text, and
// never an exception: it may be C, or Python.
template <typename Result, typename Body>
Result WithMemoryOr(Result no_memory, const Body& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    LastError().Write("no memory is left in this process");
    return no_memory;
  }
}

}  // namespace forgive

#endif  // FORGIVE_PLUGIN_LAST_ERROR_H_
