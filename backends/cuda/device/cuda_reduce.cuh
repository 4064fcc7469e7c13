/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file cuda_reduce.cuh
 * Weighted sum of rows: one f32 FMA chain an element, in the order of the sources, one rounding.
 *
 * A thread owns twice 16 bytes of the row. Up to IST_CUDA_REDUCE_DEPTH sources are loaded before the
 * first is added, so that a top-8 combine has all its loads in flight. The chain, and with it the
 * result, does not depend on how the row is split.
 */
#ifndef IST_CUDA_REDUCE_CUH
#define IST_CUDA_REDUCE_CUH

#define IST_CUDA_REDUCE_DEPTH 8u

/* How elements of each type lie in a 32-bit word. NaN rounds to the canonical NaN. */

struct ist_cuda_bf16 {
    typedef uint16_t bits;
    static constexpr uint32_t per_word = 2;
    static __device__ __forceinline__ void unpack(uint32_t word, float *value)
    {
        value[0] = __uint_as_float(word << 16);
        value[1] = __uint_as_float(word & 0xffff0000u);
    }
    static __device__ __forceinline__ uint32_t pack(const float *value)
    {
        uint32_t word;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(value[1]), "f"(value[0]));
        return word;
    }
};

struct ist_cuda_f16 {
    typedef uint16_t bits;
    static constexpr uint32_t per_word = 2;
    static __device__ __forceinline__ void unpack(uint32_t word, float *value)
    {
        asm("{.reg .b16 low, high;\n\t"
            "mov.b32 {low, high}, %2;\n\t"
            "cvt.f32.f16 %0, low;\n\t"
            "cvt.f32.f16 %1, high;}"
            : "=f"(value[0]), "=f"(value[1])
            : "r"(word));
    }
    static __device__ __forceinline__ uint32_t pack(const float *value)
    {
        uint32_t word;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(value[1]), "f"(value[0]));
        return word;
    }
};

struct ist_cuda_f32 {
    typedef uint32_t bits;
    static constexpr uint32_t per_word = 1;
    static __device__ __forceinline__ void unpack(uint32_t word, float *value)
    {
        value[0] = __uint_as_float(word);
    }
    static __device__ __forceinline__ uint32_t pack(const float *value)
    {
        return __float_as_uint(value[0]);
    }
};

/** What all threads reduce. fma(x, 1, acc) is x + acc rounded once, so no weights are weights 1. */
struct ist_cuda_reduction {
    void *dst;
    const void *const *src;
    const float *weight;
    uint32_t count;
};

IST_DEVICE_FN float ist_cuda_weight(const ist_cuda_reduction *job, uint32_t source)
{
    return job->weight == NULL ? 1.0f : job->weight[source];
}

