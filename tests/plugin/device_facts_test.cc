// SPDX-License-Identifier: Apache-2.0
// Facts of interfaces from a fake sysfs and a fake libibverbs, and the order of devices.
#include "plugin/device_facts.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>

#if __has_include(<infiniband/verbs.h>)
#include <infiniband/verbs.h>
#endif

namespace forgive {
namespace {

namespace fs = std::filesystem;

#if __has_include(<infiniband/verbs.h>)
static_assert(offsetof(verbs::DeviceAttributes, node_guid) == offsetof(ibv_device_attr, node_guid));
static_assert(offsetof(verbs::DeviceAttributes, system_image_guid) == offsetof(ibv_device_attr, sys_image_guid));
static_assert(sizeof(verbs::DeviceAttributes) >= sizeof(ibv_device_attr));
static_assert(offsetof(verbs::PortAttributes, state) == offsetof(ibv_port_attr, state));
static_assert(offsetof(verbs::PortAttributes, active_width) == offsetof(ibv_port_attr, active_width));
static_assert(offsetof(verbs::PortAttributes, active_speed) == offsetof(ibv_port_attr, active_speed));
static_assert(sizeof(verbs::PortAttributes) >= sizeof(ibv_port_attr));
static_assert(verbs::kPortActive == IBV_PORT_ACTIVE);
#endif

constexpr uint64_t kCard = 0x506b4b0300f48fb2;  // of the fake's mlx5_0
constexpr const char* kFirstNic = "pci0000:00/0000:00:01.0/0000:01:00.0";
constexpr const char* kSecondNic = "pci0000:00/0000:00:02.0/0000:0a:00.1";

// A folder laid out as /sys is.
class FakeSysfs : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "forgive-sysfs-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    sources_.sysfs = name;
    sources_.verbs_library = FORGIVE_FAKE_IBVERBS;
  }
  void TearDown() override {
    unsetenv("FAKE_IBVERBS");
    fs::remove_all(root_);
  }

  void Write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }
  std::string PathOf(const std::string& pci) { return (fs::canonical(root_) / "devices" / pci).string(); }

  // An interface; `pci` empty: without hardware.
  void AddInterface(const std::string& name, const std::string& pci, const std::string& speed) {
    Write("class/net/" + name + "/address", "02:00:00:00:00:07");
    Write("class/net/" + name + "/speed", speed);
    if (pci.empty()) return;
    fs::create_directories(root_ / "devices" / pci);
    fs::create_symlink(root_ / "devices" / pci, root_ / "class/net" / name / "device");
  }
  void AddRdma(const std::string& name, const std::string& pci, uint32_t ports) {
    const std::string folder = "class/infiniband/" + name;
    Write(folder + "/node_guid", "0a00:0000:0000:0005");
    Write(folder + "/sys_image_guid", "0a00:0000:0000:0006");
    fs::create_directories(root_ / "devices" / pci);
    fs::create_symlink(root_ / "devices" / pci, root_ / folder / "device");
    for (uint32_t port = 1; port <= ports; ++port) {
      Write(folder + "/ports/" + std::to_string(port) + "/state", "4: ACTIVE");
      Write(folder + "/ports/" + std::to_string(port) + "/rate", "2.5 Gb/sec (1X SDR)");
    }
  }

  std::vector<Device> Described(const std::vector<std::string>& interfaces) {
    std::vector<Device> devices;
    for (const std::string& interface : interfaces) devices.emplace_back().interface = interface;
    DescribeDevices(sources_, &devices);
    return devices;
  }

  fs::path root_;
  FactSources sources_;
};

// ---- libibverbs ----

TEST_F(FakeSysfs, GivesWayToLibibverbsWhereTheInterfaceIsAnRdmaDevices) {
  AddInterface("eth0", kFirstNic, "25000");
  AddRdma("mlx5_0", kFirstNic, 1);
  const Device device = Described({"eth0"})[0];
  EXPECT_EQ(device.speed_mbps, 100000u);
  EXPECT_EQ(device.guid, kCard);
  EXPECT_EQ(device.port_state, PortState::kActive);
  EXPECT_EQ(device.pci_path, PathOf(kFirstNic));
  EXPECT_EQ(device.facts_from, "libibverbs (mlx5_0 port 1)");
}

