/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file ist_kernels_mask.cu
 * The kernels of kernels/mask for CUDA. They run as one block with a lane a peer, so few threads
 * are enough and each may use more registers.
 */
#define IST_CUDA_THREADS 256

#include "mask/mask_agree.c"
#include "mask/mask_barrier.c"
#include "mask/mask_clean.c"
#include "mask/mask_read.c"
