// SPDX-License-Identifier: Apache-2.0
// One receiving socket of the udp driver: batched reads, coalesced messages split, raw packets unwrapped.
#include "dataplane/receive_lane.h"

#include <netinet/udp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "dataplane/socket_address.h"
#include "dataplane/udp_filter.h"

#ifndef UDP_GRO
#define UDP_GRO 104
#endif

namespace forgive {
namespace {

constexpr uint32_t kUdpHeaderBytes = 8;
constexpr uint32_t kIpv4HeaderBytes = 20;
constexpr uint8_t kEcnMask = 3;
constexpr uint8_t kCongestionExperienced = 3;

uint16_t BigEndian16(const uint8_t* bytes) { return static_cast<uint16_t>(bytes[0] << 8 | bytes[1]); }

}  // namespace

ReceiveLane::ReceiveLane(int fd, const LaneOptions& options) : fd_(fd), options_(options) {
  // An odd number of cache lines between buffers: with 64 KiB between them all headers would share one cache set.
  stride_ = (options.message_bytes + 63) / 64 * 64 + 64;
  if (stride_ / 64 % 2 == 0) stride_ += 64;
  buffers_.resize(stride_ * options.batch);
  headers_.resize(options.batch);
  vectors_.resize(options.batch);
  names_.resize(options.batch);
  controls_.resize(options.batch);
  messages_.resize(options.batch);
  for (uint32_t i = 0; i < options.batch; ++i) {
    vectors_[i] = {buffers_.data() + stride_ * i, options.message_bytes};
    headers_[i].msg_hdr.msg_iov = &vectors_[i];
    headers_[i].msg_hdr.msg_iovlen = 1;
  }
}

bool ReceiveLane::Fill() {
  for (uint32_t i = 0; i < options_.batch; ++i) {
    msghdr& header = headers_[i].msg_hdr;
    header.msg_name = &names_[i];
    header.msg_namelen = sizeof(names_[i]);
    header.msg_control = controls_[i].bytes;
    header.msg_controllen = kControlBytes;
    header.msg_flags = 0;
  }
  next_ = offset_ = filled_ = 0;
  int count = -1;
  // A pending ICMP error is handed to whoever asks first and is then gone: it says nothing that we believe.
  for (int attempt = 0; attempt < 3 && count < 0; ++attempt) {
    count = recvmmsg(fd_, headers_.data(), options_.batch, MSG_DONTWAIT, nullptr);
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
  }
  drained_ = count < static_cast<int>(options_.batch);
  if (count <= 0) return false;
  filled_ = static_cast<uint32_t>(count);
  for (uint32_t i = 0; i < filled_; ++i) {
    Message& message = messages_[i];
    message = Message{};
    message.length = headers_[i].msg_len;
    ReadControl(headers_[i].msg_hdr, &message);
    message.source = ToAddress(reinterpret_cast<const sockaddr*>(&names_[i]));
    if ((headers_[i].msg_hdr.msg_flags & MSG_TRUNC) != 0) {
      ++truncated_;
      message.length = UINT32_MAX;
    }
  }
  return true;
}

void ReceiveLane::ReadControl(const msghdr& header, Message* message) {
  msghdr* mutable_header = const_cast<msghdr*>(&header);
  for (const cmsghdr* control = CMSG_FIRSTHDR(mutable_header); control != nullptr;
       control = CMSG_NXTHDR(mutable_header, const_cast<cmsghdr*>(control))) {
    const uint8_t* data = CMSG_DATA(const_cast<cmsghdr*>(control));
    if (control->cmsg_level == IPPROTO_IP && control->cmsg_type == IP_TOS) {
      message->traffic_class = *data;
    } else if (control->cmsg_level == IPPROTO_IPV6 && control->cmsg_type == IPV6_TCLASS) {
      int value;
      std::memcpy(&value, data, sizeof(value));
      message->traffic_class = static_cast<uint8_t>(value);
    } else if (control->cmsg_level == IPPROTO_UDP && control->cmsg_type == UDP_GRO) {
      int value;
      std::memcpy(&value, data, sizeof(value));
      message->segment_bytes = value > 0 ? static_cast<uint32_t>(value) : 0;
    } else if (control->cmsg_level == SOL_SOCKET && control->cmsg_type == SO_RXQ_OVFL) {
      uint32_t value;
      std::memcpy(&value, data, sizeof(value));
      kernel_drops_ = value;
    }
  }
}

bool ReceiveLane::Acceptable(const Message& message, const Datagram& datagram) {
  if (!options_.require_trimmed_dscp || !IsCut(datagram.bytes, datagram.length)) return true;
  if (message.traffic_class >> 2 == options_.dscp_trimmed) return true;
  ++truncated_;  // shorter than it was, and no switch says that it did that
  return false;
}

bool ReceiveLane::TakeRaw(const Message& message, const uint8_t* bytes, Datagram* out) {
  uint32_t begin = 0;
  if (options_.kind == LaneKind::kRawIpv4) {
    if (message.length < kIpv4HeaderBytes) return false;
    begin = static_cast<uint32_t>(bytes[0] & 15) * 4;
    out->ce = (bytes[1] & kEcnMask) == kCongestionExperienced;
  }
  if (message.length < begin + kUdpHeaderBytes) return false;
  const uint8_t* udp = bytes + begin;
  // The kernel has already made the message as short as the IP length says.
  const uint32_t in_packet = message.length - begin;
  const uint32_t by_udp = BigEndian16(udp + 4);
  if (by_udp < kUdpHeaderBytes) return false;
  out->bytes = udp + kUdpHeaderBytes;
  out->length = std::min(in_packet, by_udp) - kUdpHeaderBytes;
  out->source = message.source;
  SetAddressPort(BigEndian16(udp), &out->source);
  ++raw_packets_;
  if (by_udp <= in_packet) ++seen_by_udp_;
  return true;
}

bool ReceiveLane::Take(Datagram* out) {
  Message& message = messages_[next_];
  const uint8_t* bytes = buffers_.data() + stride_ * next_ + offset_;
  bool taken = false;
  uint32_t length = message.length - offset_;
  if (message.length == UINT32_MAX) {
    length = 0;  // cut by our own buffer: a drop
  } else {
    if (message.segment_bytes != 0) length = std::min(length, message.segment_bytes);
    out->ce = (message.traffic_class & kEcnMask) == kCongestionExperienced;
    if (options_.kind == LaneKind::kUdp) {
      out->bytes = bytes;
      out->length = length;
      out->source = message.source;
      taken = true;
    } else {
      if (options_.kind == LaneKind::kRawIpv4 && message.length >= kIpv4HeaderBytes) message.traffic_class = bytes[1];
      taken = TakeRaw(message, bytes, out);
    }
    taken = taken && Acceptable(message, *out);
  }
  offset_ += length;
  if (message.length == UINT32_MAX || offset_ >= message.length) {
    ++next_;
    offset_ = 0;
  }
  return taken;
}

size_t ReceiveLane::Receive(std::span<Datagram> out) {
  if (next_ == filled_ && !Fill()) return 0;
  size_t count = 0;
  while (count < out.size() && next_ < filled_) {
    if (Take(&out[count])) ++count;
  }
  return count;
}

}  // namespace forgive
