// SPDX-License-Identifier: Apache-2.0
// Draws a schedule's plan from its seed.
#include "plan.h"

#include <algorithm>

#include "transport/draw.h"
#include "transport/wire_layout.h"

namespace forgive::dst {
namespace {

constexpr uint64_t kLargestMessageBytes = 500000;

class Planner {
 public:
  Planner(uint64_t seed, bool large)
      : draw_(seed ^ 0x5eedf0f61fe5eedu),
        later_draw_(seed ^ 0xb1ac4401e5eedu),
        wrap_draw_(seed ^ 0x3a9f0325eedu),
        rail_draw_(seed ^ 0x4a115eedu),
        early_draw_(seed ^ 0xea1175eedu) {
    plan_.seed = seed;
    plan_.large = large;
  }

  Plan Make() {
    const int hosts = Hosts();
    plan_.can_fail = OneIn(6);
    go_back_n_ = OneIn(12);
    fills_events_ = OneIn(20);
    MakeConfigs(hosts);
    MakeRates();
    MakeStreams(hosts);
    MakeSpells(hosts);
    MakeSteps();
    MakeShrinking();
    MakeWraps(hosts);
    MakeRails(hosts);
    for (Config& config : plan_.configs) config.early_messages = early_draw_.Below(4) != 0;
    return std::move(plan_);
  }

 private:
  uint64_t Below(uint64_t bound) { return draw_.Below(bound); }
  bool OneIn(uint64_t n) { return Below(n) == 0; }
  int64_t Signed(uint64_t bound) { return static_cast<int64_t>(Below(bound)); }
  uint64_t Pick(std::initializer_list<uint64_t> values) { return values.begin()[Below(values.size())]; }

  int Hosts() {
    if (plan_.large) return static_cast<int>(4 + Below(13));
    const uint64_t kind = Below(100);
    if (kind < 50) return 2;
    if (kind < 88) return static_cast<int>(3 + Below(2));
    return static_cast<int>(kind < 97 ? 5 + Below(4) : 9 + Below(8));
  }

  // What all hosts share, and what each has for itself.
  void MakeConfigs(int hosts) {
    Config shared;
    shared.max_connections = 64;
    shared.max_listeners = 32;
    shared.event_capacity = 1024;
    shared.max_steps = static_cast<uint32_t>(2 + Below(6));
    shared.tags = !OneIn(16);
    shared.payload_crc = !OneIn(8);
    // Small, so that many packets are few bytes.
    shared.max_payload_bytes = static_cast<uint32_t>(Pick({16, 48, 80, 160, 256, 512, 512, 1040, 4096, 100}));
    shared.link_rate = BitsPerSecond{Pick({0, 0, 100000000, 1000000000, 10000000000})};
    shared.min_rto = Microseconds(Pick3(500, 2000, 20000));
    shared.max_rto = shared.min_rto * Signed(5) + Milliseconds(100);
    shared.rto_backoff = !OneIn(4);
    shared.initial_rtt = Microseconds(Pick3(50, 300, 1000));
    shared.base_rtt = OneIn(3) ? Microseconds(100) : Nanoseconds{};
    shared.linger = Milliseconds(200);
    // Long enough for what the faults do, unless peers die.
    shared.peer_timeout = plan_.can_fail ? Milliseconds(400 + Signed(2000)) : Seconds(100);
    shared.connect_retry = Milliseconds(1 + Signed(20));
    if (go_back_n_) shared.recovery = Recovery::kGoBackN;
    for (int i = 0; i < hosts; ++i) {
      plan_.configs.push_back(OfHost(shared));
      plan_.clock_offsets.push_back(Nanoseconds{Signed(300000000000)});
    }
    if (!plan_.can_fail && OneIn(4)) plan_.largest_datagram_bytes = Pick({576, 1280, 1500});
    plan_.burst_packets = static_cast<uint32_t>(Pick({1, 1, 4, 8}));
  }
  int64_t Pick3(uint64_t a, uint64_t b, uint64_t c) { return static_cast<int64_t>(Pick({a, b, c})); }

