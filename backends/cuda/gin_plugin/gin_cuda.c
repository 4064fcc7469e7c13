/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies by the GPU's copy engines on streams of their own that do not wait for the legacy stream:
 * no kernel takes part, because a kernel that waits for this transport may occupy the whole GPU. For
 * the same reason nothing is allocated once a device is open.
 */
#include "gin_cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

/* Values of the driver's interface. */
enum {
    CUDA_OK = 0,
    CUDA_NOT_READY = 600,
    STREAM_NON_BLOCKING = 1,
    EVENT_DISABLE_TIMING = 2,
    HOST_REGISTER_PORTABLE = 1,
    POINTER_DEVICE_ORDINAL = 9,
    CAPTURE_RELAXED = 2
};

/* name in the table, symbol of the library, parameters */
#define CUDA_LIST(X)                                                                               \
    X(init, "cuInit", (unsigned))                                                                  \
    X(device_get, "cuDeviceGet", (int *, int))                                                     \
    X(context_current, "cuCtxGetCurrent", (void **))                                               \
    X(context_push, "cuCtxPushCurrent_v2", (void *))                                               \
    X(context_pop, "cuCtxPopCurrent_v2", (void **))                                                \
    X(primary_retain, "cuDevicePrimaryCtxRetain", (void **, int))                                  \
    X(primary_release, "cuDevicePrimaryCtxRelease_v2", (int))                                      \
    X(pointer_attribute, "cuPointerGetAttribute", (void *, int, uint64_t))                         \
    X(capture_mode, "cuThreadExchangeStreamCaptureMode", (int *))                                  \
    X(host_register, "cuMemHostRegister_v2", (void *, size_t, unsigned))                           \
    X(host_unregister, "cuMemHostUnregister", (void *))                                            \
    X(priority_range, "cuCtxGetStreamPriorityRange", (int *, int *))                               \
    X(stream_create, "cuStreamCreateWithPriority", (void **, unsigned, int))                       \
    X(stream_destroy, "cuStreamDestroy_v2", (void *))                                              \
    X(event_create, "cuEventCreate", (void **, unsigned))                                          \
    X(event_destroy, "cuEventDestroy_v2", (void *))                                                \
    X(event_record, "cuEventRecord", (void *, void *))                                             \
    X(event_query, "cuEventQuery", (void *))                                                       \
    X(copy_from, "cuMemcpyDtoHAsync_v2", (void *, uint64_t, size_t, void *))                       \
    X(copy_to, "cuMemcpyHtoDAsync_v2", (uint64_t, const void *, size_t, void *))

static struct {
#define X(name, symbol, parameters) int(*name) parameters;
    CUDA_LIST(X)
#undef X
} cuda;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const char *missing = "the CUDA driver (libcuda.so.1) cannot be opened";

/* The mode that a thread captures in, while it is entered. */
static _Thread_local int capture_mode;

static void open_once(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        return;
    }
    void *found = NULL;
#define X(name, symbol, parameters)                                                                \
    found = dlsym(library, symbol);                                                                \
    if (found == NULL) {                                                                           \
        missing = "the CUDA driver lacks " symbol;                                                 \
        return;                                                                                    \
    }                                                                                              \
    memcpy(&cuda.name, &found, sizeof(found));
    CUDA_LIST(X)
#undef X
    missing = cuda.init(0) == CUDA_OK ? NULL : "cuInit failed";
}

static uint64_t address(const void *memory)
{
    return (uint64_t)(uintptr_t)memory;
}

/* ---- devices --------------------------------------------------------------------------------- */

/* Memory mapped page by page is reachable from its own device only, so that one comes first. */
static bool primary_open(const void *memory, gin_device *device)
{
    int ordinal = 0;
    int handle = 0;
    void *context = NULL;
    if (cuda.pointer_attribute(&ordinal, POINTER_DEVICE_ORDINAL, address(memory)) != CUDA_OK ||
        cuda.device_get(&handle, ordinal) != CUDA_OK ||
        cuda.primary_retain(&context, handle) != CUDA_OK) {
        return false;
    }
    *device = (gin_device){.context = context, .ordinal = handle, .retained = true};
    return true;
}

