/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one source of chance in the simulator: xoshiro256** with its state filled by splitmix64
 * (Blackman and Vigna, "Scrambled linear pseudorandom number generators", 2021). Integers only;
 * the same seed gives the same numbers on every machine.
 */
#ifndef SIM_PRNG_H
#define SIM_PRNG_H

#include <stdbool.h>
#include <stdint.h>

typedef struct sim_prng {
    uint64_t s[4]; /* never all zero */
} sim_prng;

static inline uint64_t sim_prng_mix(uint64_t *counter)
{
    uint64_t z = *counter += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Starts the sequence of a seed; every seed, also 0, is good. */
static inline void sim_prng_seed(sim_prng *prng, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        prng->s[i] = sim_prng_mix(&seed);
    }
}

static inline uint64_t sim_prng_rotate(uint64_t value, unsigned bits)
{
    return (value << bits) | (value >> (64u - bits));
}

/* 64 equally likely bits. */
static inline uint64_t sim_prng_next(sim_prng *prng)
{
    uint64_t *s = prng->s;
    const uint64_t result = sim_prng_rotate(s[1] * 5u, 7) * 9u;
    const uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = sim_prng_rotate(s[3], 45);
    return result;
}

/*
 * A number in [0, n), all equally likely: the few values below 2^64 mod n are drawn again. n = 0
 * gives 0. Draws at least one number, whatever n is.
 */
static inline uint64_t sim_prng_below(sim_prng *prng, uint64_t n)
{
    uint64_t value = sim_prng_next(prng);
    if (n == 0) {
        return 0;
    }
    const uint64_t rejected = (UINT64_C(0) - n) % n;
    while (value < rejected) {
        value = sim_prng_next(prng);
    }
    return value % n;
}

/* A number in [low, high], low <= high. */
static inline uint64_t sim_prng_between(sim_prng *prng, uint64_t low, uint64_t high)
{
    const uint64_t span = high - low;
    return span == UINT64_MAX ? sim_prng_next(prng) : low + sim_prng_below(prng, span + 1);
}

/* True in `num` of `den` cases. */
static inline bool sim_prng_chance(sim_prng *prng, uint64_t num, uint64_t den)
{
    return sim_prng_below(prng, den) < num;
}

#endif
