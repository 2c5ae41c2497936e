// SPDX-License-Identifier: Apache-2.0
// The doctor's report: for a person from top to bottom, or as JSON.
#ifndef FORGIVE_TESTBED_DOCTOR_REPORT_H_
#define FORGIVE_TESTBED_DOCTOR_REPORT_H_

#include <string>
#include <vector>

#include "testbed/doctor/finding.h"

namespace forgive::doctor {

inline constexpr int kExitWorks = 0;     // warnings or none
inline constexpr int kExitWarnings = 1;  // only with --strict
inline constexpr int kExitCannotWork = 2;
inline constexpr int kExitUsage = 3;  // bad input: nothing was examined

int CountOf(const std::vector<Section>& sections, Status status);
int ExitStatus(const std::vector<Section>& sections, bool strict);

// "for a person": a heading a section, a line a finding, the way out below it, the verdict at the end.
std::string Text(const std::vector<Section>& sections);
// {"verdict", "exit_status", "warnings", "failures", "host", "kernel", "library", "net_versions", "nccl_versions",
// "devices", "device_facts": as the library's statistics have them, "findings": [{"section", "name", "status",
// "text", "remedy"}]}
std::string JsonText(const Context& context, const std::vector<Section>& sections, bool strict);

}  // namespace forgive::doctor

#endif  // FORGIVE_TESTBED_DOCTOR_REPORT_H_
