// SPDX-License-Identifier: Apache-2.0
// Which driver the library runs on: the one that was named, or by itself one that works in this process.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "fake_nccl.h"
#include "refuse_call.h"

namespace forgive::testing {
namespace {

constexpr size_t kMessageBytes = 1 << 20;

void Carry(const Net& net) {
  Pair pair = MakePair(net, kMessageBytes);
  FillPattern(&pair.source, 5);
  void* receive = nullptr;
  void* send = nullptr;
  ASSERT_EQ(Receive(net, &pair, 0, kMessageBytes, &receive), nccl::kSuccess);
  ASSERT_EQ(Send(net, pair, 0, kMessageBytes, &send), nccl::kSuccess);
  EXPECT_EQ(Wait(net, receive), nccl::kSuccess);
  EXPECT_EQ(Wait(net, send), nccl::kSuccess);
  EXPECT_EQ(pair.source, pair.destination);
  ClosePair(net, &pair);
}

TEST(PluginDriver, IsUdpWithTheReasonWhereNobodyNamedOneAndIoUringIsRefused) {
  for (const char* setting : {"", "auto"}) {
    ExpectInChild({}, [setting] {
      unsetenv("FORGIVE_DRIVER");
      if (*setting != '\0') setenv("FORGIVE_DRIVER", setting, 1);
      ASSERT_TRUE(RefuseCall(kUringSetupCall, EPERM));
      const Library library;
      const Net net = library.Table(8);
      ASSERT_EQ(net.init(), nccl::kSuccess);
      EXPECT_TRUE(LogContains("driver udp (auto: ")) << LogLines()[0];
      // Why it cannot work, and not that it would not have been faster.
      EXPECT_TRUE(LogContains("uring is refused to this process") || LogContains("uring is switched off") ||
                  LogContains("uring is not in this build"))
          << LogLines()[0];
      Carry(net);
    });
  }
}

TEST(PluginDriver, ThatWasNamedIsNeverLeft) {
  ExpectInChild({{"FORGIVE_DRIVER", "uring"}}, [] {
    ASSERT_TRUE(RefuseCall(kUringSetupCall, EPERM));
    const Library library;
    EXPECT_NE(library.Table(8).init(), nccl::kSuccess);
    EXPECT_TRUE(LogContains("FORGIVE_DRIVER=udp"));
  });
  ExpectInChild({{"FORGIVE_DRIVER", "udp"}}, [] {
    const Library library;
    ASSERT_EQ(library.Table(8).init(), nccl::kSuccess);
    EXPECT_TRUE(LogContains("driver udp on lo")) << LogLines()[0];
  });
}

TEST(PluginDriver, StandsInTheStatisticsWithWhatChoseIt) {
  for (const char* setting : {"auto", "udp"}) {
    const std::string file = ::testing::TempDir() + "forgive-driver-" + std::to_string(getpid());
    ExpectInChild({{"FORGIVE_DRIVER", setting}, {"FORGIVE_STATS", file}}, [] {
      const Library library;
      ASSERT_EQ(library.Table(8).init(), nccl::kSuccess);
    });
    std::ifstream stream(file);
    std::string line;
    std::getline(stream, line);
    std::remove(file.c_str());
    const nlohmann::json init = nlohmann::json::parse(line);
    const std::string driver = init["driver"];
    EXPECT_TRUE(driver == "udp" || driver == "uring") << driver;
    EXPECT_EQ(init["driver_reason"] == "FORGIVE_DRIVER", std::string(setting) != "auto") << line;
    EXPECT_EQ(init["devices"][0]["facts_from"], "sysfs");
    EXPECT_EQ(init["devices"][0]["guid"], "0x0000000000000000");
    EXPECT_EQ(init["devices"][0]["port"], 0);
    EXPECT_EQ(init["devices"][0]["pci_path"], "");
  }
}

}  // namespace
}  // namespace forgive::testing
