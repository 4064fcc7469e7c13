/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file cuda_memory.cuh
 * Typed loads, stores, atomics and fences: one PTX instruction for each order and scope.
 *
 * Orders are constants at almost every call, so the choices below cost nothing. Relaxed accesses do
 * not clobber memory: the compiler may move private accesses across them, as the contract allows.
 */
#ifndef IST_CUDA_MEMORY_CUH
#define IST_CUDA_MEMORY_CUH

/* Release has no meaning for a load, acquire none for a store: the other half is what counts. */
#define IST_CUDA_ACQUIRES(order) (((unsigned)(order)&1u) != 0u)
#define IST_CUDA_RELEASES(order) (((unsigned)(order)&2u) != 0u)

/* `statement` is given the scope's PTX name. */
#define IST_CUDA_BY_SCOPE(scope, statement, ...)                                                   \
    do {                                                                                           \
        if ((scope) == IST_SCOPE_BLOCK) {                                                          \
            statement("cta", __VA_ARGS__);                                                         \
        } else if ((scope) == IST_SCOPE_DEVICE) {                                                  \
            statement("gpu", __VA_ARGS__);                                                         \
        } else {                                                                                   \
            statement("sys", __VA_ARGS__);                                                         \
        }                                                                                          \
    } while (0)

#define IST_CUDA_LOAD_RELAXED(scope_, type_, reg_)                                                 \
    asm volatile("ld.relaxed." scope_ "." type_ " %0, [%1];" : reg_(value) : "l"(word))
#define IST_CUDA_LOAD_ACQUIRE(scope_, type_, reg_)                                                 \
    asm volatile("ld.acquire." scope_ "." type_ " %0, [%1];" : reg_(value) : "l"(word) : "memory")
#define IST_CUDA_STORE_RELAXED(scope_, type_, reg_)                                                \
    asm volatile("st.relaxed." scope_ "." type_ " [%0], %1;" ::"l"(word), reg_(value))
#define IST_CUDA_STORE_RELEASE(scope_, type_, reg_)                                                \
    asm volatile("st.release." scope_ "." type_ " [%0], %1;" ::"l"(word), reg_(value) : "memory")

IST_DEVICE_FN uint32_t ist_load_u32(ist_coop *coop, const uint32_t *word, ist_order order,
                                    ist_scope scope)
{
    (void)coop;
    uint32_t value;
    if (IST_CUDA_ACQUIRES(order)) {
        IST_CUDA_BY_SCOPE(scope, IST_CUDA_LOAD_ACQUIRE, "u32", "=r");
    } else {
        IST_CUDA_BY_SCOPE(scope, IST_CUDA_LOAD_RELAXED, "u32", "=r");
    }
    return value;
}

IST_DEVICE_FN uint64_t ist_load_u64(ist_coop *coop, const uint64_t *word, ist_order order,
                                    ist_scope scope)
{
    (void)coop;
    uint64_t value;
    if (IST_CUDA_ACQUIRES(order)) {
        IST_CUDA_BY_SCOPE(scope, IST_CUDA_LOAD_ACQUIRE, "u64", "=l");
    } else {
        IST_CUDA_BY_SCOPE(scope, IST_CUDA_LOAD_RELAXED, "u64", "=l");
    }
    return value;
}

IST_DEVICE_FN void ist_store_u32(ist_coop *coop, uint32_t *word, uint32_t value, ist_order order,
                                 ist_scope scope)
{
    (void)coop;
    if (IST_CUDA_RELEASES(order)) {
        IST_CUDA_BY_SCOPE(scope, IST_CUDA_STORE_RELEASE, "u32", "r");
    } else {
        IST_CUDA_BY_SCOPE(scope, IST_CUDA_STORE_RELAXED, "u32", "r");
    }
}

IST_DEVICE_FN void ist_store_u64(ist_coop *coop, uint64_t *word, uint64_t value, ist_order order,
                                 ist_scope scope)
{
    (void)coop;
    if (IST_CUDA_RELEASES(order)) {
        IST_CUDA_BY_SCOPE(scope, IST_CUDA_STORE_RELEASE, "u64", "l");
    } else {
        IST_CUDA_BY_SCOPE(scope, IST_CUDA_STORE_RELAXED, "u64", "l");
    }
}

/* ---- atomics --------------------------------------------------------------------------------- */

#define IST_CUDA_ATOMIC(scope_, order_, operation_)                                                \
    asm volatile("atom." order_ "." scope_ "." operation_ " %0, [%1], %2;"                         \
                 : "=l"(before)                                                                    \
                 : "l"(word), "l"(value)                                                           \
                 : "memory")
#define IST_CUDA_SWAP(scope_, order_)                                                              \
    asm volatile("atom." order_ "." scope_ ".cas.b64 %0, [%1], %2, %3;"                            \
                 : "=l"(before)                                                                    \
                 : "l"(word), "l"(expected), "l"(desired)                                          \
                 : "memory")

