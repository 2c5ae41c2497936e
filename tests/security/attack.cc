// SPDX-License-Identifier: Apache-2.0
// An attacker on the path, for tests: sees a share of what passes on an interface of its own network namespace, and sends.
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "attack_packets.h"

// Newer than some C libraries' headers.
#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23
#endif

namespace forgive::attack {
namespace {

constexpr int64_t kSecond = 1000000000;
constexpr int64_t kTick = 1000000;
constexpr int kLooksPerTick = 4;  // captured packets a tick: a share is enough, and reading all would slow the victims

volatile sig_atomic_t g_stop = 0;

struct Options {
  std::string interface = "lo";
  uint32_t rate = 10000;
  uint32_t seconds = 60;
  uint64_t seed = 1;
  bool discard = false;
  std::string only;
};

int64_t Now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * kSecond + now.tv_nsec;
}

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "attack: %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(3);
}

int OpenTap(const std::string& interface) {
  const int tap = socket(AF_PACKET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, htons(ETH_P_IP));
  if (tap < 0) Die("packet socket (needs CAP_NET_RAW)");
  const int one = 1;
  setsockopt(tap, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one);
  sockaddr_ll at{};
  at.sll_family = AF_PACKET;
  at.sll_protocol = htons(ETH_P_IP);
  at.sll_ifindex = static_cast<int>(if_nametoindex(interface.c_str()));
  if (at.sll_ifindex == 0 || bind(tap, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0) Die("interface " + interface);
  return tap;
}

// A socket that nobody reads: what it gets is dropped once its small buffer is full.
uint16_t OpenDiscard() {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const int small = 4096;
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  socklen_t length = sizeof at;
  if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0) Die("discard port");
  getsockname(fd, reinterpret_cast<sockaddr*>(&at), &length);
  return ntohs(at.sin_port);
}

class Attacker {
 public:
  Attacker(const Options& options, std::vector<Kind> kinds)
      : memory_(options.seed), kinds_(std::move(kinds)), tap_(OpenTap(options.interface)), buffer_(1 << 17) {
    raw_ = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);
    if (raw_ < 0) Die("raw socket (needs CAP_NET_RAW)");
    // Its own lies about the MTU must not stop it.
    const int probe = IP_PMTUDISC_PROBE;
    setsockopt(raw_, IPPROTO_IP, IP_MTU_DISCOVER, &probe, sizeof probe);
    if (options.discard) discard_port_ = OpenDiscard();
  }

  // Until it is told to stop. Catches up after a delay, by at most a tenth of a second.
  void Run(uint32_t rate, int64_t end) {
    double due = 0;
    int64_t last = Now();
    while (g_stop == 0 && last < end) {
      const timespec tick{0, kTick};
      nanosleep(&tick, nullptr);
      const int64_t now = Now();
      due += static_cast<double>(std::min(now - last, kSecond / 10)) * rate / static_cast<double>(kSecond);
      last = now;
      Look(now);
      if (memory_.seen() == 0) due = 0;
      for (; due >= 1; due -= 1) Send(now);
      if (begun_ == 0 && sent_ != 0) begun_ = now;
    }
  }

  void Print() const {
    std::ostringstream text;
    text << "{\"sent\": " << sent_ << ", \"refused\": " << refused_ << ", \"seen\": " << memory_.seen()
         << ", \"seconds\": " << static_cast<double>(Now() - begun_) / static_cast<double>(kSecond) << ", \"kinds\": {";
    for (size_t i = 0; i < kinds_.size(); ++i) {
      text << (i == 0 ? "" : ", ") << '"' << Name(kinds_[i]) << "\": " << sent_of_[static_cast<size_t>(kinds_[i])];
    }
    std::printf("%s}}\n", text.str().c_str());
  }

 private:
  void Look(int64_t now) {
    for (int i = 0; i < kLooksPerTick; ++i) {
      const ssize_t length = recv(tap_, buffer_.data(), buffer_.size(), 0);
      if (length <= 0) return;
      memory_.See(buffer_.data(), static_cast<size_t>(length), now);
    }
  }

  // The next kind for which something was seen.
  void Send(int64_t now) {
    for (size_t i = 0; i < kinds_.size(); ++i) {
      const Kind kind = kinds_[turn_++ % kinds_.size()];
      if (!memory_.Make(kind, now, discard_port_, &packet_)) continue;
      sockaddr_in to{};
      to.sin_family = AF_INET;
      std::memcpy(&to.sin_addr, packet_.data() + 16, 4);
      const ssize_t sent = sendto(raw_, packet_.data(), packet_.size(), 0, reinterpret_cast<sockaddr*>(&to), sizeof to);
      if (sent < 0) {
        if (refused_++ == 0) std::fprintf(stderr, "attack: %s refused: %s\n", Name(kind), std::strerror(errno));
      } else {
        ++sent_;
        ++sent_of_[static_cast<size_t>(kind)];
      }
      return;
    }
  }

  Memory memory_;
  std::vector<Kind> kinds_;
  int tap_;
  int raw_ = -1;
  uint16_t discard_port_ = 0;
  std::vector<uint8_t> buffer_;
  std::vector<uint8_t> packet_;
  size_t turn_ = 0;
  int64_t begun_ = 0;
  uint64_t sent_ = 0;
  uint64_t refused_ = 0;
  std::array<uint64_t, kKinds> sent_of_{};
};

std::vector<Kind> KindsOf(const std::string& only) {
  std::vector<Kind> kinds;
  std::istringstream names(only);
  for (std::string name; std::getline(names, name, ',');) {
    Kind kind;
    if (!ParseKind(name, &kind)) {
      std::fprintf(stderr, "attack: --only: \"%s\" is no kind; known are", name.c_str());
      for (size_t i = 0; i < kKinds; ++i) std::fprintf(stderr, " %s", Name(static_cast<Kind>(i)));
      std::fprintf(stderr, "\n");
      std::exit(2);
    }
    kinds.push_back(kind);
  }
  for (size_t i = 0; only.empty() && i < kKinds; ++i) kinds.push_back(static_cast<Kind>(i));
  return kinds;
}

}  // namespace
}  // namespace forgive::attack

int main(int argc, char** argv) {
  using namespace forgive::attack;
  Options options;
  CLI::App app("Attacks the FORGIVE traffic that passes on an interface of this network namespace, for tests.");
  app.add_option("--interface", options.interface, "where it listens");
  app.add_option("--rate", options.rate, "packets a second")->check(CLI::Range(1u, 200000u));
  app.add_option("--seconds", options.seconds, "ends after so long, or at SIGTERM")->check(CLI::Range(1u, 7200u));
  app.add_option("--seed", options.seed, "of everything it guesses");
  app.add_flag("--discard", options.discard, "sends the same to a port that drops it");
  app.add_option("--only", options.only, "kinds by comma (data, replay, trimmed, ...)");
  CLI11_PARSE(app, argc, argv);
  struct sigaction stop{};
  stop.sa_handler = [](int) { g_stop = 1; };
  sigaction(SIGTERM, &stop, nullptr);
  sigaction(SIGINT, &stop, nullptr);
  Attacker attacker(options, KindsOf(options.only));
  std::printf("attacking\n");
  std::fflush(stdout);
  attacker.Run(options.rate, Now() + options.seconds * kSecond);
  attacker.Print();
  return 0;
}
