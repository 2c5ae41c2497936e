// SPDX-License-Identifier: Apache-2.0
// The one implementation below every ABI version: what NCCL's calls mean, in the order in which its table has them.
#ifndef FORGIVE_PLUGIN_NET_H_
#define FORGIVE_PLUGIN_NET_H_

#include <cstdint>
#include <limits>

#include "plugin/nccl_abi.h"

// Every function returns an nccl::Result and waits for no peer. What NCCL passes by pointer is as its interface says.
namespace forgive::net {

// The name for NCCL_NET.
inline constexpr char kName[] = "forgive";

// In place of a communicator's traffic class: this version of NCCL's interface tells none (up to v9).
inline constexpr int kTrafficClassUntold = std::numeric_limits<int>::min();

struct Properties {
  char* name = nullptr;
  char* pci_path = nullptr;  // nullptr: not a PCI device
  uint64_t guid = 0;
  int pointer_support = 0;
  int speed_mbps = 0;
  int port = 0;
  float latency_us = 0;
  int max_comms = 0;
  int max_receives = 0;
};

// The largest message: what v9 on may post at once. `test` reports sizes as an int, so below 2 GiB.
inline constexpr size_t kMaxMessageBytes = size_t{1} << 30;

// Reads the settings and starts the engine; a second call keeps them. Any error is one line in the log.
// `profiler` (v10 on; may be null) is kept for all communicators that have no context.
int Init(nccl::Logger logger, int api_version, nccl::ProfilerCallback profiler = nullptr);
// v11 on: once a communicator. *context names it in the calls below; null after an error.
int InitContext(void** context, uint64_t comm_id, int traffic_class, nccl::Logger logger, int api_version,
                nccl::ProfilerCallback profiler);
// NCCL calls it after a failed init too, with null.
int Finalize(void* context);
// What the calling thread's next data calls on the context's communicators are for.
int SetAttributes(void* context, const nccl::Attributes* attributes);

int Devices(int* count);
int GetProperties(int device, Properties* out);

// `context` is null before v11.
int Listen(void* context, int device, void* handle, void** listen_comm);
// Polled with the same handle: success with *send_comm null means not yet. `traffic_class` counts where there is no
// context (v10).
int Connect(void* context, int device, int traffic_class, void* handle, void** send_comm);
int Accept(void* listen_comm, void** receive_comm);

int RegisterMemory(void* comm, void* data, int64_t size, int type, void** memory_handle);
int RegisterDmaBuffer(void* comm, void* data, size_t size, int type, uint64_t offset, int fd, void** memory_handle);
int DeregisterMemory(void* comm, void* memory_handle);

int Send(void* send_comm, void* data, int64_t size, void* memory_handle, void** request);
// `size` is that of the one receive; other values of `n` than 1 are refused. `profiler_handles` may be null. *request
// may hold nccl::kOptionalCompletion.
int Receive(void* receive_comm, int n, void** data, int64_t size, void** memory_handles, void** profiler_handles,
            void** request);
// Host memory needs no flush: *request is null, which NCCL takes as done.
int Flush(void* receive_comm, int n, void** data, int* sizes, void** memory_handles, void** request);
int Test(void* request, int* done, int* sizes);

int CloseSend(void* send_comm);
int CloseReceive(void* receive_comm);
int CloseListen(void* listen_comm);

}  // namespace forgive::net

#endif  // FORGIVE_PLUGIN_NET_H_
