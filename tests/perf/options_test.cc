// SPDX-License-Identifier: Apache-2.0
// Sizes, fractions and the command line as numbers.
#include "testbed/perf/options.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "testbed/perf/error.h"

namespace forgive::perf {
namespace {

std::optional<Options> Parse(std::vector<const char*> words) {
  words.insert(words.begin(), "forgive_perf");
  return ParseOptions(static_cast<int>(words.size()), words.data());
}

TEST(ParseSize, TakesBytesAndBinaryUnits) {
  EXPECT_EQ(ParseSize("4096", "-b"), 4096);
  EXPECT_EQ(ParseSize("1K", "-b"), 1024);
  EXPECT_EQ(ParseSize("64m", "-b"), 64 << 20);
  EXPECT_EQ(ParseSize("4G", "-b"), std::int64_t{4} << 30);
}

TEST(ParseSize, RefusesWhatIsNoSize) {
  for (const char* text : {"", "0", "-4", "3", "4X", "K", "1KB", "5G", "99999999999999999999", "1.5K", " 4"}) {
    EXPECT_THROW(ParseSize(text, "-b"), UsageError) << text;
  }
}

TEST(ParsePartsPerMillion, IsExactAndDropsWhatIsBelow) {
  EXPECT_EQ(ParsePartsPerMillion("0.1"), 100'000u);
  EXPECT_EQ(ParsePartsPerMillion("0.005"), 5'000u);
  EXPECT_EQ(ParsePartsPerMillion("0.0000019"), 1u);
  EXPECT_EQ(ParsePartsPerMillion(".5"), 500'000u);
  EXPECT_EQ(ParsePartsPerMillion("1"), 1'000'000u);
  EXPECT_EQ(ParsePartsPerMillion("1.0"), 1'000'000u);
  EXPECT_EQ(ParsePartsPerMillion("0"), 0u);
}

TEST(ParsePartsPerMillion, RefusesWhatIsNoFraction) {
  for (const char* text : {"", ".", "1.01", "2", "-0.1", "0.1x", "1e-3", "0,1"}) {
    EXPECT_EQ(ParsePartsPerMillion(text), std::nullopt) << text;
  }
}

TEST(ParseOptions, ReadsAStepRun) {
  const auto options = Parse({"--plugin", "tcp", "--ranks", "4", "--steps", "20", "--critical", "1,2,3,20",
                              "--compute-ms", "30", "--bytes", "8M", "--expected", "learn"});
  ASSERT_TRUE(options.has_value());
  EXPECT_EQ(options->mode, Mode::kSteps);
  EXPECT_EQ(options->critical, (std::vector<std::uint64_t>{1, 2, 3, 20}));
  EXPECT_EQ(options->step_bytes, 8 << 20);
  EXPECT_EQ(options->warmup, 0);
  EXPECT_TRUE(options->learn_expected);
}

TEST(ParseOptions, ReadsOneRankOfMany) {
  const auto options = Parse({"--plugin", "x.so", "--rank", "2", "--world", "4", "--rendezvous", "h:1", "--trims",
                              "a", "--trims", "b", "--no-check", "--api", "v7"});
  ASSERT_TRUE(options.has_value());
  EXPECT_EQ(options->ranks, 4);
  EXPECT_EQ(options->rank, 2);
  EXPECT_EQ(options->trims, (std::vector<std::string>{"a", "b"}));
  EXPECT_FALSE(options->check);
  EXPECT_EQ(options->api, 7);
}

TEST(ReadWord, NamesTheVariableThatItCannotRead) {
  setenv("FORGIVE_P_LOW", "much", 1);
  try {
    ReadWord();
    ADD_FAILURE() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("FORGIVE_P_LOW=much"), std::string::npos);
  }
  unsetenv("FORGIVE_P_LOW");
  EXPECT_EQ(ReadWord().p_low_ppm, 5'000u);
}

}  // namespace
}  // namespace forgive::perf