  Config OfHost(const Config& shared) {
    Config config = shared;
    const uint64_t packets = uint64_t{4} << Below(5);
    config.window_bytes = packets * shared.max_payload_bytes;
    config.scoreboard_bytes = 4096;
    while (config.scoreboard_bytes < config.max_payload_bytes + 2 * kUnitBytes) config.scoreboard_bytes *= 2;
    while (config.scoreboard_bytes < config.window_bytes && !OneIn(4)) config.scoreboard_bytes *= 2;
    config.max_messages = static_cast<uint32_t>(fills_events_ ? 256 : Pick({2, 8, 16, 64}));
    config.packet_number_window = static_cast<uint32_t>(Pick({64, 256, 1024}));
    config.congestion_control = static_cast<CongestionControlKind>(Below(4));
    config.congestion_restart = static_cast<CongestionRestart>(Below(3));
    config.forgiveness_probability = Fraction{static_cast<uint32_t>(Pick({1000000, 1000000, 1000000, 300000, 0}))};
    config.budget_unit = OneIn(3) ? BudgetUnit::kContributions : BudgetUnit::kBytes;
    config.report_every_packets = static_cast<uint32_t>(Pick({1, 1, 4, 16}));
    config.max_report_delay = Microseconds(Pick3(20, 200, 1000));
    config.fabric_trims = !OneIn(12);
    config.pacing_burst_bytes = static_cast<uint32_t>(Pick({1000, 4096, 16384}));
    if (!go_back_n_) {
      config.path_policy = static_cast<PathPolicy>(Below(3));
      config.paths = static_cast<uint32_t>(1 + Below(OneIn(4) ? kMaxPaths : 8));
    }
    return config;
  }

  Fraction Chance(uint64_t most_ppm) { return Fraction{static_cast<uint32_t>(OneIn(3) ? 0 : Below(most_ppm))}; }

  void MakeRates() {
    Rates& rates = plan_.rates;
    const bool calm = OneIn(10);
    const uint64_t share = calm ? 20 : 1;
    rates.trim = Fraction{static_cast<uint32_t>(OneIn(8) ? 0 : Below(350000 / share))};
    rates.drop = Chance(120000 / share);
    rates.duplicate = Chance(100000 / share);
    rates.reorder = Chance(400000 / share);
    rates.mark = Chance(200000 / share);
    const bool tags = plan_.configs[0].tags;
    rates.corrupt = tags ? Chance(30000) : Fraction{};
    rates.forge = tags ? Chance(80000) : Fraction{};
    rates.replay = tags ? Chance(80000) : Fraction{};
    rates.delay = Microseconds(2 + Signed(OneIn(3) ? 800 : 60));
    // Some come so late that they were sent again, and even forgiven, before.
    rates.reorder_delay = Microseconds(5 + Signed(OneIn(3) ? 40000 : 1000));
    rates.path_skew = OneIn(3) ? Microseconds(Signed(20)) : Nanoseconds{};
    plan_.turn = Microseconds(2 + Signed(OneIn(3) ? 1000 : 60));
    plan_.faults_end = kWorldBegin + plan_.turn * (60 + Signed(200));
  }

  // Streams share a number of packets, which is what a schedule costs.
  void MakeStreams(int hosts) {
    uint64_t packets = plan_.large ? 1500 + Below(4000) : 20 + Below(140);
    if (fills_events_) packets = 1500;
    const auto pairs = static_cast<uint64_t>(hosts) * static_cast<uint64_t>(hosts - 1);
    const uint64_t most = plan_.large ? 40 : static_cast<uint64_t>(hosts) + 1;
    const uint64_t count = fills_events_ ? 1 + Below(3) : 1 + Below(std::min(pairs, most));
    for (uint64_t n = 0; n < count; ++n) {
      StreamPlan stream;
      // Often all to one, as in an incast.
      stream.to = n % 2 == 0 ? 0 : static_cast<int>(Below(static_cast<uint64_t>(hosts)));
      stream.from = static_cast<int>(Below(static_cast<uint64_t>(hosts - 1)));
      if (stream.from >= stream.to) ++stream.from;
      stream.resegments = !go_back_n_ && plan_.configs[0].tags && OneIn(4);
      stream.max_payload = OneIn(4) ? static_cast<uint32_t>(16 + Below(600)) : kMaxPayloadBytes;
      if (fills_events_) stream.resegments = false;
      stream.receives_from = kWorldBegin + (OneIn(4) ? plan_.turn * Signed(150) : Nanoseconds{});
      stream.post_chance = Pick({2, 8, 16});
      stream.posts_ahead = OneIn(2);
      stream.window_of_posts = static_cast<uint32_t>(Pick({1, 2, 8, 256, 256}));
      MakeMessages(&stream, packets / count);
      plan_.streams.push_back(std::move(stream));
    }
  }

