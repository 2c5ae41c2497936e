// SPDX-License-Identifier: Apache-2.0
// A DPDK port with the UDP ports on it: bursts in and out, next hops, and delivery between its own UDP ports.
#ifndef FORGIVE_DATAPLANE_DPDK_PORT_H_
#define FORGIVE_DATAPLANE_DPDK_PORT_H_

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dataplane/dpdk/kernel_routes.h"
#include "dataplane/dpdk/lane.h"
#include "dataplane/dpdk/port_device.h"
#include "dataplane/dpdk/resolver.h"

namespace forgive {

// All lanes of a port share one thread; what crosses threads is only opening and closing whole ports.
class Port {
 public:
  // The port of this process that is open already, or a new one. `asking_fd`: see KernelRoutes; -1 where the driver
  // owns the address. nullptr: *error says why.
  static std::shared_ptr<Port> Open(const DpdkPortOptions& options, const Address& local, int asking_fd,
                                    std::string* error);
  ~Port();

  PortDevice& device() { return *device_; }
  // False: a lane of this port has that place.
  bool Attach(Lane* lane);
  void Detach(Lane* lane);

  size_t Receive(Lane* lane, std::span<Datagram> out);
  size_t Send(Lane* lane, std::span<const Transmit> packets);

  TimePoint next_deadline(const Lane& lane) const;
  // Of the kernel interface where there is one, else as the port says.
  uint32_t mtu_bytes() const { return watch_ != nullptr ? watch_->mtu_bytes() : device_->mtu_bytes(); }
  bool link_up() const { return link_up_; }
  bool gone() const { return watch_ != nullptr && watch_->gone(); }

 private:
  static constexpr size_t kBurst = 64;
  static constexpr size_t kMostWaiting = 256;
  enum class Placed : uint8_t { kInBurst, kDone, kTryAgain };
  // A packet that waits for a next hop: its UDP payload.
  struct Waiting {
    rte_mbuf* packet = nullptr;
    Lane* lane = nullptr;
    Address destination;
    uint8_t traffic_class = 0;
    TimePoint give_up;
  };
  struct Burst {
    std::array<rte_mbuf*, kBurst> packets;
    std::array<size_t, kBurst> index;  // which of the caller's packets it is
    size_t count = 0;
  };

  Port() = default;
  void ReleaseHandedOut(Lane* lane);
  size_t TakeQueued(Lane* lane, std::span<Datagram> out);
  // Takes one arrived packet; *datagram is set and true returned if it is for `lane` at once.
  bool Sort(rte_mbuf* packet, Lane* lane, Datagram* datagram);
  Lane* LaneOf(const Address& place);
  void AnswerNeighbour(const Frame& frame);
  void SendFrame(std::span<const uint8_t> frame);

  Placed Place(Lane* lane, const Transmit& packet, Burst* burst);
  bool Flush(Burst* burst, size_t* taken);
  Placed DeliverHere(Lane* from, Lane* to, const Transmit& packet);
  Placed Hold(Lane* lane, const Transmit& packet, uint8_t traffic_class);
  void Resolve(Lane* lane, Destination* destination, TimePoint now);

  // What is due about once a millisecond: events, questions, packets that wait.
  void KeepHouse();
  // At one time for all of them: a next hop found halfway would let the later ones overtake.
  void SendWaiting(TimePoint now);
  void SteerToLanes();

  std::unique_ptr<LinkWatch> watch_;  // nullptr: no kernel interface
  std::unique_ptr<PortDevice> device_;
  std::unique_ptr<Resolver> resolver_;
  std::vector<Lane*> lanes_;
  std::vector<Waiting> waiting_;
  std::array<rte_mbuf*, kBurst> arrived_{};
  uint64_t generation_ = 1;
  uint64_t house_cycles_ = 0;  // between two turns of KeepHouse
  uint64_t house_due_ = 0;     // in cycles
  TimePoint house_time_;
  bool link_up_ = true;
};

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_DPDK_PORT_H_
