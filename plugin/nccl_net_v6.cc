// SPDX-License-Identifier: Apache-2.0
// The ncclNet v6 table: the C edge, which only passes on to plugin/net.h.
#include "plugin/forgive.h"
#include "plugin/nccl_abi.h"
#include "plugin/nccl_edge.h"
#include "plugin/net.h"

namespace forgive {
namespace {

int Init(nccl::Logger logger) { return net::Init(logger, 6); }

int GetProperties(int device, nccl::PropertiesV6* out) {
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
  };
  return nccl::kSuccess;
}

int Connect(int device, void* handle, void** send_comm) {
  return net::Connect(nullptr, device, net::kTrafficClassUntold, handle, send_comm);
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

extern "C" FORGIVE_EXPORT const forgive::nccl::NetV6 ncclNetPlugin_v6;
const forgive::nccl::NetV6 ncclNetPlugin_v6 = {
    .name = forgive::net::kName,
    .init = forgive::Init,
    .devices = forgive::net::Devices,
    .get_properties = forgive::GetProperties,
    .listen = forgive::edge::Listen,
    .connect = forgive::Connect,
    .accept = forgive::net::Accept,
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
};
