// SPDX-License-Identifier: Apache-2.0
// The loader's configuration file: what it accepts, and that an error names the line.
#include "testbed/lab/switch_config.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

namespace forgive::lab {
namespace {

constexpr const char* kGood =
    "pins /run/x/bpf\ntrims_log /run/x/trims.log\ntrim_length 128\ntrim_threshold_bytes 300000\n"
    "queue_bytes 300000\necn_min_bytes 10\necn_max_bytes 20\n";

std::string Read(const std::string& text, SwitchConfig* config) {
  const std::string path = testing::TempDir() + "switch_config_test." + std::to_string(getpid());
  std::ofstream(path) << text;
  std::string error = ReadSwitchConfig(path, config);
  std::remove(path.c_str());
  const std::size_t found = error.find(path);
  return found == 0 ? error.substr(path.size()) : error;
}

TEST(SwitchConfig, ReadsPortsAndNumbers) {
  SwitchConfig config;
  EXPECT_EQ(
      Read(std::string(kGood) + "\n# a comment\nport p0 02:46:47:56:00:0a\nport p1 02:46:47:56:00:0b\nline l0\n",
           &config),
      "");
  ASSERT_EQ(config.ports.size(), 2u);
  EXPECT_EQ(config.ports[0].interface, "p0");
  EXPECT_EQ(config.ports[1].host_address[5], 0x0b);
  EXPECT_EQ(config.line, "l0");
  EXPECT_EQ(config.parameters.trim_threshold_bytes, 300000u);
}

TEST(SwitchConfig, TakesAFileNameWithSpacesWhole) {
  SwitchConfig config;
  EXPECT_EQ(Read("pins /run/a lab/bpf\ntrims_log  /a b/c  d.log\n" + std::string(kGood).substr(std::string(kGood).find("trim_length")) +
                     "port p0 02:46:47:56:00:0a\n",
                 &config),
            "");
  EXPECT_EQ(config.pins, "/run/a lab/bpf");
  EXPECT_EQ(config.trims_log, "/a b/c  d.log");
  EXPECT_EQ(Read("trims_log  \n", &config), ":1: trims_log has no value");
}

TEST(SwitchConfig, NamesTheLineThatIsWrong) {
  SwitchConfig config;
  EXPECT_EQ(Read("pins /x\nnonsense 1\n", &config), ":2: nonsense is not a known key");
  EXPECT_EQ(Read("trim_length\n", &config), ":1: trim_length has no value");
  EXPECT_EQ(Read("trim_length 12x\n", &config), ":1: trim_length must be a number from 118 to 9000");
  EXPECT_EQ(Read("trim_mode 4\n", &config), ":1: trim_mode must be a number from 0 to 3");
  EXPECT_EQ(Read("port p0 02:46:47:56:00\n", &config), ":1: port needs an interface and an Ethernet address");
  EXPECT_EQ(Read("port p0 02:46:47:56:00:0a:0b\n", &config), ":1: port needs an interface and an Ethernet address");
}

TEST(SwitchConfig, RefusesATrimLengthThatWouldCutTheDataHeader) {
  SwitchConfig config;
  EXPECT_EQ(Read("trim_length 117\n", &config), ":1: trim_length must be a number from 118 to 9000");
  EXPECT_EQ(Read("trim_length 118\n", &config), ": pins is missing");
}

TEST(SwitchConfig, NamesWhatIsMissing) {
  SwitchConfig config;
  EXPECT_EQ(Read(kGood, &config), ": port is missing");
  SwitchConfig contradictory;
  EXPECT_EQ(Read(std::string(kGood) + "port p0 02:46:47:56:00:0a\necn_max_bytes 9\n", &contradictory),
            ": ecn_max_bytes is below ecn_min_bytes");
}

TEST(SwitchConfig, SaysWhichFileCannotBeRead) {
  SwitchConfig config;
  EXPECT_EQ(ReadSwitchConfig("/nonexistent/switch.conf", &config), "/nonexistent/switch.conf: cannot be read");
}

}  // namespace
}  // namespace forgive::lab
