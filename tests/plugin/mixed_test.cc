// SPDX-License-Identifier: Apache-2.0
// What the ranks of a job are told when not all have this plugin, or not all the same version of it.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <utility>
#include <vector>

#include "fake_nccl.h"
#include "transport/siphash.h"
#include "transport/wire.h"
#include "transport/wire_layout.h"

namespace forgive::testing {
namespace {

// The beginning of the handle that listen writes, as both versions of the plugin lay it out.
struct Handle {
  uint64_t magic;
  uint32_t version;
  uint32_t reserved;
  sockaddr_in address;
  uint8_t rest_of_address[12];
  uint32_t reserved2;
  uint64_t listen_id;
  SipKey secret;
};
constexpr size_t kTagAt = 72;  // in both packets of the handshake (docs/wire-format.md)

// The packet as a plugin whose protocol is one version newer would send it.
void MakeNewer(std::vector<uint8_t>* packet, const SipKey& secret) {
  (*packet)[0] = FORGIVE_WIRE_VERSION + 1;
  std::vector<uint8_t> covered = *packet;
  covered.erase(covered.begin() + kTagAt, covered.begin() + kTagAt + 8);
  const uint64_t tag = SipHash(secret, covered.data(), covered.size(), 0);
  for (size_t i = 0; i < 8; ++i) (*packet)[kTagAt + i] = static_cast<uint8_t>(tag >> (56 - 8 * i));
}

// A UDP socket on loopback, of a rank that is not ours.
class Stranger {
 public:
  Stranger() : socket_(socket(AF_INET, SOCK_DGRAM, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address_);
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address_), length), 0);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&address_), &length), 0);
  }
  ~Stranger() { close(socket_); }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  sockaddr_in address() const { return address_; }
  void Send(const std::vector<uint8_t>& packet, const sockaddr_in& to) {
    EXPECT_EQ(sendto(socket_, packet.data(), packet.size(), 0, reinterpret_cast<const sockaddr*>(&to), sizeof(to)),
              static_cast<ssize_t>(packet.size()));
  }
  // Empty: nothing has come.
  std::vector<uint8_t> Receive(sockaddr_in* from) {
    std::vector<uint8_t> packet(65536);
    socklen_t length = sizeof(*from);
    const ssize_t got =
        recvfrom(socket_, packet.data(), packet.size(), MSG_DONTWAIT, reinterpret_cast<sockaddr*>(from), &length);
    packet.resize(got < 0 ? 0 : static_cast<size_t>(got));
    return packet;
  }

 private:
  int socket_;
  sockaddr_in address_{};
};

// In a process of its own, initialised.
void WithNet(const std::function<void(const Net&)>& body,
             const std::vector<std::pair<std::string, std::string>>& environment = {}) {
  ExpectInChild(environment, [&] {
    const Library library;
    const Net net = library.Table(8);
    ASSERT_EQ(net.init(), nccl::kSuccess);
    body(net);
  });
}

Handle Listen(const Net& net, void** listen_comm) {
  alignas(8) char bytes[nccl::kHandleBytes];
  EXPECT_EQ(net.listen(0, bytes, listen_comm), nccl::kSuccess);
  Handle handle;
  std::memcpy(&handle, bytes, sizeof(handle));
  return handle;
}

int ConnectWith(const Net& net, const Handle& handle) {
  alignas(8) char bytes[nccl::kHandleBytes] = {};
  std::memcpy(bytes, &handle, sizeof(handle));
  void* send_comm = &send_comm;
  const int result = net.connect(0, bytes, &send_comm);
  EXPECT_EQ(send_comm, nullptr);
  return result;
}

constexpr const char* kOtherVersion = "the peer speaks another version of the protocol; use the same library on all";

