// SPDX-License-Identifier: Apache-2.0
// Parsing, writing and tagging of every packet: the only code that knows byte order.
#ifndef FORGIVE_TRANSPORT_WIRE_H_
#define FORGIVE_TRANSPORT_WIRE_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "transport/address.h"
#include "transport/config.h"
#include "transport/siphash.h"
#include "transport/units.h"

namespace forgive {

inline constexpr size_t kDataHeaderBytes = 56;
inline constexpr size_t kReportBytes = 80;  // without ranges
inline constexpr size_t kMaxReportBytes = kReportBytes + 8 * (kMaxSackRanges + kMaxRequestRanges);
inline constexpr size_t kConnectBytes = 80;  // without rails and padding
inline constexpr size_t kRailBytes = 32;     // of each rail in a Connect
inline constexpr size_t kMaxConnectHeadBytes = kConnectBytes + kRailBytes * kMaxRails;
inline constexpr size_t kConnectReplyBytes = 80;
inline constexpr size_t kControlBytes = 32;

enum class PacketType : uint8_t {
  kInvalid = 0,
  kData = 1,
  kReport = 2,
  kConnect = 3,
  kConnectReply = 4,
  kProbe = 5,
  kProbeReply = 6,
  kReset = 7,
};

// A range of stream positions, or of bytes in a message, as the user says. Empty when begin == end.
struct Range {
  uint64_t begin = 0;
  uint64_t end = 0;
  constexpr uint64_t length() const { return end - begin; }
  friend constexpr bool operator==(const Range&, const Range&) = default;
};

using Nonce = std::array<uint8_t, 16>;
using Identity = std::array<uint8_t, 16>;

struct DataHeader {
  uint16_t payload_length = 0;
  uint16_t path = 0;
  uint64_t connection_id = 0;
  uint64_t stream_offset = 0;
  uint32_t message_number = 0;
  uint32_t offset_in_message = 0;
  uint32_t message_length = 0;
  uint64_t packet_number = 0;  // parsed: the low 32 bits, until ExpandNumber
  uint32_t send_timestamp = 0;
  uint32_t payload_crc32c = 0;

  // True if this segment is the message's last: it then also settles the padding and the end slot.
  constexpr bool carries_end() const { return offset_in_message + payload_length == message_length; }
};

struct Report {
  uint64_t connection_id = 0;
  uint64_t report_number = 0;  // parsed: the low 32 bits, until ExpandNumber
  bool exempt_eligible = false;
  bool budget_exhausted = false;
  bool trimmed = false;
  bool closing = false;
  bool has_newest = false;
  bool has_step_start = false;
  bool ignore_trim_signal = false;  // not on the wire: Datagram::ignore_trim_signal
  uint32_t completed_messages = 0;
  uint64_t rcv_nxt = 0;
  uint32_t posted_messages = 0;
  uint32_t same_step_end = 0;
  uint32_t step_start_message = 0;
  uint32_t newest_packet_number = 0;
  uint32_t newest_timestamp = 0;
  uint32_t trimmed_packet_number = 0;
  uint64_t received_bytes = 0;
  uint64_t ce_bytes = 0;
  uint32_t request_count = 0;
  uint32_t sack_count = 0;
  std::array<Range, kMaxRequestRanges> requests;  // absolute stream positions
  std::array<Range, kMaxSackRanges> sacks;        // absolute stream positions, newest first
};

enum class ConnectStatus : uint16_t { kAccepted = 0, kVersionMismatch = 1, kOverLimit = 2, kOtherRails = 3 };

struct Connect {
  uint16_t max_payload = 0;
  uint16_t attempt = 0;
  uint64_t listen_id = 0;
  uint64_t connection_id = 0;
  Nonce nonce{};
  Identity identity{};
  uint32_t capabilities = 0;
  uint32_t traffic_class = 0;
  // The connector's rails and, of several, their addresses: the listener believes no other.
  uint16_t rail_count = 1;
  std::array<Address, kMaxRails> rails{};

