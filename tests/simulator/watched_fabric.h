// SPDX-License-Identifier: Apache-2.0
// A plain fabric for comparison: every port is watched at every departure, events in an ordered set, nothing is lazy.
#ifndef FORGIVE_TESTS_SIMULATOR_WATCHED_FABRIC_H_
#define FORGIVE_TESTS_SIMULATOR_WATCHED_FABRIC_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "rig.h"

namespace forgive::sim {

// One spine, so that there is one way; no marking, jitter or failures.
class WatchedFabric {
 public:
  explicit WatchedFabric(const FabricPlan& plan) : plan_(plan) {}

  void SendAt(int64_t time, const Packet& packet) {
    Packet sent = packet;
    sent.wire_bytes = uint32_t{packet.header_bytes} + packet.payload_bytes + plan_.wire_overhead_bytes;
    packets_.push_back(sent);
    arrivals_.insert({time, order_++, Nic(packet.source), packets_.size() - 1});
  }

  std::vector<Delivery> Run() {
    std::vector<Delivery> deliveries;
    while (!arrivals_.empty() || !departures_.empty()) {
      // A departure is decided before an arrival of the same moment.
      if (!departures_.empty() &&
          (arrivals_.empty() || departures_.begin()->first <= std::get<0>(*arrivals_.begin()))) {
        const auto [time, port] = *departures_.begin();
        departures_.erase(departures_.begin());
        ports_[port].busy = false;
        StartNext(time, port);
        continue;
      }
      const auto [time, order, place, packet] = *arrivals_.begin();
      arrivals_.erase(arrivals_.begin());
      if (place == kHost) {
        deliveries.push_back({SimTime{time}, packets_[packet]});
      } else {
        Offer(time, place, packet);
        StartNext(time, place);
      }
    }
    return deliveries;
  }

  uint64_t trims = 0;
  uint64_t drops = 0;

 private:
  static constexpr uint32_t kHost = 0xffffffff;
  struct WatchedPort {
    std::array<std::deque<size_t>, kQueueClasses> queues;
    std::array<uint32_t, kQueueClasses> bytes{};
    bool busy = false;
    int64_t credit = -1;
  };

  // Ports by number: NICs, leaves to the spine, the spine to leaves, leaves to hosts.
  uint32_t Nic(uint32_t host) const { return host; }
  uint32_t Up(uint32_t leaf) const { return plan_.hosts() + leaf; }
  uint32_t Down(uint32_t leaf) const { return plan_.hosts() + plan_.leaves + leaf; }
  uint32_t Last(uint32_t host) const { return plan_.hosts() + 2 * plan_.leaves + host; }
  bool IsNic(uint32_t port) const { return port < Up(0); }
  bool IsLast(uint32_t port) const { return port >= Last(0); }
  bool AtHost(uint32_t port) const { return IsNic(port) || IsLast(port); }
  // The switch whose port it is, for the shared buffer.
  uint32_t SwitchOf(uint32_t port) const {
    if (IsLast(port)) return (port - Last(0)) / plan_.hosts_per_leaf;
    return port >= Down(0) ? plan_.leaves : port - Up(0);
  }
  uint32_t After(uint32_t port, const Packet& packet) const {
    const uint32_t leaf = packet.destination / plan_.hosts_per_leaf;
    if (IsLast(port)) return kHost;
    if (port >= Down(0)) return Last(packet.destination);
    if (port >= Up(0)) return Down(leaf);
    return leaf == port / plan_.hosts_per_leaf ? Last(packet.destination) : Up(port / plan_.hosts_per_leaf);
  }

  void Offer(int64_t time, uint32_t number, size_t index) {
    WatchedPort& port = ports_[number];
    Packet& packet = packets_[index];
    if (!port.busy) return StartOne(time, number, index);
    auto queue_class = static_cast<size_t>(packet.queue_class);
    if (!IsNic(number)) {
      if (packet.queue_class == QueueClass::kData) {
        const bool fits = port.bytes[queue_class] + packet.wire_bytes <= plan_.data_queue_bytes &&
                          shared_[SwitchOf(number)] + packet.wire_bytes <= plan_.shared_buffer_bytes;
        if (!fits && packet.payload_bytes == 0) return static_cast<void>(++drops);
        if (!fits) {
          ++trims;
          packet.wire_bytes -= packet.payload_bytes;
          packet.payload_bytes = 0;
          packet.trimmed_at_last_hop = IsLast(number);
          packet.queue_class = QueueClass::kTrimmed;
        }
      }
      queue_class = static_cast<size_t>(packet.queue_class);
      const uint32_t limits[] = {plan_.control_queue_bytes, plan_.header_queue_bytes, plan_.data_queue_bytes};
      if (port.bytes[queue_class] + packet.wire_bytes > limits[queue_class]) return static_cast<void>(++drops);
      if (packet.queue_class == QueueClass::kData) shared_[SwitchOf(number)] += packet.wire_bytes;
    }
    port.queues[queue_class].push_back(index);
    port.bytes[queue_class] += packet.wire_bytes;
  }

  void StartNext(int64_t time, uint32_t number) {
    WatchedPort& port = ports_[number];
    if (port.busy) return;
    const int64_t share = plan_.header_queue_share_percent;
    const int64_t full = Fabric::kHeaderCreditBytes * share;
    if (port.credit < 0) port.credit = full;
    size_t queue_class = 0;
    if (port.queues[0].empty()) {
      queue_class = 2;
      if (!port.queues[1].empty()) {
        const int64_t cost = packets_[port.queues[1].front()].wire_bytes * (100 - share);
        if (port.queues[2].empty()) {
          queue_class = 1;
        } else if (cost <= port.credit) {
          queue_class = 1;
          port.credit -= cost;
        }
      }
    }
    if (port.queues[queue_class].empty()) return;
    const size_t index = port.queues[queue_class].front();
    port.queues[queue_class].pop_front();
    port.bytes[queue_class] -= packets_[index].wire_bytes;
    if (queue_class == 2) {
      port.credit = std::min(full, port.credit + packets_[index].wire_bytes * share);
      if (!IsNic(number)) shared_[SwitchOf(number)] -= packets_[index].wire_bytes;
    }
    StartOne(time, number, index);
  }

  void StartOne(int64_t time, uint32_t number, size_t index) {
    ports_[number].busy = true;
    const BitsPerSecond rate = AtHost(number) ? plan_.host_link_rate : plan_.spine_link_rate;
    const int64_t end = time + SerializationTime(packets_[index].wire_bytes, rate).value;
    departures_.insert({end, number});
    const Picoseconds delay = AtHost(number) ? plan_.host_link_delay : plan_.spine_link_delay;
    arrivals_.insert({end + delay.value, order_++, After(number, packets_[index]), index});
  }

  FabricPlan plan_;
  uint64_t order_ = 0;
  std::vector<Packet> packets_;
  std::map<uint32_t, WatchedPort> ports_;
  std::map<uint32_t, uint32_t> shared_;
  std::set<std::pair<int64_t, uint32_t>> departures_;
  std::set<std::tuple<int64_t, uint64_t, uint32_t, size_t>> arrivals_;  // time, order, port or host, packet
};

}  // namespace forgive::sim

#endif  // FORGIVE_TESTS_SIMULATOR_WATCHED_FABRIC_H_
