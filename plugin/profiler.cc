// SPDX-License-Identifier: Apache-2.0
// The table of the newest events, and the question at the post.
#include "plugin/profiler.h"

#include <strings.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <unordered_set>
#include <utility>

#include "plugin/process.h"
#include "plugin/settings.h"

namespace forgive::profiler {
namespace {

enum Kind : uint64_t { kCall = 1, kCollective = 2, kOperation = 3, kStep = 4, kGroup = 5 };
constexpr int kKindShift = 56;
constexpr uint64_t kNumberMask = (uint64_t{1} << kKindShift) - 1;

// Events of a kind that are remembered: NCCL has far fewer in flight.
constexpr size_t kEvents = 8192;

// The identity of our events at NCCL's callback: "FORG", version 1.
constexpr int64_t kPluginId = (int64_t{0x464f5247} << 16) | 1;

// An event in words that are read and written one by one; `number` says, before and after, whose they are. Each word
// is released after number's 0 and acquired before the second look at number: who read a newer word sees that number
// has left.
struct Event {
  std::atomic<uint64_t> number{0};
  std::atomic<uint64_t> flags{0};
  std::atomic<uint64_t> sizes{0};
  std::atomic<uint64_t> count{0};
  std::atomic<uint64_t> epoch{0};
  std::atomic<uint64_t> collective{0};
};

constexpr uint64_t kKnown = 1;
constexpr uint64_t kRing = 2;
constexpr uint64_t kSimple = 4;
constexpr uint64_t kFloat = 8;
constexpr uint64_t kStamped = 16;
constexpr uint64_t kCaptured = 32;
constexpr uint64_t kNamed = 64;
constexpr uint64_t kCritical = 128;
constexpr int kOperationShift = 8;
constexpr int kElementShift = 16;

constexpr uint64_t Bit(bool on, uint64_t bit) { return on ? bit : 0; }

class EventTable {
 public:
  explicit EventTable(Kind kind) : kind_(kind), events_(new Event[kEvents]) {}

  void* Add(const ProfiledPost& post) {
    const uint64_t number = next_.fetch_add(1, std::memory_order_relaxed);
    Event& event = events_[number % kEvents];
    event.number.store(0, std::memory_order_relaxed);
    const uint64_t flags = Bit(post.known, kKnown) | Bit(post.ring, kRing) | Bit(post.simple, kSimple) |
                           Bit(post.floating_point, kFloat) | Bit(post.stamped, kStamped) |
                           Bit(post.captured, kCaptured) | Bit(post.named, kNamed) | Bit(post.critical, kCritical) |
                           static_cast<uint64_t>(post.operation) << kOperationShift |
                           uint64_t{post.element_bytes} << kElementShift;
    event.flags.store(flags, std::memory_order_release);
    event.sizes.store(uint64_t{post.ring_ranks} << 32 | post.message, std::memory_order_release);
    event.count.store(post.count, std::memory_order_release);
    event.epoch.store(post.epoch, std::memory_order_release);
    event.collective.store(post.collective, std::memory_order_release);
    event.number.store(number, std::memory_order_release);
    return reinterpret_cast<void*>(uint64_t{kind_} << kKindShift | number);
  }

