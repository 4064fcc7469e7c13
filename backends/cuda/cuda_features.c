/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The record of what can be done on this machine: the driver, the GPUs and how they reach each other,
 * and the release of NCCL that is found, with a reason for every "no". Asks attributes and looks
 * symbols up; makes no context.
 */
#include "cuda_coll.h"
#include "cuda_features.h"
#include "cuda_internal.h"
#include "cuda_nccl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define FEATURE_COUNT_MAX 32u
#define TEXT_BYTES 256u

typedef struct row {
    const char *name;
    bool there;
    char text[TEXT_BYTES]; /* the value, or the reason */
} row;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static row rows[FEATURE_COUNT_MAX];
static uint32_t row_count;
static const row *dependent; /* every GPU that is usable has it, but a launch may be refused */

static row *add(const char *name, bool there)
{
    row *added = &rows[row_count < FEATURE_COUNT_MAX ? row_count++ : FEATURE_COUNT_MAX - 1u];
    added->name = name;
    added->there = there;
    snprintf(added->text, sizeof(added->text), "%s", there ? "yes" : "");
    return added;
}

/* `reason` NULL: it is there. */
static void add_reason(const char *name, const char *reason)
{
    row *added = add(name, reason == NULL);
    if (reason != NULL) {
        snprintf(added->text, sizeof(added->text), "%s", reason);
    }
}

/* ---- driver and GPUs -------------------------------------------------------------------------- */

static void add_driver(void)
{
    int version = 0;
    row *added = add("driver", true);
    if (cu.cuDriverGetVersion(&version) == CUDA_SUCCESS) {
        snprintf(added->text, sizeof(added->text), "CUDA %d.%d", version / 1000,
                 version % 1000 / 10);
    }
}

static void add_gpus(int count)
{
    char name[96] = "?";
    CUdevice device = 0;
    row *added = add("gpus", true);
    if (cu.cuDeviceGet(&device, 0) == CUDA_SUCCESS) {
        (void)cu.cuDeviceGetName(name, (int)sizeof(name), device);
    }
    snprintf(added->text, sizeof(added->text), "%d (%s)", count, name);
}

/* The first GPU without the attribute; -1: all have it. */
static int first_without(int count, CUdevice_attribute attribute)
{
    for (int ordinal = 0; ordinal < count; ++ordinal) {
        CUdevice device = 0;
        int value = 0;
        bool has = cu.cuDeviceGet(&device, ordinal) == CUDA_SUCCESS &&
                   cu.cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS && value != 0;
        if (!has) {
            return ordinal;
        }
    }
    return -1;
}

static void add_attribute(const char *name, int count, CUdevice_attribute attribute,
                          const char *what)
{
    int without = first_without(count, attribute);
    row *added = add(name, without < 0);
    if (without >= 0) {
        snprintf(added->text, sizeof(added->text), "GPU %d or its driver %s", without, what);
    }
}

static bool reaches(int from, int to)
{
    CUdevice a = 0;
    CUdevice b = 0;
    int can = 0;
    return from == to ||
           (cu.cuDeviceGet(&a, from) == CUDA_SUCCESS && cu.cuDeviceGet(&b, to) == CUDA_SUCCESS &&
            cu.cuDeviceCanAccessPeer(&can, a, b) == CUDA_SUCCESS && can != 0);
}

/* GPUs 0 … size-1 all reach each other, and `size` divides the count, as in cuda_team.c. */
static int team_size(int count, int *from, int *to)
{
    for (int size = count; size > 1; --size) {
        bool all = count % size == 0;
        for (int i = 0; all && i < count * size; ++i) {
            int first = i / size;
            int second = first / size * size + i % size;
            all = reaches(first, second);
            if (!all && size == count) {
                *from = first;
                *to = second;
            }
        }
        if (all) {
            return size;
        }
    }
    return 1;
}

static void add_peers(int count)
{
    int from = -1;
    int to = -1;
    int size = team_size(count, &from, &to);
    row *peers = add("peer access", count > 1 && from < 0);
    if (count < 2) {
        snprintf(peers->text, sizeof(peers->text), "this process sees one GPU");
    } else if (from >= 0) {
        snprintf(peers->text, sizeof(peers->text), "GPU %d cannot map the memory of GPU %d", from,
                 to);
    }
    row *team = add("load/store team", true);
    snprintf(team->text, sizeof(team->text), "%d of %d GPUs", size, count);
    add_reason("rail team", "the ranks of a world share one host");
}

