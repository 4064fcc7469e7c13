/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file cuda_device.cuh
 * The device header's functions for CUDA: the coop, kernel definition, and the list of the rest.
 *
 * Included by <isthmus/device.h> when nvcc compiles, never by itself. What a function promises is
 * said there; here only what differs or why it is done so. One coop is one block; lane = thread.
 */
#ifndef IST_CUDA_DEVICE_CUH
#define IST_CUDA_DEVICE_CUH

#include <isthmus/detail/cuda_shared.h>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#error "Isthmus device code needs compute capability 9.0: compile with -arch=sm_90"
#endif

#define IST_DEVICE_FN static __device__ __forceinline__

/** Not inlined: what runs rarely, and what is called in many places and is longer than a call. A
 *  kernel of hundreds of kilobytes is fetched from L2 as it runs, and waits for every line. */
#define IST_CUDA_OUTLINED static __device__ __noinline__

#define IST_DEVICE_RARE_FN IST_CUDA_OUTLINED

/**
 * The rare function gets a copy of the coop: its address would force the original, which all the
 * other text uses, out of registers. Nothing is copied back, so that the compiler still knows the
 * original's contents: scratch slots that only the rare function opened are gone after it, and a
 * barrier separates its use of ist_cuda_block from the next. Only bulk copies need their counters.
 */
#define IST_RARELY(coop_, statement)                                                               \
    do {                                                                                           \
        ist_coop rare_ = *(coop_);                                                                 \
        {                                                                                          \
            ist_coop *coop_ = &rare_;                                                              \
            statement;                                                                             \
            ist_coop_sync(coop_);                                                                  \
        }                                                                                          \
        ist_cuda_bulk_take_over(coop_, &rare_);                                                    \
    } while (0)

#define IST_CUDA_SLOTS 8

/** A block. It lives in registers: every function that takes it is inlined. */
struct ist_coop {
    uint32_t thread;
    uint32_t thread_count;
    uint32_t block;
    uint32_t block_count;
    unsigned char *scratch; /* dynamic shared memory */
    uint32_t scratch_end;   /* bytes given out */
    uint32_t slot_offset[IST_CUDA_SLOTS];
    uint32_t slot_bytes[IST_CUDA_SLOTS];
    uint32_t turn; /* which of two instances of ist_cuda_block the next primitive uses */
    /* Bulk copies; see cuda_bulk.cuh. Used by thread 0, equal rules everywhere. */
    uint32_t bulk_head;   /* chunks whose load was started */
    uint32_t bulk_tail;   /* chunks whose stores were started */
    uint32_t bulk_opened; /* the stages' barriers are initialised */
    uint32_t bulk_fenced; /* what this block acquired is visible to the copy engine */
};

/**
 * Block-private words of the primitives below. Two sets, used in turn: a lane still reads one set
 * while another already writes the other, so that one barrier a use is enough.
 */
struct ist_cuda_block {
    uint64_t word[2];
    uint32_t warp_sums[2][32];
};

IST_DEVICE_FN ist_cuda_block *ist_cuda_block_of(void)
{
    __shared__ ist_cuda_block block;
    return &block;
}

#ifndef IST_CUDA_GIN
#define IST_CUDA_GIN 0
#endif

#include <isthmus/detail/cuda_memory.cuh>
#include <isthmus/detail/cuda_bulk.cuh>

/* ---- kernels --------------------------------------------------------------------------------- */

/**
 * A launch begins when the blocks of the kernel before it in the stream have ended, which is before
 * that kernel has. Here it waits until it has, and its writes are visible; before, only what no
 * kernel writes may be touched. No kernel lets its dependents begin while its own blocks run
 * (griddepcontrol.launch_dependents): that gains nothing, and while a block waits for a peer they
 * would hold places on the device that others need.
 */
IST_DEVICE_FN void ist_cuda_await_predecessor(void)
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

/* The arguments stay in constant memory: `args` is never copied. */
#define IST_KERNEL(name_, args_type)                                                               \
    IST_DEVICE_FN void ist_kernel_body_##name_(ist_coop *coop, const args_type *args);             \
    extern "C" __global__ void __launch_bounds__(IST_CUDA_THREADS, 1)                              \
        ist_kernel_##name_(const __grid_constant__ args_type args)                                 \
    {                                                                                              \
        ist_coop coop;                                                                             \
        ist_cuda_coop_open(&coop);                                                                 \
        ist_cuda_await_predecessor();                                                              \
        ist_kernel_body_##name_(&coop, &args);                                                     \
        ist_cuda_coop_close(&coop);                                                                \
    }                                                                                              \
    IST_DEVICE_FN void ist_kernel_body_##name_(ist_coop *coop, const args_type *args)

/* Not unrolled: few lanes have a second turn, and all would fetch the text of four. */
#define IST_ROLLED _Pragma("unroll 1")

#define IST_ASSUME(condition) __builtin_assume(condition)

/* n is at most UINT32_MAX - IST_CUDA_THREADS here. */
#define IST_EACH_LANE(coop, i, n)                                                                  \
    IST_ROLLED                                                                                     \
    for (uint32_t i = (coop)->thread, i##_end_ = (uint32_t)(n); i < i##_end_;                      \
         i += (coop)->thread_count)

