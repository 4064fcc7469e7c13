/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device code: images are loaded once in a process and into each rank's context before its program
 * begins, because loading behind a kernel that waits for a peer could wait for it. Kernels are
 * found by name.
 *
 * Residency. Blocks of a launch wait for one another, so all of them must come to lie on the device
 * while none of them ends. What guarantees it:
 *   - A launch has at most as many blocks as the device holds of its kernel at once, or is refused.
 *   - A device gives places to grids one after the other: of the grids of one priority only the first
 *     gets any until all its blocks have theirs, and those of lower priorities wait (T. Amert and
 *     others, "GPU scheduling on the NVIDIA TX2: hidden details revealed", RTSS 2017; tried on the
 *     H200, kernels/NOTES.md). So two grids never each hold what the other lacks.
 *   - All streams have the same priority, the highest, so that nothing else of the program comes
 *     between the blocks of a grid, and none waits for the blocks of another's.
 *   - No launch is cooperative. Such a grid gets its places all at once, and while it waits for them
 *     no grid of its priority or a lower one gets any: one that has a part of its own, and a
 *     cooperative one that needs more than is free, wait for each other.
 *   - A launch never waits for another: the memory of all kernels' stacks is there before the first
 *     (stack_reserve).
 *   - A dependent grid gets places when all blocks of the grid before it have ended, not earlier
 *     (IST_KERNEL). While one that must wait for its predecessor held places, a peer's kernel for
 *     which that predecessor waits could lack them.
 */
#include "cuda_nccl.h"
#include "cuda_internal.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

typedef struct image {
    CUlibrary library;
    bool gin;
} image;

/* Loaded images; they stay until the process ends, as the driver's state does. */
static pthread_mutex_t image_lock = PTHREAD_MUTEX_INITIALIZER;
static image images[CUDA_IMAGE_COUNT_MAX];
static uint32_t image_count;
static uint32_t image_seen; /* of the registered ones */

/* ---- images ---------------------------------------------------------------------------------- */

/* Code for another NCCL release than the one that is there cannot be used. */
static bool image_fits(const ist_kernel_image *from)
{
    return from->needs == NULL ||
           (cuda_nccl_device_abi() != NULL && strcmp(from->needs, cuda_nccl_device_abi()) == 0);
}

static ist_status image_load(const cuda_rank *rank, const ist_kernel_image *from)
{
    if (!image_fits(from) || image_count == CUDA_IMAGE_COUNT_MAX) {
        return IST_OK;
    }
    CUresult result = cu.cuLibraryLoadData(&images[image_count].library, from->data, NULL, NULL, 0,
                                           NULL, NULL, 0);
    if (result != CUDA_SUCCESS) {
        ist_log(IST_LOG_ERROR, "the device code of %s cannot be loaded",
                from->source != NULL ? from->source : "?");
        return cuda_fail(rank, result, "cuLibraryLoadData");
    }
    images[image_count++].gin = from->needs != NULL;
    return IST_OK;
}

static ist_status images_load(const cuda_rank *rank)
{
    ist_status status = IST_OK;
    (void)pthread_mutex_lock(&image_lock);
    for (const ist_kernel_image *from = ist_kernel_image_at(image_seen);
         from != NULL && status == IST_OK; from = ist_kernel_image_at(image_seen)) {
        status = image_load(rank, from);
        image_seen += status == IST_OK ? 1u : 0u;
    }
    (void)pthread_mutex_unlock(&image_lock);
    return status;
}

/* stack: bytes of a thread's local memory, of the kernel that needs most. */
static ist_status kernel_load(const cuda_rank *rank, CUkernel kernel, size_t *stack)
{
    CUfunction function = NULL;
    int bytes = 0;
    CUDA_TRY(rank, cuKernelGetFunction, &function, kernel);
    CUDA_TRY(rank, cuFuncLoad, function);
    CUDA_TRY(rank, cuKernelGetAttribute, &bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, kernel,
             rank->device);
    *stack = (size_t)bytes > *stack ? (size_t)bytes : *stack;
    return IST_OK;
}

static ist_status image_into_context(const cuda_rank *rank, CUlibrary library, size_t *stack)
{
    unsigned count = 0;
    CUDA_TRY(rank, cuLibraryGetKernelCount, &count, library);
    CUkernel *kernels = ist_alloc(count == 0 ? 1 : count, sizeof(*kernels));
    if (kernels == NULL) {
        return cuda_fail_memory(rank, "a list of kernels");
    }
    CUresult result = cu.cuLibraryEnumerateKernels(kernels, count, library);
    ist_status status =
        result == CUDA_SUCCESS ? IST_OK : cuda_fail(rank, result, "cuLibraryEnumerateKernels");
    for (unsigned i = 0; status == IST_OK && i < count; ++i) {
        status = kernel_load(rank, kernels[i], stack);
    }
    ist_free(kernels);
    return status;
}

