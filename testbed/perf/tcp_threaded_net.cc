// SPDX-License-Identifier: Apache-2.0
// The baseline "tcp-threaded": requests go down through a ring to a thread that does the socket calls, as they go to
// the plugin's engine. The ring, the doorbell and when to sleep are the engine's own, so that only what is done with
// the requests differs.
#include <poll.h>
#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>
#include <thread>
#include <vector>

#include "dataplane/doorbell.h"
#include "dataplane/idle_spin.h"
#include "dataplane/ring.h"
#include "testbed/perf/error.h"
#include "testbed/perf/proxy_idle.h"
#include "testbed/perf/tcp_net.h"

namespace forgive::perf {
namespace {

constexpr std::uint32_t kRingCells = 4096;  // EngineOptions::command_ring's

struct Command {
  enum class Kind : std::uint8_t { kPost, kEnter, kLeave, kStop };
  Kind kind = Kind::kPost;
  TcpRequest* request = nullptr;
  TcpConnection* connection = nullptr;
  std::promise<void>* left = nullptr;  // of kLeave
};

class TcpThreadedNet final : public TcpNet {
 public:
  explicit TcpThreadedNet(const SocketAddress& address) : TcpNet("tcp-threaded", address), ring_(kRingCells) {
    if (!doorbell_.Open()) throw RunError(std::string("tcp: no eventfd: ") + std::strerror(errno));
    thread_ = std::thread([this] { Run(); });
  }
  ~TcpThreadedNet() override {
    HandOver({.kind = Command::Kind::kStop});
    thread_.join();
  }

  void* Isend(void* comm, void* data, std::size_t bytes, int, void*) override { return Post(comm, data, bytes); }
  void* Irecv(void* comm, void* data, std::size_t bytes, int, void*) override { return Post(comm, data, bytes); }

  bool Test(void* request_pointer, std::size_t* bytes) override {
    auto* const request = static_cast<TcpRequest*>(request_pointer);
    return request->connection->Finished(request, bytes);
  }

  void Idle(int rounds) override { ProxyIdle(rounds); }

 private:
  // ---- Of the callers' threads ----

  void* Post(void* comm, void* data, std::size_t bytes) {
    TcpRequest* const request = static_cast<TcpConnection*>(comm)->Take(data, bytes);
    if (request == nullptr) return nullptr;
    if (Submit({.kind = Command::Kind::kPost, .request = request})) return request;
    request->used = false;
    return nullptr;
  }
  bool Submit(const Command& command) {
    if (!ring_.Push(command)) return false;
    doorbell_.Ring();
    return true;
  }
  void HandOver(const Command& command) {
    while (!Submit(command)) sched_yield();
  }
  void Enter(TcpConnection* connection) override {
    HandOver({.kind = Command::Kind::kEnter, .connection = connection});
  }
  void Leave(TcpConnection* connection) override {
    std::promise<void> left;
    std::future<void> done = left.get_future();
    HandOver({.kind = Command::Kind::kLeave, .connection = connection, .left = &left});
    done.wait();
    delete connection;
  }

  // ---- The thread ----

  void Run() {
    pthread_setname_np(pthread_self(), "tcp-io");
    while (!stop_) {
      const TimePoint now = MonotonicNow();
      bool worked = false;
      for (Command command; ring_.Pop(&command); worked = true) Take(command);
      for (TcpConnection* connection : connections_) worked = connection->Progress() || worked;
      if (worked) {
        spin_.OnWork();
        continue;
      }
      spin_.OnIdleTurn(now);
      if (spin_.IsOver(now, kNever)) {
        Sleep();
        spin_.OnSlept();
      } else {
        spin_.Yield(now);
      }
    }
  }

  void Take(const Command& command) {
    switch (command.kind) {
      case Command::Kind::kPost:
        command.request->connection->Queue(command.request);
        return;
      case Command::Kind::kEnter:
        connections_.push_back(command.connection);
        return;
      case Command::Kind::kLeave: {
        std::erase(connections_, command.connection);
        // The caller's own is gone as soon as it knows.
        std::promise<void> left = std::move(*command.left);
        left.set_value();
        return;
      }
      case Command::Kind::kStop:
        stop_ = true;
        return;
    }
  }

  void Sleep() {
    if (!doorbell_.AnnounceSleep(ring_)) return;
    poll_fds_.assign(1, {doorbell_.fd(), POLLIN, 0});
    for (const TcpConnection* connection : connections_) {
      const short events = connection->sends() ? POLLOUT : POLLIN;
      if (!connection->idle()) poll_fds_.push_back({connection->fd(), events, 0});
    }
    poll(poll_fds_.data(), poll_fds_.size(), -1);
    doorbell_.Awake((poll_fds_[0].revents & POLLIN) != 0);
  }

  CommandRing<Command> ring_;
  Doorbell doorbell_;

  // The thread's own.
  std::vector<TcpConnection*> connections_;
  std::vector<pollfd> poll_fds_;
  IdleSpin spin_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Net> MakeTcpThreadedNet(const SocketAddress& address) {
  return std::make_unique<TcpThreadedNet>(address);
}

}  // namespace forgive::perf
