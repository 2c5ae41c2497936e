// SPDX-License-Identifier: Apache-2.0
// listen, connect, accept, register; deregister, close.
#include "testbed/perf/connections.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "testbed/perf/error.h"

namespace forgive::perf {
namespace {

using Clock = std::chrono::steady_clock;

// NCCL's three buffers: LL, LL128 and Simple.
constexpr std::size_t kLlBytes = 512 << 10;
constexpr std::size_t kLl128Bytes = 4'915'200;
constexpr std::size_t kSimpleBytes = 4 << 20;
// NCCL's pool for point to point; all comms register it whole. A rank here has one send and one receive comm: each
// uses eight steps of its own part.
constexpr std::size_t kPoolBytes = 4 << 20;
constexpr std::size_t kPoolPartBytes = 1 << 20;

constexpr std::size_t kAlignment = 4096;
constexpr std::chrono::microseconds kConnectPoll(200);

}  // namespace

void Connections::Release::operator()(std::byte* data) const { std::free(data); }

Connections::Connections(Topology topology, Net& net, Worker& service, Rendezvous& rendezvous,
                         std::chrono::seconds timeout)
    : topology_(topology), net_(net), service_(service), rendezvous_(rendezvous), timeout_(timeout) {
  const auto ranks = static_cast<std::size_t>(rendezvous.ranks());
  listens_.resize(ranks);
  send_comms_.resize(ranks);
  receive_comms_.resize(ranks);
  sends_.resize(ranks);
  receives_.resize(ranks);
  if (topology == Topology::kPointToPoint) pool_ = Allocate(kPoolBytes);
  try {
    Connect();
  } catch (...) {
    CloseAll();
    throw;
  }
}

Connections::~Connections() { CloseAll(); }

bool Connections::Sends(int peer) const {
  if (peer == rendezvous_.rank()) return false;
  return topology_ == Topology::kAll || peer == (rendezvous_.rank() + 1) % rendezvous_.ranks();
}

bool Connections::Receives(int peer) const {
  if (peer == rendezvous_.rank()) return false;
  return topology_ == Topology::kAll || rendezvous_.rank() == (peer + 1) % rendezvous_.ranks();
}

void Connections::Connect() {
  const int rank = rendezvous_.rank();
  const int ranks = rendezvous_.ranks();
  std::vector<Handle> mine(static_cast<std::size_t>(ranks));
  for (int peer = 0; peer < ranks; ++peer) {
    const auto index = static_cast<std::size_t>(peer);
    if (Receives(peer)) service_.Run("listen", [&] { net_.Listen(mine[index], &listens_[index]); });
  }
  const std::vector<std::vector<Handle>> all = rendezvous_.AllGatherItems(mine);
  std::vector<Handle> handles(static_cast<std::size_t>(ranks));
  for (std::size_t peer = 0; peer < handles.size(); ++peer) handles[peer] = all[peer][static_cast<std::size_t>(rank)];

  const Clock::time_point deadline = Clock::now() + timeout_;
  while (!ConnectTurn(handles)) {
    rendezvous_.CheckPeers();
    if (Clock::now() > deadline) throw RunError(fmt::format("no connection within {} s", timeout_.count()));
    std::this_thread::sleep_for(kConnectPoll);
  }
  rendezvous_.Barrier();
}

// One turn of polling every connection that is not there yet. True: all are.
bool Connections::ConnectTurn(std::vector<Handle>& handles) {
  bool complete = true;
  for (int peer = 0; peer < rendezvous_.ranks(); ++peer) {
    const auto index = static_cast<std::size_t>(peer);
    if (Sends(peer) && sends_[index] == nullptr) {
      service_.Run("connect", [&] {
        net_.Connect(handles[index], &send_comms_[index]);
        if (send_comms_[index] == nullptr) return;
        sends_[index] = std::make_unique<SendLane>(rendezvous_.rank(), peer, send_comms_[index]);
        RegisterAll(*sends_[index], true);
      });
      complete = complete && sends_[index] != nullptr;
    }
    if (Receives(peer) && receives_[index] == nullptr) {
      service_.Run("accept", [&] {
        net_.Accept(listens_[index], &receive_comms_[index]);
        if (receive_comms_[index] == nullptr) return;
        net_.CloseListen(std::exchange(listens_[index], nullptr));
        receives_[index] = std::make_unique<ReceiveLane>(rendezvous_.rank(), peer, receive_comms_[index]);
        RegisterAll(*receives_[index], false);
      });
      complete = complete && receives_[index] != nullptr;
    }
  }
  return complete;
}

std::byte* Connections::Allocate(std::size_t bytes) {
  const std::size_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  auto* const data = static_cast<std::byte*>(std::aligned_alloc(kAlignment, whole));
  if (data == nullptr) throw RunError(fmt::format("no memory for a buffer of {} bytes", bytes));
  memory_.emplace_back(data);
  return data;
}

void Connections::RegisterAll(Lane& lane, bool sends) {
  if (topology_ == Topology::kPointToPoint) {
    RegisterOne(lane, BufferKind::kPool, pool_, kPoolBytes);
    StepBuffer& pool = lane.buffer(BufferKind::kPool);
    pool.data = pool_ + (sends ? 0 : kPoolPartBytes);
    pool.bytes = kPoolPartBytes;
    return;
  }
  RegisterOne(lane, BufferKind::kLl, Allocate(kLlBytes), kLlBytes);
  RegisterOne(lane, BufferKind::kLl128, Allocate(kLl128Bytes), kLl128Bytes);
  RegisterOne(lane, BufferKind::kSimple, Allocate(kSimpleBytes), kSimpleBytes);
}

void Connections::RegisterOne(Lane& lane, BufferKind kind, std::byte* data, std::size_t bytes) {
  StepBuffer& buffer = lane.buffer(kind);
  buffer.memory = net_.Register(lane.comm(), data, bytes);
  buffer.data = data;
  buffer.bytes = bytes;
}

void Connections::CloseAll() {
  const auto quietly = [this](const char* what, const std::function<void()>& job) {
    try {
      service_.Run(what, job);
    } catch (const RunError&) {  // closing goes on: the next communicator may still close
    }
  };
  const auto deregister = [&](Lane& lane) {
    for (std::size_t kind = 0; kind < kBufferKinds; ++kind) {
      StepBuffer& buffer = lane.buffer(static_cast<BufferKind>(kind));
      if (buffer.data != nullptr) quietly("deregMr", [&] { net_.Deregister(lane.comm(), buffer.memory); });
    }
  };
  for (std::size_t peer = 0; peer < sends_.size(); ++peer) {
    if (sends_[peer] != nullptr) deregister(*sends_[peer]);
    if (send_comms_[peer] != nullptr) quietly("closeSend", [&] { net_.CloseSend(send_comms_[peer]); });
    if (receives_[peer] != nullptr) deregister(*receives_[peer]);
    if (receive_comms_[peer] != nullptr) quietly("closeRecv", [&] { net_.CloseReceive(receive_comms_[peer]); });
    if (listens_[peer] != nullptr) quietly("closeListen", [&] { net_.CloseListen(listens_[peer]); });
    sends_[peer] = nullptr;
    receives_[peer] = nullptr;
    send_comms_[peer] = receive_comms_[peer] = listens_[peer] = nullptr;
  }
}

}  // namespace forgive::perf
