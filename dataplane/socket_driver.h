// SPDX-License-Identifier: Apache-2.0
// The driver over kernel UDP sockets, whatever the system calls by which they are read and written.
#ifndef FORGIVE_DATAPLANE_SOCKET_DRIVER_H_
#define FORGIVE_DATAPLANE_SOCKET_DRIVER_H_

#include <memory>
#include <string>
#include <vector>

#include "dataplane/message_sender.h"
#include "dataplane/receive_lane.h"
#include "dataplane/udp_socket.h"

namespace forgive {

// What differs between udp and uring.
struct SocketCalls {
  struct RailLanes {
    std::unique_ptr<ReceiveLane> udp;
    std::unique_ptr<ReceiveLane> raw;  // nullptr: no raw path
  };

  std::string name;
  std::vector<RailLanes> lanes;
  std::unique_ptr<MessageSender> sender;
};

// How the lanes of these sockets are to be read.
LaneOptions UdpLaneOptions(const UdpDriverOptions& options, const UdpSockets& sockets);
LaneOptions RawLaneOptions(const UdpDriverOptions& options, const UdpSockets& sockets);

// `calls` read and write the descriptors of `rails`.
std::unique_ptr<Driver> MakeSocketDriver(const UdpDriverOptions& options, std::vector<UdpSockets> rails,
                                         SocketCalls calls);

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_SOCKET_DRIVER_H_