/* Another warp than the first: it goes on while the first waits, at a fence say. */
#define IST_EACH_LANE_BACK(coop, i, n)                                                             \
    IST_ROLLED                                                                                     \
    for (uint32_t i = (coop)->thread_count - 1u - (coop)->thread, i##_end_ = (uint32_t)(n);        \
         i < i##_end_; i += (coop)->thread_count)

IST_DEVICE_FN void ist_cuda_coop_open(ist_coop *coop)
{
    extern __shared__ __align__(128) unsigned char ist_cuda_dynamic[];
    coop->thread = threadIdx.x;
    coop->thread_count = IST_CUDA_THREADS; /* which every launch has */
    coop->block = blockIdx.x;
    coop->block_count = gridDim.x;
    coop->scratch = ist_cuda_dynamic;
    coop->scratch_end = 0;
#pragma unroll
    for (uint32_t slot = 0; slot < IST_CUDA_SLOTS; ++slot) {
        coop->slot_offset[slot] = 0;
        coop->slot_bytes[slot] = 0;
    }
    coop->turn = 0;
    coop->bulk_head = 0;
    coop->bulk_tail = 0;
    coop->bulk_opened = 0;
    coop->bulk_fenced = 0;
}

/** Shared memory must outlive the copies that read it. */
IST_DEVICE_FN void ist_cuda_coop_close(ist_coop *coop)
{
    ist_cuda_bulk_drain(coop);
}

/* ---- coops ----------------------------------------------------------------------------------- */

IST_DEVICE_FN uint32_t ist_coop_block(const ist_coop *coop)
{
    return coop->block;
}

IST_DEVICE_FN uint32_t ist_coop_block_count(const ist_coop *coop)
{
    return coop->block_count;
}

IST_DEVICE_FN int ist_coop_elect(const ist_coop *coop)
{
    return coop->thread == 0;
}

/** Also the point where bulk copies of the block are complete. */
IST_DEVICE_FN void ist_coop_sync(ist_coop *coop)
{
    ist_cuda_bulk_drain(coop);
    coop->bulk_fenced = 0;
    __syncthreads();
}

/** As ist_coop_sync(); returns in how many lanes `condition` holds. */
IST_DEVICE_FN uint32_t ist_cuda_sync_count(ist_coop *coop, int condition)
{
    ist_cuda_bulk_drain(coop);
    coop->bulk_fenced = 0;
    return (uint32_t)__syncthreads_count(condition);
}

/** Syncs the coop and hands a value of thread 0 to all lanes. */
IST_DEVICE_FN uint64_t ist_cuda_broadcast(ist_coop *coop, uint64_t value)
{
    uint64_t *word = &ist_cuda_block_of()->word[coop->turn];
    coop->turn ^= 1u;
    if (coop->thread == 0) {
        *word = value;
    }
    ist_coop_sync(coop);
    return *word;
}

/** NULL when the slots together would exceed IST_CUDA_SCRATCH_BYTES. Needs no barrier. */
IST_DEVICE_FN void *ist_coop_scratch(ist_coop *coop, uint32_t slot, uint32_t bytes)
{
    if (slot >= IST_CUDA_SLOTS) {
        return NULL;
    }
    if (bytes > coop->slot_bytes[slot]) {
        uint32_t rounded = (bytes + 15u) & ~15u;
        if (bytes > IST_CUDA_SCRATCH_BYTES ||
            rounded > IST_CUDA_SCRATCH_BYTES - coop->scratch_end) {
            return NULL;
        }
        coop->slot_offset[slot] = coop->scratch_end;
        coop->slot_bytes[slot] = rounded;
        coop->scratch_end += rounded;
    }
    return coop->scratch + coop->slot_offset[slot];
}

IST_DEVICE_FN uint64_t ist_coop_fetch_add(ist_coop *coop, uint64_t *word, uint64_t value,
                                          ist_order order, ist_scope scope)
{
    ist_coop_sync(coop);
    uint64_t before = 0;
    if (coop->thread == 0) {
        before = ist_fetch_add_u64(coop, word, value, order, scope);
    }
    return ist_cuda_broadcast(coop, before);
}

/** A place for faults in the simulator; nothing here. */
IST_DEVICE_FN void ist_point(ist_coop *coop, const char *name)
{
    (void)coop;
    (void)name;
}

/* A dev comm does not change while a kernel runs: the read-only path stays warm over acquires. */
IST_DEVICE_FN uint32_t ist_dev_rank(const ist_dev_comm *dev)
{
    return __ldg(&dev->rank);
}

IST_DEVICE_FN uint32_t ist_dev_rank_count(const ist_dev_comm *dev)
{
    return __ldg(&dev->rank_count);
}

IST_DEVICE_FN ist_dev_mask *ist_dev_mask_of(const ist_dev_comm *dev)
{
    return (ist_dev_mask *)__ldg((const unsigned long long *)&dev->mask);
}

IST_DEVICE_FN int ist_dev_is_lsa(const ist_dev_comm *dev, uint32_t peer)
{
    return peer - (__ldg(&dev->rank) - __ldg(&dev->lsa_rank)) < __ldg(&dev->lsa_size);
}

/* Kernels of ranks that have a dev comm with GIN come from images that are compiled with it. */
IST_DEVICE_FN int ist_dev_has_network(const ist_dev_comm *dev)
{
    return IST_CUDA_GIN && __ldg(&dev->lsa_size) < __ldg(&dev->rank_count);
}

#include <isthmus/detail/cuda_scan.cuh>
#include <isthmus/detail/cuda_rows.cuh>
#include <isthmus/detail/cuda_reduce.cuh>
#include <isthmus/detail/cuda_window.cuh>
#include <isthmus/detail/cuda_mask.cuh>
#include <isthmus/detail/cuda_clock.cuh>
#include <isthmus/detail/cuda_gin.cuh>
#include <isthmus/detail/cuda_wait.cuh>
#include <isthmus/detail/cuda_barrier.cuh>

#endif