  void MakeMessages(StreamPlan* stream, uint64_t packets) {
    const uint64_t payload = std::min<uint64_t>(stream->max_payload, plan_.configs[0].max_payload_bytes) / 16 * 16;
    uint64_t left = std::max<uint64_t>(packets, 1);
    const uint64_t largest = fills_events_ ? 1 : 1 + Below(left);
    while (left != 0 && stream->messages.size() < 1000) {
      MessagePlan message;
      const uint64_t whole = Below(1 + std::min({left, largest, kLargestMessageBytes / payload}));
      message.length = static_cast<uint32_t>(whole * payload + (OneIn(3) ? 0 : Below(payload)));
      if (fills_events_) message.length = static_cast<uint32_t>(OneIn(2) ? 0 : Below(17));
      message.capacity = message.length + static_cast<uint32_t>(OneIn(4) ? Below(100) : 0);
      left -= std::min(left, whole + 1);
      stream->messages.push_back(message);
    }
    if (plan_.can_fail && OneIn(8)) {
      MessagePlan& wrong = stream->messages[Below(stream->messages.size())];
      if (wrong.length != 0) wrong.capacity = wrong.length - 1 - static_cast<uint32_t>(Below(wrong.length));
    }
  }

  void MakeSpells(int hosts) {
    using Kind = Spell::Kind;
    const uint64_t count = Below(plan_.large ? 12 : 5);
    const Nanoseconds all = plan_.faults_end - kWorldBegin;
    for (uint64_t n = 0; n < count + (fills_events_ ? 2 : 0); ++n) {
      Spell spell;
      spell.kind = static_cast<Kind>(Below(static_cast<uint64_t>(plan_.can_fail ? Kind::kClose : Kind::kHold) + 1));
      if (n >= count) spell.kind = Kind::kHold;
      spell.host = static_cast<int>(Below(static_cast<uint64_t>(hosts)));
      spell.begin = kWorldBegin + Nanoseconds{Signed(static_cast<uint64_t>(all.value))};
      spell.end = spell.begin + Nanoseconds{Signed(static_cast<uint64_t>(all.value) / 2 + 1)};
      if (n >= count) {  // the events of whoever all send to
        spell.host = 0;
        spell.begin = kWorldBegin + plan_.turn;
        spell.end = plan_.faults_end;
      }
      if (spell.kind == Kind::kDelay) spell.amount = Below(OneIn(3) ? 30000000 : 1000000);
      if (spell.kind == Kind::kPathLoss) spell.amount = Below(4);
      if (spell.kind == Kind::kJump) spell.amount = OneIn(3) ? 3600000000000u : Below(50000000);
      // Some come back at once, some only after their peers gave up.
      if (spell.kind == Kind::kDeath && OneIn(2)) spell.end = spell.end + plan_.configs[0].peer_timeout * 2;
      plan_.spells.push_back(spell);
    }
    std::stable_sort(plan_.spells.begin(), plan_.spells.end(), EarlierSpell);
  }

  void MakeSteps() {
    plan_.step_begin_chance = Pick({64, 128, 256});
    plan_.step_end_chance = Pick({0, 2, 8, 32});
    plan_.steps_overlap = OneIn(4);
    plan_.largest_p_ppm = static_cast<uint32_t>(Pick({0, 5000, 100000, 200000, 400000, 400000, 1000000}));
    plan_.eligible_chance = go_back_n_ ? 0 : Pick({8, 14, 16, 16});
    plan_.forgivable_chance = Pick({4, 12, 16, 16});
    plan_.largest_contributions = static_cast<uint32_t>(Pick({1, 3, 16}));
  }

