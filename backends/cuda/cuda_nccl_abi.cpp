/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL's device interface as of the headers that this was compiled with, as the object CUDA_NCCL_ABI.
 * Host code only.
 */
#include "cuda_nccl_abi.h"

#include <nccl_device.h>

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

namespace {

ncclResult_t create_devcomm(cuda_nccl_create_fn create, ncclComm_t comm, unsigned context_count,
                            unsigned signal_count, unsigned counter_count, void *devcomm)
{
#ifdef NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER
    ncclDevCommRequirements requirements = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
#else
    ncclDevCommRequirements requirements = {};
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 7)
    requirements.ginConnectionType = NCCL_GIN_CONNECTION_FULL;
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 30, 7)
    requirements.ginVaSignalsRequired = false;
#endif
    requirements.ginForceEnable = true;
    requirements.ginContextCount = static_cast<int>(context_count);
    requirements.ginSignalCount = static_cast<int>(signal_count);
    requirements.ginCounterCount = static_cast<int>(counter_count);
    return create(comm, &requirements, devcomm);
}

/* The field has two names; 0 is an int, so that the first one there is taken. */
template <typename Comm>
auto kind_of(const Comm &comm, int) -> decltype(comm.ginNetDeviceTypes[0] + 0u)
{
    return comm.ginNetDeviceTypes[0];
}

template <typename Comm> unsigned kind_of(const Comm &comm, long)
{
    return comm.ginTypes[0];
}

void read_devcomm(const void *devcomm, unsigned *lsa_size, unsigned *gin_kind)
{
    const ncclDevComm *from = static_cast<const ncclDevComm *>(devcomm);
    *lsa_size = static_cast<unsigned>(from->lsaSize);
    *gin_kind = kind_of(*from, 0);
}

} // namespace

extern "C" const cuda_nccl_abi CUDA_NCCL_ABI;
const cuda_nccl_abi CUDA_NCCL_ABI = {"nccl-" TEXT(NCCL_MAJOR) "." TEXT(NCCL_MINOR),
                                     sizeof(ncclDevComm), create_devcomm, read_devcomm};
