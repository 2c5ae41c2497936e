// SPDX-License-Identifier: Apache-2.0
// The classic BPF filters that give every cut packet to the raw path and to it alone.
#include "dataplane/udp_filter.h"

#include <sys/socket.h>

#include <cstddef>

#include "transport/wire_layout.h"

namespace forgive {
namespace {

constexpr uint32_t kUdpHeaderBytes = 8;
constexpr uint32_t kDestinationPort = 2;  // in the UDP header
constexpr uint32_t kUdpLength = 4;        // in the UDP header
constexpr uint32_t kPayloadLengthInData = offsetof(forgive_data_header, payload_length);
constexpr uint32_t kVersionAndType = kUdpHeaderBytes;  // from the UDP header
constexpr uint32_t kPayloadLength = kUdpHeaderBytes + kPayloadLengthInData;
constexpr uint32_t kWholeHeaders = kUdpHeaderBytes + sizeof(forgive_data_header);
constexpr uint32_t kDataMark = FORGIVE_WIRE_VERSION << 8 | FORGIVE_TYPE_DATA;
constexpr uint32_t kPass = 0x40000;

sock_filter Statement(int code, uint32_t k) { return {static_cast<uint16_t>(code), 0, 0, k}; }
sock_filter Jump(int code, uint32_t k, uint8_t if_true, uint8_t if_false) {
  return {static_cast<uint16_t>(code), if_true, if_false, k};
}

}  // namespace

std::vector<sock_filter> WholePacketFilter() {
  // The kernel has made the packet's length equal to its UDP length before a UDP socket's filter runs.
  return {
      Statement(BPF_LD | BPF_W | BPF_LEN, 0),
      Jump(BPF_JMP | BPF_JGE | BPF_K, kPayloadLength + 2, 0, 7),  // too short for a claim: pass
      Statement(BPF_LD | BPF_H | BPF_ABS, kVersionAndType),
      Jump(BPF_JMP | BPF_JEQ | BPF_K, kDataMark, 0, 5),  // not data: pass
      Statement(BPF_LD | BPF_H | BPF_ABS, kPayloadLength),
      Statement(BPF_ALU | BPF_ADD | BPF_K, kWholeHeaders),
      Statement(BPF_MISC | BPF_TAX, 0),
      Statement(BPF_LD | BPF_W | BPF_LEN, 0),
      Jump(BPF_JMP | BPF_JGE | BPF_X, 0, 0, 1),
      Statement(BPF_RET | BPF_K, kPass),
      Statement(BPF_RET | BPF_K, 0),
  };
}

std::vector<sock_filter> NoPacketFilter() { return {Statement(BPF_RET | BPF_K, 0)}; }

std::vector<sock_filter> CutPacketFilter(bool ipv6, uint16_t port) {
  // X: where the UDP header begins. M[0]: what it should be, M[1]: the UDP length, of UDP header, headers and
  // payload.
  return {
      ipv6 ? Statement(BPF_LDX | BPF_W | BPF_IMM, 0) : Statement(BPF_LDX | BPF_B | BPF_MSH, 0),
      Statement(BPF_LD | BPF_H | BPF_IND, kDestinationPort),
      Jump(BPF_JMP | BPF_JEQ | BPF_K, port, 0, 15),
      Statement(BPF_LD | BPF_H | BPF_IND, kVersionAndType),
      Jump(BPF_JMP | BPF_JEQ | BPF_K, kDataMark, 0, 13),
      Statement(BPF_LD | BPF_H | BPF_IND, kPayloadLength),
      Statement(BPF_ALU | BPF_ADD | BPF_K, kWholeHeaders),
      Statement(BPF_ST, 0),
      Statement(BPF_LD | BPF_H | BPF_IND, kUdpLength),
      Statement(BPF_ST, 1),
      Statement(BPF_LD | BPF_W | BPF_LEN, 0),
      Statement(BPF_ALU | BPF_SUB | BPF_X, 0),
      Statement(BPF_LDX | BPF_W | BPF_MEM, 0),
      Jump(BPF_JMP | BPF_JGE | BPF_X, 0, 0, 3),  // the IP payload is short: pass
      Statement(BPF_LD | BPF_W | BPF_MEM, 1),
      Jump(BPF_JMP | BPF_JGE | BPF_X, 0, 0, 1),  // the UDP length is short: pass
      Statement(BPF_RET | BPF_K, 0),
      Statement(BPF_RET | BPF_K, kPass),
      Statement(BPF_RET | BPF_K, 0),
  };
}

bool AttachFilter(int fd, const std::vector<sock_filter>& filter) {
  sock_fprog program{};
  program.len = static_cast<uint16_t>(filter.size());
  program.filter = const_cast<sock_filter*>(filter.data());  // the kernel only reads it
  return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) == 0;
}

bool IsCut(const uint8_t* payload, size_t length) {
  if (length < kPayloadLengthInData + 2) return false;
  if (payload[0] != FORGIVE_WIRE_VERSION || payload[1] != FORGIVE_TYPE_DATA) return false;
  const size_t announced =
      static_cast<size_t>(payload[kPayloadLengthInData]) << 8 | payload[kPayloadLengthInData + 1];
  return length < sizeof(forgive_data_header) + announced;
}

}  // namespace forgive
