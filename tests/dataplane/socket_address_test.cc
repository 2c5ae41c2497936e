// SPDX-License-Identifier: Apache-2.0
// Tests of addresses: both families, scopes, text, and the interface that holds one.
#include "dataplane/socket_address.h"

#include <gtest/gtest.h>

#include <cstring>

namespace forgive {
namespace {

TEST(SocketAddress, GoesToTheKernelsFormAndBackUnchanged) {
  for (const char* text : {"127.0.0.1", "::1", "fe80::1%1", "2001:db8::7"}) {
    Address address;
    ASSERT_TRUE(ParseAddress(text, 4791, &address)) << text;
    sockaddr_storage storage;
    ASSERT_NE(ToSocketAddress(address, &storage), 0u);
    EXPECT_EQ(ToAddress(reinterpret_cast<const sockaddr*>(&storage)), address) << text;
    EXPECT_EQ(AddressPort(address), 4791);
  }
}

TEST(SocketAddress, IgnoresBytesThatTheKernelLeavesUndefined) {
  Address address;
  ASSERT_TRUE(ParseAddress("10.1.2.3", 5, &address));
  sockaddr_storage storage;
  std::memset(&storage, 0xff, sizeof(storage));
  ToSocketAddress(address, &storage);
  auto* ipv4 = reinterpret_cast<sockaddr_in*>(&storage);
  std::memset(ipv4->sin_zero, 0xee, sizeof(ipv4->sin_zero));
  EXPECT_EQ(ToAddress(reinterpret_cast<const sockaddr*>(&storage)), address);
}

TEST(SocketAddress, ScopesOnlyLinkLocalAddresses) {
  Address global;
  Address local;
  ASSERT_TRUE(ParseAddress("2001:db8::7", 1, &global));
  ASSERT_TRUE(ParseAddress("fe80::7%4", 1, &local));
  EXPECT_EQ(AddressScope(local), 4u);
  SetAddressScope(9, &local);
  SetAddressScope(9, &global);
  EXPECT_EQ(AddressScope(local), 9u);
  EXPECT_EQ(AddressScope(global), 0u);
}

TEST(SocketAddress, RefusesWhatIsNotNumeric) {
  Address address;
  for (const char* text : {"", "localhost", "10.0.0", "10.0.0.1.2", "::1::", "fe80::1%no-such-interface"}) {
    EXPECT_FALSE(ParseAddress(text, 1, &address)) << text;
  }
  for (const char* text : {"127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:7x", "host:7"}) {
    EXPECT_FALSE(ParseAddressAndPort(text, &address)) << text;
  }
}

TEST(SocketAddress, PrintsWhatItParsed) {
  Address address;
  ASSERT_TRUE(ParseAddressAndPort("127.0.0.1:4791", &address));
  EXPECT_EQ(AddressText(address), "127.0.0.1:4791");
  ASSERT_TRUE(ParseAddressAndPort("[::1]:9", &address));
  EXPECT_EQ(AddressText(address), "[::1]:9");
}

TEST(SocketAddress, FindsLoopbackAndNoInterfaceForAStranger) {
  Address address;
  std::string name;
  uint32_t mtu_bytes = 0;
  for (const char* text : {"127.0.0.1", "127.7.7.7"}) {
    ASSERT_TRUE(ParseAddress(text, 0, &address));
    ASSERT_TRUE(FindInterface(address, &name, &mtu_bytes)) << text;
    EXPECT_EQ(name, "lo");
    EXPECT_GT(mtu_bytes, 1000u);
  }
  ASSERT_TRUE(ParseAddress("192.0.2.77", 0, &address));
  EXPECT_FALSE(FindInterface(address, &name, &mtu_bytes));
}

}  // namespace
}  // namespace forgive
