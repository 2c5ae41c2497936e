// SPDX-License-Identifier: Apache-2.0
// Messages from one engine to another for a while.
#include "testbed/perf/bench/transfer.h"

#include <unistd.h>

#include <ctime>
#include <string>

#include "testbed/perf/error.h"

namespace forgive::perf {
namespace {

constexpr double kPatienceSeconds = 10;

double ClockSeconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Waits for the condition with short sleeps.
template <typename Condition>
void Await(const char* what, uint32_t microseconds, const Condition& condition) {
  const double deadline = WallSeconds() + kPatienceSeconds;
  while (!condition()) {
    if (WallSeconds() > deadline) throw RunError(std::string(what) + " did not happen within 10 s");
    if (microseconds != 0) usleep(microseconds);
  }
}

bool Done(const RequestSlot& slot) {
  const uint32_t state = slot.state.load(std::memory_order_acquire);
  if (state == RequestSlot::kFailed) {
    throw RunError("a request failed, reason " + std::to_string(static_cast<int>(slot.reason)));
  }
  return state == RequestSlot::kDone;
}

}  // namespace

double ProcessCpuSeconds() { return ClockSeconds(CLOCK_PROCESS_CPUTIME_ID); }
double ThreadCpuSeconds() { return ClockSeconds(CLOCK_THREAD_CPUTIME_ID); }
double WallSeconds() { return ClockSeconds(CLOCK_MONOTONIC); }

Transfer::Transfer(Engine& from, Engine& to, const TransferShape& shape)
    : from_(from),
      to_(to),
      shape_(shape),
      lanes_(shape.connections),
      source_(shape.memory_bytes, 0x5a),
      destination_(shape.memory_bytes, 0xa5) {
  for (Lane& lane : lanes_) Open(&lane);
}

Transfer::~Transfer() {
  for (Lane& lane : lanes_) {
    if (lane.sender) from_.Close(lane.sender);
    if (lane.receiver) to_.Close(lane.receiver);
  }
}

void Transfer::Open(Lane* lane) {
  ListenTicket ticket;
  const auto listener = to_.Listen(0, &ticket);
  if (listener == nullptr) throw RunError("the engine takes no more listeners");
  lane->sender = from_.Connect(0, to_.local_address(0), ticket, 0);
  Await("an accepted connection", 200, [&] { return (lane->receiver = to_.Accept(listener)) != nullptr; });
  Await("a connection", 200, [&] { return lane->sender->state.load() != ConnectionSlot::kConnecting; });
  to_.CloseListener(listener);
  if (lane->sender->state.load() != ConnectionSlot::kReady) throw RunError("the connection was refused");
  lane->sends.resize(shape_.messages_ahead);
  lane->receives.resize(shape_.messages_ahead);
}

void Transfer::PostReceive(Lane* lane) {
  ReceiveRequest request;
  request.buffer = destination_.data() + next_destination_;
  request.capacity = shape_.message_bytes;
  if (!to_.PostReceive(lane->receiver.get(), &lane->receives[lane->posted_receives % lane->receives.size()], request))
    return;
  ++lane->posted_receives;
  next_destination_ = (next_destination_ + shape_.message_bytes) % shape_.memory_bytes;
}

void Transfer::PostSend(Lane* lane) {
  SendRequest request;
  request.buffer = source_.data() + next_source_;
  request.length = shape_.message_bytes;
  if (!from_.PostSend(lane->sender.get(), &lane->sends[lane->posted_sends % lane->sends.size()], request)) return;
  ++lane->posted_sends;
  next_source_ = (next_source_ + shape_.message_bytes) % shape_.memory_bytes;
}

uint64_t Transfer::Step(Lane* lane, bool post) {
  uint64_t bytes = 0;
  while (lane->done_receives != lane->posted_receives &&
         Done(lane->receives[lane->done_receives % lane->receives.size()])) {
    bytes += lane->receives[lane->done_receives++ % lane->receives.size()].size;
  }
  while (lane->done_sends != lane->posted_sends && Done(lane->sends[lane->done_sends % lane->sends.size()])) {
    ++lane->done_sends;
  }
  if (!post) return bytes;
  while (lane->posted_receives - lane->done_receives < shape_.messages_ahead) {
    const uint64_t before = lane->posted_receives;
    PostReceive(lane);
    if (lane->posted_receives == before) break;
  }
  while (lane->posted_sends - lane->done_sends < shape_.messages_ahead) {
    const uint64_t before = lane->posted_sends;
    PostSend(lane);
    if (lane->posted_sends == before) break;
  }
  return bytes;
}

uint64_t Transfer::StepAll(bool post) {
  uint64_t bytes = 0;
  for (Lane& lane : lanes_) bytes += Step(&lane, post);
  return bytes;
}

Moved Transfer::Run(double warm_seconds, double seconds) {
  Moved moved;
  const double begin = WallSeconds();
  double counted_from = 0;
  double counted_cpu = 0;
  double last_progress = begin;
  for (;;) {
    const uint64_t bytes = StepAll(true);
    const double now = WallSeconds();
    if (bytes != 0) last_progress = now;
    if (now - last_progress > kPatienceSeconds) throw RunError("no message was completed for 10 s");
    if (counted_from != 0) {
      moved.bytes += bytes;
      if (now - counted_from >= seconds) {
        moved.seconds = now - counted_from;
        moved.cpu_seconds = ProcessCpuSeconds() - counted_cpu;
        break;
      }
    } else if (now - begin >= warm_seconds) {
      counted_from = now;
      counted_cpu = ProcessCpuSeconds();
    }
    usleep(shape_.poll_microseconds);
  }
  Drain();
  return moved;
}

void Transfer::Drain() {
  for (Lane& lane : lanes_) {
    Await("the last message's end", 200, [&] {
      // A receive may have been posted without its send: then the send follows.
      while (lane.posted_sends < lane.posted_receives) {
        const uint64_t before = lane.posted_sends;
        PostSend(&lane);
        if (lane.posted_sends == before) break;
      }
      while (lane.posted_receives < lane.posted_sends) {
        const uint64_t before = lane.posted_receives;
        PostReceive(&lane);
        if (lane.posted_receives == before) break;
      }
      Step(&lane, false);
      return lane.done_sends == lane.posted_sends && lane.done_receives == lane.posted_receives &&
             lane.posted_sends == lane.posted_receives;
    });
  }
}

}  // namespace forgive::perf
