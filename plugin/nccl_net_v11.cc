// SPDX-License-Identifier: Apache-2.0
// The ncclNet v11 table: the C edge, which only passes on to plugin/net.h.
#include "plugin/forgive.h"
#include "plugin/nccl_abi.h"
#include "plugin/nccl_edge.h"

extern "C" FORGIVE_EXPORT const forgive::nccl::NetV11 ncclNetPlugin_v11;
const forgive::nccl::NetV11 ncclNetPlugin_v11 =
    forgive::edge::TableWithContext<forgive::nccl::NetV11, forgive::nccl::PropertiesV11, 11>();
