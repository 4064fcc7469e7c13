// SPDX-License-Identifier: Apache-2.0
//
// Fills NCCL's device communicator, whose fields only its C++ headers know.
#include "fake_nccl_devcomm.h"

#include <nccl.h>
#include <stddef.h>

#include <nccl_device.h>

namespace {

// The field has two names; 0 is an int, so that the first one there is taken.
template <typename Comm>
auto kind_set(Comm &comm, int kind, int) -> decltype(comm.ginNetDeviceTypes[0] = 0, void())
{
    comm.ginNetDeviceTypes[0] = static_cast<unsigned char>(kind);
}

template <typename Comm> void kind_set(Comm &comm, int kind, long)
{
    comm.ginTypes[0] = static_cast<unsigned char>(kind);
}

} // namespace

extern "C" void fake_devcomm_fill(void *devcomm, int lsa_size, int gin_kind)
{
    ncclDevComm *made = static_cast<ncclDevComm *>(devcomm);
    *made = ncclDevComm{};
    made->lsaSize = lsa_size;
    kind_set(*made, gin_kind, 0);
}
