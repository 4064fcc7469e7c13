/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CUDA driver without a GPU, for testing the host side of backends/cuda where there is none: as
 * many devices as FAKE_CUDA_DEVICES says (2), device memory in memfds that processes can share,
 * streams that run at once, graphs that replay what was captured. Kernels are counted and not run.
 *
 * FAKE_CUDA_VERSION, FAKE_CUDA_CAPABILITY, FAKE_CUDA_NO_VMM, FAKE_CUDA_NO_PEERS and
 * FAKE_CUDA_NO_DEPENDENT make it another machine. It counts what is open and fails the Nth call that
 * makes something (FAKE_CUDA_FAIL=N). At exit it writes what was left open, if anything, to standard
 * error.
 */
#include "fake_cuda.h"

#include <cuda.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FAKE __attribute__((visibility("default")))
#define GRANULARITY ((size_t)2 << 20)
#define MAPPING_COUNT_MAX 4096
#define HIGHEST_PRIORITY (-5)

/* ---- counting -------------------------------------------------------------------------------- */

enum {
    OPEN_HANDLE,
    OPEN_MAPPING,
    OPEN_RESERVED,
    OPEN_PINNED,
    OPEN_STREAM,
    OPEN_EVENT,
    OPEN_GRAPH,
    OPEN_CONTEXT,
    OPEN_KINDS
};
static const char *const kind_names[OPEN_KINDS] = {"handles",        "mappings", "address ranges",
                                                   "pinned buffers", "streams",  "events",
                                                   "graphs",         "contexts"};
static long open_counts[OPEN_KINDS];
static long made;

static int setting(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? atoi(text) : otherwise;
}

static int device_count(void)
{
    return setting("FAKE_CUDA_DEVICES", 2);
}

static int may_make(int kind)
{
    const char *text = getenv("FAKE_CUDA_FAIL");
    long fail = text != NULL ? strtol(text, NULL, 10) : 0;
    if (fail != 0 && __atomic_add_fetch(&made, 1, __ATOMIC_RELAXED) == fail) {
        return 0;
    }
    (void)__atomic_add_fetch(&open_counts[kind], 1, __ATOMIC_RELAXED);
    return 1;
}

static void ended(int kind)
{
    (void)__atomic_sub_fetch(&open_counts[kind], 1, __ATOMIC_RELAXED);
}

__attribute__((destructor)) static void report(void)
{
    for (int kind = 0; kind < OPEN_KINDS; ++kind) {
        /* A process keeps one reference to the context of each device that it has used. */
        long kept = kind == OPEN_CONTEXT ? device_count() : 0;
        if (open_counts[kind] > kept || open_counts[kind] < 0) {
            fprintf(stderr, "fake cuda: %ld %s left open\n", open_counts[kind], kind_names[kind]);
        }
    }
    const char *text = getenv("FAKE_CUDA_FAIL");
    if (text != NULL && strtol(text, NULL, 10) > made) {
        fprintf(stderr, "fake cuda: the call to fail was not reached\n");
    }
}

/* ---- devices and contexts -------------------------------------------------------------------- */

typedef struct context {
    int device;
} context;

static context contexts[64];
static _Thread_local CUcontext stack[16];
static _Thread_local int depth;

FAKE CUresult cuInit(unsigned flags)
{
    (void)flags;
    return CUDA_SUCCESS;
}

FAKE CUresult cuDriverGetVersion(int *version)
{
    *version = setting("FAKE_CUDA_VERSION", 13000);
    return CUDA_SUCCESS;
}

FAKE CUresult cuGetErrorName(CUresult result, const char **name)
{
    *name = result == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR";
    return CUDA_SUCCESS;
}

FAKE CUresult cuGetErrorString(CUresult result, const char **text)
{
    *text = result == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "fake error";
    return CUDA_SUCCESS;
}

FAKE CUresult cuDeviceGetCount(int *count)
{
    *count = device_count();
    return CUDA_SUCCESS;
}

