// SPDX-License-Identifier: Apache-2.0
// What a fabric counts, as a whole and a port.
#ifndef FORGIVE_TESTBED_SIMULATOR_FABRIC_COUNTERS_H_
#define FORGIVE_TESTBED_SIMULATOR_FABRIC_COUNTERS_H_

#include <array>
#include <cstdint>

#include "testbed/simulator/packet.h"

namespace forgive::sim {

struct PacketsAndBytes {
  uint64_t packets = 0;
  uint64_t bytes = 0;  // on the wire, overhead included

  void Add(uint64_t count) {
    ++packets;
    bytes += count;
  }
};

// Where a packet was cut: in a leaf's queue to a spine, in a spine's to a leaf, in a leaf's to the destination.
enum class HopKind : uint8_t { kUp, kDown, kLast };
inline constexpr int kHopKinds = 3;

enum class DropCause : uint8_t {
  kDataQueue,     // full (or the shared buffer), and the packet could not be trimmed
  kHeaderQueue,   // full
  kControlQueue,  // full
  kLink,          // the link had failed
  kNoRoute,       // every way was known to have failed
};
inline constexpr int kDropCauses = 5;

struct FabricCounters {
  template <typename T>
  using ByClass = std::array<T, kQueueClasses>;

  ByClass<PacketsAndBytes> in;   // from hosts
  ByClass<PacketsAndBytes> out;  // to hosts: trimmed ones by what is left of them
  // Cut packets, [hop kind][job], and the bytes that were cut off them.
  std::array<std::array<uint64_t, kMaxJobs>, kHopKinds> trims{};
  std::array<uint64_t, kMaxJobs> trimmed_off_bytes{};
  std::array<ByClass<PacketsAndBytes>, kDropCauses> drops;  // [cause][class]
  std::array<uint64_t, kMaxJobs> marks{};
  ByClass<uint32_t> peak_queue_bytes{};  // of any switch port
  uint32_t peak_shared_bytes = 0;        // of any switch

  uint64_t trims_total() const {
    uint64_t total = 0;
    for (const auto& hop : trims) {
      for (uint64_t count : hop) total += count;
    }
    return total;
  }
  uint64_t trims_last_hop() const {
    uint64_t total = 0;
    for (uint64_t count : trims[static_cast<int>(HopKind::kLast)]) total += count;
    return total;
  }
  uint64_t drops_total() const {
    uint64_t total = 0;
    for (const auto& cause : drops) {
      for (const PacketsAndBytes& queue_class : cause) total += queue_class.packets;
    }
    return total;
  }
  uint64_t marks_total() const {
    uint64_t total = 0;
    for (uint64_t count : marks) total += count;
    return total;
  }
};

// What one port has put on its link.
struct PortCounters {
  std::array<uint64_t, kQueueClasses> bytes{};
  std::array<uint64_t, kQueueClasses> packets{};
};

}  // namespace forgive::sim

#endif  // FORGIVE_TESTBED_SIMULATOR_FABRIC_COUNTERS_H_
