// SPDX-License-Identifier: Apache-2.0
// What the core alone costs a packet: two endpoints back to back in memory, both sides together.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "transport/check.h"
#include "transport/endpoint.h"
#include "transport/turns.h"

// The conditions of every figure here: 4,096-byte segments, tags on, payload CRC off, one report for 16 packets, a
// clock that the bench turns by hand. Nothing crosses a socket. Data move as an engine moves them: a burst of 16 from
// the sender, their headers copied into the buffers they "arrive" in, a burst into the receiver, its report back. The
// payload part of an arrival buffer never changes; without the CRC nobody looks.

namespace forgive {
namespace {

constexpr uint32_t kSegmentBytes = kMaxPayloadBytes;
constexpr uint32_t kPacketsPerReport = 16;
constexpr uint32_t kBurst = kPacketsPerReport;
// Where a driver puts a packet: buffers of whole cache lines, one for each packet of a burst.
constexpr size_t kArrivalBytes = (kDataHeaderBytes + kSegmentBytes + 63) / 64 * 64;
constexpr uint32_t kMessageBytes = 1 << 20;
// Messages posted on both sides: NCCL posts four receives of 1 MiB into the 4 MiB buffer of a ring connection. That
// does not fit the nearest caches.
constexpr size_t kMessages = 4;
// One packet's time at about 17 Gbit/s: below the rate that congestion control starts with, so nothing is paced.
constexpr Nanoseconds kPacketTime = Microseconds(2);

Config BenchConfig() {
  Config config;
  config.payload_crc = false;
  config.report_every_packets = kPacketsPerReport;
  return config;
}

Address AddressOf(size_t host) {
  Address address;
  address.bytes[0] = static_cast<uint8_t>(host + 1);
  return address;
}

// Host 0 sends to host 1.
class Pair {
 public:
  Pair(const Config& config, bool with_memory) : arrivals_(kBurst * kArrivalBytes, 0x5a) {
    for (size_t host = 0; host < 2; ++host) {
      std::array<uint8_t, 32> entropy{};
      entropy[0] = static_cast<uint8_t>(host + 1);
      steps_[host] = std::make_unique<StepTable>(config.max_steps, config.forgiveness_probability, host);
      endpoints_[host] = std::make_unique<Endpoint>(config, steps_[host].get(), entropy, Identity{});
    }
    if (with_memory) memory_.resize(kMessages * size_t{kMessageBytes});
    source_.resize(kMessageBytes);
    Connect();
  }

  StepTable& receiver_steps() { return *steps_[1]; }
  const Counters& sender_counters() const { return endpoints_[0]->counters(); }
  const Counters& receiver_counters() const { return endpoints_[1]->counters(); }

  // Keeps kMessages posted on both sides from here on.
  void PostMessages() {
    for (size_t i = 0; i < kMessages; ++i) {
      PostReceive(i);
      PostSend();
    }
    MoveReports();
  }

  // A burst of data packets, at most kBurst, from the sender's state into the receiver's, whole or with their payloads
  // cut on the way. False: the sender had not that many.
  bool MoveBurst(size_t packets = kBurst, bool trimmed = false) {
    now_ = now_ + kPacketTime * packets;
    if (endpoints_[0]->NextTransmits(now_, std::span(burst_).first(packets)) != packets) return false;
    for (size_t i = 0; i < packets; ++i) {
      if (burst_[i].packet_class != PacketClass::kData) return false;
    }
    for (size_t i = 0; i < packets; ++i) std::memcpy(Arrival(i), burst_[i].header.data(), kDataHeaderBytes);
    for (size_t i = 0; i < packets; ++i) {
      Fill(1, Arrival(i), kDataHeaderBytes + (trimmed ? 0 : burst_[i].payload_length), &datagrams_[i]);
    }
    endpoints_[1]->OnDatagrams(now_, std::span(datagrams_).first(packets));
    return true;
  }

