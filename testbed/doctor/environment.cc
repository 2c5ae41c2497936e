// SPDX-License-Identifier: Apache-2.0
// Whether NCCL, with this environment, would load this library and no other, and what else stands in its way.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "testbed/doctor/ask_library.h"
#include "testbed/doctor/bounded.h"
#include "testbed/doctor/checks.h"
#include "testbed/doctor/host.h"

namespace forgive::doctor {
namespace {

constexpr const char* kPluginName = "forgive";

std::string ExportPlugin(const Context& context) {
  return fmt::format("export NCCL_NET_PLUGIN={}",
                     context.library.empty() ? "/path/to/libnccl-net-forgive.so" : context.library);
}

void CheckPlugin(const Context& context, Section* section) {
  const std::string value = Variable("NCCL_NET_PLUGIN");
  if (value.empty()) {
    section->Warn("NCCL_NET_PLUGIN", "not set: NCCL would not load this library", ExportPlugin(context));
    return;
  }
  for (const std::string& entry : Split(value, ',')) {
    const LibraryFacts facts = InspectPluginEntry(entry, context.limit);
    if (facts.loads && IsSameFile(facts.file, context.library)) {
      section->Ok("NCCL_NET_PLUGIN", value + " is this library");
      return;
    }
    if (facts.is_forgive) {
      section->Warn("NCCL_NET_PLUGIN",
                    fmt::format("{} is {}, another build of FORGIVE than the one examined", entry, facts.file),
                    "leave out --library to examine what NCCL would load");
      return;
    }
    if (facts.loads && !facts.net.empty()) {
      section->Fail("NCCL_NET_PLUGIN", fmt::format("{} is another plugin ({}, {})", entry, facts.name, facts.file),
                    ExportPlugin(context));
      return;
    }
  }
  section->Fail("NCCL_NET_PLUGIN",
                fmt::format("{} names no plugin that loads: {}", value,
                            InspectPluginEntry(Split(value + ",", ',').front(), context.limit).problem),
                ExportPlugin(context));
}

void CheckNetName(Section* section) {
  const std::string value = Variable("NCCL_NET");
  if (ToLower(value) == kPluginName) {
    section->Ok("NCCL_NET", value + ": a library that does not start is an error");
  } else if (value.empty()) {
    section->Warn("NCCL_NET", "not set: if the library does not start, NCCL uses its own transport and says little",
                  "export NCCL_NET=forgive");
  } else {
    section->Fail("NCCL_NET", fmt::format("{}: NCCL would use that network and not this library", value),
                  "export NCCL_NET=forgive");
  }
}

// A libnccl-net.so on the loader's path is what NCCL loads without being asked.
void CheckOthers(const Context& context, Section* section) {
  const LibraryFacts other = InspectLibrary("libnccl-net.so", context.limit);
  const bool named = !Variable("NCCL_NET_PLUGIN").empty();
  if (!other.loads) {
    if (other.problem.find("No such file") == std::string::npos) {
      section->Warn("libnccl-net.so", other.problem, "take it out of LD_LIBRARY_PATH");
    }
    return;
  }
  if (IsSameFile(other.file, context.library)) {
    section->Ok("libnccl-net.so", other.file + " is this library");
  } else if (named) {
    section->Info("libnccl-net.so", fmt::format("another plugin ({}) lies on the loader's path in {}; "
                                                "NCCL_NET_PLUGIN goes before it",
                                                other.name, other.file));
  } else {
    section->Warn("libnccl-net.so", fmt::format("another plugin ({}) would be loaded: {}", other.name, other.file),
                  ExportPlugin(context));
  }
}

void CheckOtherPlugins(const Context& context, Section* section) {
  if (const std::string tuner = Variable("NCCL_TUNER_PLUGIN"); !tuner.empty()) {
    section->Info("NCCL_TUNER_PLUGIN",
                  fmt::format("{}: a tuner other than this library's chooses the algorithms", tuner));
  }
  const std::string profiler = Variable("NCCL_PROFILER_PLUGIN");
  if (profiler.empty()) return;
  const LibraryFacts facts = InspectLibrary(profiler, context.limit);
  if (!IsSameFile(facts.file, context.library)) {
    section->Info("NCCL_PROFILER_PLUGIN", fmt::format("{}: only one profiler can be loaded, and it is not this "
                                                      "library",
                                                      profiler));
  }
}

// Under the operator's word NCCL must be held to Ring and Simple (docs/using.md, The operator's word).
void CheckWord(Section* section) {
  if (Variable("FORGIVE_GRADIENT_TRAFFIC") != "all" || Variable("FORGIVE_ELIGIBLE") == "none") return;
  const auto is = [](const char* name, const char* wanted) { return ToLower(Variable(name)) == wanted; };
  if (is("NCCL_ALGO", "ring") && is("NCCL_PROTO", "simple")) {
    section->Ok("algorithm", "NCCL_ALGO and NCCL_PROTO hold NCCL to Ring and Simple");
  } else {
    section->Warn("algorithm",
                  "FORGIVE_GRADIENT_TRAFFIC=all without NCCL_ALGO=Ring and NCCL_PROTO=Simple: where NCCL "
                  "chooses others, a connection becomes reliable for good",
                  "export NCCL_ALGO=Ring NCCL_PROTO=Simple");
  }
}

void CheckStatisticsFile(Section* section) {
  const std::string name = Variable("FORGIVE_STATS");
  if (name.empty()) return;
  const std::filesystem::path folder = std::filesystem::path(name).parent_path();
  const std::string where = folder.empty() ? "." : folder.string();
  if (where.find('%') == std::string::npos && access(where.c_str(), W_OK) != 0) {
    section->Warn("FORGIVE_STATS", fmt::format("{}: cannot write into {}; there will be no statistics", name, where),
                  "make the folder, or name another");
  }
  if (name.find("%p") == std::string::npos && name.find("%r") == std::string::npos) {
    section->Warn("FORGIVE_STATS", name + ": all ranks of a host write the same file", "put %p or %r into its name");
  }
}

// NCCL sets what its configuration files say and the environment does not.
std::vector<std::pair<std::string, std::string>> ReadConfigurationFile(const std::string& file) {
  std::vector<std::pair<std::string, std::string>> found;
  std::ifstream stream(file);
  std::string line;
  while (std::getline(stream, line)) {
    const size_t equals = line.find('=');
    if (line.starts_with("#") || equals == std::string::npos || equals == 0) continue;
    found.emplace_back(line.substr(0, equals), line.substr(equals + 1));
  }
  return found;
}

}  // namespace

Section ReadNcclFiles(const Context& context) {
  Section section{"NCCL's configuration files", {}};
  const std::string own = Variable("NCCL_CONF_FILE");
  for (const std::string& file :
       {own.empty() ? Variable("HOME") + "/.nccl.conf" : own, std::string("/etc/nccl.conf")}) {
    const BoundedAnswer answer = AskBounded(context.limit, [&] {
      Json list = Json::array();
      for (const auto& [name, value] : ReadConfigurationFile(file)) list.push_back({name, value});
      return list;
    });
    if (!answer.ok) {
      section.Warn(file, "reading it " + answer.problem, "NCCL reads it too: make it readable or remove it");
      continue;
    }
    for (const Json& row : answer.value) {
      const std::string name = row[0].get<std::string>();
      const bool set = std::getenv(name.c_str()) == nullptr;
      if (set) setenv(name.c_str(), row[1].get<std::string>().c_str(), 0);
      section.Info(name, fmt::format("{} says {}{}", file, row[1].get<std::string>(),
                                     set ? "" : "; the environment says otherwise and counts"));
    }
  }
  return section;
}

Section CheckEnvironment(const Context& context) {
  Section section{"Environment", {}};
  CheckPlugin(context, &section);
  CheckNetName(&section);
  CheckOthers(context, &section);
  CheckOtherPlugins(context, &section);
  CheckWord(&section);
  CheckBounded(context, "FORGIVE_STATS", Status::kWarn, &section, CheckStatisticsFile);
  return section;
}

}  // namespace forgive::doctor
