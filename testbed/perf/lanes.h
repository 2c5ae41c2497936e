// SPDX-License-Identifier: Apache-2.0
// One direction of one connection: its registered buffers as rings of slots, and the requests in flight.
#ifndef FORGIVE_TESTBED_PERF_LANES_H_
#define FORGIVE_TESTBED_PERF_LANES_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "testbed/perf/net.h"
#include "testbed/perf/schedule.h"

namespace forgive::perf {

inline constexpr std::size_t kBufferKinds = 4;
inline constexpr std::uint64_t kStepsPerBuffer = 8;  // NCCL's NCCL_STEPS

// A registered buffer, cut into eight steps that are used in turn. head: steps handed out; tail: steps given back.
struct StepBuffer {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  void* memory = nullptr;  // the registration
  std::uint64_t head = 0;
  std::uint64_t tail = 0;
};

// What both directions share. Owned by the progress thread once the connection stands.
class Lane {
 public:
  Lane(int rank, int peer, void* comm) : rank_(rank), peer_(peer), comm_(comm) {}
  int peer() const { return peer_; }
  void* comm() const { return comm_; }
  StepBuffer& buffer(BufferKind kind) { return buffers_[static_cast<std::size_t>(kind)]; }
  // Messages handed to the network on this connection since it was made.
  std::uint64_t messages() const { return messages_; }

 protected:
  struct Slot {
    StepBuffer* buffer = nullptr;
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    std::uint64_t end_step = 0;
    void* request = nullptr;
    bool posted = false;
    bool done = false;
  };
  void Use(const Posting& posting);
  bool StepsFree() const;
  std::byte* NextSlot() const;
  Slot TakeSlot(std::size_t bytes);

  int rank_;
  int peer_;
  void* comm_;
  std::array<StepBuffer, kBufferKinds> buffers_;
  StepBuffer* current_ = nullptr;
  std::uint64_t steps_per_slice_ = 1;
  std::size_t post_bytes_ = 0;
  std::uint64_t messages_ = 0;
  std::deque<Slot> slots_;  // in order of use
};

class SendLane : public Lane {
 public:
  using Lane::Lane;
  void Begin(const Posting& posting) { Use(posting); }
  // A slot to fill; only while CanFill().
  bool CanFill() const { return StepsFree(); }
  float* Fill() const { return reinterpret_cast<float*>(NextSlot()); }
  // Hands the filled slot on, `count` elements of it.
  void Post(std::int64_t count);
  // Sends what is filled and frees what is sent. True if anything moved.
  bool Progress(Net& net);
  bool idle() const { return slots_.empty(); }

 private:
  std::size_t sent_ = 0;  // of slots_, those handed to the network
};

class ReceiveLane : public Lane {
 public:
  using Lane::Lane;
  // Receives `messages` messages: posts as many ahead as the buffer holds.
  void Begin(const Posting& posting, std::int64_t messages);
  bool Ready() const { return !slots_.empty() && slots_.front().done; }
  // The oldest received message; only while Ready().
  const float* Front() const { return reinterpret_cast<const float*>(slots_.front().data); }
  std::int64_t FrontCount() const { return static_cast<std::int64_t>(slots_.front().bytes) / kElementBytes; }
  void Release();
  bool Progress(Net& net);
  bool idle() const { return slots_.empty() && to_post_ == 0; }
  // Receives posted and not yet complete; readable by any thread.
  int posted() const { return posted_.load(std::memory_order_acquire); }

 private:
  std::int64_t to_post_ = 0;
  std::int64_t next_message_ = 0;  // of the operation
  std::size_t done_ = 0;           // of slots_, those complete
  std::atomic<int> posted_ = 0;
};

}  // namespace forgive::perf

#endif  // FORGIVE_TESTBED_PERF_LANES_H_
