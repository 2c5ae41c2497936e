// SPDX-License-Identifier: Apache-2.0
// The engine's thread: one turn, and when to sleep.
#include "dataplane/poll_loop.h"

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "dataplane/clock.h"
#include "dataplane/system_entropy.h"
#include "dataplane/thread_signals.h"
#include "transport/check.h"

namespace forgive {
namespace {

constexpr size_t kCommandsPerTurn = 256;
constexpr uint32_t kLedgerLines = 1 << 16;
constexpr Nanoseconds kPublishInterval = Microseconds(500);

// Where something must be polled: a device without file descriptors, a full ledger, packets that a driver refused.
constexpr Nanoseconds kPollInterval = Microseconds(200);
// A device without file descriptors is polled more and more rarely while nothing happens: what arrives then waits at
// most this share of the time that was idle before, and an idle engine takes less than a percent of a CPU. It begins
// with as little as a sleep costs: where a yield gave the CPU to somebody else, it comes soon, in the midst of
// traffic.
constexpr int64_t kIdleShare = 16;
constexpr Nanoseconds kLeastIdlePollInterval = Microseconds(10);
constexpr Nanoseconds kIdlePollInterval = Milliseconds(16);

int AllowedCpus() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

// Counter structures are nothing but 64-bit integers, so sums need no list of their fields.
template <typename T>
void AddCounters(const T& from, T* to) {
  using Words = std::array<uint64_t, sizeof(T) / sizeof(uint64_t)>;
  Words sum = std::bit_cast<Words>(*to);
  const Words more = std::bit_cast<Words>(from);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
  *to = std::bit_cast<T>(sum);
}

}  // namespace

PollLoop::Device::Device(const Config& limits)
    : connections(limits.max_connections),
      listeners(limits.max_listeners),
      free_listeners(std::bit_ceil(std::max(limits.max_listeners, 2u))) {
  FORGIVE_CHECK(limits.max_listeners <= uint32_t{UINT16_MAX} + 1);
  for (uint32_t place = 0; place < limits.max_listeners; ++place) free_listeners.Push(static_cast<uint16_t>(place));
}

PollLoop::PollLoop(const EngineOptions& options, std::vector<std::unique_ptr<Driver>> drivers)
    : options_(options),
      steps_(options.transport.max_steps, options.transport.forgiveness_probability, options.seed,
             options.transport.experiments, options.transport.budget_unit),
      commands_(options.command_ring),
      ledger_(kLedgerLines),
      operation_lines_(Engine::kOperationLines) {
  operations_.reserve(kMostOpenOperations);
  const size_t early = size_t{options.transport.max_connections} * kEarlyMessages * drivers.size();
  ledger_waiting_.reserve(options.transport.event_capacity + early);
  poll_fds_.push_back({-1, POLLIN, 0});  // the doorbell's, from Start on
  const std::array<uint8_t, 32> identity_entropy = SystemEntropy();
  Identity identity;
  std::copy_n(identity_entropy.begin(), identity.size(), identity.begin());
  for (std::unique_ptr<Driver>& driver : drivers) {
    auto device = std::make_unique<Device>(options_.transport);
    device->driver = std::move(driver);
    Config config = options_.transport;
    const BitsPerSecond link_rate = options_.devices[devices_.size()].link_rate;
    if (link_rate.value != 0) config.link_rate = link_rate;
    device->endpoint = std::make_unique<Endpoint>(config, &steps_, SystemEntropy(), identity);
    device->first_poll_fd = poll_fds_.size();
    for (int fd : device->driver->poll_fds()) poll_fds_.push_back({fd, POLLIN, 0});
    device->has_poll_fds = poll_fds_.size() > device->first_poll_fd;
    device->blocked_poll_fd = poll_fds_.size();
    poll_fds_.push_back({-1, POLLOUT, 0});
    every_device_has_fds_ = every_device_has_fds_ && device->has_poll_fds;
    devices_.push_back(std::move(device));
  }
}

PollLoop::~PollLoop() {
  if (thread_.joinable()) {
    Call([this](TimePoint now) {
      CloseEverything(now);
      stop_ = true;
    });
    thread_.join();
  }
  // Handed over behind the end: nothing is left that they could use, but each says so in its slot.
  Command command;
  while (commands_.Pop(&command)) RunHandedOver(last_turn_, command);
}

bool PollLoop::Start(std::string* error) {
  if (options_.cpu >= 0) {
    cpu_set_t allowed;
    const bool known = sched_getaffinity(0, sizeof(allowed), &allowed) == 0;
    if (options_.cpu >= CPU_SETSIZE || !known || !CPU_ISSET(static_cast<size_t>(options_.cpu), &allowed)) {
      *error = "CPU " + std::to_string(options_.cpu) + " for the poll thread is not one this process may use";
      return false;
    }
  }
  if (!doorbell_.Open()) {
    *error = std::string("no eventfd for the poll thread: ") + std::strerror(errno) + " (raise ulimit -n)";
    return false;
  }
  poll_fds_[0].fd = doorbell_.fd();
  const BlockedSignals blocked;
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error& refused) {
    *error = std::string("no poll thread: ") + refused.what() + " (raise ulimit -u)";
    return false;
  }
  return true;
}

