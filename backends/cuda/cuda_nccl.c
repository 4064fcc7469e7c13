/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL's host interface, as far as GIN needs it. Communicators are non-blocking, so that every wait
 * is ours and bounded; one that fails, or closes, is aborted, which needs no peer.
 */
#include "cuda_nccl.h"
#include "cuda_comm.h"

#include <stdio.h>
#include <string.h>

#ifndef CUDA_HAVE_NCCL
#define CUDA_HAVE_NCCL 0
#endif

#if !CUDA_HAVE_NCCL

static const char no_headers[] = "this build has no code for NCCL (its headers were not found)";

const char *cuda_nccl_reason(void)
{
    return no_headers;
}

int cuda_nccl_version(void)
{
    return 0;
}

const char *cuda_nccl_device_abi(void)
{
    return NULL;
}

ist_status cuda_nccl_open(cuda_comm *comm)
{
    memcpy(comm->gin_reason, no_headers, sizeof(no_headers));
    return IST_OK;
}

void cuda_nccl_close(cuda_comm *comm)
{
    (void)comm;
}

static ist_status no_nccl(void)
{
    return ist_raise(IST_ERR_UNSUPPORTED, NULL, "%s", no_headers);
}

ist_status cuda_nccl_window_open(cuda_comm *comm, void *local, uint64_t bytes, void **window)
{
    (void)comm;
    (void)local;
    (void)bytes;
    (void)window;
    return no_nccl();
}

void cuda_nccl_window_close(cuda_comm *comm, void *window)
{
    (void)comm;
    (void)window;
}

ist_status cuda_nccl_devcomm_open(cuda_comm *comm, uint32_t context_count, uint32_t signal_count,
                                  uint32_t counter_count, cuda_nccl_devcomm **devcomm)
{
    (void)comm;
    (void)context_count;
    (void)signal_count;
    (void)counter_count;
    (void)devcomm;
    return no_nccl();
}

void cuda_nccl_devcomm_close(cuda_comm *comm, cuda_nccl_devcomm *devcomm)
{
    (void)comm;
    (void)devcomm;
}

const void *cuda_nccl_devcomm_bytes(const cuda_nccl_devcomm *devcomm, size_t *bytes)
{
    (void)devcomm;
    *bytes = 0;
    return NULL;
}

#else

#include "cuda_nccl_abi.h"

#include <dlfcn.h>

#define VERSION_MIN NCCL_VERSION(2, 28, 7)
#define VERSION_MAX NCCL_VERSION(2, 30, 99)
/* Devices and signals of the trial that tells whether there is GIN. */
#define TRIAL_COUNT 1u

#define CUDA_NCCL_LIST(X)                                                                          \
    X(ncclGetVersion)                                                                              \
    X(ncclGetUniqueId)                                                                             \
    X(ncclCommInitRankConfig)                                                                      \
    X(ncclCommAbort)                                                                               \
    X(ncclCommGetAsyncError)                                                                       \
    X(ncclGetErrorString)                                                                          \
    X(ncclGetLastError)                                                                            \
    X(ncclCommWindowRegister)                                                                      \
    X(ncclCommWindowDeregister)

static struct {
#define X(function) __typeof__(&function) function;
    CUDA_NCCL_LIST(X)
#undef X
    cuda_nccl_create_fn create;
    ncclResult_t (*destroy)(ncclComm_t comm, const void *devcomm);
} nc;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char failure[256];
static char abi[32]; /* empty: no code for the loaded release */
static int version;

struct cuda_nccl {
    ncclComm_t comm;
};

struct cuda_nccl_devcomm {
    size_t bytes;
    unsigned char image[]; /* ncclDevComm */
};

/* ---- the library ----------------------------------------------------------------------------- */

