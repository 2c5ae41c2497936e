// SPDX-License-Identifier: Apache-2.0
// The sending half of the kernel drivers: segmentation, ECN and code points, refusals.
#include "dataplane/send_lane.h"

#include <netinet/udp.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "dataplane/socket_address.h"
#include "transport/check.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

namespace forgive {
namespace {

constexpr uint8_t kEct0 = 2;

// One segmented message: at most 64 segments (the kernel's oldest limit) and 64 KB with its headers.
constexpr size_t kMaxSegments = 64;
constexpr uint32_t kMaxSegmentedBytes = 65000;

uint32_t PacketBytes(const Transmit& packet) { return packet.header_length + packet.payload_length; }

// True if the packet must be told by which interface to leave.
bool LeavesByChoice(const UdpSockets& sockets, const Address& destination) {
  if (sockets.leave_by == 0) return false;
  Address host = destination;
  SetAddressPort(0, &host);
  return std::find(sockets.local_hosts.begin(), sockets.local_hosts.end(), host) == sockets.local_hosts.end();
}

// Some packets of a burst, in its order: those of one path.
class Picked {
 public:
  Picked(const Transmit* packets, std::span<const uint8_t> places) : packets_(packets), places_(places) {}

  const Transmit& operator[](size_t i) const { return packets_[places_[i]]; }
  size_t size() const { return places_.size(); }
  Picked first(size_t count) const { return {packets_, places_.first(count)}; }
  Picked subspan(size_t offset) const { return {packets_, places_.subspan(offset)}; }
  Picked subspan(size_t offset, size_t count) const { return {packets_, places_.subspan(offset, count)}; }

