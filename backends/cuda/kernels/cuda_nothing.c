/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kernel that does nothing. The driver carries a new limit of stacks out in the launches that follow,
 * which wait for kernels that run; this one is launched while there are none (cuda_kernel.c).
 */
#include <isthmus/device.h>

typedef struct cuda_nothing_args {
    uint64_t reserved;
} cuda_nothing_args;

IST_KERNEL(cuda_nothing, cuda_nothing_args)
{
    (void)coop;
    (void)args;
}
