// SPDX-License-Identifier: Apache-2.0
// The star of control connections around rank 0.
#include "testbed/perf/rendezvous.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "testbed/perf/error.h"
#include "testbed/perf/socket_address.h"

namespace forgive::perf {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::uint32_t kMagic = 0x46524756;
enum FrameType : std::uint32_t { kHello = 1, kBlob = 2, kAbort = 3 };
constexpr std::uint64_t kMostFrameBytes = 1ULL << 30;
constexpr milliseconds kRetry(100);
constexpr milliseconds kHelloWait(2000);
constexpr std::uint64_t kMostHelloBytes = 4096;
constexpr std::size_t kMostNewcomers = 512;  // strangers among them: the oldest is sent away for another

struct FrameHeader {
  std::uint32_t magic = kMagic;
  std::uint32_t type = 0;
  std::uint64_t bytes = 0;
};

milliseconds Left(Clock::time_point deadline) {
  return std::max(milliseconds(0), std::chrono::duration_cast<milliseconds>(deadline - Clock::now()));
}

bool WaitFor(int fd, short events, milliseconds wait) {
  pollfd item = {fd, events, 0};
  return poll(&item, 1, static_cast<int>(wait.count())) > 0;
}

// A connection that has not yet said who it is. It may be a stranger's, so nobody waits for it.
struct Newcomer {
  int fd = -1;
  Clock::time_point deadline;
  std::string received;
};

// Those at the door; whoever is left there is sent away.
struct Door {
  std::vector<Newcomer> waiting;
  Door() = default;
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;
  ~Door() {
    for (const Newcomer& newcomer : waiting) close(newcomer.fd);
  }
};

enum class Heard { kMore, kHello, kStranger };

// Reads what there is of a hello, and nothing beyond it.
Heard Listen(Newcomer& newcomer) {
  for (;;) {
    FrameHeader header;
    std::size_t wanted = sizeof(header);
    if (newcomer.received.size() >= sizeof(header)) {
      std::memcpy(&header, newcomer.received.data(), sizeof(header));
      if (header.magic != kMagic || header.type != kHello || header.bytes > kMostHelloBytes) return Heard::kStranger;
      wanted += header.bytes;
    }
    if (newcomer.received.size() >= sizeof(header) && newcomer.received.size() == wanted) return Heard::kHello;
    char buffer[1024];
    const std::size_t most = std::min(sizeof(buffer), wanted - newcomer.received.size());
    const ssize_t got = recv(newcomer.fd, buffer, most, MSG_DONTWAIT);
    if (got > 0) {
      newcomer.received.append(buffer, static_cast<std::size_t>(got));
    } else if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
      return Heard::kMore;
    } else {
      return Heard::kStranger;
    }
  }
}

// Takes a connection, if there is one. Throws UsageError where the process can have no more of them.
void OpenTo(int listen_fd, Door& door) {
  const int fd = accept4(listen_fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd >= 0) {
    if (door.waiting.size() == kMostNewcomers) {
      close(door.waiting.front().fd);
      door.waiting.erase(door.waiting.begin());
    }
    door.waiting.push_back({fd, Clock::now() + kHelloWait, {}});
  } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
    throw UsageError(fmt::format("the rendezvous takes no more connections: {}; raise the limit (ulimit -n)",
                                 std::strerror(errno)));
  }
}

std::string HelloText(int rank, int ranks, const std::string& options) {
  return fmt::format("{} {} {}", rank, ranks, options);
}

}  // namespace

int ListenAt(const std::string& where) {
  const SocketAddress address = ParseAddress(where, "--rendezvous");
  const int fd = socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (fd < 0 || bind(fd, address.get(), address.length()) != 0 || listen(fd, 512) != 0) {
    const std::string reason = std::strerror(errno);
    if (fd >= 0) close(fd);
    throw UsageError(
        fmt::format("--rendezvous {}: cannot listen there: {}; name a free port of this host", where, reason));
  }
  return fd;
}

std::string AddressOf(int fd) { return SocketAddress::OfSocket(fd).Text(); }

Rendezvous::Rendezvous(int rank, int ranks, std::chrono::seconds timeout)
    : rank_(rank), ranks_(ranks), timeout_(timeout), links_(rank == 0 ? static_cast<std::size_t>(ranks) : 1) {}

Rendezvous::Rendezvous(Rendezvous&& other) noexcept
    : rank_(other.rank_), ranks_(other.ranks_), timeout_(other.timeout_), links_(std::move(other.links_)) {
  other.links_.clear();
}

Rendezvous::~Rendezvous() {
  for (const Link& link : links_) {
    if (link.fd >= 0) close(link.fd);
  }
}

