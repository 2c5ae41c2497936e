// SPDX-License-Identifier: Apache-2.0
// The schedule: NCCL's message sizes and order, and that programs, hops and messages tell the same story.
#include "testbed/perf/schedule.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <set>
#include <vector>

#include "testbed/perf/program.h"

namespace forgive::perf {
namespace {

constexpr Collective kAll[] = {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
                               Collective::kBroadcast, Collective::kSendRecv};

Shape Make(Collective collective, Algorithm algorithm, int ranks, std::int64_t elements) {
  Shape shape;
  shape.collective = collective;
  shape.algorithm = algorithm;
  shape.ranks = ranks;
  shape.root = 1 % ranks;
  const bool sharded = collective == Collective::kReduceScatter || collective == Collective::kAllGather;
  shape.elements = sharded ? (elements + ranks - 1) / ranks * ranks : elements;
  return shape;
}

std::vector<Shape> ManyShapes() {
  std::vector<Shape> shapes;
  for (const Collective collective : kAll) {
    for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kDirect}) {
      for (const int ranks : {2, 3, 5}) {
        for (const std::int64_t elements : {1, 7, 256, 16'384, 1'000'003, 5'000'000}) {
          shapes.push_back(Make(collective, algorithm, ranks, elements));
        }
      }
    }
  }
  return shapes;
}

std::string NameOfShape(const Shape& shape) {
  return std::string(NameOf(shape.collective)) + " " + NameOf(shape.algorithm) + " " + std::to_string(shape.ranks) +
         " ranks, " + std::to_string(shape.elements) + " elements";
}

TEST(Schedule, SendsAKibibyteOnTwoRanksAs512And0And512And0) {
  const Schedule schedule(Make(Collective::kAllReduce, Algorithm::kRing, 2, 256));
  ASSERT_EQ(schedule.MessagesOn(0, 1), 4);
  const std::int64_t bytes[] = {512, 0, 512, 0};
  for (std::int64_t m = 0; m < 4; ++m)
    EXPECT_EQ(schedule.MessageAt(0, 1, m).interval.count * kElementBytes, bytes[m]);
}

TEST(Schedule, Sends64MebibytesOnTwoRanksAsMessagesOfOneMebibyte) {
  const Schedule schedule(Make(Collective::kAllReduce, Algorithm::kRing, 2, 16 << 20));
  ASSERT_EQ(schedule.MessagesOn(1, 0), 64);  // both of NCCL's channels together: 32 each
  for (std::int64_t m = 0; m < 64; ++m) {
    EXPECT_EQ(schedule.MessageAt(1, 0, m).interval.count * kElementBytes, 1 << 20) << m;
  }
}

TEST(Schedule, PostsAQuarterOfTheBufferForReducingCollectivesOnly) {
  for (const Collective collective : kAll) {
    const Posting posting = PostingOf(Make(collective, Algorithm::kRing, 2, 1 << 20));
    const bool quarter = posting.buffer == BufferKind::kSimple && 4 * posting.post_bytes == 4 << 20;
    const bool chunked = collective == Collective::kAllReduce || collective == Collective::kReduceScatter ||
                         collective == Collective::kAllGather;
    EXPECT_EQ(quarter, chunked) << NameOf(collective);
  }
  Shape ll = Make(Collective::kAllReduce, Algorithm::kRing, 2, 1 << 20);
  ll.protocol = Protocol::kLl;
  EXPECT_EQ(PostingOf(ll).post_bytes, 64 << 10);
}

TEST(Schedule, PutsTheReducePhaseWhereThePluginCountsIt) {
  for (const int ranks : {2, 3, 4, 8}) {
    const Schedule schedule(Make(Collective::kAllReduce, Algorithm::kRing, ranks, 9'000'000));
    for (int destination = 0; destination < ranks; ++destination) {
      const int source = (destination + ranks - 1) % ranks;
      for (std::int64_t m = 0; m < schedule.MessagesOn(source, destination); ++m) {
        const bool reduce = (m / 2) % (2 * (ranks - 1)) < ranks - 1;
        EXPECT_EQ(schedule.MessageAt(source, destination, m).phase == Phase::kReduce, reduce) << m;
      }
    }
  }
}

TEST(Schedule, CountsForgivableBytesAsTheReducePhase) {
  const Schedule schedule(Make(Collective::kAllReduce, Algorithm::kRing, 4, 1 << 20));
  const std::int64_t bytes = 4 << 20;
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(schedule.ReceivedBytes(rank), 2 * 3 * bytes / 4);
    EXPECT_EQ(schedule.ForgivableBytes(rank, Eligible::kReduce), 3 * bytes / 4);
    EXPECT_EQ(schedule.ForgivableBytes(rank, Eligible::kAll), 2 * 3 * bytes / 4);
    EXPECT_EQ(schedule.ForgivableBytes(rank, Eligible::kNone), 0);
  }
  const Schedule gather(Make(Collective::kAllGather, Algorithm::kRing, 4, 1 << 20));
  EXPECT_EQ(gather.ForgivableBytes(0, Eligible::kAll), 0);
}

