/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an NCCL without a network says in its device communicators.
 */
#ifndef FAKE_NCCL_DEVCOMM_H
#define FAKE_NCCL_DEVCOMM_H

#ifdef __cplusplus
extern "C" {
#endif

void fake_devcomm_fill(void *devcomm, int lsa_size, int gin_kind);

#ifdef __cplusplus
}
#endif

#endif
