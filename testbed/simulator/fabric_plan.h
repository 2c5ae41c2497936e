// SPDX-License-Identifier: Apache-2.0
// What a fabric is made of: sizes, rates, delays, queues, marking, trimming, balancing and failures.
#ifndef FORGIVE_TESTBED_SIMULATOR_FABRIC_PLAN_H_
#define FORGIVE_TESTBED_SIMULATOR_FABRIC_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "testbed/simulator/clock.h"
#include "transport/units.h"

namespace forgive::sim {

enum class LoadBalancing : uint8_t {
  kEcmp,   // a hash of flow and path: one way a flow, as long as its packets' path stays
  kSpray,  // a draw of the leaf's for each packet whose path is 0; one that has a path is hashed as above
};

// The link between a leaf and a spine carries nothing, either way, in [from, until).
struct LinkFailure {
  uint32_t leaf = 0;
  uint32_t spine = 0;
  SimTime from{};
  SimTime until = kSimNever;
};

// The defaults are the seed's experiment, 4:1. Bytes in queues are bytes on the wire, overhead included.
struct FabricPlan {
  uint32_t leaves = 8;
  uint32_t hosts_per_leaf = 8;
  uint32_t spines = 2;
  BitsPerSecond host_link_rate{400'000'000'000};
  BitsPerSecond spine_link_rate{400'000'000'000};
  Picoseconds host_link_delay{5'000'000};
  Picoseconds spine_link_delay{12'500'000};

  uint32_t data_queue_bytes = 4u << 20;       // a port
  uint32_t header_queue_bytes = 1u << 20;     // a port, for trimmed headers
  uint32_t control_queue_bytes = 1u << 20;    // a port
  uint32_t header_queue_share_percent = 25;   // of the link, while data waits
  uint32_t shared_buffer_bytes = 32'000'000;  // a switch: what the data queues of its ports may hold together

  // Data is marked as it is queued, by the bytes it finds in the queue: never up to min, with a probability that
  // grows linearly to `probability` at max, and always from there.
  uint32_t ecn_min_bytes = 800'000;
  uint32_t ecn_max_bytes = 3'200'000;
  uint32_t ecn_probability_ppm = 200'000;

  bool trims = true;           // false: what does not fit is dropped
  uint32_t trimmed_bytes = 0;  // a trimmed packet on the wire, overhead included; 0: its header and the overhead
  uint32_t wire_overhead_bytes = 0;  // added to every packet's header and payload: Ethernet, IP, UDP, preamble, gap

  // A host may give its NIC packets of data while it holds fewer bytes than this. 1: one packet waits at most. More
  // saves events and the host's turns; a packet is then chosen so much earlier than it leaves.
  uint32_t nic_queue_bytes = 1;
  // Each packet of data needs up to this much longer from its host to the leaf (a draw; packets do not overtake).
  // Without it flows of equal rate stay in step, and of two arriving in one picosecond the same always wins.
  Picoseconds nic_jitter{0};

  LoadBalancing load_balancing = LoadBalancing::kEcmp;
  Picoseconds failure_detection_delay{100'000'000};  // until routes avoid a failed link, or use it again
  std::vector<LinkFailure> link_failures;

  uint32_t hosts() const { return leaves * hosts_per_leaf; }

  // "" or, in one line, what is wrong and what is allowed.
  std::string Validate() const;
};

}  // namespace forgive::sim

#endif  // FORGIVE_TESTBED_SIMULATOR_FABRIC_PLAN_H_
