// SPDX-License-Identifier: Apache-2.0
// The ncclNet v9 table: the C edge, which only passes on to plugin/net.h.
#include "plugin/forgive.h"
#include "plugin/nccl_abi.h"
#include "plugin/nccl_edge.h"
#include "plugin/net.h"

namespace forgive {
namespace {

int Init(nccl::Logger logger) { return net::Init(logger, 9); }

int Send(void* send_comm, void* data, size_t size, int tag, void* memory_handle, void** request) {
  return edge::Send(send_comm, data, size, tag, memory_handle, nullptr, request);
}

int Receive(void* receive_comm, int n, void** data, size_t* sizes, int* /*tags*/, void** memory_handles,
            void** request) {
  return edge::Receive(receive_comm, n, data, sizes, memory_handles, nullptr, request);
}

}  // namespace
}  // namespace forgive

extern "C" FORGIVE_EXPORT const forgive::nccl::NetV9 ncclNetPlugin_v9;
const forgive::nccl::NetV9 ncclNetPlugin_v9 = {
    .name = forgive::net::kName,
    .init = forgive::Init,
    .devices = forgive::net::Devices,
    .get_properties = forgive::edge::GetProperties<forgive::nccl::PropertiesV9>,
    .listen = forgive::edge::Listen,
    .connect = forgive::edge::Connect,
    .accept = forgive::edge::Accept,
    .register_memory = forgive::edge::RegisterMemory,
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
    .make_virtual_device = nullptr,
};
