// SPDX-License-Identifier: Apache-2.0
// Which NCCL this host has, where, of which version, and what that version means for the library.
#include <dlfcn.h>
#include <fmt/format.h>
#include <glob.h>
#include <link.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <filesystem>

#include "testbed/doctor/ask_library.h"
#include "testbed/doctor/bounded.h"
#include "testbed/doctor/checks.h"
#include "testbed/doctor/host.h"

namespace forgive::doctor {
namespace {

constexpr const char* kLoaderName = "libnccl.so.2";
constexpr size_t kMostWheels = 8;

struct Found {
  std::string file;
  int version = 0;
  std::string problem;
};

// Opens an NCCL and asks its version, without initialising anything.
Found AskVersion(const std::string& name, std::chrono::milliseconds limit) {
  const BoundedAnswer answer = AskBounded(limit, [&] {
    Json facts{{"file", ""}, {"version", 0}, {"problem", ""}};
    void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      facts["problem"] = dlerror();
      return facts;
    }
    link_map* map = nullptr;
    char resolved[PATH_MAX];
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && realpath(map->l_name, resolved) != nullptr) {
      facts["file"] = resolved;
    }
    auto* const get_version = reinterpret_cast<int (*)(int*)>(dlsym(library, "ncclGetVersion"));
    int version = 0;
    if (get_version == nullptr || get_version(&version) != 0) facts["problem"] = name + ": has no ncclGetVersion";
    facts["version"] = version;
    return facts;
  });
  if (!answer.ok) return {name, 0, fmt::format("{}: opening it {}", name, answer.problem)};
  return {answer.value["file"].get<std::string>(), answer.value["version"].get<int>(),
          answer.value["problem"].get<std::string>()};
}

void AddMatches(const std::string& pattern, std::vector<std::string>* files) {
  glob_t matches{};
  if (glob(pattern.c_str(), 0, nullptr, &matches) == 0) {
    for (size_t i = 0; i < matches.gl_pathc; ++i) files->emplace_back(matches.gl_pathv[i]);
  }
  globfree(&matches);
}

// Where Python keeps packages: the environments that are active, those of the interpreters in PATH, the system's.
std::vector<std::string> PackageFolders() {
  std::vector<std::string> folders = Split(Variable("PYTHONPATH"), ':');
  std::vector<std::string> prefixes = {Variable("VIRTUAL_ENV"), Variable("CONDA_PREFIX")};
  for (const std::string& folder : Split(Variable("PATH"), ':')) {
    std::error_code error;
    if (std::filesystem::exists(folder + "/python3", error)) prefixes.push_back(folder + "/..");
  }
  prefixes.insert(prefixes.end(), {"/usr/local", "/usr", Variable("HOME") + "/.local"});
  for (const std::string& prefix : prefixes) {
    if (prefix.empty()) continue;
    folders.push_back(prefix + "/lib/python3*/site-packages");
    folders.push_back(prefix + "/lib/python3*/dist-packages");
  }
  return folders;
}

// NCCLs that come with Python packages; looked for in a bounded child, since folders may be on a dead network mount.
std::vector<std::string> WheelFiles(const Context& context, Section* section) {
  const BoundedAnswer answer = AskBounded(context.limit, [] {
    std::vector<std::string> files;
    for (const std::string& folder : PackageFolders()) {
      for (const char* file :
           {"/nvidia/nccl/lib/libnccl.so.2", "/nvidia/cu*/lib/libnccl.so.2", "/torch/lib/libnccl.so.2"}) {
        AddMatches(folder + file, &files);
      }
    }
    Json unique = Json::array();
    for (const std::string& file : files) {
      std::error_code error;
      const std::string canonical = std::filesystem::canonical(file, error).string();
      if (!error && std::ranges::find(unique, Json(canonical)) == unique.end()) unique.push_back(canonical);
    }
    return unique;
  });
  if (answer.ok) return answer.value.get<std::vector<std::string>>();
  section->Warn("wheels", "looking for Python's packages " + answer.problem, "repeat it with a larger --timeout");
  return {};
}