static ist_status tables_alloc(cuda_rank *rank)
{
    for (int gin = 0; gin < 2; ++gin) {
        rank->functions[gin] = ist_alloc(CUDA_KERNEL_COUNT_MAX, sizeof(*rank->functions[gin]));
        if (rank->functions[gin] == NULL) {
            return cuda_fail_memory(rank, "the table of kernels");
        }
    }
    return IST_OK;
}

void cuda_kernels_close(cuda_rank *rank)
{
    for (int gin = 0; gin < 2; ++gin) {
        ist_free(rank->functions[gin]);
        rank->functions[gin] = NULL;
    }
}

/* ---- kernels --------------------------------------------------------------------------------- */

static bool find_symbol(const char *symbol, bool gin, CUkernel *kernel)
{
    for (uint32_t i = 0; i < image_count; ++i) {
        if (images[i].gin == gin &&
            cu.cuLibraryGetKernel(kernel, images[i].library, symbol) == CUDA_SUCCESS) {
            return true;
        }
    }
    return false;
}

/* With GIN the code that knows it is preferred; a kernel that does not use it exists only once. */
static ist_status find_kernel(const cuda_rank *rank, const ist_kernel *kernel, bool gin,
                              CUkernel *found)
{
    char symbol[160];
    int length = snprintf(symbol, sizeof(symbol), "ist_kernel_%s", kernel->name);
    bool there = length > 0 && (size_t)length < sizeof(symbol) &&
                 ((gin && find_symbol(symbol, true, found)) || find_symbol(symbol, false, found));
    if (there) {
        return IST_OK;
    }
    ist_error details = {.rank = (int32_t)rank->index,
                         .peer = IST_RANK_NONE,
                         .object = "kernel",
                         .operation = "launch"};
    return ist_raise(IST_ERR_UNSUPPORTED, &details,
                     "kernel %s of %s has no device code: %s was not compiled for CUDA into this "
                     "program",
                     kernel->name, kernel->source != NULL ? kernel->source : "?",
                     kernel->source != NULL ? kernel->source : "its text");
}

static ist_status shape_function(const cuda_rank *rank, CUkernel kernel, cuda_function *function)
{
    int threads = 0;
    int per_sm = 0;
    CUDA_TRY(rank, cuKernelSetAttribute, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
             (int)IST_CUDA_DYNAMIC_BYTES, kernel, rank->device);
    CUDA_TRY(rank, cuKernelGetAttribute, &threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel,
             rank->device);
    CUDA_TRY(rank, cuKernelGetFunction, &function->handle, kernel);
    CUDA_TRY(rank, cuOccupancyMaxActiveBlocksPerMultiprocessor, &per_sm, function->handle, threads,
             IST_CUDA_DYNAMIC_BYTES);
    function->threads = (uint32_t)threads;
    function->blocks_max = (uint32_t)per_sm * rank->sm_count;
    return IST_OK;
}

static ist_status resolve(cuda_rank *rank, const ist_kernel *kernel, cuda_function *function)
{
    CUkernel found = NULL;
    IST_RETURN_IF_ERROR(find_kernel(rank, kernel, rank->gin_count > 0, &found));
    IST_RETURN_IF_ERROR(shape_function(rank, found, function));
    function->kernel = kernel;
    return IST_OK;
}

/* Open addressing by the descriptor's address; the order decides nothing. */
static ist_status lookup(cuda_rank *rank, const ist_kernel *kernel, const cuda_function **result)
{
    cuda_function *table = rank->functions[rank->gin_count > 0 ? 1 : 0];
    uint32_t slot = (uint32_t)((uintptr_t)kernel / sizeof(*kernel)) % CUDA_KERNEL_COUNT_MAX;
    for (uint32_t tried = 0; tried < CUDA_KERNEL_COUNT_MAX; ++tried) {
        cuda_function *function = &table[slot];
        if (function->kernel == NULL) {
            IST_RETURN_IF_ERROR(resolve(rank, kernel, function));
        }
        if (function->kernel == kernel) {
            *result = function;
            return IST_OK;
        }
        slot = (slot + 1u) % CUDA_KERNEL_COUNT_MAX;
    }
    return ist_raise(IST_ERR_MEMORY, NULL, "rank %u has launched %u kernels, more is not possible",
                     rank->index, CUDA_KERNEL_COUNT_MAX);
}

/* ---- launch ---------------------------------------------------------------------------------- */

static ist_status refuse_blocks(const cuda_rank *rank, const cuda_function *function,
                                uint32_t block_count)
{
    ist_error details = {.rank = (int32_t)rank->index,
                         .peer = IST_RANK_NONE,
                         .object = "block_count",
                         .operation = "launch",
                         .expected = function->blocks_max,
                         .observed = block_count};
    return ist_raise(IST_ERR_RANGE, &details,
                     "kernel %s cannot have %u blocks of %u threads resident at once, at most %u",
                     function->kernel->name, block_count, function->threads, function->blocks_max);
}

