// SPDX-License-Identifier: Apache-2.0
// Any bytes to every parser: what is accepted obeys its contract, and is written back to the bytes it came from.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "transport/check.h"
#include "transport/wire.h"

namespace forgive {
namespace {

constexpr SipKey kKey{1, 2};

// True if `written` is `read` but for the flags (unknown bits are dropped), the tag and reserved fields.
bool SameFields(const std::vector<uint8_t>& written, const uint8_t* read, size_t length, size_t tag_position) {
  if (written.size() != length) return false;
  for (size_t i = 0; i < length; ++i) {
    const bool flags = i == 2 || i == 3;
    const bool tag = i >= tag_position && i < tag_position + 8;
    if (!flags && !tag && written[i] != read[i]) return false;
  }
  return true;
}

void CheckData(const uint8_t* bytes, size_t length) {
  DataHeader header;
  if (!ParseDataHeader(bytes, length, &header)) return;
  FORGIVE_CHECK(header.payload_length <= kMaxPayloadBytes);
  FORGIVE_CHECK(uint64_t{header.offset_in_message} + header.payload_length <= header.message_length);
  FORGIVE_CHECK(header.stream_offset % kUnitBytes == 0);
  FORGIVE_CHECK(header.stream_offset + header.payload_length + 2 * kUnitBytes > header.stream_offset);
  std::vector<uint8_t> written(kDataHeaderBytes);
  WriteDataHeader(header, &kKey, written.data());
  FORGIVE_CHECK(SameFields(written, bytes, kDataHeaderBytes, 48));
  FORGIVE_CHECK(VerifyTag(kKey, PacketType::kData, written.data(), written.size(), header.packet_number));
}

void CheckReport(const uint8_t* bytes, size_t length) {
  Report report;
  if (!ParseReport(bytes, length, &report)) return;
  for (uint32_t i = 0; i < report.sack_count; ++i) FORGIVE_CHECK(report.sacks[i].end > report.sacks[i].begin);
  for (uint32_t i = 0; i < report.request_count; ++i) FORGIVE_CHECK(report.requests[i].begin >= report.rcv_nxt);
  std::vector<uint8_t> written(kMaxReportBytes);
  written.resize(WriteReport(report, &kKey, written.data()));
  FORGIVE_CHECK(SameFields(written, bytes, length, 72));
  FORGIVE_CHECK(VerifyTag(kKey, PacketType::kReport, written.data(), written.size(), report.report_number));
}

void CheckHandshake(const uint8_t* bytes, size_t length) {
  Connect connect;
  if (ParseConnect(bytes, length, &connect)) {
    std::vector<uint8_t> written(std::max(connect.head_bytes(), kDataHeaderBytes + connect.max_payload));
    FORGIVE_CHECK(WriteConnect(connect, kKey, written.data()) == length);
    FORGIVE_CHECK(std::memcmp(written.data() + 4, bytes + 4, 62) == 0);
    for (size_t rail = 0; connect.rail_count > 1 && rail < connect.rail_count; ++rail) {
      const size_t at = kConnectBytes + kRailBytes * rail;
      FORGIVE_CHECK(std::memcmp(written.data() + at, bytes + at, sizeof(Address::bytes)) == 0);
    }
  }
  ConnectReply reply;
  if (ParseConnectReply(bytes, length, &reply)) {
    std::vector<uint8_t> written(kConnectReplyBytes);
    WriteConnectReply(reply, kKey, written.data());
    FORGIVE_CHECK(SameFields(written, bytes, length, 72));
  }
  Control control;
  if (ParseControl(bytes, length, &control)) {
    std::vector<uint8_t> written(kControlBytes);
    WriteControl(control, &kKey, written.data());
    FORGIVE_CHECK(std::memcmp(written.data() + 8, bytes + 8, 16) == 0);
  }
}

}  // namespace
}  // namespace forgive

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace forgive;
  // An exact copy, so that the address sanitizer sees a read behind the packet.
  const std::vector<uint8_t> packet(data, data + size);
  uint8_t version = 0;
  const PacketType type = PeekType(packet.data(), packet.size(), &version);
  if (type != PacketType::kInvalid) {
    PeekConnectionId(type, packet.data());
    VerifyTag(kKey, type, packet.data(), packet.size(), 0);
  }
  CheckData(packet.data(), packet.size());
  CheckReport(packet.data(), packet.size());
  CheckHandshake(packet.data(), packet.size());
  return 0;
}
