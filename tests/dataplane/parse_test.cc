// SPDX-License-Identifier: Apache-2.0
// Tests of the parsers of numbers and fractions: the whole text or nothing.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "dataplane/parse_fraction.h"
#include "dataplane/parse_number.h"

namespace forgive {
namespace {

TEST(Parse, ReadsNumbersWithinTheirBoundsAndLeavesTheRestAlone) {
  uint64_t whole = 7;
  EXPECT_TRUE(ParseNumber("5", 5, 9, &whole));
  EXPECT_EQ(whole, 5u);
  EXPECT_TRUE(ParseNumber("0009", 5, 9, &whole));
  EXPECT_EQ(whole, 9u);
  EXPECT_TRUE(ParseNumber("18446744073709551615", &whole));
  EXPECT_EQ(whole, UINT64_MAX);
  whole = 7;
  for (const char* text : {"", "4", "10", "-5", "+5", " 5", "5 ", "5x", "0x5", "5.0", "18446744073709551616"}) {
    EXPECT_FALSE(ParseNumber(text, 5, 9, &whole)) << text;
    EXPECT_EQ(whole, 7u) << text;
  }
}

TEST(Parse, KeepsEachTypeWithinItsOwnRange) {
  uint16_t port = 0;
  EXPECT_TRUE(ParseNumber("65535", &port));
  EXPECT_FALSE(ParseNumber("65536", &port));
  int64_t number = 0;
  EXPECT_TRUE(ParseNumber("-3", &number));
  EXPECT_EQ(number, -3);
  double real = 0;
  EXPECT_TRUE(ParseNumber("2.5e-1", &real));
  EXPECT_EQ(real, 0.25);
  for (const char* text : {"nan", "inf", "1e999"}) EXPECT_FALSE(ParseNumber(text, &real)) << text;
  EXPECT_EQ(real, 0.25);
}

TEST(Parse, ReadsFractionsExactlyInPartsPerMillion) {
  const std::map<std::string, uint32_t> good = {{"0", 0},        {"1", 1000000},       {"0.005", 5000},
                                                {"0.1", 100000}, {".25", 250000},      {"1.", 1000000},
                                                {"0.000001", 1}, {"1.000000", 1000000}};
  for (const auto& [text, ppm] : good) {
    Fraction fraction{7};
    EXPECT_TRUE(ParseFraction(text, &fraction)) << text;
    EXPECT_EQ(fraction.ppm, ppm) << text;
  }
  for (const char* text :
       {"", ".", "1.1", "1.000001", "2", "-0.1", "0.0000001", "1e-3", "0,1", "0.1 ", " 0.1", "+0"}) {
    Fraction fraction{7};
    EXPECT_FALSE(ParseFraction(text, &fraction)) << text;
    EXPECT_EQ(fraction.ppm, 7u) << text;
  }
}

}  // namespace
}  // namespace forgive
