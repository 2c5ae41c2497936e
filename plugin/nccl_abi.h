// SPDX-License-Identifier: Apache-2.0
// The binary interface between NCCL and a net plugin, v6 to v12: our own declarations of the layouts NCCL reads.
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
inline constexpr int kMaxMergedDevices = 4;     // v9 to v11: devices of one virtual device
inline constexpr int kMaxMergedDevicesV12 = 8;
inline constexpr int kNoTrafficClass = -1;     // v10 on: the communicator has none
inline constexpr int16_t kNoId = -1;           // v12: rail and plane are not known
inline constexpr uint32_t kNoAttribute = ~0u;  // v11 on: op, algorithm or protocol is not known
// v9 on: what *request holds before a receive whose completion NCCL can do without (LL and LL128).
inline constexpr uintptr_t kOptionalCompletion = 0x1;
// The most that maxP2pBytes and maxCollBytes may say.
inline constexpr size_t kMaxNetBytes = size_t{1} << 40;

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

template <int kDevices>
struct MergedDevices {
  int count;
  int devices[kDevices];
};

// v9, and v10 the same.
struct PropertiesV9 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int pointer_support;
  int registration_is_global;
  int force_flush;
  int speed_mbps;
  int port;
  float latency_us;
  int max_comms;
  int max_receives;
  int net_device_type;
  int net_device_version;
  MergedDevices<kMaxMergedDevices> merged;
  size_t max_point_to_point_bytes;
  size_t max_collective_bytes;
};

struct PropertiesV11 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int pointer_support;
  int registration_is_global;
  int force_flush;
  int speed_mbps;
  int port;
  float latency_us;
  int max_comms;
  int max_receives;
  int net_device_type;
  int net_device_version;
  MergedDevices<kMaxMergedDevices> merged;
  size_t max_point_to_point_bytes;
  size_t max_collective_bytes;
  int max_multi_request;
};

struct PropertiesV12 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int pointer_support;
  int registration_is_global;
  int force_flush;
  int speed_mbps;
  int port;
  float latency_us;
  int max_comms;
  int max_receives;
  int net_device_type;
  int net_device_version;
  MergedDevices<kMaxMergedDevicesV12> merged;
  size_t max_point_to_point_bytes;
  size_t max_collective_bytes;
  int max_multi_request;
  int16_t rail_id;
  int16_t plane_id;
};

// v10 on. One int, so that only its first bytes are ever read.
struct CommunicatorConfig {
  int traffic_class;
};

// v11 on: what the next data calls of a communicator are for. Masks with one bit an operation, algorithm, protocol.
struct CommunicatorAttributes {
  int32_t max_concurrent_peers;
  int32_t min_concurrent_peers;
  int32_t max_flows_per_peer;
  int32_t min_flows_per_peer;
};
struct Attributes {
  CommunicatorAttributes send;
  CommunicatorAttributes receive;
  uint32_t operation;
  uint32_t algorithm;
  uint32_t protocol;
};

// v10 on, given to init: passes an event of the plugin's to the profiler, as a child of the step that
// `profiler_handle` names (given to isend and irecv).
enum ProfilerEvent : int { kEventStart = 0, kEventStop = 1 };
using ProfilerCallback = int (*)(void** event, int type, void* profiler_handle, int64_t plugin_id, void* data);

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

struct NetV9 {
  const char* name;
  int (*init)(Logger logger);
  int (*devices)(int* count);
  int (*get_properties)(int device, PropertiesV9* properties);
  int (*listen)(int device, void* handle, void** listen_comm);
  int (*connect)(int device, void* handle, void** send_comm, void** device_comm);
  int (*accept)(void* listen_comm, void** receive_comm, void** device_comm);
  int (*register_memory)(void* comm, void* data, size_t size, int type, void** memory_handle);
  int (*register_dma_buffer)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                             void** memory_handle);
  int (*deregister_memory)(void* comm, void* memory_handle);
  int (*send)(void* send_comm, void* data, size_t size, int tag, void* memory_handle, void** request);
  int (*receive)(void* receive_comm, int n, void** data, size_t* sizes, int* tags, void** memory_handles,
                 void** request);
  int (*flush)(void* receive_comm, int n, void** data, int* sizes, void** memory_handles, void** request);
  int (*test)(void* request, int* done, int* sizes);
  int (*close_send)(void* send_comm);
  int (*close_receive)(void* receive_comm);
  int (*close_listen)(void* listen_comm);
  int (*get_device_memory)(void* comm, void* memory_handle, void** device_memory_handle);  // may be null
  int (*receive_consumed)(void* receive_comm, int n, void* request);                       // may be null
  int (*make_virtual_device)(int* device, MergedDevices<kMaxMergedDevices>* merged);       // may be null
};

