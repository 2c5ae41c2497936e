// SPDX-License-Identifier: Apache-2.0
// One of two ranks of an all-reduce over NCCL: measures bandwidth, and checks every element against the ledger.
//
// all_reduce RANK ID_FILE MODE BYTES ITERATIONS STEPS: MODE is `reliable` (every element must be the sum) or `steps`
// (each of STEPS all-reduces is a training step of FORGIVE's, in which contributions may be missing, exactly those of
// the ledger). Rank 0 writes the communicator's id to ID_FILE. One line of JSON on standard output.
// Exit status: 0, 1 the check failed, 2 bad input, 3 CUDA, NCCL or the plugin failed.
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <nccl.h>
#include <unistd.h>

#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "plugin/forgive.h"

namespace {

constexpr int kRanks = 2;
constexpr int kIdWaitMs = 60000;
constexpr int kIdPauseMs = 20;
constexpr int kWarmUp = 3;
constexpr int64_t kLedgerBatch = 1024;
constexpr uint64_t kHashSeed = 1469598103934665603u;  // FNV-1a
constexpr uint64_t kHashFactor = 1099511628211u;

struct Options {
  int rank = 0;
  std::string id_file;
  bool steps_mode = false;
  size_t bytes = 0;
  int iterations = 0;
  int steps = 0;
};

struct Outcome {
  double time_us = 0;
  uint64_t wrong = 0;           // elements that are neither the sum nor a lone contribution, or lone without a step
  uint64_t lone_bytes = 0;      // of elements that hold this rank's contribution alone
  uint64_t forgiven_bytes = 0;  // of the steps' accounts
  uint64_t ledger_bytes = 0;    // of the ledger's lines
  uint64_t unequal_steps = 0;   // steps in which lone, forgiven and ledger bytes were not all the same
  uint64_t hash = kHashSeed;    // of every result: both ranks must end with the same
};

// The functions of forgive.h, from the library that NCCL opened.
struct Api {
  decltype(&forgive_step_begin) step_begin = nullptr;
  decltype(&forgive_step_end) step_end = nullptr;
  decltype(&forgive_step_stats) step_stats = nullptr;
  decltype(&forgive_forgiven_ranges) ranges = nullptr;
  decltype(&forgive_last_error) last_error = nullptr;
};

void Check(cudaError_t result, const char* what) {
  if (result != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(result));
}

void Check(ncclResult_t result, const char* what) {
  if (result != ncclSuccess) throw std::runtime_error(std::string(what) + ": " + ncclGetErrorString(result));
}

// Small integers, so that sums are exact; never 0, and no contribution is the sum of others.
float Contribution(int rank, size_t i) {
  return rank == 0 ? static_cast<float>(1 + i % 1000) : static_cast<float>(2000 + i % 999);
}

ncclUniqueId ShareId(const Options& options) {
  ncclUniqueId id;
  if (options.rank == 0) {
    Check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    const std::string unfinished = options.id_file + ".new";
    std::ofstream file(unfinished, std::ios::binary);
    file.write(id.internal, sizeof(id.internal));
    file.close();
    if (!file || std::rename(unfinished.c_str(), options.id_file.c_str()) != 0) {
      throw std::runtime_error(options.id_file + ": cannot be written");
    }
    return id;
  }
  for (int waited_ms = 0; waited_ms < kIdWaitMs; waited_ms += kIdPauseMs) {
    std::ifstream file(options.id_file, std::ios::binary);
    if (file.read(id.internal, sizeof(id.internal))) return id;
    usleep(kIdPauseMs * 1000);
  }
  throw std::runtime_error(options.id_file + ": rank 0 did not write it");
}

template <typename Function>
void Find(void* library, const char* name, Function* out) {
  *out = reinterpret_cast<Function>(dlsym(library, name));
  if (*out == nullptr) throw std::runtime_error(std::string(name) + " is not in the library");
}

Api FindApi() {
  const char* const name = std::getenv("NCCL_NET_PLUGIN");
  // NOLOAD: the very library that NCCL opened, or an error if it opened another.
  void* const library = name == nullptr ? nullptr : dlopen(name, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) throw std::runtime_error("NCCL did not load the library that NCCL_NET_PLUGIN names");
  Api api;
  Find(library, "forgive_step_begin", &api.step_begin);
  Find(library, "forgive_step_end", &api.step_end);
  Find(library, "forgive_step_stats", &api.step_stats);
  Find(library, "forgive_forgiven_ranges", &api.ranges);
  Find(library, "forgive_last_error", &api.last_error);
  return api;
}

class Rank {
 public:
  explicit Rank(const Options& options) : options_(options), count_(options.bytes / sizeof(float)), host_(count_) {
    Check(cudaSetDevice(0), "cudaSetDevice");
    Check(cudaStreamCreate(&stream_), "cudaStreamCreate");
    Check(cudaMalloc(&send_, options.bytes), "cudaMalloc");
    Check(cudaMalloc(&receive_, options.bytes), "cudaMalloc");
    for (size_t i = 0; i < count_; ++i) host_[i] = Contribution(options.rank, i);
    Check(cudaMemcpy(send_, host_.data(), options.bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    Check(ncclCommInitRank(&comm_, kRanks, ShareId(options), options.rank), "ncclCommInitRank");
    if (options.steps_mode) api_ = FindApi();
  }

  Outcome Run() {
    options_.steps_mode ? RunSteps() : RunReliable();
    return outcome_;
  }

  void Close() {
    Check(ncclCommFinalize(comm_), "ncclCommFinalize");
    Check(ncclCommDestroy(comm_), "ncclCommDestroy");
    Check(cudaFree(send_), "cudaFree");
    Check(cudaFree(receive_), "cudaFree");
    Check(cudaStreamDestroy(stream_), "cudaStreamDestroy");
  }

 private:
  void AllReduce() {
    Check(ncclAllReduce(send_, receive_, count_, ncclFloat, ncclSum, comm_, stream_), "ncclAllReduce");
  }

  void Synchronise() {
    Check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    ncclResult_t error = ncclSuccess;
    Check(ncclCommGetAsyncError(comm_, &error), "ncclCommGetAsyncError");
    Check(error, "the communicator");
  }

  void RunReliable() {
    for (int i = 0; i < kWarmUp; ++i) AllReduce();
    Synchronise();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < options_.iterations; ++i) AllReduce();
    Synchronise();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    outcome_.time_us = took.count() / options_.iterations;
    const uint64_t lone = CheckElements();
    outcome_.wrong += lone / sizeof(float);
  }

  void RunSteps() {
    double total_us = 0;
    for (int step = 1; step <= options_.steps; ++step) {
      Require(api_.step_begin(static_cast<uint64_t>(step), 0, options_.bytes / kRanks), "forgive_step_begin");
      const auto begin = std::chrono::steady_clock::now();
      AllReduce();
      Synchronise();
      total_us += std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
      Require(api_.step_end(static_cast<uint64_t>(step)), "forgive_step_end");
      forgive_step_stats_t account = {};
      Require(api_.step_stats(static_cast<uint64_t>(step), &account), "forgive_step_stats");
      const uint64_t lone = CheckElements();
      const uint64_t ledger = LedgerBytes(static_cast<uint64_t>(step));
      outcome_.lone_bytes += lone;
      outcome_.forgiven_bytes += account.forgiven;
      outcome_.ledger_bytes += ledger;
      const bool equal = lone == account.forgiven && lone == ledger && account.budget_violations == 0;
      outcome_.unequal_steps += equal ? 0 : 1;
    }
    outcome_.time_us = total_us / options_.steps;
  }

  // With two ranks a byte that this rank forgave leaves its own contribution alone, on both ranks.
  uint64_t CheckElements() {
    Check(cudaMemcpy(host_.data(), receive_, options_.bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
    uint64_t lone = 0;
    for (size_t i = 0; i < count_; ++i) {
      const float own = Contribution(options_.rank, i);
      const float other = Contribution(1 - options_.rank, i);
      if (host_[i] == own) {
        ++lone;
      } else if (host_[i] != own + other && !(options_.steps_mode && host_[i] == other)) {
        ++outcome_.wrong;
      }
      uint32_t bits;
      std::memcpy(&bits, &host_[i], sizeof(bits));
      outcome_.hash = (outcome_.hash ^ bits) * kHashFactor;
    }
    return lone * sizeof(float);
  }

  uint64_t LedgerBytes(uint64_t step) {
    uint64_t bytes = 0;
    std::vector<forgive_range_t> lines(kLedgerBatch);
    while (true) {
      const int64_t copied = api_.ranges(ledger_read_, lines.data(), lines.size());
      if (copied < 0) throw std::runtime_error(std::string("forgive_forgiven_ranges: ") + api_.last_error());
      for (int64_t i = 0; i < copied; ++i) {
        const forgive_range_t& line = lines[static_cast<size_t>(i)];
        if (line.step == step) bytes += line.length;
      }
      ledger_read_ += static_cast<uint64_t>(copied);
      if (copied == 0) return bytes;
    }
  }

  void Require(int result, const char* what) const {
    if (result != FORGIVE_OK) throw std::runtime_error(std::string(what) + ": " + api_.last_error());
  }

  Options options_;
  size_t count_;
  std::vector<float> host_;
  cudaStream_t stream_ = nullptr;
  void* send_ = nullptr;
  void* receive_ = nullptr;
  ncclComm_t comm_ = nullptr;
  Api api_;
  uint64_t ledger_read_ = 0;
  Outcome outcome_;
};

void Print(const Options& options, const Outcome& outcome) {
  // With two ranks, the bus bandwidth of an all-reduce is its algorithm bandwidth.
  std::printf("{\"rank\": %d, \"size\": %zu, \"time_us\": %.1f, \"busbw_gbs\": %.4f, \"wrong\": %" PRIu64
              ", \"lone_bytes\": %" PRIu64 ", \"forgiven_bytes\": %" PRIu64 ", \"ledger_bytes\": %" PRIu64
              ", \"unequal_steps\": %" PRIu64 ", \"hash\": \"%016" PRIx64 "\"}\n",
              options.rank, options.bytes, outcome.time_us,
              static_cast<double>(options.bytes) / outcome.time_us / 1e3, outcome.wrong, outcome.lone_bytes,
              outcome.forgiven_bytes, outcome.ledger_bytes, outcome.unequal_steps, outcome.hash);
}

bool Parse(int argc, char** argv, Options* out) {
  if (argc != 7) return false;
  out->rank = std::atoi(argv[1]);
  out->id_file = argv[2];
  out->steps_mode = std::strcmp(argv[3], "steps") == 0;
  out->bytes = std::strtoull(argv[4], nullptr, 10) / sizeof(float) * sizeof(float);
  out->iterations = std::atoi(argv[5]);
  out->steps = std::atoi(argv[6]);
  const bool known_mode = out->steps_mode || std::strcmp(argv[3], "reliable") == 0;
  return known_mode && (out->rank == 0 || out->rank == 1) && out->bytes > 0 && out->iterations > 0 && out->steps > 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!Parse(argc, argv, &options)) {
    std::fprintf(stderr, "usage: all_reduce 0|1 ID_FILE reliable|steps BYTES ITERATIONS STEPS\n");
    return 2;
  }
  try {
    Rank rank(options);
    const Outcome outcome = rank.Run();
    rank.Close();
    Print(options, outcome);
    return outcome.wrong == 0 && outcome.unequal_steps == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "all_reduce: rank %d: %s\n", options.rank, error.what());
    return 3;
  }
}