static const char *resolve(void *library)
{
    void *found = NULL;
#define X(function)                                                                                \
    found = dlsym(library, #function);                                                             \
    if (found == NULL) {                                                                           \
        return #function;                                                                          \
    }                                                                                              \
    memcpy(&nc.function, &found, sizeof(found));
    CUDA_NCCL_LIST(X)
#undef X
    found = dlsym(library, "ncclDevCommCreate");
    memcpy(&nc.create, &found, sizeof(found));
    if (found == NULL) {
        return "ncclDevCommCreate";
    }
    found = dlsym(library, "ncclDevCommDestroy");
    memcpy(&nc.destroy, &found, sizeof(found));
    return found == NULL ? "ncclDevCommDestroy" : NULL;
}

static int version_of(void *library)
{
    int code = 0;
    void *found = dlsym(library, "ncclGetVersion");
    ncclResult_t (*get)(int *) = NULL;
    memcpy(&get, &found, sizeof(found));
    return get != NULL && get(&code) == ncclSuccess ? code : 0;
}

static void check_release(void *library)
{
    int major = version / 10000;
    int minor = version / 100 % 100;
    int patch = version % 100;
    if (version < VERSION_MIN || version > VERSION_MAX) {
        snprintf(failure, sizeof(failure),
                 "NCCL %d.%d.%d was found, 2.28.7 to 2.30 is what this build knows", major, minor,
                 patch);
        return;
    }
    const char *missing = resolve(library);
    if (missing != NULL) {
        snprintf(failure, sizeof(failure), "NCCL %d.%d.%d lacks the function %s", major, minor,
                 patch, missing);
        return;
    }
    snprintf(abi, sizeof(abi), "nccl-%d.%d", major, minor);
    if (strcmp(abi, cuda_nccl_abi_name()) != 0) {
        snprintf(failure, sizeof(failure),
                 "NCCL %d.%d.%d was found, the device code of this build is for %s", major, minor,
                 patch, cuda_nccl_abi_name());
        abi[0] = '\0';
    }
}

static void open_once(void)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *why = dlerror();
        snprintf(failure, sizeof(failure), "no NCCL: %s",
                 why != NULL ? why : "libnccl.so.2 cannot be opened");
        return;
    }
    version = version_of(library);
    check_release(library);
}

const char *cuda_nccl_reason(void)
{
    (void)pthread_once(&once, open_once);
    return failure[0] != '\0' ? failure : NULL;
}

int cuda_nccl_version(void)
{
    (void)pthread_once(&once, open_once);
    return version;
}

const char *cuda_nccl_device_abi(void)
{
    (void)pthread_once(&once, open_once);
    return abi[0] != '\0' ? abi : NULL;
}

/* ---- bounded calls --------------------------------------------------------------------------- */

#define POLL_NS UINT64_C(50000)

/* Waits until a non-blocking call has settled. @return its result, ncclInProgress after the time */
static ncclResult_t settle(ncclComm_t comm, ncclResult_t result, uint64_t deadline_ns)
{
    while (result == ncclInProgress && cuda_now_ns() < deadline_ns) {
        cuda_pause_ns(POLL_NS);
        if (nc.ncclCommGetAsyncError(comm, &result) != ncclSuccess) {
            return ncclInternalError;
        }
    }
    return result;
}

static uint64_t deadline_of(const cuda_comm *comm)
{
    return cuda_after_ns(cuda_now_ns(), comm->deadline_ns);
}

static ist_status fail_nccl(const cuda_comm *comm, ncclResult_t result, const char *call)
{
    ist_error details = {.rank = (int32_t)comm->rank,
                         .peer = IST_RANK_NONE,
                         .object = "nccl",
                         .observed = (uint64_t)result};
    if (result == ncclInProgress) {
        return ist_raise(IST_ERR_TIMEOUT, &details, "%s did not finish within %llu ns", call,
                         (unsigned long long)comm->deadline_ns);
    }
    const char *last = nc.ncclGetLastError(NULL);
    return ist_raise(IST_ERR_REMOTE, &details, "%s failed: %s: %s", call,
                     nc.ncclGetErrorString(result), last != NULL ? last : "");
}

