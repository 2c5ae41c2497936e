// SPDX-License-Identifier: Apache-2.0
// CRC32C against RFC 3720's vectors and, for every length and start, against its bitwise definition.
#include "transport/crc32c.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include "transport/draw.h"

namespace forgive {
namespace {

constexpr size_t kLongest = 5000;

// The register after one more byte, bit by bit, without the initial and the final inversion.
uint32_t BitwiseStep(uint32_t crc, uint8_t byte) {
  crc ^= byte;
  for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0);
  return crc;
}

uint32_t Bitwise(const uint8_t* bytes, size_t length) {
  uint32_t crc = ~uint32_t{0};
  for (size_t i = 0; i < length; ++i) crc = BitwiseStep(crc, bytes[i]);
  return ~crc;
}

std::vector<uint8_t> Random(size_t length, uint64_t seed) {
  Draw draw(seed);
  std::vector<uint8_t> bytes(length);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(draw.Next());
  return bytes;
}

struct Implementation {
  const char* name;
  uint32_t (*function)(const void*, size_t);
};

class Crc32cTest : public testing::TestWithParam<Implementation> {
 protected:
  static uint32_t Crc(const std::vector<uint8_t>& bytes) { return GetParam().function(bytes.data(), bytes.size()); }
};

TEST_P(Crc32cTest, GivesTheResultsOfRfc3720) {
  EXPECT_EQ(Crc(std::vector<uint8_t>(32, 0)), 0x8a9136aau);
  EXPECT_EQ(Crc(std::vector<uint8_t>(32, 0xff)), 0x62a8ab43u);
  std::vector<uint8_t> ascending(32);
  std::iota(ascending.begin(), ascending.end(), uint8_t{0});
  EXPECT_EQ(Crc(ascending), 0x46dd794eu);
  const std::vector<uint8_t> descending(ascending.rbegin(), ascending.rend());
  EXPECT_EQ(Crc(descending), 0x113fdb5cu);
}

TEST_P(Crc32cTest, GivesTheCheckValueOfTheCatalogue) { EXPECT_EQ(GetParam().function("123456789", 9), 0xe3069283u); }

TEST_P(Crc32cTest, EqualsTheBitwiseDefinitionForEveryLength) {
  const std::vector<uint8_t> bytes = Random(kLongest, 1);
  uint32_t crc = ~uint32_t{0};
  for (size_t length = 0; length <= kLongest; ++length) {
    ASSERT_EQ(GetParam().function(bytes.data(), length), ~crc) << length;
    if (length < kLongest) crc = BitwiseStep(crc, bytes[length]);
  }
}

TEST_P(Crc32cTest, EqualsTheBitwiseDefinitionFromEveryStart) {
  const std::vector<uint8_t> bytes = Random(kLongest + 64, 2);
  for (size_t start = 0; start < 64; ++start) {
    for (const size_t length : {1u, 7u, 239u, 240u, 241u, 1024u, 4080u, 4096u, 4999u}) {
      ASSERT_EQ(GetParam().function(bytes.data() + start, length), Bitwise(bytes.data() + start, length))
          << start << " " << length;
    }
  }
}

TEST_P(Crc32cTest, EqualsTheBitwiseDefinitionBeyondTheLongestLane) {
  for (const size_t length : {8160u, 8161u, 12239u, 12240u, 65536u}) {
    const std::vector<uint8_t> bytes = Random(length, length);
    EXPECT_EQ(Crc(bytes), Bitwise(bytes.data(), length)) << length;
  }
}

TEST_P(Crc32cTest, SeesEveryFlippedBitOfAFullPayload) {
  std::vector<uint8_t> bytes = Random(4096, 3);
  const uint32_t crc = Crc(bytes);
  for (size_t bit = 0; bit < 8 * bytes.size(); bit += 5) {
    bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] ^ (1u << (bit % 8)));
    ASSERT_NE(Crc(bytes), crc) << bit;
    bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] ^ (1u << (bit % 8)));
  }
}

TEST(Crc32cCopy, CopiesEveryLengthAndNothingElse) {
  for (size_t length = 0; length <= kLongest; length += length < 600 ? 1 : 61) {
    const std::vector<uint8_t> bytes = Random(length, length + 1);
    std::vector<uint8_t> place(length + 16, 0xee);
    ASSERT_EQ(Crc32cCopy(bytes.data(), length, place.data() + 8), Bitwise(bytes.data(), length)) << length;
    ASSERT_TRUE(std::equal(bytes.begin(), bytes.end(), place.begin() + 8)) << length;
    for (size_t i = 0; i < 8; ++i) {
      ASSERT_EQ(place[i], 0xee) << length;
      ASSERT_EQ(place[8 + length + i], 0xee) << length;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Implementations, Crc32cTest,
                         testing::Values(Implementation{"Chosen", Crc32c},
                                         Implementation{"ThreeLanes", Crc32cThreeLanes},
                                         Implementation{"Portable", Crc32cPortable}),
                         [](const auto& parameter) { return parameter.param.name; });

}  // namespace
}  // namespace forgive
