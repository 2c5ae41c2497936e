// SPDX-License-Identifier: Apache-2.0
// The oracle's memory, steps and dispatch.
#include "oracle.h"

#include <algorithm>
#include <cstring>

namespace forgive::dst {
namespace {

constexpr size_t kPatternBytes = 1 << 20;
constexpr size_t kArenaBytes = 64 << 20;  // pages that no schedule uses are never touched
constexpr size_t kGuardBytes = 48;
constexpr uint8_t kUntouched = 0xee;
constexpr uint8_t kApplication = 0xcd;  // what the application writes into a buffer once it is its own again
constexpr uint8_t kGuard = 0xa5;

}  // namespace

Oracle::Oracle(testing::World* world, Journal* journal, Tally* tally)
    : world_(world),
      journal_(journal),
      tally_(tally),
      pattern_(kPatternBytes),
      arena_(std::make_unique_for_overwrite<uint8_t[]>(kArenaBytes)),
      expected_(std::make_unique_for_overwrite<uint8_t[]>(kArenaBytes)) {
  Draw draw(20261202);
  for (uint8_t& byte : pattern_) {
    do {
      byte = static_cast<uint8_t>(draw.Next());
    } while (byte == 0 || byte == kUntouched || byte == kApplication || byte == kGuard);
  }
}

void Oracle::Begin(const Plan* plan) {
  plan_ = plan;
  arena_used_ = 0;
  streams_.clear();
  const size_t hosts = plan->configs.size();
  lives_.assign(hosts, 1);
  accounts_.assign(hosts, {});
  last_closed_.assign(hosts, 0);
  datagrams_ = digest_ = 0;
}

size_t Oracle::AddStream(const StreamPlan& plan) {
  StreamState& added = streams_.emplace_back();
  added.plan = plan;
  added.sender.host = plan.from;
  added.receiver.host = plan.to;
  added.sender.life = life(plan.from);
  added.receiver.life = life(plan.to);
  added.made_at = world_->LocalNow(plan.from);
  added.sender.last_heard = added.receiver.last_heard = world_->now();
  uint64_t next_unit = 0;
  for (const MessagePlan& planned : plan.messages) {
    MessageState message;
    message.plan = planned;
    message.sent = pattern_.data() + (streams_.size() * 7919 + added.messages.size() * 104729) %
                                         (kPatternBytes - std::min<size_t>(planned.length, kPatternBytes - 1));
    message.start = next_unit;
    message.units = (planned.length + kUnitBytes - 1) / kUnitBytes;
    next_unit = message.end();
    message.buffer = arena_used_ + kGuardBytes;
    FORGIVE_CHECK(planned.length < kPatternBytes);
    FORGIVE_CHECK(message.buffer + planned.capacity + kGuardBytes < kArenaBytes);
    for (uint8_t* const memory : {arena_.get(), expected_.get()}) {
      std::memset(memory + arena_used_, kGuard, kGuardBytes);
      std::memset(memory + message.buffer, kUntouched, planned.capacity);
      std::memset(memory + message.buffer + planned.capacity, kGuard, kGuardBytes);
    }
    arena_used_ = message.buffer + planned.capacity + kGuardBytes;
    added.messages.push_back(message);
  }
  added.units.assign(next_unit, 0);
  ++(*tally_)[Count::kConnections];
  return streams_.size() - 1;
}

// The buffer is the application's again: whatever is written there from now on destroys something.
void Oracle::GiveBack(const MessageState& message) {
  std::memset(BufferOf(message), kApplication, message.plan.capacity);
  std::memset(ExpectedOf(message), kApplication, message.plan.capacity);
}

void Oracle::CheckMemory() {
  if (std::memcmp(arena_.get(), expected_.get(), arena_used_) == 0) return;
  for (size_t index = 0; index < streams_.size(); ++index) {
    for (size_t number = 0; number < streams_[index].messages.size(); ++number) {
      const MessageState& message = streams_[index].messages[number];
      for (size_t i = 0; i < message.plan.capacity; ++i) {
        if (BufferOf(message)[i] == ExpectedOf(message)[i]) continue;
        journal_->Fail("stream %zu message %zu byte %zu is %02x, must be %02x%s", index, number, i,
                       BufferOf(message)[i], ExpectedOf(message)[i],
                       message.told_received ? ": written after its completion" : "");
        return;
      }
    }
  }
  journal_->Fail("something was written beside the posted buffers");
}

// ---- Reading ----

// The wire carries the low 32 bits, and no schedule comes near to so many.
bool Oracle::ReadData(const uint8_t* bytes, size_t length, DataHeader* out) const {
  if (!ParseDataHeader(bytes, length, out)) return false;
  const auto first = static_cast<uint32_t>(plan_->first_number);
  out->packet_number = static_cast<uint32_t>(out->packet_number) - first;
  out->message_number -= first;
  return true;
}

bool Oracle::ReadReport(const uint8_t* bytes, size_t length, Report* out) const {
  if (!ParseReport(bytes, length, out)) return false;
  const auto first = static_cast<uint32_t>(plan_->first_number);
  out->report_number = static_cast<uint32_t>(out->report_number) - first;
  for (uint32_t* const number : {&out->completed_messages, &out->posted_messages, &out->same_step_end,
                                 &out->step_start_message, &out->newest_packet_number, &out->trimmed_packet_number}) {
    *number -= first;
  }
  return true;
}

// ---- Finding ----

StreamState* Oracle::FindSender(int host, ConnectionHandle handle) {
  for (StreamState& each : streams_) {
    if (each.sender.host == host && each.sender.handle == handle && each.sender.life == life(host)) return &each;
  }
  return nullptr;
}

StreamState* Oracle::FindReceiver(int host, ConnectionHandle handle) {
  for (StreamState& each : streams_) {
    if (each.receiver.host == host && each.receiver.handle == handle && each.receiver.life == life(host))
      return &each;
  }
  return nullptr;
}

StreamState* Oracle::FindSenderById(int host, uint64_t id) {
  for (StreamState& each : streams_) {
    if (each.sender.host == host && each.sender.id == id && each.sender.life == life(host)) return &each;
  }
  return nullptr;
}

StreamState* Oracle::FindReceiverById(int host, uint64_t id) {
  for (StreamState& each : streams_) {
    if (each.receiver.host == host && each.receiver.id == id && each.receiver.life == life(host)) return &each;
  }
  return nullptr;
}

// ---- Steps ----

Account* Oracle::Find(int host, uint64_t step) {
  for (Account& each : accounts_[static_cast<size_t>(host)]) {
    if (each.facts.step == step && each.life == life(host)) return &each;
  }
  return nullptr;
}

Account* Oracle::FindOpen(int host, uint64_t step) {
  Account* const account = Find(host, step);
  return account != nullptr && account->facts.open ? account : nullptr;
}

uint64_t Oracle::NewestStep(int host) const {
  const std::deque<Account>& all = accounts_[static_cast<size_t>(host)];
  return all.empty() ? 0 : all.back().facts.step;
}

void Oracle::OnStepBegin(int host, const StepPlan& plan, bool may_overlap, StepResult result) {
  std::deque<Account>& all = accounts_[static_cast<size_t>(host)];
  uint32_t in_use = 0;
  bool any_open = false;
  for (const Account& each : all) {
    if (each.life != life(host)) continue;
    any_open = any_open || each.facts.open;
    in_use += each.facts.open || each.facts.messages != 0 ? 1 : 0;
  }
  StepResult must = StepResult::kOk;
  if (in_use >= ConfigOf(host).max_steps) must = StepResult::kTableFull;
  if (plan.step <= NewestStep(host)) must = StepResult::kNotRising;
  if (any_open && !may_overlap) must = StepResult::kStepOpen;
  if (result != must && !HoldsEvents(host)) {
    journal_->Fail("host %d: to begin step %llu was answered %d, not %d", host,
                   static_cast<unsigned long long>(plan.step), static_cast<int>(result), static_cast<int>(must));
  }
  if (result != StepResult::kOk) return;
  const Account* closed =
      last_closed_[static_cast<size_t>(host)] == 0 ? nullptr : Find(host, last_closed_[static_cast<size_t>(host)]);
  Account account;
  account.life = life(host);
  account.facts.step = plan.step;
  account.facts.open = true;
  account.facts.p = plan.p;
  account.facts.expected = plan.expected_bytes;
  if (plan.expected_bytes == 0 && closed != nullptr) {
    account.facts.expected = closed->facts.settled;
    tally_->counts[static_cast<size_t>(Count::kPredictedBudgets)] += closed->facts.settled != 0 ? 1 : 0;
  }
  account.facts.budget = static_cast<uint64_t>(uint128{account.facts.expected} * plan.p.ppm / Fraction::kOne);
  all.push_back(account);
  ++(*tally_)[Count::kStepsBegun];
  journal_->Note("host %d begins step %llu, p %u ppm, expects %llu", host, static_cast<unsigned long long>(plan.step),
                 plan.p.ppm, static_cast<unsigned long long>(account.facts.expected));
  CheckAccount(host, all.back());
}

void Oracle::OnStepEnd(int host, uint64_t step, StepResult result) {
  Account* const account = FindOpen(host, step);
  const StepResult must = account != nullptr ? StepResult::kOk : StepResult::kNotOpen;
  if (result != must) journal_->Fail("host %d: to end a step was answered %d", host, static_cast<int>(result));
  if (account == nullptr || result != StepResult::kOk) return;
  account->facts.open = false;
  last_closed_[static_cast<size_t>(host)] = step;
  ++(*tally_)[Count::kStepsEnded];
  journal_->Note("host %d ends step %llu", host, static_cast<unsigned long long>(step));
  CheckAccount(host, *account);
}

void Oracle::CheckAccount(int host, const Account& account) {
  const StepAccount& must = account.facts;
  const StepAccount* const is = world_->host(host).steps->Find(must.step);
  const bool in_use = must.open || must.messages != 0;
  if (HoldsEvents(host) || (is == nullptr && !in_use)) return;
  const auto step = static_cast<unsigned long long>(must.step);
  if (is == nullptr) {
    journal_->Fail("host %d: step %llu is gone while it is in use", host, step);
    return;
  }
  const std::tuple<const char*, uint64_t, uint64_t> facts[] = {
      {"open", is->open, must.open},
      {"expected", is->expected, must.expected},
      {"budget", is->budget, must.budget},
      {"received", is->received, must.received},
      {"forgiven", is->forgiven, must.forgiven},
      {"charged", is->charged, must.charged},
      {"outstanding", is->outstanding, must.outstanding},
      {"outstanding_charge", is->outstanding_charge, must.outstanding_charge},
      {"settled", is->settled, must.settled},
      {"contributions_lost", is->contributions_lost, must.contributions_lost},
      {"messages", is->messages, must.messages},
  };
  for (const auto& [name, value, right] : facts) {
    if (value == right) continue;
    journal_->Fail("host %d step %llu: %s is %llu, must be %llu", host, step, name,
                   static_cast<unsigned long long>(value), static_cast<unsigned long long>(right));
    return;
  }
  // The bounds, from what was counted here.
  if (must.charged > must.budget) journal_->Fail("host %d step %llu: more is charged than the budget", host, step);
  if (uint128{must.charged} * Fraction::kOne > (uint128{must.received} + must.forgiven) * must.p.ppm) {
    journal_->Fail("host %d step %llu: more is charged than has vested", host, step);
  }
}

// ---- Dispatch ----

void Oracle::BeforeDatagrams(int host) { before_ = world_->endpoint(host).counters(); }

void Oracle::AfterDatagrams(const testing::Flight& flight, uint64_t burst) {
  ++(*tally_)[Count::kDatagrams];
  const Counters& after = world_->endpoint(flight.to).counters();
  // None of the burst was taken.
  if (after.events_full - before_.events_full >= burst) {
    journal_->Note("host %d takes no datagram: its events wait", flight.to);
    if (after.packets_received + after.trims + after.reports_received !=
        before_.packets_received + before_.trims + before_.reports_received) {
      journal_->Fail("host %d took a datagram although it has no room for events", flight.to);
    }
    return;
  }
  const uint8_t type = flight.bytes.size() >= 2 ? flight.bytes[1] : 0;
  if (type == static_cast<uint8_t>(PacketType::kData) || !flight.header_intact) {
    AfterData(flight);
  } else if (type == static_cast<uint8_t>(PacketType::kReport)) {
    Report report;
    if (ReadReport(flight.bytes.data(), flight.bytes.size(), &report)) AfterReport(flight, report, burst);
  } else if (StreamState* const sent =
                 FindSenderById(flight.to, PeekConnectionId(static_cast<PacketType>(type), flight.bytes.data()))) {
    sent->sender.last_heard = world_->now();
  } else if (StreamState* const got =
                 FindReceiverById(flight.to, PeekConnectionId(static_cast<PacketType>(type), flight.bytes.data()))) {
    got->receiver.last_heard = world_->now();
  }
  // All of the memory, as often as that costs no more than the rest.
  if (++datagrams_ % std::max<uint64_t>(32, arena_used_ / 16384) == 0) CheckMemory();
}

void Oracle::OnTransmit(int host, const Transmit& transmit) {
  uint64_t tag = 0;
  std::memcpy(&tag, transmit.header.data() + transmit.header_length - sizeof tag, sizeof tag);
  Mix(tag ^ static_cast<uint64_t>(world_->now().ns));
  const uint8_t type = transmit.header[1];
  if (type == static_cast<uint8_t>(PacketType::kData)) {
    StreamState* const stream = FindSender(host, transmit.connection);
    if (stream == nullptr) {
      journal_->Fail("host %d sends data of a connection that nobody has", host);
    } else {
      CheckData(stream, transmit);
    }
  } else if (type == static_cast<uint8_t>(PacketType::kReport)) {
    StreamState* const stream = FindReceiver(host, transmit.connection);
    if (stream != nullptr) CheckReport(stream, transmit);
  } else if (type == static_cast<uint8_t>(PacketType::kConnect) ||
             type == static_cast<uint8_t>(PacketType::kConnectReply)) {
    LearnHandshake(host, transmit);
  } else {
    journal_->Note("host %d sends control type %d", host, type);
    if (type == static_cast<uint8_t>(PacketType::kProbe)) ++(*tally_)[Count::kProbedForCredit];
  }
}

void Oracle::OnEvent(int host, const Event& event) {
  ++progress_;
  Mix((static_cast<uint64_t>(event.kind) << 56) ^ event.cookie ^ (uint64_t{event.offset} << 32) ^ event.length);
  switch (event.kind) {
    case Event::Kind::kConnected:
    case Event::Kind::kIncoming: {
      const bool sends = event.kind == Event::Kind::kConnected;
      StreamState& stream = streams_[event.cookie];
      End& end = stream.end(sends);
      journal_->Note("host %d: stream %llu is open, %s", host, static_cast<unsigned long long>(event.cookie),
                     sends ? "sending" : "receiving");
      if (!sends && end.host == host && end.state == EndState::kClosed && end.handle == ConnectionHandle{}) {
        // Accepted before the application gave its listener up, and told afterwards.
        end.handle = event.connection;
        end.id = event.connection_id;
        end.state = EndState::kOpen;
        return;
      }
      if (end.host != host || end.state != EndState::kConnecting) {
        journal_->Fail("host %d: stream %llu opens twice", host, static_cast<unsigned long long>(event.cookie));
        return;
      }
      end.state = EndState::kOpen;
      end.last_heard = world_->now();
      if (sends) return;
      end.handle = event.connection;
      end.id = event.connection_id;
      return;
    }
    case Event::Kind::kIncomingRefused:
      journal_->Fail("host %d refused a peer, reason %d", host, static_cast<int>(event.reason));
      return;
    case Event::Kind::kForgiven:
      OnForgiven(host, event);
      return;
    case Event::Kind::kReceived:
      OnReceived(host, event);
      return;
    case Event::Kind::kSent:
      OnSent(host, event);
      return;
    case Event::Kind::kFailed:
      OnFailed(host, event);
      return;
    case Event::Kind::kSegmentsCut:
      journal_->Note("host %d: segments have at most %llu bytes now", host,
                     static_cast<unsigned long long>(event.size));
      return;
  }
}

void Oracle::AfterHost(int host) {
  const testing::World::Host& at = world_->host(host);
  if (at.idle_turns > 64 && !HoldsEvents(host)) {
    journal_->Fail("host %d has a deadline in the past and nothing to do, again and again", host);
  }
  for (StreamState& each : streams_) {
    if (each.sender.host == host && each.sender.state == EndState::kOpen) CheckSender(&each);
    if (each.receiver.host != host || each.receiver.state != EndState::kOpen || HoldsEvents(host)) continue;
    if (!each.forgiven.empty()) journal_->Fail("host %d forgave without a line in the ledger", host);
    if (each.completed != 0 && !each.messages[each.completed - 1].told_received) {
      journal_->Fail("host %d: message %u is whole, but nobody was told", host, each.completed - 1);
    }
  }
}

void Oracle::OnDied(int host) {
  for (StreamState& each : streams_) {
    for (const bool sends : {true, false}) {
      End& end = each.end(sends);
      if (end.host != host || end.life != life(host)) continue;
      if (!sends && end.alive()) {
        for (uint32_t n = 0; n < each.messages.size(); ++n) {
          if (!each.messages[n].told_received) GiveBack(each.messages[n]);
        }
      }
      end.state = EndState::kGone;
      if (!sends) each.forgiven.clear();
    }
  }
  ++lives_[static_cast<size_t>(host)];
  accounts_[static_cast<size_t>(host)].clear();
  last_closed_[static_cast<size_t>(host)] = 0;
}

void Oracle::CheckAtRest() {
  CheckMemory();
  for (int host = 0; host < world_->size(); ++host) {
    for (const Account& each : accounts_[static_cast<size_t>(host)]) {
      if (each.facts.outstanding != 0 || each.facts.messages != 0) {
        journal_->Fail("host %d step %llu: everything is settled, yet %llu bytes of %u messages are outstanding",
                       host, static_cast<unsigned long long>(each.facts.step),
                       static_cast<unsigned long long>(each.facts.outstanding), each.facts.messages);
      }
      CheckAccount(host, each);
    }
    const Counters& counters = world_->endpoint(host).counters();
    uint64_t decided = 0;
    for (const uint64_t decisions : counters.decisions) decided += decisions;
    if (decided != counters.trims) journal_->Fail("host %d: trims and decisions do not add up", host);
  }
}

}  // namespace forgive::dst
