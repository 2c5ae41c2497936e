// SPDX-License-Identifier: Apache-2.0
// What the doctor finds: one line a fact, each with its verdict and, where something is wrong, the way out.
#ifndef FORGIVE_TESTBED_DOCTOR_FINDING_H_
#define FORGIVE_TESTBED_DOCTOR_FINDING_H_

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace forgive::doctor {

using Json = nlohmann::ordered_json;

enum class Status {
  kOk,    // as it should be
  kInfo,  // neither good nor bad
  kWarn,  // works, but worse or otherwise than it might be meant
  kFail,  // cannot work as things stand
};

struct Finding {
  Status status = Status::kOk;
  std::string name;
  std::string text;
  std::string remedy;  // what to do; empty: nothing
};

struct Section {
  std::string title;
  std::vector<Finding> findings;

  void Ok(const std::string& name, const std::string& text) { findings.push_back({Status::kOk, name, text, ""}); }
  void Info(const std::string& name, const std::string& text) { findings.push_back({Status::kInfo, name, text, ""}); }
  void Warn(const std::string& name, const std::string& text, const std::string& remedy) {
    findings.push_back({Status::kWarn, name, text, remedy});
  }
  void Fail(const std::string& name, const std::string& text, const std::string& remedy) {
    findings.push_back({Status::kFail, name, text, remedy});
  }
};

// What one check needs of the command line and of the checks before it.
struct Context {
  std::string library_option;       // --library; empty: looked for
  std::chrono::milliseconds limit;  // of each question that could hang

  std::string library;            // the file that is examined; empty: none loads
  std::vector<int> net_versions;  // of ncclNet, that the library exports
  std::vector<int> profiler_versions;
  std::vector<int> nccl_versions;    // of every NCCL found, as ncclGetVersion counts; the loader path's first
  std::vector<std::string> devices;  // interfaces that the library chose
  Json in_force = Json::object();    // what its statistics say at the start: drivers, facts of devices
  bool started = false;              // its init succeeded

  // The library's facts of an interface, a device or a rail of one; an empty object: it says none.
  Json FactsOf(const std::string& name) const {
    for (const Json& device : in_force.value("devices", Json::array())) {
      if (device.value("interface", "") == name) return device;
      for (const Json& rail : device.value("rails", Json::array())) {
        if (rail.value("interface", "") == name) return rail;
      }
    }
    return Json::object();
  }
};

}  // namespace forgive::doctor

#endif  // FORGIVE_TESTBED_DOCTOR_FINDING_H_
