// SPDX-License-Identifier: Apache-2.0
// Which interfaces become devices, and with which address.
#include "plugin/devices.h"

#include <gtest/gtest.h>

namespace forgive {
namespace {

InterfaceAddress Ipv4(const std::string& interface, const std::string& address) {
  return {.interface = interface, .address = address, .loopback = interface == "lo"};
}
InterfaceAddress Ipv6(const std::string& interface, const std::string& address, bool link_local = false) {
  return {.interface = interface,
          .address = address,
          .ipv6 = true,
          .link_local = link_local,
          .loopback = interface == "lo"};
}

const std::vector<InterfaceAddress> kHost = {Ipv4("lo", "127.0.0.1"),     Ipv4("eth0", "10.0.0.1"),
                                             Ipv4("eth1", "10.0.0.2"),    Ipv4("docker0", "172.17.0.1"),
                                             Ipv6("lo", "::1"),           Ipv6("eth0", "fe80::1%eth0", true),
                                             Ipv6("eth0", "2001:db8::1"), Ipv6("ib0", "fe80::2%ib0", true)};

InterfaceFilter Filter(const std::string& text) {
  Settings settings;
  std::vector<std::string> warnings;
  std::string error;
  EXPECT_TRUE(ParseSettings({{"FORGIVE_INTERFACE", text}}, &settings, &warnings, &error)) << error;
  return settings.interfaces;
}

std::vector<std::string> Selected(const InterfaceFilter& filter, FamilyChoice family = FamilyChoice::kAny,
                                  const std::vector<InterfaceAddress>& host = kHost) {
  std::vector<Device> devices;
  std::string error;
  std::vector<std::string> names;
  SelectDevices(host, filter, family, &devices, &error);
  for (const Device& device : devices) names.push_back(device.interface + " " + device.address);
  return names;
}

using Names = std::vector<std::string>;

TEST(Devices, AreAllButLoopbackAndDockerWithoutAFilterEachWithOneAddress) {
  EXPECT_EQ(Selected({}), (Names{"eth0 10.0.0.1", "eth1 10.0.0.2", "ib0 fe80::2%ib0"}));
}

TEST(Devices, FallBackToDockerAndThenToLoopback) {
  EXPECT_EQ(Selected({}, FamilyChoice::kAny, {kHost[0], kHost[3]}), (Names{"docker0 172.17.0.1"}));
  EXPECT_EQ(Selected({}, FamilyChoice::kAny, {kHost[0]}), (Names{"lo 127.0.0.1"}));
}

TEST(Devices, MatchPrefixesExactNamesAndExclusions) {
  EXPECT_EQ(Selected(Filter("eth")), (Names{"eth0 10.0.0.1", "eth1 10.0.0.2"}));
  EXPECT_EQ(Selected(Filter("=eth1")), (Names{"eth1 10.0.0.2"}));
  EXPECT_EQ(Selected(Filter("=eth")), Names{});
  EXPECT_EQ(Selected(Filter("^eth,docker,lo")), (Names{"ib0 fe80::2%ib0"}));
  EXPECT_EQ(Selected(Filter("^=eth0")),
            (Names{"lo 127.0.0.1", "eth1 10.0.0.2", "docker0 172.17.0.1", "ib0 fe80::2%ib0"}));
  EXPECT_EQ(Selected(Filter("lo")), (Names{"lo 127.0.0.1"}));
}

TEST(Devices, TakeGlobalIpv6BeforeLinkLocalWhereIpv6IsAskedFor) {
  EXPECT_EQ(Selected({}, FamilyChoice::kIpv6), (Names{"eth0 2001:db8::1", "ib0 fe80::2%ib0"}));
  EXPECT_EQ(Selected({}, FamilyChoice::kIpv4), (Names{"eth0 10.0.0.1", "eth1 10.0.0.2"}));
}

TEST(Devices, NameTheVariableAndWhatThereIsWhenNothingMatches) {
  std::vector<Device> devices;
  std::string error;
  EXPECT_FALSE(SelectDevices(kHost, Filter("wlan"), FamilyChoice::kAny, &devices, &error));
  EXPECT_EQ(error,
            "FORGIVE_INTERFACE=wlan: no such interface is up with an address; there are: lo, eth0, eth1, "
            "docker0, ib0");
}

TEST(Devices, OfThisMachineIncludeLoopback) {
  std::vector<Device> devices;
  std::string error;
  ASSERT_TRUE(SelectDevices(ListInterfaceAddresses(), Filter("=lo"), FamilyChoice::kIpv4, &devices, &error)) << error;
  ASSERT_EQ(devices.size(), 1u);
  EXPECT_EQ(devices[0].address, "127.0.0.1");
}

std::vector<Device> Rails(const std::vector<std::string>& rails, FamilyChoice family, std::string* error) {
  std::vector<Device> devices;
  if (SelectRails(kHost, rails, family, &devices, error)) JoinRails(&devices);
  return devices;
}

TEST(Rails, AreOneDeviceInTheOrderInWhichTheyAreNamed) {
  std::string error;
  const std::vector<Device> devices = Rails({"eth1", "eth0"}, FamilyChoice::kAny, &error);
  ASSERT_EQ(devices.size(), 1u) << error;
  EXPECT_EQ(devices[0].interface, "eth1+eth0");
  EXPECT_EQ(devices[0].address, "10.0.0.2");
  const EngineOptions options = ToEngineOptions(Settings{}, devices);
  EXPECT_EQ(options.devices[0].local_address, "10.0.0.2");
  EXPECT_EQ(options.devices[0].more_rails, (Names{"10.0.0.1"}));
}

TEST(Rails, HaveAddressesOfOneKindWhichAllOfThemHave) {
  std::string error;
  // eth0 has all kinds, ib0 only a link-local one.
  const std::vector<Device> devices = Rails({"eth0", "ib0"}, FamilyChoice::kAny, &error);
  ASSERT_EQ(devices.size(), 1u) << error;
  EXPECT_EQ(devices[0].address, "fe80::1%eth0");
  EXPECT_EQ(ToEngineOptions(Settings{}, devices).devices[0].more_rails, (Names{"fe80::2%ib0"}));
  EXPECT_TRUE(devices[0].ipv6);
  EXPECT_TRUE(Rails({"eth0", "ib0"}, FamilyChoice::kIpv4, &error).empty());
  EXPECT_TRUE(error.starts_with("FORGIVE_RAILS: the interfaces must be up with addresses of one kind "
                                "(NCCL_SOCKET_FAMILY); without one: ib0 (IPv4), eth0 (IPv6)"))
      << error;
  EXPECT_TRUE(Rails({"eth0", "eth9"}, FamilyChoice::kAny, &error).empty());
  EXPECT_NE(error.find("eth9 (IPv4)"), std::string::npos) << error;
}

TEST(Rails, AreOfTheSumOfTheirSpeedsAndPacedByTheSlowest) {
  std::vector<Device> devices(3);
  devices[0].speed_mbps = 25000;
  devices[1].speed_mbps = 10000;
  devices[2].speed_mbps = 25000;
  std::vector<Device> joined = devices;
  JoinRails(&joined);
  EXPECT_EQ(joined[0].speed_mbps, 60000u);
  ASSERT_EQ(joined[0].rails.size(), 3u) << "each keeps its facts";
  EXPECT_EQ(joined[0].rails[1].speed_mbps, 10000u);
  EXPECT_EQ(ToEngineOptions(Settings{}, joined).devices[0].link_rate.value, 30000000000u);
  devices[2].speed_mbps = 0;
  JoinRails(&devices);
  EXPECT_EQ(devices[0].speed_mbps, 0u) << "one speed is not known";
  EXPECT_EQ(ToEngineOptions(Settings{}, devices).devices[0].link_rate.value, 0u);
}

TEST(Devices, BecomeEngineOptionsWithTheirPayloadAndRate) {
  Settings settings;
  settings.mtu_bytes = 1500;
  settings.port_low = 5;
  settings.port_high = 9;
  settings.seed = 77;
  Device slow;
  slow.address = "10.0.0.1";
  slow.speed_mbps = 1000;
  Device fast;
  fast.address = "10.0.0.2";
  fast.speed_mbps = 25000;
  const EngineOptions options = ToEngineOptions(settings, {slow, fast});
  ASSERT_EQ(options.devices.size(), 2u);
  EXPECT_EQ(options.devices[1].local_address, "10.0.0.2");
  EXPECT_EQ(options.devices[0].port_high, 9);
  EXPECT_EQ(options.seed, 77u);
  EXPECT_EQ(options.devices[0].link_rate.value, 1000000000u);
  EXPECT_EQ(options.devices[1].link_rate.value, 25000000000u);
  EXPECT_EQ(options.transport.max_payload_bytes, 1408u);  // 1500 - 20 - 8 - 56, a multiple of 16
  settings.link_rate_set = true;
  settings.engine.transport.link_rate.value = 5;
  fast.ipv6 = true;
  const EngineOptions given = ToEngineOptions(settings, {slow, fast});
  EXPECT_EQ(given.transport.link_rate.value, 5u);
  for (const DeviceOptions& device : given.devices) EXPECT_EQ(device.link_rate.value, 0u);  // nothing of its own
  EXPECT_EQ(given.transport.max_payload_bytes, 1392u);                                      // 1500 - 40 - 8 - 56
}

}  // namespace
}  // namespace forgive
