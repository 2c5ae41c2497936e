// SPDX-License-Identifier: Apache-2.0
// The choice between udp and uring where nobody named one, and the way back to udp.
#include "dataplane/driver_choice.h"

#include <gtest/gtest.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>

#include "dataplane/uring_driver.h"
#include "refuse_call.h"

namespace forgive {
namespace {

constexpr std::array<UringMeasurement, 3> kMixed = {{{{5, 19}, true}, {{6, 8}, false}, {{6, 20}, true}}};

DriverChoice On(KernelVersion kernel, const std::string& refused = "") {
  return ChooseDriver({.kernel = kernel, .uring_refused = refused}, kMixed);
}

TEST(DriverChoice, FollowsTheNewestMeasuredKernelThatIsNotNewer) {
  EXPECT_EQ(On({6, 1}).driver, "uring");
  EXPECT_EQ(On({6, 7}).driver, "uring");
  EXPECT_EQ(On({6, 8}).driver, "udp");
  EXPECT_EQ(On({6, 19}).driver, "udp");
  EXPECT_EQ(On({6, 20}).driver, "uring");
  EXPECT_EQ(On({7, 0}).driver, "uring");
  EXPECT_EQ(On({6, 19}).reason, "uring was not faster when measured on Linux 6.8");
  EXPECT_EQ(On({7, 0}).reason, "it was faster when measured on Linux 6.20");
}

TEST(DriverChoice, IsUdpWhereNothingWasMeasured) {
  EXPECT_EQ(On({5, 18}).driver, "udp");
  EXPECT_EQ(On({5, 18}).reason, "uring has not been measured on Linux 5.18");
  EXPECT_EQ(ChooseDriver({}, kMixed).driver, "udp");
  EXPECT_EQ(ChooseDriver({}, kMixed).reason, "the kernel's version is not known");
}

TEST(DriverChoice, IsUdpWithTheReasonWhereUringCannotWorkHoweverFast) {
  EXPECT_EQ(On({7, 0}, "io_uring is refused to this process").driver, "udp");
  EXPECT_EQ(On({7, 0}, "io_uring is refused to this process").reason, "io_uring is refused to this process");
}

TEST(DriverChoice, HasMeasurementsThatRiseByKernel) {
  const std::span<const UringMeasurement> all = UringMeasurements();
  ASSERT_FALSE(all.empty());
  EXPECT_TRUE(std::ranges::is_sorted(all, {}, &UringMeasurement::kernel));
}

TEST(DriverChoice, ReadsKernelVersionsFromTheirFront) {
  EXPECT_EQ(ParseKernelVersion("6.18.44-fc-v1045"), (KernelVersion{6, 18}));
  EXPECT_EQ(ParseKernelVersion("5.15"), (KernelVersion{5, 15}));
  EXPECT_EQ(ParseKernelVersion("6.1-rc1"), (KernelVersion{6, 1}));
  for (const char* text : {"", "6", "6.", "6-1", "x.1", ".5", "-6.1"}) {
    EXPECT_EQ(ParseKernelVersion(text), std::nullopt) << text;
  }
  utsname host{};
  ASSERT_EQ(uname(&host), 0);
  EXPECT_EQ(ReadDriverFacts().kernel, ParseKernelVersion(host.release));
  EXPECT_TRUE(ReadDriverFacts().kernel.has_value()) << host.release;
}

EngineOptions Loopback() {
  EngineOptions options;
  options.devices.emplace_back().local_address = "127.0.0.1";
  return options;
}

// Runs in a child to which io_uring is refused; what it returns is the child's exit status.
int WithoutUring(int (*body)()) {
  const pid_t child = fork();
  if (child == 0) _exit(RefuseCall(kUringSetupCall, EPERM) ? body() : 99);
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(DriverChoice, SaysThatIoUringIsRefusedAndNotTheWayOutForWhoAskedForIt) {
  std::string why;
  if (!UringOffered(&why)) GTEST_SKIP() << why;
  EXPECT_EQ(ReadDriverFacts().uring_refused, "");
  EXPECT_EQ(WithoutUring([] {
              const std::string refused = ReadDriverFacts().uring_refused;
              std::fprintf(stderr, "%s\n", refused.c_str());
              return refused == "io_uring is refused to this process (a container's seccomp profile)" ? 0 : 1;
            }),
            0);
}

TEST(DriverChoice, FallsBackToUdpWithTheReasonWhereItsUringCannotStart) {
  EXPECT_EQ(WithoutUring([] {
              DriverChoice choice = On({7, 0});  // as if it had been offered a moment ago
              std::string error;
              const std::unique_ptr<Engine> engine = StartChosen(Loopback(), &choice, &error);
              std::fprintf(stderr, "%s: %s\n", choice.driver.c_str(), choice.reason.c_str());
              if (engine == nullptr || !engine->driver_description(0).starts_with("udp")) return 1;
              return choice.driver == "udp" && choice.reason ==
                                                   "uring could not start: io_uring is refused to this "
                                                   "process (a container's seccomp profile)"
                         ? 0
                         : 2;
            }),
            0);
}

TEST(DriverChoice, NeverLeavesADriverThatWasNamed) {
  EXPECT_EQ(WithoutUring([] {
              DriverChoice choice{"uring", ""};
              std::string error;
              const bool started = StartChosen(Loopback(), &choice, &error) != nullptr;
              return !started && error.find("FORGIVE_DRIVER=udp") != std::string::npos ? 0 : 1;
            }),
            0);
}

TEST(DriverChoice, StartsTheDriverThatItChose) {
  std::string why;
  if (!UringOffered(&why)) GTEST_SKIP() << why;
  for (const KernelVersion kernel : {KernelVersion{6, 8}, KernelVersion{7, 0}}) {
    DriverChoice choice = On(kernel);
    std::string error;
    const std::unique_ptr<Engine> engine = StartChosen(Loopback(), &choice, &error);
    ASSERT_NE(engine, nullptr) << error;
    EXPECT_TRUE(engine->driver_description(0).starts_with(choice.driver)) << engine->driver_description(0);
  }
}

TEST(DriverChoice, LeavesAnErrorThatIsNotUringsToUdp) {
  EngineOptions options = Loopback();
  options.devices[0].local_address = "192.0.2.77";  // nobody's
  DriverChoice choice = On({7, 0});
  std::string error;
  EXPECT_EQ(StartChosen(options, &choice, &error), nullptr);
  EXPECT_NE(error.find("192.0.2.77"), std::string::npos) << error;
}

}  // namespace
}  // namespace forgive