TEST(Schedule, NumbersEveryMessageOfEveryConnectionByExactlyOneHop) {
  for (const Shape& shape : ManyShapes()) {
    const Schedule schedule(shape);
    std::set<std::tuple<int, int, std::int64_t>> seen;
    for (std::int64_t flow = 0; flow < schedule.flow_count(); ++flow) {
      for (const Hop& hop : schedule.HopsOf(flow)) {
        ASSERT_TRUE(seen.insert({hop.source, hop.destination, hop.message}).second) << NameOfShape(shape);
        const MessageFacts facts = schedule.MessageAt(hop.source, hop.destination, hop.message);
        ASSERT_EQ(facts.flow, flow) << NameOfShape(shape);
        ASSERT_EQ(facts.phase, hop.phase);
        ASSERT_EQ(facts.contributions, hop.contributions);
      }
    }
    std::int64_t messages = 0;
    for (int a = 0; a < shape.ranks; ++a) {
      for (int b = 0; b < shape.ranks; ++b) messages += schedule.MessagesOn(a, b);
    }
    EXPECT_EQ(static_cast<std::int64_t>(seen.size()), messages) << NameOfShape(shape);
  }
}

TEST(Schedule, CoversEveryElementOfTheVectorOnce) {
  for (const Shape& shape : ManyShapes()) {
    const Schedule schedule(shape);
    std::map<std::int64_t, std::int64_t> pieces;  // of owner 1 for sendrecv, where every owner has the whole vector
    std::int64_t sum = 0;
    for (std::int64_t flow = 0; flow < schedule.flow_count(); ++flow) {
      const Flow piece = schedule.FlowAt(flow);
      if (shape.collective == Collective::kSendRecv && piece.owner != 1) continue;
      if (piece.interval.count == 0) continue;
      ASSERT_TRUE(pieces.emplace(piece.interval.first, piece.interval.count).second) << NameOfShape(shape);
      sum += piece.interval.count;
    }
    std::int64_t at = 0;
    for (const auto& [first, count] : pieces) {
      ASSERT_EQ(first, at) << NameOfShape(shape);
      at += count;
    }
    EXPECT_EQ(sum, shape.elements) << NameOfShape(shape);
  }
}

// A message in memory: what the ring programs of all ranks would put on the wire.
TEST(RingProgram, ReceivesTheMessagesThatTheScheduleNumbers) {
  for (const Shape& shape : ManyShapes()) {
    if (shape.algorithm != Algorithm::kRing || shape.collective == Collective::kSendRecv) continue;
    const Schedule schedule(shape);
    for (int rank = 0; rank < shape.ranks; ++rank) {
      const int previous = (rank + shape.ranks - 1) % shape.ranks;
      const int next = (rank + 1) % shape.ranks;
      std::int64_t received = 0;
      std::int64_t sent = 0;
      for (const RingOperation& operation : RingProgram(schedule, rank)) {
        if (operation.receive) {
          const MessageFacts facts = schedule.MessageAt(previous, rank, received++);
          ASSERT_EQ(facts.interval.first, operation.interval.first) << NameOfShape(shape);
          ASSERT_EQ(facts.interval.count, operation.interval.count);
          ASSERT_EQ(facts.phase == Phase::kReduce, operation.add_input);
        }
        if (operation.send) {
          const MessageFacts facts = schedule.MessageAt(rank, next, sent++);
          ASSERT_EQ(facts.interval.first, operation.interval.first) << NameOfShape(shape);
          ASSERT_EQ(facts.interval.count, operation.interval.count);
        }
      }
      EXPECT_EQ(received, schedule.MessagesOn(previous, rank)) << NameOfShape(shape);
      EXPECT_EQ(sent, schedule.MessagesOn(rank, next)) << NameOfShape(shape);
    }
  }
}

TEST(DirectProgram, ReducesAShardOnlyFromAllContributionsAndSendsItAfterwards) {
  const Schedule schedule(Make(Collective::kAllReduce, Algorithm::kDirect, 3, 5'000'000));
  const DirectProgram program = MakeDirectProgram(schedule, 1);
  EXPECT_EQ(static_cast<std::int64_t>(program.groups.size()), schedule.loops() * 2);
  for (const int peer : {0, 2}) {
    const auto index = static_cast<std::size_t>(peer);
    ASSERT_EQ(program.sends[index].size(), static_cast<std::size_t>(schedule.loops() * 4));
    for (std::size_t m = 0; m < program.sends[index].size(); ++m) {
      const bool gathers = m % 4 >= 2;
      EXPECT_EQ(program.sends[index][m].group >= 0, gathers);
      EXPECT_EQ(program.receives[index][m].group >= 0, !gathers);
    }
  }
}

}  // namespace
}  // namespace forgive::perf
