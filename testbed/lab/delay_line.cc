// SPDX-License-Identifier: Apache-2.0
// forgive_delay_line: gives every frame that comes in by an interface back on it, a fixed time later, in order.
//
// The switch sends each host's frame out of one end of a veth pair; this program holds the other end. The frames wait
// in the kernel's receive ring, which they are sent from when due: one copy in, one copy out, no memory but the ring.
// Frames due within a quantum leave together, up to that early, so that a busy line wakes thousands, not tens of
// thousands, of times a second; while no frame waits it sleeps.
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>

#include "dataplane/parse_number.h"

namespace forgive::lab {
namespace {

constexpr std::int64_t kNanosecondsPerSecond = 1'000'000'000;
constexpr std::uint32_t kSlotBytes = 9216;       // an Ethernet frame of MTU 9000 and the ring's own header
constexpr std::uint32_t kBlockBytes = 4 * 9216;  // the smallest multiple of both slot and page
constexpr std::uint32_t kMostFrames = 1u << 17;  // 1.2 GB
constexpr std::size_t kBatch = 64;               // frames to a system call
constexpr int kSendBufferBytes = 512 << 20;      // frames that wait in the switch's queues are still charged to us
constexpr std::int64_t kStatisticsPeriodNs = 50'000'000;

struct Options {
  std::string interface;
  std::string statistics;
  std::int64_t delay_ns = 0;
  std::uint32_t frames = 8192;
};

// What `lab status` shows.
struct Statistics {
  std::uint64_t forwarded = 0;
  std::uint64_t bytes = 0;
  std::uint64_t overflow = 0;  // the ring was full
  std::uint64_t too_long = 0;  // frames over the MTU
  std::uint64_t send_failed = 0;
  std::uint64_t batches = 0;
  std::uint64_t late_over_1ms = 0;  // left more than 1 ms after they were due
  std::uint64_t latest_us = 0;      // the worst of them
};

volatile std::sig_atomic_t g_ended = 0;
void End(int) { g_ended = 1; }

int Fail(const std::string& what) {
  std::fprintf(stderr, "forgive_delay_line: %s: %s\n", what.c_str(), std::strerror(errno));
  return 1;
}

std::int64_t Now(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return time.tv_sec * kNanosecondsPerSecond + time.tv_nsec;
}

timespec ToTimespec(std::int64_t nanoseconds) {
  return {nanoseconds / kNanosecondsPerSecond, nanoseconds % kNanosecondsPerSecond};
}

class DelayLine {
 public:
  explicit DelayLine(const Options& options)
      : options_(options), quantum_ns_(std::clamp<std::int64_t>(options.delay_ns / 25, 20'000, 200'000)) {}

  // 0, or 1 after an error line.
  int Open();
  // Until SIGTERM or SIGINT.
  void Run();

 private:
  tpacket2_hdr* Slot(std::uint32_t position) const {
    return reinterpret_cast<tpacket2_hdr*>(ring_ + std::size_t{position % options_.frames} * kSlotBytes);
  }
  static bool IsFilled(tpacket2_hdr* slot) {
    return (std::atomic_ref<std::uint32_t>(slot->tp_status).load(std::memory_order_acquire) & TP_STATUS_USER) != 0;
  }
  static void Release(tpacket2_hdr* slot) {
    std::atomic_ref<std::uint32_t>(slot->tp_status).store(TP_STATUS_KERNEL, std::memory_order_release);
  }
  int OpenRing();
  int OpenSender();
  std::int64_t DueTime(const tpacket2_hdr& slot, std::int64_t now, std::int64_t real_ahead) const;
  std::size_t CollectDue(std::int64_t now);
  void SendBatch(std::size_t count);
  void Sleep(std::int64_t duration) const;
  void SleepUntilFrame() const;
  void WriteStatistics();

