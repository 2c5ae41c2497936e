// SPDX-License-Identifier: Apache-2.0
// Makes and closes the connections of a rank as NCCL's service thread does, with their registered buffers.
#ifndef FORGIVE_TESTBED_PERF_CONNECTIONS_H_
#define FORGIVE_TESTBED_PERF_CONNECTIONS_H_

#include <chrono>
#include <memory>
#include <vector>

#include "testbed/perf/lanes.h"
#include "testbed/perf/net.h"
#include "testbed/perf/rendezvous.h"
#include "testbed/perf/worker.h"

namespace forgive::perf {

// Which connections there are between the ranks.
enum class Topology : std::uint8_t {
  kRing,         // to the next rank; three buffers
  kAll,          // every ordered pair of ranks; three buffers
  kPointToPoint  // to the next rank; one pool that all comms of the rank share
};

class Connections {
 public:
  // Connects; all ranks must call it alike. Throws RunError or PeerError.
  Connections(Topology topology, Net& net, Worker& service, Rendezvous& rendezvous, std::chrono::seconds timeout);
  // Deregisters and closes, requests in flight or not. Errors are ignored: the run is over.
  ~Connections();
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  // By peer; null where there is none.
  SendLane* SendTo(int peer) const { return sends_[static_cast<std::size_t>(peer)].get(); }
  ReceiveLane* ReceiveFrom(int peer) const { return receives_[static_cast<std::size_t>(peer)].get(); }

 private:
  bool Sends(int peer) const;
  bool Receives(int peer) const;
  void Connect();
  bool ConnectTurn(std::vector<Handle>& handles);
  void RegisterAll(Lane& lane, bool sends);
  void RegisterOne(Lane& lane, BufferKind kind, std::byte* data, std::size_t bytes);
  std::byte* Allocate(std::size_t bytes);
  void CloseAll();

  Topology topology_;
  Net& net_;
  Worker& service_;
  Rendezvous& rendezvous_;
  std::chrono::seconds timeout_;
  std::vector<void*> listens_;     // by peer
  std::vector<void*> send_comms_;  // by peer, before they are lanes
  std::vector<void*> receive_comms_;
  std::vector<std::unique_ptr<SendLane>> sends_;
  std::vector<std::unique_ptr<ReceiveLane>> receives_;
  struct Release {
    void operator()(std::byte* data) const;
  };
  std::vector<std::unique_ptr<std::byte, Release>> memory_;
  std::byte* pool_ = nullptr;
};

}  // namespace forgive::perf

#endif  // FORGIVE_TESTBED_PERF_CONNECTIONS_H_