  // One data packet, whole or with its payload cut on the way. Nobody reads its payload: the receive has no memory.
  bool MoveData() { return MoveOne(kSegmentBytes); }
  bool MoveTrimmed() { return MoveOne(0); }

  // Every report that is due, into the sender's state.
  void MoveReports() {
    size_t count = 0;
    do {
      count = endpoints_[1]->NextTransmits(now_, reports_);
      for (size_t i = 0; i < count; ++i) Deliver(0, reports_[i].header.data(), reports_[i].header_length);
    } while (count == reports_.size());
  }

  // What completed is posted again.
  void Repost() {
    Event event;
    while (endpoints_[1]->NextEvent(&event)) {
      if (event.kind == Event::Kind::kReceived) PostReceive(event.cookie);
      FORGIVE_CHECK(event.kind != Event::Kind::kFailed);
    }
    while (endpoints_[0]->NextEvent(&event)) {
      if (event.kind == Event::Kind::kSent) PostSend();
      FORGIVE_CHECK(event.kind != Event::Kind::kFailed);
    }
    if (endpoints_[0]->next_deadline() <= now_) endpoints_[0]->OnDeadline(now_);
    if (endpoints_[1]->next_deadline() <= now_) endpoints_[1]->OnDeadline(now_);
  }

  void Post(const SendRequest& request) {
    FORGIVE_CHECK(endpoints_[0]->Post(now_, sender_, request) == PostResult::kAccepted);
  }
  void Post(const ReceiveRequest& request) {
    FORGIVE_CHECK(endpoints_[1]->Post(now_, receiver_, request) == PostResult::kAccepted);
  }

 private:
  void Connect() {
    ListenTicket ticket;
    FORGIVE_CHECK(endpoints_[1]->Post(ListenRequest{}, &ticket) == PostResult::kAccepted);
    ConnectRequest request;
    request.peer = AddressOf(1);
    request.ticket = ticket;
    FORGIVE_CHECK(endpoints_[0]->Post(now_, request, &sender_) == PostResult::kAccepted);
    FORGIVE_CHECK(endpoints_[0]->NextTransmit(now_, &transmit_));
    std::vector<uint8_t> connect(transmit_.header.begin(), transmit_.header.begin() + transmit_.header_length);
    connect.insert(connect.end(), transmit_.payload, transmit_.payload + transmit_.payload_length);
    Deliver(1, connect.data(), connect.size());
    Event event;
    FORGIVE_CHECK(endpoints_[1]->NextEvent(&event) && event.kind == Event::Kind::kIncoming);
    receiver_ = event.connection;
    MoveReports();
    FORGIVE_CHECK(endpoints_[0]->NextEvent(&event) && event.kind == Event::Kind::kConnected);
  }

  void PostSend() { Post(SendRequest{0, source_.data(), kMessageBytes}); }
  void PostReceive(uint64_t place) {
    ReceiveRequest request;
    request.cookie = place;
    request.buffer = memory_.empty() ? nullptr : memory_.data() + place * kMessageBytes;
    request.capacity = kMessageBytes;
    Post(request);
  }

  bool NextData(Transmit* out) {
    return endpoints_[0]->NextTransmit(now_, out) && out->packet_class == PacketClass::kData;
  }
  uint8_t* Arrival(size_t place) { return arrivals_.data() + place * kArrivalBytes; }
  bool MoveOne(size_t payload_bytes) {
    now_ = now_ + kPacketTime;
    if (!NextData(&transmit_)) return false;
    Deliver(1, transmit_.header.data(), kDataHeaderBytes + payload_bytes);
    return true;
  }
  // In place, as drivers do. The address was made long before, as by the kernel: to copy what was just written byte
  // by byte would wait for it with every packet.
  void Fill(size_t host, const uint8_t* bytes, size_t length, Datagram* out) const {
    out->source = addresses_[1 - host];
    out->bytes = bytes;
    out->length = length;
  }
  void Deliver(size_t host, const uint8_t* bytes, size_t length) {
    Fill(host, bytes, length, &datagrams_[0]);
    endpoints_[host]->OnDatagram(now_, datagrams_[0]);
  }

