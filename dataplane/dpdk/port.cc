// SPDX-License-Identifier: Apache-2.0
// A DPDK port with the UDP ports on it: bursts in and out, next hops, and delivery between its own UDP ports.
#include "dataplane/dpdk/port.h"

#include <rte_cycles.h>
#include <rte_prefetch.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include "dataplane/clock.h"
#include "dataplane/dpdk/own_neighbours.h"
#include "dataplane/socket_address.h"
#include "transport/check.h"

namespace forgive {
namespace {

constexpr size_t kMostLooks = 256;
constexpr Nanoseconds kHouseInterval = Milliseconds(1);
// As long as the kernel asks for a neighbour before it gives up.
constexpr Nanoseconds kHoldTime = Seconds(3);
constexpr Nanoseconds kAskAgain = Milliseconds(1);
constexpr Nanoseconds kNoRouteAgain = Seconds(1);

std::mutex ports_mutex;
std::map<std::string, std::weak_ptr<Port>>& Ports() {
  static auto* ports = new std::map<std::string, std::weak_ptr<Port>>;  // outlives every thread
  return *ports;
}

}  // namespace

std::shared_ptr<Port> Port::Open(const DpdkPortOptions& options, const Address& local, int asking_fd,
                                 std::string* error) {
  {
    const std::lock_guard<std::mutex> lock(ports_mutex);
    if (std::shared_ptr<Port> open = Ports()[options.name()].lock(); open != nullptr) return open;
  }
  std::shared_ptr<Port> port(new Port);
  if (!options.interface.empty()) {
    port->watch_ = LinkWatch::Open(options.interface, asking_fd >= 0, error);
    if (port->watch_ == nullptr) return nullptr;
    port->link_up_ = port->watch_->up();
  }
  port->device_ = PortDevice::Open(options, asking_fd >= 0, error);
  if (port->device_ == nullptr) return nullptr;
  if (port->watch_ == nullptr) port->link_up_ = port->device_->LinkUp(false);
  if (asking_fd >= 0) {
    port->resolver_ = KernelRoutes::Open(port->watch_.get(), asking_fd, error);
    if (port->resolver_ == nullptr) return nullptr;
  } else {
    port->resolver_ = std::make_unique<OwnNeighbours>(port->device_->mac(), local, options);
  }
  port->waiting_.reserve(kMostWaiting);
  port->house_cycles_ = rte_get_tsc_hz() / 1000;
  const std::lock_guard<std::mutex> lock(ports_mutex);
  Ports()[options.name()] = port;
  return port;
}

Port::~Port() { FORGIVE_CHECK(lanes_.empty()); }

bool Port::Attach(Lane* lane) {
  if (LaneOf(lane->match) != nullptr) return false;
  lanes_.push_back(lane);
  SteerToLanes();
  return true;
}

void Port::Detach(Lane* lane) {
  std::erase(lanes_, lane);
  ReleaseHandedOut(lane);
  while (lane->head != lane->tail) rte_pktmbuf_free(lane->queue[lane->head++ % Lane::kQueue].packet);
  std::erase_if(waiting_, [&](const Waiting& waiting) {
    if (waiting.lane != lane) return false;
    rte_pktmbuf_free(waiting.packet);
    return true;
  });
  if (!lanes_.empty()) SteerToLanes();
}

void Port::SteerToLanes() {
  std::vector<Address> places;
  for (const Lane* lane : lanes_) places.push_back(lane->match);
  device_->Steer(places);
}

Lane* Port::LaneOf(const Address& place) {
  for (Lane* lane : lanes_) {
    if (lane->match == place) return lane;
  }
  return nullptr;
}

TimePoint Port::next_deadline(const Lane& lane) const {
  if (lane.head != lane.tail) return TimePoint{};
  return waiting_.empty() ? kNever : house_time_ + kHouseInterval;
}

// ---- Receiving ----

void Port::ReleaseHandedOut(Lane* lane) {
  for (rte_mbuf* packet : lane->handed_out) rte_pktmbuf_free(packet);
  lane->handed_out.clear();
}

size_t Port::TakeQueued(Lane* lane, std::span<Datagram> out) {
  size_t count = 0;
  while (count < out.size() && lane->head != lane->tail) {
    const Lane::Queued& queued = lane->queue[lane->head++ % Lane::kQueue];
    out[count++] = queued.datagram;
    lane->handed_out.push_back(queued.packet);
  }
  return count;
}

size_t Port::Receive(Lane* lane, std::span<Datagram> out) {
  ReleaseHandedOut(lane);
  KeepHouse();
  out = out.first(std::min(out.size(), lane->handed_out.capacity()));
  size_t count = TakeQueued(lane, out);
  lane->drained = false;
  // Others' packets must not hold the caller: a null port, for one, always has some.
  for (size_t looked = 0; count < out.size() && looked < kMostLooks;) {
    const size_t wanted = std::min(kBurst, out.size() - count);
    const size_t got = device_->Receive(std::span(arrived_).first(wanted));
    for (size_t i = 0; i < got; ++i) {
      if (i + 1 < got) rte_prefetch0(rte_pktmbuf_mtod(arrived_[i + 1], const void*));
      if (Sort(arrived_[i], lane, &out[count])) ++count;
    }
    looked += got;
    if (got < wanted) {
      lane->drained = lane->head == lane->tail;
      break;
    }
  }
  return count;
}

bool Port::Sort(rte_mbuf* packet, Lane* lane, Datagram* datagram) {
  // Ports with small buffers chain them; datagrams are read as one piece.
  if (packet->nb_segs > 1 && rte_pktmbuf_linearize(packet) != 0) {
    rte_pktmbuf_free(packet);
    return false;
  }
  const size_t length = rte_pktmbuf_data_len(packet);
  const Frame frame = ReadFrame(rte_pktmbuf_mtod(packet, const uint8_t*), length);
  Lane* to = frame.kind == FrameKind::kUdp ? LaneOf(frame.destination) : nullptr;
  const uint32_t cut_from = device_->cut_frame_bytes();
  const bool cut_here = cut_from != 0 && length >= cut_from && frame.longer_by_ip;
  Datagram here;
  if (to == nullptr || !to->Accept(frame, cut_here, &here)) {
    if (frame.kind == FrameKind::kArp || frame.kind == FrameKind::kNeighbour) AnswerNeighbour(frame);
    rte_pktmbuf_free(packet);
    return false;
  }
  if (to == lane && lane->head == lane->tail) {
    *datagram = here;
    lane->handed_out.push_back(packet);
    return true;
  }
  if (to->QueueFull()) {
    ++to->counters.socket_drops;
    rte_pktmbuf_free(packet);
    return false;
  }
  to->Push({packet, here});
  return false;
}

void Port::AnswerNeighbour(const Frame& frame) {
  std::array<uint8_t, kResolverFrameBytes> answer;
  const size_t length = resolver_->OnFrame(frame, answer);
  if (length != 0) SendFrame(std::span(answer).first(length));
}

void Port::SendFrame(std::span<const uint8_t> frame) {
  rte_mbuf* packet = device_->AllocateWhole();
  if (packet == nullptr) return;
  auto* bytes = rte_pktmbuf_append(packet, static_cast<uint16_t>(frame.size()));
  std::memcpy(bytes, frame.data(), frame.size());
  if (device_->Send({&packet, 1}) == 0) rte_pktmbuf_free(packet);
}

// ---- Sending ----

size_t Port::Send(Lane* lane, std::span<const Transmit> packets) {
  KeepHouse();
  if (!link_up_) {
    lane->counters.send_errors += packets.size();
    return packets.size();
  }
  Burst burst;
  size_t taken = 0;
  for (; taken < packets.size(); ++taken) {
    const Placed placed = Place(lane, packets[taken], &burst);
    if (placed == Placed::kTryAgain) break;
    if (placed == Placed::kInBurst) burst.index[burst.count - 1] = taken;
    if (burst.count == kBurst && !Flush(&burst, &taken)) return taken;
  }
  (void)Flush(&burst, &taken);
  return taken;
}

// Sends what was collected. False: the port took not all of it, and *taken is the first that it did not take.
bool Port::Flush(Burst* burst, size_t* taken) {
  if (burst->count == 0) return true;
  const size_t sent = device_->Send(std::span(burst->packets).first(burst->count));
  for (size_t i = sent; i < burst->count; ++i) rte_pktmbuf_free(burst->packets[i]);
  const bool all = sent == burst->count;
  if (!all) *taken = burst->index[sent];
  burst->count = 0;
  return all;
}

void Port::Resolve(Lane* lane, Destination* destination, TimePoint now) {
  if (now < destination->ask_again && destination->state != HopState::kKnown) return;
  const Hop hop = resolver_->Resolve(destination->address, now);
  // What was known is used on while the kernel asks anew.
  if (hop.state == HopState::kAsked && destination->header.length() != 0) {
    destination->generation = generation_;
    return;
  }
  destination->state = hop.state;
  destination->generation = hop.state == HopState::kAsked ? 0 : generation_;
  destination->ask_again = now + (hop.state == HopState::kAsked ? kAskAgain : kNoRouteAgain);
  destination->header = hop.state == HopState::kKnown
                            ? HeaderTemplate(device_->mac(), hop.mac, lane->options.local, destination->address)
                            : HeaderTemplate();
}

Port::Placed Port::Place(Lane* lane, const Transmit& packet, Burst* burst) {
  const PlaceOptions& options = lane->options;
  const size_t bytes = packet.header_length + packet.payload_length;
  Destination& destination = lane->destinations.Find(packet.destination);
  const bool data = packet.packet_class == PacketClass::kData;
  const uint8_t dscp_data = packet.dscp == kDscpOfDriver ? options.dscp_data : packet.dscp;
  const auto traffic_class =
      static_cast<uint8_t>(data ? dscp_data << 2 | options.data_ecn : options.dscp_control << 2);
  if (destination.generation != generation_) {
    Address place = packet.destination;
    SetAddressScope(0, &place);
    SetAddressPort(AddressPort(options.local), &place);
    // Another UDP port of our own address: no port sends a frame to itself.
    if (place == lane->match) {
      SetAddressPort(AddressPort(packet.destination), &place);
      Lane* to = LaneOf(place);
      return to == nullptr ? Placed::kDone : DeliverHere(lane, to, packet);
    }
    const bool was_asked = destination.state == HopState::kAsked;
    Resolve(lane, &destination, MonotonicNow());
    // What was held back goes first.
    if (was_asked && destination.state == HopState::kKnown && !waiting_.empty()) SendWaiting(house_time_);
  }
  if (bytes > options.max_payload_bytes || destination.state == HopState::kNoRoute) {
    ++lane->counters.send_errors;
    return Placed::kDone;
  }
  if (destination.state == HopState::kAsked) return Hold(lane, packet, traffic_class);
  const HeaderTemplate& header = destination.header;
  uint8_t* out = nullptr;
  rte_mbuf* buffer = device_->AllocateSend(header.length(), packet, &out);
  if (buffer == nullptr) return Placed::kTryAgain;
  const bool by_port = device_->writes_ip_checksum() && !header.ipv6();
  header.Write(traffic_class, bytes, !by_port, out);
  if (by_port) {
    buffer->ol_flags |= RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IP_CKSUM;
    buffer->l2_len = kEthernetHeaderBytes;
    buffer->l3_len = kIpv4HeaderBytes;
  }
  burst->packets[burst->count++] = buffer;
  return Placed::kInBurst;
}

Port::Placed Port::DeliverHere(Lane* from, Lane* to, const Transmit& packet) {
  if (to->QueueFull()) return Placed::kTryAgain;
  rte_mbuf* copy = device_->AllocateWhole();
  if (copy == nullptr) return Placed::kTryAgain;
  const size_t bytes = packet.header_length + packet.payload_length;
  auto* out = reinterpret_cast<uint8_t*>(rte_pktmbuf_append(copy, static_cast<uint16_t>(bytes)));
  if (out == nullptr) {
    rte_pktmbuf_free(copy);
    ++from->counters.send_errors;
    return Placed::kDone;
  }
  std::memcpy(out, packet.header.data(), packet.header_length);
  if (packet.payload_length != 0) std::memcpy(out + packet.header_length, packet.payload, packet.payload_length);
  Datagram datagram;
  datagram.source = from->options.local;
  datagram.bytes = out;
  datagram.length = bytes;
  to->Push({copy, datagram});
  return Placed::kDone;
}

Port::Placed Port::Hold(Lane* lane, const Transmit& packet, uint8_t traffic_class) {
  if (waiting_.size() == kMostWaiting) return Placed::kTryAgain;
  rte_mbuf* copy = device_->AllocateWhole();
  if (copy == nullptr) return Placed::kTryAgain;
  const size_t bytes = packet.header_length + packet.payload_length;
  auto* out = rte_pktmbuf_append(copy, static_cast<uint16_t>(bytes));
  FORGIVE_CHECK(out != nullptr);  // a whole packet has room for the largest payload
  std::memcpy(out, packet.header.data(), packet.header_length);
  if (packet.payload_length != 0) std::memcpy(out + packet.header_length, packet.payload, packet.payload_length);
  house_time_ = MonotonicNow();
  waiting_.push_back({copy, lane, packet.destination, traffic_class, house_time_ + kHoldTime});
  house_due_ = 0;  // ask at once
  return Placed::kDone;
}

// ---- Now and then ----

void Port::KeepHouse() {
  const uint64_t cycles = rte_rdtsc();
  if (cycles < house_due_) return;
  house_due_ = cycles + house_cycles_;
  house_time_ = MonotonicNow();
  if (resolver_->Poll(house_time_)) ++generation_;
  if (watch_ != nullptr) {
    if (!device_->kernel_address()) (void)watch_->Poll();
    link_up_ = watch_->up();
  } else {
    link_up_ = device_->LinkUp(link_up_);
  }
  if (!link_up_) return;
  std::array<uint8_t, kResolverFrameBytes> question;
  const size_t length = resolver_->NextQuestion(house_time_, question);
  if (length != 0) SendFrame(std::span(question).first(length));
  if (!waiting_.empty()) SendWaiting(house_time_);
}

void Port::SendWaiting(TimePoint now) {
  size_t kept = 0;
  for (Waiting& waiting : waiting_) {
    Destination& destination = waiting.lane->destinations.Find(waiting.destination);
    if (destination.generation != generation_) Resolve(waiting.lane, &destination, now);
    if (destination.state == HopState::kAsked && now < waiting.give_up) {
      waiting_[kept++] = waiting;
      continue;
    }
    bool sent = false;
    if (destination.state == HopState::kKnown) {
      const HeaderTemplate& header = destination.header;
      const size_t bytes = rte_pktmbuf_pkt_len(waiting.packet);
      auto* out = rte_pktmbuf_prepend(waiting.packet, static_cast<uint16_t>(header.length()));
      header.Write(waiting.traffic_class, bytes, true, reinterpret_cast<uint8_t*>(out));
      sent = device_->Send({&waiting.packet, 1}) == 1;
    }
    if (sent) continue;
    ++waiting.lane->counters.send_errors;
    rte_pktmbuf_free(waiting.packet);
  }
  waiting_.resize(kept);
}

}  // namespace forgive
