// SPDX-License-Identifier: Apache-2.0
// What must be true of every host after every datagram: the seed's rules on arrays, beside what the transport did.
#ifndef FORGIVE_TESTS_DST_ORACLE_H_
#define FORGIVE_TESTS_DST_ORACLE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "journal.h"
#include "plan.h"
#include "transport/wire.h"
#include "world.h"

namespace forgive::dst {

// A step of one host, as its table should have it.
struct Account {
  StepAccount facts;
  uint32_t life = 0;  // of its host
};

struct MessageState {
  MessagePlan plan;
  const uint8_t* sent = nullptr;
  size_t buffer = 0;   // its place in the arena
  uint64_t start = 0;  // unit of the stream
  uint64_t units = 0;  // of payload; the end slot follows
  uint64_t step = 0;
  Account* account = nullptr;  // nullptr: reliable
  bool eligible = false;
  bool forgivable = false;
  uint32_t contributions = 1;
  uint64_t settled_units = 0;
  bool done = false;  // at the receiver
  bool told_received = false;
  bool told_sent = false;
  bool exempt = false;  // the last word that the sender has heard on it
  uint64_t end_slot() const { return start + units; }
  uint64_t end() const { return start + units + 1; }
};

enum class EndState : uint8_t { kConnecting, kOpen, kFailed, kClosed, kGone };

// One side of a stream.
struct End {
  int host = 0;
  uint32_t life = 0;  // of the host: it may die and come back
  EndState state = EndState::kConnecting;
  ConnectionHandle handle;
  uint64_t id = 0;       // as packets to it carry it
  TimePoint last_heard;  // something fresh and genuine arrived
  bool alive() const { return state == EndState::kConnecting || state == EndState::kOpen; }
};

// A data packet as it reached its receiver.
struct Arrived {
  DataHeader header;
  bool whole = false;
  bool intact = false;  // what is there of its payload
  bool ce = false;
};

// One connection from its handshake to its end.
struct StreamState {
  StreamPlan plan;
  End sender, receiver;
  ListenTicket ticket;
  Nonce connector_nonce{};
  ConnectionKeys keys;
  bool has_keys = false;
  std::vector<MessageState> messages;
  // Receiver. Units of the stream: kReceived, kForgiven, kCounted.
  std::vector<uint8_t> units;
  uint32_t receives_posted = 0;
  uint32_t completed = 0;
  uint64_t base = 0;
  uint64_t received_bytes = 0, ce_bytes = 0;
  bool abandoned = false;             // its buffers are the application's again
  bool too_long = false;              // a message longer than its buffer has arrived
  std::map<uint32_t, Arrived> early;  // by message: what waits for its receive
  std::vector<bool> data_numbers;
  uint64_t newest_data_number = 0;
  // Trimmed headers that no report has told of; too many of them may be told of together.
  struct Trimmed {
    uint64_t number = 0;
    uint64_t begin = 0, end = 0;  // units of payload
  };
  std::deque<Trimmed> trimmed;
  bool trims_overflow = false;
  std::deque<Event> forgiven;  // ledger lines that must be told
  // Sender.
  uint32_t sends_posted = 0;
  uint32_t told_sent = 0;
  uint32_t newest_begun = 0;
  bool any_begun = false;
  uint64_t next_data_number = 0;
  uint32_t newest_timestamp = 0;
  TimePoint made_at;       // by its own clock
  uint128 paced_bits = 0;  // what it is ahead of the link's rate, times 10^9
  TimePoint paced_at;
  uint64_t highest_position = 0;  // one past the last byte sent, as a unit
  std::vector<bool> report_numbers;
  uint64_t newest_report_number = 0;
  TimePoint newest_report_time;  // by its own clock
  uint32_t newest_report_begin = 0;
  bool word_is_exempt = false;
  uint32_t credit = 0;
  uint64_t rcv_nxt_heard = 0;
  uint64_t ce_heard = 0;
  bool heard_closing = false;

  const End& end(bool sends) const { return sends ? sender : receiver; }
  End& end(bool sends) { return sends ? sender : receiver; }
  bool HasUnfinished(bool sends) const { return sends ? sends_posted != told_sent : receives_posted != completed; }
};

class Oracle {
 public:
  static constexpr uint8_t kReceived = 1, kForgiven = 2, kSettled = 3, kCounted = 4;

  Oracle(testing::World* world, Journal* journal, Tally* tally);

  void Begin(const Plan* plan);

  // What the applications did.
  size_t AddStream(const StreamPlan& plan);
  StreamState& stream(size_t index) { return streams_[index]; }
  size_t streams() const { return streams_.size(); }
  uint8_t* BufferOf(const MessageState& message) { return arena_.get() + message.buffer; }
  uint32_t life(int host) const { return lives_[static_cast<size_t>(host)]; }
  void OnReceivePosted(StreamState* stream, const ReceiveRequest& request);
  void OnClosed(StreamState* stream, bool sends);
  void OnDied(int host);
  void OnStepBegin(int host, const StepPlan& plan, bool may_overlap, StepResult result);
  void OnStepEnd(int host, uint64_t step, StepResult result);
  // The newest step of the host; 0: none.
  uint64_t NewestStep(int host) const;
  bool IsOpen(int host, uint64_t step) { return FindOpen(host, step) != nullptr; }

