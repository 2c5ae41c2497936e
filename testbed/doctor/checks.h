// SPDX-License-Identifier: Apache-2.0
// The doctor's checks, in the order in which a person reads them; each adds to the context what the later ones need.
#ifndef FORGIVE_TESTBED_DOCTOR_CHECKS_H_
#define FORGIVE_TESTBED_DOCTOR_CHECKS_H_

#include "testbed/doctor/finding.h"

namespace forgive::doctor {

// Which file, whether it loads as NCCL loads it, and what it exports. Sets library and the versions.
Section CheckLibrary(Context* context);
// Which NCCL there is, its version, and the interface version it takes from the library. Sets nccl_versions.
Section CheckNccl(Context* context);
// What NCCL would read from its configuration files; sets it in this process, as NCCL does in its own. The first of
// all.
Section ReadNcclFiles(const Context& context);
// Whether NCCL, with this environment, would load this library and no other.
Section CheckEnvironment(const Context& context);
// What the library's own init says: settings, devices, what is eligible. Sets devices and started.
Section CheckStart(Context* context);
// The interfaces that the library chose.
Section CheckNetwork(const Context& context);
// Each driver, as the library answers when it is asked for it, and what the kernel has for it.
Section CheckDrivers(const Context& context);
// Limits of the kernel and of this process, CPUs and clock.
Section CheckLimits(const Context& context);

}  // namespace forgive::doctor

#endif  // FORGIVE_TESTBED_DOCTOR_CHECKS_H_