TEST(PluginVersions, TheListenerSaysThatTheConnectorIsOfAnotherVersionAndTellsIt) {
  WithNet([](const Net& net) {
    void* listen_comm = nullptr;
    const Handle handle = Listen(net, &listen_comm);
    forgive::Connect connect;
    connect.max_payload = 1408;
    connect.listen_id = handle.listen_id;
    connect.connection_id = 77;
    std::vector<uint8_t> packet(kDataHeaderBytes + connect.max_payload);
    packet.resize(WriteConnect(connect, handle.secret, packet.data()));
    MakeNewer(&packet, handle.secret);
    Stranger stranger;
    stranger.Send(packet, handle.address);
    int result = nccl::kSuccess;
    void* receive_comm = nullptr;
    EXPECT_TRUE(PollUntil([&] {
      result = net.accept(listen_comm, &receive_comm);
      return result != nccl::kSuccess || receive_comm != nullptr;
    }));
    EXPECT_EQ(result, nccl::kRemoteError);
    EXPECT_EQ(receive_comm, nullptr);
    EXPECT_TRUE(LogContains(std::string("accept: ") + kOtherVersion));
    std::vector<uint8_t> answer;
    sockaddr_in from;
    ASSERT_TRUE(PollUntil([&] { return !(answer = stranger.Receive(&from)).empty(); }));
    ConnectReply reply;
    ASSERT_TRUE(ParseConnectReply(answer.data(), answer.size(), &reply));
    EXPECT_EQ(reply.status, ConnectStatus::kVersionMismatch);
    EXPECT_EQ(reply.connection_id, 77u);
    EXPECT_EQ(net.close_listen(listen_comm), nccl::kSuccess);
  });
}

TEST(PluginVersions, TheConnectorSaysThatTheListenerIsOfAnotherVersion) {
  WithNet([](const Net& net) {
    void* listen_comm = nullptr;
    Handle handle = Listen(net, &listen_comm);  // of ours, for its form
    Stranger stranger;
    handle.address = stranger.address();
    alignas(8) char bytes[nccl::kHandleBytes] = {};
    std::memcpy(bytes, &handle, sizeof(handle));
    int result = nccl::kSuccess;
    void* send_comm = nullptr;
    EXPECT_TRUE(PollUntil([&] {
      sockaddr_in from;
      forgive::Connect connect;
      const std::vector<uint8_t> asked = stranger.Receive(&from);
      if (ParseConnect(asked.data(), asked.size(), &connect)) {
        ConnectReply reply;
        reply.status = ConnectStatus::kVersionMismatch;
        reply.connection_id = connect.connection_id;
        std::memcpy(&reply.connector_nonce_echo, connect.nonce.data(), sizeof(reply.connector_nonce_echo));
        std::vector<uint8_t> answer(kConnectReplyBytes);
        WriteConnectReply(reply, handle.secret, answer.data());
        MakeNewer(&answer, handle.secret);
        stranger.Send(answer, from);
      }
      result = net.connect(0, bytes, &send_comm);
      return result != nccl::kSuccess || send_comm != nullptr;
    }));
    EXPECT_EQ(result, nccl::kRemoteError);
    EXPECT_EQ(send_comm, nullptr);
    EXPECT_TRUE(LogContains(std::string("connect through lo: ") + kOtherVersion));
    EXPECT_EQ(net.close_listen(listen_comm), nccl::kSuccess);
  });
}

TEST(PluginVersions, AHandleOfAnotherVersionIsRefusedAtOnce) {
  WithNet([](const Net& net) {
    void* listen_comm = nullptr;
    Handle handle = Listen(net, &listen_comm);
    ++handle.version;
    EXPECT_EQ(ConnectWith(net, handle), nccl::kInternalError);
    EXPECT_TRUE(LogContains("from another version of FORGIVE; all hosts need the same plugin"));
    EXPECT_EQ(net.close_listen(listen_comm), nccl::kSuccess);
  });
}

// NCCL's own socket transport begins its handle with the address that it listens at.
TEST(PluginPeerWithout, ItsHandleIsRefusedAtOnceByARankThatHasThePlugin) {
  WithNet([](const Net& net) {
    Handle handle{};
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(41000);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    std::memcpy(static_cast<void*>(&handle), &address, sizeof(address));
    EXPECT_EQ(ConnectWith(net, handle), nccl::kInternalError);
    EXPECT_TRUE(LogContains("the peer's handle is not FORGIVE's, so that rank runs without it"));
    EXPECT_TRUE(LogContains("NCCL_NET=forgive"));
  });
}

