// SPDX-License-Identifier: Apache-2.0
// The operations of a network plugin as the harness uses them, whatever stands behind: a plugin or plain TCP.
#ifndef FORGIVE_TESTBED_PERF_NET_H_
#define FORGIVE_TESTBED_PERF_NET_H_

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "testbed/perf/nccl_abi.h"
#include "testbed/perf/options.h"
#include "testbed/perf/schedule.h"

namespace forgive::perf {

using Handle = std::array<char, abi::kHandleBytes>;

// What NCCL says of a communicator, and how it lets a plugin prove what its messages are for (--proof).
struct CommunicatorFacts {
  Proof proof = Proof::kWord;
  int traffic_class = abi::kNoTrafficClass;
  int rank = 0;
  int ranks = 0;
};

// What it says of a collective, where it says anything.
struct CollectiveFacts {
  Collective collective = Collective::kAllReduce;
  Protocol protocol = Protocol::kSimple;
  std::int64_t elements = 0;  // of the whole vector
  int ranks = 0;
};

// Threads as NCCL's: Listen, Connect, Accept, Register, Deregister and Close* by the service thread; Isend, Irecv,
// Test and Idle by the progress thread. Nothing blocks but Idle. Everything throws RunError when the network fails.
class Net {
 public:
  virtual ~Net() = default;

  // "forgive, API v8", "tcp, cubic".
  virtual std::string Description() const = 0;
  // What it logged at INFO while it started.
  virtual std::vector<std::string> InfoLines() const { return {}; }
  // The plugin's file as dlopen returned it, to look up forgive.h's functions; null: none.
  virtual void* Library() const { return nullptr; }

  virtual void Listen(Handle& handle, void** listen_comm) = 0;
  // Connect and Accept set *comm to null until the connection is there: call again.
  virtual void Connect(Handle& handle, void** send_comm) = 0;
  virtual void Accept(void* listen_comm, void** receive_comm) = 0;
  virtual void* Register(void* comm, void* data, std::size_t bytes) = 0;
  virtual void Deregister(void* comm, void* memory) = 0;
  virtual void CloseSend(void* comm) = 0;
  virtual void CloseReceive(void* comm) = 0;
  virtual void CloseListen(void* comm) = 0;

  // By the application's thread: a collective begins. By the progress thread: the next Irecv is this message of it,
  // counted on its connection from 0.
  virtual void BeginCollective(const CollectiveFacts& /*facts*/) {}
  virtual void DescribeReceive(std::int64_t /*message*/) {}

  // Both return null for "try again". Data stays untouched until Test says done.
  virtual void* Isend(void* comm, void* data, std::size_t bytes, int tag, void* memory) = 0;
  virtual void* Irecv(void* comm, void* data, std::size_t bytes, int tag, void* memory) = 0;
  // True once done; then *bytes is the size that was sent and the request is gone.
  virtual bool Test(void* request, std::size_t* bytes) = 0;

  // Called after `rounds` turns in a row in which nothing moved: yields or sleeps for at most about a millisecond.
  virtual void Idle(int rounds) = 0;
};

// Loads a plugin as NCCL does. api 0: the highest version that it offers. Throws UsageError (no plugin, no such
// version) and RunError (it does not start).
std::unique_ptr<Net> LoadPlugin(const std::string& name, int api, int device, const CommunicatorFacts& facts = {});

// A baseline: the same operations over plain TCP sockets. Throws UsageError (interface) and RunError.
std::unique_ptr<Net> MakeTcpNet(Baseline baseline, const std::string& default_address);

}  // namespace forgive::perf

#endif  // FORGIVE_TESTBED_PERF_NET_H_
