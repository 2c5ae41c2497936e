// SPDX-License-Identifier: Apache-2.0
// Which elements every message of a collective carries, cut and ordered as NCCL does it. Pure arithmetic.
#ifndef FORGIVE_TESTBED_PERF_SCHEDULE_H_
#define FORGIVE_TESTBED_PERF_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "testbed/perf/options.h"

namespace forgive::perf {

inline constexpr std::int64_t kElementBytes = 4;  // float32

// How a collective uses its connections. kLl: small posts into the small buffer, never forgivable.
enum class Protocol : std::uint8_t { kSimple, kLl };

// What a message is for. kReduce: it is added to what the receiver holds. kGather: it is a final value, stored and
// handed on. kMove: neither (broadcast, point to point).
enum class Phase : std::uint8_t { kReduce, kGather, kMove };

// One collective. `elements` counts the whole vector: the result of all_reduce, broadcast and sendrecv, the input of
// reduce_scatter, the result of all_gather (both a multiple of `ranks`).
struct Shape {
  Collective collective = Collective::kAllReduce;
  Algorithm algorithm = Algorithm::kRing;
  Protocol protocol = Protocol::kSimple;
  int ranks = 2;
  int root = 0;  // broadcast
  std::int64_t elements = 0;
};

// A stretch of elements of the whole vector.
struct Interval {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// How messages are cut and which buffer they are posted from. Sizes as NCCL's: a step is an eighth of the buffer.
enum class BufferKind : std::uint8_t { kLl, kLl128, kSimple, kPool };
struct Posting {
  BufferKind buffer = BufferKind::kSimple;
  std::int64_t chunk_bytes = 0;  // what one schedule step moves at most
  int slices = 1;                // messages a chunk
  std::int64_t post_bytes = 0;   // the size of each posted receive
  int steps_per_slice = 1;       // eighths of the buffer that one message occupies
};
Posting PostingOf(const Shape& shape);

// Elements that travel together from rank to rank: one slice of one owner's chunk in one loop.
struct Flow {
  std::int64_t loop = 0;
  int owner = 0;  // the rank that ends the reduction or starts the distribution
  int slice = 0;
  Interval interval;
};

// One message of a flow. `message` counts from 0 within the operation on the connection source -> destination.
// `contributions`: how many ranks' values are summed in it.
struct Hop {
  int source = 0;
  int destination = 0;
  std::int64_t message = 0;
  Phase phase = Phase::kMove;
  int contributions = 1;
};

// What one message of a connection is.
struct MessageFacts {
  std::int64_t flow = 0;
  Phase phase = Phase::kMove;
  int contributions = 1;
  Interval interval;
};

class Schedule {
 public:
  explicit Schedule(const Shape& shape);

  const Shape& shape() const { return shape_; }
  const Posting& posting() const { return posting_; }
  std::int64_t loops() const { return loops_; }
  std::int64_t flow_count() const { return loops_ * owners_ * posting_.slices; }

  std::int64_t FlowIndex(std::int64_t loop, int owner, int slice) const;
  Flow FlowAt(std::int64_t index) const;
  // The flow's messages in the order of its data.
  std::vector<Hop> HopsOf(std::int64_t flow) const;

  // Messages of the operation on the connection source -> destination; 0: not used.
  std::int64_t MessagesOn(int source, int destination) const;
  MessageFacts MessageAt(int source, int destination, std::int64_t message) const;

  // The elements of the whole vector that `rank` holds as its result.
  Interval ResultOf(int rank) const;

  std::int64_t ReceivedBytes(int rank) const;
  // Bytes received by `rank` that `eligible` lets the plugin forgive.
  std::int64_t ForgivableBytes(int rank, Eligible eligible) const;

 private:
  struct Step {
    int owner;
    Phase phase;
    int contributions;
  };
  std::int64_t StepsPerLoop(int source, int destination) const;
  Step StepAt(int source, int destination, std::int64_t step) const;
  Interval ChunkOf(std::int64_t loop, int owner) const;
  void AppendRingHops(const Flow& flow, std::vector<Hop>& hops) const;
  void AppendDirectHops(const Flow& flow, std::vector<Hop>& hops) const;
  void AppendHop(const Flow& flow, int source, int destination, std::int64_t step, std::vector<Hop>& hops) const;
  int Around(std::int64_t rank) const;

  Shape shape_;
  Posting posting_;
  int owners_;
  std::int64_t chunk_elements_;
  std::int64_t shard_elements_;  // reduce_scatter, all_gather, direct all_reduce
  std::int64_t loops_;
};

// True if `eligible` lets a message of this phase be forgiven inside an open step.
bool IsForgivable(Eligible eligible, Collective collective, Phase phase);

}  // namespace forgive::perf

#endif  // FORGIVE_TESTBED_PERF_SCHEDULE_H_
