/* SPDX-License-Identifier: Apache-2.0 */
/* Elements of native collectives as numbers, for the checks of `isthmus bench coll`.
 */
#include "cli_native.h"

#include <math.h>
#include <string.h>

typedef struct layout {
    int exponent_bits, fraction_bits;
} layout;

static bool small_layout(ist_dtype dtype, layout *of)
{
    *of = dtype == IST_F16      ? (layout){5, 10}
          : dtype == IST_BF16   ? (layout){8, 7}
          : dtype == IST_F8E4M3 ? (layout){4, 3}
          : dtype == IST_F8E5M2 ? (layout){5, 2}
                                : (layout){0, 0};
    return of->exponent_bits != 0;
}

void native_put(uint8_t *at, uint64_t index, ist_dtype dtype, uint32_t value)
{
    const size_t unit = ist_dtype_bytes(dtype);
    const float narrow = (float)value;
    const double wide = (double)value;
    uint64_t bits = value;
    layout of;
    if (dtype == IST_F32) {
        memcpy(&bits, &narrow, sizeof narrow);
    } else if (dtype == IST_F64) {
        memcpy(&bits, &wide, sizeof wide);
    } else if (small_layout(dtype, &of) && value != 0) {
        int exponent = 0;
        const double half = frexp(wide, &exponent);
        const int bias = (1 << (of.exponent_bits - 1)) - 1;
        bits = (uint64_t)(exponent - 1 + bias) << of.fraction_bits |
               (uint64_t)((2 * half - 1) * (1 << of.fraction_bits));
    }
    memcpy(at + index * unit, &bits, unit);
}

static double small_get(uint64_t bits, const layout *of)
{
    const int bias = (1 << (of->exponent_bits - 1)) - 1;
    const int exponent = (int)(bits >> of->fraction_bits) & ((1 << of->exponent_bits) - 1);
    const double fraction = (double)(bits & ((UINT64_C(1) << of->fraction_bits) - 1));
    const double scaled = fraction / (1 << of->fraction_bits) + (exponent == 0 ? 0 : 1);
    const double value = ldexp(scaled, (exponent == 0 ? 1 : exponent) - bias);
    return bits >> (of->fraction_bits + of->exponent_bits) & 1u ? -value : value;
}

double native_get(const uint8_t *at, uint64_t index, ist_dtype dtype)
{
    const size_t unit = ist_dtype_bytes(dtype);
    uint64_t bits = 0;
    float narrow = 0;
    double wide = 0;
    layout of;
    memcpy(&bits, at + index * unit, unit);
    if (dtype == IST_F32) {
        memcpy(&narrow, &bits, sizeof narrow);
        return narrow;
    }
    if (dtype == IST_F64) {
        memcpy(&wide, &bits, sizeof wide);
        return wide;
    }
    return small_layout(dtype, &of) ? small_get(bits, &of) : (double)bits;
}
