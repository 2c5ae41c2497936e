// SPDX-License-Identifier: Apache-2.0
// Lines for people, sent on to NCCL's logger and to standard error.
#include "plugin/log.h"

#include <atomic>
#include <cstdarg>
#include <cstdio>

namespace forgive {
namespace {

std::atomic<nccl::Logger> logger_of_nccl{nullptr};
std::atomic<LogLevel> standard_error_level{LogLevel::kError};

int NcclLevel(LogLevel level) {
  switch (level) {
    case LogLevel::kError:
    case LogLevel::kWarning:
      return nccl::kLogWarn;
    case LogLevel::kInfo:
      return nccl::kLogInfo;
    default:
      return nccl::kLogTrace;
  }
}

}  // namespace

void SetLogger(nccl::Logger logger) { logger_of_nccl.store(logger, std::memory_order_release); }

void SetStandardErrorLevel(LogLevel level) { standard_error_level.store(level, std::memory_order_relaxed); }

void Log(LogLevel level, const char* format, ...) {
  char line[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof(line), format, arguments);
  va_end(arguments);
  // Values of variables and names of files may hold a line's end; ours is one line all the same.
  for (char* c = line; *c != '\0'; ++c) *c = static_cast<unsigned char>(*c) < 0x20 || *c == 0x7f ? '?' : *c;
  if (const nccl::Logger logger = logger_of_nccl.load(std::memory_order_acquire)) {
    logger(NcclLevel(level), nccl::kSubsystemInit | nccl::kSubsystemNet, __FILE_NAME__, __LINE__, "NET/FORGIVE : %s",
           line);
  }
  if (level <= standard_error_level.load(std::memory_order_relaxed)) std::fprintf(stderr, "forgive: %s\n", line);
}

}  // namespace forgive
