// SPDX-License-Identifier: Apache-2.0
// Tests of what is handed over to the engine: its calls return while the engine's thread stands still.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "held_engine.h"

namespace forgive {
namespace {

class EngineHandOver : public testing::Test {
 protected:
  const std::shared_ptr<MemoryHub> hub_ = MemoryHub::Make();
  const std::shared_ptr<Hold> hold_ = std::make_shared<Hold>();
  const std::unique_ptr<Engine> held_ = StartHeldEngine(hub_, hold_);
  const std::unique_ptr<Engine> peer_ = StartPeer(hub_);
};

TEST_F(EngineHandOver, ClosesAnIdleConnectionWithoutWaitingForTheEngine) {
  const Link link = MakeLink(*held_, *peer_);
  uint32_t state = ConnectionSlot::kClosed;
  EXPECT_TRUE(ReturnsWhileHeld(hold_.get(), [&] {
    held_->CloseIdle(link.sender);
    state = link.sender->state.load();
  }));
  EXPECT_EQ(state, uint32_t{ConnectionSlot::kReady});
  EXPECT_TRUE(WaitFor([&] { return link.sender->state.load() == ConnectionSlot::kClosed; }));
  EXPECT_TRUE(WaitFor([&] { return link.receiver->state.load() == ConnectionSlot::kFailed; }));
}

TEST_F(EngineHandOver, WaitsForTheEngineInACloseThatMayHaveRequests) {
  const Link link = MakeLink(*held_, *peer_);
  EXPECT_EQ(StateAfter(hold_.get(), *link.sender, [&] { held_->Close(link.sender); }),
            uint32_t{ConnectionSlot::kClosed});
}

TEST_F(EngineHandOver, ListensWithoutWaitingForTheEngineAndIsFoundAMomentLater) {
  ListenTicket ticket;
  std::shared_ptr<ListenerSlot> listener;
  std::shared_ptr<ConnectionSlot> connection;
  EXPECT_TRUE(ReturnsWhileHeld(hold_.get(), [&] {
    listener = held_->Listen(0, &ticket);
    connection = peer_->Connect(0, held_->local_address(0), ticket, 0);
  }));
  ASSERT_NE(listener, nullptr);
  EXPECT_TRUE(WaitFor([&] { return held_->Accept(listener) != nullptr; }));
  EXPECT_TRUE(WaitFor([&] { return connection->state.load() == ConnectionSlot::kReady; }));
}

TEST_F(EngineHandOver, AcceptsWithoutWaitingForTheEngine) {
  ListenTicket ticket;
  const auto listener = held_->Listen(0, &ticket);
  const auto connection = peer_->Connect(0, held_->local_address(0), ticket, 0);
  ASSERT_TRUE(WaitFor([&] { return connection->state.load() == ConnectionSlot::kReady; }));
  held_->SampleConnections();  // a turn: the connection lies where Accept finds it
  std::shared_ptr<ConnectionSlot> accepted;
  EXPECT_TRUE(ReturnsWhileHeld(hold_.get(), [&] { accepted = held_->Accept(listener); }));
  ASSERT_NE(accepted, nullptr);
  EXPECT_EQ(accepted->state.load(), uint32_t{ConnectionSlot::kReady});
}

TEST_F(EngineHandOver, ConnectsWithoutWaitingForTheEngineAndACloseBehindItFindsTheConnection) {
  ListenTicket ticket;
  const auto listener = peer_->Listen(0, &ticket);
  std::shared_ptr<ConnectionSlot> kept;
  std::shared_ptr<ConnectionSlot> closed;
  EXPECT_TRUE(ReturnsWhileHeld(hold_.get(), [&] {
    kept = held_->Connect(0, peer_->local_address(0), ticket, 0);
    closed = held_->Connect(0, peer_->local_address(0), ticket, 0);
    held_->CloseIdle(closed);
  }));
  EXPECT_TRUE(WaitFor([&] { return kept->state.load() == ConnectionSlot::kReady; }));
  EXPECT_TRUE(WaitFor([&] { return closed->state.load() == ConnectionSlot::kClosed; }));
  EXPECT_EQ(held_->SampleConnections().size(), 1u);
}

TEST_F(EngineHandOver, ClosesAListenerWithoutWaitingForTheEngineAndWithItWhatNobodyAccepted) {
  ListenTicket ticket;
  const auto listener = held_->Listen(0, &ticket);
  const auto connection = peer_->Connect(0, held_->local_address(0), ticket, 0);
  ASSERT_TRUE(WaitFor([&] { return connection->state.load() == ConnectionSlot::kReady; }));
  EXPECT_TRUE(ReturnsWhileHeld(hold_.get(), [&] { held_->CloseListener(listener); }));
  EXPECT_EQ(held_->SampleConnections().size(), 0u);
}

// More than the ring between the engine and Accept holds.
TEST_F(EngineHandOver, LosesNoConnectionThatNobodyAcceptsForAWhile) {
  ListenTicket ticket;
  const auto listener = held_->Listen(0, &ticket);
  std::vector<std::shared_ptr<ConnectionSlot>> connections;
  for (int i = 0; i < 150; ++i) connections.push_back(peer_->Connect(0, held_->local_address(0), ticket, 0));
  for (const auto& connection : connections) {
    ASSERT_TRUE(WaitFor([&] { return connection->state.load() == ConnectionSlot::kReady; }));
  }
  for (size_t i = 0; i < connections.size(); ++i) {
    ASSERT_TRUE(WaitFor([&] { return held_->Accept(listener) != nullptr; })) << i;
  }
  EXPECT_EQ(held_->Accept(listener), nullptr);
}

TEST_F(EngineHandOver, EndsAListenerWithMoreConnectionsThanFitBetweenTheThreads) {
  ListenTicket ticket;
  const auto listener = held_->Listen(0, &ticket);
  std::vector<std::shared_ptr<ConnectionSlot>> connections;
  for (int i = 0; i < 150; ++i) connections.push_back(peer_->Connect(0, held_->local_address(0), ticket, 0));
  for (const auto& connection : connections) {
    ASSERT_TRUE(WaitFor([&] { return connection->state.load() == ConnectionSlot::kReady; }));
  }
  held_->CloseListener(listener);
  EXPECT_EQ(held_->SampleConnections().size(), 0u);
}

TEST_F(EngineHandOver, FailsAConnectThatTheEngineTakesBehindItsEnd) {
  ListenTicket ticket;
  const auto listener = peer_->Listen(0, &ticket);
  // Nobody sees when the end is in the ring: again, until it was there before the connect.
  EXPECT_TRUE(WaitFor([&] {
    const auto hold = std::make_shared<Hold>();
    auto ending = StartHeldEngine(hub_, hold);
    hold->Begin();
    Engine* const engine = ending.get();  // lives as long as its thread stands still: the destructor waits for it
    std::thread destroyer([&] { ending.reset(); });
    usleep(20000);
    const auto connection = engine->Connect(0, peer_->local_address(0), ticket, 0);
    hold->End();
    destroyer.join();
    const uint32_t state = connection->state.load();
    if (state == ConnectionSlot::kFailed) {
      EXPECT_EQ(connection->reason.load(), static_cast<uint32_t>(FailReason::kClosedHere));
    } else {
      EXPECT_EQ(state, uint32_t{ConnectionSlot::kClosed}) << "a connection that outlives its engine";
    }
    return state == ConnectionSlot::kFailed || HasFailure();
  }));
}

TEST(EngineListeners, AreAsManyAsTheLimitSaysAndAClosedOnesPlaceIsFreeAgain) {
  const auto engine = StartHeldEngine(MemoryHub::Make(), std::make_shared<Hold>(), 3);
  ListenTicket ticket;
  std::vector<std::shared_ptr<ListenerSlot>> listeners;
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 3; ++i) {
      listeners.push_back(engine->Listen(0, &ticket));
      ASSERT_NE(listeners.back(), nullptr);
    }
    EXPECT_EQ(engine->Listen(0, &ticket), nullptr);
    for (const auto& listener : listeners) {
      engine->CloseListener(listener);
      engine->CloseListener(listener);  // a second time
    }
    engine->SampleConnections();  // the engine has taken the closes
    listeners.clear();
  }
}

