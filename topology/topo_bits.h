/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of processors or NUMA nodes as hwloc and NCCL write them: hexadecimal words of 32 bits,
 * highest first, with commas between; an empty word is zero.
 */
#ifndef TOPO_BITS_H
#define TOPO_BITS_H

#include <stdbool.h>
#include <stdint.h>

#define TOPO_BITS 1024u

/* The first TOPO_BITS bits of a set. */
typedef struct topo_bits {
    uint32_t words[TOPO_BITS / 32];
} topo_bits;

/* Reads a set; what is no digit counts as 0, and bits from TOPO_BITS on are left out. */
void topo_bits_read(const char *text, topo_bits *bits);

static inline bool topo_bits_has(const topo_bits *bits, uint64_t index)
{
    return index < TOPO_BITS && (bits->words[index / 32] >> (index % 32) & 1u) != 0;
}

/* Whether no bit is set. */
bool topo_bits_none(const char *text);

#endif