TEST_F(FakeSysfs, IsAllThereIsForInterfacesWithoutAnRdmaDevice) {
  AddInterface("eth0", kSecondNic, "25000");
  AddInterface("veth0", "", "-1");
  AddRdma("mlx5_0", kFirstNic, 1);
  sources_.verbs_library = "/nonexistent";  // it would be said, if it were asked
  const std::vector<Device> devices = Described({"eth0", "veth0"});
  EXPECT_EQ(devices[0].speed_mbps, 25000u);
  EXPECT_EQ(devices[0].guid, 0x020000000007u);
  EXPECT_EQ(devices[0].pci_path, PathOf(kSecondNic));
  EXPECT_EQ(devices[0].facts_from, "sysfs");
  EXPECT_EQ(devices[0].port_state, PortState::kUnknown);
  EXPECT_EQ(devices[1].speed_mbps, 0u);
  EXPECT_EQ(devices[1].pci_path, "");
}

TEST_F(FakeSysfs, FindsThePortOfAnInterfaceThatHasNoHardwareByTheAddressesOfThePort) {
  AddInterface("bond0", "", "-1");
  AddRdma("mlx5_0", kFirstNic, 1);
  AddRdma("mlx5_1", kSecondNic, 2);
  Write("class/infiniband/mlx5_1/ports/2/gid_attrs/ndevs/0", "eth9");
  Write("class/infiniband/mlx5_1/ports/2/gid_attrs/ndevs/1", "bond0");
  const Device device = Described({"bond0"})[0];
  EXPECT_EQ(device.rdma, (RdmaPort{"mlx5_1", 2}));
  EXPECT_EQ(device.port_state, PortState::kNotActive);
  EXPECT_EQ(device.pci_path, PathOf(kSecondNic));
}

TEST_F(FakeSysfs, TellsThePortsOfOneFunctionApartByTheInterfacesPort) {
  for (const char* name : {"eth0", "eth1"}) AddInterface(name, kSecondNic, "10000");
  Write("class/net/eth0/dev_port", "0");
  Write("class/net/eth1/dev_port", "1");
  AddRdma("mlx5_1", kSecondNic, 2);
  const std::vector<Device> devices = Described({"eth0", "eth1"});
  EXPECT_EQ(devices[0].rdma.number, 1u);
  EXPECT_EQ(devices[1].rdma.number, 2u);
}

TEST_F(FakeSysfs, SaysTheSpeedWhereTheFieldOfLibibverbsEnds) {
  AddInterface("eth0", kSecondNic, "800000");
  AddRdma("mlx5_1", kSecondNic, 2);
  EXPECT_EQ(Described({"eth0"})[0].speed_mbps, 800000u);  // the fake says 4X NDR, which is what XDR shows as
  Write("class/net/eth0/speed", "-1");
  EXPECT_EQ(Described({"eth0"})[0].speed_mbps, 400000u);
  EXPECT_EQ(Described({"eth0"})[0].guid, 0x0a00000000000002u);  // a card without a GUID has its device's
}

TEST_F(FakeSysfs, StandsInWhereverLibibverbsFailsAndTheReasonIsSaid) {
  AddInterface("eth0", kFirstNic, "-1");
  AddRdma("mlx5_0", kFirstNic, 1);
  const auto expect = [&](const std::string& library, const char* mode, const std::string& why) {
    sources_.verbs_library = library;
    setenv("FAKE_IBVERBS", mode, 1);
    const Device device = Described({"eth0"})[0];
    EXPECT_NE(device.facts_from.find("sysfs (mlx5_0 port 1; "), std::string::npos) << device.facts_from;
    EXPECT_NE(device.facts_from.find(why), std::string::npos) << device.facts_from;
    EXPECT_EQ(device.guid, 0x0a00000000000006u) << why;
    EXPECT_EQ(device.speed_mbps, 2500u) << why;
    EXPECT_EQ(device.port_state, PortState::kActive) << why;
  };
  expect("/nonexistent/libibverbs.so.1", "", "cannot open shared object file");
  expect(FORGIVE_FAKE_IBVERBS_OLD, "", "it lacks ibv_get_device_list of IBVERBS_1.1");
  expect(FORGIVE_FAKE_IBVERBS, "none", "ibv_get_device_list: Function not implemented");
  expect(FORGIVE_FAKE_IBVERBS, "empty", "it has no such device");
  expect(FORGIVE_FAKE_IBVERBS, "open", "ibv_open_device: Permission denied");
  expect(FORGIVE_FAKE_IBVERBS, "device", "ibv_query_device: Input/output error");
  expect(FORGIVE_FAKE_IBVERBS, "port", "ibv_query_port: Input/output error");
  expect("", "", "FORGIVE_VERBS=0");
}

