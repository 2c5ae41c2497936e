// SPDX-License-Identifier: Apache-2.0
// The ncclNet v12 table: the C edge, which only passes on to plugin/net.h.
#include "plugin/forgive.h"
#include "plugin/nccl_abi.h"
#include "plugin/nccl_edge.h"

extern "C" FORGIVE_EXPORT const forgive::nccl::NetV12 ncclNetPlugin_v12;
const forgive::nccl::NetV12 ncclNetPlugin_v12 =
    forgive::edge::TableWithContext<forgive::nccl::NetV12, forgive::nccl::PropertiesV12, 12>();
