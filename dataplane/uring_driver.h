// SPDX-License-Identifier: Apache-2.0
// The io_uring driver: udp's sockets, received by one multishot request each and sent in linked batches.
#ifndef FORGIVE_DATAPLANE_URING_DRIVER_H_
#define FORGIVE_DATAPLANE_URING_DRIVER_H_

#include <memory>
#include <string>

#include "dataplane/udp_driver.h"

namespace forgive {

// As OpenUdpDriver. The driver belongs to the thread that first calls ReceiveBurst or SendBurst; any thread may open
// it, and destroy it unused. nullptr where the build, the kernel or its settings do not have io_uring: *error says
// which.
std::unique_ptr<Driver> OpenUringDriver(const UdpDriverOptions& options, std::string* error);

// Whether OpenUringDriver can work in this build, on this kernel, in this process. False: *why says in one line.
bool UringOffered(std::string* why);

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_URING_DRIVER_H_
