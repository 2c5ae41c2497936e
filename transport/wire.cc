// SPDX-License-Identifier: Apache-2.0
// Parsing, writing and tagging of every packet, on the structures of wire_layout.h.
#include "transport/wire.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include "transport/check.h"
#include "transport/wire_layout.h"

namespace forgive {
namespace {

// The layout is a contract with peers and with the switch: a compiler that pads differently must not build.
#define FORGIVE_LAYOUT(structure, field, position) static_assert(offsetof(structure, field) == (position))
#define FORGIVE_COMMON_LAYOUT(structure) \
  FORGIVE_LAYOUT(structure, version, 0); \
  FORGIVE_LAYOUT(structure, type, 1);    \
  FORGIVE_LAYOUT(structure, flags, 2)

static_assert(sizeof(forgive_data_header) == kDataHeaderBytes);
FORGIVE_COMMON_LAYOUT(forgive_data_header);
FORGIVE_LAYOUT(forgive_data_header, payload_length, 4);
FORGIVE_LAYOUT(forgive_data_header, path, 6);
FORGIVE_LAYOUT(forgive_data_header, connection_id, 8);
FORGIVE_LAYOUT(forgive_data_header, stream_offset, 16);
FORGIVE_LAYOUT(forgive_data_header, message_number, 24);
FORGIVE_LAYOUT(forgive_data_header, offset_in_message, 28);
FORGIVE_LAYOUT(forgive_data_header, message_length, 32);
FORGIVE_LAYOUT(forgive_data_header, packet_number, 36);
FORGIVE_LAYOUT(forgive_data_header, send_timestamp, 40);
FORGIVE_LAYOUT(forgive_data_header, payload_crc32c, 44);
FORGIVE_LAYOUT(forgive_data_header, tag, 48);

static_assert(sizeof(forgive_report) == kReportBytes);
FORGIVE_COMMON_LAYOUT(forgive_report);
FORGIVE_LAYOUT(forgive_report, request_count, 4);
FORGIVE_LAYOUT(forgive_report, sack_count, 6);
FORGIVE_LAYOUT(forgive_report, connection_id, 8);
FORGIVE_LAYOUT(forgive_report, report_number, 16);
FORGIVE_LAYOUT(forgive_report, completed_messages, 20);
FORGIVE_LAYOUT(forgive_report, rcv_nxt, 24);
FORGIVE_LAYOUT(forgive_report, posted_messages, 32);
FORGIVE_LAYOUT(forgive_report, same_step_end, 36);
FORGIVE_LAYOUT(forgive_report, step_start_message, 40);
FORGIVE_LAYOUT(forgive_report, newest_packet_number, 44);
FORGIVE_LAYOUT(forgive_report, newest_timestamp, 48);
FORGIVE_LAYOUT(forgive_report, trimmed_packet_number, 52);
FORGIVE_LAYOUT(forgive_report, received_bytes, 56);
FORGIVE_LAYOUT(forgive_report, ce_bytes, 64);
FORGIVE_LAYOUT(forgive_report, tag, 72);

static_assert(sizeof(forgive_range) == 8);
FORGIVE_LAYOUT(forgive_range, offset, 0);
FORGIVE_LAYOUT(forgive_range, length, 4);

static_assert(sizeof(forgive_connect) == kConnectBytes);
FORGIVE_COMMON_LAYOUT(forgive_connect);
FORGIVE_LAYOUT(forgive_connect, max_payload, 4);
FORGIVE_LAYOUT(forgive_connect, attempt, 6);
FORGIVE_LAYOUT(forgive_connect, listen_id, 8);
FORGIVE_LAYOUT(forgive_connect, connection_id, 16);
FORGIVE_LAYOUT(forgive_connect, nonce, 24);
FORGIVE_LAYOUT(forgive_connect, identity, 40);
FORGIVE_LAYOUT(forgive_connect, capabilities, 56);
FORGIVE_LAYOUT(forgive_connect, traffic_class, 60);
FORGIVE_LAYOUT(forgive_connect, rails, 64);
FORGIVE_LAYOUT(forgive_connect, reserved, 66);
FORGIVE_LAYOUT(forgive_connect, tag, 72);

static_assert(sizeof(forgive_rail) == kRailBytes);
static_assert(sizeof(forgive_rail::address) == sizeof(Address::bytes));

static_assert(sizeof(forgive_connect_reply) == kConnectReplyBytes);
FORGIVE_COMMON_LAYOUT(forgive_connect_reply);
FORGIVE_LAYOUT(forgive_connect_reply, max_payload, 4);
FORGIVE_LAYOUT(forgive_connect_reply, status, 6);
FORGIVE_LAYOUT(forgive_connect_reply, connection_id, 8);
FORGIVE_LAYOUT(forgive_connect_reply, peer_connection_id, 16);
FORGIVE_LAYOUT(forgive_connect_reply, nonce, 24);
FORGIVE_LAYOUT(forgive_connect_reply, identity, 40);
FORGIVE_LAYOUT(forgive_connect_reply, capabilities, 56);
FORGIVE_LAYOUT(forgive_connect_reply, scoreboard_bytes, 60);
FORGIVE_LAYOUT(forgive_connect_reply, connector_nonce_echo, 64);
FORGIVE_LAYOUT(forgive_connect_reply, tag, 72);

static_assert(sizeof(forgive_control) == kControlBytes);
FORGIVE_COMMON_LAYOUT(forgive_control);
FORGIVE_LAYOUT(forgive_control, code, 4);
FORGIVE_LAYOUT(forgive_control, reserved, 6);
FORGIVE_LAYOUT(forgive_control, connection_id, 8);
FORGIVE_LAYOUT(forgive_control, control_number, 16);
FORGIVE_LAYOUT(forgive_control, tag, 24);

static_assert(kUnitBytes == FORGIVE_UNIT_BYTES);

// Network byte order, in both directions.
inline uint16_t Swap(uint16_t value) {
  return std::endian::native == std::endian::little ? __builtin_bswap16(value) : value;
}
inline uint32_t Swap(uint32_t value) {
  return std::endian::native == std::endian::little ? __builtin_bswap32(value) : value;
}
inline uint64_t Swap(uint64_t value) {
  return std::endian::native == std::endian::little ? __builtin_bswap64(value) : value;
}

constexpr size_t kConnectionIdPosition = 8;

// The bytes of a type's fixed part, and where its tag stands; 0 for a type that does not exist.
constexpr size_t FixedBytes(PacketType type) {
  switch (type) {
    case PacketType::kData:
      return kDataHeaderBytes;
    case PacketType::kReport:
      return kReportBytes;
    case PacketType::kConnect:
      return kConnectBytes;
    case PacketType::kConnectReply:
      return kConnectReplyBytes;
    case PacketType::kProbe:
    case PacketType::kProbeReply:
    case PacketType::kReset:
      return kControlBytes;
    case PacketType::kInvalid:
      break;
  }
  return 0;
}

// A Connect is as long as a full data packet of its payload size, and at least whole itself.
size_t ConnectBytes(const Connect& connect) {
  return std::max(kDataHeaderBytes + connect.max_payload, connect.head_bytes());
}

// In every packet the tag is the last field of the fixed part.
constexpr size_t TagPosition(PacketType type) { return FixedBytes(type) - sizeof(forgive_be64); }

// What a Tagger remembers the hash of, and what stands between that and the tag of a data header.
constexpr size_t kTagHeadBytes = 16;
constexpr size_t kDataTagWords = (TagPosition(PacketType::kData) - kTagHeadBytes) / 8;

// The tag covers everything but itself; `length` is a multiple of 8.
uint64_t ComputeTag(const SipKey& key, PacketType type, const uint8_t* bytes, size_t length, uint64_t number) {
  const size_t position = TagPosition(type);
  const uint64_t suffix = number >> 32;
  if (length == FixedBytes(type)) return SipHash(key, bytes, position, suffix);
  return SipHash(key, bytes, position, bytes + FixedBytes(type), length - FixedBytes(type), suffix);
}

void WriteTag(const SipKey* key, PacketType type, uint8_t* bytes, size_t length, uint64_t number) {
  const uint64_t tag = key == nullptr ? 0 : Swap(ComputeTag(*key, type, bytes, length, number));
  std::memcpy(bytes + TagPosition(type), &tag, sizeof(tag));
}

// True if the fixed part is whole and says this version and type.
constexpr bool HasFixedPart(const uint8_t* bytes, size_t length, PacketType type) {
  return length >= FixedBytes(type) && bytes[0] == FORGIVE_WIRE_VERSION && bytes[1] == static_cast<uint8_t>(type);
}

// One range at `bytes`, made absolute. False: empty, off the unit grid, or beyond the end of the stream.
bool ParseRange(const uint8_t* bytes, uint64_t rcv_nxt, Range* out) {
  forgive_range wire;
  std::memcpy(&wire, bytes, sizeof(wire));
  const uint64_t offset = Swap(wire.offset);
  const uint64_t length = Swap(wire.length);
  if (length == 0 || length % kUnitBytes != 0 || offset % kUnitBytes != 0) return false;
  if (offset + length > UINT64_MAX - rcv_nxt) return false;
  *out = Range{rcv_nxt + offset, rcv_nxt + offset + length};
  return true;
}

void WriteRange(const Range& range, uint64_t rcv_nxt, uint8_t* out) {
  FORGIVE_CHECK(range.begin >= rcv_nxt && range.end > range.begin);
  FORGIVE_CHECK(range.begin % kUnitBytes == 0 && range.end % kUnitBytes == 0);
  FORGIVE_CHECK(range.begin - rcv_nxt <= UINT32_MAX && range.length() <= UINT32_MAX);
  forgive_range wire;
  wire.offset = Swap(static_cast<uint32_t>(range.begin - rcv_nxt));
  wire.length = Swap(static_cast<uint32_t>(range.length()));
  std::memcpy(out, &wire, sizeof(wire));
}

uint16_t ReportFlags(const Report& report) {
  uint32_t flags = 0;
  if (report.exempt_eligible) flags |= FORGIVE_REPORT_EXEMPT_ELIGIBLE;
  if (report.budget_exhausted) flags |= FORGIVE_REPORT_BUDGET_EXHAUSTED;
  if (report.trimmed) flags |= FORGIVE_REPORT_TRIMMED;
  if (report.closing) flags |= FORGIVE_REPORT_CLOSING;
  if (report.has_newest) flags |= FORGIVE_REPORT_HAS_NEWEST;
  if (report.has_step_start) flags |= FORGIVE_REPORT_STEP_START;
  return static_cast<uint16_t>(flags);
}

constexpr uint32_t High(uint64_t word) { return static_cast<uint32_t>(word >> 32); }
constexpr uint32_t Low(uint64_t word) { return static_cast<uint32_t>(word); }
constexpr uint64_t Join(uint32_t high, uint32_t low) { return uint64_t{high} << 32 | low; }

// The n-th 8 bytes of a packet as a number. What is on the way of every packet is read and written by whole words: to
// read a part of a word that was just written in other parts waits for the store.
inline uint64_t LoadWord(const uint8_t* bytes, size_t n) {
  uint64_t word;
  std::memcpy(&word, bytes + 8 * n, sizeof(word));
  return Swap(word);
}
inline void StoreWord(uint64_t word, size_t n, uint8_t* bytes) {
  word = Swap(word);
  std::memcpy(bytes + 8 * n, &word, sizeof(word));
}

// The first word of a data header or a report, as wire_layout.h has it: `first` and `second` are the two fields
// behind the flags.
constexpr uint64_t HeadWord(PacketType type, uint16_t flags, uint32_t first, uint32_t second) {
  return uint64_t{FORGIVE_WIRE_VERSION} << 56 | uint64_t{static_cast<uint8_t>(type)} << 48 | uint64_t{flags} << 32 |
         uint64_t{first} << 16 | second;
}

// Everything of a report but its ranges.
void ReadReportFields(const uint8_t* bytes, Report* out) {
  const uint64_t head = LoadWord(bytes, 0);
  const uint32_t flags = High(head) & 0xffff;
  out->request_count = Low(head) >> 16;
  out->sack_count = Low(head) & 0xffff;
  out->exempt_eligible = (flags & FORGIVE_REPORT_EXEMPT_ELIGIBLE) != 0;
  out->budget_exhausted = (flags & FORGIVE_REPORT_BUDGET_EXHAUSTED) != 0;
  out->trimmed = (flags & FORGIVE_REPORT_TRIMMED) != 0;
  out->closing = (flags & FORGIVE_REPORT_CLOSING) != 0;
  out->has_newest = (flags & FORGIVE_REPORT_HAS_NEWEST) != 0;
  out->has_step_start = (flags & FORGIVE_REPORT_STEP_START) != 0;
  out->connection_id = LoadWord(bytes, 1);
  out->report_number = High(LoadWord(bytes, 2));
  out->completed_messages = Low(LoadWord(bytes, 2));
  out->rcv_nxt = LoadWord(bytes, 3);
  out->posted_messages = High(LoadWord(bytes, 4));
  out->same_step_end = Low(LoadWord(bytes, 4));
  out->step_start_message = High(LoadWord(bytes, 5));
  out->newest_packet_number = Low(LoadWord(bytes, 5));
  out->newest_timestamp = High(LoadWord(bytes, 6));
  out->trimmed_packet_number = Low(LoadWord(bytes, 6));
  out->received_bytes = LoadWord(bytes, 7);
  out->ce_bytes = LoadWord(bytes, 8);
}

void WriteReportFields(const Report& report, uint8_t* out) {
  StoreWord(HeadWord(PacketType::kReport, ReportFlags(report), report.request_count, report.sack_count), 0, out);
  StoreWord(report.connection_id, 1, out);
  StoreWord(Join(Low(report.report_number), report.completed_messages), 2, out);
  StoreWord(report.rcv_nxt, 3, out);
  StoreWord(Join(report.posted_messages, report.same_step_end), 4, out);
  StoreWord(Join(report.step_start_message, report.newest_packet_number), 5, out);
  StoreWord(Join(report.newest_timestamp, report.trimmed_packet_number), 6, out);
  StoreWord(report.received_bytes, 7, out);
  StoreWord(report.ce_bytes, 8, out);
}

// True if the segment lies in its message and in the stream, on unit boundaries.
bool IsConsistent(const DataHeader& header) {
  if (header.payload_length > kMaxPayloadBytes) return false;
  if (header.offset_in_message % kUnitBytes != 0 || header.stream_offset % kUnitBytes != 0) return false;
  const uint64_t end_in_message = uint64_t{header.offset_in_message} + header.payload_length;
  if (end_in_message > header.message_length) return false;
  // Only a message's last segment may be short of a unit, or empty.
  if (!header.carries_end() && (header.payload_length == 0 || header.payload_length % kUnitBytes != 0)) return false;
  // The message begins in the stream and ends, with its padding and its end slot, before positions run out.
  return header.stream_offset >= header.offset_in_message &&
         header.stream_offset - header.offset_in_message <= UINT64_MAX - (uint64_t{UINT32_MAX} + 2 * kUnitBytes);
}

}  // namespace

PacketType PeekType(const uint8_t* bytes, size_t length, uint8_t* version) {
  *version = length > 0 ? bytes[0] : 0;
  if (length < kControlBytes || bytes[0] != FORGIVE_WIRE_VERSION) return PacketType::kInvalid;
  if (bytes[1] < FORGIVE_TYPE_DATA || bytes[1] > FORGIVE_TYPE_RESET) return PacketType::kInvalid;
  const auto type = static_cast<PacketType>(bytes[1]);
  return length >= FixedBytes(type) ? type : PacketType::kInvalid;
}

uint64_t PeekConnectionId(PacketType type, const uint8_t* bytes) {
  FORGIVE_CHECK(type != PacketType::kInvalid);
  uint64_t id;
  std::memcpy(&id, bytes + kConnectionIdPosition, sizeof(id));
  return Swap(id);
}

bool ParseDataHeader(const uint8_t* bytes, size_t length, DataHeader* out) {
  if (!HasFixedPart(bytes, length, PacketType::kData)) return false;
  const uint64_t head = LoadWord(bytes, 0);
  out->payload_length = static_cast<uint16_t>(head >> 16);
  out->path = static_cast<uint16_t>(head);
  out->connection_id = LoadWord(bytes, 1);
  out->stream_offset = LoadWord(bytes, 2);
  out->message_number = High(LoadWord(bytes, 3));
  out->offset_in_message = Low(LoadWord(bytes, 3));
  out->message_length = High(LoadWord(bytes, 4));
  out->packet_number = Low(LoadWord(bytes, 4));
  out->send_timestamp = High(LoadWord(bytes, 5));
  out->payload_crc32c = Low(LoadWord(bytes, 5));
  // Less than announced is a trim; more is nothing that a sender of ours makes.
  return length <= kDataHeaderBytes + out->payload_length && IsConsistent(*out);
}

bool ParseReport(const uint8_t* bytes, size_t length, Report* out) {
  if (!HasFixedPart(bytes, length, PacketType::kReport)) return false;
  ReadReportFields(bytes, out);
  if (out->request_count > kMaxRequestRanges || out->sack_count > kMaxSackRanges) return false;
  if (length != kReportBytes + sizeof(forgive_range) * (out->request_count + out->sack_count)) return false;
  if (out->rcv_nxt % kUnitBytes != 0) return false;
  const uint8_t* ranges = bytes + kReportBytes;
  for (uint32_t i = 0; i < out->request_count; ++i, ranges += sizeof(forgive_range)) {
    if (!ParseRange(ranges, out->rcv_nxt, &out->requests[i])) return false;
  }
  for (uint32_t i = 0; i < out->sack_count; ++i, ranges += sizeof(forgive_range)) {
    if (!ParseRange(ranges, out->rcv_nxt, &out->sacks[i])) return false;
  }
  return true;
}

bool ParseConnect(const uint8_t* bytes, size_t length, Connect* out) {
  if (!HasFixedPart(bytes, length, PacketType::kConnect)) return false;
  forgive_connect wire;
  std::memcpy(&wire, bytes, sizeof(wire));
  out->max_payload = Swap(wire.max_payload);
  out->attempt = Swap(wire.attempt);
  out->listen_id = Swap(wire.listen_id);
  out->connection_id = Swap(wire.connection_id);
  std::memcpy(out->nonce.data(), wire.nonce, out->nonce.size());
  std::memcpy(out->identity.data(), wire.identity, out->identity.size());
  out->capabilities = Swap(wire.capabilities);
  out->traffic_class = Swap(wire.traffic_class);
  // The padding is the proof that this size passes.
  if (out->max_payload < kUnitBytes || out->max_payload % kUnitBytes != 0) return false;
  const uint16_t rails = Swap(wire.rails);
  if (rails == 1 || rails > kMaxRails) return false;
  out->rail_count = std::max<uint16_t>(rails, 1);
  if (length != ConnectBytes(*out)) return false;
  for (size_t rail = 0; rail < rails; ++rail) {
    std::array<uint8_t, sizeof(Address::bytes)>& address = out->rails[rail].bytes;
    std::memcpy(address.data(), bytes + kConnectBytes + kRailBytes * rail, address.size());
  }
  return true;
}

bool ParseConnectReply(const uint8_t* bytes, size_t length, ConnectReply* out) {
  if (!HasFixedPart(bytes, length, PacketType::kConnectReply) || length != kConnectReplyBytes) return false;
  forgive_connect_reply wire;
  std::memcpy(&wire, bytes, sizeof(wire));
  const uint16_t status = Swap(wire.status);
  if (status > static_cast<uint16_t>(ConnectStatus::kOtherRails)) return false;
  out->max_payload = Swap(wire.max_payload);
  out->status = static_cast<ConnectStatus>(status);
  out->connection_id = Swap(wire.connection_id);
  out->peer_connection_id = Swap(wire.peer_connection_id);
  std::memcpy(out->nonce.data(), wire.nonce, out->nonce.size());
  std::memcpy(out->identity.data(), wire.identity, out->identity.size());
  out->capabilities = Swap(wire.capabilities);
  out->scoreboard_bytes = Swap(wire.scoreboard_bytes);
  out->connector_nonce_echo = Swap(wire.connector_nonce_echo);
  return true;
}

bool ParseControl(const uint8_t* bytes, size_t length, Control* out) {
  uint8_t version = 0;
  out->type = PeekType(bytes, length, &version);
  const bool is_control =
      out->type == PacketType::kProbe || out->type == PacketType::kProbeReply || out->type == PacketType::kReset;
  if (!is_control || length != kControlBytes) return false;
  forgive_control wire;
  std::memcpy(&wire, bytes, sizeof(wire));
  out->code = Swap(wire.code);
  out->connection_id = Swap(wire.connection_id);
  out->control_number = Swap(wire.control_number);
  return true;
}

bool VerifyTag(const SipKey& key, PacketType type, const uint8_t* bytes, size_t length, uint64_t number) {
  const size_t covered = type == PacketType::kData ? kDataHeaderBytes : length;
  if (type == PacketType::kInvalid || covered < FixedBytes(type) || covered % 8 != 0) return false;
  uint64_t tag;
  std::memcpy(&tag, bytes + TagPosition(type), sizeof(tag));
  return Swap(tag) == ComputeTag(key, type, bytes, covered, number);
}

FORGIVE_INLINE const SipState& Tagger::Begin(const uint8_t* bytes) {
  const uint64_t first = SipState::LoadWord(bytes);
  const uint64_t second = SipState::LoadWord(bytes + 8);
  if (first != first_ || second != second_) Learn(first, second);
  return behind_head_;
}

// Inlined, its stores would make the compiler load both words as one, which waits for the two stores that made them.
FORGIVE_RARE void Tagger::Learn(uint64_t first, uint64_t second) {
  first_ = first;
  second_ = second;
  behind_head_ = SipState(key_);
  behind_head_.Absorb(first);
  behind_head_.Absorb(second);
}

uint64_t Tagger::DataTag(const uint8_t* bytes, uint64_t number) {
  return SipFinish({Begin(bytes), bytes + kTagHeadBytes, kDataTagWords, nullptr, 0, number >> 32, kDataHeaderBytes});
}

uint64_t Tagger::ReportTag(const uint8_t* bytes, size_t length, uint64_t number) {
  constexpr size_t kWords = (TagPosition(PacketType::kReport) - kTagHeadBytes) / 8;
  return SipFinish({Begin(bytes), bytes + kTagHeadBytes, kWords, bytes + kReportBytes, (length - kReportBytes) / 8,
                    number >> 32, length});
}

size_t TagBatch::Add(Tagger* tagger, const uint8_t* bytes, uint64_t number) {
  FORGIVE_CHECK(!full());
  lanes_[count_] = {tagger->Begin(bytes), bytes + kTagHeadBytes, number >> 32};
  return count_++;
}

void TagBatch::Finish(uint64_t* tags) {
  SipFinishLanes(lanes_.data(), count_, kDataTagWords, kDataHeaderBytes, tags);
  count_ = 0;
}

void TagBatch::WriteTags() {
  std::array<uint64_t, kCapacity> tags;
  const size_t count = count_;
  Finish(tags.data());
  // The headers lie in memory that WriteDataHeader was given to write.
  for (size_t i = 0; i < count; ++i) StoreWord(tags[i], kDataTagWords, const_cast<uint8_t*>(lanes_[i].words));
}

uint64_t PeekDataTag(const uint8_t* bytes) { return LoadWord(bytes, TagPosition(PacketType::kData) / 8); }

bool VerifyDataTag(Tagger* tagger, const uint8_t* bytes, uint64_t number) {
  return PeekDataTag(bytes) == tagger->DataTag(bytes, number);
}

bool VerifyReportTag(Tagger* tagger, const uint8_t* bytes, size_t length, uint64_t number) {
  return LoadWord(bytes, TagPosition(PacketType::kReport) / 8) == tagger->ReportTag(bytes, length, number);
}

size_t WriteDataHeader(const DataHeader& header, Tagger* tagger, TagBatch* batch, uint8_t* out) {
  StoreWord(HeadWord(PacketType::kData, 0, header.payload_length, header.path), 0, out);
  StoreWord(header.connection_id, 1, out);
  StoreWord(header.stream_offset, 2, out);
  StoreWord(Join(header.message_number, header.offset_in_message), 3, out);
  StoreWord(Join(header.message_length, Low(header.packet_number)), 4, out);
  StoreWord(Join(header.send_timestamp, header.payload_crc32c), 5, out);
  if (batch != nullptr && tagger != nullptr) {
    batch->Add(tagger, out, header.packet_number);
  } else {
    StoreWord(tagger == nullptr ? 0 : tagger->DataTag(out, header.packet_number), 6, out);
  }
  return kDataHeaderBytes;
}

size_t WriteDataHeader(const DataHeader& header, Tagger* tagger, uint8_t* out) {
  return WriteDataHeader(header, tagger, nullptr, out);
}

size_t WriteDataHeader(const DataHeader& header, const SipKey* key, uint8_t* out) {
  if (key == nullptr) return WriteDataHeader(header, static_cast<Tagger*>(nullptr), out);
  Tagger tagger(*key);
  return WriteDataHeader(header, &tagger, out);
}

size_t WriteReport(const Report& report, Tagger* tagger, uint8_t* out) {
  FORGIVE_CHECK(report.request_count <= kMaxRequestRanges);
  FORGIVE_CHECK(report.sack_count <= kMaxSackRanges);
  FORGIVE_CHECK(report.rcv_nxt % kUnitBytes == 0);
  WriteReportFields(report, out);
  uint8_t* end = out + kReportBytes;
  for (uint32_t i = 0; i < report.request_count; ++i, end += sizeof(forgive_range)) {
    WriteRange(report.requests[i], report.rcv_nxt, end);
  }
  for (uint32_t i = 0; i < report.sack_count; ++i, end += sizeof(forgive_range)) {
    WriteRange(report.sacks[i], report.rcv_nxt, end);
  }
  const auto length = static_cast<size_t>(end - out);
  StoreWord(tagger == nullptr ? 0 : tagger->ReportTag(out, length, report.report_number), 9, out);
  return length;
}

size_t WriteReport(const Report& report, const SipKey* key, uint8_t* out) {
  if (key == nullptr) return WriteReport(report, static_cast<Tagger*>(nullptr), out);
  Tagger tagger(*key);
  return WriteReport(report, &tagger, out);
}

size_t WriteConnect(const Connect& connect, const SipKey& secret, uint8_t* out) {
  FORGIVE_CHECK(connect.max_payload >= kUnitBytes && connect.max_payload % kUnitBytes == 0);
  FORGIVE_CHECK(connect.rail_count >= 1 && connect.rail_count <= kMaxRails);
  const size_t length = ConnectBytes(connect);
  const uint16_t rails = connect.rail_count == 1 ? 0 : connect.rail_count;
  forgive_connect wire{};
  wire.version = FORGIVE_WIRE_VERSION;
  wire.type = FORGIVE_TYPE_CONNECT;
  wire.flags = 0;
  wire.max_payload = Swap(connect.max_payload);
  wire.attempt = Swap(connect.attempt);
  wire.listen_id = Swap(connect.listen_id);
  wire.connection_id = Swap(connect.connection_id);
  std::memcpy(wire.nonce, connect.nonce.data(), connect.nonce.size());
  std::memcpy(wire.identity, connect.identity.data(), connect.identity.size());
  wire.capabilities = Swap(connect.capabilities);
  wire.traffic_class = Swap(connect.traffic_class);
  wire.rails = Swap(rails);
  std::memcpy(out, &wire, sizeof(wire));
  std::memset(out + kConnectBytes, 0, length - kConnectBytes);
  for (size_t rail = 0; rail < rails; ++rail) {
    const auto& address = connect.rails[rail].bytes;
    std::memcpy(out + kConnectBytes + kRailBytes * rail, address.data(), address.size());
  }
  WriteTag(&secret, PacketType::kConnect, out, length, 0);
  return length;
}

size_t WriteConnectReply(const ConnectReply& reply, const SipKey& secret, uint8_t* out) {
  forgive_connect_reply wire;
  wire.version = FORGIVE_WIRE_VERSION;
  wire.type = FORGIVE_TYPE_CONNECT_REPLY;
  wire.flags = 0;
  wire.max_payload = Swap(reply.max_payload);
  wire.status = Swap(static_cast<uint16_t>(reply.status));
  wire.connection_id = Swap(reply.connection_id);
  wire.peer_connection_id = Swap(reply.peer_connection_id);
  std::memcpy(wire.nonce, reply.nonce.data(), reply.nonce.size());
  std::memcpy(wire.identity, reply.identity.data(), reply.identity.size());
  wire.capabilities = Swap(reply.capabilities);
  wire.scoreboard_bytes = Swap(reply.scoreboard_bytes);
  wire.connector_nonce_echo = Swap(reply.connector_nonce_echo);
  wire.tag = 0;
  std::memcpy(out, &wire, sizeof(wire));
  WriteTag(&secret, PacketType::kConnectReply, out, kConnectReplyBytes, 0);
  return kConnectReplyBytes;
}

size_t WriteControl(const Control& control, const SipKey* key, uint8_t* out) {
  FORGIVE_CHECK(FixedBytes(control.type) == kControlBytes);
  forgive_control wire;
  wire.version = FORGIVE_WIRE_VERSION;
  wire.type = static_cast<forgive_u8>(control.type);
  wire.flags = 0;
  wire.code = Swap(control.code);
  wire.reserved = 0;
  wire.connection_id = Swap(control.connection_id);
  wire.control_number = Swap(control.control_number);
  wire.tag = 0;
  std::memcpy(out, &wire, sizeof(wire));
  WriteTag(key, control.type, out, kControlBytes, 0);
  return kControlBytes;
}

uint64_t ExpandNumber(uint64_t newest, uint32_t low) {
  const uint32_t ahead = low - static_cast<uint32_t>(newest);
  constexpr uint32_t kHalf = uint32_t{1} << 31;
  if (ahead < kHalf) return newest + ahead;
  const uint32_t behind = 0 - ahead;
  // Numbers begin at 0: what would lie before it is one wrap ahead.
  return behind <= newest ? newest - behind : newest + ahead;
}

uint32_t WireTimestamp(TimePoint now) {
  return static_cast<uint32_t>(static_cast<uint64_t>(now.ns) / FORGIVE_TIMESTAMP_UNIT_NS);
}

Nanoseconds SinceTimestamp(TimePoint now, uint32_t timestamp) {
  const uint32_t units = WireTimestamp(now) - timestamp;
  return Nanoseconds{int64_t{units} * FORGIVE_TIMESTAMP_UNIT_NS};
}

ConnectionKeys DeriveKeys(const SipKey& secret, const Nonce& connector, const Nonce& listener) {
  // A packet under the secret begins with a version, which is never 0: no tag is ever a key.
  std::array<uint8_t, 40> input{0, 'f', 'o', 'r', 'g', 'i', 'v', 'e'};
  std::memcpy(input.data() + 8, connector.data(), connector.size());
  std::memcpy(input.data() + 24, listener.data(), listener.size());
  const auto word = [&](uint64_t number) { return SipHash(secret, input.data(), input.size(), number); };
  return ConnectionKeys{SipKey{word(0), word(1)}, SipKey{word(2), word(3)}};
}

}  // namespace forgive