struct NetV10 {
  const char* name;
  int (*init)(Logger logger, ProfilerCallback profiler);
  int (*devices)(int* count);
  int (*get_properties)(int device, PropertiesV9* properties);
  int (*listen)(int device, void* handle, void** listen_comm);
  int (*connect)(int device, CommunicatorConfig* config, void* handle, void** send_comm, void** device_comm);
  int (*accept)(void* listen_comm, void** receive_comm, void** device_comm);
  int (*register_memory)(void* comm, void* data, size_t size, int type, void** memory_handle);
  int (*register_dma_buffer)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                             void** memory_handle);
  int (*deregister_memory)(void* comm, void* memory_handle);
  int (*send)(void* send_comm, void* data, size_t size, int tag, void* memory_handle, void* profiler_handle,
              void** request);
  int (*receive)(void* receive_comm, int n, void** data, size_t* sizes, int* tags, void** memory_handles,
                 void** profiler_handles, void** request);
  int (*flush)(void* receive_comm, int n, void** data, int* sizes, void** memory_handles, void** request);
  int (*test)(void* request, int* done, int* sizes);
  int (*close_send)(void* send_comm);
  int (*close_receive)(void* receive_comm);
  int (*close_listen)(void* listen_comm);
  int (*get_device_memory)(void* comm, void* memory_handle, void** device_memory_handle);  // may be null
  int (*receive_consumed)(void* receive_comm, int n, void* request);                       // may be null
  int (*make_virtual_device)(int* device, MergedDevices<kMaxMergedDevices>* merged);       // may be null
};

// v11 and v12 differ in their properties and in how many devices a virtual one merges.
template <typename Properties, int kDevices>
struct NetWithContext {
  const char* name;
  int (*init)(void** context, uint64_t comm_id, CommunicatorConfig* config, Logger logger, ProfilerCallback profiler);
  int (*devices)(int* count);
  int (*get_properties)(int device, Properties* properties);
  int (*listen)(void* context, int device, void* handle, void** listen_comm);
  int (*connect)(void* context, int device, void* handle, void** send_comm, void** device_comm);
  int (*accept)(void* listen_comm, void** receive_comm, void** device_comm);
  int (*register_memory)(void* comm, void* data, size_t size, int type, void** memory_handle);
  int (*register_dma_buffer)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                             void** memory_handle);
  int (*deregister_memory)(void* comm, void* memory_handle);
  int (*send)(void* send_comm, void* data, size_t size, int tag, void* memory_handle, void* profiler_handle,
              void** request);
  int (*receive)(void* receive_comm, int n, void** data, size_t* sizes, int* tags, void** memory_handles,
                 void** profiler_handles, void** request);
  int (*flush)(void* receive_comm, int n, void** data, int* sizes, void** memory_handles, void** request);
  int (*test)(void* request, int* done, int* sizes);
  int (*close_send)(void* send_comm);
  int (*close_receive)(void* receive_comm);
  int (*close_listen)(void* listen_comm);
  int (*get_device_memory)(void* comm, void* memory_handle, void** device_memory_handle);  // may be null
  int (*receive_consumed)(void* receive_comm, int n, void* request);                       // may be null
  int (*make_virtual_device)(int* device, MergedDevices<kDevices>* merged);                // may be null
  int (*finalize)(void* context);
  int (*set_attributes)(void* context, Attributes* attributes);  // may be null
};
using NetV11 = NetWithContext<PropertiesV11, kMaxMergedDevices>;
using NetV12 = NetWithContext<PropertiesV12, kMaxMergedDevicesV12>;

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
static_assert(sizeof(NetV9) == 160);
static_assert(sizeof(NetV10) == 160);
static_assert(sizeof(NetV11) == 176);
static_assert(sizeof(NetV12) == 176);
static_assert(offsetof(NetV9, make_virtual_device) == 152);
static_assert(offsetof(NetV10, receive) == 11 * 8);
static_assert(offsetof(NetV11, finalize) == 160);
static_assert(offsetof(NetV12, set_attributes) == 168);
static_assert(sizeof(PropertiesV9) == 104);
static_assert(sizeof(PropertiesV11) == 112);
static_assert(sizeof(PropertiesV12) == 128);
static_assert(offsetof(PropertiesV9, force_flush) == 32);
static_assert(offsetof(PropertiesV9, merged) == 64);
static_assert(offsetof(PropertiesV9, max_point_to_point_bytes) == 88);
static_assert(offsetof(PropertiesV11, max_multi_request) == 104);
static_assert(offsetof(PropertiesV12, max_point_to_point_bytes) == 104);
static_assert(offsetof(PropertiesV12, rail_id) == 124);
static_assert(sizeof(Attributes) == 44);
static_assert(offsetof(Attributes, operation) == 32);
static_assert(sizeof(CommunicatorConfig) == 4);

}  // namespace forgive::nccl

#endif  // FORGIVE_PLUGIN_NCCL_ABI_H_
