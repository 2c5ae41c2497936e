// SPDX-License-Identifier: Apache-2.0
// The library as a file: what it exports, what it needs, how it is probed, and that loading it does nothing.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>

#include "fake_nccl.h"

namespace forgive::testing {
namespace {

// The names in a folder: descriptors in /proc/self/fd, threads in /proc/self/task.
std::set<std::string> NamesIn(const char* folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

TEST(PluginLibrary, ExportsItsTablesAndForgiveHAndNothingElse) {
  std::FILE* names = popen("nm -D --defined-only --format=posix " FORGIVE_PLUGIN_FILE, "r");
  ASSERT_NE(names, nullptr);
  std::set<std::string> exported;
  char line[512];
  while (std::fgets(line, sizeof(line), names) != nullptr)
    exported.insert(std::string(line, std::strcspn(line, " ")));
  ASSERT_EQ(pclose(names), 0);
  std::set<std::string> expected = {"forgive_last_error",
                                    "forgive_step_begin",
                                    "forgive_step_end",
                                    "forgive_stats",
                                    "forgive_step_begin_norm",
                                    "forgive_step_stats",
                                    "forgive_forgiven_ranges",
                                    "forgive_ledger_lost",
                                    "forgive_detector_create",
                                    "forgive_detector_destroy",
                                    "forgive_detector_of_process",
                                    "forgive_detector_is_critical",
                                    "forgive_detector_is_layer_critical",
                                    "forgive_detector_observe",
                                    "forgive_detector_stats",
                                    "forgive_detector_save",
                                    "forgive_detector_restore"};
  for (const int version : kVersions) expected.insert("ncclNetPlugin_v" + std::to_string(version));
  for (int version = 2; version <= 6; ++version) expected.insert("ncclTunerPlugin_v" + std::to_string(version));
  for (int version = 1; version <= 6; ++version) expected.insert("ncclProfiler_v" + std::to_string(version));
  EXPECT_EQ(exported, expected);
}

TEST(PluginLibrary, IsProbedFromTheHighestVersionDownAsNcclDoes) {
  ExpectInChild({}, [] {
    const Library library;
    EXPECT_EQ(library.Symbol("ncclNetPlugin_v13"), nullptr);
    for (int version = 12; version >= 6; --version) EXPECT_STREQ(library.Table(version).name, "forgive");
    EXPECT_EQ(library.Symbol("ncclNetPlugin_v5"), nullptr);
    EXPECT_EQ(library.Symbol("ncclCollNetPlugin_v8"), nullptr);
  });
}

TEST(PluginLibrary, StandsBesideALinkThatNcclFindsWithoutTheName) {
  const std::string file = FORGIVE_PLUGIN_FILE;
  const std::string link = file.substr(0, file.rfind('/')) + "/libnccl-net.so";
  char target[4096] = {};
  ASSERT_GT(readlink(link.c_str(), target, sizeof(target) - 1), 0) << link;
  EXPECT_STREQ(target, "libnccl-net-forgive.so");
}

// A host for training has the C++ library; io_uring, BPF or DPDK it may lack.
TEST(PluginLibrary, NeedsNoLibraryThatAMinimalHostLacks) {
  std::FILE* headers = popen("objdump -p " FORGIVE_PLUGIN_FILE, "r");
  ASSERT_NE(headers, nullptr);
  std::set<std::string> needed;
  char line[512];
  char name[256];
  while (std::fgets(line, sizeof(line), headers) != nullptr) {
    if (std::sscanf(line, " NEEDED %255s", name) == 1) needed.insert(name);
  }
  ASSERT_EQ(pclose(headers), 0);
  EXPECT_EQ(needed.count("libc.so.6"), 1u);
  const std::set<std::string> allowed = {"libc.so.6",     "libm.so.6",       "libstdc++.so.6",       "libgcc_s.so.1",
                                         "libdl.so.2",    "libpthread.so.0", "ld-linux-x86-64.so.2", "libasan.so.8",
                                         "libubsan.so.1", "libtsan.so.2"};
  for (const std::string& library : needed) EXPECT_EQ(allowed.count(library), 1u) << library;
}

TEST(PluginLibrary, StartsNoThreadAndOpensNothingUntilInit) {
  ExpectInChild({}, [] {
    const std::set<std::string> threads = NamesIn("/proc/self/task");
    const std::set<std::string> files = NamesIn("/proc/self/fd");
    const Library library;
    for (const int version : kVersions) EXPECT_STREQ(library.Table(version).name, "forgive");
    EXPECT_EQ(NamesIn("/proc/self/task"), threads);
    EXPECT_EQ(NamesIn("/proc/self/fd"), files);
    EXPECT_TRUE(LogLines().empty());
    ASSERT_EQ(library.Table(8).init(), nccl::kSuccess);
    EXPECT_NE(NamesIn("/proc/self/task"), threads) << "the engine's";
    EXPECT_NE(NamesIn("/proc/self/fd"), files) << "its sockets";
  });
}

}  // namespace
}  // namespace forgive::testing