static void describe(cuda_comm *comm, const char *call, ncclResult_t result)
{
    const char *last = nc.ncclGetLastError(NULL);
    snprintf(comm->gin_reason, sizeof(comm->gin_reason),
             "NCCL %d.%d.%d has no GIN here: %s: %s%s%s", version / 10000, version / 100 % 100,
             version % 100, call, nc.ncclGetErrorString(result),
             last != NULL && last[0] != '\0' ? ": " : "", last != NULL ? last : "");
}

/* ---- communicators --------------------------------------------------------------------------- */

/* What the first rank brings: the id, and that NCCL is there. */
typedef struct invitation {
    int64_t ready;
    ncclUniqueId id;
} invitation;

static ist_status meet(cuda_comm *comm, ncclUniqueId *id, bool *all_ready)
{
    cuda_call call;
    invitation own;
    memset(&own, 0, sizeof(own));
    own.ready = cuda_nccl_reason() == NULL &&
                (comm->rank != 0 || nc.ncclGetUniqueId(&own.id) == ncclSuccess);
    IST_RETURN_IF_ERROR(cuda_comm_gather(comm, &own, sizeof(own), -1, &call));
    const invitation *all = (const invitation *)(const void *)call.round->data;
    *all_ready = true;
    for (uint32_t peer = 0; peer < comm->rank_count; ++peer) {
        if (all[peer].ready == 0 && *all_ready) {
            *all_ready = false;
            snprintf(comm->gin_reason, sizeof(comm->gin_reason), "rank %u cannot use NCCL%s%.200s",
                     peer, peer == comm->rank ? ": " : "",
                     peer == comm->rank && cuda_nccl_reason() != NULL ? cuda_nccl_reason() : "");
        }
    }
    *id = all[0].id;
    cuda_comm_release(comm, &call);
    return IST_OK;
}

static bool init_comm(cuda_comm *comm, const ncclUniqueId *id)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t *nccl = &comm->nccl->comm;
    ncclResult_t result =
        nc.ncclCommInitRankConfig(nccl, (int)comm->rank_count, *id, (int)comm->rank, &config);
    result = settle(*nccl, result, deadline_of(comm));
    if (result != ncclSuccess) {
        describe(comm, "ncclCommInitRankConfig", result);
    }
    return result == ncclSuccess;
}

/* NCCL 2.28 tells whether it has GIN only when it is asked for. */
static bool try_gin(cuda_comm *comm)
{
    cuda_nccl_devcomm *trial = NULL;
    size_t bytes = cuda_nccl_abi_bytes();
    trial = ist_alloc(1, sizeof(*trial) + bytes);
    if (trial == NULL) {
        snprintf(comm->gin_reason, sizeof(comm->gin_reason), "no host memory to try GIN");
        return false;
    }
    ncclComm_t nccl = comm->nccl->comm;
    ncclResult_t result =
        cuda_nccl_abi_create(nc.create, nccl, TRIAL_COUNT, TRIAL_COUNT, TRIAL_COUNT, trial->image);
    result = settle(nccl, result, deadline_of(comm));
    if (result == ncclSuccess) {
        (void)nc.destroy(nccl, trial->image);
    } else {
        describe(comm, "ncclDevCommCreate", result);
    }
    ist_free(trial);
    return result == ncclSuccess;
}

static ist_status all_have_gin(cuda_comm *comm, bool own, bool *all)
{
    cuda_call call;
    int64_t word = own ? 1 : 0;
    IST_RETURN_IF_ERROR(cuda_comm_gather(comm, &word, sizeof(word), -1, &call));
    *all = true;
    for (uint32_t peer = 0; peer < comm->rank_count; ++peer) {
        bool has = ((const int64_t *)(const void *)call.round->data)[peer] != 0;
        if (!has && own && *all) {
            snprintf(comm->gin_reason, sizeof(comm->gin_reason), "rank %u has no GIN", peer);
        }
        *all = *all && has;
    }
    cuda_comm_release(comm, &call);
    return IST_OK;
}

