// SPDX-License-Identifier: Apache-2.0
// The ncclNet v10 table: the C edge, which only passes on to plugin/net.h.
#include "plugin/forgive.h"
#include "plugin/nccl_abi.h"
#include "plugin/nccl_edge.h"
#include "plugin/net.h"

namespace forgive {
namespace {

int Init(nccl::Logger logger, nccl::ProfilerCallback profiler) { return net::Init(logger, 10, profiler); }

int Connect(int device, nccl::CommunicatorConfig* config, void* handle, void** send_comm, void** device_comm) {
  if (device_comm != nullptr) *device_comm = nullptr;
  const int traffic_class = config == nullptr ? nccl::kNoTrafficClass : config->traffic_class;
  return net::Connect(nullptr, device, traffic_class, handle, send_comm);
}

}  // namespace
}  // namespace forgive

extern "C" FORGIVE_EXPORT const forgive::nccl::NetV10 ncclNetPlugin_v10;
const forgive::nccl::NetV10 ncclNetPlugin_v10 = {
    .name = forgive::net::kName,
    .init = forgive::Init,
    .devices = forgive::net::Devices,
    .get_properties = forgive::edge::GetProperties<forgive::nccl::PropertiesV9>,
    .listen = forgive::edge::Listen,
    .connect = forgive::Connect,
    .accept = forgive::edge::Accept,
    .register_memory = forgive::edge::RegisterMemory,
    .register_dma_buffer = forgive::net::RegisterDmaBuffer,
    .deregister_memory = forgive::net::DeregisterMemory,
    .send = forgive::edge::Send,
    .receive = forgive::edge::ReceiveWithProfiler,
    .flush = forgive::net::Flush,
    .test = forgive::net::Test,
    .close_send = forgive::net::CloseSend,
    .close_receive = forgive::net::CloseReceive,
    .close_listen = forgive::net::CloseListen,
    .get_device_memory = nullptr,
    .receive_consumed = nullptr,
    .make_virtual_device = nullptr,
};
