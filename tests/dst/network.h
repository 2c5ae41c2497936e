// SPDX-License-Identifier: Apache-2.0
// The links of a schedule: what they lose, cut, spoil, repeat and delay, and what an attacker adds.
#ifndef FORGIVE_TESTS_DST_NETWORK_H_
#define FORGIVE_TESTS_DST_NETWORK_H_

#include <array>
#include <span>
#include <utility>
#include <vector>

#include "oracle.h"

namespace forgive::dst {

class Network {
 public:
  Network(testing::World* world, Oracle* oracle, Journal* journal, Tally* tally)
      : world_(world), oracle_(oracle), journal_(journal), tally_(tally) {}

  void Begin(const Plan* plan);
  // Nothing is lost, cut or spoiled from now on; what is on its way arrives.
  void StopFaults() { faults_ = false; }
  // A packet leaves a host.
  void Carry(int from, const Transmit& transmit);
  // A datagram arrives: to be given to its endpoint together with others that must change nothing.
  void Deliver(const testing::Flight& flight);

 private:
  // A packet before its fate.
  struct Packet {
    int from = 0;
    int to = 0;
    bool data = false;
    bool again = false;  // a retransmission
    uint16_t path = 0;
    uint32_t rail = 0;
    uint32_t payload = 0;
    const uint8_t* bytes = nullptr;
    size_t length = 0;
  };
  // Of a stream that is cut anew: the numbers that its packets have on the wire.
  struct Renumbered {
    std::vector<uint64_t> originals;
  };

  void Resegment(StreamState* stream, const Transmit& transmit, Packet packet);
  void Translate(StreamState* stream, Packet* packet);
  void Send(const Packet& packet);
  void Copy(const Packet& packet);
  bool Trim(const Packet& packet, testing::Flight* flight);
  void Forge(const Packet& packet);
  void Replay(const Packet& packet);
  void MakeBurst(const testing::Flight& flight, const Datagram& datagram, std::span<Datagram> burst);
  TimePoint Arrival(const Packet& packet);
  size_t LargestDatagram() const;
  const Spell* Active(Spell::Kind kind, int host) const;
  bool Active(const Spell& spell, int host) const;
  Renumbered& RenumberedOf(const StreamState* stream);
  bool Chance(Fraction p) { return faults_ && world_->draw()(p); }
  uint64_t Below(uint64_t bound) { return world_->draw().Below(bound); }

  testing::World* const world_;
  Oracle* const oracle_;
  Journal* const journal_;
  Tally* const tally_;
  const Plan* plan_ = nullptr;
  bool faults_ = true;
  std::vector<std::pair<const StreamState*, Renumbered>> renumbered_;
  std::array<uint8_t, kDataHeaderBytes + kMaxPayloadBytes> packet_;
  std::array<uint8_t, kDataHeaderBytes + kMaxPayloadBytes> piece_;
  std::array<std::vector<uint8_t>, 4> junk_;
};

}  // namespace forgive::dst

#endif  // FORGIVE_TESTS_DST_NETWORK_H_