/* Set once the driver has refused a dependent launch and taken the same launch without. */
static _Atomic bool dependent_refused;

const char *cuda_dependent_reason(void)
{
    return atomic_load_explicit(&dependent_refused, memory_order_relaxed)
               ? "the driver refuses launches with a programmatic dependence"
               : NULL;
}

static CUresult submit(CUlaunchConfig *config, CUlaunchAttribute *attribute, CUfunction function,
                       void **parameters)
{
    config->attrs = attribute;
    config->numAttrs = attribute != NULL ? 1 : 0;
    return cu.cuLaunchKernelEx(config, function, parameters, NULL);
}

/*
 * A dependent grid waits itself for the end of the one before it and for its writes (IST_KERNEL):
 * what a launch costs passes while that one ends.
 */
static CUresult submit_dependent(CUlaunchConfig *config, CUfunction function, void **parameters)
{
    CUlaunchAttribute dependent = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                   .value = {.programmaticStreamSerializationAllowed = 1}};
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    if (!atomic_load_explicit(&dependent_refused, memory_order_relaxed)) {
        result = submit(config, &dependent, function, parameters);
    }
    if (result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_INVALID_VALUE) {
        result = submit(config, NULL, function, parameters);
        if (result == CUDA_SUCCESS) {
            atomic_store_explicit(&dependent_refused, true, memory_order_relaxed);
        }
    }
    return result;
}

static ist_status launch_entered(cuda_rank *rank, const cuda_stream *stream,
                                 const ist_kernel *kernel, uint32_t block_count, const void *args)
{
    const cuda_function *function = NULL;
    IST_RETURN_IF_ERROR(lookup(rank, kernel, &function));
    if (block_count > function->blocks_max) {
        return refuse_blocks(rank, function, block_count);
    }
    CUlaunchConfig config = {.gridDimX = block_count,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = function->threads,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .sharedMemBytes = IST_CUDA_DYNAMIC_BYTES,
                             .hStream = stream->handle};
    void *parameters[1];
    memcpy(&parameters[0], &args, sizeof(args)); /* the driver only reads */
    CUresult result = submit_dependent(&config, function->handle, parameters);
    return result == CUDA_SUCCESS ? IST_OK : cuda_fail(rank, result, "cuLaunchKernelEx");
}

ist_status cuda_launch(void *self, uint64_t stream, const ist_kernel *kernel, uint32_t block_count,
                       const void *args, size_t args_bytes)
{
    cuda_rank *rank = self;
    (void)args_bytes; /* the front has compared it with the kernel's */
    const cuda_stream *on = cuda_object(stream);
    bool entered = cuda_enter(rank);
    ist_status status = launch_entered(rank, on, kernel, block_count, args);
    cuda_exit(entered);
    return cuda_captured(rank, on, status);
}

/* ---- before the first launch ------------------------------------------------------------------ */

/*
 * A kernel that needs more local memory than any before it makes the driver wait, in the launch and
 * with its lock held, until every kernel of the context has ended: also for one that waits for a peer,
 * and for what another thread of this rank would do through the driver. So the most is asked for here.
 * The first launches after that wait on the device in the same way, until one has been made while
 * nothing else ran: under the lock, as ranks of one process may share a context.
 */
static ist_status stack_reserve(cuda_rank *rank, size_t stack)
{
    static const ist_kernel nothing = {
        .name = "cuda_nothing", .args_bytes = sizeof(uint64_t), .source = "cuda_nothing.c"};
    const cuda_stream side = {.handle = rank->side};
    const uint64_t args = 0;
    size_t limit = 0;
    CUDA_TRY(rank, cuCtxGetLimit, &limit, CU_LIMIT_STACK_SIZE);
    if (limit >= stack) {
        return IST_OK;
    }
    CUDA_TRY(rank, cuCtxSetLimit, CU_LIMIT_STACK_SIZE, stack);
    IST_RETURN_IF_ERROR(launch_entered(rank, &side, &nothing, 1, &args));
    CUresult result = cu.cuCtxSynchronize();
    return result == CUDA_SUCCESS ? IST_OK : cuda_fail(rank, result, "cuCtxSynchronize");
}

ist_status cuda_kernels_open(cuda_rank *rank)
{
    static pthread_mutex_t stack_lock = PTHREAD_MUTEX_INITIALIZER;
    size_t stack = 0;
    IST_RETURN_IF_ERROR(images_load(rank));
    for (uint32_t i = 0; i < image_count; ++i) {
        IST_RETURN_IF_ERROR(image_into_context(rank, images[i].library, &stack));
    }
    IST_RETURN_IF_ERROR(tables_alloc(rank));
    (void)pthread_mutex_lock(&stack_lock);
    ist_status status = stack_reserve(rank, stack);
    (void)pthread_mutex_unlock(&stack_lock);
    return status;
}
