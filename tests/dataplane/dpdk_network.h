// SPDX-License-Identifier: Apache-2.0
// Pairs of DPDK ports that are connected: af_packet on a veth pair, with own addresses or the kernel's, and memif.
#ifndef FORGIVE_TESTS_DATAPLANE_DPDK_NETWORK_H_
#define FORGIVE_TESTS_DATAPLANE_DPDK_NETWORK_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "dataplane/dpdk_module.h"
#include "namespaces.h"
#include "network.h"
#include "packets.h"

namespace forgive {

inline constexpr const char* kDpdkNetworks[] = {"packet_own",         "packet_own_ipv6", "packet_kernel",
                                                "packet_kernel_ipv6", "memif",           "memif_ipv6"};

// The options of one port as FORGIVE_DPDK would say them.
inline DpdkDriverOptions DpdkOptionsOf(const std::string& text, const std::string& kernel_address = "") {
  DpdkOptions parsed;
  std::string error;
  EXPECT_TRUE(ParseDpdkOptions(text, &parsed, &error)) << error;
  DpdkDriverOptions options;
  if (!parsed.ports.empty()) options.port = parsed.ports[0];
  options.huge_pages = parsed.huge_pages;
  options.eal = parsed.eal;
  options.local_address = kernel_address.empty() ? options.port.address : kernel_address;
  return options;
}

inline std::unique_ptr<Driver> OpenDpdk(const DpdkDriverOptions& options, std::string* error) {
  return OpenDpdkDriver(options, FORGIVE_DPDK_MODULE, error);
}

inline std::unique_ptr<Driver> MustOpenDpdk(const DpdkDriverOptions& options) {
  std::string error;
  std::unique_ptr<Driver> driver = OpenDpdk(options, &error);
  EXPECT_NE(driver, nullptr) << error;
  return driver;
}

// Waits until the port's link is up: the two ends of a memif find each other in the background.
inline bool AwaitLink(Driver& driver) {
  const TimePoint deadline = TestDeadline();
  do {
    ReceiveRest(driver);
    if (driver.description().find("link down") == std::string::npos) return true;
  } while (MonotonicNow() < deadline);
  return false;
}

// Drivers in turns on two ports that are connected.
class DpdkPair : public Network {
 public:
  std::unique_ptr<Driver> Open() override { return OpenAt(opened_++ % 2, 2); }
  void SendMarked(Driver& from, const Address& to, const std::string& bytes) override {
    const size_t side = Side(from);
    const auto marking = OpenAt(side, 3);
    const Transmit packet = MakePacket(to, bytes, PacketClass::kData);
    ASSERT_EQ(marking->SendBurst({&packet, 1}), 1u);
  }

 protected:
  // With both ports open from the start, their links are up before the first driver of a test sends.
  void Begin() {
    for (size_t side = 0; side < 2; ++side) keep_[side] = OpenAt(side, 2);
    for (const auto& driver : keep_) EXPECT_TRUE(driver == nullptr || AwaitLink(*driver));
  }
  virtual std::unique_ptr<Driver> OpenAt(size_t side, uint8_t data_ecn) {
    DpdkDriverOptions options = options_[side];
    options.data_ecn = data_ecn;
    return MustOpenDpdk(options);
  }
  size_t Side(const Driver& driver) const {
    Address theirs = driver.local_address();
    const Address ours = keep_[0]->local_address();
    std::copy_n(ours.bytes.begin() + 2, 2, theirs.bytes.begin() + 2);  // the port
    return theirs == ours ? 0 : 1;
  }

