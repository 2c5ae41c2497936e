// SPDX-License-Identifier: Apache-2.0
// Which library is examined, whether it loads as NCCL loads it, and what it exports.
#include <fmt/format.h>
#include <unistd.h>

#include <climits>
#include <filesystem>

#include "testbed/doctor/ask_library.h"
#include "testbed/doctor/checks.h"
#include "testbed/doctor/host.h"

namespace forgive::doctor {
namespace {

constexpr const char* kFileName = "libnccl-net-forgive.so";

// Where the build puts the library, seen from where it puts this program; empty if it is not there.
std::string BesideThisProgram() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return "";
  for (const char* folder : {"../../plugin", ".", "../lib"}) {
    const std::filesystem::path file = program.parent_path() / folder / kFileName;
    if (std::filesystem::exists(file, error)) return std::filesystem::weakly_canonical(file, error).string();
  }
  return "";
}

struct Choice {
  LibraryFacts facts;
  std::string from;  // why this one
};

// The library to examine: the one named, else what NCCL_NET_PLUGIN names if that is FORGIVE, else this build's.
Choice Choose(const Context& context) {
  if (!context.library_option.empty()) {
    return {InspectLibrary(context.library_option, context.limit), "--library"};
  }
  for (const std::string& entry : Split(Variable("NCCL_NET_PLUGIN"), ',')) {
    LibraryFacts facts = InspectPluginEntry(entry, context.limit);
    if (facts.is_forgive) return {facts, "NCCL_NET_PLUGIN"};
  }
  const std::string beside = BesideThisProgram();
  if (!beside.empty()) return {InspectLibrary(beside, context.limit), "beside this program"};
  return {InspectLibrary(kFileName, context.limit), "the loader's search path"};
}

std::string Versions(const std::vector<int>& versions) {
  std::vector<std::string> names;
  for (const int version : versions) names.push_back(fmt::format("v{}", version));
  return names.empty() ? "none" : Join(names, ", ");
}

}  // namespace

Section CheckLibrary(Context* context) {
  Section section{"Library", {}};
  const auto [facts, from] = Choose(*context);
  if (!facts.loads) {
    section.Fail("load", facts.problem, "name the built library with --library FILE, or build it: testbed/setup");
    return section;
  }
  section.Ok("file", fmt::format("{} ({})", facts.file, from));
  if (!facts.is_forgive) {
    section.Fail("load", fmt::format("it is not FORGIVE{}", facts.name.empty() ? "" : " but " + facts.name),
                 fmt::format("name {} with --library", kFileName));
    return section;
  }
  section.Ok("load", "it opens as NCCL opens it (RTLD_NOW | RTLD_LOCAL)");
  if (facts.threads > 1) {
    section.Warn("idle", fmt::format("{} threads run although it was only opened", facts.threads),
                 "report this: the library must do nothing before NCCL calls init");
  }
  context->library = facts.file;
  context->net_versions = facts.net;
  context->profiler_versions = facts.profiler;
  if (facts.net.empty() || facts.net.back() < kFirstCallable) {
    section.Fail("ncclNet", Versions(facts.net), "build the library again: it must export ncclNetPlugin_v6 at least");
  } else {
    section.Ok("ncclNet", Versions(facts.net));
  }
  section.Info("tuner", Versions(facts.tuner));
  section.Info("profiler", Versions(facts.profiler));
  return section;
}

}  // namespace forgive::doctor
