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

/** 16-byte loads of a thread in flight: 32 KiB a block, whatever its threads. */
#define IST_CUDA_ROW_DEPTH (2048u / IST_CUDA_THREADS)

/** Up to here, whole words are copied without a call. */
#define IST_CUDA_SHORT_BYTES 8192u

/** Which lane of how many: what functions get that are not inlined. */
struct ist_cuda_lanes {
    uint32_t thread;
    uint32_t count;
};

IST_DEVICE_FN ist_cuda_lanes ist_cuda_lanes_of(const ist_coop *coop)
{
    ist_cuda_lanes lanes = {coop->thread, coop->thread_count};
    return lanes;
}

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
IST_DEVICE_FN void ist_cuda_copy_words(ist_cuda_lanes lanes, void *dst, const void *src,
                                       uint64_t count, int global)
{
    Word *to = (Word *)dst;
    const Word *from = (const Word *)src;
    uint64_t step = lanes.count;
    for (uint64_t first = lanes.thread; first < count; first += IST_CUDA_ROW_DEPTH * step) {
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
IST_DEVICE_FN void ist_cuda_copy_width(ist_cuda_lanes lanes, void *dst, const void *src,
                                       uint64_t bytes, uint32_t width)
{
    if (width == 16u) {
        ist_cuda_copy_words<uint4>(lanes, dst, src, bytes / 16u, ist_cuda_is_global(src));
    } else if (width >= 4u) {
        ist_cuda_copy_words<uint32_t>(lanes, dst, src, bytes / 4u, 0);
    } else {
        ist_cuda_copy_words<uint8_t>(lanes, dst, src, bytes, 0);
    }
}

/** Any alignment: bytes up to the first aligned word of the destination, words, bytes. */
IST_CUDA_OUTLINED void ist_cuda_copy_any(ist_cuda_lanes lanes, void *dst, const void *src,
                                         uint64_t bytes)
{
    uint32_t width = ist_cuda_width((uint64_t)dst ^ (uint64_t)src);
    uint64_t head = (0u - (uint64_t)dst) & (width - 1u);
    head = head < bytes ? head : bytes;
    uint64_t body = (bytes - head) & ~(uint64_t)(width - 1u);
    uint64_t tail = bytes - head - body;
    char *to = (char *)dst;
    const char *from = (const char *)src;
    if (lanes.thread < head) {
        to[lanes.thread] = from[lanes.thread];
    }
    ist_cuda_copy_width(lanes, to + head, from + head, body, width);
    if (lanes.thread < tail) {
        to[head + body + lanes.thread] = from[head + body + lanes.thread];
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

/** Whole 8-byte words, few a lane. */
IST_DEVICE_FN int ist_cuda_is_short(const void *dst, const void *src, uint64_t bytes)
{
    return (((uint64_t)dst | (uint64_t)src | bytes) & 7u) == 0 && bytes <= IST_CUDA_SHORT_BYTES;
}

/** Short copies are inlined: a kernel begins and ends with them, and they take less than a call. The last
 *  lanes make them: the first may be at the fence of a flag. */
IST_DEVICE_FN void ist_row_copy(ist_coop *coop, void *dst, const void *src, uint64_t bytes)
{
    if (ist_cuda_is_short(dst, src, bytes)) {
        IST_EACH_LANE_BACK (coop, i, (uint32_t)bytes / 8u) {
            ((uint64_t *)dst)[i] = ((const uint64_t *)src)[i];
        }
        return;
    }
    if (ist_cuda_is_bulk((uint64_t)dst | (uint64_t)src,
                         ist_cuda_is_global(dst) && ist_cuda_is_global(src), bytes)) {
        if (coop->thread == 0) {
            ist_cuda_bulk_copy(coop, &dst, 1, src, bytes);
        }
        return;
    }
    ist_cuda_copy_any(ist_cuda_lanes_of(coop), dst, src, bytes);
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
        ist_cuda_copy_any(ist_cuda_lanes_of(coop), dst[i], src, bytes);
    }
}

/* ---- many rows -------------------------------------------------------------------------------- */

/** 16 bytes between any addresses. */
IST_CUDA_OUTLINED void ist_cuda_copy_unaligned(char *to, const char *from)
{
    for (uint32_t i = 0; i < 16u; ++i) {
        to[i] = from[i];
    }
}

/** Vectors of a thread that a row has in flight; two rows are. */
#define IST_CUDA_BATCH_DEPTH (IST_CUDA_ROW_DEPTH / 2u)

/** Loads this lane's vectors of a row from `first` on. @return 0: the row is not aligned, and nothing
 *  was loaded. */
IST_DEVICE_FN int ist_cuda_batch_load(const ist_coop *coop, const ist_row_batch *batch,
                                      uint32_t row, uint32_t first, uint32_t vectors, uint4 *words)
{
    const char *from = (const char *)batch->src[row];
    if (((uint64_t)from & 15u) != 0 || batch->places[row] == 0) {
        return 0;
    }
#pragma unroll
    for (uint32_t i = 0; i < IST_CUDA_BATCH_DEPTH; ++i) {
        uint32_t at = first + i * coop->thread_count;
        if (at < vectors) {
            words[i] = ist_cuda_load_vector(from + (uint64_t)at * 16u);
        }
    }
    return 1;
}

/** Stores them to one place; from the source again where either is not aligned. */
IST_DEVICE_FN void ist_cuda_batch_store(const ist_coop *coop, const ist_row_batch *batch,
                                        uint32_t row, char *to, uint32_t first, uint32_t vectors,
                                        const uint4 *words, int loaded)
{
    int aligned = loaded && ((uint64_t)to & 15u) == 0;
#pragma unroll
    for (uint32_t i = 0; i < IST_CUDA_BATCH_DEPTH; ++i) {
        uint64_t at = first + i * coop->thread_count;
        if (at < vectors && aligned) {
            ist_cuda_store_vector(to + at * 16u, words[i]);
        } else if (at < vectors) {
            ist_cuda_copy_unaligned(to + at * 16u, (const char *)batch->src[row] + at * 16u);
        }
    }
}

/** Stores them to all places of the row. */
IST_DEVICE_FN void ist_cuda_batch_scatter(const ist_coop *coop, const ist_row_batch *batch,
                                          uint32_t row, uint32_t first, uint32_t vectors,
                                          const uint4 *words, int loaded)
{
#pragma unroll 1
    for (uint32_t place = 0; place < batch->places[row]; ++place) {
        char *to = (char *)batch->dst[row * batch->stride + place];
        if (to != NULL) {
            ist_cuda_batch_store(coop, batch, row, to, first, vectors, words, loaded);
        }
    }
}

/** Two rows at a time: the loads of both, then their stores. */
IST_DEVICE_FN void ist_cuda_copy_batch_vectors(const ist_coop *coop, const ist_row_batch *batch,
                                               uint32_t vectors)
{
#pragma unroll 1
    for (uint32_t row = 0; row < batch->row_count; row += 2u) {
#pragma unroll 1
        for (uint32_t first = coop->thread; first < vectors;
             first += IST_CUDA_BATCH_DEPTH * coop->thread_count) {
            uint4 words[2][IST_CUDA_BATCH_DEPTH];
            int second = row + 1u < batch->row_count;
            int loaded = ist_cuda_batch_load(coop, batch, row, first, vectors, words[0]);
            int also =
                second && ist_cuda_batch_load(coop, batch, row + 1u, first, vectors, words[1]);
            ist_cuda_batch_scatter(coop, batch, row, first, vectors, words[0], loaded);
            if (second) {
                ist_cuda_batch_scatter(coop, batch, row + 1u, first, vectors, words[1], also);
            }
        }
    }
}

IST_DEVICE_FN void ist_row_copy_batch(ist_coop *coop, const ist_row_batch *batch)
{
    if (batch->bytes != 0 && (batch->bytes & 15u) == 0) {
        ist_cuda_copy_batch_vectors(coop, batch, (uint32_t)(batch->bytes / 16u));
        return;
    }
    for (uint32_t i = 0; i < batch->row_count; ++i) {
        for (uint32_t place = 0; place < batch->places[i]; ++place) {
            void *to = batch->dst[i * batch->stride + place];
            if (to != NULL) {
                ist_cuda_copy_any(ist_cuda_lanes_of(coop), to, batch->src[i], batch->bytes);
            }
        }
    }
}

/** Unaligned parts of a list one after the other; see ist_row_copy_list(). */
IST_CUDA_OUTLINED void ist_cuda_copy_list_any(ist_cuda_lanes lanes, const ist_row_part *parts,
                                              uint32_t count)
{
    for (uint32_t i = 0; i < count; ++i) {
        ist_cuda_copy_any(lanes, parts[i].dst, parts[i].src, parts[i].bytes);
    }
}

IST_DEVICE_FN void ist_row_copy_list(ist_coop *coop, const ist_row_part *parts, uint32_t count)
{
    uint64_t bits = 0;
    for (uint32_t i = 0; i < count; ++i) {
        bits |= (uint64_t)parts[i].dst | (uint64_t)parts[i].src | parts[i].bytes;
    }
    if ((bits & 15u) != 0) {
        ist_cuda_copy_list_any(ist_cuda_lanes_of(coop), parts, count);
        return;
    }
    uint64_t at = coop->thread; /* in the part, in vectors */
    for (uint32_t i = 0; i < count; ++i) {
        uint64_t vectors = parts[i].bytes / 16u;
        for (; at < vectors; at += coop->thread_count) {
            ((uint4 *)parts[i].dst)[at] = ((const uint4 *)parts[i].src)[at];
        }
        at -= vectors;
    }
}

/* ---- fill ------------------------------------------------------------------------------------- */

IST_CUDA_OUTLINED void ist_cuda_fill(ist_cuda_lanes lanes, void *dst, uint8_t value, uint64_t bytes)
{
    uint32_t word = value * 0x01010101u;
    uint4 vector = make_uint4(word, word, word, word);
    char *to = (char *)dst;
    uint64_t head = (0u - (uint64_t)dst) & 15u;
    head = head < bytes ? head : bytes;
    uint64_t vectors = (bytes - head) / 16u;
    uint64_t tail = bytes - head - vectors * 16u;
    if (lanes.thread < head) {
        to[lanes.thread] = (char)value;
    }
    for (uint64_t i = lanes.thread; i < vectors; i += lanes.count) {
        *(uint4 *)(to + head + i * 16u) = vector;
    }
    if (lanes.thread < tail) {
        to[bytes - tail + lanes.thread] = (char)value;
    }
}

IST_DEVICE_FN void ist_row_fill(ist_coop *coop, void *dst, uint8_t value, uint64_t bytes)
{
    ist_cuda_fill(ist_cuda_lanes_of(coop), dst, value, bytes);
}

#endif
