// SPDX-License-Identifier: Apache-2.0
// An engine in memory whose thread a test can hold up, and what to ask of calls meanwhile.
#ifndef FORGIVE_TESTS_DATAPLANE_HELD_ENGINE_H_
#define FORGIVE_TESTS_DATAPLANE_HELD_ENGINE_H_

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "ranks.h"

namespace forgive {

// Holds up the thread that polls the driver: what an engine looks like that gets no processor.
class Hold {
 public:
  // The thread stands still when it next comes by.
  void BeginSoon() { wanted_.store(true); }
  // Returns when the thread stands still.
  void Begin() {
    BeginSoon();
    EXPECT_TRUE(WaitFor([&] { return stands_.load(); }));
  }
  void End() { wanted_.store(false); }
  bool stands() const { return stands_.load(); }
  void Pass() {
    while (wanted_.load()) {
      stands_.store(true);
      usleep(50);
    }
    stands_.store(false);
  }

 private:
  std::atomic<bool> wanted_{false};
  std::atomic<bool> stands_{false};
};

class HeldDriver final : public Driver {
 public:
  // `sends`: a hold of its own before anything is sent; null: none.
  HeldDriver(std::unique_ptr<Driver> inner, std::shared_ptr<Hold> hold, std::shared_ptr<Hold> sends)
      : inner_(std::move(inner)), hold_(std::move(hold)), sends_(std::move(sends)) {}
  size_t ReceiveBurst(std::span<Datagram> out) override {
    hold_->Pass();
    return inner_->ReceiveBurst(out);
  }
  size_t SendBurst(std::span<const Transmit> packets) override {
    if (sends_ != nullptr) sends_->Pass();
    return inner_->SendBurst(packets);
  }
  Address local_address() const override { return inner_->local_address(); }
  uint32_t max_datagram_bytes() const override { return inner_->max_datagram_bytes(); }
  std::span<const int> poll_fds() const override { return inner_->poll_fds(); }
  DriverCounters counters() const override { return inner_->counters(); }
  std::string description() const override { return inner_->description(); }

 private:
  std::unique_ptr<Driver> inner_;
  std::shared_ptr<Hold> hold_;
  std::shared_ptr<Hold> sends_;
};

inline std::unique_ptr<Engine> StartHeldEngine(const std::shared_ptr<MemoryHub>& hub,
                                               const std::shared_ptr<Hold>& hold,
                                               uint32_t max_listeners = Config().max_listeners,
                                               const std::shared_ptr<Hold>& sends = nullptr) {
  EngineOptions options;
  options.devices.emplace_back();
  options.busy_poll = true;  // always comes by the hold
  options.transport.max_listeners = max_listeners;
  options.driver_factory = [=](const DeviceOptions&, const EngineOptions&, std::string*) {
    return std::make_unique<HeldDriver>(hub->Open(), hold, sends);
  };
  std::string error;
  auto engine = Engine::Start(options, &error);
  EXPECT_NE(engine, nullptr) << error;
  return engine;
}

inline std::unique_ptr<Engine> StartPeer(const std::shared_ptr<MemoryHub>& hub) {
  RankOptions options;
  options.hub = hub;
  return StartEngine(options);
}

// Whether the call returns while the engine stands still. It ends the hold.
inline bool ReturnsWhileHeld(Hold* hold, const std::function<void()>& call) {
  hold->Begin();
  std::atomic<bool> returned{false};
  std::thread caller([&] {
    call();
    returned.store(true);
  });
  const TimePoint deadline = MonotonicNow() + Seconds(10);
  while (!returned.load() && MonotonicNow() < deadline) usleep(50);
  const bool result = returned.load() && hold->stands();
  hold->End();
  caller.join();
  return result;
}

// The connection's state when the call has returned, of an engine that stood still when it began.
inline uint32_t StateAfter(Hold* hold, const ConnectionSlot& slot, const std::function<void()>& call) {
  hold->Begin();
  uint32_t state = ConnectionSlot::kConnecting;
  std::thread caller([&] {
    call();
    state = slot.state.load();
  });
  usleep(50000);  // a call that does not wait has returned by now, or the test sees nothing
  hold->End();
  caller.join();
  return state;
}

}  // namespace forgive

#endif  // FORGIVE_TESTS_DATAPLANE_HELD_ENGINE_H_
