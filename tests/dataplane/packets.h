// SPDX-License-Identifier: Apache-2.0
// Packets for tests of drivers, and loops that move them with a bound.
#ifndef FORGIVE_TESTS_DATAPLANE_PACKETS_H_
#define FORGIVE_TESTS_DATAPLANE_PACKETS_H_

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "dataplane/clock.h"
#include "dataplane/driver.h"
#include "transport/wire.h"

namespace forgive {

// One received datagram, copied.
struct Received {
  std::string bytes;
  Address source;
  bool ce = false;
};

// Bytes that differ from packet to packet and never look like a data header.
inline std::string PatternBytes(uint64_t number, size_t length) {
  std::string bytes(length, '\0');
  uint64_t state = number * 0x9e3779b97f4a7c15u + 12345;
  for (char& byte : bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<char>(state >> 56);
  }
  if (!bytes.empty()) bytes[0] = static_cast<char>(0x80 | bytes[0]);
  return bytes;
}

// A packet with the first bytes in its header and the rest as a view of `bytes`, which must stay.
inline Transmit MakePacket(const Address& to, const std::string& bytes, PacketClass packet_class,
                           size_t header_length = 56) {
  Transmit packet;
  packet.destination = to;
  packet.packet_class = packet_class;
  packet.header_length = static_cast<uint32_t>(std::min(bytes.size(), header_length));
  std::memcpy(packet.header.data(), bytes.data(), packet.header_length);
  packet.payload = reinterpret_cast<const uint8_t*>(bytes.data()) + packet.header_length;
  packet.payload_length = static_cast<uint32_t>(bytes.size() - packet.header_length);
  return packet;
}

// A data packet as the wire has it, header and payload.
inline std::string DataPacketBytes(uint64_t connection_id, uint32_t message, uint32_t offset, uint16_t length) {
  DataHeader header;
  header.payload_length = length;
  header.connection_id = connection_id;
  header.stream_offset = offset;
  header.message_number = message;
  header.offset_in_message = offset;
  header.message_length = offset + length;
  std::string bytes(kDataHeaderBytes, '\0');
  WriteDataHeader(header, static_cast<const SipKey*>(nullptr), reinterpret_cast<uint8_t*>(bytes.data()));
  return bytes + PatternBytes(offset, length);
}

inline TimePoint TestDeadline() { return MonotonicNow() + Seconds(20); }

// Waits until the driver has something, or a millisecond.
inline void AwaitInput(const Driver& driver) {
  std::vector<pollfd> fds;
  for (int fd : driver.poll_fds()) fds.push_back({fd, POLLIN, 0});
  poll(fds.data(), fds.size(), 1);
}

// Takes what has arrived; one burst.
inline size_t ReceiveSome(Driver& driver, std::vector<Received>* out) {
  std::array<Datagram, 64> burst;
  const size_t count = driver.ReceiveBurst(burst);
  for (size_t i = 0; i < count; ++i) {
    out->push_back(
        {std::string(reinterpret_cast<const char*>(burst[i].bytes), burst[i].length), burst[i].source, burst[i].ce});
  }
  return count;
}

// Receives until `count` datagrams are there or a bound is reached.
inline std::vector<Received> ReceiveCount(Driver& driver, size_t count) {
  std::vector<Received> received;
  const TimePoint deadline = TestDeadline();
  while (received.size() < count && MonotonicNow() < deadline) {
    if (ReceiveSome(driver, &received) == 0) AwaitInput(driver);
  }
  return received;
}

// Receives until nothing has come for a while: for what must not arrive.
inline std::vector<Received> ReceiveRest(Driver& driver) {
  std::vector<Received> received;
  for (int quiet = 0; quiet < 30;) {
    if (ReceiveSome(driver, &received) == 0) {
      ++quiet;
      AwaitInput(driver);
    }
  }
  return received;
}

// Sends `bytes` to `at`, where `to` is, again and again until they arrive: the first packets may wait for a neighbour
// or be lost while a link comes up. Returns what arrived first; empty: nothing did.
inline Received SendUntilReceived(Driver& from, const Address& at, Driver& to, const std::string& bytes) {
  const TimePoint deadline = TestDeadline();
  while (MonotonicNow() < deadline) {
    const Transmit packet = MakePacket(at, bytes, PacketClass::kData);
    (void)from.SendBurst({&packet, 1});
    for (int i = 0; i < 20; ++i) {
      std::vector<Received> received;
      ReceiveSome(from, &received);  // an answer about the neighbour
      received.clear();
      if (ReceiveSome(to, &received) != 0) return received[0];
      usleep(500);
    }
  }
  return {};
}

// Sends all packets, with the receiver taking what arrives in between.
inline std::vector<Received> Exchange(Driver& sender, Driver& receiver, const std::vector<Transmit>& packets) {
  std::vector<Received> received;
  const TimePoint deadline = TestDeadline();
  size_t sent = 0;
  while (received.size() < packets.size() && MonotonicNow() < deadline) {
    if (sent < packets.size()) {
      sent += sender.SendBurst(std::span(packets).subspan(sent, std::min<size_t>(packets.size() - sent, 64)));
    }
    if (ReceiveSome(receiver, &received) == 0 && sent == packets.size()) AwaitInput(receiver);
  }
  return received;
}

}  // namespace forgive

#endif  // FORGIVE_TESTS_DATAPLANE_PACKETS_H_
