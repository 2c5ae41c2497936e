// SPDX-License-Identifier: Apache-2.0
// The baselines' messages over one TCP connection, straight from and into the posted buffers, by whoever calls.
#ifndef FORGIVE_TESTBED_PERF_TCP_CONNECTION_H_
#define FORGIVE_TESTBED_PERF_TCP_CONNECTION_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

namespace forgive::perf {

inline constexpr std::uint32_t kTcpMagic = 0x46544350;

struct TcpHeader {
  std::uint32_t magic = kTcpMagic;
  std::uint32_t bytes = 0;
};

class TcpConnection;

// A message to send or to receive. `used` is the poster's; from Queue until `done` all else is the connection's.
struct TcpRequest {
  TcpConnection* connection = nullptr;
  bool used = false;
  std::atomic<bool> done = false;  // stored with release, after header.bytes
  char* data = nullptr;
  std::size_t posted = 0;
  TcpHeader header;
  std::size_t moved = 0;  // header and payload bytes sent, or payload bytes received
};

// One direction. Take, Finished and the requests' `used` belong to the thread that posts; Queue, Progress and idle to
// the one that moves bytes, which may be the same.
class TcpConnection {
 public:
  TcpConnection(int fd, bool sends) : fd_(fd), sends_(sends) {}  // owns the socket, which does not block
  ~TcpConnection();
  TcpConnection(const TcpConnection&) = delete;
  TcpConnection& operator=(const TcpConnection&) = delete;

  int fd() const { return fd_; }
  bool sends() const { return sends_; }

  // A free request with the message in it; null: all are used.
  TcpRequest* Take(void* data, std::size_t bytes);
  // True once it is done: then *bytes is the size that was sent, and the request is free again. Throws RunError where
  // the connection has broken.
  bool Finished(TcpRequest* request, std::size_t* bytes);

  // Enters it behind those that are not done. Nothing moves on a broken connection any more.
  void Queue(TcpRequest* request) {
    if (!broken_.load(std::memory_order_relaxed)) queue_.push_back(request);
  }
  // Nothing to move, or broken.
  bool idle() const { return queue_.empty(); }
  // Moves what the socket takes or has. True: something moved.
  bool Progress() { return sends_ ? Flush() : Fill(); }

 private:
  static constexpr std::size_t kMostRequests = 32;

  bool Flush();
  void Account(std::size_t sent);
  bool Fill();
  void TakeBody(std::size_t got, std::size_t rest, const TcpHeader& next);
  bool FinishEmpty();
  bool HeaderIsRight();
  void FinishFront();
  void Break(const std::string& reason);

  const int fd_;
  const bool sends_;
  std::array<TcpRequest, kMostRequests> requests_;
  std::deque<TcpRequest*> queue_;   // not done, in order
  TcpHeader incoming_;              // receive side: the header of the message now arriving
  std::size_t incoming_bytes_ = 0;  // how much of that header is there
  std::string reason_;  // written once
  std::atomic<bool> broken_ = false;  // stored with release, after reason_
};

}  // namespace forgive::perf

#endif  // FORGIVE_TESTBED_PERF_TCP_CONNECTION_H_
