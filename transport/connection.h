// SPDX-License-Identifier: Apache-2.0
// One connection: handshake, liveness and end, around one sending or one receiving half.
#ifndef FORGIVE_TRANSPORT_CONNECTION_H_
#define FORGIVE_TRANSPORT_CONNECTION_H_

#include <cstdint>
#include <memory>

#include "transport/counters.h"
#include "transport/datagram.h"
#include "transport/receiver.h"
#include "transport/requests.h"
#include "transport/sender.h"

namespace forgive {

// What every connection of an endpoint shares; owned by the endpoint.
struct ConnectionContext {
  const Config* config = nullptr;
  StepTable* steps = nullptr;
  Counters* counters = nullptr;
  EventQueue* events = nullptr;
  Report* report = nullptr;  // where the next report is put together
  // Of the data headers that leave in a burst: the endpoint writes them at its end. nullptr: a packet leaves alone.
  TagBatch* tags = nullptr;
  Identity identity{};
};

// A connection of an endpoint: the connector sends, the listener's side receives.
//
// States: connecting (connector only) -> ready -> failed; closed from any of them. A closed connection lingers
// without any memory of the user's and answers what the peer still sends, so that a lost last report or a lost reset
// does not leave the peer waiting.
class Connection {
 public:
  enum class State : uint8_t { kConnecting, kReady, kFailed, kClosed };

  // The connector's side. `local_id` and `nonce` are fresh randomness.
  Connection(const ConnectionContext& context, ConnectionHandle handle, uint64_t local_id, const Nonce& nonce,
             const ConnectRequest& request, TimePoint now);
  // The listener's side: a verified Connect from `source`, answered by Reply().
  Connection(const ConnectionContext& context, ConnectionHandle handle, uint64_t local_id, const Nonce& nonce,
             const Connect& connect, const SipKey& secret, const Address& source, TimePoint now);
  // Else nothing but the destructor may be called.
  bool has_memory() const { return connector_ || (receiver_ != nullptr && receiver_->has_memory()); }

  State state() const { return state_; }
  ConnectionHandle handle() const { return handle_; }
  uint64_t local_id() const { return local_id_; }
  // As its data carry it on the wire.
  uint64_t data_connection_id() const { return receiver_ ? local_id_ : peer_id_; }
  // True if this connection was accepted for that Connect.
  bool IsAnswerTo(const Connect& connect) const;
  bool sends() const { return connector_; }
  Sender* sender() { return sender_.get(); }
  const Sender* sender() const { return sender_.get(); }
  Receiver* receiver() { return receiver_.get(); }
  uint32_t max_payload() const { return max_payload_; }

  PostResult Post(TimePoint now, const SendRequest& request);
  PostResult Post(TimePoint now, const ReceiveRequest& request);
  void Close(TimePoint now);
  TimePoint linger_end() const { return linger_end_; }

  // Packets for this connection; tags are verified here, and packet and report numbers completed.
  // What was computed of a data header before its turn came: its tag, if its full number is what it was taken for.
  struct ExpectedTag {
    uint64_t number = 0;
    uint64_t tag = 0;
  };
  // `expected`: nullptr where nothing was computed.
  void OnData(TimePoint now, DataHeader* header, const Datagram& datagram, const ExpectedTag* expected);
  // Adds the header to a batch of tags. False: there is nothing to compute.
  bool ExpectTag(const DataHeader& header, const uint8_t* bytes, TagBatch* batch, ExpectedTag* expected);
  void OnReport(TimePoint now, Report* report, const Datagram& datagram);
  void OnConnectReply(TimePoint now, const ConnectReply& reply, const Datagram& datagram);
  // A ConnectReply of another version, its fields read by this version's layout (the handshake's never changes).
  void OnForeignReply(TimePoint now, const ConnectReply& reply, const Datagram& datagram);
  void OnControl(TimePoint now, const Control& control, const Datagram& datagram);
  // A repeated Connect gets the same answer.
  void SendReplyAgain(const Connect& connect) {
    reply_due_ = true;
    control_path_ = ReplyPath(connect);
  }