/** Adds one source's 16 bytes to the sums. */
template <typename Type>
IST_DEVICE_FN void ist_cuda_accumulate(float *sums, uint4 vector, float weight)
{
    const uint32_t words[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
    for (uint32_t i = 0; i < 4u; ++i) {
        float value[2];
        Type::unpack(words[i], value);
#pragma unroll
        for (uint32_t j = 0; j < Type::per_word; ++j) {
            float *sum = &sums[i * Type::per_word + j];
            *sum = __fmaf_rn(value[j], weight, *sum);
        }
    }
}

/** Adds up to DEPTH sources from `first` to the sums of WIDTH vectors, `apart` bytes from each other:
 *  all loads first. */
template <typename Type, uint32_t WIDTH>
IST_DEVICE_FN void ist_cuda_reduce_some(const ist_cuda_reduction *job, uint32_t first,
                                        uint64_t offset, uint64_t apart,
                                        float (*sums)[4u * Type::per_word])
{
    uint4 vectors[WIDTH][IST_CUDA_REDUCE_DEPTH];
#pragma unroll
    for (uint32_t i = 0; i < IST_CUDA_REDUCE_DEPTH; ++i) {
        if (first + i < job->count) {
            const char *from = (const char *)job->src[first + i] + offset;
#pragma unroll
            for (uint32_t w = 0; w < WIDTH; ++w) {
                vectors[w][i] = ist_cuda_load_vector(from + w * apart);
            }
        }
    }
#pragma unroll
    for (uint32_t i = 0; i < IST_CUDA_REDUCE_DEPTH; ++i) {
        if (first + i < job->count) {
            float weight = ist_cuda_weight(job, first + i);
#pragma unroll
            for (uint32_t w = 0; w < WIDTH; ++w) {
                ist_cuda_accumulate<Type>(sums[w], vectors[w][i], weight);
            }
        }
    }
}

/** Sums and stores WIDTH vectors of the row. */
template <typename Type, uint32_t WIDTH>
IST_DEVICE_FN void ist_cuda_reduce_vectors(const ist_cuda_reduction *job, uint64_t offset,
                                           uint64_t apart)
{
    float sums[WIDTH][4u * Type::per_word] = {};
#pragma unroll 1
    for (uint32_t first = 0; first < job->count; first += IST_CUDA_REDUCE_DEPTH) {
        ist_cuda_reduce_some<Type, WIDTH>(job, first, offset, apart, sums);
    }
#pragma unroll
    for (uint32_t w = 0; w < WIDTH; ++w) {
        const float *sum = sums[w];
        ist_cuda_store_vector((char *)job->dst + offset + w * apart,
                              make_uint4(Type::pack(sum), Type::pack(sum + Type::per_word),
                                         Type::pack(sum + 2u * Type::per_word),
                                         Type::pack(sum + 3u * Type::per_word)));
    }
}

/** One element at any address. */
template <typename Type>
IST_DEVICE_FN void ist_cuda_reduce_element(const ist_cuda_reduction *job, uint64_t index)
{
    uint64_t offset = index * sizeof(typename Type::bits);
    float sum = 0.0f;
    for (uint32_t source = 0; source < job->count; ++source) {
        const unsigned char *from = (const unsigned char *)job->src[source] + offset;
        uint32_t word = 0;
        for (uint32_t i = 0; i < sizeof(typename Type::bits); ++i) {
            word |= (uint32_t)from[i] << (8u * i);
        }
        float value[2];
        Type::unpack(word, value);
        sum = __fmaf_rn(value[0], ist_cuda_weight(job, source), sum);
    }
    const float pair[2] = {sum, 0.0f};
    uint32_t word = Type::pack(pair);
    unsigned char *to = (unsigned char *)job->dst + offset;
    for (uint32_t i = 0; i < sizeof(typename Type::bits); ++i) {
        to[i] = (unsigned char)(word >> (8u * i));
    }
}

/** Vectors of an aligned row in global memory, then the elements that are left: all of any other. */
template <typename Type>
IST_DEVICE_FN void ist_cuda_reduce(const ist_coop *coop, const ist_cuda_reduction *job,
                                   uint64_t elements, int aligned)
{
    uint64_t vectors = aligned ? elements * sizeof(typename Type::bits) / 16u : 0u;
    uint64_t i = coop->thread;
    uint64_t step = coop->thread_count;
#pragma unroll 1
    for (; i + step < vectors; i += 2u * step) {
        ist_cuda_reduce_vectors<Type, 2>(job, i * 16u, step * 16u);
    }
    if (i < vectors) {
        ist_cuda_reduce_vectors<Type, 1>(job, i * 16u, 0);
    }
    uint64_t first = vectors * 16u / sizeof(typename Type::bits);
#pragma unroll 1
    for (uint64_t at = first + coop->thread; at < elements; at += coop->thread_count) {
        ist_cuda_reduce_element<Type>(job, at);
    }
}

/* ---- many sums -------------------------------------------------------------------------------- */

/** Vectors of a thread that a sum has in flight: with 256 threads all of a row of 16 KiB. */
#define IST_CUDA_SUM_WIDTH 4u

/** Adds sources first … first + DEPTH - 1 to the sums of this thread's vectors at, at + step, …: all
 *  loads first. Whether a source is there is equal in all threads. */
template <typename Type>
IST_DEVICE_FN void ist_cuda_sum_some(const void *const *src, const float *weight, uint32_t count,
                                     uint32_t at, uint32_t step, uint32_t vectors,
                                     float (*sums)[4u * Type::per_word])
{
    uint4 words[IST_CUDA_REDUCE_DEPTH][IST_CUDA_SUM_WIDTH];
    const char *from[IST_CUDA_REDUCE_DEPTH];
#pragma unroll
    for (uint32_t s = 0; s < IST_CUDA_REDUCE_DEPTH; ++s) {
        from[s] = s < count ? (const char *)src[s] : NULL;
    }
#pragma unroll
    for (uint32_t s = 0; s < IST_CUDA_REDUCE_DEPTH; ++s) {
        if (from[s] != NULL) {
#pragma unroll
            for (uint32_t w = 0; w < IST_CUDA_SUM_WIDTH; ++w) {
                if (at + w * step < vectors) {
                    words[s][w] = ist_cuda_load_vector(from[s] + (uint64_t)(at + w * step) * 16u);
                }
            }
        }
    }
#pragma unroll
    for (uint32_t s = 0; s < IST_CUDA_REDUCE_DEPTH; ++s) {
        if (from[s] != NULL) {
            float factor = weight == NULL ? 1.0f : weight[s];
#pragma unroll
            for (uint32_t w = 0; w < IST_CUDA_SUM_WIDTH; ++w) {
                ist_cuda_accumulate<Type>(sums[w], words[s][w], factor);
            }
        }
    }
}

/** Sums and stores this thread's vectors of one row. */
template <typename Type>
IST_DEVICE_FN void ist_cuda_sum_vectors(ist_cuda_lanes lanes, char *dst, const void *const *src,
                                        const float *weight, uint32_t stride, uint32_t vectors)
{
#pragma unroll 1
    for (uint32_t at = lanes.thread; at < vectors; at += IST_CUDA_SUM_WIDTH * lanes.count) {
        float sums[IST_CUDA_SUM_WIDTH][4u * Type::per_word] = {};
#pragma unroll 1
        for (uint32_t first = 0; first < stride; first += IST_CUDA_REDUCE_DEPTH) {
            ist_cuda_sum_some<Type>(src + first, weight == NULL ? NULL : weight + first,
                                    stride - first, at, lanes.count, vectors, sums);
        }
#pragma unroll
        for (uint32_t w = 0; w < IST_CUDA_SUM_WIDTH; ++w) {
            const float *sum = sums[w];
            if (at + w * lanes.count < vectors) {
                ist_cuda_store_vector(dst + (uint64_t)(at + w * lanes.count) * 16u,
                                      make_uint4(Type::pack(sum), Type::pack(sum + Type::per_word),
                                                 Type::pack(sum + 2u * Type::per_word),
                                                 Type::pack(sum + 3u * Type::per_word)));
            }
        }
    }
}

/** One element of a row at any address, without the sources that are NULL. */
template <typename Type>
IST_DEVICE_FN void ist_cuda_sum_element(unsigned char *dst, const void *const *src,
                                        const float *weight, uint32_t stride, uint64_t offset)
{
    float sum = 0.0f;
#pragma unroll 1
    for (uint32_t source = 0; source < stride; ++source) {
        const unsigned char *from = (const unsigned char *)src[source];
        uint32_t word = 0;
        float value[2];
        for (uint32_t i = 0; from != NULL && i < sizeof(typename Type::bits); ++i) {
            word |= (uint32_t)from[offset + i] << (8u * i);
        }
        Type::unpack(word, value);
        sum = from == NULL ? sum : __fmaf_rn(value[0], weight == NULL ? 1.0f : weight[source], sum);
    }
    const float pair[2] = {sum, 0.0f};
    uint32_t word = Type::pack(pair);
    for (uint32_t i = 0; i < sizeof(typename Type::bits); ++i) {
        dst[offset + i] = (unsigned char)(word >> (8u * i));
    }
}

/** All sums of a batch. Not inlined: it is long, and kernels sum at several places. */
template <typename Type>
IST_CUDA_OUTLINED void ist_cuda_sum_rows(ist_cuda_lanes lanes, ist_row_sums batch)
{
    uint64_t bytes = batch.elements * sizeof(typename Type::bits);
#pragma unroll 1
    for (uint32_t row = 0; row < batch.row_count; ++row) {
        const void *const *src = batch.src + row * batch.stride;
        const float *weight = batch.weight == NULL ? NULL : batch.weight + row * batch.stride;
        uint64_t bits = (uint64_t)batch.dst[row];
        if (bits == 0) {
            continue;
        }
        for (uint32_t i = 0; i < batch.stride; ++i) {
            bits |= (uint64_t)src[i];
        }
        uint32_t vectors = (bits & 15u) == 0 ? (uint32_t)(bytes / 16u) : 0u;
        ist_cuda_sum_vectors<Type>(lanes, (char *)batch.dst[row], src, weight, batch.stride,
                                   vectors);
        uint64_t at = (uint64_t)vectors * 16u + lanes.thread * sizeof(typename Type::bits);
#pragma unroll 1
        for (; at < bytes; at += lanes.count * sizeof(typename Type::bits)) {
            ist_cuda_sum_element<Type>((unsigned char *)batch.dst[row], src, weight, batch.stride,
                                       at);
        }
    }
}

IST_DEVICE_FN void ist_row_reduce_batch(ist_coop *coop, const ist_row_sums *batch)
{
    if (batch->dtype == IST_BF16) {
        ist_cuda_sum_rows<ist_cuda_bf16>(ist_cuda_lanes_of(coop), *batch);
    } else if (batch->dtype == IST_F16) {
        ist_cuda_sum_rows<ist_cuda_f16>(ist_cuda_lanes_of(coop), *batch);
    } else if (batch->dtype == IST_F32) {
        ist_cuda_sum_rows<ist_cuda_f32>(ist_cuda_lanes_of(coop), *batch);
    }
}

/* ---- one sum ---------------------------------------------------------------------------------- */

IST_DEVICE_FN int ist_cuda_reduce_aligned(const ist_cuda_reduction *job)
{
    int aligned = ((uint64_t)job->dst & 15u) == 0 && ist_cuda_is_global(job->dst);
    for (uint32_t i = 0; i < job->count; ++i) {
        aligned = aligned && ((uint64_t)job->src[i] & 15u) == 0 && ist_cuda_is_global(job->src[i]);
    }
    return aligned;
}

IST_DEVICE_FN void ist_row_reduce(ist_coop *coop, void *dst, const void *const *src,
                                  const float *weight, uint32_t count, uint64_t elements,
                                  ist_dtype dtype)
{
    ist_cuda_reduction job;
    job.dst = dst;
    job.src = src;
    job.weight = weight;
    job.count = count;
    int aligned = ist_cuda_reduce_aligned(&job);
    if (dtype == IST_BF16) {
        ist_cuda_reduce<ist_cuda_bf16>(coop, &job, elements, aligned);
    } else if (dtype == IST_F16) {
        ist_cuda_reduce<ist_cuda_f16>(coop, &job, elements, aligned);
    } else if (dtype == IST_F32) {
        ist_cuda_reduce<ist_cuda_f32>(coop, &job, elements, aligned);
    }
}

#endif