 private:
  const Transmit* packets_;
  std::span<const uint8_t> places_;
};

}  // namespace

SendLane::SendLane(const UdpDriverOptions& options, std::span<const UdpSockets> rails,
                   std::unique_ptr<MessageSender> sender)
    : dscp_data_(options.dscp_data), dscp_control_(options.dscp_control), rails_(rails), sender_(std::move(sender)) {
  FORGIVE_CHECK(rails.size() <= kMaxRails);
  const size_t paths_each = 1 + rails[0].more_paths.size();
  path_count_ = rails.size() * paths_each;
  FORGIVE_CHECK(path_count_ <= kMostUdpPaths);
  for (size_t rail = 0; rail < rails.size(); ++rail) {
    FORGIVE_CHECK(rails[rail].more_paths.size() + 1 == paths_each);
    segmentation_[rail] = rails[rail].segmentation;
    for (size_t n = 0; n < paths_each; ++n) {
      const UniqueFd& socket = n == 0 ? rails[rail].udp : rails[rail].more_paths[n - 1];
      paths_[n * rails.size() + rail] = {socket.get(), rail};
    }
  }
}

template <typename Packets>
size_t SendLane::RunLength(const Packets& packets) const {
  const Transmit& first = packets[0];
  const uint32_t segment = PacketBytes(first);
  uint32_t total = segment;
  size_t count = 1;
  while (count < packets.size() && count < kMaxSegments) {
    const Transmit& next = packets[count];
    const uint32_t bytes = PacketBytes(next);
    // A segment cannot be empty.
    if (bytes > segment || bytes == 0 || total + bytes > kMaxSegmentedBytes ||
        next.packet_class != first.packet_class || next.dscp != first.dscp || next.path != first.path ||
        next.destination != first.destination) {
      break;
    }
    total += bytes;
    ++count;
    if (bytes < segment) break;  // only the last segment may be shorter
  }
  return count;
}

void SendLane::FillControl(const Transmit& packet, const UdpSockets& sockets, uint32_t segment_bytes,
                           size_t message) {
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
  const uint8_t dscp_data = packet.dscp == kDscpOfDriver ? dscp_data_ : packet.dscp;
  const int traffic_class = data ? dscp_data << 2 | kEct0 : dscp_control_ << 2;
  append(sockets.ipv6 ? IPPROTO_IPV6 : IPPROTO_IP, sockets.ipv6 ? IPV6_TCLASS : IP_TOS, traffic_class);
  if (segment_bytes != 0) append(IPPROTO_UDP, UDP_SEGMENT, static_cast<uint16_t>(segment_bytes));
  if (LeavesByChoice(sockets, packet.destination)) {
    if (sockets.ipv6) {
      in6_pktinfo leave{};
      leave.ipi6_ifindex = sockets.leave_by;
      append(IPPROTO_IPV6, IPV6_PKTINFO, leave);
    } else {
      in_pktinfo leave{};
      leave.ipi_ifindex = static_cast<int>(sockets.leave_by);
      append(IPPROTO_IP, IP_PKTINFO, leave);
    }
  }
  messages_[message].msg_hdr.msg_control = buffer;
  messages_[message].msg_hdr.msg_controllen = used;
}

template <typename Packets>
void SendLane::FillMessage(const Packets& packets, const UdpSockets& sockets, size_t count, size_t message,
                           size_t* vector) {
  uint32_t bytes = 0;
  msghdr& header = messages_[message].msg_hdr;
  header = msghdr{};
  header.msg_iov = &vectors_[*vector];
  for (size_t i = 0; i < count; ++i) {
    const Transmit& packet = packets[i];
    bytes += PacketBytes(packet);
    vectors_[(*vector)++] = {const_cast<uint8_t*>(packet.header.data()), packet.header_length};
    if (packet.payload_length != 0) {
      vectors_[(*vector)++] = {const_cast<uint8_t*>(packet.payload), packet.payload_length};
    }
  }
  header.msg_iovlen = static_cast<size_t>(&vectors_[0] + *vector - header.msg_iov);
  header.msg_namelen = ToSocketAddress(packets[0].destination, &names_[message]);
  header.msg_name = &names_[message];
  FillControl(packets[0], sockets, count > 1 ? PacketBytes(packets[0]) : 0, message);
  packets_in_message_[message] = count;
  bytes_in_message_[message] = bytes;
}

template <typename Packets>
size_t SendLane::SendMessages(const Packets& packets, const Path& path, bool segmented, SendResult* result,
                              size_t* refused_run) {
  size_t taken = 0;
  bool retried = false;
  while (taken < packets.size()) {
    size_t messages = 0;
    size_t vector = 0;
    for (size_t next = taken; next < packets.size() && next - taken < kSendBatch;) {
      const Packets rest = packets.subspan(next, std::min(packets.size() - next, kSendBatch - (next - taken)));
      const size_t run = segmented ? RunLength(rest) : 1;
      FillMessage(rest, rails_[path.rail], run, messages++, &vector);
      next += run;
    }
    const int sent = sender_->Send(path.fd, std::span(messages_).first(messages));
    for (size_t i = 0; static_cast<int>(i) < sent; ++i) {
      taken += packets_in_message_[i];
      sent_bytes_[path.rail] += bytes_in_message_[i];
    }
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

template <typename Packets>
size_t SendLane::SendBy(const Path& path, const Packets& packets) {
  bool& segmentation = segmentation_[path.rail];
  size_t taken = 0;
  while (taken < packets.size()) {
    SendResult result = SendResult::kTryAgain;
    size_t run = 0;
    taken += SendMessages(Packets(packets.subspan(taken)), path, segmentation, &result, &run);
    if (taken == packets.size() || result == SendResult::kTryAgain) break;
    if (run == 1) {
      ++send_errors_;
      ++taken;
      continue;
    }
    // A segmented message was refused. If its packets leave singly, the path cannot segment (EIO, EINVAL: no
    // checksum offload, an old kernel): never again. If they do not either, they are refused for themselves.
    const bool cannot_segment = refused_errno_ == EIO || refused_errno_ == EINVAL || refused_errno_ == EOPNOTSUPP;
    const Packets packets_of_run = packets.subspan(taken, run);
    const size_t alone = SendMessages(Packets(packets_of_run.first(1)), path, false, &result, &run);
    if (alone == 1) {
      // Else it was for want of memory: the next one may be segmented again.
      if (cannot_segment) segmentation = false;
    } else if (result == SendResult::kTryAgain) {
      break;
    } else {
      ++send_errors_;
    }
    ++taken;
  }
  return taken;
}

uint64_t SendLane::SprayWindow(std::span<const Transmit> window, uint64_t sent) {
  std::array<std::array<uint8_t, kSendBatch>, kMostUdpPaths> places;
  std::array<size_t, kMostUdpPaths> counts{};
  for (size_t i = 0; i < window.size(); ++i) {
    if ((sent >> i & 1) != 0) continue;
    FORGIVE_CHECK(window[i].path < path_count_);
    const size_t path = window[i].path;
    places[path][counts[path]++] = static_cast<uint8_t>(i);
  }
  for (size_t path = 0; path < path_count_; ++path) {
    if (counts[path] == 0) continue;
    const auto own = std::span<const uint8_t>(places[path]).first(counts[path]);
    const size_t left = SendBy(paths_[path], Picked(window.data(), own));
    for (const uint8_t place : own.first(left)) sent |= uint64_t{1} << place;
  }
  return sent;
}

size_t SendLane::Spray(std::span<const Transmit> packets) {
  static_assert(kSendBatch == 64, "sent_ahead_ has a bit for each");
  size_t taken = 0;
  while (taken < packets.size()) {
    const std::span<const Transmit> window = packets.subspan(taken, std::min(packets.size() - taken, kSendBatch));
    const uint64_t sent = SprayWindow(window, sent_ahead_);
    const size_t prefix = std::min<size_t>(static_cast<size_t>(std::countr_one(sent)), window.size());
    sent_ahead_ = prefix == kSendBatch ? 0 : sent >> prefix;
    taken += prefix;
    if (prefix == window.size()) continue;
    blocked_path_ = window[prefix].path;
    break;
  }
  return taken;
}

size_t SendLane::SendBurst(std::span<const Transmit> packets) {
  return path_count_ == 1 ? SendBy(paths_[0], packets) : Spray(packets);
}

}  // namespace forgive
