// SPDX-License-Identifier: Apache-2.0
// The tuner's tables as NCCL calls them: what is forced, and what is left to NCCL.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "fake_nccl.h"
#include "plugin/nccl_tuner_abi.h"

namespace forgive::testing {
namespace {

constexpr int kAlgorithms = 7;
constexpr int kProtocols = 3;
constexpr int kRingSimple = nccl::kAlgorithmRing * kProtocols + nccl::kProtocolSimple;
constexpr int kFunctions[] = {0, 1, 2, 3, 4, 5, 6, 7};
using Costs = std::array<float, kAlgorithms * kProtocols>;
using Variables = std::vector<std::pair<std::string, std::string>>;

const Variables kWord = {{"FORGIVE_GRADIENT_TRAFFIC", "all"}, {"FORGIVE_RING_RANKS", "4"}};

// As NCCL fills it: some entries do not work.
Costs NcclCosts() {
  Costs costs;
  for (size_t i = 0; i < costs.size(); ++i) costs[i] = i % 5 == 2 ? nccl::kIgnored : 1.0f + static_cast<float>(i);
  costs[kRingSimple] = 9.0f;
  return costs;
}

bool IsForced(const Costs& costs) {
  for (size_t i = 0; i < costs.size(); ++i) {
    if (costs[i] != (i == kRingSimple ? 0.0f : nccl::kIgnored)) return false;
  }
  return true;
}

struct Tuner {
  void* context = nullptr;
  std::function<int(int, Costs*)> choose;
  std::function<int()> end;
};

float** Table(Costs* costs) { return reinterpret_cast<float**>(costs->data()); }

Tuner MakeTuner(const Library& library, int version, uint64_t comm_id) {
  Tuner tuner;
  const void* symbol = library.Symbol(("ncclTunerPlugin_v" + std::to_string(version)).c_str());
  EXPECT_NE(symbol, nullptr);
  int channels = 12345;
  if (version == 3) {
    const auto* table = static_cast<const nccl::TunerV3*>(symbol);
    EXPECT_EQ(table->init(4, 2, nullptr, &tuner.context), nccl::kSuccess);
    tuner.choose = [table, context = tuner.context](int function, Costs* costs) {
      int untouched = 12345;
      const int result =
          table->choose(context, function, 1 << 20, 1, Table(costs), kAlgorithms, kProtocols, &untouched);
      EXPECT_EQ(untouched, 12345);
      return result;
    };
    tuner.end = [table, context = tuner.context] { return table->destroy(context); };
  } else if (version == 4) {
    const auto* table = static_cast<const nccl::TunerV4*>(symbol);
    EXPECT_EQ(table->init(4, 2, nullptr, &tuner.context), nccl::kSuccess);
    tuner.choose = [table, context = tuner.context, channels](int function, Costs* costs) mutable {
      return table->choose(context, function, 1 << 20, 1, Table(costs), kAlgorithms, kProtocols, 0, &channels);
    };
    tuner.end = [table, context = tuner.context] { return table->destroy(context); };
  } else {
    const auto* table = static_cast<const nccl::TunerV5*>(symbol);  // v6 has one more entry behind
    EXPECT_EQ(table->init(&tuner.context, comm_id, 4, 2, nullptr, nullptr, nullptr), nccl::kSuccess);
    tuner.choose = [table, context = tuner.context, channels](int function, Costs* costs) mutable {
      return table->choose(context, function, 1 << 20, 1, Table(costs), kAlgorithms, kProtocols, 0, &channels);
    };
    tuner.end = [table, context = tuner.context] { return table->finalize(context); };
  }
  EXPECT_NE(tuner.context, nullptr);
  return tuner;
}

class TunerTables : public ::testing::TestWithParam<int> {
 protected:
  void Run(const Variables& environment, const std::function<void(const Library&, Tuner)>& body,
           int traffic_class = nccl::kNoTrafficClass) {
    ExpectInChild(environment, [&] {
      const Library library;
      const Net net = library.Table(GetParam() >= 5 ? 11 : 8, 77, traffic_class);
      ASSERT_EQ(net.init(), nccl::kSuccess);
      const Tuner tuner = MakeTuner(library, GetParam(), 77);
      body(library, tuner);
      EXPECT_EQ(tuner.end(), nccl::kSuccess);
    });
  }
};

TEST_P(TunerTables, ForceRingAndSimpleForGradientCollectivesAndNothingElse) {
  Run(kWord, [](const Library&, const Tuner& tuner) {
    for (const int function : kFunctions) {
      Costs costs = NcclCosts();
      EXPECT_EQ(tuner.choose(function, &costs), nccl::kSuccess);
      if (function == nccl::kFunctionAllReduce || function == nccl::kFunctionReduceScatter) {
        EXPECT_TRUE(IsForced(costs)) << function;
      } else {
        EXPECT_EQ(costs, NcclCosts()) << function;
      }
    }
  });
}

TEST_P(TunerTables, NeverUseWhatNcclIgnores) {
  Run(kWord, [](const Library&, const Tuner& tuner) {
    Costs costs = NcclCosts();
    costs[kRingSimple] = nccl::kIgnored;
    const Costs before = costs;
    EXPECT_EQ(tuner.choose(nccl::kFunctionAllReduce, &costs), nccl::kSuccess);
    EXPECT_EQ(costs, before);
  });
}

TEST_P(TunerTables, LeaveEverythingToNcclWithoutTheWord) {
  for (const Variables& environment :
       std::vector<Variables>{{}, {{"FORGIVE_ELIGIBLE", "none"}, kWord[0], kWord[1]}}) {
    Run(environment, [](const Library&, const Tuner& tuner) {
      Costs costs = NcclCosts();
      EXPECT_EQ(tuner.choose(nccl::kFunctionAllReduce, &costs), nccl::kSuccess);
      EXPECT_EQ(costs, NcclCosts());
    });
  }
}

TEST_P(TunerTables, TellCommunicatorsApartByTrafficClassFromV5On) {
  for (const int traffic_class : {-1, 3, 104}) {
    Run(
        {{"FORGIVE_TRAFFIC_CLASS", "104"}},
        [traffic_class](const Library&, const Tuner& tuner) {
          Costs costs = NcclCosts();
          EXPECT_EQ(tuner.choose(nccl::kFunctionReduceScatter, &costs), nccl::kSuccess);
          EXPECT_EQ(IsForced(costs), GetParam() >= 5 && traffic_class == 104);
        },
        traffic_class);
  }
}

TEST_P(TunerTables, DoNothingWhileAnotherNetworkIsInUse) {
  ExpectInChild(kWord, [] {
    const Library library;
    const Tuner tuner = MakeTuner(library, GetParam(), 1);
    Costs costs = NcclCosts();
    EXPECT_EQ(tuner.choose(nccl::kFunctionAllReduce, &costs), nccl::kSuccess);
    EXPECT_EQ(costs, NcclCosts());
    EXPECT_EQ(tuner.end(), nccl::kSuccess);
  });
}

INSTANTIATE_TEST_SUITE_P(Api, TunerTables, ::testing::Values(3, 4, 5, 6),
                         [](const auto& parameter) { return "v" + std::to_string(parameter.param); });

TEST(TunerV2, WritesBothAlgorithmAndProtocolOrNeither) {
  for (const bool word : {true, false}) {
    ExpectInChild(word ? kWord : Variables{}, [word] {
      const Library library;
      const Net net = library.Table(8);
      ASSERT_EQ(net.init(), nccl::kSuccess);
      const auto* table = static_cast<const nccl::TunerV2*>(library.Symbol("ncclTunerPlugin_v2"));
      ASSERT_NE(table, nullptr);
      void* context = nullptr;
      ASSERT_EQ(table->init(4, 2, nullptr, &context), nccl::kSuccess);
      for (const int function : kFunctions) {
        int algorithm = -1;
        int protocol = -1;
        int channels = 0;
        EXPECT_EQ(table->choose(context, function, 1 << 20, 0, 0, 1, &algorithm, &protocol, &channels), 0);
        const bool gradient = function == nccl::kFunctionAllReduce || function == nccl::kFunctionReduceScatter;
        EXPECT_EQ(algorithm, word && gradient ? nccl::kAlgorithmRing : -1);
        EXPECT_EQ(protocol, word && gradient ? nccl::kProtocolSimple : -1);
        EXPECT_EQ(channels, 0);
      }
      EXPECT_EQ(table->destroy(context), nccl::kSuccess);
      EXPECT_EQ(table->destroy(nullptr), nccl::kSuccess);
    });
  }
}

}  // namespace
}  // namespace forgive::testing
