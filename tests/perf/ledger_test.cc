// SPDX-License-Identifier: Apache-2.0
// What the harness holds against a ledger: trims, places, phases, steps, budgets.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "testbed/perf/ledger_check.h"
#include "testbed/perf/trim_log.h"

namespace forgive::perf {
namespace {

TEST(TrimLog, CoversOnlyWhatWasTrimmedOfThatMessageOfThatConnection) {
  TrimLog log({});
  EXPECT_TRUE(log.AddLine("trim 00000000000000ab 7 4096 4096"));
  EXPECT_TRUE(log.Covers(0xab, 7, 4096, 4096));
  EXPECT_TRUE(log.Covers(0xab, 7, 5000, 100));
  EXPECT_FALSE(log.Covers(0xab, 7, 4095, 10));
  EXPECT_FALSE(log.Covers(0xab, 7, 8000, 193));
  EXPECT_FALSE(log.Covers(0xab, 8, 4096, 4096));
  EXPECT_FALSE(log.Covers(0xac, 7, 4096, 4096));
}

TEST(TrimLog, JoinsTrimsThatTouchButNotThoseWithAGap) {
  TrimLog log({});
  log.AddLine("trim 1 0 0 100");
  log.AddLine("trim 1 0 200 100");
  EXPECT_FALSE(log.Covers(1, 0, 50, 200));
  log.AddLine("trim 1 0 90 110");
  EXPECT_TRUE(log.Covers(1, 0, 0, 300));
  EXPECT_FALSE(log.Covers(1, 0, 0, 301));
}

TEST(TrimLog, SkipsLinesThatAreNoTrims) {
  TrimLog log({});
  EXPECT_FALSE(log.AddLine("drop 1 0 0 100"));
  EXPECT_FALSE(log.AddLine("trim 1 0 0"));
  EXPECT_FALSE(log.AddLine(""));
  EXPECT_EQ(log.lines(), 0u);
}

class TrimFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("trim_log_test." + std::to_string(getpid()));
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void Append(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::app) << text;
  }
  std::filesystem::path folder_;
};

TEST_F(TrimFiles, FollowsAGrowingFileAndWaitsForTheEndOfALine) {
  TrimLog log({(folder_ / "trims").string()});
  log.Refresh();
  Append("trims", "trim 1 0 0 10\ntrim 1 0 10 1");
  log.Refresh();
  EXPECT_TRUE(log.Covers(1, 0, 0, 10));
  EXPECT_FALSE(log.Covers(1, 0, 0, 11));
  Append("trims", "0\n");
  log.Refresh();
  EXPECT_TRUE(log.Covers(1, 0, 0, 20));
  EXPECT_EQ(log.lines(), 2u);
}

TEST_F(TrimFiles, FindsTheFilesOfAllProcessesByNameFolderOrPattern) {
  Append("trims.11", "trim 1 0 0 10\n");
  Append("trims.12", "trim 2 0 0 10\n");
  for (const std::string& source : {(folder_ / "trims").string(), folder_.string(), (folder_ / "tr*.1?").string()}) {
    TrimLog log({source});
    log.Refresh();
    EXPECT_TRUE(log.Covers(1, 0, 0, 10) && log.Covers(2, 0, 0, 10)) << source;
  }
}

// Rank 1 of a ring of two: messages 0 and 1 from rank 0 are the reduce-scatter phase, 2 and 3 the all-gather phase.
class Lines : public testing::Test {
 protected:
  static Shape RingOfTwo() {
    Shape shape;
    shape.elements = 32 << 10;  // 128 KiB: chunks of 64 KiB, slices of 32 KiB
    return shape;
  }
  static LedgerLine Good() {
    LedgerLine line;
    line.step = 5;
    line.connection_id = 0xab;
    line.source = 0;
    line.destination = 1;
    line.message = 101;
    line.message_in_operation = 1;
    line.offset = 4096;
    line.length = 4096;
    line.contributions = 1;
    return line;
  }
  std::vector<std::string> Check(const std::vector<LedgerLine>& lines, Eligible eligible = Eligible::kReduce,
                                 std::optional<std::uint64_t> step = 5) const {
    return CheckLines({&schedule_, step, eligible}, lines);
  }
  // The only fault that is found.
  std::string Fault(const LedgerLine& line, Eligible eligible = Eligible::kReduce) const {
    const std::vector<std::string> faults = Check({line}, eligible);
    return faults.size() == 1 ? faults[0] : std::to_string(faults.size()) + " faults";
  }
  const Schedule schedule_{RingOfTwo()};
};

