// SPDX-License-Identifier: Apache-2.0
// One DPDK port: probed, configured and started; its packet memory, and what it can do.
#ifndef FORGIVE_DATAPLANE_DPDK_PORT_DEVICE_H_
#define FORGIVE_DATAPLANE_DPDK_PORT_DEVICE_H_

#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dataplane/dpdk/interrupt_gate.h"
#include "dataplane/dpdk_options.h"
#include "transport/datagram.h"

namespace forgive {

// Used by one thread at a time.
class PortDevice {
 public:
  // EAL runs. `kernel_address`: the address is the kernel's, which goes on using the port beside us. nullptr: *error
  // says in one line what is wrong and what to do, and the port is gone again.
  static std::unique_ptr<PortDevice> Open(const DpdkPortOptions& options, bool kernel_address, std::string* error);
  ~PortDevice();

  size_t Receive(std::span<rte_mbuf*> out) {
    const InterruptGate::Pass pass(gated_);
    if (!pass) return 0;
    return rte_eth_rx_burst(id_, 0, out.data(), static_cast<uint16_t>(out.size()));
  }
  // Takes packets from the front; the others stay the caller's.
  size_t Send(std::span<rte_mbuf*> packets) {
    const InterruptGate::Pass pass(gated_);
    if (!pass) return 0;
    return rte_eth_tx_burst(id_, 0, packets.data(), static_cast<uint16_t>(packets.size()));
  }

  // A packet of one segment with room for the largest frame. nullptr: all are in use.
  rte_mbuf* AllocateWhole() { return rte_pktmbuf_alloc(receive_pool_); }
  // A packet that will leave: `header_bytes` of its own memory at *header, and behind them the payload: gathered from
  // where it lies where the port copies it before Send returns, else copied. nullptr: all are in use.
  rte_mbuf* AllocateSend(size_t header_bytes, const Transmit& packet, uint8_t** header);

  // Leads this UDP port of this address to us, and other packets away from us, as far as the port can.
  void Steer(std::span<const Address> places);

  const MacAddress& mac() const { return mac_; }
  uint32_t mtu_bytes() const { return mtu_bytes_; }  // as the port or the options say
  // A frame of at least this length may be the rest of a longer one that our own ring cut; 0: the port cuts none.
  uint32_t cut_frame_bytes() const { return cut_frame_bytes_; }
  bool writes_ip_checksum() const { return writes_ip_checksum_; }
  bool kernel_address() const { return kernel_address_; }
  bool gathers() const { return gather_pool_ != nullptr; }
  // As it was `before` while the gate is closed: then the port may be about to change.
  bool LinkUp(bool before) const;
  // A descriptor that is readable while something waits; -1: the port must be polled.
  int ring_fd() const { return ring_fd_; }
  // Packets for anybody that the port dropped since it was opened.
  uint64_t MissedPackets();
  std::string facts() const;

 private:
  explicit PortDevice(const DpdkPortOptions& options) : options_(options) {}
  // DPDK's memif changes a port on EAL's interrupt thread when its peer comes or leaves: so do we there.
  void WhereMemifChanges(const std::function<void()>& work);
  bool Probe(std::string* error);
  bool Configure(std::string* error);
  int Start();
  bool MakePools(uint16_t receive_packets, uint16_t send_packets, std::string* error);
  void SteerRing(std::span<const Address> places);
  void SteerFlows(std::span<const Address> places);
  void RemoveFlows();

  DpdkPortOptions options_;
  uint16_t id_ = RTE_MAX_ETHPORTS;
  bool kernel_address_ = false;
  bool isolated_ = false;
  bool gated_ = false;
  MacAddress mac_{};
  uint32_t mtu_bytes_ = 0;
  uint32_t cut_frame_bytes_ = 0;
  bool writes_ip_checksum_ = false;
  bool steered_ = false;
  int ring_fd_ = -1;
  uint64_t missed_ = 0;
  rte_mempool* receive_pool_ = nullptr;
  rte_mempool* header_pool_ = nullptr;  // whole packets where the port does not gather
  rte_mempool* gather_pool_ = nullptr;  // segments without memory of their own
  std::vector<rte_flow*> flows_;
};

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_DPDK_PORT_DEVICE_H_
