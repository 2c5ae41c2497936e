// SPDX-License-Identifier: Apache-2.0
// The dpdk driver: one UDP port on a DPDK port, and the module's one symbol.
#include <unistd.h>

#include <algorithm>

#include "dataplane/dpdk/eal.h"
#include "dataplane/dpdk/port.h"
#include "dataplane/dpdk_module.h"
#include "dataplane/socket_address.h"
#include "dataplane/udp_filter.h"
#include "dataplane/udp_socket.h"
#include "transport/check.h"

namespace forgive {
namespace {

constexpr uint32_t kMostDatagramBytes = kDataHeaderBytes + kMaxPayloadBytes;
constexpr uint16_t kFirstEphemeralPort = 49152;
constexpr uint32_t kReservationBufferBytes = 4096;

class DpdkDriver final : public Driver {
 public:
  DpdkDriver(std::shared_ptr<Port> port, const PlaceOptions& options, UdpSockets reservation)
      : reservation_(std::move(reservation)), port_(std::move(port)), lane_(std::make_unique<Lane>(options)) {
    ring_fd_ = port_->device().ring_fd();
  }
  ~DpdkDriver() override {
    if (attached_) port_->Detach(lane_.get());
  }
  bool Attach() { return attached_ = port_->Attach(lane_.get()); }

  size_t ReceiveBurst(std::span<Datagram> out) override { return port_->Receive(lane_.get(), out); }
  bool receive_drained() const override { return lane_->drained; }
  size_t SendBurst(std::span<const Transmit> packets) override { return port_->Send(lane_.get(), packets); }

  Address local_address() const override { return lane_->options.local; }
  uint32_t max_datagram_bytes() const override { return lane_->options.max_payload_bytes; }
  std::span<const int> poll_fds() const override { return std::span(&ring_fd_, ring_fd_ >= 0 ? 1 : 0); }
  TimePoint next_deadline() const override { return port_->next_deadline(*lane_); }
  DriverCounters counters() const override {
    DriverCounters counters = lane_->counters;
    counters.socket_drops += port_->device().MissedPackets();
    return counters;
  }
  std::string description() const override {
    std::string text = "dpdk " + AddressText(lane_->options.local) + ", " + port_->device().facts();
    text += ", largest datagram " + std::to_string(lane_->options.max_payload_bytes);
    text += reservation_.udp.valid() ? ", routes and neighbours of the kernel" : ", own address";
    if (!port_->link_up()) text += ", link down";
    if (port_->gone()) text += ", the interface is gone";
    return text;
  }

 private:
  UdpSockets reservation_;  // outlives the port's routes, which ask through it
  std::shared_ptr<Port> port_;
  std::unique_ptr<Lane> lane_;
  int ring_fd_ = -1;
  bool attached_ = false;
};

// Takes the UDP port from the kernel where the address is the kernel's: nobody else gets it, and the kernel answers
// our packets, which it may see too, with silence instead of "port unreachable".
bool Reserve(const DpdkDriverOptions& options, UdpSockets* out, std::string* error) {
  UdpDriverOptions udp;
  udp.local_address = options.local_address;
  udp.port_low = options.port_low;
  udp.port_high = options.port_high;
  udp.receive_buffer_bytes = kReservationBufferBytes;
  udp.segmentation = false;
  udp.coalescing = false;
  if (!OpenUdpSockets(udp, out, error)) return false;
  if (out->interface == "lo") {
    *error =
        "driver dpdk does not run over lo, which has no Ethernet addresses: choose another interface, or "
        "FORGIVE_DRIVER=udp";
    return false;
  }
  if (out->interface != options.port.interface) {
    *error = "DPDK port \"" + options.port.name() + "\" stands on interface " + options.port.interface + ", and " +
             options.local_address + " is an address of " + out->interface +
             ": set FORGIVE_INTERFACE to the port's interface, or give the port an address= of its own";
    return false;
  }
  constexpr sock_filter kNothing = {BPF_RET | BPF_K, 0, 0, 0};
  (void)AttachFilter(out->udp.get(), {kNothing});
  (void)setsockopt(out->udp.get(), SOL_SOCKET, SO_BINDTODEVICE, out->interface.c_str(),
                   static_cast<socklen_t>(out->interface.size()));
  return true;
}

// The UDP port of an own address: the first of the range that no lane of ours has.
bool AttachOwn(const DpdkDriverOptions& options, const std::shared_ptr<Port>& port, PlaceOptions* place,
               std::unique_ptr<DpdkDriver>* out, std::string* error) {
  uint32_t low = options.port_low;
  uint32_t high = std::max(options.port_low, options.port_high);
  if (low == 0) {
    low = kFirstEphemeralPort;
    high = UINT16_MAX;
  }
  for (uint32_t number = low; number <= high; ++number) {
    SetAddressPort(static_cast<uint16_t>(number), &place->local);
    auto driver = std::make_unique<DpdkDriver>(port, *place, UdpSockets{});
    if (!driver->Attach()) continue;
    *out = std::move(driver);
    return true;
  }
  *error = "every UDP port of " + std::to_string(low) + "-" + std::to_string(high) + " on DPDK port \"" +
           options.port.name() + "\" is in use: choose a free range with FORGIVE_PORT_RANGE";
  return false;
}

std::unique_ptr<Driver> Open(const DpdkDriverOptions& options, std::string* error) {
  const bool own = !options.port.address.empty();
  PlaceOptions place;
  place.dscp_data = options.dscp_data;
  place.dscp_control = options.dscp_control;
  place.dscp_trimmed = options.dscp_trimmed;
  place.data_ecn = options.data_ecn;
  place.require_trimmed_dscp = options.require_trimmed_dscp;
  if (!ParseAddress(own ? options.port.address : options.local_address, 0, &place.local)) {
    *error = "\"" + options.local_address + "\" is not a numeric IPv4 or IPv6 address";
    return nullptr;
  }
  UdpSockets reservation;
  if (!own && !Reserve(options, &reservation, error)) return nullptr;
  if (!StartEal(options, error)) return nullptr;
  const std::shared_ptr<Port> port = Port::Open(options.port, place.local, reservation.udp.get(), error);
  if (port == nullptr) return nullptr;

  const bool ipv6 = AddressFamily(place.local) == AF_INET6;
  uint32_t mtu = options.port.mtu_bytes != 0 ? options.port.mtu_bytes : port->mtu_bytes();
  // What a ring would cut, no peer may send.
  const uint32_t cut = port->device().cut_frame_bytes();
  constexpr uint32_t kLinkBytes = kEthernetHeaderBytes + 2 * kVlanTagBytes;
  if (cut != 0) mtu = std::min(mtu, cut > kLinkBytes ? cut - kLinkBytes : 0);
  place.max_payload_bytes = std::min(PayloadOfMtu(mtu, ipv6), kMostDatagramBytes);
  std::unique_ptr<DpdkDriver> driver;
  if (own) return AttachOwn(options, port, &place, &driver, error) ? std::move(driver) : nullptr;
  place.local = reservation.local;
  driver = std::make_unique<DpdkDriver>(port, place, std::move(reservation));
  FORGIVE_CHECK(driver->Attach());  // the kernel gave the port to us alone
  return driver;
}

}  // namespace
}  // namespace forgive

extern "C" __attribute__((visibility("default"))) forgive::Driver* forgive_dpdk_open(
    uint64_t build, const forgive::DpdkDriverOptions* options, std::string* error) {
  if (build != forgive::kDpdkModuleBuild) {
    *error = "libforgive_dpdk.so is of another build than the plugin: install both from one build";
    return nullptr;
  }
  return forgive::Open(*options, error).release();
}
