// SPDX-License-Identifier: Apache-2.0
// Makes the veth pair or the memif ports of driver_bench, in namespaces that end with the process.
#include "testbed/perf/bench/wires.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <filesystem>
#include <thread>

#include "testbed/perf/error.h"

namespace forgive::perf {
namespace {

constexpr const char* kInterfaces[] = {"va", "vb"};
constexpr const char* kMacs[] = {"02:00:00:00:00:0a", "02:00:00:00:00:0b"};

void Shell(const std::string& command) {
  if (std::system((command + " >/dev/null 2>&1").c_str()) == 0) return;
  throw RunError("\"" + command + "\" failed: namespaces and veth need root and iproute2");
}

// Runs `work` in a thread of its own.
void Apart(const std::function<void()>& work) {
  std::exception_ptr failure;
  std::thread([&] {
    try {
      work();
    } catch (...) {
      failure = std::current_exception();
    }
  }).join();
  if (failure) std::rethrow_exception(failure);
}

void EnterNewNamespace() {
  if (unshare(CLONE_NEWNET) != 0) throw RunError("a network namespace cannot be made: run as root");
}

EngineOptions CommonOptions(const std::string& driver, const std::string& dpdk_module, uint64_t window_bytes) {
  EngineOptions options;
  options.driver = driver;
  options.dpdk_module = dpdk_module;
  options.transport.window_bytes = window_bytes;
  options.transport.congestion_control = CongestionControlKind::kNone;
  options.devices.emplace_back();
  return options;
}

void SetPort(const std::string& text, DpdkOptions* out) {
  std::string error;
  if (!ParseDpdkOptions(text, out, &error)) throw RunError(error);
}

class Veth final : public Wire {
 public:
  Veth(const std::string& driver, const std::string& dpdk_module, uint64_t window_bytes)
      : driver_(driver), dpdk_module_(dpdk_module), window_bytes_(window_bytes) {
    // The peer's namespace lives as long as its descriptor; ours is the whole process's, before it has threads.
    Apart([this] {
      EnterNewNamespace();
      peer_ = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
      Shell("ip link set lo up");
    });
    EnterNewNamespace();
    Shell("ip link set lo up");
    const std::string here = std::to_string(getpid());
    At(1, [&] { Shell("ip link add vb mtu 9000 type veth peer name va mtu 9000 netns " + here); });
    for (int end = 0; end < 2; ++end) {
      const std::string name = kInterfaces[end];
      At(end, [&] {
        Shell("ip addr add " + std::string(kWireAddresses[end]) + "/24 dev " + name + " && ip link set " + name +
              " up");
      });
    }
    At(0, [&] { Shell(std::string("ping -c 1 -W 5 ") + kWireAddresses[1]); });
  }
  ~Veth() override { close(peer_); }

  void At(int end, const std::function<void()>& work) override {
    Apart([&] {
      if (end == 1 && setns(peer_, CLONE_NEWNET) != 0) throw RunError("the peer's namespace cannot be entered");
      work();
    });
  }
  EngineOptions OptionsAt(int end) const override {
    EngineOptions options = CommonOptions(driver_, dpdk_module_, window_bytes_);
    options.devices[0].interface = kInterfaces[end];
    options.devices[0].local_address = kWireAddresses[end];
    if (driver_ == "dpdk") SetPort(DpdkPortAt(end), &options.dpdk);
    return options;
  }
  std::string DpdkPortAt(int end) const override {
    if (driver_ != "dpdk") return "";
    // Two ports in one process need two names.
    return "--vdev=net_af_packet_" + std::string(kInterfaces[end]) + ",iface=" + kInterfaces[end];
  }
  std::string KernelInterfaceAt(int end) const override { return kInterfaces[end]; }
  std::string KernelAddressAt(int end) const override { return kWireAddresses[end]; }

 private:
  const std::string driver_, dpdk_module_;
  const uint64_t window_bytes_;
  int peer_ = -1;
};

class Memif final : public Wire {
 public:
  Memif(const std::string& dpdk_module, uint64_t window_bytes)
      : dpdk_module_(dpdk_module), window_bytes_(window_bytes) {
    if (mkdtemp(folder_.data()) == nullptr) throw RunError("no folder can be made for the memif's socket");
    EnterNewNamespace();
    Shell("ip link set lo up");
  }
  ~Memif() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  void At(int, const std::function<void()>& work) override { Apart(work); }
  EngineOptions OptionsAt(int end) const override {
    EngineOptions options = CommonOptions("dpdk", dpdk_module_, window_bytes_);
    SetPort(DpdkPortAt(end), &options.dpdk);
    return options;
  }
  std::string DpdkPortAt(int end) const override {
    const std::string role = end == 0 ? "server" : "client";
    return "--vdev=net_memif_" + role + ",role=" + role + ",mac=" + kMacs[end] + ",id=0,rsize=12,socket=" + folder_ +
           "/memif address=" + kWireAddresses[end] + "/24 neighbour=" + kWireAddresses[1 - end] + "@" +
           kMacs[1 - end];
  }
  std::string KernelInterfaceAt(int) const override { return "lo"; }
  std::string KernelAddressAt(int) const override { return ""; }

 private:
  const std::string dpdk_module_;
  const uint64_t window_bytes_;
  std::string folder_ = (std::filesystem::temp_directory_path() / "forgive-bench-XXXXXX").string();
};

class Null final : public Wire {
 public:
  explicit Null(const std::string& dpdk_module) : dpdk_module_(dpdk_module) {}
  void At(int, const std::function<void()>& work) override { Apart(work); }
  EngineOptions OptionsAt(int end) const override {
    EngineOptions options = CommonOptions("dpdk", dpdk_module_, Config{}.window_bytes);
    SetPort(DpdkPortAt(end), &options.dpdk);
    return options;
  }
  std::string DpdkPortAt(int) const override {
    return std::string("--vdev=net_null0,no-rx=1 address=") + kWireAddresses[0] +
           "/24 neighbour=" + kWireAddresses[1] + "@" + kMacs[1];
  }
  std::string KernelInterfaceAt(int) const override { return ""; }
  std::string KernelAddressAt(int) const override { return ""; }

 private:
  const std::string dpdk_module_;
};

}  // namespace

void CheckWire(const std::string& driver, const std::string& network) {
  if (driver != "udp" && driver != "uring" && driver != "dpdk") {
    throw UsageError("--driver " + driver + ": no such driver; give udp, uring or dpdk");
  }
  if (network != "veth" && ((network != "memif" && network != "null") || driver != "dpdk")) {
    throw UsageError("--network " + network + ": give veth, or memif or null with --driver dpdk");
  }
}

std::unique_ptr<Wire> MakeWire(const std::string& driver, const std::string& network, const std::string& dpdk_module,
                               uint64_t window_bytes) {
  if (network == "null") return std::make_unique<Null>(dpdk_module);
  if (network == "memif") return std::make_unique<Memif>(dpdk_module, window_bytes);
  return std::make_unique<Veth>(driver, dpdk_module, window_bytes);
}

}  // namespace forgive::perf