Rendezvous Rendezvous::Serve(int listen_fd, int ranks, std::chrono::seconds timeout, std::string options) {
  Rendezvous star(0, ranks, timeout);
  try {
    star.AdmitAll(listen_fd, options);
  } catch (const UsageError& error) {
    star.Abort(error.what());
    close(listen_fd);
    throw;
  }
  const SocketAddress address = SocketAddress::OfSocket(listen_fd);
  close(listen_fd);
  if (address.family() == AF_UNIX) unlink(address.Path().c_str());
  for (std::size_t link = 1; link < star.links_.size(); ++link) star.Send(link, kHello, "");
  return star;
}

void Rendezvous::AdmitAll(int listen_fd, const std::string& options) {
  const Clock::time_point deadline = Clock::now() + timeout_;
  const auto missing = [this] {
    return std::count_if(links_.begin() + 1, links_.end(), [](const Link& link) { return link.fd < 0; });
  };
  Door door;
  while (missing() > 0) {
    if (Left(deadline).count() == 0) {
      std::string ranks;
      for (std::size_t rank = 1; rank < links_.size(); ++rank) {
        if (links_[rank].fd < 0) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
      }
      throw UsageError(
          fmt::format("ranks that did not come to the rendezvous within {} s: {}; start them, or check "
                      "that they can reach it",
                      timeout_.count(), ranks));
    }
    std::vector<pollfd> items = {{listen_fd, POLLIN, 0}};
    for (const Newcomer& newcomer : door.waiting) items.push_back({newcomer.fd, POLLIN, 0});
    poll(items.data(), items.size(), static_cast<int>(std::min(Left(deadline), kRetry).count()));
    for (std::size_t i = door.waiting.size(); i-- > 0;) {
      Newcomer& newcomer = door.waiting[i];
      const Heard heard = items[i + 1].revents != 0 ? Listen(newcomer) : Heard::kMore;
      if (heard == Heard::kMore && Left(newcomer.deadline).count() > 0) continue;
      const Newcomer leaving = std::move(newcomer);
      door.waiting.erase(door.waiting.begin() + static_cast<std::ptrdiff_t>(i));
      if (heard == Heard::kHello) {
        Admit(leaving.fd, leaving.received.substr(sizeof(FrameHeader)), options);
      } else {
        close(leaving.fd);
      }
    }
    if (items[0].revents != 0) OpenTo(listen_fd, door);
  }
}

// One that says hello with other options is a mistake.
void Rendezvous::Admit(int fd, const std::string& text, const std::string& options) {
  const int rank = std::atoi(text.c_str());
  const bool known = rank > 0 && rank < ranks_ && text == HelloText(rank, ranks_, options);
  if (known && links_[static_cast<std::size_t>(rank)].fd < 0) {
    SetNoDelay(fd);
    links_[static_cast<std::size_t>(rank)].fd = fd;
    return;
  }
  const std::string reason =
      known ? fmt::format("two processes say that they are rank {}; give each its own --rank", rank)
            : fmt::format("rank {} was started with other options than rank 0; start all ranks alike", rank);
  const FrameHeader refusal = {kMagic, kAbort, reason.size()};
  send(fd, &refusal, sizeof(refusal), MSG_NOSIGNAL);
  send(fd, reason.data(), reason.size(), MSG_NOSIGNAL);
  close(fd);
  throw UsageError(reason);
}

Rendezvous Rendezvous::Join(const std::string& where, int rank, int ranks, std::chrono::seconds timeout,
                            std::string options) {
  Rendezvous star(rank, ranks, timeout);
  const Clock::time_point deadline = Clock::now() + timeout;
  const SocketAddress address = ParseAddress(where, "--rendezvous");
  int fd = -1;
  std::string reason;
  for (;;) {
    fd = ConnectWithin(address, Left(deadline), reason);
    if (fd >= 0) break;
    if (Left(deadline).count() == 0) {
      throw UsageError(
          fmt::format("--rendezvous {}: rank {} cannot reach rank 0 there within {} s: {}; start rank 0, "
                      "or check the address",
                      where, rank, timeout.count(), reason));
    }
    std::this_thread::sleep_for(std::min(kRetry, Left(deadline)));
  }
  SetNoDelay(fd);
  star.links_[0].fd = fd;
  star.Send(0, kHello, HelloText(rank, ranks, options));
  try {
    star.NextBlob(0, deadline + timeout);  // rank 0 greets once all are there
  } catch (const PeerError& error) {
    throw UsageError(error.what());
  }
  return star;
}

void Rendezvous::Send(std::size_t link, std::uint32_t type, std::string_view payload) {
  const FrameHeader header = {kMagic, type, payload.size()};
  std::string frame(reinterpret_cast<const char*>(&header), sizeof(header));
  frame.append(payload);
  const Clock::time_point deadline = Clock::now() + timeout_;
  for (std::size_t sent = 0; sent < frame.size();) {
    const ssize_t count =
        send(links_[link].fd, frame.data() + sent, frame.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count > 0) {
      sent += static_cast<std::size_t>(count);
    } else if (errno != EAGAIN && errno != EINTR) {
      CheckPeers();  // its last words say more than a broken pipe
      throw PeerError(fmt::format("rank {} is gone", RankOf(link)));
    } else if (!WaitFor(links_[link].fd, POLLOUT, Left(deadline))) {
      throw PeerError(fmt::format("rank {} takes no control data for {} s", RankOf(link), timeout_.count()));
    }
  }
}