  TimePoint now_{1000000000};
  const std::array<Address, 2> addresses_{AddressOf(0), AddressOf(1)};
  std::array<std::unique_ptr<StepTable>, 2> steps_;
  std::array<std::unique_ptr<Endpoint>, 2> endpoints_;
  ConnectionHandle sender_;
  ConnectionHandle receiver_;
  Transmit transmit_;
  std::array<Transmit, kBurst> burst_;
  std::array<Transmit, kBurst> reports_;
  std::array<Datagram, kBurst> datagrams_;
  std::vector<uint8_t> arrivals_;
  std::vector<uint8_t> memory_;
  std::vector<uint8_t> source_;
};

void ReportsPerPacket(const Pair& pair, benchmark::State* state) {
  const double packets = static_cast<double>(pair.sender_counters().packets_sent);
  state->counters["reports_per_packet"] = static_cast<double>(pair.receiver_counters().reports_sent) / packets;
}

// What was measured must be what was meant: nothing lost, one report for 16 packets.
void CheckTransfer(const Pair& pair, benchmark::State* state) {
  const Counters& sender = pair.sender_counters();
  const Counters& receiver = pair.receiver_counters();
  ReportsPerPacket(pair, state);
  if (receiver.packets_received != sender.packets_sent || sender.retransmitted_bytes != 0) {
    state->SkipWithError("packets were lost or sent again");
  }
  if (receiver.duplicate_bytes != 0 || receiver.bad_tag + sender.bad_tag != 0) state->SkipWithError("wrong packets");
}

void RunData(benchmark::State* state, bool with_memory) {
  Pair pair(BenchConfig(), with_memory);
  pair.PostMessages();
  while (state->KeepRunningBatch(kBurst)) {
    if (!pair.MoveBurst()) {
      state->SkipWithError("the sender had nothing to send");
      break;
    }
    pair.MoveReports();
    pair.Repost();
  }
  CheckTransfer(pair, state);
  state->SetBytesProcessed(state->iterations() * int64_t{kSegmentBytes});
}

// The protocol without the payload: the receive has no memory, as in a simulator.
void BM_DataPacket(benchmark::State& state) { RunData(&state, false); }
BENCHMARK(BM_DataPacket);

// With the one copy that a payload needs, from the arrival buffer to the user's.
void BM_DataPacketWithCopy(benchmark::State& state) { RunData(&state, true); }
BENCHMARK(BM_DataPacketWithCopy);

// What that copy costs alone: the same bytes between the same buffers, without a protocol.
void BM_CopyAlone(benchmark::State& state) {
  std::vector<uint8_t> arrivals(kBurst * kArrivalBytes, 0x5a);
  std::vector<uint8_t> memory(kMessages * size_t{kMessageBytes});
  size_t packet = 0;
  for (auto _ : state) {
    std::memcpy(memory.data() + packet * kSegmentBytes % memory.size(),
                arrivals.data() + packet % kBurst * kArrivalBytes + kDataHeaderBytes, kSegmentBytes);
    benchmark::ClobberMemory();
    ++packet;
  }
  state.SetBytesProcessed(state.iterations() * int64_t{kSegmentBytes});
}
BENCHMARK(BM_CopyAlone);

// One report that acknowledges 16 packets: built, tagged, verified and obeyed. The packets before it are not timed;
// two readings of the clock are.
void BM_Ack(benchmark::State& state) {
  Pair pair(BenchConfig(), false);
  pair.PostMessages();
  for (auto _ : state) {
    if (!pair.MoveBurst()) state.SkipWithError("the sender had nothing to send");
    const auto begin = std::chrono::steady_clock::now();
    pair.MoveReports();
    const auto end = std::chrono::steady_clock::now();
    state.SetIterationTime(std::chrono::duration<double>(end - begin).count());
    pair.Repost();
  }
  CheckTransfer(pair, &state);
}
BENCHMARK(BM_Ack)->UseManualTime();

// A header whose payload was cut, in a stream with that many holes already: sent again, trimmed again, refused by
// the draw (P = 0, so the decision runs to its end and the holes stay), requested, and taken by the sender. In bursts
// like data, of as many as there are holes, at most kBurst.
void BM_TrimmedHeader(benchmark::State& state) {
  const auto holes = static_cast<uint32_t>(state.range(0));
  Config config = BenchConfig();
  config.congestion_control = CongestionControlKind::kNone;
  config.forgiveness_probability = Fraction{0};
  config.window_bytes = 16u << 20;
  config.scoreboard_bytes = 16u << 20;
  Pair pair(config, false);
  FORGIVE_CHECK(pair.receiver_steps().Begin(StepPlan{1, false, Fraction{100000}, uint64_t{1} << 40}) ==
                StepResult::kOk);
  const uint32_t length = 2 * holes * kSegmentBytes;
  std::vector<uint8_t> source(length);
  ReceiveRequest receive;
  receive.capacity = length;
  receive.has_step = true;
  receive.step = 1;
  receive.exempt_eligible = true;
  receive.forgivable = true;
  pair.Post(receive);
  pair.Post(SendRequest{0, source.data(), length});
  pair.MoveReports();
  // Every other segment arrives; what is sent again meanwhile is cut too.
  while (pair.receiver_counters().packets_received < holes) {
    FORGIVE_CHECK(pair.MoveTrimmed());
    FORGIVE_CHECK(pair.MoveData());
    pair.MoveReports();
  }
  const uint32_t burst = std::min(holes, kBurst);
  while (state.KeepRunningBatch(burst)) {
    if (!pair.MoveBurst(burst, true)) {
      state.SkipWithError("the sender had nothing to send again");
      break;
    }
    pair.MoveReports();
  }
  ReportsPerPacket(pair, &state);
  if (pair.receiver_counters().forgiven_bytes != 0) state.SkipWithError("a hole was forgiven");
  if (pair.sender_counters().timeouts != 0) state.SkipWithError("a timeout joined in");
}
BENCHMARK(BM_TrimmedHeader)->ArgName("holes")->Arg(1)->Arg(64)->Arg(1000);

// One of so many connections, all of which wait for a deadline, is touched and waits for another one, some
// milliseconds ahead, as one turn of 16 packets does; the clock goes on by what such a turn takes.
void BM_Turn(benchmark::State& state) {
  const auto connections = static_cast<uint32_t>(state.range(0));
  constexpr Nanoseconds kTurn = Microseconds(5);
  std::mt19937_64 dice(1);
  std::vector<std::pair<uint16_t, Nanoseconds>> turns_to_come(1 << 14);
  for (auto& [slot, wait] : turns_to_come) {
    slot = static_cast<uint16_t>(dice() % connections);
    wait = Milliseconds(1) + Nanoseconds{static_cast<int64_t>(dice() % 3000000)};
  }
  Turns turns(connections);
  TimePoint now{1};
  for (uint32_t slot = 0; slot < connections; ++slot) {
    turns.Touch(static_cast<uint16_t>(slot));
    turns.Sleep(now + turns_to_come[slot % turns_to_come.size()].second);
  }
  size_t next = 0;
  for (auto _ : state) {
    const auto& [slot, wait] = turns_to_come[next++ % turns_to_come.size()];
    now = now + kTurn;
    turns.Touch(slot);
    turns.Wake(now);
    while (turns.HasReady()) turns.Sleep(now + wait);
  }
}
BENCHMARK(BM_Turn)->ArgName("connections")->Arg(1)->Arg(64)->Arg(1024);

}  // namespace
}  // namespace forgive

BENCHMARK_MAIN();
