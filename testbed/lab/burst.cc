// SPDX-License-Identifier: Apache-2.0
// forgive_burst: background traffic in bursts, UDP that no switch may trim, on a schedule drawn from a seed.
//
// Each burst lasts 0.5 to 1.5 times --on-ms, each pause 0.5 to 1.5 times --off-ms, each goes to one of the
// destinations: all drawn from the seed alone, so that two runs load the fabric at the same instants.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "dataplane/parse_number.h"

namespace forgive::lab {
namespace {

constexpr std::int64_t kNanosecondsPerSecond = 1'000'000'000;
constexpr std::int64_t kTickNs = 500'000;
constexpr std::int64_t kMostCatchUpNs = 2'000'000;  // what a late process still sends at once
constexpr std::size_t kBatch = 32;
constexpr std::int64_t kFrameOverheadBytes = 8 + 20 + 14 + 24;  // UDP, IPv4, Ethernet, and its share of the wire
constexpr std::uint16_t kDiscardPort = 9;

struct Options {
  std::vector<sockaddr_in> destinations;
  std::int64_t rate_mbps = 0;
  std::int64_t on_ms = 0;
  std::int64_t off_ms = 0;
  std::int64_t duration_ms = 0;
  std::int64_t seed = 1;
  std::int64_t datagram_bytes = 4096;
  bool print_schedule = false;
};

struct Burst {
  std::int64_t start_ns;  // from the beginning
  std::int64_t length_ns;
  std::size_t destination;
};

volatile std::sig_atomic_t g_ended = 0;
void End(int) { g_ended = 1; }

std::int64_t Now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * kNanosecondsPerSecond + time.tv_nsec;
}

void SleepUntil(std::int64_t time) {
  const timespec until{time / kNanosecondsPerSecond, time % kNanosecondsPerSecond};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
}

// splitmix64: the same numbers from the same seed on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t value = state_;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
  }
  // From 0.5 to 1.5 times `mean_ns`.
  std::int64_t Around(std::int64_t mean_ns) {
    if (mean_ns <= 1) return mean_ns;
    return mean_ns / 2 + static_cast<std::int64_t>(Next() % static_cast<std::uint64_t>(mean_ns));
  }

 private:
  std::uint64_t state_;
};

std::vector<Burst> Schedule(const Options& options) {
  Random random(static_cast<std::uint64_t>(options.seed));
  std::vector<Burst> bursts;
  const std::int64_t end_ns = options.duration_ms * 1'000'000;
  std::int64_t time_ns = random.Around(options.off_ms * 1'000'000);
  while (time_ns < end_ns) {
    const std::int64_t length_ns = std::min(random.Around(options.on_ms * 1'000'000), end_ns - time_ns);
    const std::size_t destination = static_cast<std::size_t>(random.Next() % options.destinations.size());
    bursts.push_back({time_ns, length_ns, destination});
    time_ns += length_ns + random.Around(options.off_ms * 1'000'000);
  }
  return bursts;
}

class Source {
 public:
  explicit Source(const Options& options)
      : options_(options), payload_(static_cast<std::size_t>(options.datagram_bytes)) {}

  // 0, or 1 after an error line.
  int Open() {
    socket_ = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int on = 1;
    if (socket_ < 0 || setsockopt(socket_, SOL_SOCKET, SO_NO_CHECK, &on, sizeof on) != 0) {
      std::fprintf(stderr, "forgive_burst: a UDP socket: %s\n", std::strerror(errno));
      return 1;
    }
    payload_part_ = {payload_.data(), payload_.size()};
    return 0;
  }

  // Sends one burst that began at `start_ns`; ends with it or on a signal.
  void Play(std::int64_t start_ns, const Burst& burst) {
    const std::int64_t frame_ns = (options_.datagram_bytes + kFrameOverheadBytes) * 8 * 1000 / options_.rate_mbps;
    std::int64_t paid_ns = start_ns;  // what was sent fills the wire up to here
    while (g_ended == 0) {
      const std::int64_t now = std::min(Now(), start_ns + burst.length_ns);
      if (now - paid_ns > kMostCatchUpNs) {
        skipped_ += static_cast<std::uint64_t>((now - paid_ns - kMostCatchUpNs) / frame_ns);
        paid_ns = now - kMostCatchUpNs;
      }
      const std::int64_t due = (now - paid_ns) / frame_ns;
      Send(options_.destinations[burst.destination], due);
      paid_ns += due * frame_ns;
      if (now >= start_ns + burst.length_ns) return;
      SleepUntil(std::min(now + kTickNs, start_ns + burst.length_ns));
    }
  }

  std::uint64_t sent() const { return sent_; }
  std::uint64_t failed() const { return failed_; }
  std::uint64_t skipped() const { return skipped_; }

