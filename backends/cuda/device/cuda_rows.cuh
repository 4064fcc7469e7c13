/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file cuda_rows.cuh
 * Rows: copy to one or several places and fill, by the whole block.
 *
 * Rows go through registers, in words as wide as the common alignment allows, with several loads of
 * a thread in flight before its first store. Aligned rows in global memory that are long enough for
 * IST_CUDA_BULK_BYTES_MIN go to the copy engine instead (cuda_bulk.cuh).
 */
#ifndef IST_CUDA_ROWS_CUH
#define IST_CUDA_ROWS_CUH

/** 16-byte loads of a thread in flight. */
#define IST_CUDA_ROW_DEPTH 4u

/** Widest power of two, at most 16, that divides every number whose bits are in `bits`. */
IST_DEVICE_FN uint32_t ist_cuda_width(uint64_t bits)
{
    uint32_t low = (uint32_t)bits & 15u;
    return low == 0 ? 16u : low & (0u - low);
}

IST_DEVICE_FN int ist_cuda_is_global(const void *address)
{
    return __isGlobal(address) != 0;
}

/** One word of a row. 16-byte words of global memory take the cache-friendly forms. */
template <typename Word> IST_DEVICE_FN Word ist_cuda_load_word(const Word *from, int global)
{
    (void)global;
    return *from;
}

template <> __device__ __forceinline__ uint4 ist_cuda_load_word(const uint4 *from, int global)
{
    return global ? ist_cuda_load_vector(from) : *from;
}

/** Copies `count` words, DEPTH loads before the first store. */
template <typename Word>
IST_DEVICE_FN void ist_cuda_copy_words(const ist_coop *coop, void *dst, const void *src,
                                       uint64_t count, int global)
{
    Word *to = (Word *)dst;
    const Word *from = (const Word *)src;
    uint64_t step = coop->thread_count;
    for (uint64_t first = coop->thread; first < count; first += IST_CUDA_ROW_DEPTH * step) {
        Word words[IST_CUDA_ROW_DEPTH];
#pragma unroll
        for (uint32_t i = 0; i < IST_CUDA_ROW_DEPTH; ++i) {
            if (first + i * step < count) {
                words[i] = ist_cuda_load_word(from + first + i * step, global);
            }
        }
#pragma unroll
        for (uint32_t i = 0; i < IST_CUDA_ROW_DEPTH; ++i) {
            if (first + i * step < count) {
                to[first + i * step] = words[i];
            }
        }
    }
}

/** Copies words of `width` bytes (a power of two up to 16) between addresses aligned to it. */
IST_DEVICE_FN void ist_cuda_copy_width(const ist_coop *coop, void *dst, const void *src,
                                       uint64_t bytes, uint32_t width)
{
    if (width == 16u) {
        ist_cuda_copy_words<uint4>(coop, dst, src, bytes / 16u, ist_cuda_is_global(src));
    } else if (width >= 4u) {
        ist_cuda_copy_words<uint32_t>(coop, dst, src, bytes / 4u, 0);
    } else {
        ist_cuda_copy_words<uint8_t>(coop, dst, src, bytes, 0);
    }
}

/** Any alignment: bytes up to the first aligned word of the destination, words, bytes. */
IST_DEVICE_FN void ist_cuda_copy_any(const ist_coop *coop, void *dst, const void *src,
                                     uint64_t bytes)
{
    uint32_t width = ist_cuda_width((uint64_t)dst ^ (uint64_t)src);
    uint64_t head = (0u - (uint64_t)dst) & (width - 1u);
    head = head < bytes ? head : bytes;
    uint64_t body = (bytes - head) & ~(uint64_t)(width - 1u);
    uint64_t tail = bytes - head - body;
    char *to = (char *)dst;
    const char *from = (const char *)src;
    if (coop->thread < head) {
        to[coop->thread] = from[coop->thread];
    }
    ist_cuda_copy_width(coop, to + head, from + head, body, width);
    if (coop->thread < tail) {
        to[head + body + coop->thread] = from[head + body + coop->thread];
    }
}