  void OnDeadline(TimePoint now);
  bool NextTransmit(TimePoint now, Transmit* out);
  TimePoint next_deadline() const;
  // False: nothing to do until a post or a datagram.
  bool HasWork() const;

 private:
  bool Unfinished() const;
  void Fail(TimePoint now, FailReason reason, bool tell_peer);
  void FailIfHalfFailed(TimePoint now);
  void CheckLiveness(TimePoint now);
  void Heard(TimePoint now);  // something that only the live peer can have sent
  void NoteIfIdle();
  void BeginWaiting(TimePoint now);
  void DiscountOwnPause(TimePoint now);
  bool IsOwnReply(const ConnectReply& reply, const Datagram& datagram);
  void MakeSender(const ConnectReply& reply);
  Nanoseconds ProbeInterval() const;
  bool HasHandshake(TimePoint now) const {
    return reply_due_ || (state_ == State::kConnecting && now >= next_connect_);
  }
  void ChangeControlPath();
  // The reply leaves by the rail that brought its Connect: the other direction of another one may be dead. And each
  // by the next path, since nothing says which work.
  uint16_t ReplyPath(const Connect& connect) const {
    return static_cast<uint16_t>(connect.attempt % context_->config->PathCount());
  }
  bool HasControl() const { return resets_due_ != 0 || probe_due_ || probe_reply_due_; }
  bool NextPacket(TimePoint now, Transmit* out);
  bool NextHandshake(TimePoint now, Transmit* out);
  bool NextControl(TimePoint now, Transmit* out);
  bool NextReport(TimePoint now, Transmit* out);
  bool NextData(TimePoint now, Transmit* out);
  void WriteControlPacket(PacketType type, uint16_t code, Transmit* out);
  const SipKey* OutgoingKey() const;
  const SipKey& IncomingKey() const { return connector_ ? keys_.to_sender : keys_.to_receiver; }

  const ConnectionContext* context_;
  const ConnectionHandle handle_;
  const bool connector_;
  State state_;
  uint64_t local_id_;
  uint64_t peer_id_ = 0;
  std::array<Address, kMaxRails> peers_{};  // by rail
  std::array<Address, kMaxRails> own_{};    // of a connector: what its Connects say
  SipKey secret_;
  ConnectionKeys keys_;
  Tagger data_tagger_;
  Tagger report_tagger_;
  Nonce nonce_;
  uint64_t connector_nonce_head_ = 0;
  uint32_t max_payload_ = 0;
  const uint8_t dscp_ = kDscpOfDriver;  // of its data packets
  bool has_keys_;                       // the connector: once the listener has accepted
  std::unique_ptr<Sender> sender_;      // of a connector with keys, unless there was no memory for it
  std::unique_ptr<Receiver> receiver_;

  // Handshake, connector's side.
  uint64_t cookie_ = 0;
  uint32_t traffic_class_ = 0;
  uint32_t connect_tries_ = 0;
  TimePoint next_connect_{};
  TimePoint connect_end_ = kNever;
  // Handshake, listener's side.
  bool reply_due_ = false;
  bool payload_crc_ = false;

  // Liveness: counted only while requests are unfinished.
  TimePoint last_heard_{};
  TimePoint last_probe_{};
  uint32_t probes_unanswered_ = 0;
  bool waiting_ = false;

  // Control packets.
  uint64_t control_sent_ = 0;
  uint16_t control_path_ = 0;  // of what is no data, but a Connect: the first of a rail
  uint64_t control_seen_ = 0;
  bool probe_due_ = false;
  bool probe_reply_due_ = false;
  uint32_t resets_due_ = 0;
  uint16_t reset_code_ = 0;
  TimePoint linger_end_ = kNever;
};

}  // namespace forgive

#endif  // FORGIVE_TRANSPORT_CONNECTION_H_
