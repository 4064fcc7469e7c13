/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arithmetic of native collectives: rank 0, then 1, and so on. Integers modulo their width; floats of
 * 8 and 16 bits in binary32, rounded once at the end, to nearest even; 8-bit ones saturate.
 */
#include "sim_coll.h"

#include <math.h>
#include <string.h>

/* ---- small floats ---------------------------------------------------------------------------- */

typedef struct small_float {
    uint32_t exponent_bits, fraction_bits;
    bool infinite;  /* the largest exponent means infinity and NaN */
    bool saturates; /* too large becomes the largest */
} small_float;

static const small_float binary16 = {5, 10, true, false};
static const small_float e4m3 = {4, 3, false, true};
static const small_float e5m2 = {5, 2, true, true};

static float small_to_float(const small_float *of, uint32_t bits)
{
    const uint32_t fraction_mask = (1u << of->fraction_bits) - 1u;
    const uint32_t exponent_mask = (1u << of->exponent_bits) - 1u;
    const uint32_t fraction = bits & fraction_mask;
    const uint32_t exponent = bits >> of->fraction_bits & exponent_mask;
    const int bias = (1 << (of->exponent_bits - 1u)) - 1;
    const int shift = -bias - (int)of->fraction_bits;
    float value;
    if (exponent == exponent_mask && of->infinite) {
        value = fraction != 0 ? NAN : INFINITY;
    } else if (exponent == exponent_mask && fraction == fraction_mask) {
        value = NAN;
    } else if (exponent == 0) {
        value = ldexpf((float)fraction, shift + 1);
    } else {
        value = ldexpf((float)(fraction | (fraction_mask + 1u)), shift + (int)exponent);
    }
    return bits >> (of->fraction_bits + of->exponent_bits) & 1u ? -value : value;
}

/* Code of the largest finite magnitude. */
static uint32_t small_largest(const small_float *of)
{
    const uint32_t all = (1u << (of->fraction_bits + of->exponent_bits)) - 1u;
    return of->infinite ? all - (1u << of->fraction_bits) : all - 1u;
}

static uint32_t small_of_float(const small_float *of, float value)
{
    const uint32_t all = (1u << (of->fraction_bits + of->exponent_bits)) - 1u;
    const uint32_t sign = signbit(value) ? all + 1u : 0u;
    const uint32_t largest = small_largest(of);
    const int bias = (1 << (of->exponent_bits - 1u)) - 1;
    const float magnitude = fabsf(value);
    int exponent = 0;
    if (isnan(value)) {
        return sign | all;
    }
    if (magnitude <= 0) {
        return sign;
    }
    if (isinf(value)) {
        return sign | (of->saturates ? largest : largest + 1u);
    }
    (void)frexpf(magnitude, &exponent); /* in [0.5, 1) * 2^exponent */
    if (exponent - 1 < 1 - bias) {
        exponent = 2 - bias; /* subnormal: the step of the smallest normal */
    }
    const float steps = rintf(ldexpf(magnitude, (int)of->fraction_bits - (exponent - 1)));
    uint32_t code = (uint32_t)steps; /* its leading bit counts one exponent up */
    code += (uint32_t)(exponent - 2 + bias) << of->fraction_bits;
    if (code > largest) {
        code = of->saturates ? largest : largest + 1u;
    }
    return sign | code;
}

static float bf16_to_float(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof(value));
    return value;
}

static uint16_t bf16_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    if (isnan(value)) {
        return (uint16_t)(bits >> 16 | 0x40u);
    }
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* ---- elements to the type they are combined in, and back -------------------------------------- */

