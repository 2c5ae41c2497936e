// SPDX-License-Identifier: Apache-2.0
// Parsing of the environment, and its agreement with the documentation.
#include "plugin/settings.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <sstream>

#include "plugin/parse.h"

namespace forgive {
namespace {

Settings Parsed(const Environment& environment) {
  Settings settings;
  std::vector<std::string> warnings;
  std::string error;
  EXPECT_TRUE(ParseSettings(environment, &settings, &warnings, &error)) << error;
  return settings;
}

std::string ErrorOf(const Environment& environment) {
  Settings settings;
  std::vector<std::string> warnings;
  std::string error;
  EXPECT_FALSE(ParseSettings(environment, &settings, &warnings, &error));
  return error;
}

TEST(Parse, ReadsPortRangesFromLowToHigh) {
  uint16_t low = 0;
  uint16_t high = 0;
  EXPECT_TRUE(ParsePortRange("4791", &low, &high));
  EXPECT_EQ(low, 4791);
  EXPECT_EQ(high, 4791);
  EXPECT_TRUE(ParsePortRange("1000-2000", &low, &high));
  EXPECT_EQ(low, 1000);
  EXPECT_EQ(high, 2000);
  for (const char* text : {"", "0", "70000", "5-4", "5-", "-5", "5-6-7", "a-b"}) {
    EXPECT_FALSE(ParsePortRange(text, &low, &high)) << text;
  }
}

TEST(Settings, HaveTheDefaultsThatTheTableNames) {
  const Settings settings = Parsed({});
  EXPECT_EQ(settings.p_low.ppm, 5000u);
  EXPECT_EQ(settings.p_high.ppm, 100000u);
  EXPECT_EQ(settings.engine.transport.forgiveness_probability.ppm, Fraction::kOne);
  EXPECT_EQ(settings.engine.driver, "udp");
  EXPECT_EQ(settings.engine.dscp_data, 10);
  EXPECT_EQ(settings.engine.dscp_control, 46);
  EXPECT_EQ(settings.engine.dscp_trimmed, 11);
  EXPECT_EQ(settings.engine.transport.window_bytes, 1048576u);
  EXPECT_EQ(settings.engine.transport.min_rto, Microseconds(20000));
  EXPECT_EQ(settings.engine.transport.report_every_packets, 16u);
  EXPECT_EQ(settings.engine.transport.peer_timeout, Seconds(30));
  EXPECT_EQ(settings.engine.transport.max_payload_bytes, 4096u);
  EXPECT_EQ(settings.engine.transport.congestion_control, CongestionControlKind::kDcqcnPaper);
  EXPECT_TRUE(settings.engine.transport.fabric_trims);
  EXPECT_TRUE(settings.engine.transport.payload_crc);
  EXPECT_EQ(settings.engine.receive_buffer_bytes, 67108864u);
  EXPECT_EQ(settings.ledger_lines, 1048576u);
  EXPECT_FALSE(settings.gradient_traffic_all);
  EXPECT_EQ(settings.eligible, Eligible::kReduce);
  EXPECT_EQ(settings.log, LogLevel::kError);
}

TEST(Settings, PutEveryValueWhereItBelongs) {
  const Settings settings = Parsed({{"FORGIVE_P_LOW", "0.01"},
                                    {"FORGIVE_P_HIGH", "0.2"},
                                    {"FORGIVE_P", "0"},
                                    {"FORGIVE_CC", "dcqcn-astra"},
                                    {"FORGIVE_CC_RESTART", "never"},
                                    {"FORGIVE_LINK_RATE_MBPS", "400"},
                                    {"FORGIVE_RTO_US", "70000"},
                                    {"FORGIVE_BASE_RTT_US", "5000"},
                                    {"FORGIVE_MAX_PAYLOAD", "1000"},
                                    {"FORGIVE_RING_RANKS", "8"},
                                    {"FORGIVE_GRADIENT_TRAFFIC", "all"},
                                    {"FORGIVE_ELIGIBLE", "all"},
                                    {"FORGIVE_STEP", "operation"},
                                    {"FORGIVE_BUDGET_UNIT", "contributions"},
                                    {"FORGIVE_COMMUNICATOR", "^tp*"},
                                    {"FORGIVE_TRIM", "0"},
                                    {"FORGIVE_SEED", "18446744073709551615"},
                                    {"FORGIVE_CPU", "1"}});
  EXPECT_EQ(settings.p_low.ppm, 10000u);
  EXPECT_EQ(settings.p_high.ppm, 200000u);
  EXPECT_EQ(settings.engine.transport.forgiveness_probability.ppm, 0u);
  EXPECT_EQ(settings.engine.transport.congestion_control, CongestionControlKind::kDcqcnAstra);
  EXPECT_EQ(settings.engine.transport.congestion_restart, CongestionRestart::kOff);
  EXPECT_EQ(settings.engine.transport.link_rate.value, 400000000u);
  EXPECT_EQ(settings.engine.transport.min_rto, Milliseconds(70));
  EXPECT_EQ(settings.engine.transport.base_rtt, Milliseconds(5));
  EXPECT_EQ(settings.engine.transport.max_payload_bytes, 992u);
  EXPECT_EQ(settings.ring_ranks, 8u);
  EXPECT_EQ(settings.gradient_ranks, 8u);
  EXPECT_TRUE(settings.gradient_traffic_all);
  EXPECT_EQ(settings.eligible, Eligible::kAll);
  EXPECT_TRUE(settings.step_by_operation);
  EXPECT_EQ(settings.engine.transport.budget_unit, BudgetUnit::kContributions);
  EXPECT_TRUE(settings.communicators.Match("dp"));
  EXPECT_FALSE(settings.communicators.Match("tp0"));
  EXPECT_FALSE(settings.engine.transport.fabric_trims);
  EXPECT_EQ(settings.seed, UINT64_MAX);
  EXPECT_EQ(settings.engine.cpu, 1);
  const Settings nscc = Parsed({{"FORGIVE_CC", "nscc"}});
  EXPECT_EQ(nscc.engine.transport.congestion_control, CongestionControlKind::kNscc);
}

TEST(Settings, SprayByRepsOverSeveralPathsUnlessToldOtherwiseAndNeverOverOne) {
  const auto policy = [](const Environment& environment) { return Parsed(environment).engine.transport.path_policy; };
  EXPECT_EQ(policy({}), PathPolicy::kSingle);
  EXPECT_EQ(policy({{"FORGIVE_PATHS", "1"}}), PathPolicy::kSingle);
  EXPECT_EQ(policy({{"FORGIVE_PATHS", "8"}}), PathPolicy::kReps);
  EXPECT_EQ(policy({{"FORGIVE_PATHS", "2"}, {"FORGIVE_PATH_POLICY", "oblivious"}}), PathPolicy::kOblivious);
  EXPECT_EQ(Parsed({{"FORGIVE_PATHS", "8"}}).engine.transport.paths, 8u);
  EXPECT_EQ(ErrorOf({{"FORGIVE_PATHS", "4"}, {"FORGIVE_PATH_POLICY", "single"}}),
            "FORGIVE_PATH_POLICY=single: is one path: unset it, or unset FORGIVE_PATHS=4");
  EXPECT_EQ(ErrorOf({{"FORGIVE_PATH_POLICY", "reps"}}),
            "FORGIVE_PATH_POLICY=oblivious or reps: needs FORGIVE_PATHS from 2 to 8, or FORGIVE_RAILS");
  for (const char* paths : {"0", "9", "two"}) {
    EXPECT_EQ(ErrorOf({{"FORGIVE_PATHS", paths}}),
              std::string("FORGIVE_PATHS=") + paths + ": accepted: an integer from 1 to 8");
  }
  EXPECT_EQ(ErrorOf({{"FORGIVE_PATHS", "2"}, {"FORGIVE_PATH_POLICY", "random"}}),
            "FORGIVE_PATH_POLICY=random: accepted: single, oblivious or reps");
}

TEST(Settings, SayOfPathsAndRateWhatEachRailHas) {
  const Settings settings =
      Parsed({{"FORGIVE_RAILS", "eth1,eth0,ib7"}, {"FORGIVE_PATHS", "2"}, {"FORGIVE_LINK_RATE_MBPS", "1000"}});
  EXPECT_EQ(settings.rails, (std::vector<std::string>{"eth1", "eth0", "ib7"}));
  EXPECT_EQ(settings.engine.transport.rails, 3u);
  EXPECT_EQ(settings.engine.transport.paths, 6u);
  EXPECT_EQ(settings.engine.transport.path_policy, PathPolicy::kReps);
  EXPECT_EQ(settings.engine.transport.link_rate.value, 3000000000u);
  EXPECT_EQ(Parsed({}).engine.transport.rails, 1u);
  EXPECT_EQ(Parsed({{"FORGIVE_RAILS", "eth0,eth1"}}).engine.transport.paths, 2u);
}

TEST(Settings, RefuseRailsThatCannotBe) {
  for (const char* rails : {"eth0", "eth0,eth0", "a,b,c,d,e", ",", "a,"}) {
    EXPECT_EQ(ErrorOf({{"FORGIVE_RAILS", rails}}),
              std::string("FORGIVE_RAILS=") + rails + ": accepted: two to four interface names by comma");
  }
  EXPECT_EQ(ErrorOf({{"FORGIVE_RAILS", "a,b"}, {"FORGIVE_INTERFACE", "eth"}}),
            "FORGIVE_RAILS: names the interfaces of the one device there is: unset FORGIVE_INTERFACE");
  EXPECT_EQ(ErrorOf({{"FORGIVE_RAILS", "a,b"}, {"FORGIVE_PATH_POLICY", "single"}}),
            "FORGIVE_PATH_POLICY=single: is one path: unset it, or unset FORGIVE_RAILS");
  EXPECT_EQ(ErrorOf({{"FORGIVE_RAILS", "a,b,c"}, {"FORGIVE_PATHS", "3"}}),
            "FORGIVE_PATHS=3: are those of each of 3 rails: accepted: an integer from 1 to 2");
  // NCCL's own variable is for its bootstrap as well, and FORGIVE_RAILS goes before it.
  EXPECT_EQ(Parsed({{"FORGIVE_RAILS", "a,b"}, {"NCCL_SOCKET_IFNAME", "eth"}}).rails.size(), 2u);
}

TEST(Settings, NeverAskForALeastTimeoutAboveTheLargest) {
  const Settings settings = Parsed({{"FORGIVE_RTO_US", "3000000"}});
  EXPECT_EQ(settings.engine.transport.min_rto, Seconds(3));
  EXPECT_GE(settings.engine.transport.max_rto, settings.engine.transport.min_rto);
}

TEST(Settings, NameTheWordOfForgiveDpdkThatIsWrong) {
  const std::string error = ErrorOf({{"FORGIVE_DPDK", "--no-huge --vdef=net_null0"}});
  EXPECT_NE(error.find("\"--vdef=net_null0\" is not accepted"), std::string::npos) << error;
  const Settings settings =
      Parsed({{"FORGIVE_DRIVER", "dpdk"}, {"FORGIVE_DPDK", "--vdev=net_null0 address=10.0.0.1/24"}});
  ASSERT_EQ(settings.engine.dpdk.ports.size(), 1u);
  EXPECT_EQ(settings.engine.dpdk.ports[0].address, "10.0.0.1");
}

TEST(Settings, TakeNcclsInterfaceOnlyWhereOursIsSilent) {
  EXPECT_EQ(Parsed({{"NCCL_SOCKET_IFNAME", "^eth,ib"}}).interfaces.variable, "NCCL_SOCKET_IFNAME");
  const InterfaceFilter filter =
      Parsed({{"NCCL_SOCKET_IFNAME", "eth"}, {"FORGIVE_INTERFACE", "=ib0,ib1:7"}}).interfaces;
  EXPECT_EQ(filter.variable, "FORGIVE_INTERFACE");
  EXPECT_TRUE(filter.exact);
  EXPECT_FALSE(filter.exclude);
  EXPECT_EQ(filter.names, (std::vector<std::string>{"ib0", "ib1"}));
}

TEST(Settings, LeaveStandardErrorToNcclWhereNcclShowsTheLines) {
  EXPECT_EQ(Parsed({{"NCCL_DEBUG", "info"}}).log, LogLevel::kNone);
  EXPECT_EQ(Parsed({{"NCCL_DEBUG", "VERSION"}}).log, LogLevel::kError);
  EXPECT_EQ(Parsed({{"NCCL_DEBUG", "INFO"}, {"FORGIVE_LOG", "debug"}}).log, LogLevel::kDebug);
}

TEST(Settings, ExpandTheFileNameByHostProcessAndRank) {
  EXPECT_EQ(Parsed({{"FORGIVE_STATS", "a.%p.%%.%r"}, {"RANK", "3"}}).statistics_file,
            "a." + std::to_string(getpid()) + ".%.3");
  EXPECT_NE(ErrorOf({{"FORGIVE_STATS", "a.%r"}}).find("RANK"), std::string::npos);
  EXPECT_NE(ErrorOf({{"FORGIVE_STATS", "a%"}}).find("FORGIVE_STATS=a%"), std::string::npos);
}

TEST(Settings, ReadTheDetectorOrNameWhatIsAccepted) {
  const DetectorConfig detector = Parsed({{"FORGIVE_DETECTOR", "steps"},
                                          {"FORGIVE_DETECTOR_WINDOW", "25"},
                                          {"FORGIVE_DETECTOR_THRESHOLD", "1.25"},
                                          {"FORGIVE_DETECTOR_STEPS", "7,5"}})
                                      .detector;
  EXPECT_EQ(detector.kind, DetectorKind::kSteps);
  EXPECT_EQ(detector.window, 25u);
  EXPECT_EQ(detector.threshold, 1.25);
  EXPECT_EQ(detector.steps, (std::vector<uint64_t>{7, 5}));
  for (const char* threshold : {"0", "0.0", "1000.1", "-1", "nan", "1e3"}) {
    EXPECT_NE(ErrorOf({{"FORGIVE_DETECTOR_THRESHOLD", threshold}}).find("above 0 and up to 1000"), std::string::npos);
  }
  EXPECT_NE(ErrorOf({{"FORGIVE_DETECTOR_STEPS", "1,b"}}).find("step numbers"), std::string::npos);
  EXPECT_NE(ErrorOf({{"FORGIVE_DETECTOR_WINDOW", "0"}}).find("steps from 1"), std::string::npos);
}

TEST(Settings, RefuseAnEmptyValueOfEveryVariable) {
  for (const VariableDescription& variable : DescribeVariables()) {
    const std::string name(variable.name);
    EXPECT_NE(ErrorOf({{name, ""}}).find(name + "=:"), std::string::npos) << name;
  }
}

TEST(Settings, WarnOfCriticalStepsThatWouldLoseMore) {
  Settings settings;
  std::vector<std::string> warnings;
  std::string error;
  EXPECT_TRUE(ParseSettings({{"FORGIVE_P_LOW", "0.3"}}, &settings, &warnings, &error));
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("FORGIVE_P_LOW"), std::string::npos);
}

// The rows "| `FORGIVE_X` | default | accepted | ..." of docs/using.md.
std::map<std::string, std::pair<std::string, std::string>> DocumentedVariables() {
  std::ifstream file(std::string(FORGIVE_DOCUMENTATION) + "/using.md");
  std::map<std::string, std::pair<std::string, std::string>> rows;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("| `FORGIVE_")) continue;
    std::vector<std::string> cells;
    std::stringstream stream(line);
    for (std::string cell; std::getline(stream, cell, '|');) {
      const size_t first = cell.find_first_not_of(" `");
      const size_t last = cell.find_last_not_of(" `");
      cells.push_back(first == std::string::npos ? "" : cell.substr(first, last - first + 1));
    }
    if (cells.size() > 3) rows[cells[1]] = {cells[2], cells[3]};
  }
  return rows;
}

TEST(Settings, AgreeWithTheTableInTheDocumentation) {
  const auto documented = DocumentedVariables();
  EXPECT_EQ(documented.size(), DescribeVariables().size());
  for (const VariableDescription& variable : DescribeVariables()) {
    const auto row = documented.find(std::string(variable.name));
    ASSERT_NE(row, documented.end()) << variable.name << " is not in docs/using.md";
    EXPECT_EQ(row->second.first, variable.default_text) << variable.name;
    EXPECT_EQ(row->second.second, variable.accepted) << variable.name;
  }
}

}  // namespace
}  // namespace forgive
