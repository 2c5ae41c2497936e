// SPDX-License-Identifier: Apache-2.0
// Tests of what listen writes and connect reads.
#include "plugin/handle.h"

#include <gtest/gtest.h>

#include <cstring>

#include "dataplane/socket_address.h"
#include "plugin/nccl_abi.h"

namespace forgive {
namespace {

using HandleBytes = std::array<uint8_t, nccl::kHandleBytes>;

Handle Of(const std::vector<std::string>& hosts) {
  Handle handle;
  handle.rails = static_cast<uint32_t>(hosts.size());
  for (size_t rail = 0; rail < hosts.size(); ++rail) {
    EXPECT_TRUE(ParseAddress(hosts[rail], static_cast<uint16_t>(0x1234 + rail), &handle.addresses[rail]));
  }
  handle.ticket = {.listen_id = 0x1122334455667788, .secret = {3, 4}};
  handle.connecting = 9;
  return handle;
}

HandleBytes Written(const Handle& handle) {
  HandleBytes bytes;
  bytes.fill(0xee);
  WriteHandle(handle, bytes.data());
  return bytes;
}

void ExpectSame(const Handle& read, const Handle& handle) {
  EXPECT_EQ(read.rails, handle.rails);
  for (uint32_t rail = 0; rail < handle.rails; ++rail) {
    EXPECT_EQ(AddressText(read.addresses[rail]), AddressText(handle.addresses[rail]));
    EXPECT_EQ(read.addresses[rail], handle.addresses[rail]);
  }
  EXPECT_EQ(read.ticket.listen_id, handle.ticket.listen_id);
  EXPECT_EQ(read.ticket.secret.k0, handle.ticket.secret.k0);
  EXPECT_EQ(read.ticket.secret.k1, handle.ticket.secret.k1);
  EXPECT_EQ(read.connecting, handle.connecting);
}

TEST(Handle, IsReadAsItWasWrittenForEveryNumberOfRails) {
  const std::vector<std::vector<std::string>> cases = {
      {"10.0.0.1"},
      {"2001:db8::1"},
      {"fe80::1%1"},
      {"10.0.0.1", "10.0.1.1"},
      {"2001:db8::1", "2001:db8:1::1", "2001:db8:2::1"},
      {"10.0.0.1", "10.0.1.1", "10.0.2.1", "10.0.3.1"},
      {"2001:db8::1", "2001:db8:1::1", "2001:db8:2::1", "2001:db8:3::ffff"}};
  for (const std::vector<std::string>& hosts : cases) {
    const Handle handle = Of(hosts);
    Handle read;
    ASSERT_EQ(ReadHandle(Written(handle).data(), &read), HandleResult::kOk) << hosts.size();
    ExpectSame(read, handle);
  }
}

TEST(Handle, OfOneRailHasTheLayoutOfBeforeThereWereRails) {
  const Handle handle = Of({"10.0.0.1"});
  const HandleBytes bytes = Written(handle);
  EXPECT_EQ(std::memcmp(bytes.data(), "1EVIGROF", 8), 0);  // its magic, little-endian
  EXPECT_EQ(bytes[8], 1);                                  // its version
  EXPECT_EQ(std::memcmp(&bytes[16], handle.addresses[0].bytes.data(), 28), 0);
  EXPECT_EQ(bytes[48], 0x88);  // the listen id
  EXPECT_EQ(bytes[56], 3);     // the secret
  EXPECT_EQ(bytes[72], 9);
  for (size_t i = 80; i < bytes.size(); ++i) EXPECT_EQ(bytes[i], 0) << i;
}

TEST(Handle, OfSeveralRailsIsOfAnotherVersionToWhoKnowsOne) {
  EXPECT_EQ(Written(Of({"10.0.0.1", "10.0.1.1"}))[8], 2);
}

TEST(Handle, OfLinkLocalRailsLeavesOutTheScopeThatMeansNothingElsewhere) {
  Handle read;
  ASSERT_EQ(ReadHandle(Written(Of({"fe80::1%1", "fe80::2%1"})).data(), &read), HandleResult::kOk);
  EXPECT_EQ(AddressScope(read.addresses[0]), 0u);
  EXPECT_EQ(AddressText(read.addresses[1]), "[fe80::2]:" + std::to_string(0x1235));
}

TEST(Handle, OfOthersAndOfOtherVersionsIsToldFromOurs) {
  Handle read;
  HandleBytes bytes = Written(Of({"10.0.0.1"}));
  bytes[8] = 3;
  EXPECT_EQ(ReadHandle(bytes.data(), &read), HandleResult::kOtherVersion);
  bytes[0] ^= 1;
  EXPECT_EQ(ReadHandle(bytes.data(), &read), HandleResult::kNotOurs);
  for (const uint8_t rails : {uint8_t{0}, uint8_t{1}, uint8_t{5}, uint8_t{255}}) {
    bytes = Written(Of({"10.0.0.1", "10.0.1.1"}));
    bytes[12] = rails;
    EXPECT_EQ(ReadHandle(bytes.data(), &read), HandleResult::kOtherVersion) << int{rails};
  }
}

}  // namespace
}  // namespace forgive