void Rendezvous::Pump(milliseconds wait) {
  std::vector<pollfd> items;
  for (const Link& link : links_) items.push_back({link.fd, POLLIN, 0});  // poll skips negative descriptors
  if (poll(items.data(), items.size(), static_cast<int>(wait.count())) <= 0) return;
  for (std::size_t link = 0; link < items.size(); ++link) {
    if (items[link].revents != 0) ReadFrom(link);
  }
}

void Rendezvous::ReadFrom(std::size_t link) {
  char buffer[65536];
  for (;;) {
    const ssize_t got = recv(links_[link].fd, buffer, sizeof(buffer), MSG_DONTWAIT);
    if (got > 0) {
      links_[link].received.append(buffer, static_cast<std::size_t>(got));
      if (static_cast<std::size_t>(got) == sizeof(buffer)) continue;
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
      TakeFrames(link);
      if (!links_[link].blobs.empty()) return;  // it said all that was wanted of it before it left
      throw PeerError(fmt::format("rank {} is gone", RankOf(link)));
    }
    TakeFrames(link);
    return;
  }
}

void Rendezvous::TakeFrames(std::size_t link) {
  std::string& received = links_[link].received;
  FrameHeader header;
  std::size_t at = 0;
  while (received.size() - at >= sizeof(header)) {
    std::memcpy(&header, received.data() + at, sizeof(header));
    if (header.magic != kMagic || header.bytes > kMostFrameBytes) {
      throw PeerError(fmt::format("rank {} sends what is no control data", RankOf(link)));
    }
    if (received.size() - at - sizeof(header) < header.bytes) break;
    std::string payload = received.substr(at + sizeof(header), header.bytes);
    at += sizeof(header) + header.bytes;
    if (header.type == kAbort) throw PeerError(payload);
    links_[link].blobs.push_back(std::move(payload));
  }
  received.erase(0, at);
}

std::string Rendezvous::NextBlob(std::size_t link, Clock::time_point deadline) {
  std::deque<std::string>& blobs = links_[link].blobs;
  while (blobs.empty()) {
    if (Left(deadline).count() == 0) {
      throw PeerError(fmt::format("rank {} did not answer within {} s", RankOf(link), timeout_.count()));
    }
    Pump(std::min(Left(deadline), milliseconds(1000)));
  }
  std::string blob = std::move(blobs.front());
  blobs.pop_front();
  return blob;
}

std::vector<std::string> Rendezvous::AllGather(std::string_view mine) {
  const Clock::time_point deadline = Clock::now() + timeout_;
  std::vector<std::string> all(static_cast<std::size_t>(ranks_));
  all[static_cast<std::size_t>(rank_)] = mine;
  if (rank_ != 0) {
    Send(0, kBlob, mine);
    // Every rank's bytes, each with its size before it.
    const std::string joined = NextBlob(0, deadline);
    std::size_t at = 0;
    for (std::string& blob : all) {
      std::uint64_t bytes = 0;
      if (joined.size() - at < sizeof(bytes)) throw PeerError("rank 0 sent incomplete control data");
      std::memcpy(&bytes, joined.data() + at, sizeof(bytes));
      at += sizeof(bytes);
      if (joined.size() - at < bytes) throw PeerError("rank 0 sent incomplete control data");
      blob = joined.substr(at, bytes);
      at += bytes;
    }
    return all;
  }
  for (std::size_t link = 1; link < links_.size(); ++link) all[link] = NextBlob(link, deadline);
  std::string joined;
  for (const std::string& blob : all) {
    const std::uint64_t bytes = blob.size();
    joined.append(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
    joined.append(blob);
  }
  for (std::size_t link = 1; link < links_.size(); ++link) Send(link, kBlob, joined);
  return all;
}

void Rendezvous::Abort(const std::string& reason) noexcept {
  const FrameHeader header = {kMagic, kAbort, reason.size()};
  for (const Link& link : links_) {
    if (link.fd < 0) continue;
    send(link.fd, &header, sizeof(header), MSG_NOSIGNAL | MSG_DONTWAIT);
    send(link.fd, reason.data(), reason.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

std::string Rendezvous::LocalAddress() const {
  const SocketAddress address = SocketAddress::OfSocket(rank_ == 0 ? links_[1].fd : links_[0].fd);
  return address.family() == AF_UNIX ? "127.0.0.1" : address.Host();
}

}  // namespace forgive::perf