 private:
  void Send(const sockaddr_in& destination, std::int64_t count) {
    std::array<mmsghdr, kBatch> messages{};
    for (mmsghdr& message : messages) {
      message.msg_hdr.msg_name = const_cast<sockaddr_in*>(&destination);
      message.msg_hdr.msg_namelen = sizeof destination;
      message.msg_hdr.msg_iov = &payload_part_;
      message.msg_hdr.msg_iovlen = 1;
    }
    while (count > 0) {
      const auto batch = static_cast<unsigned>(std::min<std::int64_t>(count, kBatch));
      const int sent = sendmmsg(socket_, messages.data(), batch, 0);
      if (sent <= 0) {  // the local queue is full: as lost as in a full switch
        failed_ += static_cast<std::uint64_t>(count);
        return;
      }
      sent_ += static_cast<std::uint64_t>(sent);
      count -= sent;
    }
  }

  const Options options_;
  std::vector<char> payload_;
  iovec payload_part_{};
  int socket_ = -1;
  std::uint64_t sent_ = 0;
  std::uint64_t failed_ = 0;
  std::uint64_t skipped_ = 0;
};

int Run(const Options& options) {
  const std::vector<Burst> bursts = Schedule(options);
  if (options.print_schedule) {
    for (const Burst& burst : bursts) {
      std::printf("%lld %lld %zu\n", static_cast<long long>(burst.start_ns / 1000),
                  static_cast<long long>(burst.length_ns / 1000), burst.destination);
    }
    return 0;
  }
  Source source(options);
  if (source.Open() != 0) return 1;
  const std::int64_t begin = Now();
  std::size_t played = 0;
  for (const Burst& burst : bursts) {
    SleepUntil(begin + burst.start_ns);
    if (g_ended != 0) break;
    source.Play(begin + burst.start_ns, burst);
    ++played;
  }
  if (g_ended == 0) SleepUntil(begin + options.duration_ms * 1'000'000);
  std::printf("burst: %zu bursts, sent %llu datagrams of %lld bytes, %llu refused by the local queue, %llu skipped\n",
              played, static_cast<unsigned long long>(source.sent()), static_cast<long long>(options.datagram_bytes),
              static_cast<unsigned long long>(source.failed()), static_cast<unsigned long long>(source.skipped()));
  return 0;
}

struct NumberOption {
  const char* name;
  std::int64_t Options::*field;
  std::int64_t least;
  std::int64_t most;
};

constexpr NumberOption kNumberOptions[] = {
    {"--rate-mbps", &Options::rate_mbps, 1, 100'000}, {"--on-ms", &Options::on_ms, 1, 3'600'000},
    {"--off-ms", &Options::off_ms, 0, 3'600'000},     {"--duration-ms", &Options::duration_ms, 1, 86'400'000},
    {"--seed", &Options::seed, 0, INT64_MAX},         {"--datagram-bytes", &Options::datagram_bytes, 64, 8'900},
};

// Returns an empty string or what is wrong.
std::string ParseOption(const std::string& name, const std::string& value, Options* options) {
  if (name == "--to") {
    sockaddr_in destination{};
    destination.sin_family = AF_INET;
    destination.sin_port = htons(kDiscardPort);
    if (inet_pton(AF_INET, value.c_str(), &destination.sin_addr) != 1) return "is not an IPv4 address";
    options->destinations.push_back(destination);
    return "";
  }
  for (const NumberOption& known : kNumberOptions) {
    if (name != known.name) continue;
    std::int64_t number = 0;
    if (!ParseNumber(value, known.least, known.most, &number)) {
      return "must be a number from " + std::to_string(known.least) + " to " + std::to_string(known.most);
    }
    options->*known.field = number;
    return "";
  }
  return "is not an option";
}

}  // namespace
}  // namespace forgive::lab

int main(int count, char** arguments) {
  using namespace forgive::lab;
  Options options;
  for (int i = 1; i < count; i += 2) {
    const std::string name = arguments[i];
    if (name == "--print-schedule") {
      options.print_schedule = true;
      --i;
      continue;
    }
    const std::string error = i + 1 < count ? ParseOption(name, arguments[i + 1], &options) : "needs a value";
    if (!error.empty()) {
      std::fprintf(stderr, "forgive_burst: %s %s %s\n", name.c_str(), i + 1 < count ? arguments[i + 1] : "",
                   error.c_str());
      return 2;
    }
  }
  if (options.destinations.empty() || options.rate_mbps == 0 || options.on_ms == 0 || options.duration_ms == 0) {
    std::fprintf(stderr,
                 "usage: forgive_burst --to ADDRESS... --rate-mbps N --on-ms N --off-ms N --duration-ms N "
                 "[--seed N] [--datagram-bytes N] [--print-schedule]\n");
    return 2;
  }
  struct sigaction action {};
  action.sa_handler = End;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  prctl(PR_SET_TIMERSLACK, 1);
  return Run(options);
}
