// SPDX-License-Identifier: Apache-2.0
// The kernel UDP driver: sockets read by recvmmsg and written by sendmmsg.
#include "dataplane/udp_driver.h"

#include <sys/socket.h>

#include "dataplane/batch_lane.h"
#include "dataplane/message_sender.h"
#include "dataplane/socket_driver.h"
#include "dataplane/udp_socket.h"

namespace forgive {
namespace {

class BatchSender final : public MessageSender {
 public:
  int Send(int fd, std::span<mmsghdr> messages) override {
    return sendmmsg(fd, messages.data(), static_cast<unsigned>(messages.size()), MSG_DONTWAIT);
  }
};

}  // namespace

std::unique_ptr<Driver> OpenUdpDriver(const UdpDriverOptions& options, std::string* error) {
  std::vector<UdpSockets> rails;
  if (!OpenRails(options, &rails, error)) return nullptr;
  SocketCalls calls;
  calls.name = "udp";
  for (const UdpSockets& sockets : rails) {
    SocketCalls::RailLanes& lanes = calls.lanes.emplace_back();
    lanes.udp = std::make_unique<BatchLane>(sockets.udp.get(), UdpLaneOptions(options, sockets));
    if (!sockets.raw.valid()) continue;
    lanes.raw = std::make_unique<BatchLane>(sockets.raw.get(), RawLaneOptions(options, sockets));
  }
  calls.sender = std::make_unique<BatchSender>();
  return MakeSocketDriver(options, std::move(rails), std::move(calls));
}

}  // namespace forgive
