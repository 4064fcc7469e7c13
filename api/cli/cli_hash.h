/* SPDX-License-Identifier: Apache-2.0 */
/* The command's one source of pseudo-random numbers: a pure function of numbers, so that every rank
 * and every process computes the same world without talking.
 *
 * Mixer: SplitMix64 (Steele, Lea, Flood, Fast Splittable Pseudorandom Number Generators, 2014).
 */
#ifndef CLI_HASH_H
#define CLI_HASH_H

#include <stdint.h>

#define CLI_GOLDEN UINT64_C(0x9e3779b97f4a7c15)

static inline uint64_t cli_mix(uint64_t x)
{
    x += CLI_GOLDEN;
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Folds one more number into a key. */
static inline uint64_t cli_fold(uint64_t key, uint64_t number)
{
    return cli_mix(key ^ cli_mix(number));
}

/* 0 … below - 1 from 64 random bits. */
static inline uint32_t cli_below(uint64_t random, uint32_t below)
{
    return (uint32_t)(((random >> 32) * below) >> 32);
}

#endif
