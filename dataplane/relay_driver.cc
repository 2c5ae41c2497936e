// SPDX-License-Identifier: Apache-2.0
// A driver that sends every packet through a user-space relay, which stands for a trimming switch.
#include "dataplane/relay_driver.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "dataplane/socket_address.h"
#include "transport/check.h"

namespace forgive {
namespace {

constexpr size_t kBurst = 64;

class RelayDriver final : public Driver {
 public:
  RelayDriver(std::unique_ptr<Driver> inner, const Address& relay) : inner_(std::move(inner)), relay_(relay) {}

  size_t ReceiveBurst(std::span<Datagram> out) override {
    const size_t received = inner_->ReceiveBurst(out);
    size_t kept = 0;
    for (size_t i = 0; i < received; ++i) {
      Datagram datagram = out[i];
      uint8_t flags = 0;
      if (datagram.source != relay_ || !ReadRelayPrefix(datagram.bytes, datagram.length, &datagram.source, &flags)) {
        ++foreign_;
        continue;
      }
      datagram.bytes += kRelayPrefixBytes;
      datagram.length -= kRelayPrefixBytes;
      datagram.ce = (flags & FORGIVE_RELAY_CE) != 0;
      out[kept++] = datagram;
    }
    return kept;
  }
  bool receive_drained() const override { return inner_->receive_drained(); }

  size_t SendBurst(std::span<const Transmit> packets) override {
    size_t taken = 0;
    while (taken < packets.size()) {
      const size_t count = std::min(packets.size() - taken, kBurst);
      for (size_t i = 0; i < count; ++i) Wrap(packets[taken + i], &wrapped_[i]);
      const size_t sent = inner_->SendBurst(std::span<const Transmit>(wrapped_.data(), count));
      taken += sent;
      if (sent < count) break;
    }
    return taken;
  }

  Address local_address() const override { return inner_->local_address(); }
  uint32_t max_datagram_bytes() const override {
    const uint32_t inner = inner_->max_datagram_bytes();
    return inner > kRelayPrefixBytes ? inner - kRelayPrefixBytes : 0;
  }
  std::span<const int> poll_fds() const override { return inner_->poll_fds(); }
  int blocked_fd() const override { return inner_->blocked_fd(); }
  TimePoint next_deadline() const override { return inner_->next_deadline(); }
  DriverCounters counters() const override {
    DriverCounters counters = inner_->counters();
    counters.truncated += foreign_;
    return counters;
  }
  std::string description() const override {
    return inner_->description() + ", through relay " + AddressText(relay_);
  }

 private:
  void Wrap(const Transmit& packet, Transmit* out) const {
    out->destination = relay_;
    out->packet_class = packet.packet_class;
    out->dscp = packet.dscp;
    out->path = packet.path;
    out->connection = packet.connection;
    out->header_length = kRelayPrefixBytes;
    WriteRelayPrefix(packet.destination, 0, out->header.data());
    if (packet.header_length + kRelayPrefixBytes <= out->header.size()) {
      std::memcpy(out->header.data() + kRelayPrefixBytes, packet.header.data(), packet.header_length);
      out->header_length += packet.header_length;
      out->payload = packet.payload;
      out->payload_length = packet.payload_length;
      return;
    }
    // Only a report with many ranges is so long, and it has no payload: its bytes stay valid during the call.
    FORGIVE_CHECK(packet.payload_length == 0);
    out->payload = packet.header.data();
    out->payload_length = packet.header_length;
  }

  std::unique_ptr<Driver> inner_;
  const Address relay_;
  uint64_t foreign_ = 0;
  std::array<Transmit, kBurst> wrapped_;
};

}  // namespace

std::unique_ptr<Driver> MakeRelayDriver(std::unique_ptr<Driver> inner, const Address& relay) {
  return std::make_unique<RelayDriver>(std::move(inner), relay);
}

}  // namespace forgive
