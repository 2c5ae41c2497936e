// SPDX-License-Identifier: Apache-2.0
// The baseline "tcp": the thread that posts and tests does the socket calls.
#include <poll.h>
#include <sched.h>

#include <mutex>
#include <set>
#include <vector>

#include "testbed/perf/tcp_net.h"

namespace forgive::perf {
namespace {

constexpr int kPollMilliseconds = 1;
constexpr int kYieldRounds = 4;  // turns of sched_yield before the thread waits in poll

class TcpCallerNet final : public TcpNet {
 public:
  explicit TcpCallerNet(const SocketAddress& address) : TcpNet("tcp", address) {}

  void* Isend(void* comm, void* data, std::size_t bytes, int, void*) override {
    auto* const connection = static_cast<TcpConnection*>(comm);
    TcpRequest* const request = connection->Take(data, bytes);
    if (request == nullptr) return nullptr;
    connection->Queue(request);
    connection->Progress();
    return request;
  }

  void* Irecv(void* comm, void* data, std::size_t bytes, int, void*) override {
    auto* const connection = static_cast<TcpConnection*>(comm);
    TcpRequest* const request = connection->Take(data, bytes);
    if (request != nullptr) connection->Queue(request);
    return request;
  }

  bool Test(void* request_pointer, std::size_t* bytes) override {
    auto* const request = static_cast<TcpRequest*>(request_pointer);
    if (!request->done.load(std::memory_order_relaxed)) request->connection->Progress();
    return request->connection->Finished(request, bytes);
  }

  void Idle(int rounds) override {
    if (rounds < kYieldRounds) {
      sched_yield();
      return;
    }
    std::vector<pollfd> items;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (const TcpConnection* connection : connections_) {
        const short events = connection->sends() ? POLLOUT : POLLIN;
        if (!connection->idle()) items.push_back({connection->fd(), events, 0});
      }
    }
    poll(items.data(), items.size(), kPollMilliseconds);
  }

 private:
  void Enter(TcpConnection* connection) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    connections_.insert(connection);
  }
  void Leave(TcpConnection* connection) override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      connections_.erase(connection);
    }
    delete connection;
  }

  std::mutex mutex_;
  std::set<TcpConnection*> connections_;
};

}  // namespace

std::unique_ptr<Net> MakeTcpCallerNet(const SocketAddress& address) {
  return std::make_unique<TcpCallerNet>(address);
}

}  // namespace forgive::perf
