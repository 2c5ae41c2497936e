// SPDX-License-Identifier: Apache-2.0
// Tests of the segments of posted messages and what became of them.
#include "transport/sent_ranges.h"

#include <gtest/gtest.h>

#include <map>

#include "transport/draw.h"

namespace forgive {
namespace {

constexpr uint32_t kPayload = 1024;
constexpr TimePoint kStart{1000000};

class SentRangesTest : public ::testing::Test {
 protected:
  SentRanges ranges{kPayload, 256 * 1024, 8, kMaxPaths};
  uint64_t packet = 0;
  TimePoint now = kStart;

  void Add(uint32_t length) { ranges.AddMessage(100 + ranges.posted(), nullptr, length); }
  void SendAll() {
    while (ranges.HasUnsent()) Send();
  }
  uint64_t Send() {
    now = now + Microseconds(1);
    return ranges.SendUnsent(packet++, now, 0);
  }
};

TEST_F(SentRangesTest, CutsAMessageIntoFullSegmentsAndARestThatEndsBehindTheEndSlot) {
  Add(2 * kPayload + 5);
  Add(kPayload);
  EXPECT_EQ(ranges.UnsentPlace().length, kPayload);
  EXPECT_EQ(ranges.UnsentEnd(), kPayload);
  Send();
  Send();
  EXPECT_EQ(ranges.UnsentPlace().offset, 2 * kPayload);
  EXPECT_EQ(ranges.UnsentPlace().length, 5u);
  EXPECT_EQ(ranges.UnsentEnd(), 2 * kPayload + 16 + 16);  // padding, end slot
  Send();
  EXPECT_EQ(ranges.UnsentPlace().message, 1u);
  EXPECT_EQ(ranges.UnsentPlace().length, kPayload);
  EXPECT_EQ(ranges.message(1).stream_begin, 2 * kPayload + 32);
  EXPECT_EQ(ranges.UnsentEnd(), 2 * kPayload + 32 + kPayload + 16);  // one segment carries its end slot
  Send();
  EXPECT_FALSE(ranges.HasUnsent());
}

TEST_F(SentRangesTest, SendsAnEmptyMessageAsOneSegmentWithoutPayload) {
  Add(0);
  Add(16);
  EXPECT_EQ(ranges.UnsentPlace().length, 0u);
  EXPECT_EQ(ranges.UnsentEnd(), 16u);
  Send();
  EXPECT_EQ(ranges.UnsentPlace().message, 1u);
  EXPECT_EQ(ranges.bytes_in_flight(), 0u);
  EXPECT_FALSE(ranges.nothing_outstanding());
}

TEST_F(SentRangesTest, AcknowledgesOnlySegmentsThatLieInTheRangeAsAWhole) {
  Add(4 * kPayload);
  SendAll();
  EXPECT_EQ(ranges.Acknowledge(now, {16, 3 * kPayload - 16}), 1u);  // the second one alone
  EXPECT_EQ(ranges.bytes_in_flight(), 3 * kPayload);
  EXPECT_EQ(ranges.Acknowledge(now, {0, 4 * kPayload}), 2u);  // not the last: its end slot is missing
  EXPECT_EQ(ranges.Acknowledge(now, {3 * kPayload, 4 * kPayload + 16}), 1u);
  EXPECT_TRUE(ranges.nothing_outstanding());
}

TEST_F(SentRangesTest, CompletesMessagesInOrderThoughTheyAreAcknowledgedOutOfOrder) {
  Add(kPayload);
  Add(kPayload);
  SendAll();
  uint64_t cookie = 0;
  ranges.Acknowledge(now, {ranges.message(1).stream_begin, ranges.message(1).stream_end});
  EXPECT_FALSE(ranges.PopCompleted(&cookie));
  ranges.Acknowledge(now, {0, ranges.message(0).stream_end});
  ASSERT_TRUE(ranges.PopCompleted(&cookie));
  EXPECT_EQ(cookie, 100u);
  ASSERT_TRUE(ranges.PopCompleted(&cookie));
  EXPECT_EQ(cookie, 101u);
  EXPECT_FALSE(ranges.PopCompleted(&cookie));
}

TEST_F(SentRangesTest, IgnoresARequestOlderThanTheLastTransmission) {
  Add(4 * kPayload);
  SendAll();
  EXPECT_EQ(ranges.LoseRequested({kPayload, 2 * kPayload}, 1), 1u);
  ranges.SendAgain(ranges.FirstLost(), packet++, now, 0);  // packet 4
  EXPECT_EQ(ranges.LoseRequested({kPayload, 2 * kPayload}, 3), 0u);
  EXPECT_FALSE(ranges.HasLost());
  EXPECT_EQ(ranges.LoseRequested({kPayload, 2 * kPayload}, 4), 1u);
  EXPECT_TRUE(ranges.HasLost());
}

TEST_F(SentRangesTest, LosesASegmentOfWhichARequestNamesAPart) {
  Add(4 * kPayload);
  SendAll();
  EXPECT_EQ(ranges.LoseRequested({kPayload + 64, kPayload + 80}, 3), 1u);
  EXPECT_EQ(ranges.StreamBegin(ranges.FirstLost()), kPayload);
}

TEST_F(SentRangesTest, ForgetsALossWhenTheSegmentIsAcknowledgedAfterAll) {
  Add(2 * kPayload);
  SendAll();
  EXPECT_EQ(ranges.LoseSentBefore(0, now + Nanoseconds{1}), 2u);
  EXPECT_EQ(ranges.bytes_in_flight(), 0u);
  EXPECT_EQ(ranges.Acknowledge(now, {0, kPayload}), 1u);
  EXPECT_EQ(ranges.FirstLost(), 1u);
  EXPECT_EQ(ranges.bytes_in_flight(), 0u);
}

TEST_F(SentRangesTest, LosesByTheTimeOfTheLastTransmissionAndNotOfTheFirst) {
  Add(3 * kPayload);
  SendAll();  // at 1, 2 and 3 us
  ranges.LoseRequested({0, 16}, 0);
  now = now + Microseconds(10);
  ranges.SendAgain(0, packet++, now, 0);
  EXPECT_EQ(ranges.OldestSent(0), kStart + Microseconds(2));
  EXPECT_EQ(ranges.LoseSentBefore(0, now), 2u);
  EXPECT_EQ(ranges.FirstLost(), 1u);
  EXPECT_EQ(ranges.bytes_in_flight(), kPayload);
}

TEST_F(SentRangesTest, KeepsThePathsApart) {
  Add(3 * kPayload);
  ranges.SendUnsent(packet++, kStart, 0);
  ranges.SendUnsent(packet++, kStart, 1);
  ranges.SendUnsent(packet++, kStart, 0);
  EXPECT_EQ(ranges.LoseSentBefore(1, kStart + Nanoseconds{1}), 1u);
  EXPECT_EQ(ranges.FirstLost(), 1u);
  EXPECT_EQ(ranges.OldestSent(1), kNever);
  EXPECT_EQ(ranges.OldestSent(0), kStart);
}

TEST_F(SentRangesTest, HasWhatIsParkedInNoListUntilItIsNot) {
  for (uint32_t i = 0; i < 4; ++i) Add(100);
  Send();
  for (uint32_t i = 1; i < 4; ++i) ranges.SendUnsent(packet++, now, 0, true);
  EXPECT_EQ(ranges.bytes_in_flight(), 100u);
  EXPECT_EQ(ranges.LoseSentBefore(0, kNever), 1u);
  EXPECT_EQ(ranges.OldestSent(0), kNever);
  EXPECT_EQ(ranges.LoseRequested({128, 4 * 128}, packet), 0u);
  ranges.SendAgain(ranges.FirstLost(), packet++, now, 0);
  // The third is acknowledged although it is parked, which only a peer that breaks the protocol does.
  EXPECT_EQ(ranges.Acknowledge(now, {2 * 128, 3 * 128}), 1u);
  now = now + Microseconds(50);
  EXPECT_EQ(ranges.Unpark(3, now), 1u);
  EXPECT_EQ(ranges.bytes_in_flight(), 200u);
  EXPECT_EQ(ranges.LoseSentBefore(0, now), 1u) << "it is in flight from now on";
  EXPECT_EQ(ranges.Unpark(4, now), 1u);
  EXPECT_EQ(ranges.Acknowledge(now, {0, 4 * 128}), 3u);
  EXPECT_EQ(ranges.bytes_in_flight(), 0u);
  EXPECT_TRUE(ranges.nothing_outstanding());
  uint64_t cookie = 0;
  for (uint64_t i = 0; i < 4; ++i) EXPECT_TRUE(ranges.PopCompleted(&cookie));
}

TEST_F(SentRangesTest, SendsAfterWhatWasParkedAndAcknowledgedAsBefore) {
  Add(100);
  Add(100);
  ranges.SendUnsent(packet++, now, 0, true);
  EXPECT_EQ(ranges.Acknowledge(now, {0, 128}), 1u);
  Send();
  EXPECT_EQ(ranges.bytes_in_flight(), 100u);
}

TEST_F(SentRangesTest, CutsWhatIsNotAcknowledgedAnewAndKeepsTheRest) {
  SentRanges cut{kPayload, 256 * 1024, 8, 1, SentRanges::RecutReserve(256 * 1024, 400)};
  cut.AddMessage(1, nullptr, 3 * kPayload + 5);
  for (int i = 0; i < 3; ++i) cut.SendUnsent(packet++, now, 0);
  cut.Acknowledge(now, {kPayload, 2 * kPayload});
  cut.CutTo(400);
  EXPECT_EQ(cut.bytes_in_flight(), 0u);
  std::vector<std::pair<uint32_t, uint32_t>> sent;
  while (cut.HasLost()) {
    const SegmentPlace place = cut.Place(cut.FirstLost());
    sent.emplace_back(place.offset, place.length);
    cut.SendAgain(cut.FirstLost(), packet++, now, 0);
  }
  while (cut.HasUnsent()) {
    sent.emplace_back(cut.UnsentPlace().offset, cut.UnsentPlace().length);
    cut.SendUnsent(packet++, now, 0);
  }
  const std::vector<std::pair<uint32_t, uint32_t>> right = {{0, 400},    {400, 400},  {800, 224}, {2048, 400},
                                                            {2448, 400}, {2848, 224}, {3072, 5}};
  EXPECT_EQ(sent, right);
  // A piece alone is acknowledged, and what was acknowledged before is not waited for again.
  EXPECT_EQ(cut.Acknowledge(now, {400, 800}), 1u);
  EXPECT_EQ(cut.Acknowledge(now, {0, cut.message(0).stream_end}), 6u);
  uint64_t cookie = 0;
  EXPECT_TRUE(cut.PopCompleted(&cookie));
}

// A plain model of it: one entry a segment in a map by stream position.
struct ModelSegment {
  uint64_t end;
  uint32_t length;
  uint64_t packet;
  TimePoint sent;
  enum { kInFlight, kLost, kAcknowledged } state;
};

// Everything that is not acknowledged is lost, and in pieces of at most so many bytes.
void CutModel(std::map<uint64_t, ModelSegment>* model, uint32_t payload) {
  std::map<uint64_t, ModelSegment> cut;
  for (const auto& entry : *model) {
    uint64_t begin = entry.first;
    ModelSegment segment = entry.second;
    if (segment.state == ModelSegment::kAcknowledged) {
      cut[begin] = segment;
      continue;
    }
    segment.state = ModelSegment::kLost;
    for (; segment.length > payload; begin += payload, segment.length -= payload) {
      cut[begin] = {begin + payload, payload, segment.packet, segment.sent, ModelSegment::kLost};
    }
    cut[begin] = segment;
  }
  model->swap(cut);
}

TEST(SentRangesModel, AgreesWithAMapOfSegmentsOverRandomOperations) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Draw draw(seed);
    const uint32_t payload = static_cast<uint32_t>(16 * (1 + draw.Below(8)));
    const uint64_t span = 64 * payload;
    SentRanges ranges(payload, span, 16, kMaxPaths, SentRanges::RecutReserve(span, kUnitBytes));
    uint32_t cut_to = payload;
    std::map<uint64_t, ModelSegment> model;
    uint64_t acknowledged_to = 0, packet = 0;
    TimePoint now = kStart;
    for (int step = 0; step < 2000; ++step) {
      now = now + Nanoseconds{static_cast<int64_t>(draw.Below(3))};
      const uint64_t sent_to = ranges.unsent_position();
      const uint64_t reach = sent_to - acknowledged_to;
      Range range{acknowledged_to + draw.Below(reach + 1), 0};
      range.end = range.begin + draw.Below(sent_to - range.begin + 1);
      uint64_t cookie;
      if (cut_to > kUnitBytes && draw.Below(400) == 0) {
        cut_to = static_cast<uint32_t>(kUnitBytes * (1 + draw.Below(cut_to / kUnitBytes - 1)));
        ranges.CutTo(cut_to);
        CutModel(&model, cut_to);
      }
      switch (draw.Below(6)) {
        case 0:
          if (ranges.HasRoom()) {
            const uint32_t length =
                static_cast<uint32_t>(draw.Below(3) == 0 ? draw.Below(2) : draw.Below(6 * payload));
            ranges.AddMessage(ranges.posted(), nullptr, length);
          }
          break;
        case 1:
        case 2:
          if (ranges.HasUnsent() && ranges.UnsentEnd() <= acknowledged_to + span && ranges.HasRecordRoom()) {
            model[sent_to] = {ranges.UnsentEnd(), ranges.UnsentPlace().length, packet, now, ModelSegment::kInFlight};
            ranges.SendUnsent(packet++, now, 0);
          }
          break;
        case 3:
          if (ranges.HasLost()) {
            const uint64_t index = ranges.FirstLost();
            ModelSegment& segment = model.at(ranges.StreamBegin(index));
            for (auto& [begin, other] : model) {
              if (other.state != ModelSegment::kLost) continue;
              ASSERT_EQ(begin, ranges.StreamBegin(index)) << "not the first lost one";
              break;
            }
            segment.state = ModelSegment::kInFlight;
            segment.packet = packet;
            segment.sent = now;
            ranges.SendAgain(index, packet++, now, 0);
          }
          break;
        case 4: {
          uint64_t fresh = 0;
          if (draw.Below(2) == 0) range.begin = 0;
          for (auto& [begin, segment] : model) {
            if (begin < range.begin || segment.end > range.end || segment.state == ModelSegment::kAcknowledged)
              continue;
            segment.state = ModelSegment::kAcknowledged;
            ++fresh;
          }
          ASSERT_EQ(ranges.Acknowledge(now, range), fresh);
          break;
        }
        case 5: {
          uint64_t lost = 0;
          const bool by_request = draw.Below(2) == 0;
          const uint64_t limit_packet = packet - draw.Below(std::min<uint64_t>(packet, 20) + 1);
          const TimePoint limit = now - Nanoseconds{static_cast<int64_t>(draw.Below(40))};
          for (auto& [begin, segment] : model) {
            if (segment.state != ModelSegment::kInFlight) continue;
            const bool hit = by_request ? begin < range.end && segment.end > range.begin && range.length() != 0 &&
                                              segment.packet <= limit_packet
                                        : segment.sent < limit;
            if (!hit) continue;
            segment.state = ModelSegment::kLost;
            ++lost;
          }
          ASSERT_EQ(by_request ? ranges.LoseRequested(range, limit_packet) : ranges.LoseSentBefore(0, limit), lost);
          break;
        }
      }
      while (!model.empty() && model.begin()->second.state == ModelSegment::kAcknowledged) {
        acknowledged_to = model.begin()->second.end;
        model.erase(model.begin());
      }
      while (ranges.PopCompleted(&cookie)) {
        ASSERT_EQ(cookie + 1, ranges.completed());
        ASSERT_LE(ranges.message(cookie).stream_end, acknowledged_to);
      }
      if (ranges.completed() != ranges.posted()) {
        ASSERT_GT(ranges.message(ranges.completed()).stream_end, acknowledged_to) << "it is whole, and not told";
      }
      uint64_t in_flight = 0, lost = 0;
      TimePoint oldest = kNever;
      for (auto& [begin, segment] : model) {
        if (segment.state == ModelSegment::kLost) ++lost;
        if (segment.state != ModelSegment::kInFlight) continue;
        in_flight += segment.length;
        oldest = Earlier(oldest, segment.sent);
      }
      ASSERT_EQ(ranges.bytes_in_flight(), in_flight) << "seed " << seed << " step " << step;
      ASSERT_EQ(ranges.OldestSent(0), oldest);
      ASSERT_EQ(ranges.HasLost(), lost != 0);
      ASSERT_EQ(ranges.nothing_outstanding(), model.empty());
    }
  }
}

TEST(IndexBitmap, FindsTheFirstSetIndexAcrossWordsAndTheWrap) {
  IndexBitmap bitmap(128);
  const uint64_t base = 1000 * 128 + 100;
  bitmap.Set(base + 90);
  EXPECT_EQ(bitmap.FindFirst(base, base + 128), base + 90);
  EXPECT_EQ(bitmap.FindFirst(base, base + 90), base + 90);  // none before the end
  EXPECT_EQ(bitmap.FindFirst(base + 91, base + 128), base + 128);
  bitmap.Clear(base + 90);
  EXPECT_EQ(bitmap.FindFirst(base, base + 128), base + 128);
}

}  // namespace
}  // namespace forgive