  // What the world did.
  void BeforeDatagrams(int host);
  // `flight` was given to its host in a burst of `burst`, the rest of which must change nothing: forgeries, copies.
  void AfterDatagrams(const testing::Flight& flight, uint64_t burst);
  void OnTransmit(int host, const Transmit& transmit);
  void OnEvent(int host, const Event& event);
  void AfterHost(int host);
  // At the end of a schedule, when nothing is left to do.
  void CheckAtRest();
  void CheckMemory();

  // As if every connection's numbers began at 0.
  bool ReadData(const uint8_t* bytes, size_t length, DataHeader* out) const;
  bool ReadReport(const uint8_t* bytes, size_t length, Report* out) const;

  StreamState* FindSender(int host, ConnectionHandle handle);
  StreamState* FindSenderById(int host, uint64_t id);
  StreamState* FindReceiverById(int host, uint64_t id);
  // Rises with every datagram and event: two runs of a seed must agree.
  uint64_t digest() const { return digest_; }
  // Rises whenever something has come closer to its end.
  uint64_t progress() const { return progress_; }

 private:
  Account* Find(int host, uint64_t step);
  Account* FindOpen(int host, uint64_t step);
  bool HoldsEvents(int host) const { return world_->host(host).holds_events_until > world_->now(); }
  StreamState* FindReceiver(int host, ConnectionHandle handle);
  uint64_t CostOf(int host, const MessageState& message) const;
  const Config& ConfigOf(int host) const { return plan_->configs[static_cast<size_t>(host)]; }
  uint8_t* ExpectedOf(const MessageState& message) { return expected_.get() + message.buffer; }
  void GiveBack(const MessageState& message);
  void CountWrap(uint64_t number, Count count) {
    if (number != 0 && static_cast<uint32_t>(plan_->first_number + number) == 0) ++(*tally_)[count];
  }
  void Mix(uint64_t value) { digest_ = (digest_ ^ value) * 0x9e3779b97f4a7c15u + (digest_ >> 29); }

  // oracle_receiver.cc
  enum class Fate : uint8_t {
    kRefused,
    kWhole,
    kTrimmed,
    kBadCrc,
    kOutOfWindow,
    kMalformed,
    kTooLong,
    kDropped,
    kEarly
  };
  void AfterData(const testing::Flight& flight);
  bool TakesNumber(StreamState* stream, uint64_t number);
  bool KeepsEarly(const StreamState& stream) const;
  Fate FateOf(StreamState* stream, const Arrived& arrived);
  void ApplyFate(StreamState* stream, const Arrived& arrived, Fate fate);
  void TakeEarly(StreamState* stream, uint32_t number);
  void CheckFate(const StreamState& stream, Fate fate);
  void ApplyWhole(StreamState* stream, MessageState* message, const DataHeader& header, bool ce);
  void ApplyTrim(StreamState* stream, MessageState* message, const DataHeader& header);
  bool CountTrimmed(StreamState* stream, MessageState* message, uint64_t begin, uint64_t end);
  bool ExpectDecision(const StreamState& stream, const MessageState& message, uint64_t missing, bool open,
                      bool* forgiven);
  uint64_t Settle(StreamState* stream, MessageState* message, uint64_t begin, uint64_t end, uint8_t how);
  void Uncount(StreamState* stream, MessageState* message, uint64_t bytes);
  void ForgetMissing(const StreamState& stream, const MessageState& message, const DataHeader& header);
  void CheckTouched(const StreamState& stream, const MessageState& message, const DataHeader& header);
  void CheckAccount(int host, const Account& account);
  void CheckReport(StreamState* stream, const Transmit& transmit);
  void CheckReportRanges(const StreamState& stream, const Report& report);
  void CheckTrimReport(StreamState* stream, const Report& report);
  void CheckFlags(const StreamState& stream, const Report& report);
  void AbandonReceives(StreamState* stream);
  void OnForgiven(int host, const Event& event);
  void OnReceived(int host, const Event& event);
  static uint64_t BytesOf(const MessageState& message, uint64_t unit);

  // oracle_sender.cc
  void AfterReport(const testing::Flight& flight, const Report& report, uint64_t burst);
  void CheckSignals(const StreamState& stream, const Report& report, bool newest);
  void TakeWords(StreamState* stream, const Report& report);
  void CheckData(StreamState* stream, const Transmit& transmit);
  bool KeepsPace(StreamState* stream, uint32_t payload, uint32_t max_payload);
  void CheckSender(StreamState* stream);
  void CheckRoundTrip(const StreamState& stream, Nanoseconds rtt);
  void LearnHandshake(int host, const Transmit& transmit);
  void OnSent(int host, const Event& event);
  void OnFailed(int host, const Event& event);
  void CheckFailReason(const StreamState& stream, bool sends, FailReason reason);
  void AddTally(int host);

  testing::World* const world_;
  Journal* const journal_;
  Tally* const tally_;
  const Plan* plan_ = nullptr;
  std::vector<uint8_t> pattern_;
  std::unique_ptr<uint8_t[]> arena_, expected_;
  size_t arena_used_ = 0;
  std::deque<StreamState> streams_;
  std::vector<uint32_t> lives_;
  std::vector<std::deque<Account>> accounts_;  // of each host, by rising number
  std::vector<uint64_t> last_closed_;          // step, of each host; 0: none
  Counters before_;
  uint64_t datagrams_ = 0;
  uint64_t digest_ = 0;
  uint64_t progress_ = 0;

 public:
  void CountEndpoint(int host) { AddTally(host); }
};

}  // namespace forgive::dst

#endif  // FORGIVE_TESTS_DST_ORACLE_H_
