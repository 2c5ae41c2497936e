// SPDX-License-Identifier: Apache-2.0
// The text behind forgive_last_error: one a thread.
#ifndef FORGIVE_PLUGIN_LAST_ERROR_H_
#define FORGIVE_PLUGIN_LAST_ERROR_H_

#include <string>

namespace forgive {

// This thread's last error; empty: none yet.
std::string& LastError();

}  // namespace forgive

#endif  // FORGIVE_PLUGIN_LAST_ERROR_H_
