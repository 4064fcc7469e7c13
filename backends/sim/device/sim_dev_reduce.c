/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weighted sums of rows with one exact definition: an f32 chain of fused multiply-adds in the order
 * of the rows, one rounding to nearest even at the end (IEEE 754-2008). Vector instructions give
 * the same bits, so the fast body is chosen by what the processor can do.
 */
#include "sim_device.h"

#include <math.h>
#include <string.h>

#define SIM_TILE 256u

static inline float sim_bits_to_f32(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline uint32_t sim_f32_to_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline float sim_bf16_to_f32(uint16_t half)
{
    return sim_bits_to_f32((uint32_t)half << 16);
}

static inline uint16_t sim_f32_to_bf16(float value)
{
    uint32_t bits = sim_f32_to_bits(value);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    uint32_t quiet = (bits >> 16) | 0x40u; /* a NaN stays one, with its sign */
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

static inline float sim_f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = (half >> 10) & 0x1fu;
    uint32_t mantissa = half & 0x3ffu;
    if (exponent == 0x1fu) {
        return sim_bits_to_f32(sign | 0x7f800000u | mantissa << 13);
    }
    if (exponent != 0) {
        return sim_bits_to_f32(sign | (exponent + 112u) << 23 | mantissa << 13);
    }
    float magnitude = (float)mantissa * 0x1p-24f; /* exact: subnormals of binary16 */
    return sim_bits_to_f32(sign | sim_f32_to_bits(magnitude));
}

static inline uint16_t sim_f32_to_f16(float value)
{
    uint32_t bits = sim_f32_to_bits(value);
    uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    }
    if (magnitude >= 0x477ff000u) { /* 65520: halfway to the next power of two */
        return (uint16_t)(sign | 0x7c00u);
    }
    if (magnitude < 0x38800000u) { /* below 2^-14: subnormal, steps of 2^-24 */
        float steps = sim_bits_to_f32(magnitude) * 0x1p24f;
        return (uint16_t)(sign | (uint32_t)rintf(steps)); /* default mode: to nearest even */
    }
    uint32_t rebased = magnitude - (112u << 23);
    return (uint16_t)(sign | (rebased + 0xfffu + ((rebased >> 13) & 1u)) >> 13);
}

/* Copied, as a loop that stores zeros becomes an instruction that is slow to begin. */
static const float sim_zeros[SIM_TILE];

/* One tile: widen, accumulate, narrow. Written so that the compiler can vectorise each loop. */
#define SIM_DEFINE_REDUCE(suffix, attributes)                                                      \
    attributes static void sim_widen_##suffix(float *wide, const uint8_t *src, uint32_t n,         \
                                              ist_dtype dtype)                                     \
    {                                                                                              \
        uint16_t half[SIM_TILE];                                                                   \
        if (dtype == IST_F32) {                                                                    \
            memcpy(wide, src, n * sizeof(float));                                                  \
            return;                                                                                \
        }                                                                                          \
        memcpy(half, src, n * sizeof(uint16_t));                                                   \
        if (dtype == IST_BF16) {                                                                   \
            for (uint32_t i = 0; i < n; ++i) {                                                     \
                wide[i] = sim_bf16_to_f32(half[i]);                                                \
            }                                                                                      \
        } else {                                                                                   \
            for (uint32_t i = 0; i < n; ++i) {                                                     \
                wide[i] = sim_f16_to_f32(half[i]);                                                 \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    attributes static void sim_narrow_##suffix(uint8_t *dst, const float *wide, uint32_t n,        \
                                               ist_dtype dtype)                                    \
    {                                                                                              \
        uint16_t half[SIM_TILE];                                                                   \
        if (dtype == IST_F32) {                                                                    \
            memcpy(dst, wide, n * sizeof(float));                                                  \
            return;                                                                                \
        }                                                                                          \
        if (dtype == IST_BF16) {                                                                   \
            for (uint32_t i = 0; i < n; ++i) {                                                     \
                half[i] = sim_f32_to_bf16(wide[i]);                                                \
            }                                                                                      \
        } else {                                                                                   \
            for (uint32_t i = 0; i < n; ++i) {                                                     \
                half[i] = sim_f32_to_f16(wide[i]);                                                 \
            }                                                                                      \
        }                                                                                          \
        memcpy(dst, half, n * sizeof(uint16_t));                                                   \
    }                                                                                              \
    attributes static void sim_reduce_##suffix(uint8_t *dst, const void *const *src,               \
                                               const float *weight, uint32_t count,                \
                                               uint64_t elements, ist_dtype dtype, size_t width)   \
    {                                                                                              \
        float sum[SIM_TILE];                                                                       \
        float row[SIM_TILE];                                                                       \
        for (uint64_t at = 0; at < elements; at += SIM_TILE) {                                     \
            uint32_t n = elements - at < SIM_TILE ? (uint32_t)(elements - at) : SIM_TILE;          \
            memcpy(sum, sim_zeros, n * sizeof(float));                                             \
            for (uint32_t s = 0; s < count; ++s) {                                                 \
                sim_widen_##suffix(row, (const uint8_t *)src[s] + at * width, n, dtype);           \
                if (weight == NULL) {                                                              \
                    for (uint32_t i = 0; i < n; ++i) {                                             \
                        sum[i] = row[i] + sum[i];                                                  \
                    }                                                                              \
                } else {                                                                           \
                    float w = weight[s];                                                           \
                    for (uint32_t i = 0; i < n; ++i) {                                             \
                        sum[i] = __builtin_fmaf(row[i], w, sum[i]);                                \
                    }                                                                              \
                }                                                                                  \
            }                                                                                      \
            sim_narrow_##suffix(dst + at * width, sum, n, dtype);                                  \
        }                                                                                          \
    }

SIM_DEFINE_REDUCE(plain, )
#if defined(__x86_64__)
SIM_DEFINE_REDUCE(fma, __attribute__((target("avx2,fma"))))
#endif

bool sim_reduce_rows(void *dst, const void *const *src, const float *weight, uint32_t count,
                     uint64_t elements, ist_dtype dtype)
{
    size_t width = ist_dtype_bytes(dtype);
    if (dtype != IST_F16 && dtype != IST_BF16 && dtype != IST_F32) {
        return false;
    }
#if defined(__x86_64__)
    if (__builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2")) {
        sim_reduce_fma(dst, src, weight, count, elements, dtype, width);
        return true;
    }
#endif
    sim_reduce_plain(dst, src, weight, count, elements, dtype, width);
    return true;
}
