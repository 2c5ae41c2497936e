// SPDX-License-Identifier: Apache-2.0
// FORGIVE_CHECK: a condition that only a bug can break, checked in release too.
#ifndef FORGIVE_TRANSPORT_CHECK_H_
#define FORGIVE_TRANSPORT_CHECK_H_

#include <cstdio>
#include <cstdlib>

namespace forgive {

[[noreturn]] inline void CheckFailed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "forgive: check failed: %s (%s:%d)\n", condition, file, line);
  std::abort();
}

}  // namespace forgive

#define FORGIVE_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::forgive::CheckFailed(#condition, __FILE__, __LINE__))

#endif  // FORGIVE_TRANSPORT_CHECK_H_
