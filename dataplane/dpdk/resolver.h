// SPDX-License-Identifier: Apache-2.0
// Who knows the Ethernet address of the next hop to a destination: the kernel, or the driver where it owns the port.
#ifndef FORGIVE_DATAPLANE_DPDK_RESOLVER_H_
#define FORGIVE_DATAPLANE_DPDK_RESOLVER_H_

#include <cstdint>
#include <span>

#include "dataplane/dpdk/frame.h"
#include "dataplane/dpdk_options.h"
#include "transport/datagram.h"
#include "transport/units.h"

namespace forgive {

enum class HopState : uint8_t {
  kKnown,
  kAsked,    // not known yet: ask Resolve again a little later
  kNoRoute,  // nothing leads there from this port
};

struct Hop {
  HopState state = HopState::kNoRoute;
  MacAddress mac{};
};

// Room for the frames that a resolver writes.
inline constexpr size_t kResolverFrameBytes = 128;

class Resolver {
 public:
  virtual ~Resolver() = default;

  // Where packets to `destination` go; asks the network where that is not known. Not for every packet: the kernel's
  // answer costs two system calls.
  virtual Hop Resolve(const Address& destination, TimePoint now) = 0;
  // Reads what has happened since the last call. True: answers of Resolve may have changed.
  virtual bool Poll(TimePoint now) = 0;
  // A frame that is neither other nor UDP. Returns the length of the answer in `answer`; 0: none.
  virtual size_t OnFrame(const Frame& frame, std::span<uint8_t> answer) = 0;
  // The next question to send; 0: none is due.
  virtual size_t NextQuestion(TimePoint now, std::span<uint8_t> out) = 0;
};

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_DPDK_RESOLVER_H_
