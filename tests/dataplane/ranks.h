// SPDX-License-Identifier: Apache-2.0
// Ranks for tests of the engine: engines over one network, connections between them, messages with verified bytes.
#ifndef FORGIVE_TESTS_DATAPLANE_RANKS_H_
#define FORGIVE_TESTS_DATAPLANE_RANKS_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "dataplane/clock.h"
#include "dataplane/engine.h"
#include "dataplane/memory_driver.h"
#include "dataplane/uring_driver.h"

namespace forgive {

// What a set of ranks has in common.
struct RankOptions {
  // memory, udp_ipv4, udp_ipv6, uring_ipv4; udp_paths, uring_paths: over four paths; udp_rails, uring_rails: over two
  // of each of two rails
  std::string network = "memory";
  std::string fault;
  uint32_t devices = 1;
  Config config;
  std::shared_ptr<MemoryHub> hub = MemoryHub::Make();
  bool busy_poll = false;
  uint32_t command_ring = EngineOptions().command_ring;  // requests on their way to the engine
  std::string fault_log;
  std::vector<BitsPerSecond> link_rates;  // of the devices; empty: as `config` says
};

// Whether tests over this network can run here. False: *why says in one line.
inline bool NetworkOffered(const std::string& network, std::string* why) {
  return !network.starts_with("uring") || UringOffered(why);
}

inline std::unique_ptr<Engine> StartEngine(const RankOptions& options) {
  EngineOptions engine;
  engine.transport = options.config;
  engine.fault = options.fault;
  engine.fault_log = options.fault_log;
  engine.busy_poll = options.busy_poll;
  engine.command_ring = options.command_ring;
  engine.seed = 1;
  for (uint32_t i = 0; i < options.devices; ++i) {
    DeviceOptions device;
    device.local_address = options.network == "udp_ipv6" ? "::1" : "127.0.0.1";
    if (options.network.ends_with("rails")) device.more_rails = {"127.0.0.2"};
    if (!options.link_rates.empty()) device.link_rate = options.link_rates[i];
    engine.devices.push_back(device);
  }
  if (options.network.starts_with("uring")) engine.driver = "uring";
  if (options.network.ends_with("paths") || options.network.ends_with("rails")) {
    engine.transport.path_policy = PathPolicy::kReps;
    engine.transport.paths = 4;
    engine.transport.rails = options.network.ends_with("rails") ? 2 : 1;
  }
  if (options.network == "memory") {
    engine.driver_factory = [hub = options.hub](const DeviceOptions&, const EngineOptions&, std::string*) {
      return hub->Open();
    };
  }
  std::string error;
  std::unique_ptr<Engine> started = Engine::Start(engine, &error);
  EXPECT_NE(started, nullptr) << error;
  return started;
}

// A bound for waits, generous: sanitizers and shared cores are slow.
inline TimePoint Patience() { return MonotonicNow() + Seconds(60); }

template <typename Condition>
bool WaitFor(const Condition& condition) {
  const TimePoint deadline = Patience();
  while (!condition()) {
    if (MonotonicNow() > deadline) return false;
    usleep(50);
  }
  return true;
}

// One direction between two engines.
struct Link {
  std::shared_ptr<ConnectionSlot> sender;
  std::shared_ptr<ConnectionSlot> receiver;
};

inline Link MakeLink(Engine& from, Engine& to, uint32_t from_device = 0, uint32_t to_device = 0,
                     uint32_t traffic_class = 0) {
  Link link;
  ListenTicket ticket;
  const auto listener = to.Listen(to_device, &ticket);
  EXPECT_NE(listener, nullptr);
  std::vector<Address> more_rails;
  for (uint32_t rail = 1; rail < to.rails(); ++rail) more_rails.push_back(to.rail_address(to_device, rail));
  link.sender =
      from.Connect(from_device, to.local_address(to_device), ticket, traffic_class, kDscpOfDriver, more_rails);
  EXPECT_TRUE(WaitFor([&] { return (link.receiver = to.Accept(listener)) != nullptr; }));
  EXPECT_TRUE(WaitFor([&] { return link.sender->state.load() == ConnectionSlot::kReady; }));
  to.CloseListener(listener);
  return link;
}

inline uint8_t MessageByte(uint64_t seed, size_t position) {
  return static_cast<uint8_t>((position + seed * 131) * 2654435761u >> 13);
}

inline std::vector<uint8_t> MessageBytes(uint64_t seed, size_t length) {
  std::vector<uint8_t> bytes(length);
  for (size_t i = 0; i < length; ++i) bytes[i] = MessageByte(seed, i);
  return bytes;
}

// Polls a slot as NCCL's test does.
inline bool Finished(const RequestSlot& slot) {
  const uint32_t state = slot.state.load(std::memory_order_acquire);
  return state == RequestSlot::kDone || state == RequestSlot::kFailed;
}

// Messages in flight on one link: posts receives and sends as deep as asked, and checks every byte.
class Stream {
 public:
  Stream(Engine& from, Engine& to, Link link, std::vector<size_t> sizes, size_t depth, size_t extra_capacity = 0)
      : from_(from),
        to_(to),
        link_(std::move(link)),
        sizes_(std::move(sizes)),
        depth_(depth),
        extra_(extra_capacity) {}

