// SPDX-License-Identifier: Apache-2.0
// What may be posted to an endpoint, and how it answers.
#ifndef FORGIVE_TRANSPORT_REQUESTS_H_
#define FORGIVE_TRANSPORT_REQUESTS_H_

#include <array>
#include <cstdint>

#include "transport/config.h"
#include "transport/datagram.h"
#include "transport/event.h"
#include "transport/siphash.h"

namespace forgive {

enum class PostResult : uint8_t { kAccepted, kTryAgain, kOverLimit, kUnknownConnection, kFailed, kNoMemory };

struct SendRequest {
  uint64_t cookie = 0;
  const uint8_t* buffer = nullptr;  // the user's own, unchanged until kSent
  uint32_t length = 0;              // bytes, below 4 GiB
};

struct ReceiveRequest {
  uint64_t cookie = 0;
  uint8_t* buffer = nullptr;  // nullptr: no bytes are placed (capacity 0, or a simulator that wants none)
  uint64_t capacity = 0;      // bytes; the sent message may be shorter
  // The facts, decided at the post and fixed (protocol.md, Words). Without a step both are false.
  bool has_step = false;
  uint64_t step = 0;
  bool exempt_eligible = false;
  bool forgivable = false;
  uint32_t contributions = 1;  // ranks whose contribution is lost with each forgiven byte
};

// What a listener hands to its peer out of band (in NCCL's handle).
struct ListenTicket {
  uint64_t listen_id = 0;
  SipKey secret;
};

struct ListenRequest {
  uint64_t cookie = 0;
};

struct ConnectRequest {
  uint64_t cookie = 0;
  Address peer;  // on the first rail
  // With Config::rails above 1: where the peer is on those behind the first, and where it finds this side on each.
  std::array<Address, kMaxRails - 1> more_peers{};
  std::array<Address, kMaxRails> own{};
  ListenTicket ticket;
  uint32_t max_payload_bytes = kMaxPayloadBytes;  // what the local MTU allows
  uint32_t traffic_class = 0;    // what the handshake tells the listener
  uint8_t dscp = kDscpOfDriver;  // of the connection's data packets
};

struct CloseRequest {
  ConnectionHandle connection;
};

}  // namespace forgive

#endif  // FORGIVE_TRANSPORT_REQUESTS_H_
