/* SPDX-License-Identifier: Apache-2.0 */
#include "mask/mask_agree.c"
#include "mask/mask_barrier.c"
#include "mask/mask_clean.c"
#include "mask/mask_read.c"
