// SPDX-License-Identifier: Apache-2.0
// The ways in which a run of forgive_perf can fail, and the exit status of each.
#ifndef FORGIVE_TESTBED_PERF_ERROR_H_
#define FORGIVE_TESTBED_PERF_ERROR_H_

#include <stdexcept>
#include <string>

namespace forgive::perf {

inline constexpr int kExitOk = 0;
inline constexpr int kExitCheckFailed = 1;  // the exact check found something
inline constexpr int kExitUsage = 2;        // bad input: nothing was run
inline constexpr int kExitRunFailed = 3;    // a rank, the plugin or the network failed

// Bad input. The text names the thing and the way out, in one line.
class UsageError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The run failed on this rank.
class RunError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The run failed on another rank, and this rank only follows.
class PeerError : public RunError {
  using RunError::RunError;
};

}  // namespace forgive::perf

#endif  // FORGIVE_TESTBED_PERF_ERROR_H_
