// SPDX-License-Identifier: Apache-2.0
// The doctor's report: for a person from top to bottom, or as JSON.
#include "testbed/doctor/report.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>

#include "testbed/doctor/host.h"

namespace forgive::doctor {
namespace {

constexpr size_t kLineColumns = 118;
constexpr size_t kIndentColumns = 9;

const char* NameOf(Status status) {
  switch (status) {
    case Status::kOk:
      return "ok";
    case Status::kInfo:
      return "info";
    case Status::kWarn:
      return "warn";
    case Status::kFail:
      break;
  }
  return "fail";
}

// Breaks between words; every line after the first begins under the text.
std::string Wrapped(const std::string& text) {
  std::string wrapped;
  size_t column = kIndentColumns;
  for (const std::string& word : Split(text, ' ')) {
    const bool first = wrapped.empty();
    if (!first && column + 1 + word.size() > kLineColumns) {
      wrapped += "\n" + std::string(kIndentColumns + 2, ' ');
      column = kIndentColumns + 2;
    } else if (!first) {
      wrapped += ' ';
      ++column;
    }
    wrapped += word;
    column += word.size();
  }
  return wrapped;
}

std::string Plural(int count, const char* word) { return fmt::format("{} {}{}", count, word, count == 1 ? "" : "s"); }

utsname Host() {
  utsname host{};
  uname(&host);
  return host;
}

std::string Verdict(const std::vector<Section>& sections) {
  const int failures = CountOf(sections, Status::kFail);
  const int warnings = CountOf(sections, Status::kWarn);
  if (failures > 0) {
    return fmt::format("It cannot work here as things stand: {}, {}.", Plural(failures, "failure"),
                       Plural(warnings, "warning"));
  }
  if (warnings > 0) return fmt::format("It works here, with {}.", Plural(warnings, "warning"));
  return "It works here.";
}

}  // namespace

int CountOf(const std::vector<Section>& sections, Status status) {
  int count = 0;
  for (const Section& section : sections) {
    count += static_cast<int>(
        std::ranges::count_if(section.findings, [status](const Finding& f) { return f.status == status; }));
  }
  return count;
}

int ExitStatus(const std::vector<Section>& sections, bool strict) {
  if (CountOf(sections, Status::kFail) > 0) return kExitCannotWork;
  return strict && CountOf(sections, Status::kWarn) > 0 ? kExitWarnings : kExitWorks;
}

std::string Text(const std::vector<Section>& sections) {
  const utsname host = Host();
  std::string text = fmt::format("What FORGIVE would do on {} ({} {})\n", host.nodename, host.sysname, host.release);
  for (const Section& section : sections) {
    text += fmt::format("\n{}\n", section.title);
    for (const Finding& finding : section.findings) {
      text += fmt::format("  {:<6} {}\n", fmt::format("[{}]", NameOf(finding.status)),
                          Wrapped(finding.name + ": " + finding.text));
      if (!finding.remedy.empty()) text += fmt::format("         {}\n", Wrapped("-> " + finding.remedy));
    }
  }
  return text + "\n" + Verdict(sections) + "\n";
}

std::string JsonText(const Context& context, const std::vector<Section>& sections, bool strict) {
  const utsname host = Host();
  Json json;
  json["verdict"] = Verdict(sections);
  json["exit_status"] = ExitStatus(sections, strict);
  json["failures"] = CountOf(sections, Status::kFail);
  json["warnings"] = CountOf(sections, Status::kWarn);
  json["host"] = host.nodename;
  json["kernel"] = fmt::format("{} {}", host.sysname, host.release);
  json["library"] = context.library.empty() ? Json(nullptr) : Json(context.library);
  json["net_versions"] = context.net_versions;
  json["nccl_versions"] = context.nccl_versions;
  json["devices"] = context.devices;
  json["device_facts"] = context.in_force.value("devices", Json::array());
  json["findings"] = Json::array();
  for (const Section& section : sections) {
    for (const Finding& finding : section.findings) {
      json["findings"].push_back({{"section", section.title},
                                  {"name", finding.name},
                                  {"status", NameOf(finding.status)},
                                  {"text", finding.text},
                                  {"remedy", finding.remedy.empty() ? Json(nullptr) : Json(finding.remedy)}});
    }
  }
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace forgive::doctor
