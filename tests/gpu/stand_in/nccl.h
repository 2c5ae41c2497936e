// SPDX-License-Identifier: Apache-2.0
// The few calls of NCCL that tests/gpu/all_reduce.cc makes, declared for a stand-in without a GPU.
#ifndef FORGIVE_TESTS_GPU_STAND_IN_NCCL_H_
#define FORGIVE_TESTS_GPU_STAND_IN_NCCL_H_

#include "cuda_runtime.h"

enum ncclResult_t { ncclSuccess = 0, ncclSystemError = 2 };
enum ncclDataType_t { ncclFloat = 7 };
enum ncclRedOp_t { ncclSum = 0 };
struct ncclUniqueId {
  char internal[128];
};
using ncclComm_t = struct StandInComm*;

extern "C" {
const char* ncclGetErrorString(ncclResult_t result);
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t comm, cudaStream_t stream);
}

#endif  // FORGIVE_TESTS_GPU_STAND_IN_NCCL_H_
