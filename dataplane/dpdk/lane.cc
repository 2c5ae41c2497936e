// SPDX-License-Identifier: Apache-2.0
// One UDP port on a DPDK port: what arrived for it, and the headers of the places it sends to.
#include "dataplane/dpdk/lane.h"

#include <cstring>

#include "dataplane/socket_address.h"
#include "dataplane/udp_filter.h"

namespace forgive {
namespace {

constexpr uint8_t kEcnMask = 3;
constexpr uint8_t kCongestionExperienced = 3;

size_t HashOf(const Address& address) {
  uint64_t words[3];
  std::memcpy(words, address.bytes.data(), sizeof(words));
  uint64_t hash = (words[0] ^ words[1] * 0x9e3779b97f4a7c15u ^ words[2] * 0xc2b2ae3d27d4eb4fu) * 0xff51afd7ed558ccdu;
  return static_cast<size_t>(hash ^ hash >> 32);
}

}  // namespace

Destination& Destinations::Find(const Address& address) {
  if (last_ != nullptr && last_->address == address) return *last_;
  Destination* const set = &entries_[HashOf(address) % kSets * kWays];
  Destination* oldest = set;
  for (size_t way = 0; way < kWays; ++way) {
    Destination& entry = set[way];
    if (entry.used != 0 && entry.address == address) {
      entry.used = ++clock_;
      last_ = &entry;
      return entry;
    }
    if (entry.used < oldest->used) oldest = &entry;
  }
  *oldest = Destination{};
  oldest->address = address;
  oldest->used = ++clock_;
  last_ = oldest;
  return *oldest;
}

Lane::Lane(const PlaceOptions& lane_options) : options(lane_options), match(lane_options.local) {
  SetAddressScope(0, &match);
  handed_out.reserve(kQueue);
}

bool Lane::Accept(const Frame& frame, bool cut_here, Datagram* out) {
  if (cut_here) {
    ++counters.truncated;
    return false;
  }
  const bool cut = frame.stale || options.require_trimmed_dscp;
  if (cut && IsCut(frame.body, frame.body_length)) {
    if (options.require_trimmed_dscp && frame.traffic_class >> 2 != options.dscp_trimmed) {
      ++counters.truncated;  // shorter than it was, and no switch says that it did that
      return false;
    }
    if (frame.stale) ++counters.raw_packets;
  }
  out->source = frame.source;
  // A link-local source is on our own link.
  if (const uint32_t scope = AddressScope(options.local); scope != 0) SetAddressScope(scope, &out->source);
  out->bytes = frame.body;
  out->length = frame.body_length;
  out->ce = (frame.traffic_class & kEcnMask) == kCongestionExperienced;
  return true;
}

}  // namespace forgive
