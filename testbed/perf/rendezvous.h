// SPDX-License-Identifier: Apache-2.0
// How the ranks find each other, exchange small data out of band, and learn at once when one of them dies.
#ifndef FORGIVE_TESTBED_PERF_RENDEZVOUS_H_
#define FORGIVE_TESTBED_PERF_RENDEZVOUS_H_

#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace forgive::perf {

// Opens the socket where rank 0 listens. `where`: HOST:PORT, [HOST]:PORT or unix:PATH; "127.0.0.1:0" picks a port.
// Throws UsageError.
int ListenAt(const std::string& where);
// HOST:PORT of a listening socket, as others may write it.
std::string AddressOf(int fd);

// A star with rank 0 in the middle. Used by one thread. Every wait ends after the timeout, or at once when a rank is
// gone: then PeerError says which.
class Rendezvous {
 public:
  // Rank 0: waits until all others are there. Takes the socket over. `options` must be the same text on all ranks.
  // Throws UsageError when some rank does not come.
  static Rendezvous Serve(int listen_fd, int ranks, std::chrono::seconds timeout, std::string options);
  // Any other rank: connects, again and again until the timeout. Throws UsageError.
  static Rendezvous Join(const std::string& where, int rank, int ranks, std::chrono::seconds timeout,
                         std::string options);
  ~Rendezvous();
  Rendezvous(Rendezvous&& other) noexcept;
  Rendezvous& operator=(Rendezvous&&) = delete;
  Rendezvous(const Rendezvous&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  // Every rank gives its bytes and gets those of all, by rank.
  std::vector<std::string> AllGather(std::string_view mine);
  void Barrier() { AllGather({}); }
  // Throws PeerError if a rank has failed or is gone. Never waits.
  void CheckPeers() { Pump(std::chrono::milliseconds(0)); }
  // Tells the others why this rank stops.
  void Abort(const std::string& reason) noexcept;
  // The address of this rank on the way to the others; "127.0.0.1" where that is a local socket.
  std::string LocalAddress() const;

  // AllGather of arrays of plain data.
  template <typename Item>
  std::vector<std::vector<Item>> AllGatherItems(const std::vector<Item>& mine) {
    static_assert(std::is_trivially_copyable_v<Item>);
    std::vector<std::vector<Item>> all;
    const std::string_view bytes(reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(Item));
    for (const std::string& blob : AllGather(bytes)) {
      std::vector<Item>& items = all.emplace_back(blob.size() / sizeof(Item));
      if (!items.empty()) std::memcpy(static_cast<void*>(items.data()), blob.data(), items.size() * sizeof(Item));
    }
    return all;
  }

 private:
  struct Link {
    int fd = -1;
    std::string received;           // bytes of incomplete frames
    std::deque<std::string> blobs;  // whole frames not yet asked for
  };
  Rendezvous(int rank, int ranks, std::chrono::seconds timeout);

  void Pump(std::chrono::milliseconds wait);
  void ReadFrom(std::size_t link);
  void TakeFrames(std::size_t link);
  void Send(std::size_t link, std::uint32_t type, std::string_view payload);
  std::string NextBlob(std::size_t link, std::chrono::steady_clock::time_point deadline);
  int RankOf(std::size_t link) const { return rank_ == 0 ? static_cast<int>(link) : 0; }
  void AdmitAll(int listen_fd, const std::string& options);
  void Admit(int fd, const std::string& text, const std::string& options);

  int rank_;
  int ranks_;
  std::chrono::seconds timeout_;
  std::vector<Link> links_;  // rank 0: by rank, the first unused; others: one
};

}  // namespace forgive::perf

#endif  // FORGIVE_TESTBED_PERF_RENDEZVOUS_H_
