// SPDX-License-Identifier: Apache-2.0
// Tests of the engine when peers die, connections close with requests in flight, and tickets are wrong.
#include <gtest/gtest.h>

#include "dataplane/engine.h"
#include "ranks.h"

namespace forgive {
namespace {

class EngineFailureOver : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    std::string why;
    if (!NetworkOffered(GetParam(), &why)) GTEST_SKIP() << why;
  }
  // A peer that lives may be without a processor for longer than a test wants to wait for one that is silent.
  static constexpr Nanoseconds kPeerLives = Seconds(20);
  static constexpr Nanoseconds kPeerIsSilent = Milliseconds(800);

  RankOptions Options(Nanoseconds peer_timeout = kPeerLives) const {
    RankOptions options;
    options.network = GetParam();
    options.hub = hub_;
    options.config.peer_timeout = peer_timeout;
    options.config.min_rto = Milliseconds(10);
    return options;
  }

  struct Post {
    RequestSlot slot;
    std::vector<uint8_t> bytes;
  };
  // Posts a receive of `size` bytes.
  static std::unique_ptr<Post> Receive(Engine& engine, const Link& link, size_t size) {
    auto post = std::make_unique<Post>();
    post->bytes.assign(size, 0xaa);
    ReceiveRequest request;
    request.buffer = post->bytes.data();
    request.capacity = size;
    EXPECT_TRUE(engine.PostReceive(link.receiver.get(), &post->slot, request));
    return post;
  }
  static std::unique_ptr<Post> Send(Engine& engine, const Link& link, size_t size) {
    auto post = std::make_unique<Post>();
    post->bytes = MessageBytes(1, size);
    EXPECT_TRUE(engine.PostSend(link.sender.get(), &post->slot,
                                SendRequest{0, post->bytes.data(), static_cast<uint32_t>(size)}));
    return post;
  }

 private:
  std::shared_ptr<MemoryHub> hub_ = MemoryHub::Make();
};

TEST_P(EngineFailureOver, FailsTheSurvivorsRequestsWhenAPeerDies) {
  const auto a = StartEngine(Options());
  auto b = StartEngine(Options());
  const Link out = MakeLink(*a, *b);
  const Link in = MakeLink(*b, *a);
  // Unmatched on purpose: they are in flight when the peer goes.
  std::vector<std::unique_ptr<Post>> posts;
  for (int i = 0; i < 5; ++i) posts.push_back(Send(*a, out, 100000));
  for (int i = 0; i < 5; ++i) posts.push_back(Receive(*a, in, 100000));
  b.reset();
  for (const auto& post : posts) {
    ASSERT_TRUE(WaitFor([&] { return Finished(post->slot); }));
    EXPECT_EQ(post->slot.state.load(), uint32_t{RequestSlot::kFailed});
    EXPECT_NE(post->slot.reason, FailReason::kNone);
  }
  EXPECT_EQ(out.sender->state.load(), uint32_t{ConnectionSlot::kFailed});
  EXPECT_EQ(in.receiver->state.load(), uint32_t{ConnectionSlot::kFailed});
  // What is posted afterwards fails too, and the engine lives on.
  const auto late = Send(*a, out, 10);
  ASSERT_TRUE(WaitFor([&] { return Finished(late->slot); }));
  EXPECT_EQ(late->slot.state.load(), uint32_t{RequestSlot::kFailed});
  const auto c = StartEngine(Options());
  std::deque<Stream> streams;
  streams.emplace_back(*a, *c, MakeLink(*a, *c), std::vector<size_t>{50000}, 1);
  RunStreams(streams);
}

