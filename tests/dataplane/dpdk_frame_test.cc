// SPDX-License-Identifier: Apache-2.0
// Tests of what the dpdk driver does without DPDK: options, frames, neighbours, the cache of places.
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <cstring>

#include "dataplane/clock.h"
#include "dataplane/dpdk/frame.h"
#include "dataplane/dpdk/lane.h"
#include "dataplane/dpdk/own_neighbours.h"
#include "dataplane/socket_address.h"
#include "packets.h"

namespace forgive {
namespace {

constexpr MacAddress kMacA{2, 0, 0, 0, 0, 0xa};
constexpr MacAddress kMacB{2, 0, 0, 0, 0, 0xb};

Address At(const std::string& host, uint16_t port) {
  Address address;
  EXPECT_TRUE(ParseAddress(host, port, &address));
  return address;
}

using Bytes = std::vector<uint8_t>;

// A frame from port 1000 to port 2000 with this UDP payload.
Bytes MakeFrame(bool ipv6, const std::string& payload, uint8_t traffic_class = 0) {
  const HeaderTemplate header(kMacA, kMacB, At(ipv6 ? "fd00::a" : "10.0.0.1", 1000),
                              At(ipv6 ? "fd00::b" : "10.0.0.2", 2000));
  Bytes frame(header.length());
  header.Write(traffic_class, payload.size(), true, frame.data());
  frame.insert(frame.end(), payload.begin(), payload.end());
  return frame;
}

std::string Body(const Frame& frame) {
  return std::string(reinterpret_cast<const char*>(frame.body), frame.body_length);
}

DpdkOptions Parsed(const std::string& text) {
  DpdkOptions options;
  std::string error;
  EXPECT_TRUE(ParseDpdkOptions(text, &options, &error)) << error;
  return options;
}

std::string ErrorOf(const std::string& text) {
  DpdkOptions options;
  std::string error;
  EXPECT_FALSE(ParseDpdkOptions(text, &options, &error)) << text;
  EXPECT_EQ(error.find('\n'), std::string::npos);
  return error;
}

TEST(DpdkFrame, ReadsWhatItWrote) {
  for (const bool ipv6 : {false, true}) {
    const std::string payload = PatternBytes(1, 777);
    const Bytes bytes = MakeFrame(ipv6, payload, 0x2b);
    const Frame frame = ReadFrame(bytes.data(), bytes.size());
    ASSERT_EQ(frame.kind, FrameKind::kUdp);
    EXPECT_EQ(Body(frame), payload);
    EXPECT_EQ(frame.traffic_class, 0x2b);
    EXPECT_EQ(frame.source, At(ipv6 ? "fd00::a" : "10.0.0.1", 1000));
    EXPECT_EQ(frame.destination, At(ipv6 ? "fd00::b" : "10.0.0.2", 2000));
    EXPECT_EQ(frame.source_mac, kMacA);
    EXPECT_FALSE(frame.stale);
  }
}

TEST(DpdkFrame, WritesAnIpv4ChecksumThatSumsToZero) {
  for (size_t size : {0u, 1u, 1472u, 4152u}) {
    const Bytes bytes = MakeFrame(false, std::string(size, 'x'), 0xb8);
    EXPECT_EQ(FoldChecksum(ChecksumSum(bytes.data() + kEthernetHeaderBytes, kIpv4HeaderBytes)), 0) << size;
  }
}

TEST(DpdkFrame, TakesTheLeastOfWhatFrameIpAndUdpSay) {
  for (const bool ipv6 : {false, true}) {
    const std::string payload = PatternBytes(1, 1000);
    const size_t headers = (ipv6 ? kIpv6HeaderBytes : kIpv4HeaderBytes) + kEthernetHeaderBytes + kUdpHeaderBytes;
    Bytes bytes = MakeFrame(ipv6, payload);
    bytes.resize(headers + 100);  // nothing was fixed by the switch
    Frame frame = ReadFrame(bytes.data(), bytes.size());
    EXPECT_EQ(Body(frame), payload.substr(0, 100));
    EXPECT_TRUE(frame.stale && frame.longer_by_ip);
    uint8_t* ip = bytes.data() + kEthernetHeaderBytes;
    WriteBigEndian16(static_cast<uint32_t>(100 + kUdpHeaderBytes + (ipv6 ? 0 : kIpv4HeaderBytes)),
                     ip + (ipv6 ? 4 : 2));
    bytes.resize(headers + 120);  // the IP length was, and the frame has a trailer
    frame = ReadFrame(bytes.data(), bytes.size());
    EXPECT_EQ(Body(frame), payload.substr(0, 100));
    EXPECT_TRUE(frame.stale && !frame.longer_by_ip);
    WriteBigEndian16(60 + kUdpHeaderBytes, bytes.data() + headers - 4);
    frame = ReadFrame(bytes.data(), bytes.size());
    EXPECT_EQ(Body(frame), payload.substr(0, 60));
    EXPECT_FALSE(frame.stale);
  }
}

TEST(DpdkFrame, LooksThroughTwoVlanTags) {
  Bytes bytes = MakeFrame(false, "payload");
  const uint8_t tags[] = {0x88, 0xa8, 0, 7, 0x81, 0, 0, 9};
  bytes.insert(bytes.begin() + 12, tags, tags + sizeof(tags));
  const Frame frame = ReadFrame(bytes.data(), bytes.size());
  EXPECT_EQ(Body(frame), "payload");
}

TEST(DpdkFrame, ReadsNothingBehindTheEndOfAnyPrefix) {
  for (const bool ipv6 : {false, true}) {
    const Bytes whole = MakeFrame(ipv6, "0123456789");
    for (size_t length = 0; length <= whole.size(); ++length) {
      // Exactly as long as the prefix, so that a sanitizer sees a read behind it.
      const Bytes prefix(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length));
      const Frame frame = ReadFrame(prefix.data(), prefix.size());
      const size_t headers = whole.size() - 10;
      EXPECT_EQ(frame.kind == FrameKind::kUdp, length >= headers) << length;
      if (length >= headers) {
        EXPECT_EQ(frame.body_length, length - headers);
      }
    }
  }
}

TEST(DpdkFrame, RefusesFragmentsAndOtherProtocols) {
  Bytes bytes = MakeFrame(false, "payload");
  bytes[kEthernetHeaderBytes + 6] = 0x20;  // more fragments
  EXPECT_EQ(ReadFrame(bytes.data(), bytes.size()).kind, FrameKind::kOther);
  bytes = MakeFrame(false, "payload");
  bytes[kEthernetHeaderBytes + 9] = IPPROTO_TCP;
  EXPECT_EQ(ReadFrame(bytes.data(), bytes.size()).kind, FrameKind::kOther);
  bytes = MakeFrame(false, "payload");
  bytes[kEthernetHeaderBytes] = 0x4f;  // a header longer than the packet
  EXPECT_EQ(ReadFrame(bytes.data(), bytes.size()).kind, FrameKind::kOther);
}

// ---- Options ----

TEST(DpdkOptions, GiveEachPortTheWordsBehindIt) {
  const DpdkOptions options = Parsed(
      "--no-huge --vdev=net_memif0,role=client address=10.0.0.1/24 gateway=10.0.0.254 mtu=4500 "
      "--vdev net_af_packet1,iface=eth7 neighbour=10.0.1.2@02:00:00:00:00:0b address=10.0.1.1/24");
  ASSERT_EQ(options.ports.size(), 2u);
  EXPECT_EQ(options.huge_pages, HugePages::kOff);
  EXPECT_EQ(options.ports[0].address, "10.0.0.1");
  EXPECT_EQ(options.ports[0].prefix_bits, 24);
  EXPECT_EQ(options.ports[0].gateway, "10.0.0.254");
  EXPECT_EQ(options.ports[0].mtu_bytes, 4500u);
  EXPECT_EQ(options.ports[1].interface, "eth7");
  EXPECT_EQ(options.ports[1].argument("framesz"), "4608");
  ASSERT_EQ(options.ports[1].neighbours.size(), 1u);
  EXPECT_EQ(options.ports[1].neighbours[0].second, kMacB);
}

TEST(DpdkOptions, TakePciAddressesInEveryForm) {
  const DpdkOptions options =
      Parsed("0000:3b:00.0 address=10.0.0.1/8 -a 3b:00.1 address=10.0.0.2/8 --allow=af:00.0,x=1 address=10.0.0.3/8");
  ASSERT_EQ(options.ports.size(), 3u);
  for (const DpdkPortOptions& port : options.ports) EXPECT_TRUE(port.is_pci()) << port.device;
  EXPECT_EQ(options.ports[2].device, "af:00.0,x=1");
}

TEST(DpdkOptions, NameTheWordThatIsWrong) {
  EXPECT_NE(ErrorOf("--vdef=net_null0").find("\"--vdef=net_null0\""), std::string::npos);
  EXPECT_NE(ErrorOf("--vdev=crypto_null0").find("\"--vdev=crypto_null0\""), std::string::npos);
  EXPECT_NE(ErrorOf("address=10.0.0.1/24").find("\"address=10.0.0.1/24\""), std::string::npos);
  EXPECT_NE(ErrorOf("--vdev=net_null0 address=10.0.0.1").find("\"address=10.0.0.1\""), std::string::npos);
  EXPECT_NE(ErrorOf("--vdev=net_null0 address=10.0.0.1/33").find("/33"), std::string::npos);
  EXPECT_NE(ErrorOf("--iova-mode=pv").find("\"--iova-mode=pv\""), std::string::npos);
  EXPECT_NE(ErrorOf("--huge-dir=/nowhere").find("\"--huge-dir=/nowhere\""), std::string::npos);
  // A path that the kernel refuses to look at is a wrong word too.
  EXPECT_NE(ErrorOf("--huge-dir=" + std::string(300, 'a')).find("--huge-dir=aaa"), std::string::npos);
  EXPECT_NE(ErrorOf("--vdev=net_null0").find("address=IP/BITS"), std::string::npos);
  EXPECT_NE(ErrorOf("--vdev=net_null0 address=10.0.0.1/8 --vdev=net_null0,copy=1 address=10.0.0.2/8").find("twice"),
            std::string::npos);
}

// ---- Neighbours ----

DpdkPortOptions PortAt(const std::string& address, uint8_t bits, const std::string& gateway = "") {
  DpdkPortOptions port;
  port.device = "net_null0";
  port.address = address;
  port.prefix_bits = bits;
  port.gateway = gateway;
  return port;
}

// Carries questions and answers between two until both are silent.
void Talk(OwnNeighbours& a, OwnNeighbours& b, TimePoint now) {
  std::array<uint8_t, kResolverFrameBytes> question;
  std::array<uint8_t, kResolverFrameBytes> answer;
  for (size_t length = 0; (length = a.NextQuestion(now, question)) != 0;) {
    const Frame asked = ReadFrame(question.data(), length);
    const size_t answered = b.OnFrame(asked, answer);
    if (answered == 0) continue;
    EXPECT_EQ(a.OnFrame(ReadFrame(answer.data(), answered), question), 0u);
  }
}

TEST(OwnNeighbours, LearnFromTheAnswerToTheirQuestion) {
  for (const bool ipv6 : {false, true}) {
    const std::string host_a = ipv6 ? "fd00::a" : "10.0.0.1";
    const std::string host_b = ipv6 ? "fd00::b" : "10.0.0.2";
    OwnNeighbours a(kMacA, At(host_a, 0), PortAt(host_a, ipv6 ? 64 : 24));
    OwnNeighbours b(kMacB, At(host_b, 0), PortAt(host_b, ipv6 ? 64 : 24));
    const TimePoint now = MonotonicNow();
    EXPECT_EQ(a.Resolve(At(host_b, 2000), now).state, HopState::kAsked);
    EXPECT_FALSE(a.Poll(now));
    Talk(a, b, now);
    EXPECT_TRUE(a.Poll(now));
    const Hop hop = a.Resolve(At(host_b, 2000), now);
    EXPECT_EQ(hop.state, HopState::kKnown);
    EXPECT_EQ(hop.mac, kMacB);
  }
}

TEST(OwnNeighbours, AskAgainLaterAndNotAtOnce) {
  OwnNeighbours a(kMacA, At("10.0.0.1", 0), PortAt("10.0.0.1", 24));
  const TimePoint now = MonotonicNow();
  std::array<uint8_t, kResolverFrameBytes> frame;
  EXPECT_EQ(a.NextQuestion(now, frame), 0u);
  a.Resolve(At("10.0.0.9", 1), now);
  EXPECT_NE(a.NextQuestion(now, frame), 0u);
  EXPECT_EQ(a.NextQuestion(now, frame), 0u);
  EXPECT_NE(a.NextQuestion(now + Milliseconds(100), frame), 0u);
}

TEST(OwnNeighbours, SendWhatIsOutsideTheSubnetToTheGateway) {
  OwnNeighbours with(kMacA, At("10.0.0.1", 0), PortAt("10.0.0.1", 24, "10.0.0.254"));
  OwnNeighbours without(kMacA, At("10.0.0.1", 0), PortAt("10.0.0.1", 24));
  OwnNeighbours gateway(kMacB, At("10.0.0.254", 0), PortAt("10.0.0.254", 24));
  const TimePoint now = MonotonicNow();
  EXPECT_EQ(without.Resolve(At("10.0.1.2", 1), now).state, HopState::kNoRoute);
  EXPECT_EQ(with.Resolve(At("10.0.1.2", 1), now).state, HopState::kAsked);
  Talk(with, gateway, now);
  EXPECT_EQ(with.Resolve(At("10.0.1.2", 1), now).mac, kMacB);
  EXPECT_EQ(with.Resolve(At("fd00::1", 1), now).state, HopState::kNoRoute);
}

TEST(OwnNeighbours, DoNotLearnFromWhoWasNotAskedNorMoveWhatAnOptionFixed) {
  DpdkPortOptions port = PortAt("10.0.0.1", 24);
  port.neighbours.emplace_back("10.0.0.7", kMacA);
  OwnNeighbours a(kMacA, At("10.0.0.1", 0), port);
  OwnNeighbours stranger(kMacB, At("10.0.0.2", 0), PortAt("10.0.0.2", 24));
  OwnNeighbours impostor(kMacB, At("10.0.0.7", 0), PortAt("10.0.0.7", 24));
  const TimePoint now = MonotonicNow();
  for (OwnNeighbours* other : {&stranger, &impostor}) {
    other->Resolve(At("10.0.0.1", 1), now);
    Talk(*other, a, now);
    EXPECT_EQ(other->Resolve(At("10.0.0.1", 1), now).state, HopState::kKnown);  // it was answered
  }
  EXPECT_EQ(a.Resolve(At("10.0.0.2", 1), now).state, HopState::kAsked);
  EXPECT_EQ(a.Resolve(At("10.0.0.7", 1), now).mac, kMacA);
}

// ---- Lanes ----

TEST(DpdkLane, KeepsAtMostItsBoundOfPlacesAndFindsRecentOnes) {
  Destinations destinations;
  for (uint32_t i = 0; i < 20000; ++i) {
    const Address address = At("10.0." + std::to_string(i / 200) + "." + std::to_string(i % 200), 7);
    destinations.Find(address).generation = i + 1;
    EXPECT_EQ(destinations.Find(address).generation, i + 1);
  }
  EXPECT_EQ(destinations.Find(At("10.0.0.0", 7)).generation, 0u);  // long forgotten
}

TEST(DpdkLane, TakesACutPacketWithoutTheCodePointForADropWhereItIsAskedFor) {
  const std::string data = DataPacketBytes(1, 0, 0, 1000).substr(0, 200);
  PlaceOptions options;
  options.dscp_trimmed = 11;
  options.require_trimmed_dscp = true;
  Lane lane(options);
  Datagram datagram;
  const Bytes plain = MakeFrame(false, data, 10 << 2);
  EXPECT_FALSE(lane.Accept(ReadFrame(plain.data(), plain.size()), false, &datagram));
  EXPECT_EQ(lane.counters.truncated, 1u);
  const Bytes trimmed = MakeFrame(false, data, 11 << 2);
  EXPECT_TRUE(lane.Accept(ReadFrame(trimmed.data(), trimmed.size()), false, &datagram));
  EXPECT_EQ(datagram.length, data.size());
}

TEST(DpdkLane, DropsWhatItsOwnRingCut) {
  Lane lane(PlaceOptions{});
  Datagram datagram;
  const Bytes bytes = MakeFrame(false, "payload");
  EXPECT_FALSE(lane.Accept(ReadFrame(bytes.data(), bytes.size()), true, &datagram));
  EXPECT_EQ(lane.counters.truncated, 1u);
}

}  // namespace
}  // namespace forgive
