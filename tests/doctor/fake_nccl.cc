// SPDX-License-Identifier: Apache-2.0
// An NCCL that knows nothing but its version, which FAKE_NCCL says.
#include <cstdlib>

extern "C" __attribute__((visibility("default"))) int ncclGetVersion(int* version) {
  const char* const text = std::getenv("FAKE_NCCL");
  *version = text == nullptr ? 0 : std::atoi(text);
  return 0;
}
