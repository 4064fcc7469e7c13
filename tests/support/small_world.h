/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file small_world.h
 * The world that benchmarks run by the thousand: 4 ranks, 8 tokens, hidden 64, 8 experts, top-2.
 */
#ifndef IST_SMALL_WORLD_H
#define IST_SMALL_WORLD_H

#include <isthmus/isthmus.h>

#define SMALL_WORLD_RANKS 4u

/**
 * Program of a rank: opens everything, dispatches and combines, checks the bytes, closes everything.
 *
 * @param rounds  const uint32_t *, dispatches and combines; NULL: one
 * @return IST_OK; IST_ERR_INTERNAL when a byte is wrong; what a call returned
 */
ist_status small_world_rank(ist_world *world, void *rounds);

#endif
