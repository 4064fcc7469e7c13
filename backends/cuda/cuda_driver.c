/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens libcuda.so.1 and checks what a machine without GPU, or with an old driver, lacks. No
 * context is made here: a process may still fork.
 */
#include "cuda_driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define CUDA_TEXT_OF(name) #name
#define CUDA_TEXT(name) CUDA_TEXT_OF(name)

cuda_driver cu;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char failure[256]; /* empty: usable */
static int device_count;

static const char *resolve(void *library)
{
#define X(function)                                                                                \
    {                                                                                              \
        void *found = dlsym(library, CUDA_TEXT(function));                                         \
        if (found == NULL) {                                                                       \
            return CUDA_TEXT(function);                                                            \
        }                                                                                          \
        memcpy(&cu.function, &found, sizeof(found));                                               \
    }
    CUDA_DRIVER_LIST(X)
#undef X
    return NULL;
}

static int say_result(const char *call, CUresult result)
{
    const char *text = NULL;
    if (cu.cuGetErrorString(result, &text) != CUDA_SUCCESS || text == NULL) {
        text = "unknown error";
    }
    return snprintf(failure, sizeof(failure), "%s failed: %s (%d)", call, text, (int)result);
}

/* An old driver lacks symbols too; its version says more than the first missing name. */
static int version_of(void *library)
{
    int version = 0;
    void *found = dlsym(library, "cuDriverGetVersion");
    CUresult (*get)(int *) = NULL;
    memcpy(&get, &found, sizeof(found));
    return get != NULL && get(&version) == CUDA_SUCCESS ? version : 0;
}

static void check_device(void)
{
    CUdevice device = 0;
    int major = 0;
    int minor = 0;
    CUresult result = cu.cuDeviceGet(&device, 0);
    if (result == CUDA_SUCCESS) {
        result =
            cu.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    }
    if (result == CUDA_SUCCESS) {
        result =
            cu.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
    }
    if (result != CUDA_SUCCESS) {
        say_result("the query of the first GPU", result);
    } else if (major < 9) {
        snprintf(failure, sizeof(failure),
                 "the GPU has compute capability %d.%d, 9.0 or newer is needed", major, minor);
    }
}

static void check_driver(void)
{
    CUresult result = cu.cuInit(0);
    if (result != CUDA_SUCCESS) {
        say_result("cuInit", result);
        return;
    }
    result = cu.cuDeviceGetCount(&device_count);
    if (result != CUDA_SUCCESS) {
        say_result("cuDeviceGetCount", result);
    } else if (device_count == 0) {
        snprintf(failure, sizeof(failure), "the driver sees no GPU (CUDA_VISIBLE_DEVICES?)");
    } else {
        check_device();
    }
}

static void open_once(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *why = dlerror();
        snprintf(failure, sizeof(failure), "no CUDA driver: %s",
                 why != NULL ? why : "libcuda.so.1 cannot be opened");
        return;
    }
    int version = version_of(library);
    const char *missing = resolve(library);
    if (version != 0 && version < CUDA_DRIVER_VERSION_MIN) {
        snprintf(failure, sizeof(failure), "the driver is for CUDA %d.%d, %d.%d or newer is needed",
                 version / 1000, version % 1000 / 10, CUDA_DRIVER_VERSION_MIN / 1000,
                 CUDA_DRIVER_VERSION_MIN % 1000 / 10);
    } else if (missing != NULL) {
        snprintf(failure, sizeof(failure), "the driver (CUDA %d.%d) lacks the function %s",
                 version / 1000, version % 1000 / 10, missing);
    } else {
        check_driver();
    }
}

ist_status cuda_driver_open(const char **reason)
{
    (void)pthread_once(&once, open_once);
    *reason = failure[0] != '\0' ? failure : NULL;
    return failure[0] != '\0' ? IST_ERR_BACKEND : IST_OK;
}

int cuda_driver_device_count(void)
{
    return device_count;
}