TEST_P(EngineFailureOver, FailsRequestsOfAPeerThatFallsSilentWithoutAWord) {
  // The peer's packets stop: its driver drops everything from the moment when it is told.
  RankOptions options = Options(kPeerIsSilent);
  const auto a = StartEngine(options);
  options.fault = "drop=1";
  const auto deaf = StartEngine(options);
  ListenTicket ticket;
  const auto listener = a->Listen(0, &ticket);
  const auto never = deaf->Connect(0, a->local_address(0), ticket, 0);
  ASSERT_TRUE(WaitFor([&] { return never->state.load() == ConnectionSlot::kFailed; }));
  EXPECT_EQ(static_cast<FailReason>(never->reason.load()), FailReason::kNoAnswer);
  // The other side accepted (it heard the Connect); what it posts must fail when nothing more comes.
  Link link;
  ASSERT_TRUE(WaitFor([&] { return (link.receiver = a->Accept(listener)) != nullptr; }));
  const auto post = Receive(*a, link, 1000);
  ASSERT_TRUE(WaitFor([&] { return Finished(post->slot); }));
  EXPECT_EQ(post->slot.state.load(), uint32_t{RequestSlot::kFailed});
}

// Passes everything on until it is told to be silent: what a killed process looks like to its peers.
class SilencedDriver final : public Driver {
 public:
  SilencedDriver(std::unique_ptr<Driver> inner, std::shared_ptr<std::atomic<bool>> silent)
      : inner_(std::move(inner)), silent_(std::move(silent)) {}
  size_t ReceiveBurst(std::span<Datagram> out) override {
    const size_t count = inner_->ReceiveBurst(out);
    return silent_->load() ? 0 : count;
  }
  size_t SendBurst(std::span<const Transmit> packets) override {
    return silent_->load() ? packets.size() : inner_->SendBurst(packets);
  }
  Address local_address() const override { return inner_->local_address(); }
  uint32_t max_datagram_bytes() const override { return inner_->max_datagram_bytes(); }
  std::span<const int> poll_fds() const override { return inner_->poll_fds(); }
  DriverCounters counters() const override { return inner_->counters(); }
  std::string description() const override { return inner_->description(); }

 private:
  std::unique_ptr<Driver> inner_;
  std::shared_ptr<std::atomic<bool>> silent_;
};

TEST(EngineFailure, FailsBothDirectionsInTheMiddleOfTrafficWhenAPeerIsKilled) {
  const auto hub = MemoryHub::Make();
  const auto silent = std::make_shared<std::atomic<bool>>(false);
  EngineOptions options;
  options.devices.emplace_back();
  options.transport.peer_timeout = Seconds(5);  // it lives first, and may be without a processor
  options.transport.min_rto = Milliseconds(10);
  options.driver_factory = [&](const DeviceOptions&, const EngineOptions&, std::string*) { return hub->Open(); };
  std::string error;
  const auto a = Engine::Start(options, &error);
  options.driver_factory = [&](const DeviceOptions&, const EngineOptions&, std::string*) {
    return std::make_unique<SilencedDriver>(hub->Open(), silent);
  };
  const auto killed = Engine::Start(options, &error);
  const Link out = MakeLink(*a, *killed);
  const Link in = MakeLink(*killed, *a);
  std::deque<Stream> streams;
  streams.emplace_back(*a, *killed, out, std::vector<size_t>{100000, 100000}, 2);
  streams.emplace_back(*killed, *a, in, std::vector<size_t>{100000, 100000}, 2);
  RunStreams(streams);
  silent->store(true);
  std::vector<uint8_t> bytes = MessageBytes(1, 50000);
  std::vector<uint8_t> got(50000);
  std::vector<RequestSlot> slots(4);
  ReceiveRequest receive;
  receive.buffer = got.data();
  receive.capacity = got.size();
  for (size_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(a->PostSend(out.sender.get(), &slots[i], SendRequest{0, bytes.data(), 50000}));
    ASSERT_TRUE(a->PostReceive(in.receiver.get(), &slots[2 + i], receive));
  }
  for (const RequestSlot& slot : slots) {
    ASSERT_TRUE(WaitFor([&] { return Finished(slot); }));
    EXPECT_EQ(slot.state.load(), uint32_t{RequestSlot::kFailed});
    EXPECT_EQ(slot.reason, FailReason::kPeerSilent);
  }
}