ist_status cuda_nccl_open(cuda_comm *comm)
{
    ncclUniqueId id;
    bool ready = false;
    bool all = false;
    IST_RETURN_IF_ERROR(meet(comm, &id, &ready));
    if (!ready) {
        return IST_OK;
    }
    comm->nccl = ist_alloc(1, sizeof(*comm->nccl));
    if (comm->nccl == NULL) {
        snprintf(comm->gin_reason, sizeof(comm->gin_reason), "no host memory for NCCL");
    }
    bool own = comm->nccl != NULL && init_comm(comm, &id) && try_gin(comm);
    ist_status status = all_have_gin(comm, own, &all);
    if (status != IST_OK || !all) {
        cuda_nccl_close(comm);
    }
    return status;
}

void cuda_nccl_close(cuda_comm *comm)
{
    if (comm->nccl == NULL) {
        return;
    }
    if (comm->nccl->comm != NULL) {
        (void)nc.ncclCommAbort(comm->nccl->comm);
    }
    ist_free(comm->nccl);
    comm->nccl = NULL;
}

/* ---- windows and device communicators -------------------------------------------------------- */

ist_status cuda_nccl_window_open(cuda_comm *comm, void *local, uint64_t bytes, void **window)
{
    ncclWindow_t opened = NULL;
    ncclComm_t nccl = comm->nccl->comm;
    ncclResult_t result =
        nc.ncclCommWindowRegister(nccl, local, bytes, &opened, NCCL_WIN_COLL_SYMMETRIC);
    result = settle(nccl, result, deadline_of(comm));
    if (result != ncclSuccess) {
        return fail_nccl(comm, result, "ncclCommWindowRegister");
    }
    if (opened == NULL) {
        return ist_raise(IST_ERR_UNSUPPORTED, NULL,
                         "NCCL reports success without a window: the communicator has no "
                         "symmetric memory");
    }
    *window = opened;
    return IST_OK;
}

void cuda_nccl_window_close(cuda_comm *comm, void *window)
{
    if (comm->nccl != NULL) {
        (void)nc.ncclCommWindowDeregister(comm->nccl->comm, window);
    }
}

ist_status cuda_nccl_devcomm_open(cuda_comm *comm, uint32_t context_count, uint32_t signal_count,
                                  uint32_t counter_count, cuda_nccl_devcomm **result)
{
    size_t bytes = cuda_nccl_abi_bytes();
    cuda_nccl_devcomm *devcomm = ist_alloc(1, sizeof(*devcomm) + bytes);
    if (devcomm == NULL) {
        return cuda_fail_memory(comm->owner, "a device communicator");
    }
    devcomm->bytes = bytes;
    ncclComm_t nccl = comm->nccl->comm;
    ncclResult_t created = cuda_nccl_abi_create(nc.create, nccl, context_count, signal_count,
                                                counter_count, devcomm->image);
    created = settle(nccl, created, deadline_of(comm));
    if (created != ncclSuccess) {
        ist_free(devcomm);
        return fail_nccl(comm, created, "ncclDevCommCreate");
    }
    *result = devcomm;
    return IST_OK;
}

void cuda_nccl_devcomm_close(cuda_comm *comm, cuda_nccl_devcomm *devcomm)
{
    if (comm->nccl != NULL) {
        (void)nc.destroy(comm->nccl->comm, devcomm->image);
    }
    ist_free(devcomm);
}

const void *cuda_nccl_devcomm_bytes(const cuda_nccl_devcomm *devcomm, size_t *bytes)
{
    *bytes = devcomm->bytes;
    return devcomm->image;
}

#endif
