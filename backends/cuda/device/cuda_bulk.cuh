/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file cuda_bulk.cuh
 * Row copies by the bulk copy engine (TMA): global -> shared -> one or several global places.
 *
 * Thread 0 starts them and goes on; a ring of IST_CUDA_STAGES stages keeps several rows of a block
 * in flight without registers. They are complete after ist_coop_sync(), a fence that releases, or
 * the end of the kernel. Method: an mbarrier a stage counts the bytes of a load; the stores of a
 * chunk are one bulk group (PTX ISA, "asynchronous copy operations").
 *
 * Ring: bulk_tail <= bulk_head <= bulk_tail + IST_CUDA_BULK_LOADS. Chunk c uses stage c % STAGES.
 */
#ifndef IST_CUDA_BULK_CUH
#define IST_CUDA_BULK_CUH

/**
 * Rows of at least this many bytes take the copy engine; 0, the default: none do. On two H200, with
 * blocks of 1024 threads and BF16 rows of 7168: rows one after the other without a coop sync between
 * them gain (4096 rows inside a GPU 34.8 µs against 39.1), rows with a sync each lose (56.2), over
 * NVLink and for long rows both are equal (364 GB/s).
 */
#ifndef IST_CUDA_BULK_BYTES_MIN
#define IST_CUDA_BULK_BYTES_MIN 0
#endif

/** Loads in flight; the other stages drain their stores meanwhile. */
#define IST_CUDA_BULK_LOADS 3u

struct ist_cuda_chunk {
    uint64_t to[IST_ROW_TARGETS_MAX]; /* global addresses */
    uint32_t count;
    uint32_t bytes;
};

/** Touched by thread 0 and the copy engine only. */
struct ist_cuda_ring {
    uint64_t loaded[IST_CUDA_STAGES]; /* mbarriers */
    ist_cuda_chunk chunks[IST_CUDA_STAGES];
};

IST_DEVICE_FN ist_cuda_ring *ist_cuda_ring_of(void)
{
    __shared__ ist_cuda_ring ring;
    return &ring;
}

IST_DEVICE_FN uint32_t ist_cuda_shared_address(const void *shared)
{
    return (uint32_t)__cvta_generic_to_shared(shared);
}

IST_DEVICE_FN uint32_t ist_cuda_stage_address(const ist_coop *coop, uint32_t chunk)
{
    return ist_cuda_shared_address(coop->scratch) + IST_CUDA_SCRATCH_BYTES +
           chunk % IST_CUDA_STAGES * IST_CUDA_STAGE_BYTES;
}

/** One arrival (thread 0's, with the byte count) completes a phase. */
IST_DEVICE_FN void ist_cuda_bulk_open(ist_coop *coop)
{
    ist_cuda_ring *ring = ist_cuda_ring_of();
    for (uint32_t i = 0; i < IST_CUDA_STAGES; ++i) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(
                         ist_cuda_shared_address(&ring->loaded[i]))
                     : "memory");
    }
    coop->bulk_opened = 1;
}

