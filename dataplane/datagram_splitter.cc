// SPDX-License-Identifier: Apache-2.0
// Received messages into datagrams: coalesced messages split, raw packets unwrapped.
#include "dataplane/datagram_splitter.h"

#include <netinet/in.h>
#include <netinet/udp.h>

#include <algorithm>
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

void DatagramSplitter::Begin(const msghdr& header, const uint8_t* bytes, uint32_t length, ReceivedMessage* message) {
  *message = ReceivedMessage{};
  message->bytes = bytes;
  message->length = length;
  message->source = ToAddress(static_cast<const sockaddr*>(header.msg_name));
  message->truncated = (header.msg_flags & MSG_TRUNC) != 0;
  if (message->truncated) ++truncated_;
  ReadControl(header, message);
}

void DatagramSplitter::ReadControl(const msghdr& header, ReceivedMessage* message) {
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

bool DatagramSplitter::Acceptable(const ReceivedMessage& message, const Datagram& datagram) {
  if (!options_.require_trimmed_dscp || !IsCut(datagram.bytes, datagram.length)) return true;
  if (message.traffic_class >> 2 == options_.dscp_trimmed) return true;
  ++truncated_;  // shorter than it was, and no switch says that it did that
  return false;
}

bool DatagramSplitter::TakeRaw(const ReceivedMessage& message, Datagram* out) {
  uint32_t begin = 0;
  if (options_.kind == LaneKind::kRawIpv4) {
    if (message.length < kIpv4HeaderBytes) return false;
    begin = static_cast<uint32_t>(message.bytes[0] & 15) * 4;
    out->ce = (message.bytes[1] & kEcnMask) == kCongestionExperienced;
  }
  if (message.length < begin + kUdpHeaderBytes) return false;
  const uint8_t* udp = message.bytes + begin;
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

bool DatagramSplitter::Take(ReceivedMessage* message, Datagram* out) {
  if (message->truncated) {
    message->used_up = true;
    return false;
  }
  bool taken = false;
  uint32_t length = message->length - message->offset;
  out->ce = (message->traffic_class & kEcnMask) == kCongestionExperienced;
  if (options_.kind == LaneKind::kUdp) {
    if (message->segment_bytes != 0) length = std::min(length, message->segment_bytes);
    out->bytes = message->bytes + message->offset;
    out->length = length;
    out->source = message->source;
    taken = true;
  } else {
    if (options_.kind == LaneKind::kRawIpv4 && length >= kIpv4HeaderBytes) message->traffic_class = message->bytes[1];
    taken = TakeRaw(*message, out);
  }
  taken = taken && Acceptable(*message, *out);
  if (taken) bytes_ += out->length;
  message->offset += length;
  message->used_up = message->offset >= message->length;
  return taken;
}

}  // namespace forgive
