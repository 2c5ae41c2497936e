// SPDX-License-Identifier: Apache-2.0
// A network in memory for tests: a hub with ports, bounded queues, no loss and no delay of its own.
#include "dataplane/memory_driver.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <vector>

#include "dataplane/socket_address.h"
#include "transport/check.h"

namespace forgive {
namespace {

constexpr uint32_t kSlotBytes = kDataHeaderBytes + kMaxPayloadBytes;

}  // namespace

// One port. The hub's mutex guards the queue's indices and the slots that are filled; slots that were handed out
// belong to the receiver until its next ReceiveBurst.
class MemoryPort final : public Driver {
 public:
  MemoryPort(std::shared_ptr<MemoryHub> hub, uint16_t port, uint32_t queue_packets)
      : hub_(std::move(hub)), port_(port), slots_(queue_packets) {
    event_fd_[0] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    FORGIVE_CHECK(event_fd_[0] >= 0);
  }
  ~MemoryPort() override {
    hub_->Close(port_);
    close(event_fd_[0]);
  }

  size_t ReceiveBurst(std::span<Datagram> out) override {
    const std::lock_guard<std::mutex> lock(hub_->mutex_);
    head_ += handed_out_;
    handed_out_ = 0;
    while (handed_out_ < out.size() && head_ + handed_out_ != tail_) {
      const Slot& slot = slots_[(head_ + handed_out_) % slots_.size()];
      out[handed_out_++] = Datagram{slot.source, slot.bytes.data(), slot.length, slot.ce};
    }
    drained_ = head_ + handed_out_ == tail_;
    if (drained_ && signalled_) {
      uint64_t count;
      FORGIVE_CHECK(read(event_fd_[0], &count, sizeof(count)) == sizeof(count));
      signalled_ = false;
    }
    return handed_out_;
  }
  bool receive_drained() const override { return drained_; }

  size_t SendBurst(std::span<const Transmit> packets) override {
    size_t taken = 0;
    while (taken < packets.size() && hub_->Deliver(local_address(), packets[taken])) ++taken;
    return taken;
  }
  Address local_address() const override { return MemoryHub::PortAddress(port_); }
  uint32_t max_datagram_bytes() const override { return kSlotBytes; }
  std::span<const int> poll_fds() const override { return event_fd_; }
  DriverCounters counters() const override { return {}; }
  std::string description() const override { return "memory port " + std::to_string(port_); }

  // By any sender, under the hub's mutex. False: full.
  bool Push(const Address& source, const Transmit& packet, bool ce) {
    if (tail_ - head_ == slots_.size()) return false;
    Slot& slot = slots_[tail_ % slots_.size()];
    FORGIVE_CHECK(packet.header_length + packet.payload_length <= kSlotBytes);
    slot.source = source;
    slot.length = packet.header_length + packet.payload_length;
    slot.ce = ce;
    std::memcpy(slot.bytes.data(), packet.header.data(), packet.header_length);
    if (packet.payload_length != 0) {
      std::memcpy(slot.bytes.data() + packet.header_length, packet.payload, packet.payload_length);
    }
    ++tail_;
    if (!signalled_) {
      const uint64_t one = 1;
      FORGIVE_CHECK(write(event_fd_[0], &one, sizeof(one)) == sizeof(one));
      signalled_ = true;
    }
    return true;
  }

 private:
  struct Slot {
    Address source;
    size_t length = 0;
    bool ce = false;
    std::array<uint8_t, kSlotBytes> bytes;
  };

  std::shared_ptr<MemoryHub> hub_;
  const uint16_t port_;
  std::vector<Slot> slots_;
  uint64_t head_ = 0;
  uint64_t tail_ = 0;
  size_t handed_out_ = 0;
  bool drained_ = false;
  bool signalled_ = false;  // the event file descriptor is readable
  std::array<int, 1> event_fd_{-1};
};

std::shared_ptr<MemoryHub> MemoryHub::Make(uint32_t queue_packets) {
  return std::shared_ptr<MemoryHub>(new MemoryHub(queue_packets));
}

std::unique_ptr<Driver> MemoryHub::Open(uint16_t port) {
  std::unique_ptr<MemoryPort> opened;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (port == 0) {
      while (ports_.contains(next_port_)) ++next_port_;
      port = next_port_++;
    }
    if (ports_.contains(port)) return nullptr;
    opened = std::make_unique<MemoryPort>(shared_from_this(), port, queue_packets_);
    ports_[port] = opened.get();
  }
  return opened;
}

// IPv4's form, so that messages can show it.
Address MemoryHub::PortAddress(uint16_t port) {
  Address address;
  FORGIVE_CHECK(ParseAddress("127.255.255.254", port, &address));
  return address;
}

void MemoryHub::set_mark_every(uint32_t n) {
  const std::lock_guard<std::mutex> lock(mutex_);
  mark_every_ = n;
}

bool MemoryHub::Deliver(const Address& source, const Transmit& packet) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = ports_.find(AddressPort(packet.destination));
  if (found == ports_.end()) return true;
  const bool data = packet.packet_class == PacketClass::kData;
  const bool ce = data && mark_every_ != 0 && (data_packets_ + 1) % mark_every_ == 0;
  if (!found->second->Push(source, packet, ce)) return false;
  if (data) ++data_packets_;
  return true;
}

void MemoryHub::Close(uint16_t port) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ports_.erase(port);
}

}  // namespace forgive
