// SPDX-License-Identifier: Apache-2.0
// The data path of a communicator: no lock, no allocation, one atomic read for a test.
#include "plugin/communicator.h"

#include <algorithm>
#include <cstdlib>

#include "plugin/fail_words.h"
#include "plugin/fork_generation.h"
#include "plugin/log.h"
#include "plugin/nccl_abi.h"
#include "plugin/profiler.h"

namespace forgive {

RequestTable::RequestTable(Communicator* owner) {
  for (Request& request : requests_) {
    request.communicator = owner;
    request.next_free = free_;
    free_ = &request;
  }
}

Request* RequestTable::Take() {
  Request* request = free_;
  if (request == nullptr) return nullptr;
  free_ = request->next_free;
  ++in_use_;
  return request;
}

void RequestTable::Give(Request* request) {
  request->slot.state.store(RequestSlot::kIdle, std::memory_order_relaxed);
  request->region.store(nullptr, std::memory_order_relaxed);
  request->next_free = free_;
  free_ = request;
  --in_use_;
}

bool RequestTable::IsPosted(const MemoryRegion* region) const {
  return std::ranges::any_of(requests_, [region](const Request& request) {
    return request.region.load(std::memory_order_acquire) == region &&
           request.slot.state.load(std::memory_order_acquire) == RequestSlot::kPosted;
  });
}

Communicator::Communicator(Kind kind, const CommunicatorOptions& options)
    : kind_(kind),
      abort_on_error_(options.abort_on_error),
      marked_(options.marked),
      generation_(ForkGeneration()),
      engine_(options.engine),
      facts_(options.facts),
      connection_(options.connection),
      context_(options.context),
      profiler_(options.profiler),
      requests_(this) {
  connection_->user = this;
  if (kind_ == Kind::kReceive) facts_->Register(&step_);
}

int Communicator::Fail(int result, const char* what) {
  if (!failure_said_.exchange(true, std::memory_order_relaxed)) {
    Log(LogLevel::kError, "%s communicator %p (connection %016llx): %s", kind_ == Kind::kSend ? "send" : "receive",
        static_cast<void*>(this), static_cast<unsigned long long>(connection_->connection_id), what);
  }
  if (abort_on_error_) {
    Log(LogLevel::kError, "aborting, as FORGIVE_ABORT_ON_ERROR=1 asks");
    std::abort();
  }
  return result;
}

int Communicator::FailConnection() {
  if (closed_.load(std::memory_order_acquire)) {
    return Fail(nccl::kInternalError, "closed, because memory was deregistered while requests used it");
  }
  const auto reason = static_cast<FailReason>(connection_->reason.load(std::memory_order_acquire));
  const bool ours = reason == FailReason::kTooLong || reason == FailReason::kClosedHere;
  return Fail(ours ? nccl::kInternalError : nccl::kRemoteError, Words(reason));
}

void Communicator::SayIfSegmentsWereCut() {
  const uint32_t bytes = connection_->segments_cut_to.load(std::memory_order_relaxed);
  if (bytes == said_cut_to_) return;
  said_cut_to_ = bytes;
  Log(LogLevel::kWarning,
      "send communicator %p (connection %016llx): the path swallows packets that it let pass before; it goes on with "
      "%u payload bytes a packet until a new connection tries the full size. Look for a port or tunnel with a "
      "smaller MTU",
      static_cast<void*>(this), static_cast<unsigned long long>(connection_->connection_id), bytes);
}

int Communicator::CheckUsable(uint64_t bytes, const void* data, const MemoryRegion* region) {
  if (generation_ != ForkGeneration()) {
    return Fail(nccl::kInternalError, "belongs to the parent process; a forked child must not use it");
  }
  if (bytes > UINT32_MAX) return Fail(nccl::kInternalError, "a message of 4 GiB or more");
  if (bytes > 0) {
    const auto* begin = static_cast<const uint8_t*>(data);
    const bool inside = region != nullptr && begin >= region->begin && bytes <= region->bytes &&
                        begin + bytes <= region->begin + region->bytes;
    if (!inside) return Fail(nccl::kInternalError, "data outside the registered memory of its handle");
  }
  const bool ready = connection_->state.load(std::memory_order_acquire) == ConnectionSlot::kReady;
  return ready && !closed_.load(std::memory_order_relaxed) ? nccl::kSuccess : FailConnection();
}

int Communicator::Send(const void* data, uint64_t bytes, const MemoryRegion* region, Request** out) {
  *out = nullptr;
  if (const int result = CheckUsable(bytes, data, region); result != nccl::kSuccess) return result;
  SayIfSegmentsWereCut();
  Request* request = requests_.Take();
  if (request == nullptr) return nccl::kSuccess;
  request->region.store(region, std::memory_order_relaxed);
  request->slot.state.store(RequestSlot::kPosted, std::memory_order_release);
  SendRequest send;
  send.buffer = static_cast<const uint8_t*>(data);
  send.length = static_cast<uint32_t>(bytes);
  if (!engine_->PostSend(connection_.get(), &request->slot, send)) {
    requests_.Give(request);
    return nccl::kSuccess;
  }
  *out = request;
  return nccl::kSuccess;
}

Post Communicator::Describe(uint64_t bytes, const MemoryRegion* region, void* profiler_handle,
                            bool optional_completion) const {
  Post post;
  post.posted_bytes = bytes;
  post.region_bytes = region == nullptr ? 0 : region->bytes;
  post.registrations = registrations_.load(std::memory_order_relaxed);
  post.optional_completion = optional_completion;
  post.marked = marked_;
  if (!marked_) return post;
  if (context_ != nullptr) {
    post.has_collective = FindThreadCollective(*context_, &post.collective);
    post.ring_ranks = context_->ring_ranks.load(std::memory_order_relaxed);
  }
  if (profiler_handle != nullptr && profiler_ != nullptr) profiler::Ask(profiler_, profiler_handle, &post.profiled);
  post.marked = facts_->IsMarked(post.profiled);
  return post;
}

int Communicator::Receive(void* data, uint64_t bytes, const MemoryRegion* region, void* profiler_handle,
                          bool optional_completion, Request** out) {
  *out = nullptr;
  if (const int result = CheckUsable(bytes, data, region); result != nccl::kSuccess) return result;
  Request* request = requests_.Take();
  if (request == nullptr) return nccl::kSuccess;
  request->region.store(region, std::memory_order_relaxed);
  request->slot.state.store(RequestSlot::kPosted, std::memory_order_release);
  ReceiveRequest receive;
  receive.buffer = static_cast<uint8_t*>(data);
  receive.capacity = bytes;
  facts_->AddPosted();
  const Post post = Describe(bytes, region, profiler_handle, optional_completion);
  const StepFacts::Verdict verdict = facts_->Classify(&step_, post, &receive);
  // In order: the step is there when the receive arrives.
  const bool begins = verdict.has_plan && verdict.plan.step != step_.operation;
  const bool begun = !begins || engine_->PostOperation(verdict.plan);
  if (begun && begins) step_.operation = verdict.plan.step;
  if (!begun || !engine_->PostReceive(connection_.get(), &request->slot, receive)) {
    facts_->RemovePosted();
    requests_.Give(request);
    return nccl::kSuccess;
  }
  facts_->Commit(&step_, verdict);
  *out = request;
  return nccl::kSuccess;
}

int Communicator::Test(Request* request, int* done, int* bytes) {
  *done = 0;
  uint32_t state = request->slot.state.load(std::memory_order_acquire);
  if (state == RequestSlot::kPosted) {
    if (generation_ != ForkGeneration()) return CheckUsable(0, nullptr, nullptr);
    const uint32_t connection = connection_->state.load(std::memory_order_acquire);
    const bool alive = connection == ConnectionSlot::kReady && !closed_.load(std::memory_order_acquire);
    if (alive) return nccl::kSuccess;
    // It may have completed before the connection failed.
    state = request->slot.state.load(std::memory_order_acquire);
  }
  if (state == RequestSlot::kIdle) return Fail(nccl::kInternalError, "test of a request that has ended");
  if (state == RequestSlot::kPosted) gave_posted_ = true;
  const uint64_t size = state == RequestSlot::kDone ? request->slot.size : 0;
  requests_.Give(request);
  if (kind_ == Kind::kReceive) facts_->RemovePosted();
  if (state != RequestSlot::kDone) return FailConnection();
  *done = 1;
  if (bytes != nullptr) *bytes = static_cast<int>(size);
  return nccl::kSuccess;
}

MemoryRegion* Communicator::Register(void* data, uint64_t bytes) {
  auto region = std::make_unique<MemoryRegion>();
  region->begin = static_cast<uint8_t*>(data);
  region->bytes = bytes;
  const std::lock_guard<std::mutex> lock(regions_mutex_);
  regions_.push_back(std::move(region));
  registrations_.store(static_cast<uint32_t>(regions_.size()), std::memory_order_release);
  return regions_.back().get();
}

bool Communicator::Deregister(MemoryRegion* region) {
  const std::lock_guard<std::mutex> lock(regions_mutex_);
  const auto found =
      std::ranges::find_if(regions_, [region](const auto& registered) { return registered.get() == region; });
  if (found == regions_.end()) return false;
  if (generation_ == ForkGeneration() && requests_.IsPosted(region) && !closed_.exchange(true)) {
    engine_->Close(connection_);
  }
  regions_.erase(found);
  registrations_.store(static_cast<uint32_t>(regions_.size()), std::memory_order_release);
  return true;
}

void Communicator::Close() {
  closed_.store(true);
  if (requests_.in_use() == 0 && !gave_posted_) {
    engine_->CloseIdle(connection_);
  } else {
    // Also after Deregister has closed it: the call returns when no post of ours is left in the engine's ring.
    engine_->Close(connection_);
  }
  if (kind_ != Kind::kReceive) return;
  facts_->Unregister(&step_);
  facts_->RemovePosted(requests_.in_use());
}

}  // namespace forgive
