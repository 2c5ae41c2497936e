// SPDX-License-Identifier: Apache-2.0
// Tests of plans: what may be said, what is refused and in which words, and that the plans we ship are sound.
#include "testbed/simulator/plan.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "small_plan.h"
#include "testbed/simulator/plan_file.h"
#include "testbed/simulator/plan_keys.h"

namespace forgive::sim {
namespace {

class PlanFile : public ::testing::Test {
 protected:
  PlanFile()
      : folder_(std::filesystem::path(::testing::TempDir()) /
                (::testing::UnitTest::GetInstance()->current_test_info()->name() + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~PlanFile() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) { std::ofstream(folder_ / (name + ".toml")) << text; }
  Plan Read(const std::string& name, const std::vector<std::string>& assignments = {}) {
    return ReadPlan(folder_.string(), name, assignments, 1);
  }
  std::string Refusal(const std::string& name, const std::vector<std::string>& assignments = {}) {
    try {
      Read(name, assignments);
    } catch (const PlanError& error) {
      return error.what();
    }
    return "";
  }
  static bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

  std::filesystem::path folder_;
};

TEST_F(PlanFile, TakesABaseThenTheFileThenTheVariantThenTheCommandLine) {
  Write("base", "[policy]\np_low = 0.1\np_high = 0.2\n[workload]\nsteps = 3\nburst_step = 1\n");
  Write("family",
        "base = \"base\"\n[policy]\np_high = 0.3\n[variants.one]\npolicy.p_low = 0.4\nworkload.steps = 5\n");
  const Plan plan = Read("family/one", {"steps=7"});
  EXPECT_EQ(plan.job.policy.p_low.ppm, 400000u);
  EXPECT_EQ(plan.job.policy.p_high.ppm, 300000u);
  EXPECT_EQ(plan.job.workload.steps, 7u);
  EXPECT_EQ(plan.name(), "family/one");
}

TEST_F(PlanFile, NamesFileLineAndKeyOfAnUnknownKeyAndWhatThereIs) {
  Write("bad", "[policy]\np_low = 0.1\np_hihg = 0.2\n");
  const std::string refusal = Refusal("bad");
  EXPECT_TRUE(Has(refusal, "bad.toml:3:")) << refusal;
  EXPECT_TRUE(Has(refusal, "policy.p_hihg")) << refusal;
  EXPECT_TRUE(Has(refusal, "p_high")) << refusal;
}

TEST_F(PlanFile, NamesFileLineAndKeyOfABadValueAndWhatIsAllowed) {
  Write("bad", "[fabric]\nleaves = 8\n\nload_balancing = \"magic\"\n");
  const std::string refusal = Refusal("bad");
  EXPECT_TRUE(Has(refusal, "bad.toml:4:")) << refusal;
  EXPECT_TRUE(Has(refusal, "fabric.load_balancing = \"magic\"")) << refusal;
  EXPECT_TRUE(Has(refusal, "ecmp, spray")) << refusal;
}

TEST_F(PlanFile, RefusesAValueOfAnotherType) {
  Write("bad", "[workload]\nsteps = 2.5\n");
  EXPECT_TRUE(Has(Refusal("bad"), "bad.toml:2: workload.steps = 2.5: allowed is a whole number"));
}

TEST_F(PlanFile, NamesTheLineOfWhatIsNoToml) {
  Write("bad", "[fabric]\nleaves = = 8\n");
  EXPECT_TRUE(Has(Refusal("bad"), "bad.toml:2:"));
}

TEST_F(PlanFile, NamesTheLineOfATableWhoseNameBeginsAsNoNameDoes) {
  for (const char* const third : {"[[[x", "[[[x]]]", "[.x]", "[x.[y]", "[=]", "[[,]]"}) {
    Write("bad", std::string("# x\n\n") + third);
    const std::string refusal = Refusal("bad");
    EXPECT_TRUE(Has(refusal, "bad.toml:3: ")) << third << ": " << refusal;
    EXPECT_FALSE(Has(refusal, "\n")) << refusal;
  }
}

TEST_F(PlanFile, NamesTheLineOfALetterBeyondAsciiOutsideOfComments) {
  for (const char* const third :
       {"\xc3\xa9 = 1", "leav\xc3\xa9s = 1", "leaves \xc3\xa9= 1", "leaves = 1 \xc3\xa9", "\xff",
        "leaves = 1\xc2\xa1 # 1", "a = [1, \xd0\x96]", "a = {\xc2\xa0}", "a = \"\" \xc2\xa1", "a = \"\\\\\" \xc2\xa1",
        "a = '\\' \xc2\xa1", "a = \"\"\"b\"\"\"\" \xc2\xa1", "a = \"\"\"\\\xc2\xa1\"\"\"", "a = '''#\xc2\xa1'''",
        "a = \"#\xc2\xa1\"", "a = \"\\\"#\xc2\xa1\"", "a = '#\xc2\xa1'", "a = 1=!\"\xc2\xa1\""}) {
    Write("bad", std::string("# x\n[fabric]\n") + third + "\n");
    const std::string refusal = Refusal("bad");
    EXPECT_TRUE(Has(refusal, "bad.toml:3: a letter beyond ASCII; such may stand in comments")) << refusal;
  }
}

TEST_F(PlanFile, ReadsLettersBeyondAsciiInComments) {
  Write("good", "\xef\xbb\xbf# \xc3\xa9 \" '\nabout = \"\\\"#\" # \xc3\xa9\n[fabric]\nleaves = 8 # \xe2\x80\xa8\n");
  EXPECT_EQ(Refusal("good"), "");
  Write("good", "about = '\\' # '''\xc3\xa9\n[fabric]\nleaves = 8\n");
  EXPECT_EQ(Refusal("good"), "");
}

TEST_F(PlanFile, RefusesAnUnknownSectionAndAnUnknownVariant) {
  Write("bad", "[fabrik]\nleaves = 8\n");
  EXPECT_TRUE(Has(Refusal("bad"), "bad.toml:1: unknown key fabrik"));
  Write("family", "[variants.one]\nabout = \"x\"\n[variants.two]\nabout = \"y\"\n");
  EXPECT_TRUE(Has(Refusal("family/three"), "one, two"));
  EXPECT_TRUE(Has(Refusal("family"), "one, two"));
}

TEST_F(PlanFile, RefusesAnAssignmentThatIsUnknownUnclearOrBad) {
  Write("base", "[fabric]\nleaves = 8\n");
  EXPECT_TRUE(Has(Refusal("base", {"p_hihg=0.1"}), "--set p_hihg=0.1: unknown key"));
  EXPECT_TRUE(Has(Refusal("base", {"p_high=1.5"}), "--set p_high=1.5: policy.p_high = 1.5: allowed is a fraction"));
  EXPECT_TRUE(Has(Refusal("base", {"p_high"}), "write key=value"));
}

TEST_F(PlanFile, RefusesWhatNoFabricOrWorkloadCanBe) {
  Write("base", "[fabric]\nleaves = 2\nhosts_per_leaf = 4\n");
  EXPECT_TRUE(Has(Refusal("base"), "workload.ranks_per_leaf = 8")) << Refusal("base");
  EXPECT_TRUE(Has(Refusal("base", {"ranks_per_leaf=4"}), "64 ranks")) << Refusal("base", {"ranks_per_leaf=4"});
  EXPECT_TRUE(Has(Refusal("base", {"ranks_per_leaf=4", "tp=4", "dp=2", "ecn_min_bytes=5000000"}), "ecn"));
}

TEST_F(PlanFile, GivesGoBackNOnePathAndNothingToForgive) {
  Write("base", "[fabric]\nleaves = 8\n[policy]\nrule = \"none\"\n[workload]\nburst_step = 1\n");
  EXPECT_EQ(Read("base", {"recovery=go-back-n"}).job.transport.recovery, Recovery::kGoBackN);
  EXPECT_TRUE(Has(Refusal("base", {"recovery=go-back-n", "rule=forgive"}), "policy.rule is none or shed"));
  EXPECT_TRUE(
      Has(Refusal("base", {"recovery=go-back-n", "path_policy=reps", "paths=8"}), "so path_policy = single"));
}

TEST_F(PlanFile, WantsAsManyPathsAsThePolicyCanUse) {
  Write("base", "[fabric]\nleaves = 8\n[workload]\nburst_step = 1\n");
  EXPECT_TRUE(Has(Refusal("base", {"paths=8"}), "transport.paths = 8: path_policy single has 1"));
  EXPECT_TRUE(Has(Refusal("base", {"path_policy=oblivious"}), "transport.paths = 1"));
  EXPECT_EQ(Read("base", {"path_policy=reps", "paths=8"}).job.transport.paths, 8u);
}

TEST_F(PlanFile, GivesASecondJobTheFirstOnesKeysAndThenItsOwn) {
  Write("two",
        "[fabric]\nhosts_per_leaf = 16\n[workload]\nsteps = 6\nburst_step = 1\n[job2.workload]\nfirst_host = 8\n"
        "[job2.policy]\nrule = \"none\"\n");
  const Plan plan = Read("two");
  ASSERT_TRUE(plan.job2.has_value());
  EXPECT_EQ(plan.job2->workload.steps, 6u);
  EXPECT_EQ(plan.job2->workload.first_host, 8u);
  EXPECT_TRUE(Has(Refusal("two", {"job2.workload.first_host=4"}), "job2.workload.first_host = 4"));
}

TEST(Plan, ScalesTheBytesOfEveryMessageAndKeepsTheSpareStream) {
  Plan plan;
  plan.job.workload.seed_exact = true;
  ScalePlan(&plan, 0.1);
  EXPECT_EQ(plan.job.workload.tp_bytes, 6710886u);
  EXPECT_EQ(plan.job.workload.dp_stream_count(), 5u);
  EXPECT_THROW(ScalePlan(&plan, 0), PlanError);
}

TEST(Plan, OwesARankWhatTheSpecificationSays) {
  WorkloadPlan workload;
  workload.seed_exact = true;
  EXPECT_EQ(workload.dp_chunk_bytes(), 2136230u);
  EXPECT_EQ(workload.gradient_bytes(), 149536100u);
}

TEST(Plan, SaysEveryKeyInItsParameters) {
  const Plan plan = SmallPlan({"p_high=0.25"});
  const auto parameters = ParametersOf(plan);
  EXPECT_EQ(parameters["policy.p_high"], 0.25);
  EXPECT_EQ(parameters["fabric.leaves"], 4);
  Plan copy = plan;
  EXPECT_EQ(parameters.size(), KeysOf(&copy).size());
}

TEST(Plan, EveryPlanThatWeShipIsSound) {
  size_t plans = 0;
  for (const Family& family : ReadFamilies(FORGIVE_SIM_TEST_PLANS)) {
    EXPECT_FALSE(family.about.empty()) << family.file;
    for (const Family::Variant& variant : family.variants) {
      EXPECT_FALSE(variant.about.empty()) << family.file << " " << variant.name;
      EXPECT_NO_THROW(ReadPlan(FORGIVE_SIM_TEST_PLANS, family.name + "/" + variant.name, {}, 1)) << variant.name;
      ++plans;
    }
    for (const std::string& other : family.include) EXPECT_NO_THROW(ReadFamily(FORGIVE_SIM_TEST_PLANS, other));
  }
  EXPECT_GT(plans, 0u);
}

}  // namespace
}  // namespace forgive::sim