  const Options options_;
  const std::int64_t quantum_ns_;
  int receiver_ = -1;
  int sender_ = -1;
  int statistics_file_ = -1;
  std::uint8_t* ring_ = nullptr;
  std::uint32_t head_ = 0;  // the oldest frame
  std::int64_t head_due_ = 0;
  const char* scheduling_ = "default";
  bool statistics_dirty_ = true;
  std::int64_t statistics_written_ns_ = 0;
  Statistics statistics_;
  std::array<mmsghdr, kBatch> messages_{};
  std::array<iovec, kBatch> frames_{};
};

int DelayLine::OpenRing() {
  receiver_ = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
  if (receiver_ < 0) return Fail("a packet socket (needs CAP_NET_RAW)");
  const int version = TPACKET_V2;
  const int on = 1;
  tpacket_req request{};
  request.tp_block_size = kBlockBytes;
  request.tp_frame_size = kSlotBytes;
  request.tp_frame_nr = options_.frames;
  request.tp_block_nr = options_.frames / (kBlockBytes / kSlotBytes);
  if (setsockopt(receiver_, SOL_PACKET, PACKET_VERSION, &version, sizeof version) != 0 ||
      setsockopt(receiver_, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) != 0 ||
      setsockopt(receiver_, SOL_PACKET, PACKET_RX_RING, &request, sizeof request) != 0) {
    return Fail("a receive ring of " + std::to_string(options_.frames) + " frames");
  }
  const std::size_t bytes = std::size_t{request.tp_block_nr} * kBlockBytes;
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, receiver_, 0);
  if (mapped == MAP_FAILED) return Fail("mapping the receive ring");
  ring_ = static_cast<std::uint8_t*>(mapped);
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(if_nametoindex(options_.interface.c_str()));
  if (address.sll_ifindex == 0) return Fail("interface " + options_.interface);
  if (bind(receiver_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return Fail(options_.interface);
  return 0;
}

int DelayLine::OpenSender() {
  sender_ = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
  if (sender_ < 0) return Fail("a packet socket (needs CAP_NET_RAW)");
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_ifindex = static_cast<int>(if_nametoindex(options_.interface.c_str()));
  const int on = 1;
  if (bind(sender_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      setsockopt(sender_, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof on) != 0 ||
      setsockopt(sender_, SOL_SOCKET, SO_SNDBUFFORCE, &kSendBufferBytes, sizeof kSendBufferBytes) != 0) {
    return Fail("the sending socket on " + options_.interface);
  }
  return 0;
}

int DelayLine::Open() {
  if (OpenRing() != 0 || OpenSender() != 0) return 1;
  statistics_file_ = open(options_.statistics.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (statistics_file_ < 0) return Fail(options_.statistics);
  for (std::size_t i = 0; i < kBatch; ++i) {
    messages_[i].msg_hdr.msg_iov = &frames_[i];
    messages_[i].msg_hdr.msg_iovlen = 1;
  }
  prctl(PR_SET_TIMERSLACK, 1);
  // The wire must not wait for the hosts that share this processor with it.
  const sched_param parameter{1};
  if (sched_setscheduler(0, SCHED_FIFO, &parameter) == 0) {
    scheduling_ = "fifo";
  } else if (setpriority(PRIO_PROCESS, 0, -20) == 0) {
    scheduling_ = "nice";
  }
  WriteStatistics();
  return 0;
}

// On the monotonic clock. The ring's stamps are on the real-time clock, which may be set while a frame waits.
std::int64_t DelayLine::DueTime(const tpacket2_hdr& slot, std::int64_t now, std::int64_t real_ahead) const {
  const std::int64_t arrived = std::int64_t{slot.tp_sec} * kNanosecondsPerSecond + slot.tp_nsec - real_ahead;
  return std::min(arrived, now) + options_.delay_ns;
}

// Puts the frames that are due within a quantum, from the head on, into messages_; sets head_due_ for the first that
// is not.
std::size_t DelayLine::CollectDue(std::int64_t now) {
  const std::int64_t real_ahead = Now(CLOCK_REALTIME) - now;
  std::size_t count = 0;
  for (; count < kBatch; ++count) {
    tpacket2_hdr* slot = Slot(head_ + static_cast<std::uint32_t>(count));
    if (!IsFilled(slot)) break;
    const std::int64_t due = DueTime(*slot, now, real_ahead);
    if (count == 0) head_due_ = due;
    if (due > now + quantum_ns_) break;
    const std::int64_t late = now - due;
    if (late > 1'000'000) {
      ++statistics_.late_over_1ms;
      statistics_.latest_us = std::max(statistics_.latest_us, static_cast<std::uint64_t>(late / 1000));
    }
    const bool is_cut = slot->tp_len > slot->tp_snaplen;  // longer than the ring's slots
    if (is_cut) ++statistics_.too_long;
    frames_[count] = {reinterpret_cast<std::uint8_t*>(slot) + slot->tp_mac, is_cut ? 0 : slot->tp_snaplen};
  }
  return count;
}

void DelayLine::SendBatch(std::size_t count) {
  std::size_t done = 0;
  while (done < count) {
    if (frames_[done].iov_len == 0) {
      ++done;
      continue;
    }
    std::size_t end = done;
    while (end < count && frames_[end].iov_len != 0) ++end;
    const int sent = sendmmsg(sender_, &messages_[done], static_cast<unsigned>(end - done), 0);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) {
      ++statistics_.send_failed;  // this one; the others get their own try
      ++done;
      continue;
    }
    for (int i = 0; i < sent; ++i) statistics_.bytes += frames_[done++].iov_len;
    statistics_.forwarded += static_cast<std::uint64_t>(sent);
  }
  for (std::size_t i = 0; i < count; ++i) Release(Slot(head_ + static_cast<std::uint32_t>(i)));
  head_ = (head_ + static_cast<std::uint32_t>(count)) % options_.frames;
  ++statistics_.batches;
  statistics_dirty_ = true;
}

// Signals are let in only while ppoll sleeps, so that none is missed between the look at g_ended and the sleep.
void DelayLine::Sleep(std::int64_t duration) const {
  sigset_t none;
  sigemptyset(&none);
  const timespec time = ToTimespec(std::max<std::int64_t>(duration, 0));
  ppoll(nullptr, 0, &time, &none);
}

void DelayLine::SleepUntilFrame() const {
  pollfd descriptor{receiver_, POLLIN, 0};
  sigset_t none;
  sigemptyset(&none);
  const timespec period = ToTimespec(kStatisticsPeriodNs);
  ppoll(&descriptor, 1, statistics_dirty_ ? &period : nullptr, &none);
}

void DelayLine::WriteStatistics() {
  tpacket_stats kernel{};
  socklen_t length = sizeof kernel;
  if (getsockopt(receiver_, SOL_PACKET, PACKET_STATISTICS, &kernel, &length) == 0) {
    statistics_.overflow += kernel.tp_drops;
  }
  using Number = unsigned long long;
  char text[512];
  const int bytes = std::snprintf(
      text, sizeof text,
      "forwarded %020llu\nbytes %020llu\noverflow %020llu\ntoo_long %020llu\nsend_failed %020llu\nbatches %020llu\n"
      "late_over_1ms %020llu\nlatest_us %020llu\nscheduling %s\n",
      Number{statistics_.forwarded}, Number{statistics_.bytes}, Number{statistics_.overflow},
      Number{statistics_.too_long}, Number{statistics_.send_failed}, Number{statistics_.batches},
      Number{statistics_.late_over_1ms}, Number{statistics_.latest_us}, scheduling_);
  // Fixed width, in one write at the start: a reader never sees half of it.
  if (pwrite(statistics_file_, text, static_cast<std::size_t>(bytes), 0) == bytes) statistics_dirty_ = false;
}

void DelayLine::Run() {
  while (g_ended == 0) {
    const std::int64_t now = Now(CLOCK_MONOTONIC);
    if (statistics_dirty_ && now - statistics_written_ns_ > kStatisticsPeriodNs) {
      WriteStatistics();
      statistics_written_ns_ = now;
      Sleep(0);  // a flood may leave no other moment for a signal
    }
    if (!IsFilled(Slot(head_))) {
      SleepUntilFrame();
      continue;
    }
    const std::size_t count = CollectDue(now);
    if (count > 0) {
      SendBatch(count);
    } else {
      Sleep(head_due_ - now);
    }
  }
  WriteStatistics();
}

// False after an error line.
bool ParseOptions(int count, char** arguments, Options* options) {
  for (int i = 1; i < count; i += 2) {
    const std::string name = arguments[i];
    const char* value = i + 1 < count ? arguments[i + 1] : "";
    std::int64_t number = 0;
    if (name == "--interface" && *value != '\0') {
      options->interface = value;
    } else if (name == "--statistics" && *value != '\0') {
      options->statistics = value;
    } else if (name == "--delay-us" && ParseNumber(value, 1, 10'000'000, &number)) {
      options->delay_ns = number * 1000;
    } else if (name == "--frames" && ParseNumber(value, 4, kMostFrames, &number)) {
      options->frames = static_cast<std::uint32_t>(number / 4 * 4);
    } else {
      std::fprintf(stderr, "forgive_delay_line: %s '%s' is not understood\n", name.c_str(), value);
      return false;
    }
  }
  if (options->interface.empty() || options->statistics.empty() || options->delay_ns == 0) {
    std::fprintf(stderr, "usage: forgive_delay_line --interface NAME --delay-us N --statistics FILE [--frames N]\n");
    return false;
  }
  return true;
}

}  // namespace
}  // namespace forgive::lab

int main(int count, char** arguments) {
  using namespace forgive::lab;
  Options options;
  if (!ParseOptions(count, arguments, &options)) return 2;
  struct sigaction action {};
  action.sa_handler = End;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  sigset_t ending;
  sigemptyset(&ending);
  sigaddset(&ending, SIGTERM);
  sigaddset(&ending, SIGINT);
  sigprocmask(SIG_BLOCK, &ending, nullptr);
  DelayLine line(options);
  if (line.Open() != 0) return 1;
  std::printf("ready\n");
  std::fflush(stdout);
  line.Run();
  return 0;
}
