// SPDX-License-Identifier: Apache-2.0
// What an attacker sends: forgeries, replays, cut, flipped and malformed packets, and lies by ICMP, made from what it saw.
#include "attack_packets.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <netinet/udp.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "transport/wire_layout.h"

namespace forgive::attack {
namespace {

constexpr const char* kNames[kKinds] = {"data",    "report",      "control", "connect",   "reply", "replay",
                                        "trimmed", "replay-other", "flipped", "malformed", "icmp",  "blind"};
// The mark of an attacker's own packets in IP's identification, so that nobody replays forgeries.
constexpr uint16_t kOwnMark = 0xa77a;
constexpr size_t kKept[8] = {0, 2048, 512, 64, 64, 64, 64, 64};
// A copy that overtakes the genuine packet is that packet; an attacker on this path would be the switch.
constexpr int64_t kLeastAgeNs = 3000000;
constexpr size_t kTagAt[8] = {0, 48, 72, 72, 72, 24, 24, 24};

uint16_t Load16(const uint8_t* bytes) { return static_cast<uint16_t>(bytes[0] << 8 | bytes[1]); }
void Store16(uint8_t* bytes, uint16_t value) {
  bytes[0] = static_cast<uint8_t>(value >> 8);
  bytes[1] = static_cast<uint8_t>(value);
}
void Add32(uint8_t* bytes, uint32_t more) {
  uint32_t value;
  std::memcpy(&value, bytes, sizeof value);
  value = htonl(ntohl(value) + more);
  std::memcpy(bytes, &value, sizeof value);
}

// The Internet checksum of whole 16-bit words.
uint16_t Checksum(const uint8_t* bytes, size_t length) {
  uint32_t sum = 0;
  for (size_t i = 0; i + 1 < length; i += 2) sum += Load16(bytes + i);
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

void WriteIpHeader(uint8_t protocol, uint32_t source, uint32_t destination, size_t payload, uint8_t* out) {
  iphdr header{};
  header.version = 4;
  header.ihl = 5;
  header.tos = 10 << 2 | 2;
  header.tot_len = htons(static_cast<uint16_t>(sizeof header + payload));
  header.id = htons(kOwnMark);
  header.frag_off = htons(IP_DF);
  header.ttl = 64;
  header.protocol = protocol;
  header.saddr = source;
  header.daddr = destination;
  std::memcpy(out, &header, sizeof header);
  Store16(out + offsetof(iphdr, check), Checksum(out, sizeof header));
}

void WriteUdp(const Seen& what, std::vector<uint8_t>* packet) {
  packet->resize(sizeof(iphdr) + sizeof(udphdr));
  WriteIpHeader(IPPROTO_UDP, what.source, what.destination, sizeof(udphdr) + what.payload.size(), packet->data());
  udphdr udp{};  // checksum 0: none
  udp.source = what.source_port;
  udp.dest = what.destination_port;
  udp.len = htons(static_cast<uint16_t>(sizeof udp + what.payload.size()));
  std::memcpy(packet->data() + sizeof(iphdr), &udp, sizeof udp);
  packet->insert(packet->end(), what.payload.begin(), what.payload.end());
}

// To the one who sent it, about the packet that was seen, as a router on the way would write it.
void WriteIcmp(const Seen& about, bool fragmentation, std::vector<uint8_t>* packet) {
  constexpr size_t kQuoted = sizeof(iphdr) + sizeof(udphdr);
  packet->resize(sizeof(iphdr) + sizeof(icmphdr) + kQuoted);
  WriteIpHeader(IPPROTO_ICMP, about.destination, about.source, sizeof(icmphdr) + kQuoted, packet->data());
  icmphdr icmp{};
  icmp.type = ICMP_DEST_UNREACH;
  icmp.code = fragmentation ? ICMP_FRAG_NEEDED : ICMP_PORT_UNREACH;
  icmp.un.frag.mtu = fragmentation ? htons(576) : 0;
  uint8_t* at = packet->data() + sizeof(iphdr);
  std::memcpy(at, &icmp, sizeof icmp);
  WriteIpHeader(IPPROTO_UDP, about.source, about.destination, sizeof(udphdr) + about.payload.size(),
                at + sizeof icmp);
  udphdr udp{};
  udp.source = about.source_port;
  udp.dest = about.destination_port;
  udp.len = htons(static_cast<uint16_t>(sizeof udp + about.payload.size()));
  std::memcpy(at + sizeof icmp + sizeof(iphdr), &udp, sizeof udp);
  Store16(at + offsetof(icmphdr, checksum), Checksum(at, sizeof icmp + kQuoted));
}

// How long the datagram is that begins a super-packet's rest: data say so themselves, nothing else is coalesced.
size_t DatagramLength(const uint8_t* bytes, size_t rest) {
  if (rest < sizeof(forgive_data_header) || bytes[1] != FORGIVE_TYPE_DATA) return rest;
  return std::min(rest, sizeof(forgive_data_header) + Load16(bytes + offsetof(forgive_data_header, payload_length)));
}

}  // namespace

const char* Name(Kind kind) { return kNames[static_cast<size_t>(kind)]; }

bool ParseKind(const std::string& name, Kind* kind) {
  for (size_t i = 0; i < kKinds; ++i) {
    if (name != kNames[i]) continue;
    *kind = static_cast<Kind>(i);
    return true;
  }
  return false;
}

void Memory::See(const uint8_t* packet, size_t length, int64_t now_ns) {
  iphdr ip;
  udphdr udp;
  if (length < sizeof ip + sizeof udp) return;
  std::memcpy(&ip, packet, sizeof ip);
  const size_t header = size_t{ip.ihl} * 4;
  if (ip.version != 4 || ip.protocol != IPPROTO_UDP || ip.id == htons(kOwnMark) || length < header + sizeof udp) return;
  std::memcpy(&udp, packet + header, sizeof udp);
  size_t at = header + sizeof udp;
  while (length - at >= sizeof(forgive_control)) {
    const size_t datagram = DatagramLength(packet + at, length - at);
    Seen seen{ip.saddr, ip.daddr, udp.source, udp.dest, now_ns, {packet + at, packet + at + datagram}};
    Keep(std::move(seen));
    at += datagram;
  }
}

void Memory::Keep(Seen seen) {
  const size_t type = seen.payload[1];
  if (seen.payload[0] != FORGIVE_WIRE_VERSION || type == 0 || type > FORGIVE_TYPE_RESET) return;
  ++seen_;
  Shelf& shelf = shelves_[type];
  if (shelf.size() < kKept[type]) {
    shelf.push_back(std::move(seen));
  } else {
    shelf[next_[type]++ % kKept[type]] = std::move(seen);
  }
}

const Seen* Memory::Any(const Shelf& shelf, int64_t now_ns) {
  for (int tries = 0; !shelf.empty() && tries < 8; ++tries) {
    const Seen& seen = shelf[Next() % shelf.size()];
    if (now_ns - seen.at_ns >= kLeastAgeNs) return &seen;
  }
  return nullptr;
}

const Seen* Memory::AnyOf(std::initializer_list<size_t> types, int64_t now_ns) {
  const size_t first = Next() % types.size();
  for (size_t i = 0; i < types.size(); ++i) {
    const size_t type = types.begin()[(first + i) % types.size()];
    if (const Seen* seen = Any(shelves_[type], now_ns)) return seen;
  }
  return nullptr;
}

void Memory::Noise(std::vector<uint8_t>* bytes, size_t from) {
  for (size_t i = from; i < bytes->size(); ++i) (*bytes)[i] = static_cast<uint8_t>(Next());
}

// Everything of it is right but the tag.
bool Memory::Forge(Kind kind, int64_t now_ns, Seen* out) {
  const Seen* seen = nullptr;
  if (kind == Kind::kForgedData) seen = Any(shelves_[FORGIVE_TYPE_DATA], now_ns);
  if (kind == Kind::kForgedReport) seen = Any(shelves_[FORGIVE_TYPE_REPORT], now_ns);
  // Probes are rare: what a report's addressee is asked, it would be asked by one.
  if (kind == Kind::kForgedControl) seen = AnyOf({FORGIVE_TYPE_REPORT, FORGIVE_TYPE_DATA}, now_ns);
  if (kind == Kind::kForgedConnect) seen = Any(shelves_[FORGIVE_TYPE_CONNECT], now_ns);
  if (kind == Kind::kForgedReply) seen = Any(shelves_[FORGIVE_TYPE_CONNECT_REPLY], now_ns);
  if (seen == nullptr) return false;
  *out = *seen;
  std::vector<uint8_t>& payload = out->payload;
  if (kind == Kind::kForgedData) {
    Add32(&payload[offsetof(forgive_data_header, packet_number)], 1 + static_cast<uint32_t>(Next() % 64));
    if (Next() % 2 == 0) payload.resize(sizeof(forgive_data_header));
  } else if (kind == Kind::kForgedReport) {
    Add32(&payload[offsetof(forgive_report, report_number)], 1 + static_cast<uint32_t>(Next() % 64));
    payload[3] = FORGIVE_REPORT_EXEMPT_ELIGIBLE;
  } else if (kind == Kind::kForgedControl) {
    payload.resize(sizeof(forgive_control));
    payload[1] = static_cast<uint8_t>(FORGIVE_TYPE_PROBE + Next() % 3);
    std::fill(payload.begin() + 2, payload.begin() + 8, uint8_t{0});
    std::fill(payload.begin() + 16, payload.begin() + 20, uint8_t{0});
  } else if (kind == Kind::kForgedConnect) {
    for (size_t i = offsetof(forgive_connect, connection_id); i < offsetof(forgive_connect, capabilities); ++i)
      payload[i] = static_cast<uint8_t>(Next());
  }
  const size_t tag = kTagAt[payload[1]];
  for (size_t i = 0; i < 8; ++i) payload[tag + i] = static_cast<uint8_t>(Next());
  return true;
}

void Memory::Malform(std::vector<uint8_t>* payload) {
  const uint64_t way = Next() % 6;
  if (way == 0) {
    payload->resize(Next() % std::min<size_t>(payload->size(), 80));
  } else if (way == 1) {
    Noise(payload, 0);
  } else if (way == 2) {
    (*payload)[0] = static_cast<uint8_t>(Next());
  } else if (way == 3) {
    (*payload)[1] = static_cast<uint8_t>(8 + Next() % 240);
  } else if (way == 4) {
    for (size_t i = 4; i < 8; ++i) (*payload)[i] = 0xff;  // payload length, counts of ranges, sizes
  } else {
    payload->resize(payload->size() + 1 + Next() % 400);
  }
}

bool Memory::Payload(Kind kind, int64_t now_ns, Seen* out) {
  if (kind <= Kind::kForgedReply) return Forge(kind, now_ns, out);
  const Seen* seen = nullptr;
  if (kind == Kind::kReplay || kind == Kind::kReplayTrimmed || kind == Kind::kIcmp) {
    seen = Any(shelves_[FORGIVE_TYPE_DATA], now_ns);
  } else if (kind == Kind::kReplayOther) {
    seen = AnyOf({2, 3, 4, 5, 6, 7}, now_ns);
  } else {
    seen = AnyOf({1, 2, 3, 4, 5, 6, 7}, now_ns);
  }
  if (seen == nullptr) return false;
  *out = *seen;
  if (kind == Kind::kReplayTrimmed) out->payload.resize(sizeof(forgive_data_header));
  if (kind == Kind::kFlipped) {
    const size_t bit = Next() % (8 * std::min<size_t>(out->payload.size(), 400));
    out->payload[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
  }
  if (kind == Kind::kMalformed) Malform(&out->payload);
  if (kind == Kind::kBlind) {
    Noise(&out->payload, 2);
    out->source = htonl(0x7f000000 | static_cast<uint32_t>(1 + Next() % 250));  // anybody
  }
  return true;
}

bool Memory::Make(Kind kind, int64_t now_ns, uint16_t discard_port, std::vector<uint8_t>* packet) {
  Seen made;
  if (!Payload(kind, now_ns, &made)) return false;
  if (kind == Kind::kIcmp) {
    if (discard_port != 0) made.source_port = htons(discard_port);
    WriteIcmp(made, Next() % 2 == 0, packet);
    return true;
  }
  if (discard_port != 0) made.destination_port = htons(discard_port);
  WriteUdp(made, packet);
  return true;
}

}  // namespace forgive::attack