static void elements_load(void *work, const void *from, uint32_t count, ist_dtype dtype)
{
    float *wide = work;
    const uint8_t *bytes = from;
    const uint16_t *halves = from;
    switch (dtype) {
    case IST_F16:
        for (uint32_t i = 0; i < count; ++i) {
            wide[i] = small_to_float(&binary16, halves[i]);
        }
        break;
    case IST_BF16:
        for (uint32_t i = 0; i < count; ++i) {
            wide[i] = bf16_to_float(halves[i]);
        }
        break;
    case IST_F8E4M3:
    case IST_F8E5M2:
        for (uint32_t i = 0; i < count; ++i) {
            wide[i] = small_to_float(dtype == IST_F8E4M3 ? &e4m3 : &e5m2, bytes[i]);
        }
        break;
    case IST_DTYPE_UNSET:
    case IST_U8:
    case IST_I8:
    case IST_I32:
    case IST_U32:
    case IST_I64:
    case IST_U64:
    case IST_F32:
    case IST_F64: memcpy(work, from, count * ist_dtype_bytes(dtype)); break;
    }
}

static void elements_store(void *to, const void *work, uint32_t count, ist_dtype dtype)
{
    const float *wide = work;
    uint8_t *bytes = to;
    uint16_t *halves = to;
    switch (dtype) {
    case IST_F16:
        for (uint32_t i = 0; i < count; ++i) {
            halves[i] = (uint16_t)small_of_float(&binary16, wide[i]);
        }
        break;
    case IST_BF16:
        for (uint32_t i = 0; i < count; ++i) {
            halves[i] = bf16_of_float(wide[i]);
        }
        break;
    case IST_F8E4M3:
    case IST_F8E5M2:
        for (uint32_t i = 0; i < count; ++i) {
            bytes[i] = (uint8_t)small_of_float(dtype == IST_F8E4M3 ? &e4m3 : &e5m2, wide[i]);
        }
        break;
    case IST_DTYPE_UNSET:
    case IST_U8:
    case IST_I8:
    case IST_I32:
    case IST_U32:
    case IST_I64:
    case IST_U64:
    case IST_F32:
    case IST_F64: memcpy(to, work, count * ist_dtype_bytes(dtype)); break;
    }
}

/* ---- combining ------------------------------------------------------------------------------- */

/* As fmax() and fmin(), and the larger zero is +0: libraries and compilers may give either. */
#define SIM_FLOAT_CHOICES(type, suffix)                                                            \
    static type larger_##suffix(type a, type b)                                                    \
    {                                                                                              \
        return isnan(a) || a < b || (a <= b && signbit(a)) ? b : a;                                \
    }                                                                                              \
    static type smaller_##suffix(type a, type b)                                                   \
    {                                                                                              \
        return isnan(a) || b < a || (b <= a && signbit(b)) ? b : a;                                \
    }
SIM_FLOAT_CHOICES(float, f32)
SIM_FLOAT_CHOICES(double, f64)

#define SIM_LARGER(a, b) ((a) > (b) ? (a) : (b))
#define SIM_SMALLER(a, b) ((a) < (b) ? (a) : (b))

/* name, element, type that wraps, type that divides, larger of two, smaller of two */
#define SIM_WORK_TYPES(X)                                                                          \
    X(u8, uint8_t, uint8_t, uint32_t, SIM_LARGER, SIM_SMALLER)                                     \
    X(i8, int8_t, uint8_t, int64_t, SIM_LARGER, SIM_SMALLER)                                       \
    X(u32, uint32_t, uint32_t, uint32_t, SIM_LARGER, SIM_SMALLER)                                  \
    X(i32, int32_t, uint32_t, int64_t, SIM_LARGER, SIM_SMALLER)                                    \
    X(u64, uint64_t, uint64_t, uint64_t, SIM_LARGER, SIM_SMALLER)                                  \
    X(i64, int64_t, uint64_t, int64_t, SIM_LARGER, SIM_SMALLER)                                    \
    X(f32, float, float, float, larger_f32, smaller_f32)                                           \
    X(f64, double, double, double, larger_f64, smaller_f64)

