// SPDX-License-Identifier: Apache-2.0
// One connection: handshake, liveness and end, around one sending or one receiving half.
#include "transport/connection.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "transport/inline.h"
#include "transport/wire_layout.h"

namespace forgive {
namespace {

// Payload sizes that the handshake falls back to where a path lets nothing larger pass: Ethernet's 1,500 bytes with
// IPv4 and IPv6, IPv6's least MTU, IPv4's.
constexpr uint32_t kFallbackPayloadBytes[] = {1408, 1392, 1168, 448};

// How many unanswered probes, besides the silence itself, it takes to call a peer dead. A process that was stopped
// for longer than the timeout would otherwise blame its peers for its own silence.
constexpr uint32_t kProbesBeforeSilent = 6;
// Bits of Connect::capabilities and ConnectReply::capabilities. Payloads carry a CRC if either side wants it: the
// listener decides, and both then do the same.
constexpr uint32_t kCapabilityPayloadCrc = 1;
// Of ConnectReply::capabilities only: the receiver keeps messages that come before their receives.
constexpr uint32_t kCapabilityEarlyMessages = 2;
// A probe is sent whenever an eighth of the timeout passed in silence.
constexpr int64_t kProbesPerTimeout = 8;

// A reset is sent more than once at close; afterwards it answers what arrives while the connection lingers.
constexpr uint32_t kResetsAtClose = 2;

alignas(64) constexpr uint8_t kPadding[kDataHeaderBytes + kMaxPayloadBytes] = {};

uint64_t NonceHead(const Nonce& nonce) {
  uint64_t head;
  std::memcpy(&head, nonce.data(), sizeof head);
  return head;
}

// The payload size of the n-th attempt at a size: what the local MTU allows first, then the smaller fallbacks, then
// around again.
uint32_t PayloadOfAttempt(uint32_t largest, uint32_t attempt) {
  uint32_t sizes[1 + std::size(kFallbackPayloadBytes)] = {largest};
  uint32_t count = 1;
  for (uint32_t size : kFallbackPayloadBytes) {
    if (size < largest) sizes[count++] = size;
  }
  return sizes[attempt % count];
}

}  // namespace

Connection::Connection(const ConnectionContext& context, ConnectionHandle handle, uint64_t local_id,
                       const Nonce& nonce, const ConnectRequest& request, TimePoint now)
    : context_(&context),
      handle_(handle),
      connector_(true),
      state_(State::kConnecting),
      local_id_(local_id),
      peers_{request.peer},
      own_(request.own),
      secret_(request.ticket.secret),
      nonce_(nonce),
      connector_nonce_head_(NonceHead(nonce)),
      dscp_(request.dscp),
      has_keys_(false),
      cookie_(request.cookie),
      traffic_class_(request.traffic_class),
      next_connect_(now),
      connect_end_(now + context.config->peer_timeout),
      last_heard_(now) {
  const uint32_t allowed = std::min(request.max_payload_bytes, context.config->max_payload_bytes);
  max_payload_ = std::min(allowed, kMaxPayloadBytes) / kUnitBytes * kUnitBytes;
  std::ranges::copy(request.more_peers, peers_.begin() + 1);
  peer_id_ = request.ticket.listen_id;
}

Connection::Connection(const ConnectionContext& context, ConnectionHandle handle, uint64_t local_id,
                       const Nonce& nonce, const Connect& connect, const SipKey& secret, const Address& source,
                       TimePoint now)
    : context_(&context),
      handle_(handle),
      connector_(false),
      state_(State::kReady),
      local_id_(local_id),
      peer_id_(connect.connection_id),
      peers_(connect.rails),
      secret_(secret),
      keys_(DeriveKeys(secret, connect.nonce, nonce)),
      data_tagger_(keys_.to_receiver),
      report_tagger_(keys_.to_sender),
      nonce_(nonce),
      connector_nonce_head_(NonceHead(connect.nonce)),
      max_payload_(std::min<uint32_t>(connect.max_payload, context.config->max_payload_bytes) / kUnitBytes *
                   kUnitBytes),
      has_keys_(true),
      reply_due_(true),
      last_heard_(now) {
  if (context.config->rails == 1) peers_[0] = source;
  control_path_ = ReplyPath(connect);
  payload_crc_ = context.config->payload_crc || (connect.capabilities & kCapabilityPayloadCrc) != 0;
  Config config = *context.config;
  config.payload_crc = payload_crc_;
  receiver_.reset(new (std::nothrow) Receiver(config, max_payload_, handle, local_id, context.steps, context.counters,
                                              context.events));
}

bool Connection::IsAnswerTo(const Connect& connect) const {
  return !connector_ && peer_id_ == connect.connection_id && connector_nonce_head_ == NonceHead(connect.nonce);
}

// ---- Requests ----

PostResult Connection::Post(TimePoint now, const SendRequest& request) {
  if (state_ != State::kReady) return PostResult::kFailed;
  if (!connector_) return PostResult::kUnknownConnection;
  NoteIfIdle();
  if (!sender_->Post(request)) return PostResult::kTryAgain;
  BeginWaiting(now);
  FailIfHalfFailed(now);  // the peer may have closed while nothing was posted
  return PostResult::kAccepted;
}

PostResult Connection::Post(TimePoint now, const ReceiveRequest& request) {
  if (state_ != State::kReady) return PostResult::kFailed;
  if (connector_) return PostResult::kUnknownConnection;
  // The seed forgives under selective repeat only: past a hole go-back-N has nothing that could be acknowledged.
  if (context_->config->recovery == Recovery::kGoBackN && request.exempt_eligible) return PostResult::kFailed;
  NoteIfIdle();
  if (!receiver_->Post(request)) return PostResult::kTryAgain;
  BeginWaiting(now);
  // Without room for its events it is lost: loss recovery deals with it.
  receiver_->TakeEarly(now, !context_->events->HasReserve());
  FailIfHalfFailed(now);
  return PostResult::kAccepted;
}

void Connection::Close(TimePoint now) {
  if (state_ == State::kClosed) return;
  const bool peer_waits = state_ == State::kReady || state_ == State::kFailed;
  if (receiver_) receiver_->Close();
  if (connector_) {
    // The peer must learn that its posted receives will never be filled. A receiver says the same by a report.
    resets_due_ = peer_waits && has_keys_ ? kResetsAtClose : 0;
    if (reset_code_ == 0) reset_code_ = static_cast<uint16_t>(FailReason::kReset);
  }
  state_ = State::kClosed;
  linger_end_ = now + context_->config->linger;
}

// ---- Packets ----

bool Connection::ExpectTag(const DataHeader& header, const uint8_t* bytes, TagBatch* batch, ExpectedTag* expected) {
  if (!receiver_ || !context_->config->tags) return false;
  expected->number = receiver_->ExpandPacketNumber(static_cast<uint32_t>(header.packet_number));
  batch->Add(&data_tagger_, bytes, expected->number);
  return true;
}

void Connection::OnData(TimePoint now, DataHeader* header, const Datagram& datagram, const ExpectedTag* expected) {
  Counters& counters = *context_->counters;
  if (!receiver_) {
    ++counters.unknown_connection;
    return;
  }
  header->packet_number = receiver_->ExpandPacketNumber(static_cast<uint32_t>(header->packet_number));
  if (context_->config->tags) {
    // Packets before it in its burst may have moved the number that its low bits mean.
    const bool computed = expected != nullptr && expected->number == header->packet_number;
    if (computed ? expected->tag != PeekDataTag(datagram.bytes)
                 : !VerifyDataTag(&data_tagger_, datagram.bytes, header->packet_number)) {
      ++counters.bad_tag;
      return;
    }
  }
  if (!receiver_->AcceptPacketNumber(header->packet_number)) {
    ++counters.replayed;
    return;
  }
  Heard(now);
  if (state_ == State::kFailed) {
    resets_due_ = 1;  // the peer has not heard of it yet
    return;
  }
  if (datagram.length == kDataHeaderBytes + header->payload_length) {
    receiver_->OnData(now, *header, datagram.bytes + kDataHeaderBytes, datagram.ce);
  } else if (context_->config->fabric_trims) {
    receiver_->OnTrimmedHeader(now, *header, datagram.ce);
  } else {
    ++counters.malformed;  // nothing on this path cuts packets: a fragment of one is a drop
  }
  FailIfHalfFailed(now);
}

void Connection::OnReport(TimePoint now, Report* report, const Datagram& datagram) {
  Counters& counters = *context_->counters;
  if (!connector_ || state_ == State::kConnecting) {
    ++counters.unknown_connection;
    return;
  }
  if (!sender_) return;  // closed or failed before the handshake ended: a probe is answered
  report->ignore_trim_signal = datagram.ignore_trim_signal;
  report->report_number = sender_->ExpandReportNumber(static_cast<uint32_t>(report->report_number));
  if (context_->config->tags &&
      !VerifyReportTag(&report_tagger_, datagram.bytes, datagram.length, report->report_number)) {
    ++counters.bad_tag;
    return;
  }
  ++counters.reports_received;
  if (state_ != State::kReady) {
    resets_due_ = report->closing ? 0 : 1;  // the peer has not heard of it yet
    return;
  }
  if (!sender_->OnReport(now, *report)) return;  // a replay is no sign of life
  Heard(now);
  FailIfHalfFailed(now);
}

void Connection::OnConnectReply(TimePoint now, const ConnectReply& reply, const Datagram& datagram) {
  Counters& counters = *context_->counters;
  if (!connector_) {
    ++counters.unknown_connection;
    return;
  }
  if (!IsOwnReply(reply, datagram)) return;
  if (state_ != State::kConnecting) {
    ++counters.replayed;
    return;
  }
  if (reply.status != ConnectStatus::kAccepted) {
    FailReason reason = FailReason::kRefused;
    if (reply.status == ConnectStatus::kVersionMismatch) reason = FailReason::kVersionMismatch;
    if (reply.status == ConnectStatus::kOtherRails) reason = FailReason::kOtherRails;
    Fail(now, reason, false);
    return;
  }
  const bool sane = reply.max_payload >= kUnitBytes && reply.max_payload % kUnitBytes == 0 &&
                    reply.max_payload <= max_payload_ && reply.scoreboard_bytes >= reply.max_payload + 2 * kUnitBytes;
  if (!sane) {
    ++counters.malformed;
    return;
  }
  max_payload_ = reply.max_payload;
  peer_id_ = reply.peer_connection_id;
  keys_ = DeriveKeys(secret_, nonce_, reply.nonce);
  data_tagger_ = Tagger(keys_.to_receiver);
  report_tagger_ = Tagger(keys_.to_sender);
  has_keys_ = true;
  MakeSender(reply);
  if (sender_ == nullptr) {
    Fail(now, FailReason::kNoMemory, false);
    // The peer has accepted: it must learn that nothing will come.
    resets_due_ = kResetsAtClose;
    reset_code_ = static_cast<uint16_t>(FailReason::kReset);
    return;
  }
  state_ = State::kReady;
  last_heard_ = now;
  Event event;
  event.kind = Event::Kind::kConnected;
  event.connection = handle_;
  event.cookie = cookie_;
  event.connection_id = peer_id_;
  context_->events->Push(event);
}

// Leaves none where there is no memory for it.
void Connection::MakeSender(const ConnectReply& reply) {
  Config config = *context_->config;
  config.payload_crc = (reply.capabilities & kCapabilityPayloadCrc) != 0;
  config.early_messages &= (reply.capabilities & kCapabilityEarlyMessages) != 0;
  // A peer with more room than this side is configured for does not make it allocate more.
  const uint64_t scoreboard_bytes = std::min<uint64_t>(reply.scoreboard_bytes, config.scoreboard_bytes);
  sender_.reset(new (std::nothrow) Sender(config, max_payload_, scoreboard_bytes, handle_, peer_id_,
                                          context_->counters, context_->events));
  if (sender_ != nullptr && !sender_->has_memory()) sender_.reset();
}

// True if the peer that has the ticket answers this handshake.
bool Connection::IsOwnReply(const ConnectReply& reply, const Datagram& datagram) {
  const bool own = VerifyTag(secret_, PacketType::kConnectReply, datagram.bytes, datagram.length, 0) &&
                   reply.connector_nonce_echo == connector_nonce_head_;
  if (!own) ++context_->counters->bad_tag;
  return own;
}

void Connection::OnForeignReply(TimePoint now, const ConnectReply& reply, const Datagram& datagram) {
  if (state_ != State::kConnecting || !IsOwnReply(reply, datagram)) return;
  Fail(now, FailReason::kVersionMismatch, false);
}

void Connection::OnControl(TimePoint now, const Control& control, const Datagram& datagram) {
  Counters& counters = *context_->counters;
  // Before the handshake has ended there are no keys, also if the connection was closed or failed meanwhile.
  if (!has_keys_) {
    ++counters.unknown_connection;
    return;
  }
  if (context_->config->tags && !VerifyTag(IncomingKey(), control.type, datagram.bytes, datagram.length, 0)) {
    ++counters.bad_tag;
    return;
  }
  if (control.control_number <= control_seen_) {
    ++counters.replayed;
    return;
  }
  control_seen_ = control.control_number;
  Heard(now);
  if (control.type == PacketType::kReset) {
    if (state_ != State::kReady) return;
    FailReason reason = FailReason::kReset;
    for (const FailReason told : {FailReason::kTooLong, FailReason::kDataSwallowed}) {
      if (control.code == static_cast<uint16_t>(told)) reason = told;
    }
    Fail(now, reason, false);
  } else if (control.type == PacketType::kProbe) {
    if (state_ == State::kFailed || (connector_ && state_ == State::kClosed)) {
      resets_due_ = 1;
    } else if (receiver_) {
      receiver_->OnProbe();
    } else {
      probe_reply_due_ = true;
    }
  }
}

// ---- Ends ----

FORGIVE_RARE void Connection::Fail(TimePoint now, FailReason reason, bool tell_peer) {
  if (state_ == State::kFailed || state_ == State::kClosed) return;
  const bool connecting = state_ == State::kConnecting;
  state_ = State::kFailed;
  waiting_ = false;
  if (tell_peer && !connecting) {
    resets_due_ = kResetsAtClose;
    reset_code_ = static_cast<uint16_t>(reason);
  }
  if (receiver_) receiver_->Close();
  last_heard_ = now;
  Event event;
  event.kind = Event::Kind::kFailed;
  event.reason = reason;
  event.connection = handle_;
  event.cookie = connecting ? cookie_ : 0;
  event.connection_id = data_connection_id();
  context_->events->Push(event);
}

void Connection::FailIfHalfFailed(TimePoint now) {
  if (state_ != State::kReady) return;
  if (sender_ && sender_->failed()) {
    Fail(now, sender_->fail_reason(), sender_->fail_reason() == FailReason::kDataSwallowed);
  } else if (receiver_ && receiver_->failed()) {
    Fail(now, receiver_->fail_reason(), true);
  }
}

bool Connection::Unfinished() const {
  return (sender_ && sender_->HasUnfinished()) || (receiver_ && receiver_->HasUnfinished());
}

// ---- Liveness ----

void Connection::Heard(TimePoint now) {
  last_heard_ = now;
  probes_unanswered_ = 0;
}

Nanoseconds Connection::ProbeInterval() const { return context_->config->peer_timeout / kProbesPerTimeout; }

// Whether somebody waited until this post: if not, its silence before the post says nothing.
void Connection::NoteIfIdle() {
  if (!Unfinished()) waiting_ = false;
}

// Silence counts from the moment when there is something to wait for.
void Connection::BeginWaiting(TimePoint now) {
  if (waiting_) return;
  waiting_ = true;
  probes_unanswered_ = 0;
  last_probe_ = now;
  last_heard_ = std::max(last_heard_, now);
}

void Connection::CheckLiveness(TimePoint now) {
  if (!Unfinished()) {
    waiting_ = false;
    return;
  }
  BeginWaiting(now);
  if (now - last_heard_ >= context_->config->peer_timeout && probes_unanswered_ >= kProbesBeforeSilent) {
    Fail(now, FailReason::kPeerSilent, true);
    return;
  }
  if (now >= std::max(last_heard_, last_probe_) + ProbeInterval()) {
    last_probe_ = now;
    ++probes_unanswered_;
    probe_due_ = true;
  }
}

// While this process was stopped it asked nothing: that time is no silence of the peer's.
void Connection::DiscountOwnPause(TimePoint now) {
  const Nanoseconds late = now - next_connect_;
  if (late <= context_->config->connect_retry) return;
  connect_end_ = connect_end_ + late;
  next_connect_ = now;
}

void Connection::OnDeadline(TimePoint now) {
  if (state_ == State::kConnecting) {
    DiscountOwnPause(now);
    if (now >= connect_end_) Fail(now, FailReason::kNoAnswer, false);
    return;
  }
  if (state_ != State::kReady) return;
  if (sender_) {
    sender_->OnDeadline(now);
    if (sender_->TakeProbeDue(now)) probe_due_ = true;
  }
  FailIfHalfFailed(now);
  if (state_ == State::kReady) CheckLiveness(now);
}

bool Connection::HasWork() const {
  if (HasControl() || reply_due_) return true;
  if (state_ == State::kConnecting) return true;
  if (receiver_ && state_ != State::kFailed && receiver_->report_deadline() != kNever) return true;
  return state_ == State::kReady && Unfinished();
}

TimePoint Connection::next_deadline() const {
  if (HasControl() || reply_due_) return TimePoint{0};
  TimePoint next = kNever;
  if (state_ == State::kConnecting) return Earlier(next_connect_, connect_end_);
  if (receiver_ && state_ != State::kFailed) next = receiver_->report_deadline();
  if (state_ != State::kReady) return next;
  if (sender_) next = Earlier(next, sender_->next_deadline());
  if (waiting_ && Unfinished()) next = Earlier(next, std::max(last_heard_, last_probe_) + ProbeInterval());
  return next;
}

// ---- Transmission ----

const SipKey* Connection::OutgoingKey() const {
  if (!context_->config->tags) return nullptr;
  return connector_ ? &keys_.to_receiver : &keys_.to_sender;
}

FORGIVE_INLINE bool Connection::NextPacket(TimePoint now, Transmit* out) {
  out->connection = handle_;
  out->packet_class = PacketClass::kControl;
  out->dscp = dscp_;
  out->path = control_path_;
  out->payload = nullptr;
  out->payload_length = 0;
  if (HasHandshake(now) && NextHandshake(now, out)) return true;
  if (HasControl() && NextControl(now, out)) return true;
  return NextReport(now, out) || NextData(now, out);
}

bool Connection::NextTransmit(TimePoint now, Transmit* out) {
  if (!NextPacket(now, out)) return false;
  out->destination = peers_[context_->config->rails == 1 ? 0 : out->path % context_->config->rails];
  return true;
}

FORGIVE_RARE bool Connection::NextHandshake(TimePoint now, Transmit* out) {
  const Config& config = *context_->config;
  if (state_ == State::kConnecting && now >= next_connect_) {
    Connect connect;
    connect.max_payload =
        static_cast<uint16_t>(PayloadOfAttempt(max_payload_, connect_tries_ / config.connect_tries_per_size));
    connect.attempt = static_cast<uint16_t>(connect_tries_);
    connect.listen_id = peer_id_;
    connect.connection_id = local_id_;
    connect.nonce = nonce_;
    connect.identity = context_->identity;
    connect.capabilities = config.payload_crc ? kCapabilityPayloadCrc : 0;
    connect.traffic_class = traffic_class_;
    connect.rail_count = static_cast<uint16_t>(config.rails);
    connect.rails = own_;
    out->path = static_cast<uint16_t>(connect.attempt % config.rails);
    ++connect_tries_;
    DiscountOwnPause(now);
    next_connect_ = now + config.connect_retry;
    uint8_t packet[kDataHeaderBytes + kMaxPayloadBytes];
    const size_t length = WriteConnect(connect, secret_, packet);
    std::memcpy(out->header.data(), packet, connect.head_bytes());
    out->header_length = static_cast<uint32_t>(connect.head_bytes());
    out->payload = kPadding;
    out->payload_length = static_cast<uint32_t>(length - connect.head_bytes());
    return true;
  }
  if (!reply_due_) return false;
  reply_due_ = false;
  ConnectReply reply;
  reply.max_payload = static_cast<uint16_t>(max_payload_);
  reply.connection_id = peer_id_;
  reply.peer_connection_id = local_id_;
  reply.nonce = nonce_;
  reply.identity = context_->identity;
  reply.capabilities =
      (payload_crc_ ? kCapabilityPayloadCrc : 0) | (KeepsEarlyMessages(config) ? kCapabilityEarlyMessages : 0);
  reply.scoreboard_bytes = static_cast<uint32_t>(config.scoreboard_bytes);
  reply.connector_nonce_echo = connector_nonce_head_;
  out->header_length = static_cast<uint32_t>(WriteConnectReply(reply, secret_, out->header.data()));
  return true;
}

// Where nothing says which paths work: the next one of all.
void Connection::ChangeControlPath() {
  control_path_ = static_cast<uint16_t>(control_path_ + 1u == context_->config->PathCount() ? 0 : control_path_ + 1);
}

void Connection::WriteControlPacket(PacketType type, uint16_t code, Transmit* out) {
  out->path = control_path_;
  ChangeControlPath();
  Control control;
  control.type = type;
  control.code = code;
  control.connection_id = peer_id_;
  control.control_number = ++control_sent_;
  out->header_length = static_cast<uint32_t>(WriteControl(control, OutgoingKey(), out->header.data()));
}

FORGIVE_RARE bool Connection::NextControl(TimePoint, Transmit* out) {
  if (resets_due_ != 0) {
    --resets_due_;
    WriteControlPacket(PacketType::kReset, reset_code_, out);
  } else if (probe_due_) {
    probe_due_ = false;
    WriteControlPacket(PacketType::kProbe, 0, out);
  } else if (probe_reply_due_) {
    probe_reply_due_ = false;
    WriteControlPacket(PacketType::kProbeReply, 0, out);
  } else {
    return false;
  }
  return true;
}

bool Connection::NextReport(TimePoint now, Transmit* out) {
  if (!receiver_ || state_ == State::kFailed) return false;
  if (receiver_->report_deadline() > now) return false;
  Report& report = *context_->report;
  if (!receiver_->NextReport(now, &report)) return false;
  report.connection_id = peer_id_;
  if (receiver_->TakeReportsLost()) ChangeControlPath();
  out->path = control_path_;
  ++context_->counters->reports_sent;
  Tagger* tagger = context_->config->tags ? &report_tagger_ : nullptr;
  out->header_length = static_cast<uint32_t>(WriteReport(report, tagger, out->header.data()));
  return true;
}

bool Connection::NextData(TimePoint now, Transmit* out) {
  if (!sender_ || state_ != State::kReady) return false;
  DataHeader header;
  const uint8_t* payload = nullptr;
  if (!sender_->NextPacket(now, &header, &payload)) return false;
  out->packet_class = PacketClass::kData;
  out->path = header.path;
  Tagger* tagger = context_->config->tags ? &data_tagger_ : nullptr;
  out->header_length = static_cast<uint32_t>(WriteDataHeader(header, tagger, context_->tags, out->header.data()));
  out->payload = payload;
  out->payload_length = header.payload_length;
  return true;
}

}  // namespace forgive
