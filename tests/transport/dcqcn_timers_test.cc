// SPDX-License-Identifier: Apache-2.0
// Tests that DCQCN's lazy timers equal timers that are stepped one by one, and that they wake nobody for nothing.
#include <gtest/gtest.h>

#include <algorithm>

#include "transport/dcqcn.h"
#include "transport/draw.h"

namespace forgive {
namespace {

constexpr TimePoint kStart{5000000000};
constexpr uint64_t kSeedLine = 400000000000;  // the seed's
constexpr uint64_t kPaperLine = 40000000000;  // SIGCOMM'15's
constexpr CongestionSignal kMark = CongestionSignal::kMark;

Config ConfigFor(uint64_t line) {
  Config config;
  config.link_rate = {line};
  config.base_rtt = Microseconds(70);
  config.window_bytes = 3500000;
  return config;
}

// The same algorithms as an event loop that stops at every tick of every timer, in the same integers. What falls
// together: alpha, then increase, then decrease, then the signal. at_ is the last moment that was run.
class SteppedDcqcn {
 public:
  explicit SteppedDcqcn(uint64_t line) : line_(line), rate_(line), target_(line) {}

  uint64_t alpha_ = Dcqcn::kAlphaOne;
  uint64_t line_, rate_, target_;
  uint64_t cuts_ = 0;

 protected:
  void DecayAlpha() { alpha_ = alpha_ * 255 / 256; }
  void RaiseAlpha() { alpha_ = alpha_ * 255 / 256 + (uint64_t{1} << 24); }
  void CutBy(uint64_t alpha) {
    rate_ -= static_cast<uint64_t>((uint128{rate_} * alpha) >> 33);
    rate_ = std::max(line_ / 1000, rate_);
    ++cuts_;
  }
  void RaiseTarget(uint64_t by) { target_ = std::min(line_, target_ + by); }
  void MoveToTarget() { rate_ = (rate_ + target_ + 1) / 2; }
};

class SteppedAstra : public SteppedDcqcn {
 public:
  using SteppedDcqcn::SteppedDcqcn;

  // Runs every tick up to `to` and including it.
  void RunTo(TimePoint to) {
    while (true) {
      const TimePoint next = Earlier(alpha_at_, Earlier(increase_at_, decrease_at_));
      if (next > to) return;
      if (alpha_at_ == next) {
        alpha_notified_ ? RaiseAlpha() : DecayAlpha();
        alpha_notified_ = false;
        alpha_at_ = next + Microseconds(1);
      }
      if (increase_at_ == next) {
        if (stage_ == 1) RaiseTarget(line_ / 2000);
        if (stage_ > 1) RaiseTarget(line_ / 1000);
        MoveToTarget();
        ++stage_;
        increase_at_ = next + Microseconds(900);
      }
      if (decrease_at_ == next) {
        if (decrease_notified_) Cut(next, alpha_);
        decrease_notified_ = false;
        decrease_at_ = next + Microseconds(4);
      }
    }
  }
  void Signal(TimePoint now, CongestionSignal signal) {
    RunTo(now);
    const bool first = !started_;
    if (first) {
      started_ = true;
      alpha_at_ = now + Microseconds(1);
      decrease_at_ = now + Microseconds(4);
    }
    if (signal == CongestionSignal::kTimeout) return Cut(now, Dcqcn::kAlphaOne);
    if (!first) alpha_notified_ = true;
    decrease_notified_ = true;
  }

 private:
  void Cut(TimePoint now, uint64_t alpha) {
    if (stage_ != 0) target_ = rate_;
    CutBy(alpha);
    stage_ = 0;
    increase_at_ = now + Microseconds(900);
  }

  bool started_ = false, alpha_notified_ = false, decrease_notified_ = false;
  uint32_t stage_ = 0;
  TimePoint alpha_at_ = kNever, decrease_at_ = kNever, increase_at_ = kNever;
};

class SteppedPaper : public SteppedDcqcn {
 public:
  using SteppedDcqcn::SteppedDcqcn;

  void RunTo(TimePoint to) {
    while (Earlier(alpha_at_, increase_at_) <= to) {
      const TimePoint next = Earlier(alpha_at_, increase_at_);
      if (alpha_at_ == next) {
        DecayAlpha();
        alpha_at_ = next + Microseconds(55);
      }
      if (increase_at_ == next) {
        Increase(&timers_);
        increase_at_ = next + Microseconds(55);
      }
    }
  }
  void Sent(TimePoint now, uint64_t bytes) {
    RunTo(now);
    for (bytes_ += bytes; bytes_ >= 10000000; bytes_ -= 10000000) Increase(&counters_);
  }
  void Signal(TimePoint now, CongestionSignal signal) {
    RunTo(now);
    const bool timeout = signal == CongestionSignal::kTimeout;
    if (!timeout && now < silent_until_) return;
    target_ = rate_;
    CutBy(timeout ? Dcqcn::kAlphaOne : alpha_);
    if (!timeout) {
      RaiseAlpha();
      alpha_at_ = now + Microseconds(55);
      silent_until_ = now + Microseconds(50);
    }
    increase_at_ = now + Microseconds(55);
    timers_ = counters_ = 0;
    bytes_ = 0;
  }

 private:
  void Increase(uint32_t* counter) {
    if (timers_ >= 5 && counters_ >= 5) {
      RaiseTarget(line_ / 100);
    } else if (timers_ >= 5 || counters_ >= 5) {
      RaiseTarget(line_ / 1000);
    }
    MoveToTarget();
    ++*counter;
  }