TEST_P(EngineFailureOver, WritesNothingToMemoryAfterClose) {
  const auto a = StartEngine(Options());
  const auto b = StartEngine(Options());
  for (int round = 0; round < 30; ++round) {
    const Link link = MakeLink(*a, *b);
    std::vector<std::unique_ptr<Post>> receives;
    std::vector<std::unique_ptr<Post>> sends;
    for (int i = 0; i < 8; ++i) receives.push_back(Receive(*b, link, 200000));
    for (int i = 0; i < 8; ++i) sends.push_back(Send(*a, link, 200000));
    usleep(static_cast<useconds_t>(round * 40));
    b->Close(link.receiver);
    // The memory is ours again: what we write stays, and slots keep their state.
    std::vector<uint32_t> states;
    for (const auto& post : receives) {
      std::fill(post->bytes.begin(), post->bytes.end(), uint8_t{0x55});
      states.push_back(post->slot.state.load());
    }
    for (const auto& post : sends) {
      ASSERT_TRUE(WaitFor([&] { return Finished(post->slot); }));
    }
    usleep(500);
    for (size_t i = 0; i < receives.size(); ++i) {
      EXPECT_EQ(receives[i]->slot.state.load(), states[i]);
      EXPECT_EQ(std::count(receives[i]->bytes.begin(), receives[i]->bytes.end(), 0x55), 200000);
    }
    a->Close(link.sender);
    EXPECT_EQ(link.sender->state.load(), uint32_t{ConnectionSlot::kClosed});
  }
}

TEST_P(EngineFailureOver, ReadsNoMemoryOfASenderAfterClose) {
  const auto a = StartEngine(Options());
  const auto b = StartEngine(Options());
  for (int round = 0; round < 30; ++round) {
    const Link link = MakeLink(*a, *b);
    const auto receive = Receive(*b, link, 4 << 20);
    auto send = Send(*a, link, 4 << 20);
    usleep(static_cast<useconds_t>(round * 40));
    a->Close(link.sender);
    send.reset();  // freed: a sanitizer sees a read, and the receiver must not be told wrong bytes
    ASSERT_TRUE(WaitFor([&] { return Finished(receive->slot); }));
    if (receive->slot.state.load() == RequestSlot::kDone) {
      EXPECT_EQ(receive->bytes, MessageBytes(1, 4 << 20));
    } else {
      EXPECT_EQ(receive->slot.reason, FailReason::kReset);
    }
    b->Close(link.receiver);
  }
}

TEST_P(EngineFailureOver, FailsASendThatIsLongerThanItsReceiveOnBothSides) {
  const auto a = StartEngine(Options());
  const auto b = StartEngine(Options());
  const Link link = MakeLink(*a, *b);
  const auto receive = Receive(*b, link, 1000);
  const auto send = Send(*a, link, 1001);
  ASSERT_TRUE(WaitFor([&] { return Finished(receive->slot) && Finished(send->slot); }));
  EXPECT_EQ(receive->slot.reason, FailReason::kTooLong);
  EXPECT_EQ(send->slot.reason, FailReason::kTooLong);
}

TEST_P(EngineFailureOver, RefusesAConnectionWithAWrongSecret) {
  const auto a = StartEngine(Options(kPeerIsSilent));
  const auto b = StartEngine(Options());
  ListenTicket ticket;
  const auto listener = b->Listen(0, &ticket);
  ListenTicket forged = ticket;
  auto* secret = reinterpret_cast<uint8_t*>(&forged.secret);
  secret[0] ^= 1;
  const auto connection = a->Connect(0, b->local_address(0), forged, 0);
  ASSERT_TRUE(WaitFor([&] { return connection->state.load() == ConnectionSlot::kFailed; }));
  EXPECT_EQ(b->Accept(listener), nullptr);
  ASSERT_TRUE(WaitFor([&] { return b->Snapshot().counters.bad_tag > 0; }));
}