bool PollLoop::Submit(const Command& command) {
  if (!commands_.Push(command)) return false;
  doorbell_.Ring();
  return true;
}

void PollLoop::CallAwaited(AwaitedWork* awaited) {
  Command command;
  command.kind = Command::Kind::kAwaited;
  command.awaited = awaited;
  HandOver(command);
  std::unique_lock<std::mutex> lock(control_mutex_);
  control_done_.wait(lock, [&] { return awaited->done; });
  if (awaited->no_memory) throw std::bad_alloc();
}

// Without a limit: the engine always drains its ring, and a process that was stopped in between has done no wrong.
void PollLoop::HandOver(const Command& command) {
  while (!Submit(command)) sched_yield();
}

std::shared_ptr<EngineConnection> PollLoop::Connect(uint32_t device, const ConnectRequest& request) {
  const std::shared_ptr<EngineConnection> connection = MakeConnection(device);
  connection->request = request;
  connection->connecting = connection;
  Command command;
  command.kind = Command::Kind::kConnect;
  command.connection = connection.get();
  HandOver(command);
  return connection;
}

void PollLoop::CloseIdle(const std::shared_ptr<EngineConnection>& connection) {
  if (connection->close_asked.exchange(true, std::memory_order_relaxed)) return;
  connection->closing = connection;
  Command command;
  command.kind = Command::Kind::kCloseIdle;
  command.connection = connection.get();
  HandOver(command);
}

// ---- The thread ----

void PollLoop::Run() {
  pthread_setname_np(pthread_self(), "forgive-engine");
  prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);  // timers of ppoll: 1 ns instead of 50 us late
  if (options_.cpu >= 0) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(options_.cpu), &one);
    pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
  }
  if (AllowedCpus() == 1) spin_.ShareOneCpu();
  while (!stop_) {
    const bool worked = Turn();
    if (worked) {
      spin_.OnWork();
      publish_due_ = true;
    } else if (!stop_) {
      IdleTurn(last_turn_);
    }
  }
  // A driver ends on the thread that used it: only that one can end what io_uring still has in flight.
  for (const std::unique_ptr<Device>& device : devices_) device->driver.reset();
}

// What the work cannot allocate is the asking thread's to know: it ends nothing here.
void PollLoop::RunAwaited(TimePoint now, AwaitedWork* awaited) {
  bool no_memory = false;
  try {
    awaited->run(awaited->work, now);
  } catch (const std::bad_alloc&) {
    no_memory = true;
  }
  const std::lock_guard<std::mutex> lock(control_mutex_);
  awaited->no_memory = no_memory;
  awaited->done = true;
  control_done_.notify_all();  // under the lock: the caller may free `awaited` as soon as it can see it
}

void PollLoop::RunHandedOver(TimePoint now, const Command& command) {
  switch (command.kind) {
    case Command::Kind::kListen:
      ListenHere(std::exchange(command.listener->opening, nullptr));
      return;
    case Command::Kind::kCloseListener:
      CloseListenerHere(now, std::exchange(command.listener->closing, nullptr));
      return;
    case Command::Kind::kConnect:
      ConnectHere(now, std::exchange(command.connection->connecting, nullptr));
      return;
    case Command::Kind::kCloseIdle:
      CloseHere(now, std::exchange(command.connection->closing, nullptr));
      return;
    case Command::Kind::kSend:
    case Command::Kind::kReceive:
    case Command::Kind::kOperation:
    case Command::Kind::kAwaited:
      return;
  }
}

bool PollLoop::Turn() {
  const TimePoint now = MonotonicNow();
  last_turn_ = now;
  ++turns_;
  size_t work = DrainCommands(now);
  if (accepted_waiting_ != 0) FlushAccepted();
  for (uint32_t i = 0; i < devices_.size(); ++i) {
    Device& device = *devices_[i];
    // While the ledger is full nothing is taken, and so no timer may call a peer silent or a packet lost.
    if (FlushLedger()) {
      work += ReceiveFrom(device, now);
      if (device.endpoint->next_deadline() <= now) device.endpoint->OnDeadline(now);
    }
    // What arrived is told before anything is sent: a system call of the driver is long beside what NCCL's thread
    // does next with it. Sending may have something to tell, too.
    work += DrainEvents(now, i);
    work += TransmitFrom(device, now);
    work += DrainEvents(now, i);
  }
  if (publish_due_ && now >= next_publish_) PublishSnapshot(now);
  return work != 0;
}

