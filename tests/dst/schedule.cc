// SPDX-License-Identifier: Apache-2.0
// The applications of a schedule.
#include "schedule.h"

#include <algorithm>
#include <string>

#include "allocations.h"
#include "transport/black_hole.h"

namespace forgive::dst {
namespace {

// Simulated; rates may have been cut to a thousandth of the link's.
constexpr Nanoseconds kFinishWithin = Seconds(240);
// Rounds of timeouts that finding a black hole takes at two sizes, with two to begin and one to end each.
constexpr int64_t kRoundsOfBlackHoles = 2 * (BlackHoleDetector::kRounds + 3);
// A few timeouts, or a few packets at the least rate: something must have come nearer to its end.
constexpr Nanoseconds kProgressWithin = Seconds(3);
constexpr uint64_t kMostTurns = 2000000;

uint64_t CookieOf(size_t stream, uint32_t message) { return (uint64_t{stream} << 32) | message; }

}  // namespace

Stage::Stage(Journal* journal, Tally* tally)
    : journal_(journal),
      tally_(tally),
      oracle_(&world_, journal, tally),
      network_(&world_, &oracle_, journal, tally) {
  world_.on_event = [this](int host, const Event& event) { oracle_.OnEvent(host, event); };
  world_.on_transmit = [this](int host, const Transmit& transmit) { oracle_.OnTransmit(host, transmit); };
  world_.carry = [this](int from, const Transmit& transmit) { network_.Carry(from, transmit); };
  world_.deliver = [this](const testing::Flight& flight) {
    journal_->set_now(world_.now());
    network_.Deliver(flight);
  };
  world_.after_each = [this](int host) { oracle_.AfterHost(host); };
}

void Stage::Run(uint64_t seed, bool large, bool traces) {
  journal_->Begin(seed, traces);
  plan_ = MakePlan(seed, large);
  draw_ = Draw(seed);
  finishing_ = false;
  running_.assign(plan_.spells.size(), 0);
  world_.Begin(seed + 1);
  world_.burst_packets = plan_.burst_packets;
  for (size_t i = 0; i < plan_.configs.size(); ++i) world_.AddHost(plan_.configs[i], plan_.clock_offsets[i]);
  oracle_.Begin(&plan_);
  network_.Begin(&plan_);
  for (int host = 0; host < world_.size(); ++host) {
    if (Below(4) != 0) BeginStep(host);
  }
  for (const StreamPlan& each : plan_.streams) Connect(each);
  while (world_.now() < plan_.faults_end && !journal_->failed()) {
    Advance(world_.now() + plan_.turn);
    RunSpells();
    Turn();
  }
  if (!journal_->failed()) Finish();
  if (!journal_->failed()) Rest();
  for (int host = 0; host < world_.size(); ++host) oracle_.CountEndpoint(host);
  ++(*tally_)[Count::kSchedules];
  (*tally_)[Count::kPackets] += world_.packets();
  (*tally_)[Count::kDigest] += oracle_.digest() * (seed | 1);
}

// The world runs until then, or until it has nothing more to do.
void Stage::Advance(TimePoint end) {
  while (world_.now() < end && !journal_->failed()) {
    journal_->set_now(world_.now());
    if (!world_.StepTouched(end)) world_.Stall(std::max(Nanoseconds{1}, end - world_.now()));
  }
  journal_->set_now(world_.now());
}

// ---- Connections ----

void Stage::Connect(const StreamPlan& plan) {
  const size_t index = oracle_.AddStream(plan);
  StreamState& stream = oracle_.stream(index);
  world_.Touch(plan.from);
  if (world_.endpoint(plan.to).Post(ListenRequest{index}, &stream.ticket) != PostResult::kAccepted) {
    journal_->Fail("host %d cannot listen", plan.to);
    return;
  }
  ConnectRequest request = testing::World::RequestOf(plan.from, plan.to, stream.ticket);
  request.cookie = index;
  request.max_payload_bytes = plan.max_payload;
  const PostResult result =
      world_.endpoint(plan.from).Post(world_.LocalNow(plan.from), request, &stream.sender.handle);
  if (result != PostResult::kAccepted) {
    journal_->Fail("host %d cannot connect: %d", plan.from, static_cast<int>(result));
  }
}

void Stage::CloseEnd(StreamState* stream, bool sends) {
  const End& end = stream->end(sends);
  if (end.state == EndState::kClosed || end.state == EndState::kGone) return;
  if (world_.host(end.host).holds_events_until > world_.now()) return;  // whoever takes no events closes nothing
  if (end.state == EndState::kConnecting && !sends) {                   // there is only a listener
    world_.endpoint(end.host).CloseListener(stream->ticket.listen_id);
  } else {
    world_.endpoint(end.host).Post(world_.LocalNow(end.host), CloseRequest{end.handle});
    if (!sends) world_.endpoint(end.host).CloseListener(stream->ticket.listen_id);
  }
  journal_->Note("host %d closes a stream, %s", end.host, sends ? "sending" : "receiving");
  oracle_.OnClosed(stream, sends);
  world_.Touch(end.host);
}

void Stage::CloseOne(int host) {
  for (size_t index = 0; index < oracle_.streams(); ++index) {
    StreamState& stream = oracle_.stream(index);
    for (const bool sends : {true, false}) {
      if (stream.end(sends).host != host || stream.end(sends).state != EndState::kOpen) continue;
      CloseEnd(&stream, sends);
      ++(*tally_)[Count::kCloses];
      return;
    }
  }
}

// What failed is closed, and what was lost by a death begins anew.
void Stage::TendStreams() {
  const size_t streams = oracle_.streams();
  for (size_t index = 0; index < streams; ++index) {
    StreamState& stream = oracle_.stream(index);
    for (const bool sends : {true, false}) {
      const bool unwanted =
          !sends && stream.abandoned && stream.receiver.state == EndState::kOpen && !stream.too_long;
      if (stream.end(sends).state == EndState::kFailed || unwanted) CloseEnd(&stream, sends);
      // Nobody will ever come: the application gives its listener up.
      const bool peer_ended = !stream.end(!sends).alive();
      if (!sends && stream.receiver.state == EndState::kConnecting && peer_ended) CloseEnd(&stream, false);
    }
  }
}

// ---- Spells ----

void Stage::RunSpells() {
  for (size_t n = 0; n < plan_.spells.size(); ++n) {
    const Spell& spell = plan_.spells[n];
    if (running_[n] == 0 && spell.begin <= world_.now()) {
      running_[n] = 1;
      StartSpell(spell);
    }
    if (running_[n] == 1 && (spell.end <= world_.now() || finishing_)) {
      running_[n] = 2;
      EndSpell(spell);
    }
  }
}

void Stage::StartSpell(const Spell& spell) {
  testing::World::Host& host = world_.host(spell.host);
  Tally& tally = *tally_;
  journal_->Note("spell %d at host %d", static_cast<int>(spell.kind), spell.host);
  switch (spell.kind) {
    case Spell::Kind::kDelay:
      ++tally[Count::kDelaySpikes];
      return;
    case Spell::Kind::kMarks:
      ++tally[Count::kMarkStorms];
      return;
    case Spell::Kind::kBlackout:
      ++tally[Count::kBlackouts];
      return;
    case Spell::Kind::kTrims:
    case Spell::Kind::kPathLoss:
      return;
    case Spell::Kind::kRailLoss:
      ++tally[Count::kRailLosses];
      return;
    case Spell::Kind::kStall:
      host.stalled_until = std::max(host.stalled_until, spell.end);
      ++tally[Count::kStalls];
      return;
    case Spell::Kind::kJump:
      host.clock_offset = host.clock_offset + Nanoseconds{static_cast<int64_t>(spell.amount)};
      world_.Touch(spell.host);
      ++tally[Count::kClockJumps];
      return;
    case Spell::Kind::kStill:
      world_.StopClock(spell.host);
      ++tally[Count::kClockStops];
      return;
    case Spell::Kind::kHold:
      host.holds_events_until = std::max(host.holds_events_until, spell.end);
      ++tally[Count::kEventHolds];
      return;
    case Spell::Kind::kDeath:
      Die(spell.host);
      return;
    case Spell::Kind::kClose:
      CloseOne(spell.host);
      return;
  }
}

void Stage::EndSpell(const Spell& spell) {
  testing::World::Host& host = world_.host(spell.host);
  if (finishing_) host.stalled_until = host.holds_events_until = TimePoint{};
  if (spell.kind == Spell::Kind::kDeath && host.dead) Reboot(spell.host);
  if (spell.kind == Spell::Kind::kStill) world_.StartClock(spell.host);
  if (!host.dead) world_.TakeEvents(spell.host);
  world_.Touch(spell.host);
}

void Stage::Die(int host) {
  if (world_.host(host).dead) return;
  world_.host(host).dead = true;
  oracle_.CountEndpoint(host);
  oracle_.OnDied(host);
  ++(*tally_)[Count::kDeaths];
  journal_->Note("host %d dies", host);
}

// The same address, another process: its streams are made anew once the peers have given the old ones up.
void Stage::Reboot(int host) {
  world_.Boot(host, plan_.configs[static_cast<size_t>(host)]);
  ++(*tally_)[Count::kRestarts];
  journal_->Note("host %d is back", host);
  const size_t streams = oracle_.streams();
  for (size_t index = 0; index < streams; ++index) {
    const StreamPlan plan = oracle_.stream(index).plan;
    if ((plan.from != host && plan.to != host) || streams > 40) continue;
    if (world_.host(plan.from).dead || world_.host(plan.to).dead || Below(3) == 0) continue;
    Connect(plan);
  }
}

// ---- Steps ----

void Stage::TendSteps(int host) {
  const uint64_t newest = oracle_.NewestStep(host);
  const bool open = newest != 0 && oracle_.IsOpen(host, newest);
  if ((!open || plan_.steps_overlap) && Below(256) < plan_.step_begin_chance / (open ? 32 : 1)) {
    BeginStep(host);
  } else if (open && Below(256) < plan_.step_end_chance) {
    const uint64_t step = newest - (plan_.steps_overlap ? Below(2) : 0);
    oracle_.OnStepEnd(host, step, world_.host(host).steps->End(step));
    world_.Touch(host);
  }
}

void Stage::BeginStep(int host) {
  uint64_t all = 0;
  for (const StreamPlan& each : plan_.streams) {
    for (const MessagePlan& message : each.messages) all += each.to == host ? message.length : 0;
  }
  StepPlan step;
  const uint64_t newest = oracle_.NewestStep(host);
  step.step = newest + (newest != 0 && Below(16) == 0 ? 0 : 1 + Below(2));
  step.p = Fraction{static_cast<uint32_t>(Below(2) == 0 ? plan_.largest_p_ppm : Below(plan_.largest_p_ppm + 1))};
  // Right, a little wrong, very wrong, or not said.
  const uint64_t guesses[] = {all, all / 2 + Below(all + 1), Below(all + 1), Below(4 * all + 1000), 0};
  step.expected_bytes = guesses[Below(5)];
  const StepResult result = world_.host(host).steps->Begin(step, plan_.steps_overlap);
  oracle_.OnStepBegin(host, step, plan_.steps_overlap, result);
  world_.Touch(host);
}

// ---- Posts ----

bool Stage::MayPost(const StreamState& stream, bool sends) const {
  const End& end = stream.end(sends);
  return end.state == EndState::kOpen && (sends || !stream.abandoned) &&
         world_.now() >= (sends ? TimePoint{} : stream.plan.receives_from);
}

void Stage::Turn() {
  if (journal_->failed()) return;
  TendStreams();
  for (int host = 0; host < world_.size(); ++host) {
    if (!world_.host(host).dead) TendSteps(host);
  }
  for (size_t index = 0; index < oracle_.streams(); ++index) {
    if (finishing_ || Below(16) < oracle_.stream(index).plan.post_chance) Post(index, finishing_);
  }
}

void Stage::Post(size_t index, bool all) {
  const bool receives_first = oracle_.stream(index).plan.posts_ahead;
  for (uint64_t n = 0; n < (all ? 32 : 1 + Below(8)); ++n) {
    const bool first = receives_first ? PostReceive(index) : PostSend(index);
    const bool second = receives_first ? PostSend(index) : PostReceive(index);
    if (!first && !second) return;
  }
}

bool Stage::PostSend(size_t index) {
  StreamState& stream = oracle_.stream(index);
  if (stream.sends_posted >= stream.messages.size() || !MayPost(stream, true)) return false;
  const MessageState& message = stream.messages[stream.sends_posted];
  const int host = stream.sender.host;
  const SendRequest request{CookieOf(index, stream.sends_posted), message.sent, message.plan.length};
  const uint64_t allocations = Allocations();
  const PostResult result = world_.endpoint(host).Post(world_.LocalNow(host), stream.sender.handle, request);
  if (Allocations() != allocations) journal_->Fail("host %d: memory was allocated for a send", host);
  world_.Touch(host);
  const uint32_t waiting = stream.sends_posted - stream.told_sent;
  if (result == PostResult::kTryAgain && waiting < plan_.configs[static_cast<size_t>(host)].max_messages) {
    journal_->Fail("host %d refuses a send, though it has only %u", host, waiting);
  }
  if (result != PostResult::kAccepted) return false;
  ++stream.sends_posted;
  return true;
}

bool Stage::PostReceive(size_t index) {
  StreamState& stream = oracle_.stream(index);
  if (stream.receives_posted >= stream.messages.size() || !MayPost(stream, false)) return false;
  if (!finishing_ && stream.receives_posted - stream.completed >= stream.plan.window_of_posts) return false;
  MessageState& message = stream.messages[stream.receives_posted];
  const int host = stream.receiver.host;
  ReceiveRequest request;
  request.cookie = CookieOf(index, stream.receives_posted);
  request.buffer = oracle_.BufferOf(message);
  request.capacity = message.plan.capacity;
  const uint64_t newest = oracle_.NewestStep(host);
  request.has_step = newest != 0 && Below(16) != 0;
  request.step = newest + (Below(32) == 0 ? 1 : 0);  // a step that nobody began
  request.exempt_eligible = request.has_step && Below(16) < plan_.eligible_chance;
  request.forgivable = request.exempt_eligible && Below(16) < plan_.forgivable_chance;
  request.contributions = static_cast<uint32_t>(1 + Below(plan_.largest_contributions));
  oracle_.BeforeDatagrams(host);  // a message that came early arrives with its receive
  const uint64_t allocations = Allocations();
  const PostResult result = world_.endpoint(host).Post(world_.LocalNow(host), stream.receiver.handle, request);
  if (Allocations() != allocations) journal_->Fail("host %d: memory was allocated for a receive", host);
  world_.Touch(host);
  const uint32_t waiting = stream.receives_posted - stream.completed;
  if (result == PostResult::kTryAgain && waiting < plan_.configs[static_cast<size_t>(host)].max_messages) {
    journal_->Fail("host %d refuses a receive, though it has only %u", host, waiting);
  }
  if (result != PostResult::kAccepted) return false;
  journal_->Note("host %d posts receive %u of stream %zu: step %llu%s%s", host, stream.receives_posted, index,
                 static_cast<unsigned long long>(request.has_step ? request.step : 0),
                 request.exempt_eligible ? ", eligible" : "", request.forgivable ? ", forgivable" : "");
  oracle_.OnReceivePosted(&stream, request);
  return true;
}

// ---- The end ----

// Everything arrived, or both ends know that it will not.
bool Stage::Finished(const StreamState& stream) const {
  const bool whole = stream.completed == stream.messages.size() && stream.told_sent == stream.messages.size() &&
                     (stream.messages.empty() || stream.messages.back().told_received);
  if (whole) return true;
  if (stream.sender.alive() && stream.receiver.alive()) return false;
  for (const bool sends : {true, false}) {
    if (stream.end(sends).alive() && (stream.HasUnfinished(sends) || stream.end(sends).state != EndState::kOpen)) {
      return false;
    }
  }
  return true;
}

bool Stage::AllFinished() {
  for (size_t index = 0; index < oracle_.streams(); ++index) {
    if (!Finished(oracle_.stream(index))) return false;
  }
  return true;
}

std::string Stage::Unfinished() {
  for (size_t index = 0; index < oracle_.streams(); ++index) {
    const StreamState& stream = oracle_.stream(index);
    if (Finished(stream)) continue;
    return "stream " + std::to_string(index) + " from host " + std::to_string(stream.sender.host) + " to " +
           std::to_string(stream.receiver.host) + ": " + std::to_string(stream.completed) + " of " +
           std::to_string(stream.messages.size()) + " messages are whole, " + std::to_string(stream.told_sent) +
           " acknowledged, states " + std::to_string(static_cast<int>(stream.sender.state)) + " and " +
           std::to_string(static_cast<int>(stream.receiver.state));
  }
  return "nothing";
}

// The faults stop: everything that was begun must finish.
void Stage::Finish() {
  finishing_ = true;
  network_.StopFaults();
  RunSpells();
  journal_->Note("the faults stop");
  const TimePoint end = world_.now() + kFinishWithin;
  uint64_t turns = 0;
  Nanoseconds turn = plan_.turn;
  // A dead peer takes its time to be noticed.
  const Nanoseconds patience = kProgressWithin + plan_.configs[0].peer_timeout * (plan_.can_fail ? 2 : 0) +
                               plan_.configs[0].max_rto * (plan_.shrinks_at == kNever ? 0 : kRoundsOfBlackHoles);
  uint64_t progress = oracle_.progress();
  TimePoint progressed = world_.now();
  while (!AllFinished() && !journal_->failed()) {
    if (world_.now() >= end || ++turns > kMostTurns) {
      journal_->Fail("%.0f simulated seconds after the faults have stopped: %s",
                     static_cast<double>((world_.now() - end + kFinishWithin).value) / 1e9, Unfinished().c_str());
      return;
    }
    if (oracle_.progress() != progress) {
      progress = oracle_.progress();
      progressed = world_.now();
    } else if (world_.now() - progressed > patience) {
      journal_->Fail("no progress for %.1f simulated seconds: %s",
                     static_cast<double>((world_.now() - progressed).value) / 1e9, Unfinished().c_str());
      return;
    }
    Turn();
    // Where nothing happens, applications look less often: simulated time is free, turns are not.
    turn = std::min(turn + turn / 8, Milliseconds(50));
    Advance(world_.now() + turn);
  }
}

// A world without work sends nothing, and once all is closed it has nothing to wait for.
void Stage::Rest() {
  Advance(world_.now() + Seconds(4));
  const uint64_t packets = world_.packets();
  Advance(world_.now() + Seconds(400));
  if (world_.packets() > packets + 2 * oracle_.streams()) {
    journal_->Fail("a world without work sends %llu packets",
                   static_cast<unsigned long long>(world_.packets() - packets));
  }
  for (size_t index = 0; index < oracle_.streams(); ++index) {
    for (const bool sends : {true, false}) CloseEnd(&oracle_.stream(index), sends);
  }
  Advance(world_.now() + Seconds(4));
  oracle_.CheckAtRest();
  for (int host = 0; host < world_.size() && !journal_->failed(); ++host) {
    if (world_.endpoint(host).next_deadline() != kNever)
      journal_->Fail("host %d waits for something to the end", host);
  }
}

}  // namespace forgive::dst
