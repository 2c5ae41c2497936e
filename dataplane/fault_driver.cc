// SPDX-License-Identifier: Apache-2.0
// A driver that wraps another and injects faults into what it receives, from a seed.
#include "dataplane/fault_driver.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <vector>

#include "dataplane/clock.h"
#include "dataplane/parse_fraction.h"
#include "dataplane/parse_number.h"
#include "transport/draw.h"
#include "transport/wire.h"

namespace forgive {
namespace {

constexpr size_t kInnerBurst = 64;
constexpr uint32_t kCopies = 2048;     // packets held back or copied at once; beyond it packets pass at once
constexpr uint32_t kReordered = 64;    // packets held back by `reorder` at once
constexpr uint32_t kReorderDepth = 8;  // most packets that overtake one
constexpr Nanoseconds kReorderTime = Milliseconds(1);
constexpr uint32_t kNoCopy = UINT32_MAX;

class FaultDriver final : public Driver {
 public:
  FaultDriver(std::unique_ptr<Driver> inner, const FaultSpec& spec, std::shared_ptr<FaultLog> log)
      : inner_(std::move(inner)), log_(std::move(log)), spec_(spec), dice_(spec.seed), copies_(kCopies) {
    free_copies_.reserve(kCopies);
    for (uint32_t i = 0; i < kCopies; ++i) free_copies_.push_back(i);
    delayed_.resize(kCopies);
    ready_.reserve(2 * kInnerBurst + kCopies);
    reordered_.reserve(kReordered);
    handed_out_.reserve(kCopies);
  }

  size_t ReceiveBurst(std::span<Datagram> out) override;
  bool receive_drained() const override { return next_ready_ == ready_.size() && inner_->receive_drained(); }
  size_t SendBurst(std::span<const Transmit> packets) override { return inner_->SendBurst(packets); }
  Address local_address() const override { return inner_->local_address(); }
  Address rail_address(uint32_t rail) const override { return inner_->rail_address(rail); }
  uint32_t max_datagram_bytes() const override { return inner_->max_datagram_bytes(); }
  std::span<const int> poll_fds() const override { return inner_->poll_fds(); }
  int blocked_fd() const override { return inner_->blocked_fd(); }
  TimePoint next_deadline() const override;
  DriverCounters counters() const override {
    DriverCounters counters = inner_->counters();
    counters.faults_injected = faults_;
    return counters;
  }
  std::string description() const override { return inner_->description() + ", with injected faults"; }

 private:
  struct Copy {
    Datagram datagram;
    std::array<uint8_t, kDataHeaderBytes + kMaxPayloadBytes> bytes;
  };
  struct Held {
    uint32_t copy = kNoCopy;
    TimePoint release;
    uint64_t after_packets = 0;  // also released when so many packets have been received
  };
  struct Ready {
    Datagram datagram;
    uint32_t copy = kNoCopy;
  };

  // Copies a datagram into storage of our own; kNoCopy: none is free, or it does not fit.
  uint32_t MakeCopy(const Datagram& datagram);
  void Refill();
  // Throws the dice for one received packet and passes on what is left of it.
  void Inject(TimePoint now, Datagram datagram);
  bool TryTrim(Datagram* datagram);
  // Into `ready_`, or into the delay line.
  void PassOn(TimePoint now, const Datagram& datagram, uint32_t copy);
  void ReleaseDue(TimePoint now);

  std::unique_ptr<Driver> inner_;
  std::shared_ptr<FaultLog> log_;
  const FaultSpec spec_;
  Draw dice_;
  uint64_t faults_ = 0;
  uint64_t received_ = 0;

