// SPDX-License-Identifier: Apache-2.0
// Builds the frames that the switch's tests feed in and expect back; lengths and checksums can be wrong on purpose.
#ifndef FORGIVE_TESTS_LAB_PACKET_H_
#define FORGIVE_TESTS_LAB_PACKET_H_

#include <cstdint>
#include <optional>
#include <vector>

namespace forgive::lab {

using Frame = std::vector<std::uint8_t>;

constexpr std::uint8_t kUdp = 17;
constexpr std::uint8_t kTcp = 6;

// What a frame says of itself. Lengths left out are those of the frame.
struct PacketFields {
  bool ipv6 = false;
  std::uint8_t protocol = kUdp;
  std::uint8_t dscp = 10;
  std::uint8_t ecn = 2;
  std::size_t payload_bytes = 1400;        // after the 56 bytes of the data header
  std::optional<std::size_t> frame_bytes;  // cut or padded to this
  std::optional<std::uint16_t> ip_length;  // IPv6: the payload length
  std::optional<std::uint16_t> udp_length;
  std::uint16_t udp_checksum = 0xbeef;
  std::uint16_t fragment = 0;
  bool ip_options = false;
  std::uint8_t type = 1;  // of the data header
  std::uint64_t connection_id = 0x0123456789abcdef;
  std::uint32_t message_number = 7;
  std::uint32_t offset_in_message = 12288;
  std::uint64_t destination = 0x024647560001;
};

namespace packet_detail {

inline void Append(Frame* frame, std::uint64_t value, int bytes) {
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8)
    frame->push_back(static_cast<std::uint8_t>(value >> shift));
}

inline std::uint16_t HeaderChecksum(const Frame& frame, std::size_t begin, std::size_t end) {
  std::uint32_t sum = 0;
  for (std::size_t i = begin; i < end; i += 2) sum += static_cast<std::uint32_t>(frame[i] << 8 | frame[i + 1]);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(~sum);
}

inline void AppendIpv4(Frame* frame, const PacketFields& fields, std::size_t transport_bytes) {
  const std::size_t header_bytes = fields.ip_options ? 24 : 20;
  const std::size_t begin = frame->size();
  Append(frame, fields.ip_options ? 0x46 : 0x45, 1);
  Append(frame, static_cast<std::uint64_t>(fields.dscp << 2 | fields.ecn), 1);
  Append(frame, fields.ip_length.value_or(static_cast<std::uint16_t>(header_bytes + transport_bytes)), 2);
  Append(frame, 0x1234, 2);
  Append(frame, fields.fragment, 2);
  Append(frame, 64, 1);
  Append(frame, fields.protocol, 1);
  Append(frame, 0, 2);
  Append(frame, 0x0a4d0002, 4);
  Append(frame, 0x0a4d0001, 4);
  if (fields.ip_options) Append(frame, 0x01010101, 4);
  const std::uint16_t checksum = HeaderChecksum(*frame, begin, frame->size());
  (*frame)[begin + 10] = static_cast<std::uint8_t>(checksum >> 8);
  (*frame)[begin + 11] = static_cast<std::uint8_t>(checksum);
}

inline void AppendIpv6(Frame* frame, const PacketFields& fields, std::size_t transport_bytes) {
  const std::uint32_t traffic_class = static_cast<std::uint32_t>(fields.dscp << 2 | fields.ecn);
  Append(frame, 6u << 28 | traffic_class << 20 | 0xabcdeu, 4);
  Append(frame, fields.ip_length.value_or(static_cast<std::uint16_t>(transport_bytes)), 2);
  Append(frame, fields.protocol, 1);
  Append(frame, 64, 1);
  for (const std::uint64_t last : {2, 1}) {
    Append(frame, 0xfd00007700000000, 8);
    Append(frame, last, 8);
  }
}

inline void AppendDataHeader(Frame* frame, const PacketFields& fields) {
  Append(frame, 1, 1);
  Append(frame, fields.type, 1);
  Append(frame, 0, 2);
  Append(frame, fields.payload_bytes, 2);
  Append(frame, 0, 2);
  Append(frame, fields.connection_id, 8);
  Append(frame, 4096, 8);
  Append(frame, fields.message_number, 4);
  Append(frame, fields.offset_in_message, 4);
  Append(frame, 1 << 20, 4);
  Append(frame, 99, 4);
  Append(frame, 0, 4);
  Append(frame, 0, 4);
  Append(frame, 0x5555555555555555, 8);
}

}  // namespace packet_detail

inline Frame MakeFrame(const PacketFields& fields) {
  using namespace packet_detail;
  constexpr std::size_t kUdpHeaderBytes = 8;
  constexpr std::size_t kDataHeaderBytes = 56;
  const std::size_t transport_bytes = kUdpHeaderBytes + kDataHeaderBytes + fields.payload_bytes;
  Frame frame;
  Append(&frame, fields.destination, 6);
  Append(&frame, 0x024647560002, 6);
  Append(&frame, fields.ipv6 ? 0x86dd : 0x0800, 2);
  if (fields.ipv6) {
    AppendIpv6(&frame, fields, transport_bytes);
  } else {
    AppendIpv4(&frame, fields, transport_bytes);
  }
  Append(&frame, 40000, 2);
  Append(&frame, 17185, 2);
  Append(&frame, fields.udp_length.value_or(static_cast<std::uint16_t>(transport_bytes)), 2);
  Append(&frame, fields.udp_checksum, 2);
  AppendDataHeader(&frame, fields);
  for (std::size_t i = 0; i < fields.payload_bytes; ++i) frame.push_back(static_cast<std::uint8_t>(i * 7));
  if (fields.frame_bytes) frame.resize(*fields.frame_bytes);
  return frame;
}

}  // namespace forgive::lab

#endif  // FORGIVE_TESTS_LAB_PACKET_H_