/** Waits for a stage's load. The engine always finishes or faults, so this needs no deadline. */
IST_DEVICE_FN void ist_cuda_bulk_wait_load(uint32_t barrier, uint32_t parity)
{
    uint32_t done;
    do {
        asm volatile("{\n\t"
                     ".reg .pred p;\n\t"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
                     "selp.u32 %0, 1, 0, p;\n\t"
                     "}"
                     : "=r"(done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    } while (!done);
}

/** Starts the stores of the oldest chunk, once its load has landed. */
IST_DEVICE_FN void ist_cuda_bulk_retire(ist_coop *coop)
{
    ist_cuda_ring *ring = ist_cuda_ring_of();
    uint32_t stage = coop->bulk_tail % IST_CUDA_STAGES;
    const ist_cuda_chunk *chunk = &ring->chunks[stage];
    ist_cuda_bulk_wait_load(ist_cuda_shared_address(&ring->loaded[stage]),
                            coop->bulk_tail / IST_CUDA_STAGES & 1u);
    uint32_t from = ist_cuda_stage_address(coop, coop->bulk_tail);
    for (uint32_t i = 0; i < chunk->count; ++i) {
        asm volatile(
            "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(chunk->to[i]),
            "r"(from), "r"(chunk->bytes)
            : "memory");
    }
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    coop->bulk_tail += 1;
}

/** Starts the load of one chunk. Its stage's former stores have read it: at most
 *  STAGES - LOADS younger groups may still be reading. */
IST_DEVICE_FN void ist_cuda_bulk_load(ist_coop *coop, const void *src, uint32_t bytes)
{
    uint32_t barrier =
        ist_cuda_shared_address(&ist_cuda_ring_of()->loaded[coop->bulk_head % IST_CUDA_STAGES]);
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(IST_CUDA_STAGES - IST_CUDA_BULK_LOADS)
                 : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(ist_cuda_stage_address(coop, coop->bulk_head)),
                 "l"(__cvta_generic_to_global(src)), "r"(bytes), "r"(barrier)
                 : "memory");
    coop->bulk_head += 1;
}

/**
 * Makes what this block has acquired or written visible to the engine: a proxy fence between those
 * accesses (ordered before this one by the last coop sync) and the copies.
 */
IST_DEVICE_FN void ist_cuda_bulk_prepare(ist_coop *coop)
{
    if (!coop->bulk_opened) {
        ist_cuda_bulk_open(coop);
        coop->bulk_fenced = 0;
    }
    if (!coop->bulk_fenced) {
        asm volatile("fence.proxy.async.global;" ::: "memory");
        coop->bulk_fenced = 1;
    }
}

/** Copies one row to `count` places; dst[i], src and bytes are multiples of 16. Thread 0 only. */
IST_DEVICE_FN void ist_cuda_bulk_copy(ist_coop *coop, void *const *dst, uint32_t count,
                                      const void *src, uint64_t bytes)
{
    ist_cuda_ring *ring = ist_cuda_ring_of();
    ist_cuda_bulk_prepare(coop);
    for (uint64_t at = 0; at < bytes; at += IST_CUDA_STAGE_BYTES) {
        uint64_t left = bytes - at;
        uint32_t size = left < IST_CUDA_STAGE_BYTES ? (uint32_t)left : IST_CUDA_STAGE_BYTES;
        if (coop->bulk_head - coop->bulk_tail == IST_CUDA_BULK_LOADS) {
            ist_cuda_bulk_retire(coop);
        }
        ist_cuda_chunk *chunk = &ring->chunks[coop->bulk_head % IST_CUDA_STAGES];
        for (uint32_t i = 0; i < count; ++i) {
            chunk->to[i] = (uint64_t)__cvta_generic_to_global(dst[i]) + at;
        }
        chunk->count = count;
        chunk->bytes = size;
        ist_cuda_bulk_load(coop, (const char *)src + at, size);
    }
}

/**
 * Completes all copies. Their writes are then visible to thread 0 as its own, so that a barrier or
 * a release of this thread covers them. Free in kernels that copy no rows.
 */
IST_DEVICE_FN void ist_cuda_bulk_drain(ist_coop *coop)
{
#if IST_CUDA_BULK_BYTES_MIN
    if (coop->thread != 0 || !coop->bulk_opened) {
        return;
    }
    while (coop->bulk_tail != coop->bulk_head) {
        ist_cuda_bulk_retire(coop);
    }
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#else
    (void)coop;
#endif
}

/** Goes on with the counters that a copy of the coop has moved. */
IST_DEVICE_FN void ist_cuda_bulk_take_over(ist_coop *coop, const ist_coop *copy)
{
#if IST_CUDA_BULK_BYTES_MIN
    coop->bulk_head = copy->bulk_head;
    coop->bulk_tail = copy->bulk_tail;
    coop->bulk_opened = copy->bulk_opened;
    coop->bulk_fenced = copy->bulk_fenced;
#else
    (void)coop, (void)copy;
#endif
}

/** Whether the launch has room for the stages. */
IST_DEVICE_FN int ist_cuda_bulk_staged(void)
{
    uint32_t bytes;
    asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(bytes));
    return bytes >= IST_CUDA_DYNAMIC_BYTES;
}

#endif
