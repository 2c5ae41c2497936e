// SPDX-License-Identifier: Apache-2.0
// The neighbours of a port that the driver owns: ARP and neighbour discovery, one subnet and one gateway.
#ifndef FORGIVE_DATAPLANE_DPDK_OWN_NEIGHBOURS_H_
#define FORGIVE_DATAPLANE_DPDK_OWN_NEIGHBOURS_H_

#include <array>
#include <map>

#include "dataplane/dpdk/resolver.h"

namespace forgive {

class OwnNeighbours final : public Resolver {
 public:
  // `port` has an address; `own` is the same address parsed.
  OwnNeighbours(const MacAddress& mac, const Address& own, const DpdkPortOptions& port);

  Hop Resolve(const Address& destination, TimePoint now) override;
  bool Poll(TimePoint) override;
  // Answers questions for the own address, and learns from answers and from questions that were put to us.
  size_t OnFrame(const Frame& frame, std::span<uint8_t> answer) override;
  size_t NextQuestion(TimePoint now, std::span<uint8_t> out) override;

 private:
  using Host = std::array<uint8_t, 16>;  // an IPv4 address fills the first four
  struct Neighbour {
    MacAddress mac{};
    bool known = false;
    bool fixed = false;  // by option
    TimePoint ask_at;
    uint32_t asked = 0;  // times since it was last known
  };

  static Host HostOf(const Address& address);
  bool InSubnet(const Host& host) const;
  void Learn(const Host& host, const MacAddress& mac);
  size_t OnArp(const Frame& frame, std::span<uint8_t> answer);
  size_t OnNeighbourMessage(const Frame& frame, std::span<uint8_t> answer);
  size_t WriteArp(uint16_t operation, const MacAddress& to_mac, const Host& to, std::span<uint8_t> out) const;
  // A solicitation for `target`, or an advertisement of the own address to `to`.
  size_t WriteNeighbourMessage(bool solicitation, const MacAddress& to_mac, const Host& to, const Host& target,
                               std::span<uint8_t> out) const;

  const MacAddress mac_;
  const Host own_;
  const bool ipv6_;
  const uint32_t prefix_bits_;
  bool has_gateway_ = false;
  Host gateway_{};
  bool changed_ = false;
  std::map<Host, Neighbour> neighbours_;
};

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_DPDK_OWN_NEIGHBOURS_H_
