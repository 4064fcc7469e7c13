/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL's configuration struct grew at its end, release by release. A library takes a shorter one than
 * its own, never a newer version number: so it gets the struct of its own release.
 */
#ifndef CUDA_NCCL_CONFIG_H
#define CUDA_NCCL_CONFIG_H

#include <nccl.h>
#include <stddef.h>

/* Cuts a struct of this build's headers to what release `loaded` (as of ncclGetVersion()) knows. */
static inline void cuda_nccl_config_fit(ncclConfig_t *config, int loaded)
{
    if (loaded >= NCCL_VERSION_CODE) {
        return;
    }
    config->version = (unsigned)loaded;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 30, 7)
    if (loaded < NCCL_VERSION(2, 30, 7)) {
        config->size = offsetof(ncclConfig_t, graphStreamOrdering);
    }
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 30, 3)
    if (loaded < NCCL_VERSION(2, 30, 3)) {
        config->size = offsetof(ncclConfig_t, maxP2pPeers);
    }
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 2)
    if (loaded < NCCL_VERSION(2, 29, 2)) {
        config->size = offsetof(ncclConfig_t, graphUsageMode);
    }
#endif
}

#endif