TEST_F(FakeSysfs, StandsInForALibibverbsThatNeverAnswers) {
  AddInterface("eth0", kFirstNic, "-1");
  AddRdma("mlx5_0", kFirstNic, 1);
  sources_.verbs_patience = std::chrono::milliseconds(20);
  // In a process of its own: the thread that hangs is left behind.
  EXPECT_EXIT(
      {
        setenv("FAKE_IBVERBS", "hang", 1);
        const Device device = Described({"eth0"})[0];
        std::fprintf(stderr, "%s, %u Mbit/s\n", device.facts_from.c_str(), device.speed_mbps);
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "libibverbs: no answer within 20 ms\\), 2500 Mbit/s");
}

TEST_F(FakeSysfs, LeavesNoDeviceOfLibibverbsOpen) {
  void* const library = dlopen(FORGIVE_FAKE_IBVERBS, RTLD_NOW);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto opened = reinterpret_cast<int (*)()>(dlsym(library, "fake_ibverbs_opened"));
  const auto closed = reinterpret_cast<int (*)()>(dlsym(library, "fake_ibverbs_closed"));
  AddInterface("eth0", kFirstNic, "-1");
  AddRdma("mlx5_0", kFirstNic, 1);
  for (const char* mode : {"", "device", "port"}) {
    setenv("FAKE_IBVERBS", mode, 1);
    const int before = opened();
    Described({"eth0"});
    EXPECT_EQ(opened(), before + 1) << mode;
    EXPECT_EQ(closed(), opened()) << mode;
  }
  dlclose(library);
}

TEST(Verbs, CountLanesBySpeedOfALane) {
  EXPECT_EQ(LinkSpeedMbps(1, 1), 2500u);
  EXPECT_EQ(LinkSpeedMbps(1, 32), 25000u);
  EXPECT_EQ(LinkSpeedMbps(2, 4), 40000u);
  EXPECT_EQ(LinkSpeedMbps(2, 16), 56000u);
  EXPECT_EQ(LinkSpeedMbps(4, 64), 400000u);
  EXPECT_EQ(LinkSpeedMbps(8, 128), 1200000u);
  EXPECT_EQ(LinkSpeedMbps(16, 64), 100000u);
  for (const uint8_t code : std::initializer_list<uint8_t>{0, 3, 32, 64, 128})
    EXPECT_EQ(LinkSpeedMbps(code, 32), 0u) << int{code};
  for (const uint8_t code : std::initializer_list<uint8_t>{0, 3, 0xff})
    EXPECT_EQ(LinkSpeedMbps(2, code), 0u) << int{code};
}

TEST(Verbs, OfThisMachineAnswerOrSayWhyNot) {
  const std::vector<PortFacts> facts =
      AskVerbs("libibverbs.so.1", {{"no_such_device", 1}}, std::chrono::milliseconds(60000));
  ASSERT_EQ(facts.size(), 1u);
  EXPECT_NE(facts[0].problem, "");
  EXPECT_EQ(facts[0].problem.find("it lacks"), std::string::npos) << facts[0].problem;  // the real one has them all
}

// ---- sysfs ----

TEST_F(FakeSysfs, LeadsToThePciFunctionAboveWhatADriverMade) {
  AddInterface("eth0", std::string(kFirstNic) + "/virtio3", "-1");
  AddInterface("eth1", "platform/a000000.ethernet", "1000");
  const std::vector<Device> devices = Described({"eth0", "eth1"});
  EXPECT_EQ(devices[0].pci_path, PathOf(kFirstNic));
  EXPECT_EQ(devices[1].pci_path, "");
}

TEST(DeviceFacts, OfThisMachinesLoopbackAreWithoutASpeed) {
  std::vector<Device> devices(1);
  devices[0].interface = "lo";
  DescribeDevices({}, &devices);
  EXPECT_EQ(devices[0].speed_mbps, 0u);
  EXPECT_EQ(devices[0].pci_path, "");
  EXPECT_EQ(devices[0].facts_from, "sysfs");
}

// ---- Order ----

Device At(const std::string& interface, const std::string& pci, uint32_t port = 0,
          PortState state = PortState::kUnknown) {
  Device device;
  device.interface = interface;
  device.pci_path = pci.empty() ? "" : "/sys/devices/" + pci;
  device.port_state = state;
  if (port != 0) device.rdma = {"mlx5_" + interface, port};
  return device;
}

std::vector<std::string> Arranged(std::vector<Device> devices, std::vector<std::string>* left_out = nullptr) {
  std::vector<std::string> lines;
  std::string error;
  std::vector<std::string> names;
  if (!ArrangeDevices(&devices, &lines, &error)) return {error};
  for (const Device& device : devices) names.push_back(device.interface);
  if (left_out != nullptr) *left_out = lines;
  return names;
}

using Names = std::vector<std::string>;

TEST(DeviceOrder, IsThatOfThePciPathBridgeByBridge) {
  // By numbers, not by letters: a domain of five digits is the last; a device before what is behind a later bridge.
  EXPECT_EQ(
      Arranged({At("vmd", "pci10000:00/10000:00:02.0/10000:01:00.0"),
                At("far", "pci2000:80/2000:80:01.0/2000:81:00.0"), At("f1", "pci0000:00/0000:00:03.0/0000:0a:00.1"),
                At("near", "pci0000:00/0000:00:04.0"), At("f0", "pci0000:00/0000:00:03.0/0000:0a:00.0"),
                At("late_bus", "pci0000:00/0000:00:02.0/0000:5e:00.0")}),
      (Names{"late_bus", "f0", "f1", "near", "far", "vmd"}));
}

TEST(DeviceOrder, PutsVirtualInterfacesLastByTheirNames) {
  EXPECT_EQ(Arranged({At("veth10", ""), At("eth1", "pci0000:00/0000:00:04.0"), At("veth9", ""), At("br0", ""),
                      At("eth0", "pci0000:00/0000:00:03.0")}),
            (Names{"eth0", "eth1", "br0", "veth9", "veth10"}));
}

TEST(DeviceOrder, OfOneFunctionIsByPortAndThenByName) {
  const char* const pci = "pci0000:00/0000:00:03.0";
  EXPECT_EQ(Arranged({At("b", pci, 2), At("c", pci, 1), At("a", pci, 2)}), (Names{"c", "a", "b"}));
}

TEST(DeviceOrder, LeavesPortsOutThatAreNotActiveAndSaysSo) {
  std::vector<std::string> left_out;
  EXPECT_EQ(Arranged({At("eth1", "pci0000:00/0000:00:04.0", 1, PortState::kNotActive),
                      At("eth0", "pci0000:00/0000:00:03.0", 1, PortState::kActive), At("veth0", "")},
                     &left_out),
            (Names{"eth0", "veth0"}));
  EXPECT_EQ(left_out, (Names{"interface eth1 is left out: port 1 of mlx5_eth1 is not ACTIVE: look at its cable and "
                             "switch"}));
  EXPECT_EQ(Arranged({At("eth1", "", 1, PortState::kNotActive)}),
            (Names{"interface eth1 is left out: port 1 of mlx5_eth1 is not ACTIVE: look at its cable and switch; no "
                   "other was chosen"}));
}

TEST(DeviceOrder, IsMadeBeforeTheMostDevicesAreTaken) {
  std::vector<Device> devices;
  for (size_t i = 0; i < kMaxDevices; ++i) devices.push_back(At("veth" + std::to_string(i), ""));
  devices.push_back(At("eth0", "pci0000:00/0000:00:03.0"));
  std::vector<std::string> left_out;
  const Names names = Arranged(devices, &left_out);
  ASSERT_EQ(names.size(), kMaxDevices);
  EXPECT_EQ(names.front(), "eth0");
  EXPECT_EQ(names.back(), "veth14");
  ASSERT_EQ(left_out.size(), 1u);
  EXPECT_NE(left_out[0].find("17 interfaces were chosen"), std::string::npos) << left_out[0];
  EXPECT_NE(left_out[0].find("from veth15 on"), std::string::npos) << left_out[0];
}

TEST(DeviceNumbers, TellThePortsOfOneCardApartAndGiveAGuidToWhatHasNone) {
  std::vector<Device> devices = {At("eth0", "", 1), At("eth1", "", 1), At("vlan0", "", 1), At("other", "", 1),
                                 At("veth0", "")};
  for (size_t i = 0; i < 3; ++i) devices[i].guid = kCard;
  devices[2].rdma = devices[0].rdma;  // a VLAN of eth0 shares its port
  devices[3].guid = kCard + 1;
  NumberDevices(&devices);
  std::vector<uint32_t> ports;
  for (const Device& device : devices) ports.push_back(device.port);
  EXPECT_EQ(ports, (std::vector<uint32_t>{1, 2, 1, 1, 0}));
  EXPECT_EQ(devices[4].guid, 4u);
}

TEST(DeviceFacts, StandInOneLine) {
  Device device = At("eth0", "pci0000:00/0000:00:03.0", 1, PortState::kActive);
  device.speed_mbps = 25000;
  device.guid = kCard;
  device.facts_from = "libibverbs (mlx5_0 port 1)";
  EXPECT_EQ(
      DescribeFacts(device),
      "eth0: 25000 Mbit/s, PCI path /sys/devices/pci0000:00/0000:00:03.0, GUID 0x506b4b0300f48fb2, port ACTIVE; "
      "from libibverbs (mlx5_0 port 1)");
  Device plain = At("veth0", "");
  plain.facts_from = "sysfs";
  EXPECT_EQ(DescribeFacts(plain), "veth0: speed not known, no PCI device, GUID 0x0000000000000000; from sysfs");
}

}  // namespace
}  // namespace forgive
