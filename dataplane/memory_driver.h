// SPDX-License-Identifier: Apache-2.0
// A network in memory for tests: a hub with ports, bounded queues, no loss and no delay of its own.
#ifndef FORGIVE_DATAPLANE_MEMORY_DRIVER_H_
#define FORGIVE_DATAPLANE_MEMORY_DRIVER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "dataplane/driver.h"

namespace forgive {

class MemoryPort;

// All ports of one memory network. A packet to a port that is not open vanishes, as on a real network; a full queue
// is "try again" for the sender. Thread-safe; outlives its ports by being shared.
class MemoryHub : public std::enable_shared_from_this<MemoryHub> {
 public:
  static std::shared_ptr<MemoryHub> Make(uint32_t queue_packets = 1024);

  // Opens a port; 0: the next free number. nullptr: it is open already.
  std::unique_ptr<Driver> Open(uint16_t port = 0);
  static Address PortAddress(uint16_t port);

  // Every n-th data packet arrives with Congestion Experienced; 0: none.
  void set_mark_every(uint32_t n);

  // Copies one packet into a port's queue. False: full. True also if nobody has that port.
  bool Deliver(const Address& source, const Transmit& packet);

 private:
  friend class MemoryPort;
  explicit MemoryHub(uint32_t queue_packets) : queue_packets_(queue_packets) {}
  void Close(uint16_t port);

  const uint32_t queue_packets_;
  std::mutex mutex_;
  std::map<uint16_t, MemoryPort*> ports_;
  uint16_t next_port_ = 1;
  uint32_t mark_every_ = 0;
  uint64_t data_packets_ = 0;
};

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_MEMORY_DRIVER_H_
