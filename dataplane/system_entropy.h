// SPDX-License-Identifier: Apache-2.0
// Random bytes of the system, for secrets and identities.
#ifndef FORGIVE_DATAPLANE_SYSTEM_ENTROPY_H_
#define FORGIVE_DATAPLANE_SYSTEM_ENTROPY_H_

#include <sys/random.h>
#include <sys/types.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "transport/check.h"

namespace forgive {

inline std::array<uint8_t, 32> SystemEntropy() {
  std::array<uint8_t, 32> entropy;
  size_t filled = 0;
  while (filled < entropy.size()) {
    const ssize_t got = getrandom(entropy.data() + filled, entropy.size() - filled, 0);
    FORGIVE_CHECK(got > 0 || errno == EINTR);
    if (got > 0) filled += static_cast<size_t>(got);
  }
  return entropy;
}

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_SYSTEM_ENTROPY_H_