/** Whether the copy engine takes this row. Equal in all lanes. */
IST_DEVICE_FN int ist_cuda_is_bulk(uint64_t alignment_bits, int global, uint64_t bytes)
{
#if IST_CUDA_BULK_BYTES_MIN
    return bytes >= IST_CUDA_BULK_BYTES_MIN && ((alignment_bits | bytes) & 15u) == 0 && global &&
           ist_cuda_bulk_staged();
#else
    (void)alignment_bits, (void)global, (void)bytes;
    return 0;
#endif
}

IST_DEVICE_FN void ist_row_copy(ist_coop *coop, void *dst, const void *src, uint64_t bytes)
{
    if (ist_cuda_is_bulk((uint64_t)dst | (uint64_t)src,
                         ist_cuda_is_global(dst) && ist_cuda_is_global(src), bytes)) {
        if (coop->thread == 0) {
            ist_cuda_bulk_copy(coop, &dst, 1, src, bytes);
        }
        return;
    }
    ist_cuda_copy_any(coop, dst, src, bytes);
}

/* ---- one source, several places -------------------------------------------------------------- */

/** As ist_cuda_copy_words() for 16-byte words: DEPTH loads, then DEPTH stores a place. */
IST_DEVICE_FN void ist_cuda_copy_many_vectors(const ist_coop *coop, void *const *dst,
                                              uint32_t place_count, const void *src, uint64_t count)
{
    const uint4 *from = (const uint4 *)src;
    uint64_t step = coop->thread_count;
    int global = ist_cuda_is_global(src);
    for (uint64_t first = coop->thread; first < count; first += IST_CUDA_ROW_DEPTH * step) {
        uint4 words[IST_CUDA_ROW_DEPTH];
#pragma unroll
        for (uint32_t i = 0; i < IST_CUDA_ROW_DEPTH; ++i) {
            if (first + i * step < count) {
                words[i] = ist_cuda_load_word(from + first + i * step, global);
            }
        }
        for (uint32_t place = 0; place < place_count; ++place) {
            uint4 *to = (uint4 *)dst[place];
#pragma unroll
            for (uint32_t i = 0; i < IST_CUDA_ROW_DEPTH; ++i) {
                if (first + i * step < count) {
                    to[first + i * step] = words[i];
                }
            }
        }
    }
}

IST_DEVICE_FN void ist_row_copy_many(ist_coop *coop, void *const *dst, uint32_t count,
                                     const void *src, uint64_t bytes)
{
    uint64_t bits = (uint64_t)src;
    int global = ist_cuda_is_global(src);
    for (uint32_t i = 0; i < count; ++i) {
        bits |= (uint64_t)dst[i];
        global = global && ist_cuda_is_global(dst[i]);
    }
    if (ist_cuda_is_bulk(bits, global, bytes)) {
        if (coop->thread == 0) {
            ist_cuda_bulk_copy(coop, dst, count, src, bytes);
        }
        return;
    }
    if (((bits | bytes) & 15u) == 0) {
        ist_cuda_copy_many_vectors(coop, dst, count, src, bytes / 16u);
        return;
    }
    for (uint32_t i = 0; i < count; ++i) {
        ist_cuda_copy_any(coop, dst[i], src, bytes);
    }
}

IST_DEVICE_FN void ist_row_fill(ist_coop *coop, void *dst, uint8_t value, uint64_t bytes)
{
    uint32_t word = value * 0x01010101u;
    uint4 vector = make_uint4(word, word, word, word);
    char *to = (char *)dst;
    uint64_t head = (0u - (uint64_t)dst) & 15u;
    head = head < bytes ? head : bytes;
    uint64_t vectors = (bytes - head) / 16u;
    uint64_t tail = bytes - head - vectors * 16u;
    if (coop->thread < head) {
        to[coop->thread] = (char)value;
    }
    for (uint64_t i = coop->thread; i < vectors; i += coop->thread_count) {
        *(uint4 *)(to + head + i * 16u) = vector;
    }
    if (coop->thread < tail) {
        to[bytes - tail + coop->thread] = (char)value;
    }
}

#endif