FAKE CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    *device = ordinal;
    return ordinal < device_count() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

FAKE CUresult cuDeviceGetName(char *name, int bytes, CUdevice device)
{
    snprintf(name, (size_t)bytes, "fake GPU %d", device);
    return CUDA_SUCCESS;
}

FAKE CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    memset(uuid, 0, sizeof(*uuid));
    uuid->bytes[0] = (char)(device + 1);
    return CUDA_SUCCESS;
}

FAKE CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice device)
{
    (void)device;
    switch ((int)which) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *value = setting("FAKE_CUDA_CAPABILITY", 9);
        break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = 0; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 132; break;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        *value = getenv("FAKE_CUDA_NO_VMM") == NULL;
        break;
    default: *value = 1; break;
    }
    return CUDA_SUCCESS;
}

FAKE CUresult cuDeviceCanAccessPeer(int *reaches, CUdevice from, CUdevice to)
{
    *reaches = from != to && getenv("FAKE_CUDA_NO_PEERS") == NULL;
    return CUDA_SUCCESS;
}

FAKE CUresult cuDevicePrimaryCtxRetain(CUcontext *result, CUdevice device)
{
    if (!may_make(OPEN_CONTEXT)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    contexts[device].device = device;
    *result = (CUcontext)(void *)&contexts[device];
    return CUDA_SUCCESS;
}

FAKE CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    (void)device;
    ended(OPEN_CONTEXT);
    return CUDA_SUCCESS;
}

FAKE CUresult cuCtxGetCurrent(CUcontext *current)
{
    *current = depth > 0 ? stack[depth - 1] : NULL;
    return CUDA_SUCCESS;
}

FAKE CUresult cuCtxSetCurrent(CUcontext current)
{
    depth = depth > 0 ? depth : 1;
    stack[depth - 1] = current;
    return CUDA_SUCCESS;
}

FAKE CUresult cuCtxPushCurrent(CUcontext current)
{
    stack[depth++] = current;
    return CUDA_SUCCESS;
}

FAKE CUresult cuCtxPopCurrent(CUcontext *popped)
{
    *popped = stack[--depth];
    return CUDA_SUCCESS;
}

/* Local memory of a thread: what kernels need, and what contexts have. */
enum { KERNEL_STACK_BYTES = 2048 };
static _Atomic size_t stack_bytes = 1024;
static _Atomic int stack_is_new; /* since a limit was set, no launch has been waited for */

