// SPDX-License-Identifier: Apache-2.0
// The driver over kernel UDP sockets: a lane of whole packets, a raw lane of cut ones, and a lane that sends.
#include "dataplane/socket_driver.h"

#include <algorithm>
#include <array>

#include "dataplane/send_lane.h"
#include "dataplane/socket_address.h"

namespace forgive {
namespace {

constexpr uint32_t kUdpHeaderBytes = 8;
constexpr uint32_t kIpv4HeaderBytes = 20;
constexpr uint32_t kIpv6HeaderBytes = 40;
constexpr uint32_t kMaxDatagramBytes = kDataHeaderBytes + kMaxPayloadBytes;

constexpr uint32_t kCoalescedBatch = 16;
constexpr uint32_t kCoalescedBytes = 65535;
constexpr uint32_t kPlainBatch = 64;
constexpr uint32_t kRawBatch = 32;
// How often the raw socket is asked while the UDP socket always has a full burst.
constexpr uint32_t kRawTurn = 4;

class SocketDriver final : public Driver {
 public:
  SocketDriver(const UdpDriverOptions& options, UdpSockets sockets, SocketCalls calls)
      : receive_buffer_wanted_(options.receive_buffer_bytes),
        sockets_(std::move(sockets)),
        name_(std::move(calls.name)),
        udp_lane_(std::move(calls.udp_lane)),
        raw_lane_(std::move(calls.raw_lane)),
        send_lane_(options, &sockets_, std::move(calls.sender)) {
    const uint32_t headers = (sockets_.ipv6 ? kIpv6HeaderBytes : kIpv4HeaderBytes) + kUdpHeaderBytes;
    const uint32_t by_mtu = sockets_.mtu_bytes > headers ? sockets_.mtu_bytes - headers : 0;
    max_datagram_bytes_ = std::min(by_mtu, kMaxDatagramBytes + options.extra_bytes);
    poll_fds_ = {sockets_.udp.get(), sockets_.raw.get()};
  }

  size_t ReceiveBurst(std::span<Datagram> out) override {
    size_t count = 0;
    const bool raw_first = raw_lane_ && ++receive_calls_ % kRawTurn == 0;
    if (raw_first) count = raw_lane_->Receive(out);
    count += udp_lane_->Receive(out.subspan(count));
    if (raw_lane_ && !raw_first && count < out.size()) count += raw_lane_->Receive(out.subspan(count));
    return count;
  }
  bool receive_drained() const override { return udp_lane_->drained() && (!raw_lane_ || raw_lane_->drained()); }
  size_t SendBurst(std::span<const Transmit> packets) override { return send_lane_.SendBurst(packets); }

  Address local_address() const override { return sockets_.local; }
  uint32_t max_datagram_bytes() const override { return max_datagram_bytes_; }
  std::span<const int> poll_fds() const override { return std::span(poll_fds_).first(raw_lane_ ? 2 : 1); }
  int blocked_fd() const override { return send_lane_.blocked_fd(); }
  DriverCounters counters() const override;
  std::string description() const override;

 private:
  uint64_t receive_buffer_wanted_;
  UdpSockets sockets_;
  std::string name_;
  uint32_t max_datagram_bytes_ = 0;
  std::array<int, 2> poll_fds_{-1, -1};
  std::unique_ptr<ReceiveLane> udp_lane_;
  std::unique_ptr<ReceiveLane> raw_lane_;
  SendLane send_lane_;
  uint32_t receive_calls_ = 0;
};

DriverCounters SocketDriver::counters() const {
  DriverCounters counters;
  counters.send_errors = send_lane_.send_errors();
  counters.truncated = udp_lane_->splitter().truncated();
  counters.socket_drops = udp_lane_->splitter().kernel_drops();
  if (raw_lane_) {
    const DatagramSplitter& raw = raw_lane_->splitter();
    // What the UDP socket's filter leaves to the raw path is counted by the kernel as dropped.
    counters.socket_drops -= std::min(counters.socket_drops, raw.seen_by_udp());
    counters.socket_drops += raw.kernel_drops();
    counters.truncated += raw.truncated();
    counters.raw_packets = raw.raw_packets();
  }
  return counters;
}

std::string SocketDriver::description() const {
  std::string text = name_ + " " + AddressText(sockets_.local) + " on " + sockets_.interface + ", MTU " +
                     std::to_string(sockets_.mtu_bytes) + ", receive buffer " +
                     std::to_string(sockets_.receive_buffer_bytes / 1024) + " KiB";
  if (sockets_.receive_buffer_bytes < receive_buffer_wanted_) {
    text += " of " + std::to_string(receive_buffer_wanted_ / 1024) +
            " KiB wanted (raise net.core.rmem_max or give CAP_NET_ADMIN)";
  }
  if (sockets_.leave_by != 0) text += ", leaving by it (other interfaces share its subnet)";
  if (!sockets_.more_ports.empty()) {
    text += ", " + std::to_string(sockets_.more_ports.size() + 1) + " paths (also from ports";
    for (const uint16_t port : sockets_.more_ports) text += " " + std::to_string(port);
    text += ")";
  }
  text += send_lane_.segmentation() ? ", UDP_SEGMENT" : ", no UDP_SEGMENT";
  text += sockets_.coalescing ? ", UDP_GRO" : ", no UDP_GRO";
  if (sockets_.raw.valid()) {
    text += ", raw path for cut packets";
  } else if (sockets_.raw_denied) {
    text += ", no CAP_NET_RAW: only trims whose lengths and checksum the switch repaired are seen";
  }
  return text + udp_lane_->note();
}

}  // namespace

LaneOptions UdpLaneOptions(const UdpDriverOptions& options, const UdpSockets& sockets) {
  LaneOptions lane;
  lane.require_trimmed_dscp = options.require_trimmed_dscp;
  lane.dscp_trimmed = options.dscp_trimmed;
  lane.batch = sockets.coalescing ? kCoalescedBatch : kPlainBatch;
  lane.message_bytes = sockets.coalescing ? kCoalescedBytes : kMaxDatagramBytes + options.extra_bytes;
  return lane;
}

LaneOptions RawLaneOptions(const UdpDriverOptions& options, const UdpSockets& sockets) {
  LaneOptions lane = UdpLaneOptions(options, sockets);
  lane.kind = sockets.ipv6 ? LaneKind::kRawIpv6 : LaneKind::kRawIpv4;
  lane.batch = kRawBatch;
  lane.message_bytes = kMaxDatagramBytes + kIpv6HeaderBytes + 128;
  return lane;
}

std::unique_ptr<Driver> MakeSocketDriver(const UdpDriverOptions& options, UdpSockets sockets, SocketCalls calls) {
  return std::make_unique<SocketDriver>(options, std::move(sockets), std::move(calls));
}

}  // namespace forgive
