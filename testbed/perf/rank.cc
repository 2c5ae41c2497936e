// SPDX-License-Identifier: Apache-2.0
// Puts a rank together and runs its operations.
#include "testbed/perf/rank.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "testbed/perf/error.h"

namespace forgive::perf {

using Clock = std::chrono::steady_clock;

Rank::Rank(const Options& options, Rendezvous& rendezvous)
    : options_(options),
      rendezvous_(rendezvous),
      timeout_(options.timeout_s),
      inputs_(rendezvous.ranks(), options.seed),
      service_(std::make_unique<Worker>(timeout_)) {
  service_->Run("the plugin's init", [this] {
    const Baseline baseline = BaselineOf(options_.plugin);
    net_ = baseline != Baseline::kNone ? MakeTcpNet(baseline, rendezvous_.LocalAddress())
                                       : LoadPlugin(options_.plugin, options_.api, options_.device,
                                                    {.proof = options_.proof,
                                                     .traffic_class = options_.traffic_class,
                                                     .rank = rendezvous_.rank(),
                                                     .ranks = rendezvous_.ranks()});
  });
  api_ = ForgiveApi(net_->Library());
}

Rank::~Rank() {
  if (progress_ != nullptr && !progress_->Stop()) {
    // The progress thread is inside a call that does not return: its memory must stay, so the process ends here.
    std::fprintf(stderr, "forgive_perf: rank %d: a call into the network does not return\n", rank());
    _exit(kExitRunFailed);
  }
  connections_.clear();
  progress_.reset();
}

void Rank::Connect(const std::vector<Topology>& topologies, std::int64_t most_elements) {
  input_ = inputs_.MakeBuffer(rank(), most_elements);
  std::vector<SendLane*> sends;
  std::vector<ReceiveLane*> receives;
  for (const Topology topology : topologies) {
    auto made = std::make_unique<Connections>(topology, *net_, *service_, rendezvous_, timeout_);
    for (int peer = 0; peer < ranks(); ++peer) {
      if (SendLane* const lane = made->SendTo(peer)) sends.push_back(lane);
      if (ReceiveLane* const lane = made->ReceiveFrom(peer)) receives.push_back(lane);
    }
    connections_.emplace_back(topology, std::move(made));
  }
  progress_ = std::make_unique<Progress>(*net_, std::move(sends), std::move(receives));
}

Connections& Rank::ConnectionsFor(const Shape& shape) const {
  const Topology wanted = shape.collective == Collective::kSendRecv ? Topology::kPointToPoint
                          : shape.algorithm == Algorithm::kDirect   ? Topology::kAll
                                                                    : Topology::kRing;
  for (const auto& [topology, connections] : connections_) {
    if (topology == wanted) return *connections;
  }
  throw RunError("a collective wants connections that were not made");
}

std::unique_ptr<Kernel> Rank::MakeKernel(const Schedule& schedule, UserMemory memory) const {
  const Shape& shape = schedule.shape();
  const Connections& connections = ConnectionsFor(shape);
  if (shape.algorithm == Algorithm::kRing && shape.collective != Collective::kSendRecv) {
    const int next = (rank() + 1) % ranks();
    const int previous = (rank() + ranks() - 1) % ranks();
    return MakeRingKernel(schedule, rank(), memory, connections.SendTo(next), connections.ReceiveFrom(previous));
  }
  std::vector<SendLane*> sends;
  std::vector<ReceiveLane*> receives;
  for (int peer = 0; peer < ranks(); ++peer) {
    sends.push_back(connections.SendTo(peer));
    receives.push_back(connections.ReceiveFrom(peer));
  }
  return MakeDirectKernel(schedule, rank(), memory, std::move(sends), std::move(receives));
}

float* Rank::ResultMemory(std::int64_t elements) {
  results_.assign(static_cast<std::size_t>(elements), 0.0F);
  return results_.data();
}

void Rank::Start(const std::shared_ptr<const Schedule>& schedule, float* result) {
  running_ = Operation();
  running_.number = next_operation_++;
  running_.schedule = schedule;
  running_.rotation = Inputs::RotationOf(running_.number);
  const bool in_place = schedule->shape().collective == Collective::kBroadcast && schedule->shape().root == rank();
  running_.result = in_place ? input_.data() + running_.rotation : result;
  const Connections& connections = ConnectionsFor(schedule->shape());
  for (int peer = 0; peer < ranks(); ++peer) {
    const std::int64_t count = schedule->MessagesOn(peer, rank());
    const ReceiveLane* const lane = connections.ReceiveFrom(peer);
    if (count == 0 || lane == nullptr) continue;
    running_.spans.push_back({lane->comm(), peer, lane->messages(), static_cast<std::uint64_t>(count)});
  }
  const UserMemory memory = {input_.data() + running_.rotation, result, schedule->ResultOf(rank()).first};
  std::unique_ptr<Kernel> kernel = MakeKernel(*schedule, memory);
  const Shape& shape = schedule->shape();
  net_->BeginCollective(
      {.collective = shape.collective, .protocol = shape.protocol, .elements = shape.elements, .ranks = shape.ranks});
  started_ = Clock::now();
  progress_->Start(std::move(kernel));
}

Operation Rank::Finish() {
  const Clock::time_point finished = progress_->Wait(timeout_, [this] { rendezvous_.CheckPeers(); });
  running_.seconds = std::chrono::duration<double>(finished - started_).count();
  return std::move(running_);
}

Operation Rank::Run(const std::shared_ptr<const Schedule>& schedule, float* result) {
  Start(schedule, result);
  return Finish();
}

void Rank::Drain() {
  if (progress_ != nullptr) progress_->Drain(timeout_, [this] { rendezvous_.CheckPeers(); });
}

bool Rank::BeginStep(const StepPlan& plan) {
  const int result = api_.StepBegin(plan.step, plan.critical, plan.declared);
  if (result == FORGIVE_OK) return true;
  if (result == FORGIVE_ERROR_LATCHED) return false;
  throw RunError(fmt::format("forgive_step_begin of step {} failed ({}): {}", plan.step, result, api_.LastError()));
}

bool Rank::EndStep(std::uint64_t step) {
  const int result = api_.StepEnd(step);
  if (result == FORGIVE_OK) return true;
  if (result == FORGIVE_ERROR_LATCHED) return false;
  throw RunError(fmt::format("forgive_step_end of step {} failed ({}): {}", step, result, api_.LastError()));
}

}  // namespace forgive::perf
