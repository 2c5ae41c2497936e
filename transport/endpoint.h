// SPDX-License-Identifier: Apache-2.0
// The whole surface of the transport: requests and datagrams in, packets and events out, and one deadline.
#ifndef FORGIVE_TRANSPORT_ENDPOINT_H_
#define FORGIVE_TRANSPORT_ENDPOINT_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "transport/config.h"
#include "transport/counters.h"
#include "transport/datagram.h"
#include "transport/event.h"
#include "transport/requests.h"
#include "transport/step_table.h"
#include "transport/units.h"
#include "transport/wire.h"

namespace forgive {

// A sans-IO endpoint: all connections of one NIC of one rank. Not thread-safe: one owner.
class Endpoint {
 public:
  // `entropy` makes connection ids, nonces and listen secrets: 32 bytes of getrandom in production, a seed in
  // tests. `steps` is the rank's table and outlives the endpoint.
  Endpoint(const Config& config, StepTable* steps, const std::array<uint8_t, 32>& entropy, const Identity& identity);
  ~Endpoint();

  PostResult Post(const ListenRequest& request, ListenTicket* ticket);
  // The same with a ticket that its owner drew (DrawnTicket), in a place below Config::max_listeners. kOverLimit: the
  // place is taken, or there is none of that number. Not to be mixed with the function above.
  PostResult Post(const ListenRequest& request, const ListenTicket& drawn);
  // The ticket of a listener in that place, of 192 random bits; from any thread.
  static ListenTicket DrawnTicket(uint16_t place, uint64_t random, const SipKey& secret);
  static uint16_t PlaceOf(const ListenTicket& ticket);
  void CloseListener(uint64_t listen_id);
  // A number below Config::max_connections that no two connections have at once, a lingering one included.
  static uint16_t PlaceOf(ConnectionHandle connection);
  // kConnected or kFailed follows, with the request's cookie. kOverLimit, kNoMemory and kFailed (no room for a
  // payload) leave nothing behind.
  PostResult Post(TimePoint now, const ConnectRequest& request, ConnectionHandle* connection);
  // kFailed may follow. With a receive a message that came before it arrives: its events follow at once.
  PostResult Post(TimePoint now, ConnectionHandle connection, const SendRequest& request);
  PostResult Post(TimePoint now, ConnectionHandle connection, const ReceiveRequest& request);
  // Afterwards no memory of the connection is read or written, and its requests get no events. The peer is told.
  void Post(TimePoint now, const CloseRequest& request);

  // Experiments::early_close: gives up what is missing of the connection's forgivable receives (Receiver::GiveUp).
  void GiveUp(ConnectionHandle connection);

  void OnDatagram(TimePoint now, const Datagram& datagram);
  // A burst of them, in order: the same as one after the other, but their tags are computed together.
  void OnDatagrams(TimePoint now, std::span<const Datagram> datagrams);
  void OnDeadline(TimePoint now);
  // The next packet to leave. False: nothing may leave now.
  bool NextTransmit(TimePoint now, Transmit* out);
  // The next packets, from the front of `out`, and how many: fewer than it holds when no more may leave now. A burst
  // costs less than as many calls of NextTransmit.
  size_t NextTransmits(TimePoint now, std::span<Transmit> out);
  bool NextEvent(Event* out);
  // When OnDeadline or NextTransmit has work again; a moment in the past if it has now.
  TimePoint next_deadline() const;

  const Counters& counters() const;
  // Facts of one connection for statistics and traces; false if it is unknown.
  struct ConnectionFacts {
    bool sends = false;          // else it receives
    uint64_t connection_id = 0;  // as its data carry it
    BitsPerSecond rate;          // of the sender; 0: not limited
    Nanoseconds smoothed_rtt;
    uint64_t bytes_in_flight = 0;
    bool exempt = false;
    uint32_t max_payload = 0;
  };
  bool Facts(TimePoint now, ConnectionHandle connection, ConnectionFacts* out) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace forgive

#endif  // FORGIVE_TRANSPORT_ENDPOINT_H_