  // An empty one where the handle is not one of the newest of this kind.
  ProfiledPost Find(const void* handle) const {
    ProfiledPost post;
    const auto value = reinterpret_cast<uint64_t>(handle);
    const uint64_t number = value & kNumberMask;
    if (value >> kKindShift != kind_ || number == 0) return post;
    const Event& event = events_[number % kEvents];
    if (event.number.load(std::memory_order_acquire) != number) return post;
    const uint64_t flags = event.flags.load(std::memory_order_acquire);
    const uint64_t sizes = event.sizes.load(std::memory_order_acquire);
    post.count = event.count.load(std::memory_order_acquire);
    post.epoch = event.epoch.load(std::memory_order_acquire);
    post.collective = event.collective.load(std::memory_order_acquire);
    if (event.number.load(std::memory_order_relaxed) != number) return ProfiledPost();
    post.known = (flags & kKnown) != 0;
    post.operation = static_cast<Operation>(flags >> kOperationShift & 0xff);
    post.ring = (flags & kRing) != 0;
    post.simple = (flags & kSimple) != 0;
    post.floating_point = (flags & kFloat) != 0;
    post.stamped = (flags & kStamped) != 0;
    post.captured = (flags & kCaptured) != 0;
    post.named = (flags & kNamed) != 0;
    post.critical = (flags & kCritical) != 0;
    post.element_bytes = static_cast<uint32_t>(flags >> kElementShift & 0xff);
    post.ring_ranks = static_cast<uint32_t>(sizes >> 32);
    post.message = static_cast<uint32_t>(sizes);
    return post;
  }

