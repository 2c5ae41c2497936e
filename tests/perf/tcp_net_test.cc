// SPDX-License-Identifier: Apache-2.0
// The TCP baselines, one message at a time: sizes, order, limits, and what a broken connection says.
#include <gtest/gtest.h>
#include <sched.h>

#include <chrono>
#include <string>
#include <vector>

#include "testbed/perf/error.h"
#include "testbed/perf/net.h"

namespace forgive::perf {
namespace {

// Two ranks' nets in one process and a connection from one to the other.
class TcpNetTest : public ::testing::TestWithParam<Baseline> {
 protected:
  void SetUp() override {
    Handle handle = {};
    void* listener = nullptr;
    receiver_->Listen(handle, &listener);
    sender_->Connect(handle, &send_comm_);
    for (int i = 0; receive_comm_ == nullptr && i < kTurns; ++i) {
      receiver_->Accept(listener, &receive_comm_);
      receiver_->Idle(i);
    }
    receiver_->CloseListen(listener);
    ASSERT_NE(receive_comm_, nullptr);
  }
  void TearDown() override {
    if (send_comm_ != nullptr) sender_->CloseSend(send_comm_);
    if (receive_comm_ != nullptr) receiver_->CloseReceive(receive_comm_);
  }

  void* Send(std::vector<char>& data) { return sender_->Isend(send_comm_, data.data(), data.size(), 0, nullptr); }
  void* Receive(std::vector<char>& data) {
    return receiver_->Irecv(receive_comm_, data.data(), data.size(), 0, nullptr);
  }
  // The size with which it ends.
  std::size_t Await(Net& net, void* request) {
    std::size_t bytes = 0;
    for (int i = 0; i < kTurns; ++i) {
      if (net.Test(request, &bytes)) return bytes;
      net.Idle(i);
    }
    ADD_FAILURE() << "the request does not end";
    return 0;
  }
  // The same for a message larger than what TCP holds: a baseline may move bytes only in its calls.
  std::size_t AwaitBoth(void* receive, void* send) {
    std::size_t received = 0, sent = 0;
    bool is_received = false, is_sent = false;
    for (int i = 0; i < kTurns && !(is_received && is_sent); ++i) {
      is_received = is_received || receiver_->Test(receive, &received);
      is_sent = is_sent || sender_->Test(send, &sent);
      if (!is_received || !is_sent) receiver_->Idle(i);
    }
    EXPECT_TRUE(is_received && is_sent) << "the requests do not end";
    return received;
  }
  std::string ReasonOf(void* receive) {
    try {
      Await(*receiver_, receive);
    } catch (const RunError& error) {
      return error.what();
    }
    return "";
  }

  static constexpr int kTurns = 50000;
  std::unique_ptr<Net> sender_ = MakeTcpNet(GetParam(), "127.0.0.1");
  std::unique_ptr<Net> receiver_ = MakeTcpNet(GetParam(), "127.0.0.1");
  void* send_comm_ = nullptr;
  void* receive_comm_ = nullptr;
};

TEST_P(TcpNetTest, MessagesArriveWholeInOrderAndWithTheSizeThatWasSent) {
  const std::size_t sizes[] = {1, 0, 4096, 3 << 20, 17};
  std::vector<std::vector<char>> sent, received;
  std::vector<void*> sends, receives;
  for (const std::size_t size : sizes) {
    sent.emplace_back(size, static_cast<char>('a' + sent.size()));
    received.emplace_back(4 << 20, '-');
  }
  for (std::size_t i = 0; i < sent.size(); ++i) {
    receives.push_back(Receive(received[i]));
    sends.push_back(Send(sent[i]));
  }
  for (std::size_t i = 0; i < sent.size(); ++i) {
    const std::size_t got = AwaitBoth(receives[i], sends[i]);
    ASSERT_EQ(got, sent[i].size());
    EXPECT_TRUE(std::equal(sent[i].begin(), sent[i].end(), received[i].begin()));
    EXPECT_EQ(received[i][got], '-') << "written beyond message " << i;
  }
}

TEST_P(TcpNetTest, APostBeyondTheLimitSaysTryAgainAndHasRoomOnceAReceiveIsDone) {
  std::vector<char> target(8);
  std::vector<void*> receives;
  while (receives.size() < 1000) {
    void* const receive = Receive(target);
    if (receive == nullptr) break;
    receives.push_back(receive);
  }
  ASSERT_LT(receives.size(), 1000u);
  std::vector<char> data(8, 'x');
  AwaitBoth(receives.front(), Send(data));
  EXPECT_NE(Receive(target), nullptr);
  EXPECT_EQ(Receive(target), nullptr);
}

TEST_P(TcpNetTest, AMessageLargerThanItsReceiveIsAnErrorThatNamesBothSizes) {
  std::vector<char> data(100), target(10);
  void* const receive = Receive(target);
  Await(*sender_, Send(data));
  const std::string reason = ReasonOf(receive);
  EXPECT_NE(reason.find("100 bytes"), std::string::npos) << reason;
  EXPECT_NE(reason.find("receive of 10"), std::string::npos) << reason;
}

TEST_P(TcpNetTest, AReceiveWhoseSenderClosedIsAnErrorAndSoIsWhatIsPostedAfterIt) {
  std::vector<char> target(10);
  void* const receive = Receive(target);
  sender_->CloseSend(send_comm_);
  send_comm_ = nullptr;
  EXPECT_NE(ReasonOf(receive).find("closed"), std::string::npos);
  EXPECT_NE(ReasonOf(Receive(target)).find("closed"), std::string::npos);
}

TEST_P(TcpNetTest, ACloseWithAReceiveInFlightLeavesItsBufferAlone) {
  std::vector<char> target(10, '-');
  Receive(target);
  receiver_->CloseReceive(receive_comm_);
  receive_comm_ = nullptr;
  std::vector<char> data(10, 'x');
  try {
    Await(*sender_, Send(data));  // TCP takes it: nobody has told the sender yet
  } catch (const RunError&) {
  }
  EXPECT_EQ(target, std::vector<char>(10, '-'));
}

INSTANTIATE_TEST_SUITE_P(Baselines, TcpNetTest, ::testing::Values(Baseline::kTcp, Baseline::kTcpThreaded),
                         [](const auto& one) {
                           return one.param == Baseline::kTcp ? std::string("Tcp") : std::string("TcpThreaded");
                         });

}  // namespace
}  // namespace forgive::perf
