// SPDX-License-Identifier: Apache-2.0
// The trimming switch of the user-space relay: queues, marks, cuts and delays, with time as an argument.
#ifndef FORGIVE_TESTBED_LAB_RELAY_RELAY_SWITCH_H_
#define FORGIVE_TESTBED_LAB_RELAY_RELAY_SWITCH_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

namespace forgive::lab {

// The same words as the lab's [lab] table.
struct RelayParameters {
  int64_t rate_mbps = 400;         // of each receiving link
  double uplink_share = 1.05;      // a sender's own link, as a share of it
  int64_t rtt_us = 5000;           // a quarter of it on either side of the port, in each direction
  int64_t ecn_min_bytes = 57500;   // marking begins, with a probability that rises
  int64_t ecn_max_bytes = 227500;  // to ecn_probability here, and is certain above
  double ecn_probability = 0.2;
  int64_t trim_threshold_bytes = 300000;
  int64_t queue_bytes = 300000;  // what may not be cut is dropped beyond it
  int64_t header_queue_bytes = 125000;
  double header_share = 0.25;  // most of the link that cut and control packets get
  uint64_t seed = 1;           // of the marking
};

// The same words as the lab's status.
struct RelayCounters {
  uint64_t whole = 0;           // data packets delivered whole
  uint64_t trimmed = 0;         // data packets cut
  uint64_t marked = 0;          // data packets marked
  uint64_t control = 0;         // reports, handshakes, probes, and data packets that are no longer than a cut one
  uint64_t other = 0;           // not of this protocol
  uint64_t dropped = 0;         // beyond queue_bytes
  uint64_t header_dropped = 0;  // beyond header_queue_bytes
  uint64_t foreign = 0;         // without the relay's prefix
};

// A socket address from its first byte, unused bytes zero.
using RelayAddress = std::array<uint8_t, 28>;

struct RelayTrim {
  uint64_t connection_id = 0;
  uint32_t message = 0;
  uint32_t offset = 0;
  uint32_t length = 0;
};

// Every packet walks: the sender's uplink (a rate, first in first out), a delay, the receiver's port (two classes
// under one rate, which marks, cuts and drops), a delay; each at the moment that sizes and rates give, however late
// the caller looks. Not thread-safe.
class RelaySwitch {
 public:
  explicit RelaySwitch(const RelayParameters& parameters);

  // A packet with its prefix (which names the destination) came from `source`.
  void Arrive(int64_t now_ns, const RelayAddress& source, const uint8_t* bytes, size_t length);
  // Moves everything that is due by now.
  void Advance(int64_t now_ns);
  // The next packet to hand to a host now: `bytes` has the prefix, which names the source. False: none is due.
  bool NextDelivery(RelayAddress* to, std::vector<uint8_t>* bytes);
  // When Advance has work again; INT64_MAX: never.
  int64_t next_deadline_ns() const;
  // The next record of a cut; false: no more.
  bool NextTrim(RelayTrim* out);

  const RelayCounters& counters() const { return counters_; }

 private:
  struct Packet {
    std::vector<uint8_t> bytes;  // with the prefix, already that of the way back
    RelayAddress to{};
    int64_t at_ns = 0;  // when it reaches the next place
  };
  struct Uplink {
    int64_t busy_until_ns = 0;
    std::deque<Packet> line;  // at_ns: at the port
  };
  struct Port {
    std::deque<Packet> data;
    std::deque<Packet> headers;
    int64_t data_bytes = 0;  // as charged on the wire
    int64_t header_bytes = 0;
    int64_t busy_until_ns = 0;
    int64_t headers_allowed_ns = 0;  // the header class waits until then
    std::deque<Packet> line;         // at_ns: at the host
  };
  enum class Kind : uint8_t { kData, kControl, kOther };

  static int64_t WireBytes(const Packet& packet);
  static int64_t Duration(int64_t bytes, double bits_per_second);
  static Kind KindOf(const Packet& packet);
  void ReachPort(Packet packet);
  void Enqueue(Port& port, Packet packet);
  bool Marks(int64_t backlog_bytes);
  void Cut(Packet* packet);
  // When the port can begin its next packet, and from which class.
  int64_t NextStart(const Port& port, bool* from_headers) const;
  void SendFrom(Port& port, bool from_headers, int64_t start_ns);
  std::vector<uint8_t> Storage(const uint8_t* bytes, size_t length);

  RelayParameters parameters_;
  double link_bits_per_second_;
  RelayCounters counters_;
  std::map<RelayAddress, Uplink> uplinks_;
  std::map<RelayAddress, Port> ports_;
  std::deque<Packet> due_;
  std::deque<RelayTrim> trims_;
  std::vector<std::vector<uint8_t>> spare_;  // buffers to use again
  uint64_t random_;
};

}  // namespace forgive::lab

#endif  // FORGIVE_TESTBED_LAB_RELAY_RELAY_SWITCH_H_
