// SPDX-License-Identifier: Apache-2.0
// Data packets from one driver to another without any protocol.
#include "testbed/perf/bench/raw_driver.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

#include "dataplane/drivers.h"
#include "dataplane/socket_address.h"
#include "testbed/perf/error.h"
#include "transport/check.h"
#include "transport/wire.h"

namespace forgive::perf {
namespace {

constexpr size_t kBurst = 64;  // as an engine's
// A burst leaves when there is room for all of it.
constexpr uint64_t kLeastWindow = 2 * kBurst;
// What was sent and has not arrived for so long is given up.
constexpr double kLostSeconds = 0.05;
constexpr double kLinkSeconds = 10;

struct Shared {
  std::atomic<bool> stop{false};
  std::atomic<bool> sender_started{false};
  alignas(64) std::atomic<uint64_t> arrived{0};  // packets
  std::exception_ptr failures[2];
};

std::unique_ptr<Driver> Open(const EngineOptions& options) {
  std::string error;
  std::unique_ptr<Driver> driver = MakeDriver(options, 0, nullptr, &error);
  if (driver == nullptr) throw RunError(error);
  return driver;
}

// Full data packets to one destination, whose payloads walk through memory.
class Burst {
 public:
  Burst(const Address& destination, const std::vector<uint8_t>& source) : source_(source) {
    DataHeader header;
    header.payload_length = kMaxPayloadBytes;
    header.message_length = kMaxPayloadBytes;
    for (Transmit& transmit : packets_) {
      transmit.destination = destination;
      transmit.packet_class = PacketClass::kData;
      // A data header, so that no filter takes it for a cut packet.
      WriteDataHeader(header, static_cast<const SipKey*>(nullptr), transmit.header.data());
      transmit.header_length = kDataHeaderBytes;
      transmit.payload_length = kMaxPayloadBytes;
    }
  }
  std::span<const Transmit> Next() {
    for (Transmit& transmit : packets_) {
      transmit.payload = source_.data() + place_;
      place_ = (place_ + kMaxPayloadBytes) % source_.size();
    }
    return packets_;
  }

 private:
  const std::vector<uint8_t>& source_;
  std::array<Transmit, kBurst> packets_;
  uint64_t place_ = 0;
};

void Send(Driver& driver, const Address& destination, uint64_t window, const std::vector<uint8_t>& source,
          Shared* shared) {
  Burst burst(destination, source);
  uint64_t sent = 0;
  uint64_t lost = 0;
  uint64_t last_arrived = 0;
  double last_change = WallSeconds();
  while (!shared->stop.load(std::memory_order_relaxed)) {
    const uint64_t arrived = shared->arrived.load(std::memory_order_acquire) + lost;
    if (sent - arrived + kBurst > window) {
      const double now = WallSeconds();
      if (arrived != last_arrived) {
        last_arrived = arrived;
        last_change = now;
      } else if (now - last_change > kLostSeconds) {
        lost += sent - arrived;
      }
      sched_yield();
      continue;
    }
    const std::span<const Transmit> packets = burst.Next();
    size_t taken = 0;
    while (taken != kBurst && !shared->stop.load(std::memory_order_relaxed)) {
      const size_t more = driver.SendBurst(packets.subspan(taken));
      if (more == 0) sched_yield();
      taken += more;
    }
    sent += taken;
    // Drivers that collect completions, or answer their neighbours, do it here.
    std::array<Datagram, kBurst> ignored;
    driver.ReceiveBurst(ignored);
  }
}

void Receive(Driver& driver, Shared* shared) {
  std::array<Datagram, kBurst> burst;
  while (!shared->stop.load(std::memory_order_relaxed)) {
    uint64_t whole = 0;
    const size_t count = driver.ReceiveBurst(burst);
    for (size_t i = 0; i < count; ++i) whole += burst[i].length == kDataHeaderBytes + kMaxPayloadBytes;
    if (whole != 0) shared->arrived.fetch_add(whole, std::memory_order_release);
    if (count == 0) sched_yield();
  }
}

// The two ends of a memif find each other in the background.
void AwaitLink(Driver& driver) {
  const double deadline = WallSeconds() + kLinkSeconds;
  std::array<Datagram, kBurst> ignored;
  while (driver.description().find("link down") != std::string::npos) {
    if (WallSeconds() > deadline) throw RunError("the link stays down: " + driver.description());
    driver.ReceiveBurst(ignored);
    usleep(1000);
  }
}

}  // namespace

Moved RunRawDriver(Wire& wire, uint32_t connections, uint64_t source_bytes, double warm_seconds, double seconds) {
  const std::vector<uint8_t> source(source_bytes, 0x5a);
  const EngineOptions options[] = {wire.OptionsAt(0), wire.OptionsAt(1)};
  std::unique_ptr<Driver> drivers[2];
  for (int end = 0; end < 2; ++end) wire.At(end, [&] { drivers[end] = Open(options[end]); });
  const Address destination = drivers[1]->local_address();
  Shared shared;
  const auto guarded = [&shared, &drivers](int end, const auto& work) {
    try {
      AwaitLink(*drivers[end]);
      work();
    } catch (...) {
      shared.failures[end] = std::current_exception();
      shared.stop = true;
    }
    drivers[end].reset();  // by the thread that used it
  };
  std::thread receiver([&] { guarded(1, [&] { Receive(*drivers[1], &shared); }); });
  std::thread sender([&] {
    guarded(0, [&] {
      const uint64_t window =
          std::max(connections * options[0].transport.window_bytes / kMaxPayloadBytes, kLeastWindow);
      Send(*drivers[0], destination, window, source, &shared);
    });
  });
  const auto sleep = [](double span) { usleep(static_cast<useconds_t>(span * 1e6)); };
  for (double waited = 0; shared.arrived == 0 && !shared.stop && waited < kLinkSeconds; waited += 0.001) sleep(0.001);
  sleep(warm_seconds);
  Moved moved;
  const double begin = WallSeconds();
  const double begin_cpu = ProcessCpuSeconds();
  const uint64_t before = shared.arrived;
  sleep(seconds);
  moved.bytes = (shared.arrived - before) * kMaxPayloadBytes;
  moved.seconds = WallSeconds() - begin;
  moved.cpu_seconds = ProcessCpuSeconds() - begin_cpu;
  shared.stop = true;
  sender.join();
  receiver.join();
  for (const std::exception_ptr& failure : shared.failures) {
    if (failure) std::rethrow_exception(failure);
  }
  if (moved.bytes == 0) throw RunError("nothing arrived at the other end");
  return moved;
}

double RunSendOnly(Wire& wire, double seconds) {
  const std::vector<uint8_t> source(kLeastSourceBytes, 0x5a);
  double figure = 0;
  wire.At(0, [&] {
    const std::unique_ptr<Driver> driver = Open(wire.OptionsAt(0));
    Address destination;
    FORGIVE_CHECK(ParseAddress(kWireAddresses[1], 1, &destination));
    Burst burst(destination, source);
    uint64_t sent = 0;
    const double begin_cpu = ThreadCpuSeconds();
    for (const double end = WallSeconds() + seconds; WallSeconds() < end;) {
      std::span<const Transmit> left = burst.Next();
      while (!left.empty()) left = left.subspan(driver->SendBurst(left));
      sent += kBurst;
    }
    if (driver->counters().send_errors != 0) throw RunError("the port refuses packets: " + driver->description());
    figure = (ThreadCpuSeconds() - begin_cpu) / static_cast<double>(sent) * 1e9;
  });
  return figure;
}

}  // namespace forgive::perf
