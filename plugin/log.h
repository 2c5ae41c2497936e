// SPDX-License-Identifier: Apache-2.0
// Lines for people: through the logger that NCCL gave to init, and to standard error as FORGIVE_LOG says.
#ifndef FORGIVE_PLUGIN_LOG_H_
#define FORGIVE_PLUGIN_LOG_H_

#include "plugin/nccl_abi.h"

namespace forgive {

enum class LogLevel : int { kNone, kError, kWarning, kInfo, kDebug };

// The logger that the latest init gave; nullptr: none (before init, and at exit, when NCCL may be gone).
void SetLogger(nccl::Logger logger);
// Lines of this level and graver ones also go to standard error.
void SetStandardErrorLevel(LogLevel level);

// One line. Never called on the data path except to say, once, why a connection failed.
void Log(LogLevel level, const char* format, ...) __attribute__((format(printf, 2, 3)));

}  // namespace forgive

#endif  // FORGIVE_PLUGIN_LOG_H_