#define X(name, type, wrap, wide, larger, smaller)                                                 \
    static void combine_##name(type *into, const type *from, uint32_t count, ist_reduction op)     \
    {                                                                                              \
        for (uint32_t i = 0; i < count; ++i) {                                                     \
            switch (op) {                                                                          \
            case IST_REDUCE_PROD: into[i] = (type)((wrap)into[i] * (wrap)from[i]); break;          \
            case IST_REDUCE_MAX: into[i] = larger(into[i], from[i]); break;                        \
            case IST_REDUCE_MIN: into[i] = smaller(into[i], from[i]); break;                       \
            case IST_REDUCE_SUM:                                                                   \
            case IST_REDUCE_AVG:                                                                   \
            case IST_REDUCE_PREMUL: into[i] = (type)((wrap)into[i] + (wrap)from[i]); break;        \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void multiply_##name(type *into, const type *factor, uint32_t count)                    \
    {                                                                                              \
        for (uint32_t i = 0; i < count; ++i) {                                                     \
            into[i] = (type)((wrap)into[i] * (wrap)*factor);                                       \
        }                                                                                          \
    }                                                                                              \
    static void divide_##name(type *into, uint32_t count, uint32_t divisor)                        \
    {                                                                                              \
        for (uint32_t i = 0; i < count; ++i) {                                                     \
            into[i] = (type)(into[i] / (wide)divisor);                                             \
        }                                                                                          \
    }
SIM_WORK_TYPES(X)
#undef X

typedef enum sim_work {
    SIM_WORK_u8,
    SIM_WORK_i8,
    SIM_WORK_u32,
    SIM_WORK_i32,
    SIM_WORK_u64,
    SIM_WORK_i64,
    SIM_WORK_f32,
    SIM_WORK_f64
} sim_work;

static sim_work work_of(ist_dtype dtype)
{
    switch (dtype) {
    case IST_DTYPE_UNSET:
    case IST_U8: return SIM_WORK_u8;
    case IST_I8: return SIM_WORK_i8;
    case IST_U32: return SIM_WORK_u32;
    case IST_I32: return SIM_WORK_i32;
    case IST_U64: return SIM_WORK_u64;
    case IST_I64: return SIM_WORK_i64;
    case IST_F64: return SIM_WORK_f64;
    case IST_F16:
    case IST_BF16:
    case IST_F32:
    case IST_F8E4M3:
    case IST_F8E5M2: break;
    }
    return SIM_WORK_f32;
}

static void elements_multiply(void *into, const sim_coll_term *term, uint32_t count,
                              ist_dtype dtype)
{
    uint64_t factor = 0;
    elements_load(&factor, &term->scale, 1, dtype);
    switch (work_of(dtype)) {
#define X(name, type, wrap, wide, larger, smaller)                                                 \
    case SIM_WORK_##name: {                                                                        \
        type one;                                                                                  \
        memcpy(&one, &factor, sizeof(one));                                                        \
        multiply_##name(into, &one, count);                                                        \
        break;                                                                                     \
    }
        SIM_WORK_TYPES(X)
#undef X
    }
}

static void elements_divide(void *into, uint32_t count, ist_dtype dtype, uint32_t divisor)
{
    switch (work_of(dtype)) {
#define X(name, type, wrap, wide, larger, smaller)                                                 \
    case SIM_WORK_##name: divide_##name(into, count, divisor); break;
        SIM_WORK_TYPES(X)
#undef X
    }
}

void sim_coll_combine(void *dst, const sim_coll_term *terms, uint32_t term_count, uint32_t count,
                      ist_dtype dtype, ist_reduction reduction, uint8_t *work)
{
    void *sum = work;
    void *next = work + (size_t)SIM_COLL_CHUNK * sizeof(uint64_t);
    for (uint32_t t = 0; t < term_count; ++t) {
        void *loaded = t == 0 ? sum : next;
        elements_load(loaded, terms[t].from, count, dtype);
        if (reduction == IST_REDUCE_PREMUL) {
            elements_multiply(loaded, &terms[t], count, dtype);
        }
        if (t == 0) {
            continue;
        }
        switch (work_of(dtype)) {
#define X(name, type, wrap, wide, larger, smaller)                                                 \
    case SIM_WORK_##name: combine_##name(sum, next, count, reduction); break;
            SIM_WORK_TYPES(X)
#undef X
        }
    }
    if (reduction == IST_REDUCE_AVG) {
        elements_divide(sum, count, dtype, term_count);
    }
    elements_store(dst, sum, count, dtype);
}