  // What stands before the zeros.
  size_t head_bytes() const { return kConnectBytes + (rail_count == 1 ? 0 : kRailBytes * rail_count); }
};

struct ConnectReply {
  uint16_t max_payload = 0;
  ConnectStatus status = ConnectStatus::kAccepted;
  uint64_t connection_id = 0;
  uint64_t peer_connection_id = 0;
  Nonce nonce{};
  Identity identity{};
  uint32_t capabilities = 0;
  uint32_t scoreboard_bytes = 0;
  uint64_t connector_nonce_echo = 0;
};

struct Control {
  PacketType type = PacketType::kInvalid;
  uint16_t code = 0;
  uint64_t connection_id = 0;
  uint64_t control_number = 0;
};

// The type of a packet of this version whose fixed part is whole; kInvalid for anything else. `version` gets what
// the packet says, so that another version can be told from noise.
PacketType PeekType(const uint8_t* bytes, size_t length, uint8_t* version);
// The connection id of any packet that PeekType accepted (for Connect: the listen id).
uint64_t PeekConnectionId(PacketType type, const uint8_t* bytes);

// Parsers read; they return false for what is inconsistent in itself (counts against length, a data header whose
// segment leaves its message or is not aligned). They do not verify tags.
bool ParseDataHeader(const uint8_t* bytes, size_t length, DataHeader* out);
bool ParseReport(const uint8_t* bytes, size_t length, Report* out);
bool ParseConnect(const uint8_t* bytes, size_t length, Connect* out);
bool ParseConnectReply(const uint8_t* bytes, size_t length, ConnectReply* out);
bool ParseControl(const uint8_t* bytes, size_t length, Control* out);

// Verifies the tag of a packet of this type. `number` is the full 64-bit packet or report number for data and
// reports, else 0. Data: over the 56-byte header; all others over `length`, the whole packet.
bool VerifyTag(const SipKey& key, PacketType type, const uint8_t* bytes, size_t length, uint64_t number);

// Tags the data headers or the reports of one connection. It remembers the hash behind the first two words, which
// hold the type, the lengths and the connection id: packets that follow one another mostly share them, and a tag
// costs a fifth less.
class Tagger {
 public:
  Tagger() : Tagger(SipKey{}) {}
  explicit Tagger(const SipKey& key) : key_(key), behind_head_(key) {}

  // Of a data header or a report as it is written, without its tag. `number` and `length` as for VerifyTag.
  uint64_t DataTag(const uint8_t* bytes, uint64_t number);
  uint64_t ReportTag(const uint8_t* bytes, size_t length, uint64_t number);

 private:
  friend class TagBatch;

  const SipState& Begin(const uint8_t* bytes);
  void Learn(uint64_t first, uint64_t second);

  SipKey key_;
  uint64_t first_ = 0;  // no packet begins with version 0
  uint64_t second_ = 0;
  SipState behind_head_;
};

// The tags of several data headers, of one connection or of many: four computed together cost little more than one.
class TagBatch {
 public:
  // One look of SipFinishLanes. With more, the copies of a burst's payloads would follow one another without a hash to
  // compute while they wait for memory (core_bench: a twentieth more time a packet with 16).
  static constexpr size_t kCapacity = 4;

  bool empty() const { return count_ == 0; }
  bool full() const { return count_ == kCapacity; }
  // Takes the header at `bytes`, which stays until Finish or WriteTags, with its full number. Returns its place.
  size_t Add(Tagger* tagger, const uint8_t* bytes, uint64_t number);
  // Computes the tags; afterwards the batch is empty. tags[i] gets the tag of the header at place i.
  void Finish(uint64_t* tags);
  // The same, into the headers themselves; all of them were added from writable memory.
  void WriteTags();

 private:
  std::array<SipLane, kCapacity> lanes_;
  size_t count_ = 0;
};

// VerifyTag of packets that ParseDataHeader and ParseReport accepted.
bool VerifyDataTag(Tagger* tagger, const uint8_t* bytes, uint64_t number);
// The tag that a data header carries.
uint64_t PeekDataTag(const uint8_t* bytes);
bool VerifyReportTag(Tagger* tagger, const uint8_t* bytes, size_t length, uint64_t number);

// Writers write the packet with its tag and return its length. What a parser would refuse, a writer treats as a bug:
// a report's rcv_nxt and the ends of its ranges lie on unit boundaries, its ranges at or above rcv_nxt and not empty.
// A key or tagger of nullptr leaves the tag zero (Config::tags).
size_t WriteDataHeader(const DataHeader& header, Tagger* tagger, uint8_t* out);
// Leaves the tag to a batch, which is not full; nullptr: writes it at once.
size_t WriteDataHeader(const DataHeader& header, Tagger* tagger, TagBatch* batch, uint8_t* out);
size_t WriteDataHeader(const DataHeader& header, const SipKey* key, uint8_t* out);
size_t WriteReport(const Report& report, Tagger* tagger, uint8_t* out);
size_t WriteReport(const Report& report, const SipKey* key, uint8_t* out);
// `out` has room for the padded packet: kDataHeaderBytes + connect.max_payload bytes, at least head_bytes().
size_t WriteConnect(const Connect& connect, const SipKey& secret, uint8_t* out);
size_t WriteConnectReply(const ConnectReply& reply, const SipKey& secret, uint8_t* out);
size_t WriteControl(const Control& control, const SipKey* key, uint8_t* out);

// The 64-bit number nearest to `newest` whose low 32 bits are `low` (as QUIC recovers packet numbers).
uint64_t ExpandNumber(uint64_t newest, uint32_t low);

// The wire's timestamp of a moment, and the time between two of them (wrapping at 274 s).
uint32_t WireTimestamp(TimePoint now);
Nanoseconds SinceTimestamp(TimePoint now, uint32_t timestamp);

// The two directional keys of a connection (docs/wire-format.md, Keys).
struct ConnectionKeys {
  SipKey to_receiver;  // data, probes, resets of the sender
  SipKey to_sender;    // reports, probes, resets of the receiver
};
ConnectionKeys DeriveKeys(const SipKey& secret, const Nonce& connector, const Nonce& listener);

}  // namespace forgive

#endif  // FORGIVE_TRANSPORT_WIRE_H_