  // An MTU that shrinks for good, where packets are so large that it matters and there is a smaller size that passes.
  // Go-back-N does not find it (transport/black_hole.h).
  void MakeShrinking() {
    if (go_back_n_ || plan_.configs[0].max_payload_bytes < kMaxPayloadBytes || later_draw_.Below(4) == 0) return;
    const Nanoseconds all = plan_.faults_end - kWorldBegin;
    const size_t sizes[] = {1224, 1280, 1448, 1500, 3000};  // the first and the third are the ladder's own
    plan_.shrinks_to_bytes = sizes[later_draw_.Below(std::size(sizes))];
    plan_.shrinks_at =
        kWorldBegin + Nanoseconds{static_cast<int64_t>(later_draw_.Below(static_cast<uint64_t>(all.value)))};
  }

  // What is short on the wire wraps while the world runs: clocks and numbers. And clocks stand still.
  void MakeWraps(int hosts) {
    const auto all = static_cast<uint64_t>((plan_.faults_end - kWorldBegin).value);
    constexpr int64_t kWrapNs = (int64_t{1} << 32) * FORGIVE_TIMESTAMP_UNIT_NS;
    for (Nanoseconds& offset : plan_.clock_offsets) {
      if (wrap_draw_.Below(4) == 0) offset = Nanoseconds{kWrapNs - kWorldBegin.ns - Wrapped(all)};
    }
    // Few messages, some reports, many packets.
    constexpr uint64_t kWraps[] = {uint64_t{1} << 31, uint64_t{1} << 32, uint64_t{1} << 32, uint64_t{7} << 32};
    if (wrap_draw_.Below(3) == 0) {
      plan_.first_number = kWraps[wrap_draw_.Below(4)] - 1 - wrap_draw_.Below(wrap_draw_.Below(2) == 0 ? 8 : 200);
    }
    for (Config& each : plan_.configs) each.experiments.first_number = plan_.first_number;
    if (wrap_draw_.Below(4) != 0) return;
    Spell spell;
    spell.kind = Spell::Kind::kStill;
    spell.host = static_cast<int>(wrap_draw_.Below(static_cast<uint64_t>(hosts)));
    spell.begin = kWorldBegin + Nanoseconds{Wrapped(all)};
    spell.end = spell.begin + Nanoseconds{Wrapped(all)};
    plan_.spells.insert(std::upper_bound(plan_.spells.begin(), plan_.spells.end(), spell, EarlierSpell), spell);
  }

  // Several rails, and rails that are dead for a while, in one direction or, by two spells, in both.
  void MakeRails(int hosts) {
    if (go_back_n_ || rail_draw_.Below(5) != 0) return;
    const auto rails = static_cast<uint32_t>(2 + rail_draw_.Below(kMaxRails - 1));
    for (Config& each : plan_.configs) {
      each.rails = rails;
      each.paths = std::max(each.paths / rails, 1u) * rails;
      if (each.path_policy == PathPolicy::kSingle) each.path_policy = PathPolicy::kOblivious;
    }
    const auto all = static_cast<uint64_t>((plan_.faults_end - kWorldBegin).value);
    for (uint64_t count = rail_draw_.Below(4); count != 0; --count) {
      Spell spell;
      spell.kind = Spell::Kind::kRailLoss;
      spell.host = static_cast<int>(rail_draw_.Below(static_cast<uint64_t>(hosts)));
      // Some from the beginning on: connections then begin over what is left.
      const uint64_t begin = rail_draw_.Below(3) == 0 ? 0 : rail_draw_.Below(all);
      spell.begin = kWorldBegin + Nanoseconds{static_cast<int64_t>(begin)};
      spell.end = spell.begin + Nanoseconds{static_cast<int64_t>(rail_draw_.Below(all))};
      spell.amount = rail_draw_.Below(rails);
      plan_.spells.push_back(spell);
    }
    std::stable_sort(plan_.spells.begin(), plan_.spells.end(), EarlierSpell);
  }
  int64_t Wrapped(uint64_t bound) { return static_cast<int64_t>(wrap_draw_.Below(bound)); }
  static bool EarlierSpell(const Spell& a, const Spell& b) { return a.begin < b.begin; }

  Draw draw_;
  Draw later_draw_;  // of what was added later: what a seed meant before, it means still
  Draw wrap_draw_;   // the same, later still
  Draw rail_draw_;   // and later again
  Draw early_draw_;  // and again
  Plan plan_;
  bool go_back_n_ = false;
  bool fills_events_ = false;
};

}  // namespace

Plan MakePlan(uint64_t seed, bool large) { return Planner(seed, large).Make(); }

}  // namespace forgive::dst
