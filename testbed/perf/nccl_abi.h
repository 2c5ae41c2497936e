// SPDX-License-Identifier: Apache-2.0
// NCCL's network plugin interface, versions 6 to 12, declared anew for an independent client of it.
#ifndef FORGIVE_TESTBED_PERF_NCCL_ABI_H_
#define FORGIVE_TESTBED_PERF_NCCL_ABI_H_

#include <cstddef>
#include <cstdint>

namespace forgive::perf::abi {

inline constexpr std::size_t kHandleBytes = 128;
inline constexpr int kPointerHost = 1;
inline constexpr int kNoTrafficClass = -1;

// Results, as plain integers: a plugin may return a value that an enum here would not know.
inline constexpr int kSuccess = 0;
inline constexpr int kSystemError = 2;
inline constexpr int kInternalError = 3;
inline constexpr int kInvalidArgument = 4;
inline constexpr int kRemoteError = 6;

// Log levels.
inline constexpr int kLogWarn = 2;
inline constexpr int kLogInfo = 3;

using Logger = void (*)(int level, unsigned long flags, const char* file, int line, const char* format, ...);
// Version 10 on: forwards an event of the plugin's to a profiler.
using ProfilerCallback = int (*)(void** event, int type, void* handle, std::int64_t plugin_id, void* data);

struct PropertiesV6 {
  char* name;
  char* pci_path;
  std::uint64_t guid;
  int pointer_support;
  int speed_mbps;
  int port;
  float latency_us;
  int max_comms;
  int max_receives;
};
static_assert(sizeof(PropertiesV6) == 48 && offsetof(PropertiesV6, max_receives) == 44);

struct PropertiesV7 {
  char* name;
  char* pci_path;
  std::uint64_t guid;
  int pointer_support;
  int speed_mbps;
  int port;
  float latency_us;
  int max_comms;
  int max_receives;
  int device_type;
  int device_version;
};
static_assert(sizeof(PropertiesV7) == 56 && offsetof(PropertiesV7, device_type) == 48);

struct PropertiesV8 {
  char* name;
  char* pci_path;
  std::uint64_t guid;
  int pointer_support;
  int registration_is_global;
  int speed_mbps;
  int port;
  float latency_us;
  int max_comms;
  int max_receives;
  int device_type;
  int device_version;
};
static_assert(sizeof(PropertiesV8) == 64 && offsetof(PropertiesV8, speed_mbps) == 32);

template <int kDevices>
struct VirtualDevice {
  int count;
  int devices[kDevices];
};

struct PropertiesV9 {
  char* name;
  char* pci_path;
  std::uint64_t guid;
  int pointer_support;
  int registration_is_global;
  int force_flush;
  int speed_mbps;
  int port;
  float latency_us;
  int max_comms;
  int max_receives;
  int device_type;
  int device_version;
  VirtualDevice<4> virtual_device;
  std::size_t max_p2p_bytes;
  std::size_t max_collective_bytes;
};
static_assert(sizeof(PropertiesV9) == 104 && offsetof(PropertiesV9, max_p2p_bytes) == 88);

struct PropertiesV11 {
  char* name;
  char* pci_path;
  std::uint64_t guid;
  int pointer_support;
  int registration_is_global;
  int force_flush;
  int speed_mbps;
  int port;
  float latency_us;
  int max_comms;
  int max_receives;
  int device_type;
  int device_version;
  VirtualDevice<4> virtual_device;
  std::size_t max_p2p_bytes;
  std::size_t max_collective_bytes;
  int max_multi_request_size;
};
static_assert(sizeof(PropertiesV11) == 112 && offsetof(PropertiesV11, max_multi_request_size) == 104);

struct PropertiesV12 {
  char* name;
  char* pci_path;
  std::uint64_t guid;
  int pointer_support;
  int registration_is_global;
  int force_flush;
  int speed_mbps;
  int port;
  float latency_us;
  int max_comms;
  int max_receives;
  int device_type;
  int device_version;
  VirtualDevice<8> virtual_device;
  std::size_t max_p2p_bytes;
  std::size_t max_collective_bytes;
  int max_multi_request_size;
  std::int16_t rail;
  std::int16_t plane;
};
static_assert(sizeof(PropertiesV12) == 128 && offsetof(PropertiesV12, rail) == 124);

struct Config {
  int traffic_class;
};

struct Attributes {
  std::int32_t send[4];
  std::int32_t receive[4];
  std::uint32_t op;
  std::uint32_t algo;
  std::uint32_t proto;
};
static_assert(sizeof(Attributes) == 44 && offsetof(Attributes, op) == 32);

struct TableV6 {
  using Properties = PropertiesV6;
  static constexpr int kVersion = 6;
  const char* name;
  int (*init)(Logger);
  int (*devices)(int*);
  int (*get_properties)(int, PropertiesV6*);
  int (*listen)(int, void*, void**);
  int (*connect)(int, void*, void**);
  int (*accept)(void*, void**);
  int (*register_memory)(void*, void*, int, int, void**);
  int (*register_dma_buffer)(void*, void*, std::size_t, int, std::uint64_t, int, void**);
  int (*deregister_memory)(void*, void*);
  int (*isend)(void*, void*, int, int, void*, void**);
  int (*irecv)(void*, int, void**, int*, int*, void**, void**);
  int (*iflush)(void*, int, void**, int*, void**, void**);
  int (*test)(void*, int*, int*);
  int (*close_send)(void*);
  int (*close_receive)(void*);
  int (*close_listen)(void*);
};
static_assert(sizeof(TableV6) == 136);

struct TableV7 {
  using Properties = PropertiesV7;
  static constexpr int kVersion = 7;
  const char* name;
  int (*init)(Logger);
  int (*devices)(int*);
  int (*get_properties)(int, PropertiesV7*);
  int (*listen)(int, void*, void**);
  int (*connect)(int, void*, void**, void**);
  int (*accept)(void*, void**, void**);
  int (*register_memory)(void*, void*, int, int, void**);
  int (*register_dma_buffer)(void*, void*, std::size_t, int, std::uint64_t, int, void**);
  int (*deregister_memory)(void*, void*);
  int (*isend)(void*, void*, int, int, void*, void**);
  int (*irecv)(void*, int, void**, int*, int*, void**, void**);
  int (*iflush)(void*, int, void**, int*, void**, void**);
  int (*test)(void*, int*, int*);
  int (*close_send)(void*);
  int (*close_receive)(void*);
  int (*close_listen)(void*);
  int (*get_device_memory)(void*, void*, void**);
  int (*receive_consumed)(void*, int, void*);
};
static_assert(sizeof(TableV7) == 152);

struct TableV8 {
  using Properties = PropertiesV8;
  static constexpr int kVersion = 8;
  const char* name;
  int (*init)(Logger);
  int (*devices)(int*);
  int (*get_properties)(int, PropertiesV8*);
  int (*listen)(int, void*, void**);
  int (*connect)(int, void*, void**, void**);
  int (*accept)(void*, void**, void**);
  int (*register_memory)(void*, void*, std::size_t, int, void**);
  int (*register_dma_buffer)(void*, void*, std::size_t, int, std::uint64_t, int, void**);
  int (*deregister_memory)(void*, void*);
  int (*isend)(void*, void*, int, int, void*, void**);
  int (*irecv)(void*, int, void**, int*, int*, void**, void**);
  int (*iflush)(void*, int, void**, int*, void**, void**);
  int (*test)(void*, int*, int*);
  int (*close_send)(void*);
  int (*close_receive)(void*);
  int (*close_listen)(void*);
  int (*get_device_memory)(void*, void*, void**);
  int (*receive_consumed)(void*, int, void*);
};
static_assert(sizeof(TableV8) == 152);

struct TableV9 {
  using Properties = PropertiesV9;
  static constexpr int kVersion = 9;
  const char* name;
  int (*init)(Logger);
  int (*devices)(int*);
  int (*get_properties)(int, PropertiesV9*);
  int (*listen)(int, void*, void**);
  int (*connect)(int, void*, void**, void**);
  int (*accept)(void*, void**, void**);
  int (*register_memory)(void*, void*, std::size_t, int, void**);
  int (*register_dma_buffer)(void*, void*, std::size_t, int, std::uint64_t, int, void**);
  int (*deregister_memory)(void*, void*);
  int (*isend)(void*, void*, std::size_t, int, void*, void**);
  int (*irecv)(void*, int, void**, std::size_t*, int*, void**, void**);
  int (*iflush)(void*, int, void**, int*, void**, void**);
  int (*test)(void*, int*, int*);
  int (*close_send)(void*);
  int (*close_receive)(void*);
  int (*close_listen)(void*);
  int (*get_device_memory)(void*, void*, void**);
  int (*receive_consumed)(void*, int, void*);
  int (*make_virtual_device)(int*, VirtualDevice<4>*);
};
static_assert(sizeof(TableV9) == 160);

struct TableV10 {
  using Properties = PropertiesV9;
  static constexpr int kVersion = 10;
  const char* name;
  int (*init)(Logger, ProfilerCallback);
  int (*devices)(int*);
  int (*get_properties)(int, PropertiesV9*);
  int (*listen)(int, void*, void**);
  int (*connect)(int, Config*, void*, void**, void**);
  int (*accept)(void*, void**, void**);
  int (*register_memory)(void*, void*, std::size_t, int, void**);
  int (*register_dma_buffer)(void*, void*, std::size_t, int, std::uint64_t, int, void**);
  int (*deregister_memory)(void*, void*);
  int (*isend)(void*, void*, std::size_t, int, void*, void*, void**);
  int (*irecv)(void*, int, void**, std::size_t*, int*, void**, void**, void**);
  int (*iflush)(void*, int, void**, int*, void**, void**);
  int (*test)(void*, int*, int*);
  int (*close_send)(void*);
  int (*close_receive)(void*);
  int (*close_listen)(void*);
  int (*get_device_memory)(void*, void*, void**);
  int (*receive_consumed)(void*, int, void*);
  int (*make_virtual_device)(int*, VirtualDevice<4>*);
};
static_assert(sizeof(TableV10) == 160);

template <int kNumber, typename PropertiesType, int kDevices>
struct TableWithContext {
  using Properties = PropertiesType;
  static constexpr int kVersion = kNumber;
  const char* name;
  int (*init)(void**, std::uint64_t, Config*, Logger, ProfilerCallback);
  int (*devices)(int*);
  int (*get_properties)(int, Properties*);
  int (*listen)(void*, int, void*, void**);
  int (*connect)(void*, int, void*, void**, void**);
  int (*accept)(void*, void**, void**);
  int (*register_memory)(void*, void*, std::size_t, int, void**);
  int (*register_dma_buffer)(void*, void*, std::size_t, int, std::uint64_t, int, void**);
  int (*deregister_memory)(void*, void*);
  int (*isend)(void*, void*, std::size_t, int, void*, void*, void**);
  int (*irecv)(void*, int, void**, std::size_t*, int*, void**, void**, void**);
  int (*iflush)(void*, int, void**, int*, void**, void**);
  int (*test)(void*, int*, int*);
  int (*close_send)(void*);
  int (*close_receive)(void*);
  int (*close_listen)(void*);
  int (*get_device_memory)(void*, void*, void**);
  int (*receive_consumed)(void*, int, void*);
  int (*make_virtual_device)(int*, VirtualDevice<kDevices>*);
  int (*finalize)(void*);
  int (*set_attributes)(void*, Attributes*);
};
using TableV11 = TableWithContext<11, PropertiesV11, 4>;
using TableV12 = TableWithContext<12, PropertiesV12, 8>;
static_assert(sizeof(TableV11) == 176 && offsetof(TableV11, finalize) == 160);
static_assert(sizeof(TableV12) == 176 && offsetof(TableV12, set_attributes) == 168);

}  // namespace forgive::perf::abi

#endif  // FORGIVE_TESTBED_PERF_NCCL_ABI_H_