const char *gin_device_open(const void *memory, gin_device *device)
{
    void *context = NULL;
    (void)pthread_once(&once, open_once);
    if (missing != NULL) {
        return missing;
    }
    if (primary_open(memory, device)) {
        return NULL;
    }
    if (cuda.context_current(&context) != CUDA_OK || context == NULL) {
        return "the CUDA driver does not know the memory, and no context is current";
    }
    *device = (gin_device){.context = context};
    return NULL;
}

void gin_device_close(gin_device *device)
{
    if (device->retained) {
        (void)cuda.primary_release(device->ordinal);
    }
    *device = (gin_device){0};
}

bool gin_device_enter(const gin_device *device)
{
    if (device->context == NULL || cuda.context_push(device->context) != CUDA_OK) {
        return false;
    }
    capture_mode = CAPTURE_RELAXED;
    (void)cuda.capture_mode(&capture_mode);
    return true;
}

void gin_device_exit(void)
{
    void *popped = NULL;
    (void)cuda.capture_mode(&capture_mode);
    (void)cuda.context_pop(&popped);
}

bool gin_device_pin(void *memory, size_t bytes)
{
    return cuda.host_register(memory, bytes, HOST_REGISTER_PORTABLE) == CUDA_OK;
}

void gin_device_unpin(void *memory)
{
    (void)cuda.host_unregister(memory);
}

/* ---- lanes ----------------------------------------------------------------------------------- */

/*
 * Streams of one priority share a few hardware queues, and what waits at the head of a queue holds up
 * all behind it: a kernel that waits for this transport would hold up the copy it waits for. Programs
 * use the lowest priority, waiting kernels the highest; copies take the one next to that.
 */
static int lane_priority(void)
{
    int least = 0;
    int greatest = 0;
    bool known = cuda.priority_range(&least, &greatest) == CUDA_OK;
    return known && greatest < least ? greatest + 1 : least;
}

const char *gin_lane_open(gin_lane *lane)
{
    *lane = (gin_lane){0};
    if (cuda.stream_create(&lane->stream, STREAM_NON_BLOCKING, lane_priority()) != CUDA_OK) {
        return "cuStreamCreateWithPriority failed";
    }
    for (int i = 0; i < GIN_LANE_MARKS; ++i) {
        if (cuda.event_create(&lane->events[i], EVENT_DISABLE_TIMING) != CUDA_OK) {
            gin_lane_close(lane);
            return "cuEventCreate failed";
        }
    }
    return NULL;
}

void gin_lane_close(gin_lane *lane)
{
    for (int i = 0; i < GIN_LANE_MARKS; ++i) {
        if (lane->events[i] != NULL) {
            (void)cuda.event_destroy(lane->events[i]);
        }
    }
    if (lane->stream != NULL) {
        (void)cuda.stream_destroy(lane->stream);
    }
    *lane = (gin_lane){0};
}

static void note(gin_lane *lane, int result)
{
    if (result != CUDA_OK && lane->failure == 0) {
        lane->failure = result;
    }
}

void gin_lane_from_device(gin_lane *lane, void *host, const void *device, size_t bytes)
{
    note(lane, cuda.copy_from(host, address(device), bytes, lane->stream));
}

void gin_lane_to_device(gin_lane *lane, void *device, const void *host, size_t bytes)
{
    note(lane, cuda.copy_to(address(device), host, bytes, lane->stream));
}

bool gin_lane_may_mark(const gin_lane *lane)
{
    return lane->marked - lane->reached < GIN_LANE_MARKS;
}

uint64_t gin_lane_mark(gin_lane *lane)
{
    note(lane, cuda.event_record(lane->events[lane->marked % GIN_LANE_MARKS], lane->stream));
    return ++lane->marked;
}

/* After a failure nothing can be waited for: everything counts as reached. */
void gin_lane_poll(gin_lane *lane)
{
    while (lane->reached < lane->marked) {
        int result = lane->failure != 0
                         ? CUDA_OK
                         : cuda.event_query(lane->events[lane->reached % GIN_LANE_MARKS]);
        if (result == CUDA_NOT_READY) {
            return;
        }
        note(lane, result);
        ++lane->reached;
    }
}