  DpdkDriverOptions options_[2];
  std::unique_ptr<Driver> keep_[2];
  size_t opened_ = 0;
};

// Both ends of a veth pair in one namespace, which has no addresses on them.
class PacketOwnPair final : public DpdkPair {
 public:
  explicit PacketOwnPair(bool ipv6) {
    EXPECT_TRUE(
        Shell("ip link add va mtu 9000 address 02:00:00:00:00:0a type veth peer name vb mtu 9000 address "
              "02:00:00:00:00:0b"));
    EXPECT_TRUE(Shell("ip link set va addrgenmode none up && ip link set vb addrgenmode none up"));
    const char* a = ipv6 ? "fd00:9::a" : "10.9.0.1";
    const char* b = ipv6 ? "fd00:9::b" : "10.9.0.2";
    const std::string bits = ipv6 ? "/64" : "/24";
    options_[0] = DpdkOptionsOf("--vdev=net_af_packet_a,iface=va address=" + (a + bits) + " neighbour=" + b +
                                "@02:00:00:00:00:0b");
    options_[1] = DpdkOptionsOf("--vdev=net_af_packet_b,iface=vb address=" + (b + bits) + " neighbour=" + a +
                                "@02:00:00:00:00:0a");
    Begin();
  }
  ~PacketOwnPair() override {
    for (auto& driver : keep_) driver.reset();
    Shell("ip link del va");
  }
};

// A veth pair between two namespaces with the kernel's addresses on it.
class PacketKernelPair final : public DpdkPair {
 public:
  explicit PacketKernelPair(bool ipv6) {
    EXPECT_TRUE(other_.valid());
    EXPECT_TRUE(
        other_.Shell("ip link add vb mtu 9000 type veth peer name va mtu 9000 netns " + std::to_string(getpid())));
    const std::string a = ipv6 ? "fd00:9::a" : "10.9.0.1";
    const std::string b = ipv6 ? "fd00:9::b" : "10.9.0.2";
    const std::string bits = ipv6 ? "/64" : "/24";
    const std::string nodad = ipv6 ? " nodad" : "";
    EXPECT_TRUE(Shell("ip addr add " + a + bits + " dev va" + nodad + " && ip link set va up"));
    EXPECT_TRUE(other_.Shell("ip addr add " + b + bits + " dev vb" + nodad + " && ip link set vb up"));
    options_[0] = DpdkOptionsOf("--vdev=net_af_packet_a,iface=va address=" + a + bits, a);
    options_[1] = DpdkOptionsOf("--vdev=net_af_packet_b,iface=vb address=" + b + bits, b);
    for (DpdkDriverOptions& options : options_) options.port.address.clear();
    Begin();
    // The kernels know each other beforehand; how they come to has a test of its own. (DPDK's start of the port sets
    // the interface's own address, at which the kernel forgets its neighbours.)
    EXPECT_TRUE(Shell(Ping(ipv6, b)) && other_.Shell(Ping(ipv6, a)));
  }
  ~PacketKernelPair() override {
    for (auto& driver : keep_) driver.reset();
    Shell("ip link del va");
  }

 protected:
  std::unique_ptr<Driver> OpenAt(size_t side, uint8_t data_ecn) override {
    if (side == 0) return DpdkPair::OpenAt(side, data_ecn);
    std::unique_ptr<Driver> driver;
    other_.Run([&] { driver = DpdkPair::OpenAt(side, data_ecn); });
    return driver;
  }

 private:
  // Until it is answered: one that leaves while the link comes up is lost.
  static std::string Ping(bool ipv6, const std::string& address) {
    return std::string("for i in $(seq 30); do ping ") + (ipv6 ? "-6 " : "") + "-c 1 -W 1 " + address +
           " && exit 0; done; exit 1";
  }

  OtherNamespace other_;
};

inline std::string TemporaryFolder() {
  std::string folder = testing::TempDir() + "/forgive-XXXXXX";
  EXPECT_NE(mkdtemp(folder.data()), nullptr);
  return folder;
}

// One end of a memif whose socket is in the folder; 0 is the server, which is to be opened first.
inline DpdkDriverOptions MemifEnd(size_t side, const std::string& folder, int ring_bits, bool ipv6 = false) {
  const std::string letters[] = {"a", "b"};
  const std::string addresses[] = {ipv6 ? "fd00:9::a" : "10.9.0.1", ipv6 ? "fd00:9::b" : "10.9.0.2"};
  const std::string mac = "02:00:00:00:00:0";
  return DpdkOptionsOf("--vdev=net_memif_" + letters[side] + ",role=" + (side == 0 ? "server" : "client") +
                       ",mac=" + mac + letters[side] + ",id=0,rsize=" + std::to_string(ring_bits) +
                       ",socket=" + folder + "/memif address=" + addresses[side] + (ipv6 ? "/64" : "/24") +
                       " neighbour=" + addresses[1 - side] + "@" + mac + letters[1 - side]);
}

class MemifPair final : public DpdkPair {
 public:
  explicit MemifPair(bool ipv6) {
    for (size_t side = 0; side < 2; ++side) options_[side] = MemifEnd(side, folder_, 12, ipv6);
    Begin();
  }
  ~MemifPair() override {
    for (auto& driver : keep_) driver.reset();
    EXPECT_EQ(rmdir(folder_.c_str()), 0) << "the port left its socket in " << folder_;
  }

 private:
  const std::string folder_ = TemporaryFolder();
};

inline std::unique_ptr<Network> MakeDpdkNetwork(const std::string& kind) {
  EXPECT_TRUE(EnterFreshNamespace()) << "a network namespace needs CAP_SYS_ADMIN";
  const bool ipv6 = kind.ends_with("ipv6");
  if (kind.starts_with("packet_own")) return std::make_unique<PacketOwnPair>(ipv6);
  if (kind.starts_with("packet_kernel")) return std::make_unique<PacketKernelPair>(ipv6);
  return std::make_unique<MemifPair>(ipv6);
}

}  // namespace forgive

#endif  // FORGIVE_TESTS_DATAPLANE_DPDK_NETWORK_H_
