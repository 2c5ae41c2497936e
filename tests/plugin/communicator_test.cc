// SPDX-License-Identifier: Apache-2.0
// When the close of a communicator waits for the engine's thread, and when it does not.
#include "plugin/communicator.h"

#include <gtest/gtest.h>

#include <vector>

#include "held_engine.h"
#include "plugin/nccl_abi.h"

namespace forgive {
namespace {

class CommunicatorClose : public testing::Test {
 protected:
  // The receiving end, over the engine that can be held up.
  std::unique_ptr<Communicator> Make() {
    CommunicatorOptions options;
    options.engine = held_.get();
    options.facts = &facts_;
    options.connection = link_.receiver;
    return std::make_unique<Communicator>(Communicator::Kind::kReceive, options);
  }
  Request* Post(Communicator* communicator, const MemoryRegion* region) {
    Request* request = nullptr;
    EXPECT_EQ(communicator->Receive(bytes_.data(), bytes_.size(), region, nullptr, false, &request), nccl::kSuccess);
    EXPECT_NE(request, nullptr);
    return request;
  }

  const std::shared_ptr<MemoryHub> hub_ = MemoryHub::Make();
  const std::shared_ptr<Hold> hold_ = std::make_shared<Hold>();
  const std::unique_ptr<Engine> held_ = StartHeldEngine(hub_, hold_);
  const std::unique_ptr<Engine> peer_ = StartPeer(hub_);
  const Link link_ = MakeLink(*peer_, *held_);
  StepFacts facts_{Settings{}};
  std::vector<uint8_t> bytes_ = std::vector<uint8_t>(1000);
};

TEST_F(CommunicatorClose, ReturnsWhileTheEngineStandsStillWhereNoRequestIsUnfinished) {
  const auto communicator = Make();
  MemoryRegion* region = communicator->Register(bytes_.data(), bytes_.size());
  Request* request = Post(communicator.get(), region);
  const std::vector<uint8_t> sent = MessageBytes(1, 1000);
  RequestSlot send;
  ASSERT_TRUE(peer_->PostSend(link_.sender.get(), &send, SendRequest{0, sent.data(), 1000}));
  ASSERT_TRUE(WaitFor([&] {
    int done = 0;
    EXPECT_EQ(communicator->Test(request, &done, nullptr), nccl::kSuccess);
    return done != 0;
  }));
  EXPECT_TRUE(ReturnsWhileHeld(hold_.get(), [&] {
    EXPECT_TRUE(communicator->Deregister(region));
    communicator->Close();
  }));
  EXPECT_EQ(bytes_, sent);
  EXPECT_TRUE(WaitFor([&] { return link_.receiver->state.load() == ConnectionSlot::kClosed; }));
}

TEST_F(CommunicatorClose, WaitsForTheEngineWhileARequestIsUnfinished) {
  const auto communicator = Make();
  Post(communicator.get(), communicator->Register(bytes_.data(), bytes_.size()));
  EXPECT_EQ(StateAfter(hold_.get(), *link_.receiver, [&] { communicator->Close(); }),
            uint32_t{ConnectionSlot::kClosed});
}

TEST_F(CommunicatorClose, WaitsForTheEngineAfterARequestWasGivenBackThatTheEngineMayStillWrite) {
  const auto communicator = Make();
  Request* request = Post(communicator.get(), communicator->Register(bytes_.data(), bytes_.size()));
  hold_->Begin();
  // As the engine fails a connection: first its state, then its requests.
  link_.receiver->state.store(ConnectionSlot::kFailed);
  int done = 0;
  EXPECT_NE(communicator->Test(request, &done, nullptr), nccl::kSuccess);
  link_.receiver->state.store(ConnectionSlot::kReady);
  EXPECT_EQ(StateAfter(hold_.get(), *link_.receiver, [&] { communicator->Close(); }),
            uint32_t{ConnectionSlot::kClosed});
}

TEST_F(CommunicatorClose, WaitsForTheEngineWhereMemoryIsDeregisteredThatARequestUses) {
  const auto communicator = Make();
  MemoryRegion* region = communicator->Register(bytes_.data(), bytes_.size());
  Post(communicator.get(), region);
  EXPECT_EQ(StateAfter(hold_.get(), *link_.receiver, [&] { EXPECT_TRUE(communicator->Deregister(region)); }),
            uint32_t{ConnectionSlot::kClosed});
  communicator->Close();
}

}  // namespace
}  // namespace forgive
