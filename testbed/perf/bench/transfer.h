// SPDX-License-Identifier: Apache-2.0
// Messages from one engine to another for a while, as NCCL posts them: some ahead, each posted again when done.
#ifndef FORGIVE_TESTBED_PERF_BENCH_TRANSFER_H_
#define FORGIVE_TESTBED_PERF_BENCH_TRANSFER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "dataplane/engine.h"

namespace forgive::perf {

// What was moved in a span of time.
struct Moved {
  uint64_t bytes = 0;
  double seconds = 0;
  double cpu_seconds = 0;  // of the whole process

  double GigabytesPerCpuSecond() const { return static_cast<double>(bytes) / cpu_seconds * 1e-9; }
  double GigabitsPerSecond() const { return 8e-9 * static_cast<double>(bytes) / seconds; }
};

struct TransferShape {
  uint32_t connections = 1;
  uint32_t messages_ahead = 16;  // of each connection, posted on both sides
  uint32_t message_bytes = 1u << 20;
  uint64_t memory_bytes = 256u << 20;  // of each side, through which the messages walk
  uint32_t poll_microseconds = 500;    // how often what is done is posted again
};

// The poster of both sides: it sleeps between its looks, so that the cores belong to the engines.
class Transfer {
 public:
  // Opens the connections. Throws RunError if that takes longer than ten seconds.
  Transfer(Engine& from, Engine& to, const TransferShape& shape);
  ~Transfer();  // closes them

  // Moves messages for `warm_seconds`, which do not count, and then for `seconds`. Throws RunError if a request
  // fails or nothing completes for ten seconds.
  Moved Run(double warm_seconds, double seconds);

 private:
  struct Lane {
    std::shared_ptr<ConnectionSlot> sender, receiver;
    std::deque<RequestSlot> sends, receives;  // a ring each, used in order
    uint64_t posted_sends = 0, posted_receives = 0, done_sends = 0, done_receives = 0;
  };

  void Open(Lane* lane);
  // Takes what is done and posts again. Returns the bytes of the receives that were done.
  uint64_t Step(Lane* lane, bool post);
  void PostReceive(Lane* lane);
  void PostSend(Lane* lane);
  uint64_t StepAll(bool post);
  void Drain();

  Engine& from_;
  Engine& to_;
  const TransferShape shape_;
  std::deque<Lane> lanes_;
  std::vector<uint8_t> source_, destination_;
  uint64_t next_source_ = 0, next_destination_ = 0;
};

// Processor time of this process and its threads, in seconds.
double ProcessCpuSeconds();
// Of the calling thread alone.
double ThreadCpuSeconds();
double WallSeconds();

}  // namespace forgive::perf

#endif  // FORGIVE_TESTBED_PERF_BENCH_TRANSFER_H_
