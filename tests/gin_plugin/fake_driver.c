/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CUDA driver without a GPU, as far as the GIN transport uses one: device memory is host memory, and
 * copies are late. One is carried out each time an event is asked about, so that whoever does not
 * wait for a copy is found out.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { NOT_READY = 600, COPIES_MAX = 4096 };

typedef struct copy {
    void *to;
    const void *from;
    size_t bytes;
} copy;

typedef struct stream {
    copy copies[COPIES_MAX];
    uint64_t begun, carried;
} stream;

typedef struct event {
    stream *on;
    uint64_t behind;
} event;

static int context_object;
static _Thread_local int depth;

#define DRIVER __attribute__((visibility("default"))) int

DRIVER cuInit(unsigned flags);
DRIVER cuInit(unsigned flags)
{
    return (int)flags;
}

DRIVER cuDeviceGet(int *device, int ordinal);
DRIVER cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return 0;
}

DRIVER cuCtxGetCurrent(void **context);
DRIVER cuCtxGetCurrent(void **context)
{
    *context = depth > 0 ? &context_object : NULL;
    return 0;
}

DRIVER cuCtxPushCurrent_v2(void *context);
DRIVER cuCtxPushCurrent_v2(void *context)
{
    ++depth;
    return context == &context_object ? 0 : 1;
}

DRIVER cuCtxPopCurrent_v2(void **context);
DRIVER cuCtxPopCurrent_v2(void **context)
{
    *context = &context_object;
    return depth-- > 0 ? 0 : 1;
}

DRIVER cuDevicePrimaryCtxRetain(void **context, int device);
DRIVER cuDevicePrimaryCtxRetain(void **context, int device)
{
    *context = &context_object;
    return device;
}

DRIVER cuDevicePrimaryCtxRelease_v2(int device);
DRIVER cuDevicePrimaryCtxRelease_v2(int device)
{
    return device;
}

DRIVER cuPointerGetAttribute(void *value, int attribute, uint64_t address);
DRIVER cuPointerGetAttribute(void *value, int attribute, uint64_t address)
{
    memset(value, 0, sizeof(int));
    return attribute == 9 && address != 0 ? 0 : 1;
}

DRIVER cuThreadExchangeStreamCaptureMode(int *mode);
DRIVER cuThreadExchangeStreamCaptureMode(int *mode)
{
    static _Thread_local int current;
    int old = current;
    current = *mode;
    *mode = old;
    return 0;
}

DRIVER cuMemHostRegister_v2(void *memory, size_t bytes, unsigned flags);
DRIVER cuMemHostRegister_v2(void *memory, size_t bytes, unsigned flags)
{
    return memory != NULL && bytes > 0 && flags == 1 && depth > 0 ? 0 : 1;
}

DRIVER cuMemHostUnregister(void *memory);
DRIVER cuMemHostUnregister(void *memory)
{
    return memory != NULL ? 0 : 1;
}

DRIVER cuCtxGetStreamPriorityRange(int *least, int *greatest);
DRIVER cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return 0;
}

/* Copies share no hardware queue with programs (0) or with kernels that wait (-5). */
DRIVER cuStreamCreateWithPriority(void **made, unsigned flags, int priority);
DRIVER cuStreamCreateWithPriority(void **made, unsigned flags, int priority)
{
    *made = calloc(1, sizeof(stream));
    return *made != NULL && flags == 1 && priority == -4 && depth > 0 ? 0 : 2;
}

static void carry(stream *on)
{
    const copy *next = &on->copies[on->carried % COPIES_MAX];
    memcpy(next->to, next->from, next->bytes);
    ++on->carried;
}

DRIVER cuStreamDestroy_v2(void *handle);
DRIVER cuStreamDestroy_v2(void *handle)
{
    stream *on = handle;
    while (on->carried < on->begun) {
        carry(on);
    }
    free(on);
    return 0;
}

DRIVER cuEventCreate(void **made, unsigned flags);
DRIVER cuEventCreate(void **made, unsigned flags)
{
    *made = calloc(1, sizeof(event));
    return *made != NULL && flags == 2 ? 0 : 2;
}

DRIVER cuEventDestroy_v2(void *handle);
DRIVER cuEventDestroy_v2(void *handle)
{
    free(handle);
    return 0;
}

DRIVER cuEventRecord(void *handle, void *on);
DRIVER cuEventRecord(void *handle, void *on)
{
    *(event *)handle = (event){.on = on, .behind = ((stream *)on)->begun};
    return depth > 0 ? 0 : 1;
}

DRIVER cuEventQuery(void *handle);
DRIVER cuEventQuery(void *handle)
{
    const event *asked = handle;
    if (asked->on == NULL || asked->on->carried >= asked->behind) {
        return 0;
    }
    carry(asked->on);
    return NOT_READY;
}

static int begin(stream *on, void *to, const void *from, size_t bytes)
{
    if (depth == 0 || on->begun - on->carried == COPIES_MAX) {
        return 1;
    }
    on->copies[on->begun++ % COPIES_MAX] = (copy){to, from, bytes};
    return 0;
}

DRIVER cuMemcpyDtoHAsync_v2(void *host, uint64_t device, size_t bytes, void *on);
DRIVER cuMemcpyDtoHAsync_v2(void *host, uint64_t device, size_t bytes, void *on)
{
    return begin(on, host, (const void *)(uintptr_t)device, bytes);
}

DRIVER cuMemcpyHtoDAsync_v2(uint64_t device, const void *host, size_t bytes, void *on);
DRIVER cuMemcpyHtoDAsync_v2(uint64_t device, const void *host, size_t bytes, void *on)
{
    return begin(on, (void *)(uintptr_t)device, host, bytes);
}
