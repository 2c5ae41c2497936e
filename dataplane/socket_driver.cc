// SPDX-License-Identifier: Apache-2.0
// The driver over kernel UDP sockets: a lane of whole packets, a raw lane of cut ones, and a lane that sends.
#include "dataplane/socket_driver.h"

#include <algorithm>

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
  SocketDriver(const UdpDriverOptions& options, std::vector<UdpSockets> rails, SocketCalls calls)
      : receive_buffer_wanted_(options.receive_buffer_bytes),
        rails_(std::move(rails)),
        name_(std::move(calls.name)),
        lanes_(std::move(calls.lanes)),
        send_lane_(options, rails_, std::move(calls.sender)) {
    max_datagram_bytes_ = kMaxDatagramBytes + options.extra_bytes;
    for (const UdpSockets& rail : rails_) {
      const uint32_t headers = (rail.ipv6 ? kIpv6HeaderBytes : kIpv4HeaderBytes) + kUdpHeaderBytes;
      const uint32_t by_mtu = rail.mtu_bytes > headers ? rail.mtu_bytes - headers : 0;
      max_datagram_bytes_ = std::min(max_datagram_bytes_, by_mtu);
      poll_fds_.push_back(rail.udp.get());
      if (rail.raw.valid()) poll_fds_.push_back(rail.raw.get());
    }
  }

  size_t ReceiveBurst(std::span<Datagram> out) override {
    // Each rail is the first one in turn: one that always has a full burst must not keep the others waiting.
    size_t count = 0;
    const size_t first = receive_calls_ % lanes_.size();
    const bool raw_turn = receive_calls_ / lanes_.size() % kRawTurn == kRawTurn - 1;
    ++receive_calls_;
    for (size_t n = 0; n < lanes_.size() && count < out.size(); ++n) {
      const size_t rail = first + n < lanes_.size() ? first + n : first + n - lanes_.size();
      count += ReceiveFrom(lanes_[rail], raw_turn, out.subspan(count));
    }
    return count;
  }
  bool receive_drained() const override {
    return std::ranges::all_of(lanes_, [](const SocketCalls::RailLanes& lanes) {
      return lanes.udp->drained() && (lanes.raw == nullptr || lanes.raw->drained());
    });
  }
  size_t SendBurst(std::span<const Transmit> packets) override { return send_lane_.SendBurst(packets); }

  Address local_address() const override { return rails_[0].local; }
  Address rail_address(uint32_t rail) const override { return rails_[rail].local; }
  uint32_t max_datagram_bytes() const override { return max_datagram_bytes_; }
  std::span<const int> poll_fds() const override { return poll_fds_; }
  int blocked_fd() const override { return send_lane_.blocked_fd(); }
  DriverCounters counters() const override;
  std::string description() const override;

 private:
  static size_t ReceiveFrom(const SocketCalls::RailLanes& lanes, bool raw_first, std::span<Datagram> out);
  std::string RailDescription(size_t rail) const;

  uint64_t receive_buffer_wanted_;
  const std::vector<UdpSockets> rails_;
  std::string name_;
  uint32_t max_datagram_bytes_ = 0;
  std::vector<int> poll_fds_;
  std::vector<SocketCalls::RailLanes> lanes_;  // by rail
  SendLane send_lane_;
  size_t receive_calls_ = 0;
};

size_t SocketDriver::ReceiveFrom(const SocketCalls::RailLanes& lanes, bool raw_first, std::span<Datagram> out) {
  size_t count = 0;
  raw_first = raw_first && lanes.raw != nullptr;
  if (raw_first) count = lanes.raw->Receive(out);
  count += lanes.udp->Receive(out.subspan(count));
  if (lanes.raw != nullptr && !raw_first && count < out.size()) count += lanes.raw->Receive(out.subspan(count));
  return count;
}

DriverCounters SocketDriver::counters() const {
  DriverCounters counters;
  counters.send_errors = send_lane_.send_errors();
  for (size_t rail = 0; rail < lanes_.size(); ++rail) {
    const DatagramSplitter& udp = lanes_[rail].udp->splitter();
    uint64_t drops = udp.kernel_drops();
    counters.truncated += udp.truncated();
    counters.rails[rail] = {send_lane_.sent_bytes(rail), udp.bytes()};
    if (lanes_[rail].raw != nullptr) {
      const DatagramSplitter& raw = lanes_[rail].raw->splitter();
      // What the UDP socket's filter leaves to the raw path is counted by the kernel as dropped.
      drops -= std::min(drops, raw.seen_by_udp());
      drops += raw.kernel_drops();
      counters.truncated += raw.truncated();
      counters.raw_packets += raw.raw_packets();
      counters.rails[rail].received += raw.bytes();
    }
    counters.socket_drops += drops;
  }
  return counters;
}

std::string SocketDriver::RailDescription(size_t rail) const {
  const UdpSockets& sockets = rails_[rail];
  std::string text = AddressText(sockets.local) + " on " + sockets.interface + ", MTU " +
                     std::to_string(sockets.mtu_bytes) + ", receive buffer " +
                     std::to_string(sockets.receive_buffer_bytes / 1024) + " KiB";
  if (sockets.receive_buffer_bytes < receive_buffer_wanted_) {
    text += " of " + std::to_string(receive_buffer_wanted_ / 1024) +
            " KiB wanted (raise net.core.rmem_max or give CAP_NET_ADMIN)";
  }
  if (sockets.leave_by != 0) text += ", leaving by it (other interfaces share its subnet)";
  if (!sockets.more_ports.empty()) {
    text += ", " + std::to_string(sockets.more_ports.size() + 1) + " paths (also from ports";
    for (const uint16_t port : sockets.more_ports) text += " " + std::to_string(port);
    text += ")";
  }
  text += send_lane_.segmentation(rail) ? ", UDP_SEGMENT" : ", no UDP_SEGMENT";
  text += sockets.coalescing ? ", UDP_GRO" : ", no UDP_GRO";
  if (sockets.raw.valid()) {
    text += ", raw path for cut packets";
  } else if (sockets.raw_denied) {
    text += ", no CAP_NET_RAW: only trims whose lengths and checksum the switch repaired are seen";
  }
  return text + lanes_[rail].udp->note();
}

std::string SocketDriver::description() const {
  std::string text = name_ + " ";
  for (size_t rail = 0; rail < rails_.size(); ++rail) text += (rail == 0 ? "" : "; rail ") + RailDescription(rail);
  return text;
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

std::unique_ptr<Driver> MakeSocketDriver(const UdpDriverOptions& options, std::vector<UdpSockets> rails,
                                         SocketCalls calls) {
  return std::make_unique<SocketDriver>(options, std::move(rails), std::move(calls));
}

}  // namespace forgive
