/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels of `isthmus bench soak` work on. Values are pure functions of a step's key, so that
 * a kernel can make anew what a peer must have sent, and compare every word.
 */
#ifndef CLI_SOAK_KERNEL_H
#define CLI_SOAK_KERNEL_H

#include <isthmus/device.h>

/* A row that must have come: where it lies, and whose token it is. */
typedef struct soak_row {
    uint32_t place;   /* row of the output */
    uint32_t source;  /* rank */
    uint32_t token;   /* of that rank */
    uint32_t changer; /* who works on it: an expert, or SOAK_RANK + a rank */
} soak_row;

/* One summand of a combined row. */
typedef struct soak_part {
    uint32_t changer; /* SOAK_NOBODY: none */
    float weight;
} soak_part;

#define SOAK_RANK 0x10000u
#define SOAK_NOBODY UINT32_MAX

typedef struct soak_args {
    uint64_t key; /* of the step */
    uint64_t row_bytes;
    uint64_t *tally; /* [2]: words compared, words wrong */
    char *tokens;    /* what this rank sends */
    const char *received;
    char *worked; /* what its experts give back */
    const char *combined;
    const soak_row *rows;     /* [row_count] */
    const soak_part *parts;   /* [token_count][topk] */
    const uint32_t *found[3]; /* words that dispatch wrote beside: counters, ids, weights */
    const uint32_t *expected[3];
    uint32_t word_count[3];
    uint32_t row_count;
    uint32_t token_count;
    uint32_t topk;
    uint32_t rank;
    uint32_t wide; /* 1: F32, 0: BF16 */
} soak_args;

#if !defined(__CUDACC__)
extern const ist_kernel ist_kernel_cli_soak_fill;
extern const ist_kernel ist_kernel_cli_soak_received;
extern const ist_kernel ist_kernel_cli_soak_combined;
#endif

#endif
