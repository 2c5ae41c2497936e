// SPDX-License-Identifier: Apache-2.0
// The oracle against a naive simulation of all ranks, and against results that are wrong in one place.
#include "testbed/perf/replay.h"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <map>
#include <random>

#include "testbed/perf/program.h"

namespace forgive::perf {
namespace {

Shape Make(Collective collective, Algorithm algorithm, int ranks, std::int64_t elements) {
  Shape shape;
  shape.collective = collective;
  shape.algorithm = algorithm;
  shape.ranks = ranks;
  const bool sharded = collective == Collective::kReduceScatter || collective == Collective::kAllGather;
  shape.elements = sharded ? elements / ranks * ranks : elements;
  return shape;
}

// Runs the ring programs of all ranks with messages in memory: dense, and written without the oracle's hops.
class NaiveRing {
 public:
  NaiveRing(const Schedule& schedule, const Inputs& inputs, std::int64_t rotation, std::vector<Loss> losses)
      : ranks_(schedule.shape().ranks), losses_(std::move(losses)) {
    for (int rank = 0; rank < ranks_; ++rank) {
      programs_.push_back(RingProgram(schedule, rank));
      std::vector<float>& input = inputs_.emplace_back(static_cast<std::size_t>(schedule.shape().elements));
      inputs.Write(rank, rotation, {0, schedule.shape().elements}, input.data());
      results_.emplace_back(static_cast<std::size_t>(schedule.shape().elements), -1.0F);
    }
    at_.resize(static_cast<std::size_t>(ranks_));
    wires_.resize(static_cast<std::size_t>(ranks_));
    received_.resize(static_cast<std::size_t>(ranks_));
    while (Turn()) {
    }
  }
  // Elements of the whole vector; those that the rank does not hold are -1.
  const std::vector<float>& result(int rank) const { return results_[static_cast<std::size_t>(rank)]; }
  bool complete() const {
    for (std::size_t rank = 0; rank < at_.size(); ++rank) {
      if (at_[rank] != programs_[rank].size()) return false;
    }
    return true;
  }

 private:
  bool Turn() {
    bool moved = false;
    for (std::size_t rank = 0; rank < at_.size(); ++rank) {
      while (at_[rank] < programs_[rank].size() && Do(rank, programs_[rank][at_[rank]])) {
        ++at_[rank];
        moved = true;
      }
    }
    return moved;
  }

  bool Do(std::size_t rank, const RingOperation& operation) {
    const auto first = static_cast<std::size_t>(operation.interval.first);
    const auto count = static_cast<std::size_t>(operation.interval.count);
    std::vector<float> values(inputs_[rank].begin() + operation.interval.first,
                              inputs_[rank].begin() + operation.interval.first + operation.interval.count);
    if (operation.receive) {
      if (wires_[rank].empty()) return false;
      std::vector<float> message = std::move(wires_[rank].front());
      wires_[rank].pop_front();
      EXPECT_EQ(message.size(), count);
      Lose(static_cast<int>(rank), received_[rank]++, message);
      if (!operation.add_input) values.assign(count, 0.0F);
      for (std::size_t i = 0; i < count; ++i) values[i] += message[i];
    }
    if (operation.store) std::copy(values.begin(), values.end(), results_[rank].begin() + static_cast<long>(first));
    if (operation.send) wires_[(rank + 1) % at_.size()].push_back(std::move(values));
    return true;
  }

  void Lose(int rank, std::int64_t message_number, std::vector<float>& message) const {
    for (const Loss& loss : losses_) {
      if (loss.destination != rank || loss.message != message_number) continue;
      std::memset(reinterpret_cast<char*>(message.data()) + loss.offset, 0, static_cast<std::size_t>(loss.length));
    }
  }

