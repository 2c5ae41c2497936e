// SPDX-License-Identifier: Apache-2.0
// DPDK's environment inside a process that knows nothing of it: started once, quietly, and never ended.
#ifndef FORGIVE_DATAPLANE_DPDK_EAL_H_
#define FORGIVE_DATAPLANE_DPDK_EAL_H_

#include <string>

#include "dataplane/dpdk_module.h"

namespace forgive {

// Starts EAL at the first call of the process; later calls say only whether it runs, with the first call's memory.
// Signal handlers, the affinity of the caller and standard output stay as they are. False: *error says in one line
// what is wrong and what to do.
bool StartEal(const DpdkDriverOptions& options, std::string* error);

// The memory that DPDK runs on: "hugepages" or "no hugepages".
std::string EalMemory();

// Whatever DPDK logged as an error since the last call, as one line; " (...)" or empty.
std::string TakeEalComplaints();

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_DPDK_EAL_H_
