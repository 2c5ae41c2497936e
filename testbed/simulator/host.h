// SPDX-License-Identifier: Apache-2.0
// The hosts: endpoints of the transport on their NICs, connected through the fabric.
#ifndef FORGIVE_TESTBED_SIMULATOR_HOST_H_
#define FORGIVE_TESTBED_SIMULATOR_HOST_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "testbed/simulator/event_queue.h"
#include "testbed/simulator/fabric.h"
#include "testbed/simulator/metrics.h"
#include "testbed/simulator/packet.h"
#include "transport/endpoint.h"

namespace forgive::sim {

using EndpointIndex = uint32_t;
using ChannelIndex = uint32_t;

// One endpoint of the transport as it stands on a host. A rank has a sending and a receiving one for each kind of
// traffic: reports never wait behind data (a NIC sends them on a class of their own), windows fit their paths, and
// the receiving one of its gradients owns the rank's step table.
struct EndpointSpec {
  uint32_t host = 0;
  uint8_t job = 0;
  TrafficKind kind = TrafficKind::kGradient;
  bool sends = false;
  uint32_t rank = 0;
  Config config;
  StepTable* steps = nullptr;        // outlives the hosts
  bool message_is_flow = false;      // each message has an ECMP hash of its own
  bool last_hop_trims_count = true;  // as congestion
};

// A message that was acknowledged at its sender, or is whole at its receiver.
struct Completion {
  bool received = false;
  ChannelIndex channel = 0;
  uint64_t cookie = 0;
  uint64_t bytes = 0;  // of a received one, as sent
};

// All hosts of a run. Whoever owns it turns the event queue and calls Flush after each event.
class Hosts {
 public:
  Hosts(uint64_t seed, EventQueue* queue, PacketArena* arena, Fabric* fabric, Metrics* metrics);

  ~Hosts();
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;

  EndpointIndex AddEndpoint(const EndpointSpec& spec);
  // One connection, from a sending endpoint to a receiving one. Its number counts from 0 in the order of the calls.
  ChannelIndex AddChannel(EndpointIndex sender, EndpointIndex receiver);
  // Begins the handshakes of all channels; when all are through, connected() says so.
  void Connect(SimTime now);
  bool connected() const { return connected_ == channels_.size(); }

  // Posts. The buffers are never read or written.
  void PostSend(SimTime now, ChannelIndex channel, uint64_t cookie, uint64_t bytes);
  // False: as many as fit are posted and unfinished.
  bool PostReceive(SimTime now, ChannelIndex channel, const ReceiveRequest& request);
  void GiveUp(SimTime now, ChannelIndex channel);

  void Deliver(SimTime now, PacketIndex packet);
  void OnNicReady(SimTime now, uint32_t host);
  void OnDeadline(SimTime now, EndpointIndex endpoint);
  bool PopCompletion(Completion* out);
  // Lets what was touched transmit, and sets its deadline. Once after each event.
  void Flush(SimTime now);

  const Counters& counters(EndpointIndex endpoint) const { return states_[endpoint].endpoint->counters(); }
  const EndpointSpec& spec(EndpointIndex endpoint) const { return states_[endpoint].spec; }
  size_t endpoints() const { return states_.size(); }
  ChannelIndex channels() const { return static_cast<ChannelIndex>(channels_.size()); }
  EndpointIndex sender_of(ChannelIndex channel) const { return channels_[channel].sender; }
  EndpointIndex receiver_of(ChannelIndex channel) const { return channels_[channel].receiver; }
  // Payload bytes put on NICs, and taken off them whole and cut.
  struct Bytes {
    uint64_t sent = 0;
    uint64_t arrived = 0;
    uint64_t arrived_trimmed = 0;
  };
  const Bytes& bytes() const { return bytes_; }
  bool Facts(SimTime now, ChannelIndex channel, Endpoint::ConnectionFacts* out) const;

 private:
  struct State {
    EndpointSpec spec;
    std::unique_ptr<Endpoint> endpoint;
    std::vector<ChannelIndex> channel_of_slot;
    SimTime deadline = kSimNever;  // of the event that counts; others are stale
    bool ready = false;            // may have something to send, and waits for the NIC
    bool dirty = false;
    bool last_hop_trim = false;  // the packet just handed in was cut at its last hop, and that does not count
  };
  struct Channel {
    EndpointIndex sender = 0;
    EndpointIndex receiver = 0;
    ConnectionHandle sending;
    ConnectionHandle receiving;
  };
  struct Host {
    std::vector<EndpointIndex> senders;
    uint32_t ready = 0;  // how many of them are
    uint32_t turn = 0;
  };

  void Touch(EndpointIndex endpoint);
  void DrainEvents(SimTime now, EndpointIndex endpoint);
  void OnTransportEvent(SimTime now, EndpointIndex endpoint, const Event& event);
  void SendReports(SimTime now, EndpointIndex endpoint);
  void PumpNic(SimTime now, uint32_t host);
  void Emit(SimTime now, State* state);
  uint16_t PathOf(const State& state) const;
  void ScheduleDeadline(SimTime now, EndpointIndex endpoint, SimTime latest);

  uint64_t seed_;
  EventQueue* queue_;
  PacketArena* arena_;
  Fabric* fabric_;
  Metrics* metrics_;
  std::vector<State> states_;
  std::vector<Channel> channels_;
  std::vector<Host> hosts_;
  std::vector<EndpointIndex> dirty_;
  std::vector<Completion> completions_;
  size_t next_completion_ = 0;
  size_t connected_ = 0;
  Bytes bytes_;
  Transmit transmit_;
  std::vector<uint8_t> handshake_;  // a Connect with its padding
  const uint8_t* nowhere_;          // address space without memory: the payload of every send
};

}  // namespace forgive::sim

#endif  // FORGIVE_TESTBED_SIMULATOR_HOST_H_
