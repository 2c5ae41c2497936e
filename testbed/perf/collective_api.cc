// SPDX-License-Identifier: Apache-2.0
// The harness's all-reduce behind a C interface: its network, connections and progress thread, and the caller's data.
#include "testbed/perf/collective_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "testbed/perf/connections.h"
#include "testbed/perf/error.h"
#include "testbed/perf/kernels.h"
#include "testbed/perf/net.h"
#include "testbed/perf/progress.h"
#include "testbed/perf/rendezvous.h"
#include "testbed/perf/schedule.h"
#include "testbed/perf/worker.h"

namespace forgive::perf {
namespace {

std::string& LastError() {
  thread_local std::string text;
  return text;
}

Algorithm AlgorithmOf(const std::string& name) {
  if (name == "ring") return Algorithm::kRing;
  if (name == "direct") return Algorithm::kDirect;
  throw UsageError(fmt::format("algorithm {}: accepted are ring and direct", name));
}

Rendezvous Meet(const std::string& where, int rank, int ranks, std::chrono::seconds timeout,
                const std::string& options) {
  if (ranks < 2 || rank < 0 || rank >= ranks) {
    throw UsageError(fmt::format("rank {} of {}: ranks count from 0, and there are at least 2", rank, ranks));
  }
  if (rank == 0) return Rendezvous::Serve(ListenAt(where), ranks, timeout, options);
  return Rendezvous::Join(where, rank, ranks, timeout, options);
}

}  // namespace

class AllReducer {
 public:
  AllReducer(const std::string& plugin, const std::string& algorithm, int rank, int ranks,
             const std::string& rendezvous, int timeout_s)
      : algorithm_(AlgorithmOf(algorithm)),
        timeout_(timeout_s),
        rendezvous_(Meet(rendezvous, rank, ranks, timeout_, "collective " + algorithm)),
        service_(std::make_unique<Worker>(timeout_)) {
    try {
      service_->Run("the plugin's init", [&] {
        const Baseline baseline = BaselineOf(plugin);
        net_ =
            baseline != Baseline::kNone ? MakeTcpNet(baseline, rendezvous_.LocalAddress()) : LoadPlugin(plugin, 0, 0);
      });
      const Topology topology = algorithm_ == Algorithm::kDirect ? Topology::kAll : Topology::kRing;
      connections_ = std::make_unique<Connections>(topology, *net_, *service_, rendezvous_, timeout_);
    } catch (const std::exception& error) {
      rendezvous_.Abort(error.what());
      throw;
    }
    for (int peer = 0; peer < rendezvous_.ranks(); ++peer) {
      sends_.push_back(connections_->SendTo(peer));
      receives_.push_back(connections_->ReceiveFrom(peer));
    }
    const auto present = [](const auto& lanes) {
      std::remove_cvref_t<decltype(lanes)> some;
      std::ranges::copy_if(lanes, std::back_inserter(some), [](const auto* lane) { return lane != nullptr; });
      return some;
    };
    progress_ = std::make_unique<Progress>(*net_, present(sends_), present(receives_));
  }

  ~AllReducer() {
    if (!StopProgress()) {
      // Its thread is inside a call that does not return, and uses all of this: it is left in place.
      static_cast<void>(progress_.release());
      static_cast<void>(connections_.release());
      static_cast<void>(net_.release());
      static_cast<void>(service_.release());
    }
  }
  AllReducer(const AllReducer&) = delete;
  AllReducer& operator=(const AllReducer&) = delete;

  void AllReduce(float* data, std::int64_t count) {
    if (count == 0) return;
    try {
      // The direct algorithm's sum may not overwrite what it still reads: the input is a copy.
      input_.assign(data, data + count);
      const Schedule schedule(ShapeOf(count));
      const UserMemory memory = {input_.data(), data, 0};
      progress_->Start(MakeKernel(schedule, memory));
      progress_->Wait(timeout_, [this] { rendezvous_.CheckPeers(); });
    } catch (const std::exception& error) {
      StopProgress();  // the caller's data is his own again
      rendezvous_.Abort(error.what());
      throw;
    }
  }

  std::int64_t ReceivedBytes(std::int64_t count, bool only_reduce) const {
    const Schedule schedule(ShapeOf(count));
    return only_reduce ? schedule.ForgivableBytes(rendezvous_.rank(), Eligible::kReduce)
                       : schedule.ReceivedBytes(rendezvous_.rank());
  }

 private:
  // False: the thread is inside a call that does not return.
  bool StopProgress() {
    if (progress_ != nullptr && !progress_->Stop()) hangs_ = true;
    return !hangs_;
  }

  Shape ShapeOf(std::int64_t count) const {
    Shape shape;
    shape.collective = Collective::kAllReduce;
    shape.algorithm = algorithm_;
    shape.ranks = rendezvous_.ranks();
    shape.elements = count;
    return shape;
  }

  std::unique_ptr<Kernel> MakeKernel(const Schedule& schedule, UserMemory memory) const {
    const int rank = rendezvous_.rank();
    const int ranks = rendezvous_.ranks();
    if (algorithm_ == Algorithm::kDirect) return MakeDirectKernel(schedule, rank, memory, sends_, receives_);
    return MakeRingKernel(schedule, rank, memory, sends_[static_cast<std::size_t>((rank + 1) % ranks)],
                          receives_[static_cast<std::size_t>((rank + ranks - 1) % ranks)]);
  }

  const Algorithm algorithm_;
  const std::chrono::seconds timeout_;
  Rendezvous rendezvous_;
  std::unique_ptr<Worker> service_;
  std::unique_ptr<Net> net_;
  std::unique_ptr<Connections> connections_;
  std::vector<SendLane*> sends_;  // by peer; null where there is none
  std::vector<ReceiveLane*> receives_;
  std::vector<float> input_;
  std::unique_ptr<Progress> progress_;  // ends first
  bool hangs_ = false;
};

}  // namespace forgive::perf

struct forgive_collective {
  forgive::perf::AllReducer reducer;
};

extern "C" {

forgive_collective_t* forgive_collective_create(const char* plugin, const char* algorithm, int rank, int ranks,
                                                const char* rendezvous, int timeout_s) {
  try {
    return new forgive_collective{{plugin, algorithm, rank, ranks, rendezvous, timeout_s}};
  } catch (const std::exception& error) {
    forgive::perf::LastError() = error.what();
    return nullptr;
  }
}

int forgive_collective_all_reduce(forgive_collective_t* collective, float* data, int64_t count) {
  try {
    collective->reducer.AllReduce(data, count);
    return 0;
  } catch (const std::exception& error) {
    forgive::perf::LastError() = error.what();
    return -1;
  }
}

int64_t forgive_collective_received_bytes(const forgive_collective_t* collective, int64_t count, int only_reduce) {
  return collective->reducer.ReceivedBytes(count, only_reduce != 0);
}

void forgive_collective_destroy(forgive_collective_t* collective) { delete collective; }

const char* forgive_collective_error(void) { return forgive::perf::LastError().c_str(); }

}  // extern "C"
