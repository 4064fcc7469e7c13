/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL's device interface as of the headers that this was compiled with. Host code only.
 */
#include "cuda_nccl_abi.h"

#include <nccl_device.h>

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

const char *cuda_nccl_abi_name(void)
{
    return "nccl-" TEXT(NCCL_MAJOR) "." TEXT(NCCL_MINOR);
}

size_t cuda_nccl_abi_bytes(void)
{
    return sizeof(ncclDevComm);
}

ncclResult_t cuda_nccl_abi_create(cuda_nccl_create_fn create, ncclComm_t comm,
                                  unsigned context_count, unsigned signal_count,
                                  unsigned counter_count, void *devcomm)
{
#ifdef NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER
    ncclDevCommRequirements requirements = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
#else
    ncclDevCommRequirements requirements = {};
#endif
    requirements.ginForceEnable = true;
    requirements.ginContextCount = static_cast<int>(context_count);
    requirements.ginSignalCount = static_cast<int>(signal_count);
    requirements.ginCounterCount = static_cast<int>(counter_count);
    return create(comm, &requirements, devcomm);
}
