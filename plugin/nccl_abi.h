// SPDX-License-Identifier: Apache-2.0
// The binary interface between NCCL and a net plugin, v6 to v8: our own declarations of the layouts NCCL reads.
#ifndef FORGIVE_PLUGIN_NCCL_ABI_H_
#define FORGIVE_PLUGIN_NCCL_ABI_H_

#include <cstddef>
#include <cstdint>

namespace forgive::nccl {

// What a plugin's function returns, as NCCL numbers it.
enum Result : int {
  kSuccess = 0,
  kSystemError = 2,
  kInternalError = 3,
  kRemoteError = 6,
};

enum PointerType : int { kPointerHost = 1, kPointerCuda = 2, kPointerDmaBuf = 4 };

enum LogLevelNumber : int { kLogNone = 0, kLogVersion = 1, kLogWarn = 2, kLogInfo = 3, kLogAbort = 4, kLogTrace = 5 };
enum LogSubsystem : unsigned long { kSubsystemInit = 0x1, kSubsystemNet = 0x10 };

// NCCL's logger, given to init.
using Logger = void (*)(int level, unsigned long flags, const char* file, int line, const char* format, ...);

inline constexpr size_t kHandleBytes = 128;
inline constexpr int kMaxRequestsPerComm = 32;  // NCCL's own limit with one receive a request
inline constexpr int kNetDeviceHost = 0;        // v7 on: no part of the network runs on the GPU

struct PropertiesV6 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int pointer_support;  // PointerType, or-ed
  int speed_mbps;
  int port;
  float latency_us;
  int max_comms;
  int max_receives;
};

struct PropertiesV7 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int pointer_support;
  int speed_mbps;
  int port;
  float latency_us;
  int max_comms;
  int max_receives;
  int net_device_type;
  int net_device_version;
};

struct PropertiesV8 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int pointer_support;
  int registration_is_global;
  int speed_mbps;
  int port;
  float latency_us;
  int max_comms;
  int max_receives;
  int net_device_type;
  int net_device_version;
};

struct NetV6 {
  const char* name;
  int (*init)(Logger logger);
  int (*devices)(int* count);
  int (*get_properties)(int device, PropertiesV6* properties);
  int (*listen)(int device, void* handle, void** listen_comm);
  int (*connect)(int device, void* handle, void** send_comm);
  int (*accept)(void* listen_comm, void** receive_comm);
  int (*register_memory)(void* comm, void* data, int size, int type, void** memory_handle);
  int (*register_dma_buffer)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                             void** memory_handle);
  int (*deregister_memory)(void* comm, void* memory_handle);
  int (*send)(void* send_comm, void* data, int size, int tag, void* memory_handle, void** request);
  int (*receive)(void* receive_comm, int n, void** data, int* sizes, int* tags, void** memory_handles,
                 void** request);
  int (*flush)(void* receive_comm, int n, void** data, int* sizes, void** memory_handles, void** request);
  int (*test)(void* request, int* done, int* sizes);
  int (*close_send)(void* send_comm);
  int (*close_receive)(void* receive_comm);
  int (*close_listen)(void* listen_comm);
};

struct NetV7 {
  const char* name;
  int (*init)(Logger logger);
  int (*devices)(int* count);
  int (*get_properties)(int device, PropertiesV7* properties);
  int (*listen)(int device, void* handle, void** listen_comm);
  int (*connect)(int device, void* handle, void** send_comm, void** device_comm);
  int (*accept)(void* listen_comm, void** receive_comm, void** device_comm);
  int (*register_memory)(void* comm, void* data, int size, int type, void** memory_handle);
  int (*register_dma_buffer)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                             void** memory_handle);
  int (*deregister_memory)(void* comm, void* memory_handle);
  int (*send)(void* send_comm, void* data, int size, int tag, void* memory_handle, void** request);
  int (*receive)(void* receive_comm, int n, void** data, int* sizes, int* tags, void** memory_handles,
                 void** request);
  int (*flush)(void* receive_comm, int n, void** data, int* sizes, void** memory_handles, void** request);
  int (*test)(void* request, int* done, int* sizes);
  int (*close_send)(void* send_comm);
  int (*close_receive)(void* receive_comm);
  int (*close_listen)(void* listen_comm);
  int (*get_device_memory)(void* comm, void* memory_handle, void** device_memory_handle);  // may be null
  int (*receive_consumed)(void* receive_comm, int n, void* request);                       // may be null
};

struct NetV8 {
  const char* name;
  int (*init)(Logger logger);
  int (*devices)(int* count);
  int (*get_properties)(int device, PropertiesV8* properties);
  int (*listen)(int device, void* handle, void** listen_comm);
  int (*connect)(int device, void* handle, void** send_comm, void** device_comm);
  int (*accept)(void* listen_comm, void** receive_comm, void** device_comm);
  int (*register_memory)(void* comm, void* data, size_t size, int type, void** memory_handle);
  int (*register_dma_buffer)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                             void** memory_handle);
  int (*deregister_memory)(void* comm, void* memory_handle);
  int (*send)(void* send_comm, void* data, int size, int tag, void* memory_handle, void** request);
  int (*receive)(void* receive_comm, int n, void** data, int* sizes, int* tags, void** memory_handles,
                 void** request);
  int (*flush)(void* receive_comm, int n, void** data, int* sizes, void** memory_handles, void** request);
  int (*test)(void* request, int* done, int* sizes);
  int (*close_send)(void* send_comm);
  int (*close_receive)(void* receive_comm);
  int (*close_listen)(void* listen_comm);
  int (*get_device_memory)(void* comm, void* memory_handle, void** device_memory_handle);  // may be null
  int (*receive_consumed)(void* receive_comm, int n, void* request);                       // may be null
};

// What NCCL was compiled with; a mismatch here would be a crash there.
static_assert(sizeof(void*) == 8);
static_assert(sizeof(NetV6) == 136);
static_assert(sizeof(NetV7) == 152);
static_assert(sizeof(NetV8) == 152);
static_assert(offsetof(NetV6, register_memory) == 7 * 8);
static_assert(offsetof(NetV6, test) == 13 * 8);
static_assert(offsetof(NetV7, get_device_memory) == 136);
static_assert(offsetof(NetV8, receive_consumed) == 144);
static_assert(sizeof(PropertiesV6) == 48);
static_assert(sizeof(PropertiesV7) == 56);
static_assert(sizeof(PropertiesV8) == 64);
static_assert(offsetof(PropertiesV6, speed_mbps) == 28);
static_assert(offsetof(PropertiesV6, max_receives) == 44);
static_assert(offsetof(PropertiesV7, net_device_type) == 48);
static_assert(offsetof(PropertiesV8, registration_is_global) == 28);
static_assert(offsetof(PropertiesV8, speed_mbps) == 32);
static_assert(offsetof(PropertiesV8, net_device_version) == 56);

}  // namespace forgive::nccl

#endif  // FORGIVE_PLUGIN_NCCL_ABI_H_
