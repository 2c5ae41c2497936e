// SPDX-License-Identifier: Apache-2.0
// A stand-in for NCCL that adds two ranks' buffers through files in STAND_IN_FOLDER, and loses what it is told to.
//
// Under FORGIVE_GRADIENT_TRAFFIC=all rank r loses the other's contribution to the first STAND_IN_LOST_r bytes of its
// half of the buffer. STAND_IN_WRONG: an element of every result of rank 1 is one too large.
#include "nccl.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

struct StandInComm {
  int rank;
  std::string name;
  int operations = 0;
};

namespace {

constexpr int kTurns = 20000;

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

size_t LostBytes(int rank) {
  if (Variable("FORGIVE_GRADIENT_TRAFFIC") != "all") return 0;
  return std::strtoull(Variable(rank == 0 ? "STAND_IN_LOST_0" : "STAND_IN_LOST_1").c_str(), nullptr, 10);
}

std::string FileOf(const StandInComm& comm, int rank) {
  return comm.name + "." + std::to_string(comm.operations) + "." + std::to_string(rank);
}

bool Exchange(const StandInComm& comm, const void* send, std::vector<float>* other) {
  const std::string own = FileOf(comm, comm.rank);
  std::ofstream file(own + ".new", std::ios::binary);
  file.write(static_cast<const char*>(send), static_cast<std::streamsize>(other->size() * sizeof(float)));
  file.close();
  std::rename((own + ".new").c_str(), own.c_str());
  for (int turn = 0; turn < kTurns; ++turn) {
    std::ifstream theirs(FileOf(comm, 1 - comm.rank), std::ios::binary);
    if (theirs.read(reinterpret_cast<char*>(other->data()),
                    static_cast<std::streamsize>(other->size() * sizeof(float)))) {
      return true;
    }
    usleep(500);
  }
  return false;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {
const char* ncclGetErrorString(ncclResult_t) { return "the stand-in failed"; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::snprintf(id->internal, sizeof(id->internal), "%s/%d", Variable("STAND_IN_FOLDER").c_str(), getpid());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int, ncclUniqueId id, int rank) {
  // As NCCL does; the stand-in only needs it to be loaded.
  const bool plugin = Variable("NCCL_NET") == "forgive";
  if (plugin && dlopen(Variable("NCCL_NET_PLUGIN").c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) return ncclSystemError;
  *comm = new StandInComm{rank, id.internal};
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* error) {
  *error = ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclSuccess; }

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t, ncclRedOp_t,
                           ncclComm_t comm, cudaStream_t) {
  const auto* own = static_cast<const float*>(send);
  auto* result = static_cast<float*>(receive);
  std::vector<float> other(count);
  if (!Exchange(*comm, send, &other)) return ncclSystemError;
  ++comm->operations;
  for (size_t i = 0; i < count; ++i) {
    const int half = i < count / 2 ? 0 : 1;
    const bool lost = (i - static_cast<size_t>(half) * (count / 2)) * sizeof(float) < LostBytes(half);
    const float of_half = half == comm->rank ? own[i] : other[i];
    result[i] = lost ? of_half : own[i] + other[i];
  }
  if (comm->rank == 1 && !Variable("STAND_IN_WRONG").empty()) result[5] += 1;
  return ncclSuccess;
}
}
#pragma GCC visibility pop
