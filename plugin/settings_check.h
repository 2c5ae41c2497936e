// SPDX-License-Identifier: Apache-2.0
// What is settled about the settings once every variable was read by itself.
#ifndef FORGIVE_PLUGIN_SETTINGS_CHECK_H_
#define FORGIVE_PLUGIN_SETTINGS_CHECK_H_

#include <string>
#include <vector>

#include "plugin/settings.h"

namespace forgive {

// Where launchers say the rank; the first that is set counts.
inline constexpr const char* kRankVariables[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                                 "SLURM_PROCID"};

// nullptr: not set.
const std::string* FindVariableIn(const Environment& environment, const char* name);

// FORGIVE_STATS's %h, %p, %r and %%. False: *error is one line.
bool ExpandFileName(const Environment& environment, std::string* name, std::string* error);

// False: two variables exclude each other, or one needs another; *error names them in one line.
bool CheckTogether(const Settings& settings, std::vector<std::string>* warnings, std::string* error);

}  // namespace forgive

#endif  // FORGIVE_PLUGIN_SETTINGS_CHECK_H_
