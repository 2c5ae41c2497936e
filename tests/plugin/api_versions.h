// SPDX-License-Identifier: Apache-2.0
// The fixture of tests that run for each version of the table, in a process of their own, with every call timed.
#ifndef FORGIVE_TESTS_PLUGIN_API_VERSIONS_H_
#define FORGIVE_TESTS_PLUGIN_API_VERSIONS_H_

#include <gtest/gtest.h>

#include "call_clock.h"
#include "call_record.h"
#include "fake_nccl.h"

namespace forgive::testing {

// googletest owns it.
inline ::testing::Environment* const shows_calls = ::testing::AddGlobalTestEnvironment(new ShowsCalls);

class ApiVersions : public ::testing::TestWithParam<int> {
 protected:
  // Loads and initialises the parameter's version in a process of its own, and runs `body` there; fails if a kind of
  // call blocks.
  void Run(const std::function<void(const Library&, const Net&)>& body,
           const std::vector<std::pair<std::string, std::string>>& environment = {}) {
    const int version = GetParam();
    ExpectInChild(environment, [&] {
      CallClock clock;
      const Library library;
      const Net net = clock.Wrap(library.Table(version));
      ASSERT_EQ(net.init(), nccl::kSuccess) << (LogLines().empty() ? "" : LogLines().back());
      body(library, net);
      EXPECT_GT(clock.calls(), 0u);
      clock.ExpectNothingBlocked();
    });
  }
  // The same, for what needs nothing but the table.
  void Run(const std::function<void(const Net&)>& body,
           const std::vector<std::pair<std::string, std::string>>& environment = {}) {
    Run([&body](const Library&, const Net& net) { body(net); }, environment);
  }
};

inline std::string NameOfVersion(const ::testing::TestParamInfo<int>& parameter) {
  return "v" + std::to_string(parameter.param);
}

}  // namespace forgive::testing

#endif  // FORGIVE_TESTS_PLUGIN_API_VERSIONS_H_