  uint32_t timers_ = 0, counters_ = 0;
  uint64_t bytes_ = 0;
  TimePoint alpha_at_ = kNever, increase_at_ = kNever, silent_until_{INT64_MIN};
};

CongestionSignal RandomSignal(Draw* draw) {
  const uint64_t roll = draw->Below(40);
  if (roll == 0) return CongestionSignal::kTimeout;
  return roll < 8 ? CongestionSignal::kTrim : kMark;
}

// Gaps from bursts of a packet's time to pauses in which alpha decays to nothing, some of them on ticks.
Nanoseconds RandomGap(Draw* draw) {
  const int64_t shift = static_cast<int64_t>(draw->Below(18));
  const int64_t gap = 1 + static_cast<int64_t>(draw->Below(uint64_t{100} << shift));
  return {draw->Below(4) == 0 ? (gap + 999) / 1000 * 1000 : gap};
}

TEST(DcqcnAstra, EqualsAModelThatStepsEveryTimerIntegerForIntegerAskedOnlyAtItsDeadlines) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Draw draw(seed);
    SteppedAstra model(kSeedLine);
    DcqcnAstra astra(ConfigFor(kSeedLine));
    TimePoint now = kStart;
    for (int i = 0; i < 400; ++i) {
      const TimePoint next = now + RandomGap(&draw);
      while (astra.next_deadline() <= next) {
        const TimePoint due = astra.next_deadline();
        astra.OnDeadline(due);
        model.RunTo(due);
        ASSERT_EQ(astra.current_rate().value, model.rate_) << "seed " << seed << " timer before signal " << i;
        ASSERT_GT(astra.next_deadline(), due);
      }
      now = next;
      model.RunTo(now);
      ASSERT_EQ(astra.current_rate().value, model.rate_) << "seed " << seed << " before signal " << i;
      const CongestionSignal signal = RandomSignal(&draw);
      model.Signal(now, signal);
      astra.OnSignal(now, signal);
      ASSERT_EQ(astra.alpha(), model.alpha_) << "seed " << seed << " signal " << i;
      ASSERT_EQ(astra.current_rate().value, model.rate_) << "seed " << seed << " signal " << i;
      ASSERT_EQ(astra.target_rate().value, model.target_) << "seed " << seed << " signal " << i;
      ASSERT_EQ(astra.cuts().mark + astra.cuts().trim + astra.cuts().timeout, model.cuts_);
    }
  }
}

TEST(DcqcnPaper, EqualsAModelThatStepsEveryTimerIntegerForIntegerAskedOnlyAtItsDeadlines) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Draw draw(seed);
    SteppedPaper model(kPaperLine);
    DcqcnPaper paper(ConfigFor(kPaperLine));
    TimePoint now = kStart;
    for (int i = 0; i < 400; ++i) {
      const TimePoint next = now + RandomGap(&draw);
      while (paper.next_deadline() <= next) {
        const TimePoint due = paper.next_deadline();
        paper.OnDeadline(due);
        ASSERT_GT(paper.next_deadline(), due) << "seed " << seed << " before signal " << i;
      }
      now = next;
      model.RunTo(now);
      ASSERT_EQ(paper.current_rate().value, model.rate_) << "seed " << seed << " before signal " << i;
      if (draw.Below(2) == 0) {
        const uint64_t bytes = draw.Below(20000000);
        paper.OnSent(now, bytes);
        model.Sent(now, bytes);
        ASSERT_EQ(paper.current_rate().value, model.rate_) << "seed " << seed << " sent " << i;
      }
      const CongestionSignal signal = RandomSignal(&draw);
      model.Signal(now, signal);
      paper.OnSignal(now, signal);
      ASSERT_EQ(paper.alpha(), model.alpha_) << "seed " << seed << " signal " << i;
      ASSERT_EQ(paper.current_rate().value, model.rate_) << "seed " << seed << " signal " << i;
      ASSERT_EQ(paper.target_rate().value, model.target_) << "seed " << seed << " signal " << i;
      ASSERT_EQ(paper.cuts().mark + paper.cuts().trim + paper.cuts().timeout, model.cuts_);
    }
  }
}

// alpha's microseconds and decrease ticks without a notification wake nobody.
TEST(DcqcnAstra, IsWokenOnlyToCutOrToRaiseTheRateAndNotAtAllAtLineRate) {
  Draw draw(11);
  DcqcnAstra astra(ConfigFor(kSeedLine));
  EXPECT_EQ(astra.next_deadline(), kNever);
  TimePoint now = kStart;
  uint64_t wakes = 0;
  for (int i = 0; i < 200; ++i) {
    const TimePoint next = now + Microseconds(static_cast<int64_t>(5 + draw.Below(i % 20 == 0 ? 3000000 : 3000)));
    while (astra.next_deadline() <= next) {
      const uint64_t rate = astra.current_rate().value;
      const uint64_t cuts = astra.cuts().mark;
      astra.OnDeadline(astra.next_deadline());
      ASSERT_TRUE(astra.cuts().mark == cuts + 1 || astra.current_rate().value > rate) << "signal " << i;
      ++wakes;
    }
    now = next;
    ASSERT_EQ(astra.next_deadline() == kNever, astra.current_rate().value == kSeedLine) << "signal " << i;
    astra.OnSignal(now, kMark);
  }
  EXPECT_EQ(astra.cuts().mark, 199u);  // the last one is pending
  EXPECT_GT(wakes, 199u);
}

}  // namespace
}  // namespace forgive
