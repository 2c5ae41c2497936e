// SPDX-License-Identifier: Apache-2.0
// One DPDK port: probed, configured and started; its packet memory, and what it can do.
#include "dataplane/dpdk/port_device.h"

#include <linux/if_packet.h>
#include <net/if.h>
#include <rte_alarm.h>
#include <rte_bus.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_flow.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "dataplane/clock.h"
#include "dataplane/dpdk/eal.h"
#include "dataplane/dpdk/frame.h"
#include "dataplane/dpdk/packet_ring.h"
#include "dataplane/parse_number.h"
#include "dataplane/socket_address.h"
#include "dataplane/udp_socket.h"
#include "transport/check.h"

namespace forgive {
namespace {

constexpr uint16_t kReceiveDescriptors = 4096;
constexpr uint16_t kSendDescriptors = 2048;
// Beyond the rings: what is handed out, queued or waits for a next hop.
constexpr uint32_t kSparePackets = 2048;
constexpr uint32_t kMostMtuBytes = 9216;
// Room of a packet: the largest of ours with all its headers, as the af_packet ring's frames have it.
constexpr uint32_t kPacketRoom = 4608;
// What is gathered before the payload: all headers, and the transport's longest message without a payload.
constexpr uint32_t kHeaderRoom = 128 + kMaxReportBytes;
static_assert(kPacketRoom >= kDataHeaderBytes + kMaxPayloadBytes + kMostHeaderBytes);
// Of ports without a wire and without an MTU that means something.
constexpr uint32_t kMemoryMtuBytes = 9000;
constexpr Nanoseconds kServerPatience = Seconds(10);

// Ports whose tx_burst has copied the packet when it returns: the payload need not stay.
bool CopiesAtSend(const DpdkPortOptions& options) {
  if (options.is_memif()) return options.argument("zero-copy") != "yes";
  return options.device.starts_with("net_af_packet") || options.device.starts_with("net_null") ||
         options.device.starts_with("net_pcap") || options.device.starts_with("net_tap");
}

std::string ErrnoText(int negative) { return rte_strerror(negative < 0 ? -negative : negative); }

// DPDK's names of pools are short and must differ.
std::string PoolName(const char* kind) {
  static std::atomic<uint32_t> number{0};
  return std::string("forgive_") + kind + std::to_string(number++);
}

// Runs `work` on EAL's interrupt thread, and returns when it is done.
void OnInterruptThread(const std::function<void()>& work) {
  struct Job {
    const std::function<void()>& work;
    std::atomic<bool> done{false};
  } job{work};
  const auto run = [](void* argument) {
    auto* mine = static_cast<Job*>(argument);
    mine->work();
    mine->done.store(true, std::memory_order_release);
  };
  if (rte_eal_alarm_set(1, run, &job) != 0) return work();
  while (!job.done.load(std::memory_order_acquire)) usleep(50);
}

// A process that ends without closing its memif server leaves the socket's file, on which DPDK then cannot listen.
void RemoveStaleSocket(const DpdkPortOptions& options) {
  const std::string path = options.argument("socket");
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::string role = options.argument("role");
  if (!path.starts_with("/") || path.size() >= sizeof(name.sun_path) || (role != "server" && role != "master"))
    return;
  std::memcpy(name.sun_path, path.c_str(), path.size());
  const UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const bool refused = connect(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0;
  if (refused && errno == ECONNREFUSED) unlink(path.c_str());
}

// A segment's bookkeeping lies in its own private area, so that none is shared.
void KeepNothing(void*, void*) {}

}  // namespace

std::unique_ptr<PortDevice> PortDevice::Open(const DpdkPortOptions& options, bool kernel_address,
                                             std::string* error) {
  std::unique_ptr<PortDevice> device(new PortDevice(options));
  device->kernel_address_ = kernel_address;
  (void)TakeEalComplaints();
  if (options.is_memif()) {
    if (!InterruptGate::Enter(error)) return nullptr;
    device->gated_ = true;
  }
  if (!device->Probe(error) || !device->Configure(error)) return nullptr;
  return device;
}

PortDevice::~PortDevice() {
  RemoveFlows();
  if (id_ != RTE_MAX_ETHPORTS) {
    WhereMemifChanges([this] {
      (void)rte_eth_dev_stop(id_);
      (void)rte_eth_dev_close(id_);
    });
    (void)rte_eal_hotplug_remove(options_.is_pci() ? "pci" : "vdev", options_.name().c_str());
  }
  rte_mempool_free(gather_pool_);
  rte_mempool_free(header_pool_);
  rte_mempool_free(receive_pool_);
  if (gated_) InterruptGate::Leave();
  (void)TakeEalComplaints();
}

void PortDevice::WhereMemifChanges(const std::function<void()>& work) {
  if (gated_) {
    OnInterruptThread(work);
  } else {
    work();
  }
}

bool PortDevice::Probe(std::string* error) {
  std::string name = options_.name();
  if (options_.is_pci() && name.size() == 7) name = "0000:" + name;
  const bool packet_ring = options_.device.starts_with("net_af_packet");
  const std::vector<int> before = packet_ring ? PacketSockets() : std::vector<int>{};
  if (options_.is_memif()) RemoveStaleSocket(options_);
  int failed = 0;
  if (rte_eth_dev_get_port_by_name(name.c_str(), &id_) != 0) {
    id_ = RTE_MAX_ETHPORTS;
    failed = rte_dev_probe(options_.device.c_str());
    if (failed == 0) failed = rte_eth_dev_get_port_by_name(name.c_str(), &id_);
  }
  if (failed != 0) {
    if (id_ == RTE_MAX_ETHPORTS) (void)rte_eal_hotplug_remove(options_.is_pci() ? "pci" : "vdev", name.c_str());
    id_ = RTE_MAX_ETHPORTS;
    *error = "DPDK cannot open port \"" + options_.name() + "\": " + ErrnoText(failed) + TakeEalComplaints() +
             ": check FORGIVE_DPDK" + (packet_ring ? " and CAP_NET_RAW with CAP_NET_ADMIN" : "");
    return false;
  }
  if (!packet_ring) return true;
  ring_fd_ = NewPacketSocket(before, if_nametoindex(options_.interface.c_str()));
  uint32_t frame = 0;
  if (ParseNumber(options_.argument("framesz"), &frame)) cut_frame_bytes_ = PacketRingFrameBytes(frame);
  return true;
}

bool PortDevice::MakePools(uint16_t receive_packets, uint16_t send_packets, std::string* error) {
  const bool software = CopiesAtSend(options_);
  const uint16_t room =
      static_cast<uint16_t>(std::max(kPacketRoom, mtu_bytes_ + uint32_t{32}) + RTE_PKTMBUF_HEADROOM);
  const uint32_t received = (software ? 0 : receive_packets) + kSparePackets;
  const uint32_t sent = (software ? 0 : send_packets) + kSparePackets / 2;
  // One thread at a time uses them: no atomics. A memif that lends its packets frees them where it loses its peer.
  const char* const ring = options_.is_memif() && !software ? "ring_mp_mc" : "ring_sp_sc";
  const auto make = [ring](const char* kind, uint32_t count, uint16_t private_bytes, uint16_t bytes) {
    return rte_pktmbuf_pool_create_by_ops(PoolName(kind).c_str(), count, 0, private_bytes, bytes, SOCKET_ID_ANY,
                                          ring);
  };
  receive_pool_ = make("rx", received, 0, room);
  if (software) {
    header_pool_ = make("tx", sent, 0, kHeaderRoom + RTE_PKTMBUF_HEADROOM);
    gather_pool_ = make("gather", sent, RTE_ALIGN(sizeof(rte_mbuf_ext_shared_info), RTE_MBUF_PRIV_ALIGN), 0);
  } else {
    header_pool_ = make("tx", sent, 0, room);
  }
  if (receive_pool_ != nullptr && header_pool_ != nullptr && (!software || gather_pool_ != nullptr)) return true;
  *error = "no memory for the packets of DPDK port \"" + options_.name() + "\": " + rte_strerror(rte_errno) + " (" +
           EalMemory() + "): free or add hugepages, or say --no-huge in FORGIVE_DPDK";
  return false;
}

bool PortDevice::Configure(std::string* error) {
  const auto refused = [&](const char* what, int code) {
    *error = "DPDK port \"" + options_.name() + "\" refuses " + what + ": " + ErrnoText(code) + TakeEalComplaints();
    return false;
  };
  rte_eth_dev_info info;
  if (const int failed = rte_eth_dev_info_get(id_, &info); failed != 0) return refused("to say what it is", failed);
  // Where the kernel uses the port beside us, only what is steered to us may come to us.
  if (options_.is_pci() && kernel_address_) {
    rte_flow_error why{};
    if (const int failed = rte_flow_isolate(id_, 1, &why); failed != 0) {
      return refused("to share its packets with the kernel; give it an address= of its own", failed);
    }
    isolated_ = true;
  }
  rte_ether_addr address{};
  (void)rte_eth_macaddr_get(id_, &address);
  std::copy_n(address.addr_bytes, mac_.size(), mac_.begin());
  uint16_t mtu = 0;
  (void)rte_eth_dev_get_mtu(id_, &mtu);
  const bool memory = options_.is_memif() || options_.device.starts_with("net_null");
  mtu_bytes_ = options_.mtu_bytes != 0 ? options_.mtu_bytes : memory ? kMemoryMtuBytes : mtu;
  mtu_bytes_ = std::min(mtu_bytes_, kMostMtuBytes);

  rte_eth_conf configuration{};
  // A software port takes any frame whatever it says; its MTU is the kernel's, which is not ours to set.
  if (options_.is_pci()) configuration.rxmode.mtu = std::min<uint32_t>(mtu_bytes_, info.max_mtu);
  const uint64_t wanted = RTE_ETH_TX_OFFLOAD_MULTI_SEGS | RTE_ETH_TX_OFFLOAD_IPV4_CKSUM;
  configuration.txmode.offloads = info.tx_offload_capa & wanted;
  writes_ip_checksum_ = (info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_IPV4_CKSUM) != 0;
  if (const int failed = rte_eth_dev_configure(id_, 1, 1, &configuration); failed != 0) {
    return refused("one queue each way", failed);
  }
  uint16_t receive = kReceiveDescriptors;
  uint16_t send = kSendDescriptors;
  if (const int failed = rte_eth_dev_adjust_nb_rx_tx_desc(id_, &receive, &send); failed != 0) {
    return refused("queues of its own size", failed);
  }
  if (!MakePools(receive, send, error)) return false;
  if (gather_pool_ != nullptr && (info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS) == 0 &&
      !options_.device.starts_with("net_null")) {
    return refused("packets of several segments, though it is a software port", -ENOTSUP);
  }
  if (const int failed = rte_eth_rx_queue_setup(id_, 0, receive, SOCKET_ID_ANY, nullptr, receive_pool_);
      failed != 0) {
    return refused("a receive queue", failed);
  }
  if (const int failed = rte_eth_tx_queue_setup(id_, 0, send, SOCKET_ID_ANY, nullptr); failed != 0) {
    return refused("a send queue", failed);
  }
  if (const int failed = Start(); failed != 0) return refused("to start", failed);
  // Neighbour solicitations come to multicast addresses.
  if (!kernel_address_) (void)rte_eth_allmulticast_enable(id_);
  return true;
}

// A memif client starts only where its server listens, and one that the server refused, since that was still starting
// itself, does not try again; the two are started in any order.
int PortDevice::Start() {
  const std::string role = options_.argument("role");
  if (!gated_ || role == "server" || role == "master") return rte_eth_dev_start(id_);
  const TimePoint give_up = MonotonicNow() + kServerPatience;
  while (true) {
    int failed = 0;
    WhereMemifChanges([&] { failed = rte_eth_dev_start(id_); });
    bool up = false;
    for (int looks = 0; failed == 0 && looks < 25 && !up; ++looks) {
      up = LinkUp(false);
      if (!up) usleep(20000);
    }
    if (up || MonotonicNow() >= give_up) return failed;
    if (failed == 0) WhereMemifChanges([this] { (void)rte_eth_dev_stop(id_); });
    usleep(20000);
    (void)TakeEalComplaints();
  }
}

rte_mbuf* PortDevice::AllocateSend(size_t header_bytes, const Transmit& packet, uint8_t** header) {
  const bool gather = gather_pool_ != nullptr && packet.payload_length != 0;
  rte_mbuf* first = rte_pktmbuf_alloc(header_pool_);
  if (first == nullptr) return nullptr;
  const size_t own = header_bytes + packet.header_length;
  const size_t in_first = gather ? own : own + packet.payload_length;
  *header = reinterpret_cast<uint8_t*>(rte_pktmbuf_append(first, static_cast<uint16_t>(in_first)));
  if (*header == nullptr) {  // longer than any packet of ours
    rte_pktmbuf_free(first);
    return nullptr;
  }
  std::memcpy(*header + header_bytes, packet.header.data(), packet.header_length);
  if (packet.payload_length == 0) return first;
  if (!gather) {
    std::memcpy(*header + own, packet.payload, packet.payload_length);
    return first;
  }
  rte_mbuf* second = rte_pktmbuf_alloc(gather_pool_);
  if (second == nullptr) {
    rte_pktmbuf_free(first);
    return nullptr;
  }
  auto* shared = static_cast<rte_mbuf_ext_shared_info*>(rte_mbuf_to_priv(second));
  shared->free_cb = KeepNothing;
  rte_mbuf_ext_refcnt_set(shared, 1);
  // Software ports read it by its address and never by that of a bus.
  rte_pktmbuf_attach_extbuf(second, const_cast<uint8_t*>(packet.payload), RTE_BAD_IOVA,
                            static_cast<uint16_t>(packet.payload_length), shared);
  second->data_len = static_cast<uint16_t>(packet.payload_length);
  second->pkt_len = packet.payload_length;
  first->next = second;
  first->nb_segs = 2;
  first->pkt_len += packet.payload_length;
  return first;
}

bool PortDevice::LinkUp(bool before) const {
  const InterruptGate::Pass pass(gated_);
  if (!pass) return before;
  rte_eth_link link{};
  return rte_eth_link_get_nowait(id_, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

uint64_t PortDevice::MissedPackets() {
  if (ring_fd_ >= 0) {
    missed_ += TakePacketDrops(ring_fd_);
    return missed_;
  }
  rte_eth_stats stats{};
  return rte_eth_stats_get(id_, &stats) == 0 ? stats.imissed + stats.rx_nombuf : 0;
}

void PortDevice::Steer(std::span<const Address> places) {
  if (ring_fd_ >= 0) SteerRing(places);
  if (options_.is_pci()) SteerFlows(places);
}

// The neighbours' frames of an own address must come through too.
void PortDevice::SteerRing(std::span<const Address> places) {
  steered_ = FilterPacketRing(ring_fd_, places, !kernel_address_);
}

void PortDevice::RemoveFlows() {
  for (rte_flow* flow : flows_) {
    rte_flow_error why{};
    (void)rte_flow_destroy(id_, flow, &why);
  }
  flows_.clear();
}

void PortDevice::SteerFlows(std::span<const Address> places) {
  RemoveFlows();
  for (const Address& place : places) {
    const bool ipv6 = AddressFamily(place) == AF_INET6;
    rte_flow_item_ipv4 ipv4_spec{};
    rte_flow_item_ipv4 ipv4_mask{};
    std::memcpy(&ipv4_spec.hdr.dst_addr, place.bytes.data() + 4, 4);
    ipv4_mask.hdr.dst_addr = UINT32_MAX;
    rte_flow_item_ipv6 ipv6_spec{};
    rte_flow_item_ipv6 ipv6_mask{};
    std::memcpy(ipv6_spec.hdr.dst_addr, place.bytes.data() + 8, 16);
    std::memset(ipv6_mask.hdr.dst_addr, 0xff, 16);
    rte_flow_item_udp udp_spec{};
    rte_flow_item_udp udp_mask{};
    std::memcpy(&udp_spec.hdr.dst_port, place.bytes.data() + 2, 2);
    udp_mask.hdr.dst_port = UINT16_MAX;
    const rte_flow_item ip_item = ipv6 ? rte_flow_item{RTE_FLOW_ITEM_TYPE_IPV6, &ipv6_spec, nullptr, &ipv6_mask}
                                       : rte_flow_item{RTE_FLOW_ITEM_TYPE_IPV4, &ipv4_spec, nullptr, &ipv4_mask};
    const rte_flow_item pattern[] = {{RTE_FLOW_ITEM_TYPE_ETH, nullptr, nullptr, nullptr},
                                     ip_item,
                                     {RTE_FLOW_ITEM_TYPE_UDP, &udp_spec, nullptr, &udp_mask},
                                     {RTE_FLOW_ITEM_TYPE_END, nullptr, nullptr, nullptr}};
    const rte_flow_action_queue queue{0};
    const rte_flow_action actions[] = {{RTE_FLOW_ACTION_TYPE_QUEUE, &queue}, {RTE_FLOW_ACTION_TYPE_END, nullptr}};
    rte_flow_attr attributes{};
    attributes.ingress = 1;
    rte_flow_error why{};
    rte_flow* flow = rte_flow_create(id_, &attributes, pattern, actions, &why);
    if (flow != nullptr) flows_.push_back(flow);
  }
  steered_ = flows_.size() == places.size();
  (void)TakeEalComplaints();
}

std::string PortDevice::facts() const {
  std::string text = "DPDK port " + options_.name() + ", " + EalMemory();
  text += gathers() ? ", payload gathered" : ", payload copied";
  if (writes_ip_checksum_) text += ", IP checksum by the port";
  if (steered_) text += ring_fd_ >= 0 ? ", steered by a filter" : ", steered by rte_flow";
  if (isolated_ && !steered_) text += ", not steered: nothing will arrive";
  return text;
}

}  // namespace forgive
