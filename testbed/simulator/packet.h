// SPDX-License-Identifier: Apache-2.0
// Packets of the simulation and the arena they live in: named by index, taken and given back without allocation.
#ifndef FORGIVE_TESTBED_SIMULATOR_PACKET_H_
#define FORGIVE_TESTBED_SIMULATOR_PACKET_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/check.h"

namespace forgive::sim {

using PacketIndex = uint32_t;
inline constexpr PacketIndex kNoPacket = 0;  // the arena never hands out 0

// The queue that a packet waits in, on every port of its way.
enum class QueueClass : uint8_t { kControl, kTrimmed, kData };
inline constexpr int kQueueClasses = 3;

// Jobs whose packets are counted apart.
inline constexpr int kMaxJobs = 4;

// What the fabric looks at; the header's bytes lie apart, since no switch reads them. Payload has a length and no
// bytes. Two packets share a cache line and none crosses one.
struct alignas(32) Packet {
  PacketIndex next = kNoPacket;  // the arena's and the fabric's own link
  uint32_t flow = 0;             // hashed by ECMP; one a connection and direction
  uint32_t wire_bytes = 0;       // what it occupies on a link now; the fabric computes it
  uint32_t overflow = 0;         // the arena's: the block of a long header, or 0
  uint16_t source = 0;           // hosts
  uint16_t destination = 0;
  uint16_t path = 0;           // entropy: hashed besides the flow when it is not 0
  uint16_t header_bytes = 0;   // written by the transport
  uint16_t payload_bytes = 0;  // 0 after a trim
  QueueClass queue_class = QueueClass::kData;
  uint8_t job = 0;                   // below kMaxJobs
  bool ce = false;                   // congestion experienced: a queue marked it
  bool trimmed_at_last_hop = false;  // cut in the queue towards its own destination
};
static_assert(sizeof(Packet) == 32);

// Invariant: an index between Take and Release names one packet, which nothing moves.
class PacketArena {
 public:
  static constexpr size_t kMaxHeaderBytes = 512;
  static constexpr uint32_t kDefaultCapacity = 1u << 22;

  // Address space for `capacity` packets; memory is used as they are. More packets at once is a failed check.
  explicit PacketArena(uint32_t capacity = kDefaultCapacity);
  ~PacketArena();
  PacketArena(const PacketArena&) = delete;
  PacketArena& operator=(const PacketArena&) = delete;

  // A packet as Packet{} has it, without a header.
  PacketIndex Take() {
    PacketIndex index = free_;
    if (index == kNoPacket) {
      FORGIVE_CHECK(fresh_ < capacity_);
      index = fresh_++;
    } else {
      free_ = packets_[index].next;
    }
    packets_[index] = Packet{};
    ++in_use_;
    return index;
  }

  void Release(PacketIndex index) {
    Packet& packet = packets_[index];
    if (packet.overflow != 0) ReleaseOverflow(packet.overflow);
    packet.next = free_;
    free_ = index;
    --in_use_;
  }

  Packet& operator[](PacketIndex index) { return packets_[index]; }
  const Packet& operator[](PacketIndex index) const { return packets_[index]; }

  // Keeps a copy of the header and its length. At most kMaxHeaderBytes.
  void SetHeader(PacketIndex index, const uint8_t* bytes, size_t length);
  // The header's bytes, packet.header_bytes of them.
  const uint8_t* header(PacketIndex index) const {
    const uint32_t overflow = packets_[index].overflow;
    return overflow == 0 ? headers_[index].bytes : overflow_[overflow - 1].bytes;
  }

  void Prefetch(PacketIndex index) const { __builtin_prefetch(&packets_[index], 1); }
  void PrefetchHeader(PacketIndex index) const { __builtin_prefetch(&headers_[index], 1); }

  // Packets taken and not given back, and the most that ever were at once (headers' memory follows the latter).
  uint32_t in_use() const { return in_use_; }
  uint32_t peak() const { return fresh_ - 1; }

 private:
  // Data headers and reports with few ranges; a longer report takes an overflow block.
  struct alignas(64) Inline {
    uint8_t bytes[128];
  };
  struct Overflow {
    uint8_t bytes[kMaxHeaderBytes];
  };

  void ReleaseOverflow(uint32_t block) { free_overflow_.push_back(block); }

  uint32_t capacity_;
  uint32_t fresh_ = 1;  // the lowest index never taken
  uint32_t in_use_ = 0;
  PacketIndex free_ = kNoPacket;
  Packet* packets_;
  Inline* headers_;
  std::vector<Overflow> overflow_;  // numbered from 1
  std::vector<uint32_t> free_overflow_;
};

}  // namespace forgive::sim

#endif  // FORGIVE_TESTBED_SIMULATOR_PACKET_H_
