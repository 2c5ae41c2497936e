// SPDX-License-Identifier: Apache-2.0
// Opens a plugin's library as NCCL does, lists what it exports, and calls its init.
#ifndef FORGIVE_TESTBED_DOCTOR_ASK_LIBRARY_H_
#define FORGIVE_TESTBED_DOCTOR_ASK_LIBRARY_H_

#include <string>
#include <utility>
#include <vector>

#include "testbed/doctor/finding.h"

namespace forgive::doctor {

// The versions of each interface that are looked for: those of NCCL 2.13 to 2.32.
inline constexpr int kFirstNet = 4;
inline constexpr int kLastNet = 12;
// The versions whose init this file knows how to call.
inline constexpr int kFirstCallable = 6;

struct LibraryFacts {
  bool loads = false;
  std::string problem;  // if not: the loader's line, or how the child ended
  std::string file;     // as the loader found it, links followed
  std::string name;     // the plugin's own, from its highest table; empty: no net plugin
  std::vector<int> net;
  std::vector<int> tuner;
  std::vector<int> profiler;
  bool is_forgive = false;  // has the functions of forgive.h
  int threads = 0;          // of a process that has only opened it
};

// Opens `name` (a path, or a name for the loader's search) with RTLD_NOW | RTLD_LOCAL in a bounded child.
LibraryFacts InspectLibrary(const std::string& name, std::chrono::milliseconds limit);
// The same for the names that NCCL tries for one entry of NCCL_NET_PLUGIN: as it stands, then libnccl-net-ENTRY.so.
LibraryFacts InspectPluginEntry(const std::string& entry, std::chrono::milliseconds limit);

struct InitLine {
  bool warning = false;
  std::string text;
};

struct InitFacts {
  bool answered = false;  // false: `problem` says how the child ended
  std::string problem;
  int result = 0;  // of init, as NCCL numbers results
  std::vector<InitLine> lines;
  std::vector<std::string> devices;
};

// Calls init, devices and getProperties of ncclNet's version `version` in a bounded child, whose environment is this
// one with `changes` applied (an empty value removes the variable) and no file to write to.
InitFacts AskInit(const std::string& file, int version, std::chrono::milliseconds limit,
                  const std::vector<std::pair<std::string, std::string>>& changes);

// The first line of the library's statistics file after such an init (docs/using.md, Statistics), written to memory;
// an empty object: there is none.
Json AskInForce(const std::string& file, int version, std::chrono::milliseconds limit,
                const std::vector<std::pair<std::string, std::string>>& changes);

// The interface version that an NCCL of this version (as ncclGetVersion counts) takes at most; 0: none that is known.
int HighestNetVersion(int nccl_version);
// The version that NCCL would call: the highest that both have; of the highest known NCCL if none was found.
int NetVersionInUse(const Context& context);
std::string NcclVersionText(int nccl_version);

}  // namespace forgive::doctor

#endif  // FORGIVE_TESTBED_DOCTOR_ASK_LIBRARY_H_