TEST(EngineListeners, OfSeveralThreadsAtTheLimitNeverShareAPlaceAndLeaveNoneBehind) {
  constexpr uint32_t kLimit = 8;
  const auto engine = StartHeldEngine(MemoryHub::Make(), std::make_shared<Hold>(), kLimit);
  std::atomic<uint64_t> refused{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 500; ++round) {
        ListenTicket tickets[3];
        std::shared_ptr<ListenerSlot> listeners[3];
        for (int n = 0; n < 3; ++n) listeners[n] = engine->Listen(0, &tickets[n]);
        for (const auto& listener : listeners) {
          if (listener == nullptr) {
            refused.fetch_add(1);
          } else {
            engine->CloseListener(listener);
          }
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  engine->SampleConnections();  // the engine has taken the closes
  EXPECT_GT(refused.load(), 0u) << "the limit was never reached";
  ListenTicket ticket;
  for (uint32_t i = 0; i < kLimit; ++i) EXPECT_NE(engine->Listen(0, &ticket), nullptr) << i;
  EXPECT_EQ(engine->Listen(0, &ticket), nullptr);
}

TEST_F(EngineHandOver, EndsAThousandConnectionsThatAreClosedAsTheyAreMade) {
  ListenTicket ticket;
  const auto listener = peer_->Listen(0, &ticket);
  std::vector<std::shared_ptr<ConnectionSlot>> connections;
  for (int i = 0; i < 1000; ++i) {
    connections.push_back(held_->Connect(0, peer_->local_address(0), ticket, 0));
    held_->CloseIdle(connections.back());
    if (i % 3 == 0) held_->CloseIdle(connections.back());  // a second time
    if (i % 7 == 0) held_->Close(connections.back());
  }
  for (const auto& connection : connections) {
    ASSERT_TRUE(WaitFor([&] { return connection->state.load() == ConnectionSlot::kClosed; }));
  }
  EXPECT_EQ(held_->SampleConnections().size(), 0u);
  const auto kept = held_->Connect(0, peer_->local_address(0), ticket, 0);
  EXPECT_TRUE(WaitFor([&] { return kept->state.load() == ConnectionSlot::kReady; }));
}

TEST_F(EngineHandOver, TellsBothEndsWhereTheyCloseAtOnceAndOthersGoOn) {
  const Link kept = MakeLink(*held_, *peer_);
  for (int round = 0; round < 100; ++round) {
    const Link link = MakeLink(*held_, *peer_);
    std::thread other([&] { peer_->CloseIdle(link.receiver); });
    held_->CloseIdle(link.sender);
    other.join();
    ASSERT_TRUE(WaitFor([&] {
      return link.sender->state.load() == ConnectionSlot::kClosed &&
             link.receiver->state.load() == ConnectionSlot::kClosed;
    }));
  }
  EXPECT_EQ(kept.sender->state.load(), uint32_t{ConnectionSlot::kReady});
  EXPECT_EQ(kept.receiver->state.load(), uint32_t{ConnectionSlot::kReady});
}

TEST(EngineTurn, TellsThatAReceiveIsDoneBeforeItSendsTheReportOfIt) {
  const auto hub = MemoryHub::Make();
  const auto sends = std::make_shared<Hold>();
  const auto receiver = StartHeldEngine(hub, std::make_shared<Hold>(), Config().max_listeners, sends);
  const auto sender = StartPeer(hub);
  const Link link = MakeLink(*sender, *receiver);
  std::vector<uint8_t> data(512, 0x5a), places(2 * data.size());
  RequestSlot received[2], sent[2];
  for (size_t i = 0; i < 2; ++i) {
    ReceiveRequest receive;
    receive.buffer = places.data() + i * data.size();
    receive.capacity = static_cast<uint32_t>(data.size());
    ASSERT_TRUE(receiver->PostReceive(link.receiver.get(), &received[i], receive));
  }
  SendRequest send;
  send.buffer = data.data();
  send.length = static_cast<uint32_t>(data.size());
  // After the first message's report nothing is left for the receiver to send.
  ASSERT_TRUE(sender->PostSend(link.sender.get(), &sent[0], send));
  ASSERT_TRUE(WaitFor([&] { return Finished(sent[0]); }));
  sends->BeginSoon();
  ASSERT_TRUE(sender->PostSend(link.sender.get(), &sent[1], send));
  EXPECT_TRUE(WaitFor([&] { return sends->stands(); }));
  EXPECT_EQ(received[1].state.load(), uint32_t{RequestSlot::kDone});
  EXPECT_EQ(sent[1].state.load(), uint32_t{RequestSlot::kPosted});
  sends->End();
  EXPECT_TRUE(WaitFor([&] { return Finished(sent[1]); }));
}

TEST(EngineEnd, ComesWithListensConnectsAndClosesOutstandingAndEveryConnectHearsOfIt) {
  const auto hub = MemoryHub::Make();
  const auto peer = StartPeer(hub);
  ListenTicket ticket;
  const auto listener = peer->Listen(0, &ticket);
  for (int round = 0; round < 50; ++round) {
    auto ending = StartPeer(hub);
    std::vector<std::shared_ptr<ConnectionSlot>> connections;
    std::vector<std::shared_ptr<ListenerSlot>> listeners;
    for (int i = 0; i < 50; ++i) {
      ListenTicket own;
      connections.push_back(ending->Connect(0, peer->local_address(0), ticket, 0));
      listeners.push_back(ending->Listen(0, &own));
      if (i % 2 == 0) ending->CloseIdle(connections.back());
      if (i % 3 == 0) ending->CloseListener(listeners.back());
    }
    ending.reset();
    for (const auto& connection : connections) {
      const uint32_t state = connection->state.load();
      EXPECT_TRUE(state == ConnectionSlot::kClosed || state == ConnectionSlot::kFailed) << state;
    }
  }
}

}  // namespace
}  // namespace forgive