TEST_F(Lines, PassAsTheyMustBe) {
  EXPECT_TRUE(Check({Good()}).empty());
  EXPECT_TRUE(Check({}).empty());
}

TEST_F(Lines, MustLieInTheReducePhaseUnlessAllIsEligible) {
  LedgerLine line = Good();
  line.message_in_operation = 2;
  line.contributions = 2;
  EXPECT_NE(Fault(line).find("may not be forgiven"), std::string::npos);
  EXPECT_TRUE(Check({line}, Eligible::kAll).empty());
  EXPECT_NE(Fault(Good(), Eligible::kNone).find("may not be forgiven"), std::string::npos);
}

TEST_F(Lines, MustBeChargedToTheOpenStep) {
  LedgerLine line = Good();
  line.step = 4;
  EXPECT_NE(Fault(line).find("charged to step 4"), std::string::npos);
  EXPECT_EQ(Check({Good()}, Eligible::kReduce, std::nullopt).size(), 1u);
}

TEST_F(Lines, MustLieInsideTheirMessageAndCutNoElement) {
  LedgerLine line = Good();
  line.offset = 32'768 - 4096;
  EXPECT_TRUE(Check({line}).empty());
  line.offset += 4;
  EXPECT_NE(Fault(line).find("outside its message"), std::string::npos);
  line.offset = 4098;
  EXPECT_NE(Fault(line).find("cuts an element"), std::string::npos);
  line = Good();
  line.message_in_operation = 4;
  EXPECT_NE(Fault(line).find("no such message"), std::string::npos);
}

TEST_F(Lines, MayNotForgiveAByteTwice) {
  LedgerLine second = Good();
  second.offset += 4092;
  EXPECT_EQ(Check({Good(), second}).size(), 1u);
  second.offset += 4;
  EXPECT_TRUE(Check({Good(), second}).empty());
}

TEST_F(Lines, MustCountTheHopsContributions) {
  LedgerLine line = Good();
  line.contributions = 2;
  EXPECT_NE(Fault(line).find("counts 2 lost contributions"), std::string::npos);
}

TEST_F(Lines, OfABroadcastAreNeverRight) {
  Shape shape = RingOfTwo();
  shape.collective = Collective::kBroadcast;
  const Schedule broadcast(shape);
  LedgerLine line = Good();
  line.message_in_operation = 0;
  const std::vector<LedgerLine> lines = {line};
  EXPECT_EQ(CheckLines({&broadcast, 5, Eligible::kAll}, lines).size(), 1u);
}

TEST_F(Lines, WithoutATrimAreNamed) {
  TrimLog log({});
  log.AddLine("trim 00000000000000ab 101 4096 4000");
  const std::vector<LedgerLine> lines = {Good()};
  ASSERT_EQ(Uncovered(log, lines).size(), 1u);
  EXPECT_EQ(Describe(Uncovered(log, lines)[0]),
            "rank 1 from rank 0, message 101 (1 of its operation), bytes 4096 to 8192");
  log.AddLine("trim 00000000000000ab 101 8000 192");
  EXPECT_TRUE(Uncovered(log, lines).empty());
}

TEST(Budget, AllowsTheFloorAndNotAByteMore) {
  EXPECT_EQ(BudgetBytes(100'000, 1'000'019), 100'001u);
  EXPECT_EQ(CheckBudget(0, 1, 100'001, 100'000, 1'000'019), "");
  EXPECT_NE(CheckBudget(0, 1, 100'002, 100'000, 1'000'019).find("the budget is 100001"), std::string::npos);
}

TEST(Budget, DoesNotOverflow) { EXPECT_EQ(BudgetBytes(1'000'000, ~0ULL), ~0ULL); }

}  // namespace
}  // namespace forgive::perf
