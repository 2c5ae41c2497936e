// SPDX-License-Identifier: Apache-2.0
// What an attacker sends: forgeries, replays, cut, flipped and malformed packets, and lies by ICMP, made from what it saw.
#ifndef FORGIVE_TESTS_SECURITY_ATTACK_PACKETS_H_
#define FORGIVE_TESTS_SECURITY_ATTACK_PACKETS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace forgive::attack {

// One genuine datagram, as it passed. Addresses and ports in network byte order.
struct Seen {
  uint32_t source = 0;
  uint32_t destination = 0;
  uint16_t source_port = 0;
  uint16_t destination_port = 0;
  int64_t at_ns = 0;
  std::vector<uint8_t> payload;
};

// Ways to attack. Every one of them but kBlind needs somebody who sees the traffic.
enum class Kind : uint8_t {
  kForgedData,      // a data header of a live connection with a number ahead and a guessed tag
  kForgedReport,    // the same of a report, that says: everything arrived, and you are exempt
  kForgedControl,   // a probe or a reset, guessed
  kForgedConnect,   // a Connect to a listener that was seen, guessed; its full size
  kForgedReply,     // an answer to a Connect that was seen, guessed
  kReplay,          // a data packet once more
  kReplayTrimmed,   // its header alone, as a switch would cut it
  kReplayOther,     // a report, a handshake or a control packet once more
  kFlipped,         // any of them with one bit changed
  kMalformed,       // cut anywhere, lengths and counts that cannot be, noise, other versions
  kIcmp,            // "fragmentation needed, MTU 576" or "port unreachable" about a packet that was seen
  kBlind,           // right ports, and everything else guessed, as by somebody who sees nothing
};
inline constexpr size_t kKinds = 12;
const char* Name(Kind kind);
// False: not the name of one.
bool ParseKind(const std::string& name, Kind* kind);

// What was seen: the newest of the data, and the newest of everything that is rarer.
class Memory {
 public:
  explicit Memory(uint64_t seed) : random_(seed) {}

  // Takes one IPv4 packet with UDP in it; one that holds many datagrams (a super-packet) is taken apart. What is not
  // ours, or was sent by an attacker, is passed over.
  void See(const uint8_t* packet, size_t length, int64_t now_ns);
  uint64_t seen() const { return seen_; }

  // Makes a whole IPv4 packet of the kind. False: nothing was seen that it could be made from. `discard_port`: not
  // 0: to that port, whatever the kind says.
  bool Make(Kind kind, int64_t now_ns, uint16_t discard_port, std::vector<uint8_t>* packet);

 private:
  using Shelf = std::vector<Seen>;

  void Keep(Seen seen);
  const Seen* Any(const Shelf& shelf, int64_t now_ns);
  const Seen* AnyOf(std::initializer_list<size_t> types, int64_t now_ns);
  uint64_t Next() { return random_(); }
  void Noise(std::vector<uint8_t>* bytes, size_t from);
  bool Payload(Kind kind, int64_t now_ns, Seen* out);
  bool Forge(Kind kind, int64_t now_ns, Seen* out);
  void Malform(std::vector<uint8_t>* payload);

  std::mt19937_64 random_;
  std::array<Shelf, 8> shelves_;  // by type; 0 is empty
  std::array<size_t, 8> next_{};
  uint64_t seen_ = 0;
};

}  // namespace forgive::attack

#endif  // FORGIVE_TESTS_SECURITY_ATTACK_PACKETS_H_