/* `statement` is given the scope's name, then the order's. */
#define IST_CUDA_BY_ORDER(order, scope, statement, ...)                                            \
    do {                                                                                           \
        if ((order) == IST_RELAXED) {                                                              \
            IST_CUDA_BY_SCOPE(scope, statement, "relaxed" __VA_ARGS__);                            \
        } else if ((order) == IST_ACQUIRE) {                                                       \
            IST_CUDA_BY_SCOPE(scope, statement, "acquire" __VA_ARGS__);                            \
        } else if ((order) == IST_RELEASE) {                                                       \
            IST_CUDA_BY_SCOPE(scope, statement, "release" __VA_ARGS__);                            \
        } else {                                                                                   \
            IST_CUDA_BY_SCOPE(scope, statement, "acq_rel" __VA_ARGS__);                            \
        }                                                                                          \
    } while (0)

#define IST_CUDA_ADD(scope_, order_) IST_CUDA_ATOMIC(scope_, order_, "add.u64")
#define IST_CUDA_AND(scope_, order_) IST_CUDA_ATOMIC(scope_, order_, "and.b64")

IST_DEVICE_FN uint64_t ist_fetch_add_u64(ist_coop *coop, uint64_t *word, uint64_t value,
                                         ist_order order, ist_scope scope)
{
    (void)coop;
    uint64_t before;
    IST_CUDA_BY_ORDER(order, scope, IST_CUDA_ADD, );
    return before;
}

IST_DEVICE_FN uint64_t ist_fetch_and_u64(ist_coop *coop, uint64_t *word, uint64_t value,
                                         ist_order order, ist_scope scope)
{
    (void)coop;
    uint64_t before;
    IST_CUDA_BY_ORDER(order, scope, IST_CUDA_AND, );
    return before;
}

IST_DEVICE_FN uint64_t ist_compare_swap_u64(ist_coop *coop, uint64_t *word, uint64_t expected,
                                            uint64_t desired, ist_order order, ist_scope scope)
{
    (void)coop;
    uint64_t before;
    IST_CUDA_BY_ORDER(order, scope, IST_CUDA_SWAP, );
    return before;
}

/** Takes (0 to 1, acquire) a lock word of device scope. @return whether it was free */
IST_DEVICE_FN int ist_cuda_try_lock(uint32_t *word)
{
    uint32_t before;
    asm volatile("atom.acquire.gpu.cas.b32 %0, [%1], %2, %3;"
                 : "=r"(before)
                 : "l"(word), "r"(0u), "r"(1u)
                 : "memory");
    return before == 0u;
}

/* ---- fences ---------------------------------------------------------------------------------- */

#define IST_CUDA_FENCE(scope_, order_) asm volatile("fence." order_ "." scope_ ";" ::: "memory")

/** Separate acquire and release fences exist since PTX ISA 8.6 (CUDA 12.8). */
#if defined(__CUDACC_VER_MAJOR__) && (__CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1208)
#define IST_CUDA_FENCE_ACQUIRE "acquire"
#define IST_CUDA_FENCE_RELEASE "release"
#else
#define IST_CUDA_FENCE_ACQUIRE "acq_rel"
#define IST_CUDA_FENCE_RELEASE "acq_rel"
#endif

IST_DEVICE_FN void ist_cuda_bulk_drain(ist_coop *coop);

/** A fence that releases also waits for the bulk copies that this lane started. */
IST_DEVICE_FN void ist_fence(ist_coop *coop, ist_order order, ist_scope scope)
{
    if (IST_CUDA_RELEASES(order)) {
        ist_cuda_bulk_drain(coop);
    }
    if (order == IST_ACQUIRE) {
        IST_CUDA_BY_SCOPE(scope, IST_CUDA_FENCE, IST_CUDA_FENCE_ACQUIRE);
        coop->bulk_fenced = 0;
    } else if (order == IST_RELEASE) {
        IST_CUDA_BY_SCOPE(scope, IST_CUDA_FENCE, IST_CUDA_FENCE_RELEASE);
    } else if (order == IST_ACQ_REL) {
        IST_CUDA_BY_SCOPE(scope, IST_CUDA_FENCE, "acq_rel");
        coop->bulk_fenced = 0;
    }
}

/* ---- vectors of rows ------------------------------------------------------------------------- */

/** 16 bytes of global memory that are read once. Weak: ordered by the acquire and sync before. */
IST_DEVICE_FN uint4 ist_cuda_load_vector(const void *from)
{
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(__cvta_generic_to_global(from)));
    return v;
}

/** 16 bytes to global memory, of this rank or of a load/store peer. Weak. */
IST_DEVICE_FN void ist_cuda_store_vector(void *to, uint4 v)
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)),
                 "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w));
}

#endif