FAKE CUresult cuCtxGetLimit(size_t *value, CUlimit which)
{
    *value = stack_bytes;
    return which == CU_LIMIT_STACK_SIZE && depth > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

FAKE CUresult cuCtxSetLimit(CUlimit which, size_t value)
{
    if (which != CU_LIMIT_STACK_SIZE || depth == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    stack_bytes = value;
    stack_is_new = 2;
    return CUDA_SUCCESS;
}

FAKE CUresult cuCtxSynchronize(void)
{
    stack_is_new = stack_is_new == 1 ? 0 : stack_is_new;
    return depth > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

/* ---- memory ---------------------------------------------------------------------------------- */

typedef struct mapping {
    CUdeviceptr base;
    size_t bytes;
} mapping;

FAKE CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *properties,
                                            CUmemAllocationGranularity_flags option)
{
    (void)properties;
    (void)option;
    *bytes = GRANULARITY;
    return CUDA_SUCCESS;
}

FAKE CUresult cuMemAddressReserve(CUdeviceptr *base, size_t bytes, size_t alignment,
                                  CUdeviceptr wish, unsigned long long flags)
{
    (void)alignment;
    (void)wish;
    (void)flags;
    if (!may_make(OPEN_RESERVED)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    void *at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        ended(OPEN_RESERVED);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *base = (CUdeviceptr)at;
    return CUDA_SUCCESS;
}

FAKE CUresult cuMemAddressFree(CUdeviceptr base, size_t bytes)
{
    ended(OPEN_RESERVED);
    return munmap((void *)base, bytes) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* A handle is a file descriptor plus 1. */
FAKE CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                          const CUmemAllocationProp *properties, unsigned long long flags)
{
    (void)properties;
    (void)flags;
    if (bytes > (size_t)1 << 40 || !may_make(OPEN_HANDLE)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    int fd = memfd_create("fake-cuda", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) {
        ended(OPEN_HANDLE);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *handle = (CUmemGenericAllocationHandle)fd + 1;
    return CUDA_SUCCESS;
}

FAKE CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    ended(OPEN_HANDLE);
    return close((int)handle - 1) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

FAKE CUresult cuMemMap(CUdeviceptr base, size_t bytes, size_t offset,
                       CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    (void)flags;
    if (!may_make(OPEN_MAPPING)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    void *at = mmap((void *)base, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, (int)handle - 1,
                    (off_t)offset);
    return at != MAP_FAILED ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

FAKE CUresult cuMemSetAccess(CUdeviceptr base, size_t bytes, const CUmemAccessDesc *access,
                             size_t count)
{
    (void)access;
    return count > 0 && mprotect((void *)base, bytes, PROT_READ | PROT_WRITE) == 0
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

FAKE CUresult cuMemUnmap(CUdeviceptr base, size_t bytes)
{
    ended(OPEN_MAPPING);
    void *at = mmap((void *)base, bytes, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    return at != MAP_FAILED ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

FAKE CUresult cuMemExportToShareableHandle(void *result, CUmemGenericAllocationHandle handle,
                                           CUmemAllocationHandleType type, unsigned long long flags)
{
    (void)type;
    (void)flags;
    int fd = dup((int)handle - 1);
    memcpy(result, &fd, sizeof(fd));
    return fd >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

FAKE CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *os_handle,
                                             CUmemAllocationHandleType type)
{
    (void)type;
    if (!may_make(OPEN_HANDLE)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    int fd = dup((int)(long)os_handle);
    *handle = (CUmemGenericAllocationHandle)fd + 1;
    return fd >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

FAKE CUresult cuMemHostAlloc(void **host, size_t bytes, unsigned flags)
{
    (void)flags;
    *host = may_make(OPEN_PINNED) ? aligned_alloc(4096, (bytes + 4095) / 4096 * 4096) : NULL;
    return *host != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

FAKE CUresult cuMemFreeHost(void *host)
{
    ended(OPEN_PINNED);
    free(host);
    return CUDA_SUCCESS;
}

FAKE CUresult cuMemHostGetDevicePointer(CUdeviceptr *device, void *host, unsigned flags)
{
    (void)flags;
    *device = (CUdeviceptr)host;
    return CUDA_SUCCESS;
}

/* ---- streams, events, graphs ----------------------------------------------------------------- */

typedef struct operation {
    struct operation *next;
    CUdeviceptr to, from;
    size_t bytes;
    int value; /* of a fill, -1: a copy, -2: a kernel */
    fake_cuda_tally kernel;
} operation;

typedef struct graph {
    operation *first, **last;
} graph;

typedef struct stream {
    graph *capture;
    int priority;
} stream;

typedef struct event {
    graph *capture;
} event;

static _Thread_local fake_cuda_tally tally;

FAKE fake_cuda_tally fake_cuda_launches(void)
{
    return tally;
}

static void run_kernel(const fake_cuda_tally *kernel)
{
    tally.plain += kernel->plain;
    tally.dependent += kernel->dependent;
    tally.cooperative += kernel->cooperative;
    tally.late += kernel->late;
    tally.waits += kernel->waits;
}

static void run(const operation *one)
{
    if (one->value == -2) {
        run_kernel(&one->kernel);
    } else if (one->value == -1) {
        memcpy((void *)one->to, (const void *)one->from, one->bytes);
    } else {
        memset((void *)one->to, one->value, one->bytes);
    }
}

static CUresult enqueue(CUstream handle, operation one)
{
    stream *on = (stream *)(void *)handle;
    if (on->capture == NULL) {
        run(&one);
        return CUDA_SUCCESS;
    }
    operation *kept = malloc(sizeof(*kept));
    *kept = one;
    kept->next = NULL;
    *on->capture->last = kept;
    on->capture->last = &kept->next;
    return CUDA_SUCCESS;
}

FAKE CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream handle)
{
    return enqueue(handle, (operation){.to = to, .from = from, .bytes = bytes, .value = -1});
}

FAKE CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream handle)
{
    return enqueue(handle, (operation){.to = to, .bytes = bytes, .value = value});
}

FAKE CUresult cuStreamCreateWithPriority(CUstream *result, unsigned flags, int priority)
{
    (void)flags;
    if (!may_make(OPEN_STREAM)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    stream *opened = calloc(1, sizeof(*opened));
    opened->priority = priority < HIGHEST_PRIORITY ? HIGHEST_PRIORITY : priority;
    *result = (CUstream)(void *)opened;
    return CUDA_SUCCESS;
}

FAKE CUresult cuStreamDestroy(CUstream handle)
{
    ended(OPEN_STREAM);
    free(handle);
    return CUDA_SUCCESS;
}

FAKE CUresult cuStreamQuery(CUstream handle)
{
    (void)handle;
    return CUDA_SUCCESS;
}

FAKE CUresult cuStreamWaitEvent(CUstream handle, CUevent marker, unsigned flags)
{
    (void)flags;
    if (((event *)(void *)marker)->capture != NULL) {
        ((stream *)(void *)handle)->capture = ((event *)(void *)marker)->capture;
    }
    return CUDA_SUCCESS;
}

FAKE CUresult cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode)
{
    (void)mode;
    if (!may_make(OPEN_GRAPH)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    graph *capture = calloc(1, sizeof(*capture));
    capture->last = &capture->first;
    ((stream *)(void *)handle)->capture = capture;
    return CUDA_SUCCESS;
}

FAKE CUresult cuStreamEndCapture(CUstream handle, CUgraph *result)
{
    stream *on = (stream *)(void *)handle;
    *result = (CUgraph)(void *)on->capture;
    on->capture = NULL;
    return CUDA_SUCCESS;
}

FAKE CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status)
{
    *status = ((stream *)(void *)handle)->capture != NULL ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                                          : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

/* The executable graph takes the operations over; what is left is freed as a graph. */
FAKE CUresult cuGraphInstantiate(CUgraphExec *result, CUgraph from, unsigned long long flags)
{
    (void)flags;
    graph *made_from = (graph *)(void *)from;
    if (!may_make(OPEN_GRAPH)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    graph *exec = calloc(1, sizeof(*exec));
    exec->first = made_from->first;
    made_from->first = NULL;
    *result = (CUgraphExec)(void *)exec;
    return CUDA_SUCCESS;
}

static void graph_free(graph *one)
{
    ended(OPEN_GRAPH);
    while (one->first != NULL) {
        operation *next = one->first->next;
        free(one->first);
        one->first = next;
    }
    free(one);
}

FAKE CUresult cuGraphDestroy(CUgraph handle)
{
    graph_free((graph *)(void *)handle);
    return CUDA_SUCCESS;
}

FAKE CUresult cuGraphExecDestroy(CUgraphExec handle)
{
    graph_free((graph *)(void *)handle);
    return CUDA_SUCCESS;
}

FAKE CUresult cuGraphLaunch(CUgraphExec handle, CUstream on)
{
    (void)on;
    for (const operation *one = ((graph *)(void *)handle)->first; one != NULL; one = one->next) {
        run(one);
    }
    return CUDA_SUCCESS;
}

FAKE CUresult cuEventCreate(CUevent *result, unsigned flags)
{
    (void)flags;
    if (!may_make(OPEN_EVENT)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *result = (CUevent)calloc(1, sizeof(event));
    return CUDA_SUCCESS;
}

FAKE CUresult cuEventDestroy(CUevent handle)
{
    ended(OPEN_EVENT);
    free(handle);
    return CUDA_SUCCESS;
}

FAKE CUresult cuEventRecord(CUevent handle, CUstream on)
{
    ((event *)(void *)handle)->capture = ((stream *)(void *)on)->capture;
    return CUDA_SUCCESS;
}

FAKE CUresult cuEventQuery(CUevent handle)
{
    (void)handle;
    return CUDA_SUCCESS;
}

FAKE CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
    (void)start;
    (void)end;
    *ms = 0.5f;
    return CUDA_SUCCESS;
}

/* ---- code ------------------------------------------------------------------------------------ */

static int code;

FAKE CUresult cuLibraryLoadData(CUlibrary *library, const void *data, CUjit_option *options,
                                void **values, unsigned count, CUlibraryOption *more,
                                void **more_values, unsigned more_count)
{
    (void)data;
    (void)options;
    (void)values;
    (void)count;
    (void)more;
    (void)more_values;
    (void)more_count;
    *library = (CUlibrary)(void *)&code;
    return CUDA_SUCCESS;
}

FAKE CUresult cuLibraryUnload(CUlibrary library)
{
    (void)library;
    return CUDA_SUCCESS;
}

FAKE CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    (void)library;
    *kernel = (CUkernel)(void *)&code;
    return strncmp(name, "ist_kernel_", 11) == 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

FAKE CUresult cuLibraryGetKernelCount(unsigned *count, CUlibrary library)
{
    (void)library;
    *count = 1;
    return CUDA_SUCCESS;
}

FAKE CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned count, CUlibrary library)
{
    (void)library;
    for (unsigned i = 0; i < count; ++i) {
        kernels[i] = (CUkernel)(void *)&code;
    }
    return CUDA_SUCCESS;
}

FAKE CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    *function = (CUfunction)(void *)kernel;
    return CUDA_SUCCESS;
}

FAKE CUresult cuKernelGetAttribute(int *value, CUfunction_attribute which, CUkernel kernel,
                                   CUdevice device)
{
    (void)kernel;
    (void)device;
    *value = which == CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES ? KERNEL_STACK_BYTES : 1024;
    return CUDA_SUCCESS;
}

FAKE CUresult cuKernelSetAttribute(CUfunction_attribute which, int value, CUkernel kernel,
                                   CUdevice device)
{
    (void)which;
    (void)value;
    (void)kernel;
    (void)device;
    return CUDA_SUCCESS;
}

FAKE CUresult cuFuncLoad(CUfunction function)
{
    (void)function;
    return CUDA_SUCCESS;
}

FAKE CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *count, CUfunction function,
                                                          int threads, size_t dynamic_bytes)
{
    (void)function;
    (void)threads;
    (void)dynamic_bytes;
    *count = 1;
    return CUDA_SUCCESS;
}

FAKE CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params,
                               void **extra)
{
    operation one = {.value = -2};
    (void)function;
    (void)params;
    (void)extra;
    for (unsigned i = 0; i < config->numAttrs; ++i) {
        CUlaunchAttributeID id = config->attrs[i].id;
        one.kernel.cooperative |= id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
        one.kernel.dependent |= id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    }
    one.kernel.plain = !one.kernel.cooperative && !one.kernel.dependent;
    one.kernel.late = ((stream *)(void *)config->hStream)->priority > HIGHEST_PRIORITY;
    if (one.kernel.dependent && getenv("FAKE_CUDA_NO_DEPENDENT") != NULL) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    one.kernel.waits = stack_bytes < KERNEL_STACK_BYTES || stack_is_new == 1;
    stack_is_new = stack_is_new == 2 ? 1 : stack_is_new;
    return config->gridDimX > 0 ? enqueue(config->hStream, one) : CUDA_ERROR_INVALID_VALUE;
}