TEST_P(EngineFailureOver, SaysOfAConnectionBeyondItsOwnLimitThatNobodyRefusedIt) {
  RankOptions options = Options();
  options.config.linger = Milliseconds(50);
  const auto b = StartEngine(options);
  options.config.max_connections = 2;
  const auto a = StartEngine(options);
  std::vector<Link> links = {MakeLink(*a, *b), MakeLink(*a, *b)};
  ListenTicket ticket;
  const auto listener = b->Listen(0, &ticket);
  const auto third = a->Connect(0, b->local_address(0), ticket, 0);
  ASSERT_TRUE(WaitFor([&] { return third->state.load() != ConnectionSlot::kConnecting; }));
  EXPECT_EQ(third->state.load(), uint32_t{ConnectionSlot::kFailed});
  EXPECT_EQ(third->reason.load(), static_cast<uint32_t>(FailReason::kOverLimit));
  a->Close(third);
  // The two that there are go on, and the place of one that was closed is free again after its linger time.
  const auto receive = Receive(*b, links[1], 1000);
  const auto send = Send(*a, links[1], 1000);
  ASSERT_TRUE(WaitFor([&] { return Finished(receive->slot) && Finished(send->slot); }));
  EXPECT_EQ(receive->slot.state.load(), uint32_t{RequestSlot::kDone});
  a->Close(links[0].sender);
  EXPECT_TRUE(WaitFor([&] {
    const auto again = a->Connect(0, b->local_address(0), ticket, 0);
    EXPECT_TRUE(WaitFor([&] { return again->state.load() != ConnectionSlot::kConnecting; }));
    const bool failed = again->state.load() == ConnectionSlot::kFailed;
    if (failed) {
      EXPECT_EQ(again->reason.load(), static_cast<uint32_t>(FailReason::kOverLimit));
    }
    a->Close(again);
    return !failed;
  }));
}

TEST_P(EngineFailureOver, LearnsThatThePeersTableIsFullAsARefusal) {
  RankOptions options = Options();
  const auto a = StartEngine(options);
  options.config.max_connections = 1;
  const auto b = StartEngine(options);
  const Link link = MakeLink(*a, *b);
  ListenTicket ticket;
  const auto listener = b->Listen(0, &ticket);
  const auto second = a->Connect(0, b->local_address(0), ticket, 0);
  ASSERT_TRUE(WaitFor([&] { return second->state.load() == ConnectionSlot::kFailed; }));
  EXPECT_EQ(second->reason.load(), static_cast<uint32_t>(FailReason::kRefused));
}

TEST_P(EngineFailureOver, ClosesWhatNobodyAcceptedWithItsListener) {
  const auto a = StartEngine(Options());
  const auto b = StartEngine(Options());
  ListenTicket ticket;
  const auto listener = b->Listen(0, &ticket);
  const auto connection = a->Connect(0, b->local_address(0), ticket, 0);
  ASSERT_TRUE(WaitFor([&] { return connection->state.load() == ConnectionSlot::kReady; }));
  b->CloseListener(listener);
  EXPECT_EQ(b->SampleConnections().size(), 0u);
  Link link{connection, nullptr};
  const auto send = Send(*a, link, 100);
  ASSERT_TRUE(WaitFor([&] { return Finished(send->slot); }));
  EXPECT_EQ(send->slot.state.load(), uint32_t{RequestSlot::kFailed});
}

TEST_P(EngineFailureOver, EndsWithRequestsInFlight) {
  for (int round = 0; round < 10; ++round) {
    auto a = StartEngine(Options());
    auto b = StartEngine(Options());
    const Link link = MakeLink(*a, *b);
    const auto receive = Receive(*b, link, 1 << 20);
    const auto send = Send(*a, link, 1 << 20);
    usleep(static_cast<useconds_t>(round * 100));
    (round % 2 == 0 ? a : b).reset();
    const auto& survivor = round % 2 == 0 ? receive : send;
    ASSERT_TRUE(WaitFor([&] { return Finished(survivor->slot); }));
    EXPECT_TRUE(Finished((round % 2 == 0 ? send : receive)->slot));
  }
}

INSTANTIATE_TEST_SUITE_P(Networks, EngineFailureOver, testing::Values("memory", "udp_ipv4", "uring_ipv4"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace forgive
