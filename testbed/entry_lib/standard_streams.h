// SPDX-License-Identifier: Apache-2.0
// How every program of the testbed begins and ends: standard descriptors that are open, output that has arrived.
#ifndef FORGIVE_TESTBED_ENTRY_LIB_STANDARD_STREAMS_H_
#define FORGIVE_TESTBED_ENTRY_LIB_STANDARD_STREAMS_H_

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace forgive {

// To be called first: a closed standard descriptor would go to the next file or socket that is opened, and that would
// get our text.
inline void OpenStandardDescriptors() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    if (fcntl(descriptor, F_GETFD) == -1 && open("/dev/null", O_RDWR) != descriptor) return;
  }
}

// Why what was printed has not all arrived; nullptr if it has. Flushes.
inline const char* StandardOutputError() {
  const bool lost = std::ferror(stdout) != 0;
  if (std::fflush(stdout) != 0) return std::strerror(errno);
  return lost ? "not all could be written" : nullptr;
}

// To be called last: `status` if all that was printed has arrived, else `failed` after one line that says why not.
inline int FinishStandardOutput(const char* program, int status, int failed) {
  const char* const error = StandardOutputError();
  if (error == nullptr) return status;
  std::fprintf(stderr, "%s: standard output: %s\n", program, error);
  return status != 0 ? status : failed;
}

}  // namespace forgive

#endif  // FORGIVE_TESTBED_ENTRY_LIB_STANDARD_STREAMS_H_
