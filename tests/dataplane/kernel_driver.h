// SPDX-License-Identifier: Apache-2.0
// The driver over kernel UDP that a test program is built for: udp, or uring with FORGIVE_TEST_URING.
#ifndef FORGIVE_TESTS_DATAPLANE_KERNEL_DRIVER_H_
#define FORGIVE_TESTS_DATAPLANE_KERNEL_DRIVER_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "dataplane/udp_driver.h"
#include "dataplane/uring_driver.h"

namespace forgive {

#ifdef FORGIVE_TEST_URING
inline constexpr auto OpenKernelDriver = OpenUringDriver;

// Skips every test of the program where the kernel or the build has no io_uring.
class UringEnvironment : public testing::Environment {
 public:
  void SetUp() override {
    std::string why;
    if (!UringOffered(&why)) GTEST_SKIP() << why;
  }
};
inline testing::Environment* const kUringEnvironment = testing::AddGlobalTestEnvironment(new UringEnvironment);
#else
inline constexpr auto OpenKernelDriver = OpenUdpDriver;
#endif

}  // namespace forgive

#endif  // FORGIVE_TESTS_DATAPLANE_KERNEL_DRIVER_H_
