// SPDX-License-Identifier: Apache-2.0
// Tests of the fault-injecting driver: each fault alone, its record, and its seed.
#include "dataplane/fault_driver.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <set>
#include <sstream>

#include "dataplane/memory_driver.h"
#include "packets.h"

namespace forgive {
namespace {

FaultSpec MustParse(const std::string& text) {
  FaultSpec spec;
  std::string error;
  EXPECT_TRUE(ParseFaultSpec(text, &spec, &error)) << error;
  return spec;
}

// Sends `bytes` in order through a driver with faults and returns what comes out.
std::vector<Received> Through(const std::string& spec, const std::vector<std::string>& bytes, uint64_t* faults,
                              std::shared_ptr<FaultLog> log = nullptr) {
  const auto hub = MemoryHub::Make(4096);
  const auto sender = hub->Open();
  const auto receiver = MakeFaultDriver(hub->Open(), MustParse(spec), std::move(log));
  for (const std::string& one : bytes) {
    const Transmit packet = MakePacket(receiver->local_address(), one, PacketClass::kData);
    EXPECT_EQ(sender->SendBurst({&packet, 1}), 1u);
  }
  std::vector<Received> received = ReceiveRest(*receiver);
  *faults = receiver->counters().faults_injected;
  return received;
}

std::vector<std::string> DataPackets(uint32_t count) {
  std::vector<std::string> bytes;
  for (uint32_t i = 0; i < count; ++i)
    bytes.push_back(DataPacketBytes(0xabcdef0123456789u, i / 10, i % 10 * 1024, 1024));
  return bytes;
}

TEST(FaultDriver, DropsAboutAsManyAsAskedAndCountsThem) {
  uint64_t faults = 0;
  const std::vector<Received> received = Through("drop=0.25", DataPackets(2000), &faults);
  EXPECT_EQ(received.size() + faults, 2000u);
  EXPECT_GT(faults, 400u);
  EXPECT_LT(faults, 600u);
}

TEST(FaultDriver, TrimsToTheHeaderAndRecordsEachTrim) {
  const std::string path = testing::TempDir() + "forgive_fault_log_test";
  const std::string file = path + "." + std::to_string(getpid());
  std::string error;
  std::shared_ptr<FaultLog> log = FaultLog::Open(path, &error);
  ASSERT_NE(log, nullptr) << error;
  uint64_t faults = 0;
  const std::vector<std::string> bytes = DataPackets(2000);
  const std::vector<Received> received = Through("trim=0.3,seed=3", bytes, &faults, log);
  log->Flush();
  ASSERT_EQ(received.size(), bytes.size());
  std::ostringstream expected;
  uint64_t trims = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (received[i].bytes == bytes[i]) continue;
    ++trims;
    ASSERT_EQ(received[i].bytes, bytes[i].substr(0, 56));
    expected << "trim abcdef0123456789 " << i / 10 << " " << i % 10 * 1024 << " 1024\n";
  }
  EXPECT_EQ(trims, faults);
  EXPECT_GT(trims, 400u);
  std::ostringstream written;
  written << std::ifstream(file).rdbuf();
  EXPECT_EQ(written.str(), expected.str());
  std::remove(file.c_str());
}

TEST(FaultDriver, TrimsOnlyDataWithAPayload) {
  uint64_t faults = 0;
  std::vector<std::string> bytes = {PatternBytes(1, 2000), DataPacketBytes(1, 1, 0, 0),
                                    DataPacketBytes(1, 1, 0, 512).substr(0, 100)};
  const std::vector<Received> received = Through("trim=1", bytes, &faults);
  ASSERT_EQ(received.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(received[i].bytes, bytes[i]);
  EXPECT_EQ(faults, 0u);
}

TEST(FaultDriver, DuplicatesWholePackets) {
  uint64_t faults = 0;
  const std::vector<std::string> bytes = DataPackets(1000);
  const std::vector<Received> received = Through("duplicate=0.5", bytes, &faults);
  EXPECT_EQ(received.size(), 1000 + faults);
  std::set<std::string> distinct;
  for (const Received& one : received) distinct.insert(one.bytes);
  EXPECT_EQ(distinct, std::set<std::string>(bytes.begin(), bytes.end()));
  EXPECT_GT(faults, 400u);
}

TEST(FaultDriver, ReordersWithoutLosingAny) {
  uint64_t faults = 0;
  const std::vector<std::string> bytes = DataPackets(1000);
  const std::vector<Received> received = Through("reorder=0.2", bytes, &faults);
  std::vector<std::string> arrived;
  for (const Received& one : received) arrived.push_back(one.bytes);
  EXPECT_NE(arrived, bytes);
  std::vector<std::string> sent = bytes;
  std::sort(arrived.begin(), arrived.end());
  std::sort(sent.begin(), sent.end());
  EXPECT_EQ(arrived, sent);
  EXPECT_GT(faults, 100u);
}

TEST(FaultDriver, FlipsExactlyOneBitOfACorruptedPacket) {
  uint64_t faults = 0;
  const std::vector<std::string> bytes = DataPackets(1000);
  const std::vector<Received> received = Through("corrupt=0.2", bytes, &faults);
  ASSERT_EQ(received.size(), bytes.size());
  uint64_t corrupted = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    ASSERT_EQ(received[i].bytes.size(), bytes[i].size());
    int bits = 0;
    for (size_t b = 0; b < bytes[i].size(); ++b) {
      bits += __builtin_popcount(static_cast<unsigned char>(received[i].bytes[b] ^ bytes[i][b]));
    }
    ASSERT_LE(bits, 1);
    corrupted += static_cast<uint64_t>(bits);
  }
  EXPECT_EQ(corrupted, faults);
  EXPECT_GT(corrupted, 100u);
}

TEST(FaultDriver, HoldsDelayedPacketsUntilTheDeadlineThatItNames) {
  const auto hub = MemoryHub::Make();
  const auto sender = hub->Open();
  const auto receiver = MakeFaultDriver(hub->Open(), MustParse("delay_us=50000"), nullptr);
  const std::string bytes = PatternBytes(1, 500);
  const Transmit packet = MakePacket(receiver->local_address(), bytes, PacketClass::kData);
  EXPECT_EQ(receiver->next_deadline(), kNever);
  ASSERT_EQ(sender->SendBurst({&packet, 1}), 1u);
  const TimePoint before = MonotonicNow();
  std::vector<Received> received;
  EXPECT_EQ(ReceiveSome(*receiver, &received), 0u);
  const TimePoint deadline = receiver->next_deadline();
  EXPECT_GE(deadline, before + Microseconds(50000));
  while (MonotonicNow() < deadline) usleep(1000);
  ASSERT_EQ(ReceiveSome(*receiver, &received), 1u);
  EXPECT_EQ(received[0].bytes, bytes);
  EXPECT_EQ(receiver->next_deadline(), kNever);
}

TEST(FaultDriver, RepeatsItsFaultsFromItsSeed) {
  const std::string chances = "trim=0.1,drop=0.1,duplicate=0.1,corrupt=0.1,seed=";
  const std::vector<std::string> bytes = DataPackets(1000);
  uint64_t faults = 0;
  const auto text = [&](const std::string& seed) {
    std::string all;
    for (const Received& one : Through(chances + seed, bytes, &faults)) all += one.bytes;
    return all;
  };
  const std::string first = text("42");
  EXPECT_EQ(first, text("42"));
  EXPECT_NE(first, text("43"));
}

TEST(FaultSpec, NamesThePartThatIsWrong) {
  for (const char* text : {"trim=2", "drop=-1", "loss=0.1", "trim", "trim=", "seed=x", "delay_us=1.5",
                           "delay_us=1000001", "drop=0.1x", "trim=1e-3", "drop=0.0000001"}) {
    FaultSpec spec;
    std::string error;
    EXPECT_FALSE(ParseFaultSpec(std::string("drop=0.5,") + text, &spec, &error)) << text;
    EXPECT_NE(error.find(text), std::string::npos) << error;
  }
}

TEST(FaultLog, SaysWhichFileCannotBeMade) {
  std::string error;
  EXPECT_EQ(FaultLog::Open("/no-such-folder/log", &error), nullptr);
  EXPECT_NE(error.find("/no-such-folder/log"), std::string::npos);
}

}  // namespace
}  // namespace forgive
