// SPDX-License-Identifier: Apache-2.0
// The kernel UDP driver: batched calls, segmentation and coalescing offloads, ECN, and a raw path for cut packets.
#include "dataplane/udp_driver.h"

#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <vector>

#include "dataplane/receive_lane.h"
#include "dataplane/socket_address.h"
#include "dataplane/udp_socket.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

namespace forgive {
namespace {

constexpr uint32_t kUdpHeaderBytes = 8;
constexpr uint32_t kIpv4HeaderBytes = 20;
constexpr uint32_t kIpv6HeaderBytes = 40;
constexpr uint32_t kMaxDatagramBytes = kDataHeaderBytes + kMaxPayloadBytes;
constexpr uint8_t kEct0 = 2;

// One segmented message: at most 64 segments (the kernel's oldest limit) and 64 KB with its headers.
constexpr size_t kMaxSegments = 64;
constexpr uint32_t kMaxSegmentedBytes = 65000;
constexpr size_t kSendBatch = 64;

constexpr uint32_t kCoalescedBatch = 16;
constexpr uint32_t kCoalescedBytes = 65535;
constexpr uint32_t kPlainBatch = 64;
constexpr uint32_t kRawBatch = 32;
// How often the raw socket is asked while the UDP socket always has a full burst.
constexpr uint32_t kRawTurn = 4;

uint32_t PacketBytes(const Transmit& packet) { return packet.header_length + packet.payload_length; }

class UdpDriver final : public Driver {
 public:
  UdpDriver(const UdpDriverOptions& options, UdpSockets sockets)
      : options_(options), sockets_(std::move(sockets)), segmentation_(sockets_.segmentation) {
    const uint32_t headers = (sockets_.ipv6 ? kIpv6HeaderBytes : kIpv4HeaderBytes) + kUdpHeaderBytes;
    const uint32_t by_mtu = sockets_.mtu_bytes > headers ? sockets_.mtu_bytes - headers : 0;
    max_datagram_bytes_ = std::min(by_mtu, kMaxDatagramBytes + options.extra_bytes);
    LaneOptions lane;
    lane.require_trimmed_dscp = options.require_trimmed_dscp;
    lane.dscp_trimmed = options.dscp_trimmed;
    lane.batch = sockets_.coalescing ? kCoalescedBatch : kPlainBatch;
    lane.message_bytes = sockets_.coalescing ? kCoalescedBytes : kMaxDatagramBytes + options.extra_bytes;
    udp_lane_.emplace(sockets_.udp.get(), lane);
    poll_fds_[0] = sockets_.udp.get();
    if (sockets_.raw.valid()) {
      lane.kind = sockets_.ipv6 ? LaneKind::kRawIpv6 : LaneKind::kRawIpv4;
      lane.batch = kRawBatch;
      lane.message_bytes = kMaxDatagramBytes + kIpv6HeaderBytes + 128;
      raw_lane_.emplace(sockets_.raw.get(), lane);
      poll_fds_[1] = sockets_.raw.get();
    }
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

  size_t SendBurst(std::span<const Transmit> packets) override;

  Address local_address() const override { return sockets_.local; }
  uint32_t max_datagram_bytes() const override { return max_datagram_bytes_; }
  std::span<const int> poll_fds() const override { return std::span(poll_fds_).first(raw_lane_ ? 2 : 1); }
  DriverCounters counters() const override;
  std::string description() const override;

 private:
  struct alignas(cmsghdr) ControlBuffer {
    uint8_t bytes[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(uint16_t)) + CMSG_SPACE(sizeof(in6_pktinfo))];
  };
  enum class SendResult : uint8_t { kTryAgain, kRefused };

  // How many packets from the front can leave as one segmented message.
  size_t RunLength(std::span<const Transmit> packets) const;
  // Fills one message of `count` packets; uses 2 * count vectors from *vector on.
  void FillMessage(std::span<const Transmit> packets, size_t count, size_t message, size_t* vector);
  void FillControl(const Transmit& packet, uint32_t segment_bytes, size_t message);
  bool LeavesByChoice(const Address& destination) const;
  // Sends the packets as `limit` packets a message allow; returns how many were taken before an error in *result.
  size_t SendMessages(std::span<const Transmit> packets, bool segmented, SendResult* result, size_t* refused_run);

  UdpDriverOptions options_;
  UdpSockets sockets_;
  uint32_t max_datagram_bytes_ = 0;
  std::array<int, 2> poll_fds_{-1, -1};
  std::optional<ReceiveLane> udp_lane_;
  std::optional<ReceiveLane> raw_lane_;
  uint32_t receive_calls_ = 0;