  int ranks_;
  std::vector<Loss> losses_;
  std::vector<std::vector<RingOperation>> programs_;
  std::vector<std::vector<float>> inputs_;
  std::vector<std::vector<float>> results_;
  std::vector<std::size_t> at_;
  std::vector<std::deque<std::vector<float>>> wires_;  // by receiver
  std::vector<std::int64_t> received_;
};

std::vector<float> ResultOf(const Schedule& schedule, const std::vector<float>& whole, int rank) {
  const Interval held = schedule.ResultOf(rank);
  return {whole.begin() + held.first, whole.begin() + held.first + held.count};
}

std::vector<Loss> RandomLosses(const Schedule& schedule, std::mt19937& random, int count) {
  std::vector<Loss> losses;
  const int ranks = schedule.shape().ranks;
  while (static_cast<int>(losses.size()) < count) {
    Loss loss;
    loss.source = static_cast<int>(random() % static_cast<unsigned>(ranks));
    loss.destination = static_cast<int>(random() % static_cast<unsigned>(ranks));
    const std::int64_t messages = schedule.MessagesOn(loss.source, loss.destination);
    if (messages == 0) continue;
    loss.message = static_cast<std::int64_t>(random()) % messages;
    const std::int64_t elements = schedule.MessageAt(loss.source, loss.destination, loss.message).interval.count;
    if (elements == 0) continue;
    const std::int64_t first = static_cast<std::int64_t>(random()) % elements;
    loss.offset = first * kElementBytes;
    loss.length = (1 + static_cast<std::int64_t>(random()) % (elements - first)) * kElementBytes;
    losses.push_back(loss);
  }
  return losses;
}

TEST(Replay, EqualsANaiveSimulationOfAllRanksForRandomLosses) {
  std::mt19937 random(7);
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather, Collective::kBroadcast}) {
    for (const int ranks : {2, 3, 4}) {
      for (int round = 0; round < 12; ++round) {
        const std::int64_t elements = ranks * (1 + static_cast<std::int64_t>(random() % 400'000));
        const Schedule schedule(Make(collective, Algorithm::kRing, ranks, elements));
        const Inputs inputs(ranks, 3);
        const std::int64_t rotation = Inputs::RotationOf(random());
        const std::vector<Loss> losses = RandomLosses(schedule, random, round);
        const NaiveRing naive(schedule, inputs, rotation, losses);
        ASSERT_TRUE(naive.complete());
        for (int rank = 0; rank < ranks; ++rank) {
          if (collective == Collective::kBroadcast && rank == schedule.shape().root) continue;  // in place
          const std::vector<float> result = ResultOf(schedule, naive.result(rank), rank);
          const Replayed replayed = Replay(schedule, inputs, rotation, losses, rank);
          const Verdict verdict = Verify(schedule, inputs, rotation, rank, result.data(), replayed.patches);
          ASSERT_EQ(verdict.wrong, 0u) << NameOf(collective) << ", " << ranks << " ranks, round " << round
                                       << ", rank " << rank << ", element " << verdict.first_element;
        }
      }
    }
  }
}

// Results as the ranks have them when `losses` hit a ring all-reduce, with what the check says of them.
class RingOfFour : public testing::Test {
 protected:
  static constexpr int kRanks = 4;
  static constexpr std::int64_t kRotation = 11;

  std::vector<float> Run(const std::vector<Loss>& losses, int rank) const {
    const NaiveRing naive(schedule_, inputs_, kRotation, losses);
    return naive.result(rank);
  }
  std::uint64_t Wrong(const std::vector<float>& result, const std::vector<Loss>& ledger, int rank) const {
    const Replayed replayed = Replay(schedule_, inputs_, kRotation, ledger, rank);
    return Verify(schedule_, inputs_, kRotation, rank, result.data(), replayed.patches).wrong;
  }

  // 1 MiB: chunks of 256 KiB, slices of 128 KiB.
  const Schedule schedule_{Make(Collective::kAllReduce, Algorithm::kRing, kRanks, 256 << 10)};
  const Inputs inputs_{kRanks, 5};
};

TEST_F(RingOfFour, FindsAFlippedBitOutsideTheLedger) {
  const std::vector<Loss> losses = {{0, 1, 2, 4096, 4096}};
  std::vector<float> result = Run(losses, 2);
  EXPECT_EQ(Wrong(result, losses, 2), 0u);
  std::uint32_t bits = 0;
  std::memcpy(&bits, &result[77], sizeof(bits));
  bits ^= 1;  // the least bit of the mantissa
  std::memcpy(&result[77], &bits, sizeof(bits));
  EXPECT_EQ(Wrong(result, losses, 2), 1u);
}

TEST_F(RingOfFour, FindsAFlippedBitInsideAForgivenRange) {
  const std::vector<Loss> losses = {{0, 1, 0, 0, 4096}};
  std::vector<float> result = Run(losses, 2);
  const auto first = static_cast<std::size_t>(schedule_.MessageAt(0, 1, 0).interval.first);
  result[first + 5] += 1;
  EXPECT_EQ(Wrong(result, losses, 2), 1u);
}

TEST_F(RingOfFour, FindsALossThatTheLedgerDoesNotHave) {
  const std::vector<Loss> losses = {{0, 1, 2, 4096, 4096}, {2, 3, 1, 0, 400}};
  const std::vector<float> result = Run(losses, 0);
  EXPECT_EQ(Wrong(result, {losses[0]}, 0), 100u);
}

TEST_F(RingOfFour, FindsALedgerLineWithoutALoss) {
  const std::vector<float> result = Run({}, 0);
  EXPECT_EQ(Wrong(result, {{0, 1, 2, 4096, 4096}}, 0), 1024u);
}

TEST_F(RingOfFour, FindsALedgerLineAtTheWrongHop) {
  const std::vector<Loss> losses = {{0, 1, 2, 4096, 4096}};
  const std::int64_t flow = schedule_.MessageAt(0, 1, 2).flow;
  const std::vector<float> result = Run(losses, 0);
  for (const Hop& hop : schedule_.HopsOf(flow)) {
    if (hop.phase != Phase::kReduce || hop.destination == 1) continue;
    EXPECT_EQ(Wrong(result, {{hop.source, hop.destination, hop.message, 4096, 4096}}, 0), 1024u);
  }
}

TEST_F(RingOfFour, LosesAsManyContributionsAsTheHopCarries) {
  const std::int64_t flow = schedule_.FlowIndex(0, 2, 0);
  int reductions = 0;
  for (const Hop& hop : schedule_.HopsOf(flow)) {
    if (hop.phase != Phase::kReduce) continue;
    ++reductions;
    EXPECT_EQ(hop.contributions, reductions);
    const Replayed replayed = Replay(schedule_, inputs_, kRotation,
                                     std::vector<Loss>{{hop.source, hop.destination, hop.message, 0, 400}}, 0);
    EXPECT_EQ(replayed.contributions_lost, 400u * static_cast<unsigned>(hop.contributions));
  }
  EXPECT_EQ(reductions, kRanks - 1);
}

TEST_F(RingOfFour, CountsAContributionLostTwiceOnce) {
  const std::vector<Hop> hops = schedule_.HopsOf(schedule_.FlowIndex(0, 2, 0));
  const std::vector<Loss> losses = {{hops[0].source, hops[0].destination, hops[0].message, 0, 400},
                                    {hops[1].source, hops[1].destination, hops[1].message, 0, 400}};
  // At hop 2 the sum carries two contributions, but the first is gone already.
  EXPECT_EQ(Replay(schedule_, inputs_, kRotation, losses, 0).contributions_lost, 400u + 400u);
}

TEST_F(RingOfFour, ZeroesAnAllGatherLossDownstreamOnly) {
  const std::vector<Hop> hops = schedule_.HopsOf(schedule_.FlowIndex(0, 2, 0));
  const Hop& second_gather = hops[kRanks];  // from owner + 1 to owner + 2
  ASSERT_EQ(second_gather.phase, Phase::kGather);
  const std::vector<Loss> losses = {{second_gather.source, second_gather.destination, second_gather.message, 0, 4}};
  const auto element = static_cast<std::size_t>(schedule_.FlowAt(schedule_.FlowIndex(0, 2, 0)).interval.first);
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::vector<float> result = Run(losses, rank);
    const bool downstream = rank == 0 || rank == 1;  // owner 2, then 3, then 0 and 1
    EXPECT_EQ(result[element] == 0.0F, downstream) << rank;
    EXPECT_EQ(Wrong(result, losses, rank), 0u) << rank;
    EXPECT_EQ(Wrong(result, {}, rank), downstream ? 1u : 0u) << rank;
  }
}

TEST(Replay, LosesOneContributionADirectHop) {
  const Schedule schedule(Make(Collective::kAllReduce, Algorithm::kDirect, 4, 256 << 10));
  const Inputs inputs(4, 5);
  const std::vector<Loss> losses = {{1, 2, 0, 0, 400}, {3, 2, 0, 0, 400}};
  EXPECT_EQ(Replay(schedule, inputs, 0, losses, 0).contributions_lost, 800u);
}

TEST(Inputs, TellASliceInAWrongPlace) {
  const Schedule schedule(Make(Collective::kAllReduce, Algorithm::kRing, 2, 1 << 20));
  const Inputs inputs(2, 1);
  std::vector<float> sum(1 << 20);
  for (std::size_t i = 0; i < sum.size(); ++i)
    sum[i] = inputs.SumTable()[i % static_cast<std::size_t>(Inputs::kPeriod)];
  ASSERT_EQ(Verify(schedule, inputs, 0, 0, sum.data(), {}).wrong, 0u);
  std::copy_n(sum.begin(), 8192, sum.begin() + 262'144);
  EXPECT_GT(Verify(schedule, inputs, 0, 0, sum.data(), {}).wrong, 8000u);
}

TEST(HashOf, ChangesWithEveryElement) {
  std::vector<float> values(1001, 3.0F);
  const std::uint64_t hash = HashOf(values.data(), 1001);
  for (const std::size_t i : {std::size_t{0}, std::size_t{500}, std::size_t{1000}}) {
    values[i] += 1;
    EXPECT_NE(HashOf(values.data(), 1001), hash) << i;
    values[i] -= 1;
  }
  EXPECT_NE(HashOf(values.data(), 1000), hash);
}

}  // namespace
}  // namespace forgive::perf
