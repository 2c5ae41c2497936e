// SPDX-License-Identifier: Apache-2.0
// The kernel's routes, neighbours and link states by netlink, for ports that stand on a kernel interface.
#ifndef FORGIVE_DATAPLANE_DPDK_KERNEL_ROUTES_H_
#define FORGIVE_DATAPLANE_DPDK_KERNEL_ROUTES_H_

#include <linux/netlink.h>

#include <memory>
#include <string>
#include <vector>

#include "dataplane/dpdk/resolver.h"
#include "dataplane/udp_socket.h"

namespace forgive {

// What the kernel says about one interface, as events arrive. Belongs to the network namespace of the opening thread.
class LinkWatch {
 public:
  // nullptr: *error says why. `routes`: also listen for changes of routes and neighbours.
  static std::unique_ptr<LinkWatch> Open(const std::string& interface, bool routes, std::string* error);

  // Reads the events that wait. True: a route or a neighbour of the interface changed.
  bool Poll();

  bool up() const { return up_; }      // as the last events said
  bool gone() const { return gone_; }  // the interface was removed
  uint32_t index() const { return index_; }
  uint32_t mtu_bytes() const { return mtu_bytes_; }  // as it was at Open

 private:
  LinkWatch(UniqueFd fd, uint32_t index) : fd_(std::move(fd)), index_(index) {}
  void OnMessage(const nlmsghdr& message);

  UniqueFd fd_;
  uint32_t index_;
  uint32_t mtu_bytes_ = 0;
  bool up_ = true;
  bool gone_ = false;
  bool changed_ = false;
};

// Next hops out of one interface.
class KernelRoutes final : public Resolver {
 public:
  // `watch` must outlive it. By `asking_fd`, a UDP socket of the own address of which it takes a duplicate, the
  // kernel is made to ask for a neighbour: an empty datagram goes to the discard port. nullptr: *error says why.
  static std::unique_ptr<KernelRoutes> Open(LinkWatch* watch, int asking_fd, std::string* error);

  Hop Resolve(const Address& destination, TimePoint now) override;
  bool Poll(TimePoint) override { return watch_->Poll(); }
  size_t OnFrame(const Frame&, std::span<uint8_t>) override { return 0; }  // the kernel sees those itself
  size_t NextQuestion(TimePoint, std::span<uint8_t>) override { return 0; }

 private:
  KernelRoutes(LinkWatch* watch, UniqueFd asking_fd, UniqueFd fd)
      : watch_(watch), asking_fd_(std::move(asking_fd)), fd_(std::move(fd)) {}
  // Puts one question; false: refused or no answer. The answer lies in answer_.
  bool Ask(void* request, uint32_t length);
  bool NextHop(const Address& destination, Address* hop);
  // `interface`: only by that one; 0: any. False: nothing leads there, or it is this machine's own.
  bool AskRoute(const Address& destination, uint32_t interface, Address* hop, uint32_t* leaves_by);
  bool Neighbour(const Address& hop, MacAddress* mac);

  LinkWatch* watch_;
  UniqueFd asking_fd_;
  UniqueFd fd_;
  uint32_t sequence_ = 0;
  alignas(nlmsghdr) std::array<uint8_t, 8192> answer_{};
};

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_DPDK_KERNEL_ROUTES_H_
