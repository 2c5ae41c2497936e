// SPDX-License-Identifier: Apache-2.0
// The main function of tests that load BPF programs: exit status 77 and the reason where that may not be.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>

int main(int count, char** arguments) {
  testing::InitGoogleTest(&count, arguments);
  if (geteuid() != 0) {
    std::printf("skipped: loading BPF programs needs root\n");
    return 77;
  }
  return RUN_ALL_TESTS();
}