  std::vector<Copy> copies_;
  std::vector<uint32_t> free_copies_;
  std::vector<uint32_t> handed_out_;  // copies that the caller still reads
  std::vector<Ready> ready_;
  size_t next_ready_ = 0;
  std::vector<Held> delayed_;  // a ring, in order of release
  uint64_t delayed_head_ = 0;
  uint64_t delayed_tail_ = 0;
  std::vector<Held> reordered_;
  std::array<Datagram, kInnerBurst> burst_;
};

uint32_t FaultDriver::MakeCopy(const Datagram& datagram) {
  if (free_copies_.empty() || datagram.length > copies_[0].bytes.size()) return kNoCopy;
  const uint32_t index = free_copies_.back();
  free_copies_.pop_back();
  Copy& copy = copies_[index];
  std::memcpy(copy.bytes.data(), datagram.bytes, datagram.length);
  copy.datagram = datagram;
  copy.datagram.bytes = copy.bytes.data();
  return index;
}

bool FaultDriver::TryTrim(Datagram* datagram) {
  uint8_t version = 0;
  DataHeader header;
  if (PeekType(datagram->bytes, datagram->length, &version) != PacketType::kData) return false;
  if (!ParseDataHeader(datagram->bytes, datagram->length, &header) || header.payload_length == 0) return false;
  if (datagram->length < kDataHeaderBytes + header.payload_length) return false;  // it was trimmed before
  const TrimRecord record{header.connection_id, header.message_number, header.offset_in_message,
                          header.payload_length};
  if (log_ != nullptr && !log_->Add(record)) return false;
  datagram->length = kDataHeaderBytes;
  return true;
}

void FaultDriver::Inject(TimePoint now, Datagram datagram) {
  ++received_;
  // All dice are thrown for every packet, so that one fault's chance does not shift another's.
  const bool drop = dice_(spec_.drop);
  const bool trim = dice_(spec_.trim);
  const bool corrupt = dice_(spec_.corrupt);
  const bool duplicate = dice_(spec_.duplicate);
  const bool reorder = dice_(spec_.reorder);
  const uint64_t detail = dice_.Next();
  if (drop) {
    ++faults_;
    return;
  }
  if (trim && TryTrim(&datagram)) ++faults_;
  uint32_t copy = kNoCopy;
  if (corrupt && datagram.length != 0 && (copy = MakeCopy(datagram)) != kNoCopy) {
    copies_[copy].bytes[detail % datagram.length] ^= static_cast<uint8_t>(1u << (detail >> 32) % 8);
    datagram = copies_[copy].datagram;
    ++faults_;
  }
  if (duplicate) {
    ++faults_;
    PassOn(now, datagram, kNoCopy);  // its bytes live as long as the original's: both leave in this burst
  }
  if (reorder && reordered_.size() < kReordered) {
    if (copy == kNoCopy) copy = MakeCopy(datagram);
    if (copy != kNoCopy) {
      ++faults_;
      reordered_.push_back({copy, now + kReorderTime, received_ + 1 + (detail >> 40) % kReorderDepth});
      return;
    }
  }
  PassOn(now, datagram, copy);
}

void FaultDriver::PassOn(TimePoint now, const Datagram& datagram, uint32_t copy) {
  if (spec_.delay.value > 0) {
    const uint32_t held = copy != kNoCopy ? copy : MakeCopy(datagram);
    if (held != kNoCopy) {
      delayed_[delayed_tail_++ % delayed_.size()] = {held, now + spec_.delay, UINT64_MAX};
      return;
    }
  }
  ready_.push_back({datagram, copy});
}

void FaultDriver::ReleaseDue(TimePoint now) {
  while (delayed_head_ != delayed_tail_ && delayed_[delayed_head_ % delayed_.size()].release <= now) {
    const uint32_t copy = delayed_[delayed_head_++ % delayed_.size()].copy;
    ready_.push_back({copies_[copy].datagram, copy});
  }
  for (size_t i = 0; i < reordered_.size();) {
    if (reordered_[i].release > now && reordered_[i].after_packets > received_) {
      ++i;
      continue;
    }
    const uint32_t copy = reordered_[i].copy;
    reordered_.erase(reordered_.begin() + static_cast<ptrdiff_t>(i));
    PassOn(now, copies_[copy].datagram, copy);
  }
}

void FaultDriver::Refill() {
  const TimePoint now = MonotonicNow();
  ready_.clear();
  next_ready_ = 0;
  free_copies_.insert(free_copies_.end(), handed_out_.begin(), handed_out_.end());
  handed_out_.clear();
  const size_t count = inner_->ReceiveBurst(burst_);
  for (size_t i = 0; i < count; ++i) {
    Inject(now, burst_[i]);
    ReleaseDue(now);
  }
  ReleaseDue(now);
}

size_t FaultDriver::ReceiveBurst(std::span<Datagram> out) {
  if (next_ready_ == ready_.size()) Refill();
  size_t count = 0;
  while (count < out.size() && next_ready_ < ready_.size()) {
    const Ready& ready = ready_[next_ready_++];
    if (ready.copy != kNoCopy) handed_out_.push_back(ready.copy);
    out[count++] = ready.datagram;
  }
  return count;
}

TimePoint FaultDriver::next_deadline() const {
  if (next_ready_ != ready_.size()) return TimePoint{};
  TimePoint deadline = inner_->next_deadline();
  if (delayed_head_ != delayed_tail_) deadline = Earlier(deadline, delayed_[delayed_head_ % delayed_.size()].release);
  for (const Held& held : reordered_) deadline = Earlier(deadline, held.release);
  return deadline;
}

}  // namespace

bool ParseFaultSpec(const std::string& text, FaultSpec* out, std::string* error) {
  const std::pair<std::string_view, Fraction FaultSpec::*> fractions[] = {
      {"trim", &FaultSpec::trim},       {"drop", &FaultSpec::drop},       {"duplicate", &FaultSpec::duplicate},
      {"reorder", &FaultSpec::reorder}, {"corrupt", &FaultSpec::corrupt},
  };
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    const size_t equal = part.find('=');
    const std::string_view name = part.substr(0, equal);
    const std::string_view value = equal == std::string_view::npos ? "" : part.substr(equal + 1);
    uint64_t microseconds = 0;
    bool known = false;
    bool good = false;
    for (const auto& [key, member] : fractions) {
      if (name != key) continue;
      known = true;
      good = ParseFraction(value, &(out->*member));
    }
    if (name == "delay_us") {
      known = true;
      good = ParseNumber(value, 0, 1000000, &microseconds);
      out->delay = Microseconds(static_cast<int64_t>(microseconds));
    } else if (name == "seed") {
      known = true;
      good = ParseNumber(value, &out->seed);
    }
    if (good) continue;
    *error = "fault \"" + std::string(part) + "\": " +
             (known ? "a chance is a number from 0 to 1 with at most six decimals, delay_us a whole number up to "
                      "1000000, seed a whole number"
                    : "known are trim, drop, duplicate, reorder, corrupt, delay_us and seed, as NAME=VALUE");
    return false;
  }
  return true;
}

std::unique_ptr<Driver> MakeFaultDriver(std::unique_ptr<Driver> inner, const FaultSpec& spec,
                                        std::shared_ptr<FaultLog> log) {
  return std::make_unique<FaultDriver>(std::move(inner), spec, std::move(log));
}

}  // namespace forgive
