/* SPDX-License-Identifier: Apache-2.0 */
/* The values that travel in an ep run: pure functions of (seed, step, rank, token, element), so that
 * every rank can tell what every other rank must have sent.
 *
 * Values are ordinary numbers of eight binades around 1, both signs, all fractions. An expert changes
 * signs and fractions by a pattern of its own, so that a row from the wrong token or the wrong
 * expert is never right by chance.
 */
#ifndef CLI_DATA_H
#define CLI_DATA_H

#include <isthmus/types.h>

typedef struct cli_data {
    uint64_t seed;
    uint64_t step;
    uint64_t hidden;
    uint32_t topk;
    ist_dtype dtype;
} cli_data;

/* As ep_oracle wants them; `context` is a cli_data. */
void cli_data_token(const void *context, uint32_t rank, uint32_t token, void *row);
void cli_data_expert(const void *context, uint32_t expert, void *row);
void cli_data_rank(const void *context, uint32_t rank, const int32_t *ids, const float *weights,
                   void *row);

/* The weight of an entry: positive, below 1, a full 24-bit fraction. */
float cli_data_weight(const cli_data *data, uint32_t rank, uint32_t token, uint32_t k);

#endif
