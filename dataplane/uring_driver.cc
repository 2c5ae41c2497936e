// SPDX-License-Identifier: Apache-2.0
// The io_uring driver: udp's sockets, received by one multishot request each and sent in linked batches.
#include "dataplane/uring_driver.h"

#include "dataplane/io_ring.h"

#ifdef FORGIVE_HAVE_URING

#include <array>
#include <cerrno>

#include "dataplane/send_lane.h"
#include "dataplane/socket_driver.h"
#include "dataplane/udp_socket.h"
#include "dataplane/uring_lane.h"

namespace forgive {
namespace {

// Linked requests: each begins when the one before it has succeeded, so what was sent is always a prefix.
class UringSender final : public MessageSender {
 public:
  bool Open(std::string* error) { return ring_.Open(kSendBatch, kSendBatch * 2, error); }

  int Send(int fd, std::span<mmsghdr> messages) override {
    for (size_t i = 0; i < messages.size(); ++i) {
      io_uring_sqe* entry = ring_.NextSubmission();
      entry->opcode = IORING_OP_SENDMSG;
      entry->fd = fd;
      entry->addr = reinterpret_cast<uint64_t>(&messages[i].msg_hdr);
      entry->len = 1;
      entry->msg_flags = MSG_DONTWAIT;
      entry->user_data = i;
      if (i + 1 < messages.size()) entry->flags = IOSQE_IO_LINK;
    }
    // Nothing waits for room, so all of it ends within these calls.
    size_t in_flight = messages.size();
    results_.fill(-EAGAIN);
    while (in_flight != 0) {
      (void)ring_.Enter(static_cast<uint32_t>(in_flight));
      // For want of memory the kernel may take only some of them: the rest is "try again".
      in_flight -= ring_.DropSubmissions();
      IoRing::Completion completion;
      while (ring_.Pop(&completion)) {
        results_[completion.user_data] = completion.result;
        --in_flight;
      }
    }
    int sent = 0;
    while (static_cast<size_t>(sent) < messages.size() && results_[static_cast<size_t>(sent)] >= 0) ++sent;
    if (sent == 0) errno = -results_[0];
    return sent == 0 ? -1 : sent;
  }

 private:
  IoRing ring_;
  std::array<int32_t, kSendBatch> results_{};
};

}  // namespace

bool UringOffered(std::string* why) { return ProbeIoRing(why); }

std::unique_ptr<Driver> OpenUringDriver(const UdpDriverOptions& options, std::string* error) {
  if (!UringOffered(error)) return nullptr;
  std::vector<UdpSockets> rails;
  if (!OpenRails(options, &rails, error)) return nullptr;
  SocketCalls calls;
  calls.name = "uring";
  for (const UdpSockets& sockets : rails) {
    SocketCalls::RailLanes& lanes = calls.lanes.emplace_back();
    lanes.udp = UringLane::Open(sockets.udp.get(), UdpLaneOptions(options, sockets), error);
    if (lanes.udp == nullptr) return nullptr;
    if (!sockets.raw.valid()) continue;
    lanes.raw = UringLane::Open(sockets.raw.get(), RawLaneOptions(options, sockets), error);
    if (lanes.raw == nullptr) return nullptr;
  }
  auto sender = std::make_unique<UringSender>();
  if (!sender->Open(error)) return nullptr;
  calls.sender = std::move(sender);
  return MakeSocketDriver(options, std::move(rails), std::move(calls));
}

}  // namespace forgive

#else

namespace forgive {

bool UringOffered(std::string* why) {
  *why =
      "driver uring is not in this build: use FORGIVE_DRIVER=udp, or install the headers of Linux 6.1 or later "
      "(linux-libc-dev) and build with FORGIVE_URING=ON";
  return false;
}

std::unique_ptr<Driver> OpenUringDriver(const UdpDriverOptions&, std::string* error) {
  (void)UringOffered(error);
  return nullptr;
}

}  // namespace forgive

#endif