size_t PollLoop::DrainCommands(TimePoint now) {
  size_t count = 0;
  Command command;
  while (count < kCommandsPerTurn && commands_.Pop(&command)) {
    ++count;
    switch (command.kind) {
      case Command::Kind::kSend:
      case Command::Kind::kReceive:
      case Command::Kind::kOperation:
        Post(now, command);
        break;
      case Command::Kind::kAwaited:
        RunAwaited(now, command.awaited);
        break;
      default:
        RunHandedOver(now, command);
    }
  }
  return count;
}

size_t PollLoop::ReceiveFrom(Device& device, TimePoint now) {
  size_t total = 0;
  const int bursts = device.has_poll_fds ? kBurstsPerTurn : kPolledBurstsPerTurn;
  for (int burst = 0; burst < bursts; ++burst) {
    const size_t count = device.driver->ReceiveBurst(datagrams_);
    device.endpoint->OnDatagrams(now, std::span(datagrams_).first(count));
    total += count;
    if (count == 0 || device.driver->receive_drained()) break;
  }
  return total;
}

size_t PollLoop::TransmitFrom(Device& device, TimePoint now) {
  size_t total = 0;
  for (int burst = 0; burst < kBurstsPerTurn; ++burst) {
    if (device.next == device.end) {
      device.next = 0;
      device.end = device.endpoint->NextTransmits(now, device.transmits);
      if (device.end == 0) break;
    }
    const size_t sent =
        device.driver->SendBurst(std::span(device.transmits).subspan(device.next, device.end - device.next));
    device.next += sent;
    total += sent;
    if (device.next != device.end) break;  // try again next turn
  }
  return total;
}

// ---- Idling ----

void PollLoop::IdleTurn(TimePoint now) {
  spin_.OnIdleTurn(now);
  // A driver may have dropped all that came: nothing was done, and yet there is something to tell.
  if (CountersOfDrivers() != published_drivers_) publish_due_ = true;
  if (!options_.busy_poll) {
    const TimePoint deadline = NextDeadline(now);
    if (spin_.IsOver(now, deadline)) {
      Sleep(deadline);
      spin_.OnSlept();
      return;
    }
  }
  spin_.Yield(now);
}

TimePoint PollLoop::NextDeadline(TimePoint now) const {
  const TimePoint poll = now + kPollInterval;
  if (!ledger_waiting_.empty()) return poll;
  TimePoint deadline = accepted_waiting_ != 0 ? poll : kNever;
  if (!every_device_has_fds_) {
    const Nanoseconds share = spin_.IdleTime(now) / kIdleShare;
    const Nanoseconds interval = std::clamp(share, kLeastIdlePollInterval, kIdlePollInterval);
    deadline = Earlier(deadline, now + interval);
  }
  for (const std::unique_ptr<Device>& device : devices_) {
    deadline = Earlier(deadline, device->driver->next_deadline());
    // With packets that the driver refused, the endpoint always has work and nowhere to put it.
    const TimePoint endpoint = device->endpoint->next_deadline();
    deadline = Earlier(deadline, device->next != device->end ? std::max(endpoint, poll) : endpoint);
  }
  return publish_due_ ? Earlier(deadline, next_publish_) : deadline;
}

// Sleeps until a datagram, a command or the deadline.
void PollLoop::Sleep(TimePoint deadline) {
  if (!doorbell_.AnnounceSleep(commands_)) return;
  const bool take_datagrams = ledger_waiting_.empty();
  for (const std::unique_ptr<Device>& device : devices_) {
    if (!device->has_poll_fds) continue;
    for (size_t i = device->first_poll_fd; i < device->blocked_poll_fd; ++i) {
      poll_fds_[i].events = static_cast<short>(take_datagrams ? POLLIN : 0);
    }
    poll_fds_[device->blocked_poll_fd].fd = device->next != device->end ? device->driver->blocked_fd() : -1;
  }
  timespec timeout{};
  if (deadline != kNever) {
    const int64_t ns = std::max<int64_t>((deadline - MonotonicNow()).value, 0);
    timeout = {ns / 1000000000, ns % 1000000000};
  }
  ppoll(poll_fds_.data(), poll_fds_.size(), deadline == kNever ? nullptr : &timeout, nullptr);
  doorbell_.Awake((poll_fds_[0].revents & POLLIN) != 0);
}

DriverCounters PollLoop::CountersOfDrivers() const {
  DriverCounters sum;
  for (const std::unique_ptr<Device>& device : devices_) AddCounters(device->driver->counters(), &sum);
  return sum;
}

void PollLoop::PublishSnapshot(TimePoint now) {
  EngineSnapshot snapshot;
  for (const std::unique_ptr<Device>& device : devices_)
    AddCounters(device->endpoint->counters(), &snapshot.counters);
  snapshot.driver = published_drivers_ = CountersOfDrivers();
  snapshot.turns = turns_;
  snapshot_.Store(snapshot);
  publish_due_ = false;
  next_publish_ = now + kPublishInterval;
}

}  // namespace forgive
