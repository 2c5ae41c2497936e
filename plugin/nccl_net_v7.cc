// SPDX-License-Identifier: Apache-2.0
// The ncclNet v7 table: the C edge, which only passes on to plugin/net.h.
#include "plugin/forgive.h"
#include "plugin/nccl_abi.h"
#include "plugin/nccl_edge.h"
#include "plugin/net.h"

namespace forgive {
namespace {

int Init(nccl::Logger logger) { return net::Init(logger, 7); }

int GetProperties(int device, nccl::PropertiesV7* out) {
  net::Properties properties;
  const int result = net::GetProperties(device, &properties);
  if (result != nccl::kSuccess) return result;
  *out = {
      .name = properties.name,
      .pci_path = properties.pci_path,
      .guid = properties.guid,
      .pointer_support = properties.pointer_support,
      .speed_mbps = properties.speed_mbps,
      .port = properties.port,
      .latency_us = properties.latency_us,
      .max_comms = properties.max_comms,
      .max_receives = properties.max_receives,
      .net_device_type = nccl::kNetDeviceHost,
      .net_device_version = 0,
  };
  return nccl::kSuccess;
}

int RegisterMemory(void* comm, void* data, int size, int type, void** memory_handle) {
  return net::RegisterMemory(comm, data, size, type, memory_handle);
}

int Send(void* send_comm, void* data, int size, int /*tag*/, void* memory_handle, void** request) {
  return net::Send(send_comm, data, size, memory_handle, request);
}

int Receive(void* receive_comm, int n, void** data, int* sizes, int* /*tags*/, void** memory_handles,
            void** request) {
  return edge::Receive(receive_comm, n, data, sizes, memory_handles, nullptr, request);
}

}  // namespace
}  // namespace forgive

extern "C" FORGIVE_EXPORT const forgive::nccl::NetV7 ncclNetPlugin_v7;
const forgive::nccl::NetV7 ncclNetPlugin_v7 = {
    .name = forgive::net::kName,
    .init = forgive::Init,
    .devices = forgive::net::Devices,
    .get_properties = forgive::GetProperties,
    .listen = forgive::edge::Listen,
    .connect = forgive::edge::Connect,
    .accept = forgive::edge::Accept,
    .register_memory = forgive::RegisterMemory,
    .register_dma_buffer = forgive::net::RegisterDmaBuffer,
    .deregister_memory = forgive::net::DeregisterMemory,
    .send = forgive::Send,
    .receive = forgive::Receive,
    .flush = forgive::net::Flush,
    .test = forgive::net::Test,
    .close_send = forgive::net::CloseSend,
    .close_receive = forgive::net::CloseReceive,
    .close_listen = forgive::net::CloseListen,
    .get_device_memory = nullptr,
    .receive_consumed = nullptr,
};
