// SPDX-License-Identifier: Apache-2.0
// SipHash-2-4 against the vectors of its paper, and its pieces against the whole.
#include "transport/siphash.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

namespace forgive {
namespace {

// The paper's key: bytes 00 01 .. 0f.
constexpr SipKey kKey{0x0706050403020100u, 0x0f0e0d0c0b0a0908u};

// Result n is the hash of the n bytes 00 01 02 ..; the sixteenth is the paper's Appendix A.
constexpr std::array<uint64_t, 64> kVectors = {
    0x726fdb47dd0e0e31, 0x74f839c593dc67fd, 0x0d6c8009d9a94f5a, 0x85676696d7fb7e2d, 0xcf2794e0277187b7,
    0x18765564cd99a68d, 0xcbc9466e58fee3ce, 0xab0200f58b01d137, 0x93f5f5799a932462, 0x9e0082df0ba9e4b0,
    0x7a5dbbc594ddb9f3, 0xf4b32f46226bada7, 0x751e8fbc860ee5fb, 0x14ea5627c0843d90, 0xf723ca908e7af2ee,
    0xa129ca6149be45e5, 0x3f2acc7f57c29bdb, 0x699ae9f52cbe4794, 0x4bc1b3f0968dd39c, 0xbb6dc91da77961bd,
    0xbed65cf21aa2ee98, 0xd0f2cbb02e3b67c7, 0x93536795e3a33e88, 0xa80c038ccd5ccec8, 0xb8ad50c6f649af94,
    0xbce192de8a85b8ea, 0x17d835b85bbb15f3, 0x2f2e6163076bcfad, 0xde4daaaca71dc9a5, 0xa6a2506687956571,
    0xad87a3535c49ef28, 0x32d892fad841c342, 0x7127512f72f27cce, 0xa7f32346f95978e3, 0x12e0b01abb051238,
    0x15e034d40fa197ae, 0x314dffbe0815a3b4, 0x027990f029623981, 0xcadcd4e59ef40c4d, 0x9abfd8766a33735c,
    0x0e3ea96b5304a7d0, 0xad0c42d6fc585992, 0x187306c89bc215a9, 0xd4a60abcf3792b95, 0xf935451de4f21df2,
    0xa9538f0419755787, 0xdb9acddff56ca510, 0xd06c98cd5c0975eb, 0xe612a3cb9ecba951, 0xc766e62cfcadaf96,
    0xee64435a9752fe72, 0xa192d576b245165a, 0x0a8787bf8ecb74b2, 0x81b3e73d20b49b6f, 0x7fa8220ba3b2ecea,
    0x245731c13ca42499, 0xb78dbfaf3a8d83bd, 0xea1ad565322a1a0b, 0x60e61c23a3795013, 0x6606d7e446282b93,
    0x6ca4ecb15c5f91e1, 0x9f626da15c9625f3, 0xe51b38608ef25f57, 0x958a324ceb064572,
};

std::vector<uint8_t> Ascending(size_t length) {
  std::vector<uint8_t> bytes(length);
  for (size_t i = 0; i < length; ++i) bytes[i] = static_cast<uint8_t>(i);
  return bytes;
}

TEST(SipHash, GivesTheResultOfThePapersAppendix) {
  const std::vector<uint8_t> bytes = Ascending(15);
  EXPECT_EQ(SipHash(kKey, bytes.data(), bytes.size()), 0xa129ca6149be45e5u);
}

TEST(SipHash, GivesTheReferenceResultForEveryLengthBelow64) {
  const std::vector<uint8_t> bytes = Ascending(64);
  for (size_t n = 0; n < kVectors.size(); ++n) EXPECT_EQ(SipHash(kKey, bytes.data(), n), kVectors[n]) << n;
}

TEST(SipHash, DoesNotDependOnTheAlignmentOfItsInput) {
  const std::vector<uint8_t> bytes = Ascending(56);
  for (size_t shift = 0; shift < 8; ++shift) {
    std::vector<uint8_t> moved(shift + bytes.size());
    std::memcpy(moved.data() + shift, bytes.data(), bytes.size());
    EXPECT_EQ(SipHash(kKey, moved.data() + shift, bytes.size()), kVectors[56]) << shift;
  }
}

TEST(SipHash, TreatsASuffixAsEightLittleEndianBytesBehindTheInput) {
  const uint64_t suffix = 0x1122334455667788u;
  for (size_t n = 0; n < 64; ++n) {
    std::vector<uint8_t> joined = Ascending(n);
    for (int i = 0; i < 8; ++i) joined.push_back(static_cast<uint8_t>(suffix >> (8 * i)));
    EXPECT_EQ(SipHash(kKey, joined.data(), n, suffix), SipHash(kKey, joined.data(), joined.size())) << n;
  }
}

TEST(SipHash, TreatsTwoPiecesAsIfTheyStoodBehindEachOther) {
  const std::vector<uint8_t> bytes = Ascending(160);
  for (size_t cut = 0; cut <= bytes.size(); cut += 8) {
    EXPECT_EQ(SipHash(kKey, bytes.data(), cut, bytes.data() + cut, bytes.size() - cut, 7),
              SipHash(kKey, bytes.data(), bytes.size(), 7))
        << cut;
  }
}

TEST(SipHash, FinishesABeginningAsIfItHadBeenOneInput) {
  const std::vector<uint8_t> bytes = Ascending(200);
  for (size_t first = 0; first <= 9; ++first) {
    for (size_t second = 0; second <= 9; ++second) {
      SipRest rest;
      rest.state = SipState(kKey);
      rest.state.AbsorbWords(bytes.data(), 2);
      rest.first = bytes.data() + 16;
      rest.first_words = first;
      rest.second = bytes.data() + 16 + 8 * first;
      rest.second_words = second;
      rest.suffix = 0x1122334455667788u;
      rest.total_length = 16 + 8 * (first + second) + 8;
      const uint64_t whole = SipHash(kKey, bytes.data(), rest.total_length - 8, rest.suffix);
      EXPECT_EQ(SipFinish(rest), whole) << first << " " << second;
      EXPECT_EQ(SipFinishPortable(rest), whole) << first << " " << second;
    }
  }
}

TEST(SipHash, GivesEachOfSeveralLanesTheHashOfItsOwnInput) {
  constexpr size_t kWords = 4;
  const std::vector<uint8_t> bytes = Ascending(240);
  for (size_t count = 0; count <= 11; ++count) {
    std::vector<SipLane> lanes(count);
    std::vector<uint64_t> hashes(count + 1, 77);
    for (size_t i = 0; i < count; ++i) {
      lanes[i].state = SipState(SipKey{i, ~i});
      lanes[i].words = bytes.data() + 3 * i;
      lanes[i].suffix = 0x8000000000000001u * (i + 1);
    }
    SipFinishLanes(lanes.data(), count, kWords, 8 * kWords + 8, hashes.data());
    for (size_t i = 0; i < count; ++i) {
      const uint64_t expected = SipHash(SipKey{i, ~i}, lanes[i].words, 8 * kWords, lanes[i].suffix);
      EXPECT_EQ(hashes[i], expected) << i << " of " << count;
    }
    EXPECT_EQ(hashes[count], 77u) << "written behind the last of " << count;
  }
}

TEST(SipHash, DiffersWhenAnyBitOfTheKeyOrTheInputDiffers) {
  std::vector<uint8_t> bytes = Ascending(48);
  const uint64_t hash = SipHash(kKey, bytes.data(), bytes.size());
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] ^ (1u << (bit % 8)));
    EXPECT_NE(SipHash(kKey, bytes.data(), bytes.size()), hash) << bit;
    bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] ^ (1u << (bit % 8)));
  }
  for (int bit = 0; bit < 64; ++bit) {
    EXPECT_NE(SipHash(SipKey{kKey.k0 ^ uint64_t{1} << bit, kKey.k1}, bytes.data(), bytes.size()), hash) << bit;
    EXPECT_NE(SipHash(SipKey{kKey.k0, kKey.k1 ^ uint64_t{1} << bit}, bytes.data(), bytes.size()), hash) << bit;
  }
}

}  // namespace
}  // namespace forgive
