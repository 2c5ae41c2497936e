// SPDX-License-Identifier: Apache-2.0
// What a listener remembers of those whom it answered: all of them, up to a limit.
#include "transport/remembered_connects.h"

#include <gtest/gtest.h>

namespace forgive::testing {
namespace {

Nonce Numbered(std::size_t n) {
  Nonce nonce{};
  nonce[3] = static_cast<uint8_t>(n);
  nonce[7] = static_cast<uint8_t>(n >> 8);
  return nonce;
}

TEST(RememberedConnects, ForgetNoneAndHaveNoRoomBeyondTheirLimit) {
  RememberedConnects remembered;
  EXPECT_FALSE(remembered.Contains(Numbered(0)));
  for (std::size_t n = 0; n < RememberedConnects::kMost; ++n) {
    ASSERT_FALSE(remembered.full()) << n;
    ASSERT_TRUE(remembered.HasRoom()) << n;
    remembered.Add(Numbered(n));
    ASSERT_FALSE(remembered.Contains(Numbered(n + 1))) << n;
  }
  EXPECT_TRUE(remembered.full());
  EXPECT_FALSE(remembered.HasRoom());
  for (std::size_t n = 0; n < RememberedConnects::kMost; ++n) ASSERT_TRUE(remembered.Contains(Numbered(n))) << n;
}

}  // namespace
}  // namespace forgive::testing