TEST(PluginPeerWithout, ReadsAnAddressFamilyInOurHandleThatItRefuses) {
  WithNet([](const Net& net) {
    void* listen_comm = nullptr;
    const Handle handle = Listen(net, &listen_comm);
    sockaddr_in address;
    std::memcpy(&address, &handle, sizeof(address));
    EXPECT_NE(address.sin_family, AF_INET);
    EXPECT_NE(address.sin_family, AF_INET6);
    EXPECT_NE(address.sin_family, AF_UNSPEC);
    EXPECT_EQ(net.close_listen(listen_comm), nccl::kSuccess);
  });
}

TEST(PluginPeerWithout, IsNamedOnceByWhoeverWaitsForItToConnect) {
  WithNet(
      [](const Net& net) {
        void* listen_comm = nullptr;
        Listen(net, &listen_comm);
        void* receive_comm = nullptr;
        EXPECT_TRUE(PollUntil([&] {
          EXPECT_EQ(net.accept(listen_comm, &receive_comm), nccl::kSuccess);
          return LogContains("accept: nobody has connected for 1 s; a rank without this plugin");
        }));
        const size_t lines = LogLines().size();
        for (int i = 0; i < 100; ++i) EXPECT_EQ(net.accept(listen_comm, &receive_comm), nccl::kSuccess);
        EXPECT_EQ(LogLines().size(), lines);
        EXPECT_EQ(net.close_listen(listen_comm), nccl::kSuccess);
      },
      {{"FORGIVE_PEER_TIMEOUT_S", "1"}});
}

// Hosts with different NCCLs load different tables of the one library.
TEST(PluginVersions, ConnectsTheOldestTableWithTheNewest) {
  ExpectInChild({}, [] {
    const Library library;
    const Net old_net = library.Table(6);
    const Net new_net = library.Table(12);
    ASSERT_EQ(old_net.init(), nccl::kSuccess);
    ASSERT_EQ(new_net.init(), nccl::kSuccess);
    for (const auto& [from, to] : {std::pair{&old_net, &new_net}, std::pair{&new_net, &old_net}}) {
      alignas(8) char handle[nccl::kHandleBytes];
      void* listen_comm = nullptr;
      ASSERT_EQ(to->listen(0, handle, &listen_comm), nccl::kSuccess);
      void* send_comm = nullptr;
      void* receive_comm = nullptr;
      ASSERT_TRUE(PollUntil([&, from = from, to = to] {
        if (send_comm == nullptr) {
          EXPECT_EQ(from->connect(0, handle, &send_comm), nccl::kSuccess);
        }
        if (receive_comm == nullptr) {
          EXPECT_EQ(to->accept(listen_comm, &receive_comm), nccl::kSuccess);
        }
        return ::testing::Test::HasFailure() || (send_comm != nullptr && receive_comm != nullptr);
      }));
      void* sent = nullptr;
      int tag = 0;
      int bytes = 0;
      void* nothing = nullptr;
      void* received = nullptr;
      EXPECT_EQ(to->receive(receive_comm, 1, &nothing, &bytes, &tag, &nothing, &received), nccl::kSuccess);
      EXPECT_EQ(from->send(send_comm, nullptr, 0, 0, nullptr, &sent), nccl::kSuccess);
      EXPECT_EQ(Wait(*to, received), nccl::kSuccess);
      EXPECT_EQ(Wait(*from, sent), nccl::kSuccess);
      EXPECT_EQ(from->close_send(send_comm), nccl::kSuccess);
      EXPECT_EQ(to->close_receive(receive_comm), nccl::kSuccess);
      EXPECT_EQ(to->close_listen(listen_comm), nccl::kSuccess);
    }
  });
}

}  // namespace
}  // namespace forgive::testing
