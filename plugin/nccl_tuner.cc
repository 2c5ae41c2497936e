// SPDX-License-Identifier: Apache-2.0
// The tuner's tables, v2 to v6: the C edge, which only passes on to plugin/tuner.h.
#include "plugin/forgive.h"
#include "plugin/nccl_tuner_abi.h"
#include "plugin/tuner.h"

namespace forgive {
namespace {

int Init(size_t /*ranks*/, size_t /*nodes*/, nccl::Logger /*logger*/, void** context) { return tuner::Init(context); }

int InitWithId(void** context, uint64_t comm_id, size_t ranks, size_t /*nodes*/, nccl::Logger /*logger*/,
               void* /*nvlink_domains*/, void* /*constants*/) {
  return tuner::InitWithId(context, comm_id, ranks);
}

int ChooseV2(void* context, int function, size_t /*bytes*/, int /*collnet*/, int /*nvls*/, int /*operations*/,
             int* algorithm, int* protocol, int* /*channels*/) {
  return tuner::Choose(context, function, algorithm, protocol);
}

int ChooseV3(void* context, int function, size_t /*bytes*/, int /*operations*/, float** costs, int algorithms,
             int protocols, int* /*channels*/) {
  return tuner::Choose(context, function, reinterpret_cast<float*>(costs), algorithms, protocols);
}

int ChooseV4(void* context, int function, size_t /*bytes*/, int /*operations*/, float** costs, int algorithms,
             int protocols, int /*registered*/, int* /*channels*/) {
  return tuner::Choose(context, function, reinterpret_cast<float*>(costs), algorithms, protocols);
}

}  // namespace
}  // namespace forgive

extern "C" {

FORGIVE_EXPORT extern const forgive::nccl::TunerV2 ncclTunerPlugin_v2;
const forgive::nccl::TunerV2 ncclTunerPlugin_v2 = {
    .name = forgive::tuner::kName,
    .init = forgive::Init,
    .choose = forgive::ChooseV2,
    .destroy = forgive::tuner::Finalize,
};

FORGIVE_EXPORT extern const forgive::nccl::TunerV3 ncclTunerPlugin_v3;
const forgive::nccl::TunerV3 ncclTunerPlugin_v3 = {
    .name = forgive::tuner::kName,
    .init = forgive::Init,
    .choose = forgive::ChooseV3,
    .destroy = forgive::tuner::Finalize,
};

FORGIVE_EXPORT extern const forgive::nccl::TunerV4 ncclTunerPlugin_v4;
const forgive::nccl::TunerV4 ncclTunerPlugin_v4 = {
    .name = forgive::tuner::kName,
    .init = forgive::Init,
    .choose = forgive::ChooseV4,
    .destroy = forgive::tuner::Finalize,
};

FORGIVE_EXPORT extern const forgive::nccl::TunerV5 ncclTunerPlugin_v5;
const forgive::nccl::TunerV5 ncclTunerPlugin_v5 = {
    .name = forgive::tuner::kName,
    .init = forgive::InitWithId,
    .choose = forgive::ChooseV4,
    .finalize = forgive::tuner::Finalize,
};

FORGIVE_EXPORT extern const forgive::nccl::TunerV6 ncclTunerPlugin_v6;
const forgive::nccl::TunerV6 ncclTunerPlugin_v6 = {
    .name = forgive::tuner::kName,
    .init = forgive::InitWithId,
    .choose = forgive::ChooseV4,
    .finalize = forgive::tuner::Finalize,
    .chunk_size = nullptr,
};

}  // extern "C"
