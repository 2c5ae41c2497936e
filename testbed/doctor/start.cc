// SPDX-License-Identifier: Apache-2.0
// What the library's own init says of this host and this environment: settings, devices, what is eligible.
#include <fmt/format.h>

#include <cstdlib>
#include <set>

#include "testbed/doctor/ask_library.h"
#include "testbed/doctor/checks.h"
#include "testbed/doctor/host.h"

namespace forgive::doctor {
namespace {

// More settings than this are not wrong at once.
constexpr int kMostTries = 32;

// The variable that an error line begins with, if the environment has it; else empty.
std::string VariableOf(const std::string& line) {
  const size_t end = line.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
  const std::string name = line.substr(0, end);
  const bool ours = name.starts_with("FORGIVE_") || name.starts_with("NCCL_");
  return ours && std::getenv(name.c_str()) != nullptr ? name : "";
}

// A device of several rails is as many interfaces, which the library's statistics name.
std::vector<std::string> InterfacesOf(const std::vector<std::string>& devices, const Context& context) {
  std::vector<std::string> interfaces;
  for (const std::string& device : devices) {
    const Json rails = context.FactsOf(device).value("rails", Json::array());
    for (const Json& rail : rails) interfaces.push_back(rail.value("interface", ""));
    if (rails.empty()) interfaces.push_back(device);
  }
  return interfaces;
}

// The library's lines: "what is wrong: the way out".
void AddError(const std::string& line, Section* section) {
  const std::string name = VariableOf(line);
  section->Fail(name.empty() ? "init" : name, name.empty() ? line : line.substr(name.size() + 1),
                name.empty() ? "see docs/troubleshooting.md" : "correct it, or unset " + name);
}

std::string ErrorLine(const InitFacts& facts) {
  for (auto line = facts.lines.rbegin(); line != facts.lines.rend(); ++line) {
    if (line->warning) return line->text;
  }
  return fmt::format("init returned {} and said nothing", facts.result);
}

}  // namespace

Section CheckStart(Context* context) {
  Section section{"Start", {}};
  const int version = NetVersionInUse(*context);
  if (context->library.empty() || version == 0) {
    section.Info("init", "not asked: there is no library with a usable interface");
    return section;
  }
  // The library stops at the first wrong setting: take it away and ask again, to name them all.
  std::vector<std::pair<std::string, std::string>> changes;
  InitFacts facts;
  std::set<std::string> said;
  for (int attempt = 0; attempt < kMostTries; ++attempt) {
    facts = AskInit(context->library, version, context->limit, changes);
    if (!facts.answered) {
      section.Fail("init", "the library's init " + facts.problem,
                   "report this with the environment's FORGIVE_ lines");
      return section;
    }
    if (facts.result == 0) break;
    const std::string error = ErrorLine(facts);
    AddError(error, &section);
    const std::string name = VariableOf(error);
    if (name.empty() || !said.insert(name).second) return section;
    changes.emplace_back(name, "");
  }
  for (const InitLine& line : facts.lines) {
    if (line.text.starts_with("device ")) continue;  // said with the interface
    if (line.warning) {
      section.Warn("init", line.text, "see docs/using.md, All variables");
    } else {
      section.Ok("init", line.text);
    }
  }
  context->in_force = AskInForce(context->library, version, context->limit, changes);
  context->devices = InterfacesOf(facts.devices, *context);
  context->started = changes.empty();
  if (!context->started) section.Info("init", "without the settings above it starts; what follows is without them");
  return section;
}

}  // namespace forgive::doctor