 private:
  const Kind kind_;
  std::atomic<uint64_t> next_{1};
  const std::unique_ptr<Event[]> events_;
};

struct Tables {
  EventTable calls{kCall};
  EventTable collectives{kCollective};
  EventTable operations{kOperation};
  EventTable steps{kStep};
};

// Made once, at the first communicator's init, and kept: events may still come while the process ends.
std::atomic<Tables*> tables{nullptr};

struct CommunicatorContext {
  uint32_t ranks = 0;
  bool named = false;
  uint64_t comm_id = 0;
};

// The communicators that FORGIVE_COMMUNICATOR means, for the tuner.
std::mutex named_mutex;
std::unordered_multiset<uint64_t> named_communicators;

// Collectives of this process, from 1.
std::atomic<uint64_t> next_collective{1};

// The post that this thread asks for, while it asks.
thread_local ProfiledPost* asking = nullptr;

bool IsWanted(NamePatterns* names) {
  Settings settings;
  std::vector<std::string> warnings;
  std::string error;
  // A value that does not parse is said by the net's init.
  const bool parsed = ParseSettings(ReadEnvironment(), &settings, &warnings, &error);
  *names = settings.communicators;
  return !parsed || settings.profiler;
}

bool Same(const char* a, const char* b) { return a != nullptr && strcasecmp(a, b) == 0; }

// Of an element of a floating-point type as NCCL names it; 0: another name.
uint32_t ElementBytes(const char* datatype) {
  constexpr std::pair<const char*, uint32_t> kTypes[] = {
      {"float64", 8}, {"float32", 4}, {"float16", 2}, {"float8", 1}};
  for (const auto& [name, bytes] : kTypes) {
    if (strcasestr(datatype, name) != nullptr) return bytes;
  }
  return 0;
}

Operation OperationOf(const char* function) {
  if (Same(function, "AllReduce")) return Operation::kAllReduce;
  if (Same(function, "ReduceScatter")) return Operation::kReduceScatter;
  return Operation::kOther;
}

}  // namespace

int Init(void** context, int* mask, int version, int ranks, uint64_t comm_id, const char* comm_name) {
  *context = nullptr;
  *mask = 0;
  NamePatterns names;
  if (version < 3 || !IsWanted(&names)) return nccl::kSuccess;
  if (tables.load(std::memory_order_acquire) == nullptr) {
    Tables* expected = nullptr;
    auto first = std::make_unique<Tables>();
    if (tables.compare_exchange_strong(expected, first.get(), std::memory_order_acq_rel)) first.release();
  }
  auto* made = new (std::nothrow) CommunicatorContext{
      .ranks = ranks > 0 ? static_cast<uint32_t>(ranks) : 0, .named = names.Match(comm_name), .comm_id = comm_id};
  *context = made;
  if (made != nullptr && made->named) {
    const std::lock_guard<std::mutex> lock(named_mutex);
    named_communicators.insert(comm_id);
  }
  *mask = nccl::kProfileGroup | nccl::kProfileCollective | nccl::kProfileProxyOperation | nccl::kProfileProxyStep |
          nccl::kProfileNetPlugin;
  if (version >= 5) *mask |= nccl::kProfileGroupCall | nccl::kProfileCollectiveCall;
  return nccl::kSuccess;
}

int Finalize(void* context) {
  auto* ended = static_cast<CommunicatorContext*>(context);
  if (ended != nullptr && ended->named) {
    const std::lock_guard<std::mutex> lock(named_mutex);
    const auto found = named_communicators.find(ended->comm_id);
    if (found != named_communicators.end()) named_communicators.erase(found);
  }
  delete ended;
  return nccl::kSuccess;
}

bool IsNamed(uint64_t comm_id) {
  const std::lock_guard<std::mutex> lock(named_mutex);
  return named_communicators.contains(comm_id);
}

// Nothing is remembered of a group, but without a handle for it NCCL starts no event below it.
void* StartGroup() { return reinterpret_cast<void*>(uint64_t{kGroup} << kKindShift | 1); }

void* StartCall(bool captured) {
  Tables* all = tables.load(std::memory_order_acquire);
  if (all == nullptr) return nullptr;
  ProfiledPost stamp;
  stamp.stamped = true;
  stamp.captured = captured;
  const Process* process = Process::Get();
  stamp.epoch = process == nullptr ? 0 : process->facts()->open_epoch();
  return all->calls.Add(stamp);
}

void* StartCollective(const void* context, void* parent, const char* function, const char* algorithm,
                      const char* protocol, const char* datatype, uint64_t count) {
  Tables* all = tables.load(std::memory_order_acquire);
  if (all == nullptr) return nullptr;
  ProfiledPost post = all->calls.Find(parent);  // before v5 a group, which has no stamp
  post.known = true;
  post.operation = OperationOf(function);
  post.ring = Same(algorithm, "RING");
  post.simple = Same(protocol, "SIMPLE");
  post.floating_point = datatype != nullptr && strcasestr(datatype, "float") != nullptr;
  post.count = count;
  post.element_bytes = post.floating_point ? ElementBytes(datatype) : 0;
  post.collective = next_collective.fetch_add(1, std::memory_order_relaxed);
  Process* process = Process::Get();
  post.critical = process == nullptr || process->IsOperationCritical(post.collective);
  if (context != nullptr) {
    const auto* communicator = static_cast<const CommunicatorContext*>(context);
    post.ring_ranks = communicator->ranks;
    post.named = communicator->named;
  }
  return all->collectives.Add(post);
}

void* StartOperation(void* parent, const nccl::ProfiledProxyOperation& operation) {
  Tables* all = tables.load(std::memory_order_acquire);
  if (all == nullptr) return nullptr;
  // Of another process (PXN), the parent's number means another event, or none.
  return all->operations.Add(operation.process_id == getpid() ? all->collectives.Find(parent) : ProfiledPost());
}

void* StartStep(void* parent, int step) {
  Tables* all = tables.load(std::memory_order_acquire);
  if (all == nullptr) return nullptr;
  ProfiledPost post = all->operations.Find(parent);
  if (step < 0) post.known = false;
  post.message = static_cast<uint32_t>(step);
  return all->steps.Add(post);
}

void StartNetPlugin(void* parent, const nccl::ProfiledNetPlugin& plugin) {
  const Tables* all = tables.load(std::memory_order_acquire);
  // Another plugin's event, or ours of another thread: neither is a question.
  if (all == nullptr || plugin.id != kPluginId || plugin.data != asking || asking == nullptr) return;
  *asking = all->steps.Find(parent);
}

void Ask(nccl::ProfilerCallback callback, void* profiler_handle, ProfiledPost* out) {
  if (tables.load(std::memory_order_acquire) == nullptr) return;  // NCCL has another profiler, or none
  asking = out;
  void* event = nullptr;
  callback(&event, nccl::kEventStart, profiler_handle, kPluginId, out);
  asking = nullptr;
}

}  // namespace forgive::profiler
