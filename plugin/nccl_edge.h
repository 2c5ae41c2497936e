// SPDX-License-Identifier: Apache-2.0
// What the edges of several versions of the ncclNet table have in common: argument types, and nothing decided.
#ifndef FORGIVE_PLUGIN_NCCL_EDGE_H_
#define FORGIVE_PLUGIN_NCCL_EDGE_H_

#include "plugin/nccl_abi.h"
#include "plugin/net.h"

namespace forgive::edge {

// Up to v10.
inline int Listen(int device, void* handle, void** listen_comm) {
  return net::Listen(nullptr, device, handle, listen_comm);
}

// v7 to v9.
inline int Connect(int device, void* handle, void** send_comm, void** device_comm) {
  if (device_comm != nullptr) *device_comm = nullptr;
  return net::Connect(nullptr, device, net::kTrafficClassUntold, handle, send_comm);
}

// v7 on.
inline int Accept(void* listen_comm, void** receive_comm, void** device_comm) {
  if (device_comm != nullptr) *device_comm = nullptr;
  return net::Accept(listen_comm, receive_comm);
}

// v8 on.
inline int RegisterMemory(void* comm, void* data, size_t size, int type, void** memory_handle) {
  return net::RegisterMemory(comm, data, static_cast<int64_t>(size), type, memory_handle);
}

// v10 on.
inline int Send(void* send_comm, void* data, size_t size, int /*tag*/, void* memory_handle, void* /*profiler_handle*/,
                void** request) {
  return net::Send(send_comm, data, static_cast<int64_t>(size), memory_handle, request);
}

// Sizes are int up to v8, size_t from v9 on.
template <typename Size>
int Receive(void* receive_comm, int n, void** data, Size* sizes, void** memory_handles, void** profiler_handles,
            void** request) {
  const int64_t size = n == 1 ? static_cast<int64_t>(sizes[0]) : -1;
  return net::Receive(receive_comm, n, data, size, memory_handles, profiler_handles, request);
}

// v10 on.
inline int ReceiveWithProfiler(void* receive_comm, int n, void** data, size_t* sizes, int* /*tags*/,
                               void** memory_handles, void** profiler_handles, void** request) {
  return Receive(receive_comm, n, data, sizes, memory_handles, profiler_handles, request);
}

// v11 on.
inline int ConnectWithContext(void* context, int device, void* handle, void** send_comm, void** device_comm) {
  if (device_comm != nullptr) *device_comm = nullptr;
  return net::Connect(context, device, nccl::kNoTrafficClass, handle, send_comm);
}

inline int SetAttributes(void* context, nccl::Attributes* attributes) {
  return net::SetAttributes(context, attributes);
}

// v9 on: a device is one interface, and what later versions add is not known here.
template <typename Properties>
int GetProperties(int device, Properties* out) {
  net::Properties properties;
  const int result = net::GetProperties(device, &properties);
  if (result != nccl::kSuccess) return result;
  *out = {};
  out->name = properties.name;
  out->pci_path = properties.pci_path;
  out->guid = properties.guid;
  out->pointer_support = properties.pointer_support;
  out->speed_mbps = properties.speed_mbps;
  out->port = properties.port;
  out->latency_us = properties.latency_us;
  out->max_comms = properties.max_comms;
  out->max_receives = properties.max_receives;
  out->net_device_type = nccl::kNetDeviceHost;
  out->merged.count = 1;
  out->merged.devices[0] = device;
  out->max_point_to_point_bytes = net::kMaxMessageBytes;
  out->max_collective_bytes = net::kMaxMessageBytes;
  if constexpr (requires { out->max_multi_request; }) out->max_multi_request = 1;
  if constexpr (requires { out->rail_id; }) out->rail_id = out->plane_id = nccl::kNoId;
  return nccl::kSuccess;
}

// v11 and v12.
template <int kVersion>
int InitContext(void** context, uint64_t comm_id, nccl::CommunicatorConfig* config, nccl::Logger logger,
                nccl::ProfilerCallback profiler) {
  const int traffic_class = config == nullptr ? nccl::kNoTrafficClass : config->traffic_class;
  return net::InitContext(context, comm_id, traffic_class, logger, kVersion, profiler);
}

template <typename Table, typename Properties, int kVersion>
constexpr Table TableWithContext() {
  return {
      .name = net::kName,
      .init = InitContext<kVersion>,
      .devices = net::Devices,
      .get_properties = GetProperties<Properties>,
      .listen = net::Listen,
      .connect = ConnectWithContext,
      .accept = Accept,
      .register_memory = RegisterMemory,
      .register_dma_buffer = net::RegisterDmaBuffer,
      .deregister_memory = net::DeregisterMemory,
      .send = Send,
      .receive = ReceiveWithProfiler,
      .flush = net::Flush,
      .test = net::Test,
      .close_send = net::CloseSend,
      .close_receive = net::CloseReceive,
      .close_listen = net::CloseListen,
      .get_device_memory = nullptr,
      .receive_consumed = nullptr,
      .make_virtual_device = nullptr,
      .finalize = net::Finalize,
      .set_attributes = SetAttributes,
  };
}

}  // namespace forgive::edge

#endif  // FORGIVE_PLUGIN_NCCL_EDGE_H_
