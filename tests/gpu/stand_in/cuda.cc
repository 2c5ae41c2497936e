// SPDX-License-Identifier: Apache-2.0
// A stand-in for CUDA's runtime whose device memory is the host's.
#include <cstdlib>
#include <cstring>

#include "cuda_runtime.h"

#pragma GCC visibility push(default)
extern "C" {
const char* cudaGetErrorString(cudaError_t) { return "the stand-in was told to fail"; }
cudaError_t cudaSetDevice(int) {
  return std::getenv("STAND_IN_NO_DEVICE") != nullptr ? cudaErrorStandIn : cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t*) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaMalloc(void** memory, size_t bytes) {
  *memory = std::malloc(bytes);
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
}
#pragma GCC visibility pop