  bool segmentation_;
  int refused_errno_ = 0;  // why the last message was refused
  uint64_t send_errors_ = 0;
  std::array<mmsghdr, kSendBatch> messages_{};
  std::array<size_t, kSendBatch> packets_in_message_{};
  std::array<sockaddr_storage, kSendBatch> names_{};
  std::array<iovec, 2 * kSendBatch> vectors_{};
  std::array<ControlBuffer, kSendBatch> controls_{};
};

size_t UdpDriver::RunLength(std::span<const Transmit> packets) const {
  const Transmit& first = packets[0];
  const uint32_t segment = PacketBytes(first);
  uint32_t total = segment;
  size_t count = 1;
  while (count < packets.size() && count < kMaxSegments) {
    const Transmit& next = packets[count];
    const uint32_t bytes = PacketBytes(next);
    // A segment cannot be empty.
    if (bytes > segment || bytes == 0 || total + bytes > kMaxSegmentedBytes ||
        next.packet_class != first.packet_class || next.path != first.path || next.destination != first.destination) {
      break;
    }
    total += bytes;
    ++count;
    if (bytes < segment) break;  // only the last segment may be shorter
  }
  return count;
}

// True if the packet must be told by which interface to leave.
bool UdpDriver::LeavesByChoice(const Address& destination) const {
  if (sockets_.leave_by == 0) return false;
  Address host = destination;
  SetAddressPort(0, &host);
  return std::find(sockets_.local_hosts.begin(), sockets_.local_hosts.end(), host) == sockets_.local_hosts.end();
}

void UdpDriver::FillControl(const Transmit& packet, uint32_t segment_bytes, size_t message) {
  uint8_t* buffer = controls_[message].bytes;
  size_t used = 0;
  const auto append = [&](int level, int type, const auto& value) {
    cmsghdr header{};
    header.cmsg_level = level;
    header.cmsg_type = type;
    header.cmsg_len = CMSG_LEN(sizeof(value));
    std::memcpy(buffer + used, &header, sizeof(header));
    std::memcpy(buffer + used + CMSG_LEN(0), &value, sizeof(value));
    used += CMSG_SPACE(sizeof(value));
  };
  const bool data = packet.packet_class == PacketClass::kData;
  const int traffic_class = data ? options_.dscp_data << 2 | kEct0 : options_.dscp_control << 2;
  append(sockets_.ipv6 ? IPPROTO_IPV6 : IPPROTO_IP, sockets_.ipv6 ? IPV6_TCLASS : IP_TOS, traffic_class);
  if (segment_bytes != 0) append(IPPROTO_UDP, UDP_SEGMENT, static_cast<uint16_t>(segment_bytes));
  if (LeavesByChoice(packet.destination)) {
    if (sockets_.ipv6) {
      in6_pktinfo leave{};
      leave.ipi6_ifindex = sockets_.leave_by;
      append(IPPROTO_IPV6, IPV6_PKTINFO, leave);
    } else {
      in_pktinfo leave{};
      leave.ipi_ifindex = static_cast<int>(sockets_.leave_by);
      append(IPPROTO_IP, IP_PKTINFO, leave);
    }
  }
  messages_[message].msg_hdr.msg_control = buffer;
  messages_[message].msg_hdr.msg_controllen = used;
}

void UdpDriver::FillMessage(std::span<const Transmit> packets, size_t count, size_t message, size_t* vector) {
  msghdr& header = messages_[message].msg_hdr;
  header = msghdr{};
  header.msg_iov = &vectors_[*vector];
  for (size_t i = 0; i < count; ++i) {
    const Transmit& packet = packets[i];
    vectors_[(*vector)++] = {const_cast<uint8_t*>(packet.header.data()), packet.header_length};
    if (packet.payload_length != 0) {
      vectors_[(*vector)++] = {const_cast<uint8_t*>(packet.payload), packet.payload_length};
    }
  }
  header.msg_iovlen = static_cast<size_t>(&vectors_[0] + *vector - header.msg_iov);
  header.msg_namelen = ToSocketAddress(packets[0].destination, &names_[message]);
  header.msg_name = &names_[message];
  FillControl(packets[0], count > 1 ? PacketBytes(packets[0]) : 0, message);
  packets_in_message_[message] = count;
}

size_t UdpDriver::SendMessages(std::span<const Transmit> packets, bool segmented, SendResult* result,
                               size_t* refused_run) {
  size_t taken = 0;
  bool retried = false;
  while (taken < packets.size()) {
    size_t messages = 0;
    size_t vector = 0;
    for (size_t next = taken; next < packets.size() && next - taken < kSendBatch;) {
      const std::span<const Transmit> rest =
          packets.subspan(next, std::min(packets.size() - next, kSendBatch - (next - taken)));
      const size_t run = segmented ? RunLength(rest) : 1;
      FillMessage(rest, run, messages++, &vector);
      next += run;
    }
    const int sent = sendmmsg(sockets_.udp.get(), messages_.data(), static_cast<unsigned>(messages), MSG_DONTWAIT);
    for (int i = 0; i < sent; ++i) taken += packets_in_message_[static_cast<size_t>(i)];
    if (sent > 0) {
      retried = false;
      continue;
    }
    if (errno == EINTR) continue;
    // A pending ICMP error is told once, to whoever calls first, and means nothing to us: once more.
    if (errno == ECONNREFUSED && !retried) {
      retried = true;
      continue;
    }
    refused_errno_ = errno;
    *result = errno == EAGAIN || errno == EWOULDBLOCK ? SendResult::kTryAgain : SendResult::kRefused;
    *refused_run = packets_in_message_[0];
    return taken;
  }
  return taken;
}

size_t UdpDriver::SendBurst(std::span<const Transmit> packets) {
  size_t taken = 0;
  while (taken < packets.size()) {
    SendResult result = SendResult::kTryAgain;
    size_t run = 0;
    taken += SendMessages(packets.subspan(taken), segmentation_, &result, &run);
    if (taken == packets.size() || result == SendResult::kTryAgain) break;
    if (run == 1) {
      ++send_errors_;
      ++taken;
      continue;
    }
    // A segmented message was refused. If its packets leave singly, the path cannot segment (EIO, EINVAL: no
    // checksum offload, an old kernel): never again. If they do not either, they are refused for themselves.
    const bool cannot_segment = refused_errno_ == EIO || refused_errno_ == EINVAL || refused_errno_ == EOPNOTSUPP;
    const std::span<const Transmit> packets_of_run = packets.subspan(taken, run);
    const size_t alone = SendMessages(packets_of_run.first(1), false, &result, &run);
    if (alone == 1) {
      // Else it was for want of memory: the next one may be segmented again.
      if (cannot_segment) segmentation_ = false;
    } else if (result == SendResult::kTryAgain) {
      break;
    } else {
      ++send_errors_;
    }
    ++taken;
  }
  return taken;
}

DriverCounters UdpDriver::counters() const {
  DriverCounters counters;
  counters.send_errors = send_errors_;
  counters.truncated = udp_lane_->truncated();
  counters.socket_drops = udp_lane_->kernel_drops();
  if (raw_lane_) {
    // What the UDP socket's filter leaves to the raw path is counted by the kernel as dropped.
    counters.socket_drops -= std::min(counters.socket_drops, raw_lane_->seen_by_udp());
    counters.socket_drops += raw_lane_->kernel_drops();
    counters.truncated += raw_lane_->truncated();
    counters.raw_packets = raw_lane_->raw_packets();
  }
  return counters;
}

std::string UdpDriver::description() const {
  std::string text = "udp " + AddressText(sockets_.local) + " on " + sockets_.interface + ", MTU " +
                     std::to_string(sockets_.mtu_bytes) + ", receive buffer " +
                     std::to_string(sockets_.receive_buffer_bytes / 1024) + " KiB";
  if (sockets_.receive_buffer_bytes < options_.receive_buffer_bytes) {
    text += " of " + std::to_string(options_.receive_buffer_bytes / 1024) +
            " KiB wanted (raise net.core.rmem_max or give CAP_NET_ADMIN)";
  }
  if (sockets_.leave_by != 0) text += ", leaving by it (other interfaces share its subnet)";
  text += segmentation_ ? ", UDP_SEGMENT" : ", no UDP_SEGMENT";
  text += sockets_.coalescing ? ", UDP_GRO" : ", no UDP_GRO";
  if (sockets_.raw.valid()) {
    text += ", raw path for cut packets";
  } else if (sockets_.raw_denied) {
    text += ", no CAP_NET_RAW: only trims whose lengths and checksum the switch repaired are seen";
  }
  return text;
}

}  // namespace

std::unique_ptr<Driver> OpenUdpDriver(const UdpDriverOptions& options, std::string* error) {
  UdpSockets sockets;
  if (!OpenUdpSockets(options, &sockets, error)) return nullptr;
  return std::make_unique<UdpDriver>(options, std::move(sockets));
}

}  // namespace forgive
