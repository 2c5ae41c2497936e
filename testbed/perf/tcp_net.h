// SPDX-License-Identifier: Apache-2.0
// What the TCP baselines have in common: sockets, handles and memory. What they do with a connection is theirs.
#ifndef FORGIVE_TESTBED_PERF_TCP_NET_H_
#define FORGIVE_TESTBED_PERF_TCP_NET_H_

#include <cstddef>
#include <memory>
#include <string>

#include "testbed/perf/net.h"
#include "testbed/perf/socket_address.h"
#include "testbed/perf/tcp_connection.h"

namespace forgive::perf {

class TcpNet : public Net {
 public:
  // `address`: of this host; any port. `name` begins the description.
  TcpNet(std::string name, const SocketAddress& address);

  std::string Description() const override;
  void Listen(Handle& handle, void** listen_comm) override;
  void Connect(Handle& handle, void** send_comm) override;
  void Accept(void* listen_comm, void** receive_comm) override;
  void* Register(void*, void* data, std::size_t) override { return data; }
  void Deregister(void*, void*) override {}
  void CloseSend(void* comm) override { Leave(static_cast<TcpConnection*>(comm)); }
  void CloseReceive(void* comm) override { Leave(static_cast<TcpConnection*>(comm)); }
  void CloseListen(void* comm) override;

 protected:
  // A connection that stands is theirs, until Leave, by the service thread as Enter, ends it: nothing of its requests
  // is touched afterwards.
  virtual void Enter(TcpConnection* connection) = 0;
  virtual void Leave(TcpConnection* connection) = 0;

 private:
  const std::string name_;
  const SocketAddress address_;
  std::string congestion_control_;
};

// The socket calls in the progress thread.
std::unique_ptr<Net> MakeTcpCallerNet(const SocketAddress& address);
// The socket calls in a thread of their own, which gets requests as an engine does.
std::unique_ptr<Net> MakeTcpThreadedNet(const SocketAddress& address);

}  // namespace forgive::perf

#endif  // FORGIVE_TESTBED_PERF_TCP_NET_H_