std::string InUse(const Context& context, int nccl_version) {
  Context of_this = context;
  of_this.nccl_versions = {nccl_version};
  const int in_use = NetVersionInUse(of_this);
  const int most = HighestNetVersion(nccl_version);
  if (in_use == most) return fmt::format("takes ncclNet v{}", in_use);
  return fmt::format("takes ncclNet v{} at most, this library exports up to v{}: v{} is in use", most,
                     context.net_versions.back(), in_use);
}

// What is peculiar to ranges of versions (docs/using.md, Loading the plugin).
void CheckQuirks(const Context& context, int version, Section* section) {
  const std::string text = "NCCL " + NcclVersionText(version);
  const std::string plugin = Variable("NCCL_NET_PLUGIN");
  if (version >= 21800 && version < 22100 && plugin.find('/') != std::string::npos) {
    section->Fail("NCCL_NET_PLUGIN", text + " takes only a name, not a path",
                  "NCCL_NET_PLUGIN=forgive, and the library's folder in LD_LIBRARY_PATH");
  }
  if (version < 22700 && plugin.find(',') != std::string::npos) {
    section->Fail("NCCL_NET_PLUGIN", text + " takes one plugin, not a list", "name this library alone");
  }
  if (version >= 22100 && version < 22400 && Variable("FORGIVE_ABORT_ON_ERROR") != "1") {
    section->Warn("errors", text + " does not surface a plugin's error: the job would hang",
                  "FORGIVE_ABORT_ON_ERROR=1");
  }
  // They look for that name on the loader's path once the plugin was unloaded.
  if (version >= 22800 && version < 23000 && Variable("NCCL_NET_PLUGIN_REF_COUNT") != "1" &&
      !IsSameFile(InspectLibrary("libnccl-net.so", context.limit).file, context.library)) {
    section->Warn("reload",
                  text +
                      " forgets the plugin's name after its last communicator, and the loader does not find this "
                      "library as libnccl-net.so",
                  "export NCCL_NET_PLUGIN_REF_COUNT=1, or put the library's folder into LD_LIBRARY_PATH");
  }
}

void Report(const std::string& name, const Found& found, Context* context, Section* section) {
  if (!found.problem.empty()) {
    section->Warn(name, found.problem, "reinstall this NCCL, or take it out of the search path");
    return;
  }
  const std::string text = fmt::format("NCCL {} in {}", NcclVersionText(found.version), found.file);
  if (HighestNetVersion(found.version) == 0) {
    section->Fail(name, text + ": too old for any interface of this library", "use NCCL 2.13 or later");
    return;
  }
  context->nccl_versions.push_back(found.version);
  section->Ok(name, text + (context->net_versions.empty() ? "" : "; " + InUse(*context, found.version)));
}

}  // namespace

Section CheckNccl(Context* context) {
  Section section{"NCCL", {}};
  const Found by_loader = AskVersion(kLoaderName, context->limit);
  const bool none_there = !by_loader.problem.empty() && by_loader.file.empty() &&
                          by_loader.problem.find("No such file") != std::string::npos;
  if (none_there) {
    section.Info("loader path", "no libnccl.so.2");
  } else {
    Report("loader path", by_loader, context, &section);
  }
  std::vector<std::string> wheels = WheelFiles(*context, &section);
  wheels.resize(std::min(wheels.size(), kMostWheels));
  for (const std::string& wheel : wheels) {
    if (wheel != by_loader.file) Report("Python", AskVersion(wheel, context->limit), context, &section);
  }
  if (none_there && wheels.empty()) {
    section.Warn("NCCL", "none found: which interface version it takes is not known",
                 "run this in the job's own environment (its container, its virtual environment)");
  }
  std::vector<int> distinct = context->nccl_versions;
  std::ranges::sort(distinct);
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  if (distinct.size() > 1) {
    section.Warn("versions",
                 "several versions: a program takes the one it was linked to, and all ranks need the same",
                 "NCCL_DEBUG=VERSION shows the one in use");
  }
  for (const int version : distinct) CheckQuirks(*context, version, &section);
  return section;
}

}  // namespace forgive::doctor