  // One round of posting and checking. False: something failed (the test has been told).
  bool Step() {
    while (posted_receives_ < sizes_.size() && receives_.size() < depth_) {
      auto message = std::make_unique<Message>();
      message->bytes.assign(sizes_[posted_receives_] + extra_, 0xaa);
      ReceiveRequest request;
      request.buffer = message->bytes.data();
      request.capacity = message->bytes.size();
      if (!to_.PostReceive(link_.receiver.get(), &message->slot, request)) break;
      receives_.push_back(std::move(message));
      ++posted_receives_;
    }
    while (posted_sends_ < sizes_.size() && sends_.size() < depth_) {
      auto message = std::make_unique<Message>();
      message->bytes = MessageBytes(posted_sends_, sizes_[posted_sends_]);
      SendRequest request;
      request.buffer = message->bytes.data();
      request.length = static_cast<uint32_t>(message->bytes.size());
      if (!from_.PostSend(link_.sender.get(), &message->slot, request)) break;
      sends_.push_back(std::move(message));
      ++posted_sends_;
    }
    return Reap(&sends_, false) && Reap(&receives_, true);
  }
  bool done() const { return checked_ == sizes_.size() && posted_sends_ == sizes_.size() && sends_.empty(); }
  size_t checked() const { return checked_; }

 private:
  struct Message {
    RequestSlot slot;
    std::vector<uint8_t> bytes;
  };

  bool Reap(std::deque<std::unique_ptr<Message>>* messages, bool receives) {
    while (!messages->empty() && Finished(messages->front()->slot)) {
      const Message& message = *messages->front();
      EXPECT_EQ(message.slot.state.load(), uint32_t{RequestSlot::kDone});
      if (message.slot.state.load() != RequestSlot::kDone) return false;
      if (receives && !Check(message)) return false;
      messages->pop_front();
    }
    return true;
  }
  bool Check(const Message& message) {
    const size_t size = sizes_[checked_];
    EXPECT_EQ(message.slot.size, size);
    const std::vector<uint8_t> expected = MessageBytes(checked_, size);
    const bool same = std::equal(expected.begin(), expected.end(), message.bytes.begin());
    EXPECT_TRUE(same) << "message " << checked_ << " of " << size << " bytes";
    for (size_t i = size; i < message.bytes.size(); ++i) {
      if (message.bytes[i] != 0xaa) {
        ADD_FAILURE() << "a byte behind message " << checked_ << " was written";
        return false;
      }
    }
    ++checked_;
    return same && message.slot.size == size;
  }

  Engine& from_;
  Engine& to_;
  Link link_;
  std::vector<size_t> sizes_;
  size_t depth_;
  size_t extra_;
  size_t posted_sends_ = 0;
  size_t posted_receives_ = 0;
  size_t checked_ = 0;
  std::deque<std::unique_ptr<Message>> sends_;
  std::deque<std::unique_ptr<Message>> receives_;
};

// Runs streams side by side until all are done.
inline void RunStreams(std::deque<Stream>& streams) {
  const TimePoint deadline = Patience();
  bool all = false;
  while (!all) {
    all = true;
    for (Stream& stream : streams) {
      ASSERT_TRUE(stream.Step());
      all = all && stream.done();
    }
    if (all) break;
    ASSERT_LT(MonotonicNow(), deadline) << "stream 0 checked " << streams[0].checked();
    usleep(20);
  }
}

}  // namespace forgive

#endif  // FORGIVE_TESTS_DATAPLANE_RANKS_H_
