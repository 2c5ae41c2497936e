// SPDX-License-Identifier: Apache-2.0
// The arena's memory: reserved once, touched as packets come into being, in large pages where the kernel has them.
#include "testbed/simulator/packet.h"

#include <sys/mman.h>

#include <cstring>

namespace forgive::sim {
namespace {

void* Reserve(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  FORGIVE_CHECK(memory != MAP_FAILED);
  madvise(memory, bytes, MADV_HUGEPAGE);  // a wish: without large pages it is only slower
  return memory;
}

}  // namespace

PacketArena::PacketArena(uint32_t capacity)
    : capacity_(capacity),
      packets_(static_cast<Packet*>(Reserve(capacity * sizeof(Packet)))),
      headers_(static_cast<Inline*>(Reserve(capacity * sizeof(Inline)))) {}

PacketArena::~PacketArena() {
  munmap(packets_, capacity_ * sizeof(Packet));
  munmap(headers_, capacity_ * sizeof(Inline));
}

void PacketArena::SetHeader(PacketIndex index, const uint8_t* bytes, size_t length) {
  FORGIVE_CHECK(length <= kMaxHeaderBytes);
  Packet& packet = packets_[index];
  packet.header_bytes = static_cast<uint16_t>(length);
  if (length <= sizeof(Inline)) {
    if (packet.overflow != 0) ReleaseOverflow(packet.overflow);
    packet.overflow = 0;
    std::memcpy(headers_[index].bytes, bytes, length);
    return;
  }
  if (packet.overflow == 0) {
    if (free_overflow_.empty()) {
      overflow_.emplace_back();
      free_overflow_.push_back(static_cast<uint32_t>(overflow_.size()));
    }
    packet.overflow = free_overflow_.back();
    free_overflow_.pop_back();
  }
  std::memcpy(overflow_[packet.overflow - 1].bytes, bytes, length);
}

}  // namespace forgive::sim
