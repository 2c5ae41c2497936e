// SPDX-License-Identifier: Apache-2.0
// The two layouts of the handle.
#include "plugin/handle.h"

#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "dataplane/socket_address.h"
#include "plugin/nccl_abi.h"
#include "transport/check.h"

namespace forgive {
namespace {

constexpr uint64_t kMagic = 0x464f524749564531;  // "FORGIVE1"

// What both begin with.
struct Head {
  uint64_t magic = kMagic;
  uint32_t version = 0;
  uint32_t rails = 0;  // 0 in version 1
};

struct OneRail {
  static constexpr uint32_t kVersion = 1;
  Head head{.version = kVersion};
  Address address;
  uint32_t reserved = 0;
  uint64_t listen_id = 0;
  SipKey secret;
  uint64_t connecting = 0;
};
static_assert(sizeof(OneRail) == 80 && sizeof(OneRail) <= nccl::kHandleBytes);
static_assert(std::is_trivially_copyable_v<OneRail>);

// IPv4 as IPv6 has it, ::ffff:a.b.c.d, in network byte order as the port is.
struct RailPlace {
  std::array<uint8_t, 16> host{};
  std::array<uint8_t, 2> port{};
};

struct SeveralRails {
  static constexpr uint32_t kVersion = 2;
  Head head{.version = kVersion};
  uint64_t listen_id = 0;
  SipKey secret;
  uint64_t connecting = 0;
  std::array<RailPlace, kMaxRails> places{};
};
static_assert(sizeof(SeveralRails) == 120 && sizeof(SeveralRails) <= nccl::kHandleBytes);
static_assert(std::is_trivially_copyable_v<SeveralRails>);

constexpr std::array<uint8_t, 12> kIpv4Prefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

RailPlace PlaceOf(const Address& address) {
  RailPlace place;
  sockaddr_storage storage;
  ToSocketAddress(address, &storage);
  if (AddressFamily(address) == AF_INET) {
    std::ranges::copy(kIpv4Prefix, place.host.begin());
    std::memcpy(&place.host[kIpv4Prefix.size()], &reinterpret_cast<const sockaddr_in&>(storage).sin_addr, 4);
  } else {
    std::memcpy(place.host.data(), &reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr, place.host.size());
  }
  const uint16_t port = AddressPort(address);
  place.port = {static_cast<uint8_t>(port >> 8), static_cast<uint8_t>(port)};
  return place;
}

Address AddressOf(const RailPlace& place) {
  Address address;
  if (std::equal(kIpv4Prefix.begin(), kIpv4Prefix.end(), place.host.begin())) {
    sockaddr_in ipv4{};
    ipv4.sin_family = AF_INET;
    std::memcpy(&ipv4.sin_addr, &place.host[kIpv4Prefix.size()], 4);
    address = ToAddress(reinterpret_cast<const sockaddr*>(&ipv4));
  } else {
    sockaddr_in6 ipv6{};
    ipv6.sin6_family = AF_INET6;
    std::memcpy(&ipv6.sin6_addr, place.host.data(), place.host.size());
    address = ToAddress(reinterpret_cast<const sockaddr*>(&ipv6));
  }
  SetAddressPort(static_cast<uint16_t>(place.port[0] << 8 | place.port[1]), &address);
  return address;
}

template <typename Layout>
void WriteTicket(const Handle& handle, Layout* out) {
  out->listen_id = handle.ticket.listen_id;
  out->secret = handle.ticket.secret;
  out->connecting = handle.connecting;
}

template <typename Layout>
Layout ReadAs(const void* bytes, Handle* out) {
  Layout layout;
  std::memcpy(&layout, bytes, sizeof(layout));
  out->ticket = {.listen_id = layout.listen_id, .secret = layout.secret};
  out->connecting = layout.connecting;
  return layout;
}

}  // namespace

void WriteHandle(const Handle& handle, void* bytes) {
  FORGIVE_CHECK(handle.rails >= 1 && handle.rails <= kMaxRails);
  std::memset(bytes, 0, nccl::kHandleBytes);
  if (handle.rails == 1) {
    OneRail layout;
    layout.address = handle.addresses[0];
    WriteTicket(handle, &layout);
    std::memcpy(bytes, &layout, sizeof(layout));
    return;
  }
  SeveralRails layout;
  layout.head.rails = handle.rails;
  for (uint32_t rail = 0; rail < handle.rails; ++rail) layout.places[rail] = PlaceOf(handle.addresses[rail]);
  WriteTicket(handle, &layout);
  std::memcpy(bytes, &layout, sizeof(layout));
}

HandleResult ReadHandle(const void* bytes, Handle* out) {
  Head head;
  std::memcpy(&head, bytes, sizeof(head));
  if (head.magic != kMagic) return HandleResult::kNotOurs;
  *out = Handle{};
  if (head.version == OneRail::kVersion) {
    out->addresses[0] = ReadAs<OneRail>(bytes, out).address;
    return HandleResult::kOk;
  }
  if (head.version != SeveralRails::kVersion || head.rails < 2 || head.rails > kMaxRails) {
    return HandleResult::kOtherVersion;
  }
  const auto layout = ReadAs<SeveralRails>(bytes, out);
  out->rails = head.rails;
  for (uint32_t rail = 0; rail < head.rails; ++rail) out->addresses[rail] = AddressOf(layout.places[rail]);
  return HandleResult::kOk;
}

}  // namespace forgive