/* ---- NCCL ------------------------------------------------------------------------------------- */

/* X(feature, symbol, since): what a release has when it has the function. */
#define NCCL_FEATURE_LIST(X)                                                                       \
    X("nccl shrink", "ncclCommShrink", "2.27.3")                                                   \
    X("nccl revoke", "ncclCommRevoke", "2.28.7")                                                   \
    X("nccl grow", "ncclCommGrow", "2.29.2")                                                       \
    X("nccl host rma", "ncclPutSignal", "2.29.2")                                                  \
    X("nccl properties", "ncclCommQueryProperties", "2.29.2")                                      \
    X("nccl suspend", "ncclCommSuspend", "2.29.7")

/* X(feature, first release, that release as text): parts of its device interface. */
#define NCCL_DEVICE_LIST(X)                                                                        \
    X("gin rail connections", 22907, "2.29.7")                                                     \
    X("gin get", 23003, "2.30.3")                                                                  \
    X("gin strong signals", 23003, "2.30.3")                                                       \
    X("gin address signals", 23003, "2.30.3")

static void say_since(row *to, int version, const char *since)
{
    snprintf(to->text, sizeof(to->text), "NCCL %d.%d.%d has none, it came with %s", version / 10000,
             version / 100 % 100, version % 100, since);
}

static void add_symbol(void *library, int version, const char *name, const char *symbol,
                       const char *since)
{
    bool there = library != NULL && dlsym(library, symbol) != NULL;
    row *added = add(name, there);
    if (!there && library == NULL) {
        snprintf(added->text, sizeof(added->text), "there is no NCCL");
    } else if (!there) {
        say_since(added, version, since);
    }
}

static void add_device(int version, const char *name, int first, const char *since)
{
    const char *reason = cuda_nccl_reason();
    row *added = add(name, reason == NULL && version >= first);
    if (reason != NULL) {
        snprintf(added->text, sizeof(added->text), "%s",
                 version == 0 ? "there is no NCCL" : "this release of NCCL cannot be used");
    } else if (version < first) {
        say_since(added, version, since);
    }
}

static void add_nccl(void)
{
    const char *reason = cuda_nccl_reason();
    int version = cuda_nccl_version();
    add_reason("nccl", reason);
    if (reason == NULL) {
        row *added = &rows[row_count - 1u];
        snprintf(added->text, sizeof(added->text), "%d.%d.%d", version / 10000, version / 100 % 100,
                 version % 100);
    }
    add_reason("gin device code", reason == NULL ? NULL : "there is no NCCL that it could be for");
    if (reason == NULL) {
        snprintf(rows[row_count - 1u].text, TEXT_BYTES, "%s", cuda_nccl_device_abi());
    }
    add_reason("native collectives", cuda_coll_reason());
    void *library = version != 0 ? dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL) : NULL;
#define X(name, symbol, since) add_symbol(library, version, name, symbol, since);
    NCCL_FEATURE_LIST(X)
#undef X
#define X(name, first, since) add_device(version, name, first, since);
    NCCL_DEVICE_LIST(X)
#undef X
    if (library != NULL) {
        (void)dlclose(library);
    }
}

/* ---- the record ------------------------------------------------------------------------------- */

static void fill_once(void)
{
    const char *reason = NULL;
    if (cuda_driver_open(&reason) != IST_OK) {
        add_reason("driver", reason);
        add_nccl();
        return;
    }
    int count = cuda_driver_device_count();
    add_driver();
    add_gpus(count);
    add_attribute("windows", count, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                  "has no virtual memory management");
    add_attribute("windows of processes", count,
                  CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                  "cannot give memory to other processes");
    add_attribute("memory for NICs", count,
                  CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
                  "cannot give such memory to network adapters");
    add_peers(count);
    add_reason("multimem", "this version has no code that uses it");
    dependent = add("dependent launch", true);
    add_nccl();
}

bool cuda_feature(uint32_t index, ist_feature *feature)
{
    (void)pthread_once(&once, fill_once);
    if (index >= row_count) {
        return false;
    }
    const row *from = &rows[index];
    const char *refused = from == dependent ? cuda_dependent_reason() : NULL;
    feature->name = from->name;
    feature->value = from->there && refused == NULL ? from->text : NULL;
    feature->reason = refused != NULL ? refused : from->there ? NULL : from->text;
    return true;
}
