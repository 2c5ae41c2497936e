// SPDX-License-Identifier: Apache-2.0
// Ring and direct all-reduces: which message follows which receive.
#include "testbed/simulator/policy.h"
#include "testbed/simulator/training.h"

namespace forgive::sim {

uint32_t Training::RoundsOf(TrafficKind kind) const {
  return 2 * ((kind == TrafficKind::kTensor ? plan_.workload.tp : plan_.workload.dp) - 1);
}

uint64_t Training::BytesOf(const Use& use) const {
  return use.kind == TrafficKind::kTensor ? plan_.workload.tp_chunk_bytes() : plan_.workload.dp_chunk_bytes();
}

uint64_t Training::MessagesPerStep(const Use& use) const {
  if (use.kind == TrafficKind::kTensor) return uint64_t{RoundsOf(use.kind)} * plan_.workload.tp_all_reduces;
  return plan_.workload.dp_algorithm == Algorithm::kRing ? RoundsOf(use.kind) : 1;
}

// Whether message `message` of its step belongs to the phase that reduces.
bool Training::Reduces(const Use& use, uint64_t message) const {
  return plan_.workload.dp_algorithm == Algorithm::kRing ? message < plan_.workload.dp - 1 : use.phase == 0;
}

// How many ranks' contributions a byte of it carries: of a final value, all.
uint32_t Training::ContributionsOf(const Use& use, uint64_t message) const {
  if (!Reduces(use, message)) return plan_.workload.dp;
  return plan_.workload.dp_algorithm == Algorithm::kRing ? static_cast<uint32_t>(message) + 1 : 1;
}

// What a rank receives in a step and may lose.
uint64_t Training::ForgivableBytes() const {
  const uint64_t all = plan_.workload.gradient_bytes();
  return plan_.policy.eligible == Eligible::kAll ? all : all / 2;
}

void Training::PostReceives(SimTime now, ChannelIndex channel) {
  Use& use = uses_[channel - first_channel_];
  const Rank& rank = ranks_[use.destination];
  while (use.posted < use.wanted) {
    ReceiveRequest request;
    request.cookie = use.posted;
    request.capacity = BytesOf(use);
    if (use.kind == TrafficKind::kGradient) {
      const uint64_t message = use.posted - (use.wanted - MessagesPerStep(use));
      request.has_step = true;
      request.step = rank.step;
      request.exempt_eligible = MarksEligible(plan_.policy);
      request.forgivable = MarksForgivable(plan_.policy, Reduces(use, message));
      request.contributions = ContributionsOf(use, message);
    }
    if (!hosts_->PostReceive(now, channel, request)) return;  // the next one that completes makes room
    ++use.posted;
  }
}

// The next message of a channel; a gradient message may be shed, and a marker goes in its place.
void Training::Send(SimTime now, ChannelIndex channel) {
  Use& use = uses_[channel - first_channel_];
  uint64_t bytes = BytesOf(use);
  posted_bytes_ += bytes;
  if (use.kind == TrafficKind::kGradient) {
    const WorkloadPlan& workload = plan_.workload;
    MessageName name;
    name.step = ranks_[use.source].step;
    name.source = use.source;
    name.destination = use.destination;
    name.message = static_cast<uint32_t>((use.stream * 2 + static_cast<uint32_t>(use.phase)) * MessagesPerStep(use) +
                                         use.sent % MessagesPerStep(use));
    if (IsShed(plan_.policy, seed_, workload.IsCritical(name.step), name)) {
      const uint64_t marker = std::min<uint64_t>(plan_.policy.shed_marker_bytes, bytes);
      shed_bytes_ += bytes - marker;
      marker_bytes_ += marker;
      bytes = marker;
    }
  }
  hosts_->PostSend(now, channel, use.sent, bytes);
  ++use.sent;
}

// ---- Streams ----

void Training::StartStreams(SimTime now, uint32_t index, TrafficKind kind) {
  Rank& rank = ranks_[index];
  const WorkloadPlan& workload = plan_.workload;
  const bool tensor = kind == TrafficKind::kTensor;
  const uint32_t count = tensor ? workload.tp_streams : workload.dp_stream_count();
  const uint32_t at_once = workload.streams_at_once == 0 ? count : workload.streams_at_once;
  while (rank.next_stream < count && rank.next_stream + rank.streams_left < count + at_once) {
    const uint32_t stream = rank.next_stream++;
    if (tensor || workload.dp_algorithm == Algorithm::kRing) {
      (tensor ? rank.tensor : rank.ring)[stream].running = true;
      AdvanceRing(now, index, stream, kind);
    } else {
      rank.direct[stream].running = true;
      AdvanceDirect(now, index, stream);
    }
  }
}

// Sends the first round when the stream begins, and round r + 1 when round r is whole.
void Training::AdvanceRing(SimTime now, uint32_t index, uint32_t stream, TrafficKind kind) {
  Rank& rank = ranks_[index];
  Ring& ring = kind == TrafficKind::kTensor ? rank.tensor[stream] : rank.ring[stream];
  if (!ring.running) return;
  const uint32_t rounds = RoundsOf(kind);
  const uint64_t begun = uses_[ring.out - first_channel_].sent - ring.base;
  if (begun == 0) Send(now, ring.out);
  while (ring.handled < rounds && ring.base + ring.handled < ring.received) {
    ++ring.handled;
    if (ring.handled < rounds) Send(now, ring.out);
  }
  if (ring.handled < rounds) return;
  ring.running = false;
  ring.handled = 0;
  ring.base += rounds;
  EndStream(now, index, kind);
}

// At most fan_in more are sent than have come; the second phase begins when all of the first has come.
void Training::AdvanceDirect(SimTime now, uint32_t index, uint32_t stream) {
  Direct& direct = ranks_[index].direct[stream];
  if (!direct.running) return;
  const uint32_t peers = plan_.workload.dp - 1;
  SendDirect(now, index, &direct);
  if (direct.phase == 0 && direct.received[0] == peers) {
    direct.phase = 1;
    SendDirect(now, index, &direct);
  }
  if (direct.phase == 0 || direct.received[1] != peers) return;
  direct.running = false;
  EndStream(now, index, TrafficKind::kGradient);
}

void Training::SendDirect(SimTime now, uint32_t, Direct* direct) {
  const int phase = direct->phase;
  const uint32_t peers = plan_.workload.dp - 1;
  const uint64_t limit = uint64_t{direct->received[phase]} + plan_.workload.fan_in;
  while (direct->sent[phase] < peers && direct->sent[phase] < limit) {
    Send(now, direct->out[phase][direct->sent[phase]]);
    ++direct->sent[phase];
  }
}

void Training::EndStream(SimTime now, uint32_t index, TrafficKind kind) {
  Rank& rank = ranks_[index];
  if (--rank.streams_left != 0) {
    StartStreams(now, index, kind);
    return;
  }
  if (kind == TrafficKind::kTensor) {
    EndTensor(now, index);
  } else {
    EndGradient(now, index);
  }
}

void Training::OnReceived(SimTime now, const Completion& completion) {
  Use& use = uses_[completion.channel - first_channel_];
  Rank& rank = ranks_[use.destination];
  PostReceives(now, completion.channel);
  if (use.kind == TrafficKind::kGradient) rank.shed += BytesOf(use) - completion.bytes;
  const bool direct = use.kind == TrafficKind::kGradient && plan_.workload.dp_algorithm == Algorithm::kDirect;
  if (direct) {
    ++rank.direct[use.stream].received[use.phase];
    AdvanceDirect(now, use.destination, use.stream);
    return;
  }
  // Rounds may become whole out of order; they count in order.
  Ring& ring = use.kind == TrafficKind::kTensor ? rank.tensor[use.stream] : rank.ring[use.stream];
  if (completion.cookie != ring.received) {
    ring.early |= uint64_t{1} << (completion.cookie - ring.received - 1);
    return;
  }
  ++ring.received;
  while ((ring.early & 1) != 0) {
    ring.early >>= 1;
    ++ring.received;
  }
  ring.early >>= 1;
  AdvanceRing(now, use.destination, use.stream, use.kind);
}

}  // namespace forgive::sim
