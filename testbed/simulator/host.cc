// SPDX-License-Identifier: Apache-2.0
// Turning the transport's crank under simulated time: datagrams in, packets out when the NIC has room, deadlines.
#include "testbed/simulator/host.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstring>
#include <stdexcept>

#include "transport/wire_layout.h"

namespace forgive::sim {
namespace {

// While an endpoint waits for its NIC, its next deadline is the moment that it waits for; what lies behind it (a
// timeout) is looked at this often.
constexpr Picoseconds kBusyCheck{10'000'000};
constexpr uint64_t kLongestMessage = uint64_t{1} << 32;
constexpr Picoseconds kNanosecond{1000};

std::array<uint8_t, 32> EntropyOf(uint64_t seed, uint64_t endpoint) {
  Draw draw(seed ^ (endpoint * 0x9e3779b97f4a7c15u + 1));
  std::array<uint8_t, 32> bytes;
  for (size_t word = 0; word < 4; ++word) {
    const uint64_t value = draw.Next();
    std::memcpy(bytes.data() + 8 * word, &value, sizeof value);
  }
  return bytes;
}

// The transport computes addresses of payload, and nothing may read them.
const uint8_t* ReserveNowhere() {
  void* memory = mmap(nullptr, kLongestMessage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  FORGIVE_CHECK(memory != MAP_FAILED);
  return static_cast<const uint8_t*>(memory);
}

uint32_t SlotOf(ConnectionHandle handle) { return handle.value & 0xffff; }

uint32_t ReadBig32(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

}  // namespace

Hosts::Hosts(uint64_t seed, EventQueue* queue, PacketArena* arena, Fabric* fabric, Metrics* metrics)
    : seed_(seed),
      queue_(queue),
      arena_(arena),
      fabric_(fabric),
      metrics_(metrics),
      hosts_(fabric->plan().hosts()),
      handshake_(kDataHeaderBytes + kMaxPayloadBytes + 64),
      nowhere_(ReserveNowhere()) {}

Hosts::~Hosts() { munmap(const_cast<uint8_t*>(nowhere_), kLongestMessage); }

EndpointIndex Hosts::AddEndpoint(const EndpointSpec& spec) {
  const auto index = static_cast<EndpointIndex>(states_.size());
  Identity identity{};
  std::memcpy(identity.data(), &index, sizeof index);
  State& state = states_.emplace_back();
  state.spec = spec;
  state.endpoint = std::make_unique<Endpoint>(spec.config, spec.steps, EntropyOf(seed_, index), identity);
  state.channel_of_slot.resize(spec.config.max_connections);
  if (spec.sends) hosts_[spec.host].senders.push_back(index);
  return index;
}

ChannelIndex Hosts::AddChannel(EndpointIndex sender, EndpointIndex receiver) {
  Channel& channel = channels_.emplace_back();
  channel.sender = sender;
  channel.receiver = receiver;
  return static_cast<ChannelIndex>(channels_.size() - 1);
}

void Hosts::Connect(SimTime now) {
  for (ChannelIndex index = 0; index < channels_.size(); ++index) {
    Channel& channel = channels_[index];
    State& sender = states_[channel.sender];
    ConnectRequest request;
    ListenRequest listen;
    listen.cookie = index;
    request.cookie = index;
    request.max_payload_bytes = sender.spec.config.max_payload_bytes;
    FORGIVE_CHECK(states_[channel.receiver].endpoint->Post(listen, &request.ticket) == PostResult::kAccepted);
    FORGIVE_CHECK(sender.endpoint->Post(ToTimePoint(now), request, &channel.sending) == PostResult::kAccepted);
    sender.channel_of_slot[SlotOf(channel.sending)] = index;
    Touch(channel.sender);
  }
}

// ---- Posts ----

void Hosts::Touch(EndpointIndex endpoint) {
  State& state = states_[endpoint];
  if (state.dirty) return;
  state.dirty = true;
  dirty_.push_back(endpoint);
}

void Hosts::PostSend(SimTime now, ChannelIndex index, uint64_t cookie, uint64_t bytes) {
  const Channel& channel = channels_[index];
  FORGIVE_CHECK(bytes < kLongestMessage);
  SendRequest request;
  request.cookie = cookie;
  request.buffer = nowhere_;
  request.length = static_cast<uint32_t>(bytes);
  const PostResult result = states_[channel.sender].endpoint->Post(ToTimePoint(now), channel.sending, request);
  FORGIVE_CHECK(result == PostResult::kAccepted);
  Touch(channel.sender);
}

bool Hosts::PostReceive(SimTime now, ChannelIndex index, const ReceiveRequest& request) {
  const Channel& channel = channels_[index];
  const PostResult result = states_[channel.receiver].endpoint->Post(ToTimePoint(now), channel.receiving, request);
  FORGIVE_CHECK(result == PostResult::kAccepted || result == PostResult::kTryAgain);
  if (result == PostResult::kAccepted) Touch(channel.receiver);
  return result == PostResult::kAccepted;
}

void Hosts::GiveUp(SimTime now, ChannelIndex index) {
  const Channel& channel = channels_[index];
  states_[channel.receiver].endpoint->GiveUp(channel.receiving);
  DrainEvents(now, channel.receiver);
  Touch(channel.receiver);
}

bool Hosts::Facts(SimTime now, ChannelIndex index, Endpoint::ConnectionFacts* out) const {
  const Channel& channel = channels_[index];
  return states_[channel.sender].endpoint->Facts(ToTimePoint(now), channel.sending, out);
}

// ---- In ----

void Hosts::Deliver(SimTime now, PacketIndex index) {
  const Packet& packet = (*arena_)[index];
  const ChannelIndex channel = packet.flow >> 1;
  const bool to_receiver = (packet.flow & 1) == 0;
  const EndpointIndex endpoint = to_receiver ? channels_[channel].receiver : channels_[channel].sender;
  State& state = states_[endpoint];
  const uint8_t* header = arena_->header(index);

  Datagram datagram;
  datagram.bytes = header;
  datagram.length = size_t{packet.header_bytes} + packet.payload_bytes;
  datagram.ce = packet.ce;
  if (to_receiver) {
    bytes_.arrived += packet.queue_class == QueueClass::kData ? packet.payload_bytes : 0;
    if (packet.queue_class == QueueClass::kTrimmed) {
      const uint32_t length = uint32_t{header[4]} << 8 | header[5];
      bytes_.arrived_trimmed += length;
      state.last_hop_trim = packet.trimmed_at_last_hop && !state.spec.last_hop_trims_count;
      if (state.spec.kind == TrafficKind::kGradient) {
        metrics_->OnTrim(state.spec.job, state.spec.rank, now, length);
      }
    } else if (header[1] == FORGIVE_TYPE_CONNECT) {
      std::memset(handshake_.data(), 0, handshake_.size());
      std::memcpy(handshake_.data(), header, packet.header_bytes);
      datagram.bytes = handshake_.data();
    }
  } else {
    datagram.ignore_trim_signal = packet.trimmed_at_last_hop;
    if (header[1] == FORGIVE_TYPE_REPORT && state.spec.kind == TrafficKind::kGradient) {
      metrics_->OnReport(state.spec.job, channel, now, (header[3] & FORGIVE_REPORT_EXEMPT_ELIGIBLE) != 0,
                         (header[3] & FORGIVE_REPORT_BUDGET_EXHAUSTED) != 0);
    }
  }
  state.endpoint->OnDatagram(ToTimePoint(now), datagram);
  arena_->Release(index);
  DrainEvents(now, endpoint);
  Touch(endpoint);
}

void Hosts::DrainEvents(SimTime now, EndpointIndex endpoint) {
  Event event;
  while (states_[endpoint].endpoint->NextEvent(&event)) OnTransportEvent(now, endpoint, event);
}

void Hosts::OnTransportEvent(SimTime now, EndpointIndex endpoint, const Event& event) {
  State& state = states_[endpoint];
  const ChannelIndex channel = state.channel_of_slot[SlotOf(event.connection)];
  switch (event.kind) {
    case Event::Kind::kConnected:
      ++connected_;
      break;
    case Event::Kind::kIncoming:
      state.channel_of_slot[SlotOf(event.connection)] = static_cast<ChannelIndex>(event.cookie);
      channels_[event.cookie].receiving = event.connection;
      break;
    case Event::Kind::kSent:
      completions_.push_back({false, channel, event.cookie, 0});
      break;
    case Event::Kind::kReceived:
      completions_.push_back({true, channel, event.cookie, event.size});
      break;
    case Event::Kind::kForgiven:
      metrics_->OnForgiven({.time = now,
                            .step = static_cast<uint32_t>(event.step),
                            .rank = state.spec.rank,
                            .connection = channel,
                            .message = event.message,
                            .offset = event.offset,
                            .length = event.length,
                            .contributions = event.contributions,
                            .job = state.spec.job});
      break;
    case Event::Kind::kSegmentsCut:
      break;
    case Event::Kind::kIncomingRefused:
    case Event::Kind::kFailed:
      throw std::runtime_error(
          fmt::format("connection {} failed: reason {}", channel, static_cast<int>(event.reason)));
  }
}

bool Hosts::PopCompletion(Completion* out) {
  if (next_completion_ == completions_.size()) {
    completions_.clear();
    next_completion_ = 0;
    return false;
  }
  *out = completions_[next_completion_++];
  return true;
}

// ---- Out ----

void Hosts::OnNicReady(SimTime now, uint32_t host) { PumpNic(now, host); }

void Hosts::OnDeadline(SimTime now, EndpointIndex endpoint) {
  State& state = states_[endpoint];
  if (state.deadline != now) return;
  state.deadline = kSimNever;
  state.endpoint->OnDeadline(ToTimePoint(now));
  DrainEvents(now, endpoint);
  Touch(endpoint);
}

void Hosts::Flush(SimTime now) {
  for (size_t i = 0; i < dirty_.size(); ++i) {
    const EndpointIndex endpoint = dirty_[i];
    State& state = states_[endpoint];
    state.dirty = false;
    if (!state.spec.sends) {
      SendReports(now, endpoint);
      ScheduleDeadline(now, endpoint, kSimNever);
      continue;
    }
    Host& host = hosts_[state.spec.host];
    if (!state.ready) {
      state.ready = true;
      ++host.ready;
    }
    PumpNic(now, state.spec.host);
    if (state.ready && state.deadline == kSimNever) ScheduleDeadline(now, endpoint, now + kBusyCheck);
  }
  dirty_.clear();
}

// A receiving endpoint sends control packets only, and the NIC never refuses them.
void Hosts::SendReports(SimTime now, EndpointIndex endpoint) {
  State& state = states_[endpoint];
  while (state.endpoint->NextTransmit(ToTimePoint(now), &transmit_)) Emit(now, &state);
  state.last_hop_trim = false;
}

// The host's sending endpoints take turns, a packet each, while the NIC has room.
void Hosts::PumpNic(SimTime now, uint32_t index) {
  Host& host = hosts_[index];
  while (host.ready != 0 && fabric_->HostMaySend(index)) {
    if (++host.turn >= host.senders.size()) host.turn = 0;
    const EndpointIndex endpoint = host.senders[host.turn];
    State& state = states_[endpoint];
    if (!state.ready) continue;
    if (state.endpoint->NextTransmit(ToTimePoint(now), &transmit_)) {
      Emit(now, &state);
      continue;
    }
    state.ready = false;
    --host.ready;
    ScheduleDeadline(now, endpoint, kSimNever);
  }
}

// The entropy of a data packet: its message, where each is a flow, and the path that the transport chose.
uint16_t Hosts::PathOf(const State& state) const {
  const bool data = transmit_.packet_class == PacketClass::kData;
  if (!state.spec.message_is_flow || !data) return transmit_.path;
  const uint32_t message = ReadBig32(transmit_.header.data() + offsetof(forgive_data_header, message_number));
  return static_cast<uint16_t>(1 + (message * kMaxPaths + transmit_.path) % 65535);
}

void Hosts::Emit(SimTime now, State* state) {
  const ChannelIndex channel = state->channel_of_slot[SlotOf(transmit_.connection)];
  const EndpointIndex peer = state->spec.sends ? channels_[channel].receiver : channels_[channel].sender;
  const PacketIndex index = arena_->Take();
  Packet& packet = (*arena_)[index];
  packet.flow = channel << 1 | (state->spec.sends ? 0 : 1);
  packet.source = static_cast<uint16_t>(state->spec.host);
  packet.destination = static_cast<uint16_t>(states_[peer].spec.host);
  packet.path = PathOf(*state);
  packet.payload_bytes = static_cast<uint16_t>(transmit_.payload_length);
  packet.job = state->spec.job;
  packet.queue_class = transmit_.packet_class == PacketClass::kData ? QueueClass::kData : QueueClass::kControl;
  arena_->SetHeader(index, transmit_.header.data(), transmit_.header_length);
  if (packet.queue_class == QueueClass::kData) bytes_.sent += transmit_.payload_length;
  // On its way back the mark says that the report tells of a trim which does not count.
  const bool trimmed =
      transmit_.header[1] == FORGIVE_TYPE_REPORT && (transmit_.header[3] & FORGIVE_REPORT_TRIMMED) != 0;
  packet.trimmed_at_last_hop = state->last_hop_trim && trimmed;
  fabric_->Send(now, index);
}

void Hosts::ScheduleDeadline(SimTime now, EndpointIndex endpoint, SimTime latest) {
  State& state = states_[endpoint];
  SimTime next = latest;
  if (latest == kSimNever) {
    next = FromTimePoint(state.endpoint->next_deadline());
    if (next == kSimNever) return;
    if (next <= now) next = now + kNanosecond;
  }
  if (next >= state.deadline) return;
  state.deadline = next;
  queue_->Schedule(next, {SimEvent::Kind::kHostDeadline, endpoint, 0});
}

}  // namespace forgive::sim
