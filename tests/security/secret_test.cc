// SPDX-License-Identifier: Apache-2.0
// The handle's secret: it opens the listener, and no log, statistics, ledger or fault log ever holds it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "ring_steps.h"

namespace forgive::testing {
namespace {

// Where the secret stands in what listen writes, and how long it is; ItOpensTheListener proves it.
constexpr size_t kSecretAt = 56;
constexpr size_t kSecretBytes = 16;
using Secret = std::array<uint8_t, kSecretBytes>;
using HandleBytes = std::array<uint8_t, nccl::kHandleBytes>;

std::string Hex(const uint8_t* bytes, size_t length, bool capital) {
  std::string text;
  for (size_t i = 0; i < length; ++i) {
    char digits[3];
    std::snprintf(digits, sizeof digits, capital ? "%02X" : "%02x", bytes[i]);
    text += digits;
  }
  return text;
}

std::string Base64(const uint8_t* bytes, size_t length) {
  static const char kAlphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  uint32_t bits = 0;
  int count = 0;
  for (size_t i = 0; i < length; ++i) {
    bits = bits << 8 | bytes[i];
    for (count += 8; count >= 6; count -= 6) text += kAlphabet[bits >> (count - 6) & 63];
  }
  return text;  // the bits that share a digit with what follows are left out
}

// Every way in which somebody could have written the secret, or half of it: bytes, hex, decimal, base64.
std::vector<std::string> Writings(const Secret& secret) {
  std::vector<std::string> all;
  for (size_t half : {size_t{0}, size_t{8}}) {
    const uint8_t* at = secret.data() + half;
    uint64_t word;
    std::memcpy(&word, at, sizeof word);
    for (const uint64_t value : {word, __builtin_bswap64(word)}) {
      uint8_t turned[8];
      std::memcpy(turned, &value, sizeof turned);
      for (const bool capital : {false, true}) all.push_back(Hex(turned, 8, capital));
      all.push_back(std::to_string(value));
      all.push_back(std::to_string(static_cast<int64_t>(value)));
      all.emplace_back(reinterpret_cast<const char*>(turned), 8);
      std::ostringstream plain;
      plain << std::hex << value;  // without leading zeros
      all.push_back(plain.str());
    }
  }
  // At each of the three ways in which it may be aligned to base64's groups.
  for (size_t skip : {0, 1, 2}) all.push_back(Base64(secret.data() + skip, kSecretBytes - skip));
  return all;
}

bool Holds(const std::string& text, const Secret& secret) {
  const std::vector<std::string> all = Writings(secret);
  return std::any_of(all.begin(), all.end(), [&](const std::string& one) { return text.find(one) != std::string::npos; });
}

// A connection made with the handle as it is, whose listener gives away its secret.
Secret ConnectAndTellSecret(const Net& net, Pair* pair) {
  HandleBytes handle{};
  void* listen = nullptr;
  EXPECT_EQ(net.listen(0, handle.data(), &listen), nccl::kSuccess);
  Secret secret;
  std::memcpy(secret.data(), handle.data() + kSecretAt, kSecretBytes);
  EXPECT_TRUE(PollUntil([&] {
    int result = nccl::kSuccess;
    if (pair->send_comm == nullptr) result = net.connect(0, handle.data(), &pair->send_comm);
    EXPECT_EQ(result, nccl::kSuccess);
    if (pair->receive_comm == nullptr) result = net.accept(listen, &pair->receive_comm);
    EXPECT_EQ(result, nccl::kSuccess);
    return pair->send_comm != nullptr && pair->receive_comm != nullptr;
  }));
  EXPECT_EQ(net.close_listen(listen), nccl::kSuccess);
  return secret;
}

// A handle with one bit of the secret changed does not connect: the peer is never heard of.
void FailWithAWrongSecret(const Net& net, Secret* secret) {
  HandleBytes handle{};
  void* listen = nullptr;
  ASSERT_EQ(net.listen(0, handle.data(), &listen), nccl::kSuccess);
  std::memcpy(secret->data(), handle.data() + kSecretAt, kSecretBytes);
  handle[kSecretAt + 3] ^= 4;
  void* send = nullptr;
  int result = nccl::kSuccess;
  EXPECT_TRUE(PollUntil([&] {
    if (result == nccl::kSuccess) result = net.connect(0, handle.data(), &send);
    return result != nccl::kSuccess || send != nullptr;
  }));
  EXPECT_NE(result, nccl::kSuccess) << "the byte that was changed is not of the secret";
  EXPECT_TRUE(LogContains("did not answer"));
  net.close_listen(listen);
}

std::string Contents(const std::filesystem::path& folder) {
  std::string all;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    all += entry.path().filename().string() + "\n" + text.str() + "\n";
  }
  return all;
}

class SecretTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/forgive-secret-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  // As talkative as it gets.
  Variables Talkative() const {
    const std::string folder = folder_.string();
    return {{"FORGIVE_LOG", "debug"},       {"FORGIVE_STATS", folder + "/stats"},
            {"FORGIVE_TRACE_INTERVAL_US", "500"}, {"FORGIVE_FAULT_LOG", folder + "/trims"},
            {"FORGIVE_PEER_TIMEOUT_S", "1"}};
  }

  std::filesystem::path folder_;
};

TEST_F(SecretTest, IsFoundByTheSearchInEveryWriting) {
  Secret secret;
  for (size_t i = 0; i < secret.size(); ++i) secret[i] = static_cast<uint8_t>(201 + 17 * i);
  for (const std::string& writing : Writings(secret)) EXPECT_TRUE(Holds("before " + writing + " after", secret));
  EXPECT_FALSE(Holds("before and after", secret));
}

TEST_F(SecretTest, OpensTheListenerAndStandsInNothingThatIsWritten) {
  RunPlugin(Talkative() + kWord + kTrims, [this](const Net& net, const Interface& forgive) {
    ASSERT_NE(freopen((folder_ / "stderr").c_str(), "w", stderr), nullptr);
    std::vector<Secret> secrets(2);
    Pair pair;
    secrets[0] = ConnectAndTellSecret(net, &pair);
    FailWithAWrongSecret(net, &secrets[1]);
    RingConnection ring = MakeRing(net);
    ASSERT_EQ(forgive.begin(1, 0, 8 << 20), FORGIVE_OK);
    const uint64_t forgiven = AllReduce(net, forgive, &ring, 4, kPosted, 0);
    EXPECT_EQ(forgive.end(1), FORGIVE_OK);
    EXPECT_GT(forgiven, 0u);
    net.close_send(pair.send_comm);
    net.close_receive(pair.receive_comm);
    std::string said;
    EXPECT_TRUE(PollUntil([&] {  // the statistics' thread writes once a while
      std::fflush(stderr);
      said = Contents(folder_);
      return said.find("\"type\":\"step\"") != std::string::npos &&
             said.find("\"type\":\"sample\"") != std::string::npos;
    }));
    EXPECT_NE(said.find("\"type\":\"sample\""), std::string::npos) << "the statistics were not captured";
    EXPECT_NE(said.find("did not answer"), std::string::npos) << "standard error was not captured";
    for (const std::string& line : LogLines()) said += line + "\n";
    for (const forgive_range_t& range : Ledger(forgive))
      said.append(reinterpret_cast<const char*>(&range), sizeof range);
    said += forgive.last_error();
    for (const Secret& secret : secrets) EXPECT_FALSE(Holds(said, secret));
  });
}

}  // namespace
}  // namespace forgive::testing
