// SPDX-License-Identifier: Apache-2.0
// The few calls of CUDA's runtime that tests/gpu/all_reduce.cc makes, declared for a stand-in without a GPU.
#ifndef FORGIVE_TESTS_GPU_STAND_IN_CUDA_RUNTIME_H_
#define FORGIVE_TESTS_GPU_STAND_IN_CUDA_RUNTIME_H_

#include <stddef.h>

enum cudaError_t { cudaSuccess = 0, cudaErrorStandIn = 1 };
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2 };
using cudaStream_t = struct StandInStream*;

extern "C" {
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaStreamCreate(cudaStream_t* stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaMalloc(void** memory, size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind);
}

#endif  // FORGIVE_TESTS_GPU_STAND_IN_CUDA_RUNTIME_H_
