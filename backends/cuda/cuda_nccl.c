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

void *cuda_nccl_library(void)
{
    return NULL;
}

const char *cuda_nccl_host_reason(void)
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

ist_status cuda_nccl_devcomm_open(cuda_comm *comm, const cuda_nccl_counts *counts,
                                  uint64_t *peer_errors, cuda_nccl_devcomm **devcomm)
{
    (void)comm;
    (void)counts;
    (void)peer_errors;
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
#include <cuda_nccl_abis.h>
#include "cuda_nccl_config.h"

#include <dlfcn.h>
#include <stdlib.h>

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
static const cuda_nccl_abi *abi; /* NULL: no code for the loaded release */
static int version;
static void *library; /* NULL: there is none */
static bool fits;     /* its release is one that this build knows */

#define X(symbol) extern const cuda_nccl_abi symbol;
CUDA_NCCL_ABIS(X)
#undef X

static const cuda_nccl_abi *const abis[] = {
#define X(symbol) &symbol,
    CUDA_NCCL_ABIS(X)
#undef X
};

struct cuda_nccl_devcomm {
    struct cuda_nccl_devcomm *next;
    uint64_t *peer_errors; /* [rank_count] of device code */
    size_t bytes;
    unsigned char image[]; /* ncclDevComm */
};

struct cuda_nccl {
    ncclComm_t comm;
    uint32_t rank, rank_count;
    /* Calls of one communicator never overlap: asking for errors also ends calls under way. */
    pthread_mutex_t lock;
    cuda_nccl_devcomm *devcomms;
    /* Calls that did not settle in time write here until the communicator is aborted. */
    ncclWindow_t opened;
    cuda_nccl_devcomm *late;
    pthread_t watcher;
    bool watched;
    bool failed; /* at the last look */
    atomic_bool stop;
};

/* ---- the library ----------------------------------------------------------------------------- */

static const char *resolve(void)
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

static int version_of(void)
{
    int code = 0;
    void *found = dlsym(library, "ncclGetVersion");
    ncclResult_t (*get)(int *) = NULL;
    memcpy(&get, &found, sizeof(found));
    return get != NULL && get(&code) == ncclSuccess ? code : 0;
}

static void check_release(void)
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
    fits = true;
    const char *missing = resolve();
    if (missing != NULL) {
        snprintf(failure, sizeof(failure), "NCCL %d.%d.%d lacks the function %s", major, minor,
                 patch, missing);
        return;
    }
    char name[32];
    snprintf(name, sizeof(name), "nccl-%d.%d", major, minor);
    for (size_t i = 0; i < sizeof(abis) / sizeof(abis[0]); ++i) {
        abi = strcmp(name, abis[i]->name) == 0 ? abis[i] : abi;
    }
    if (abi == NULL) {
        snprintf(failure, sizeof(failure),
                 "NCCL %d.%d.%d was found, this build has device code for %s%s%s only", major,
                 minor, patch, abis[0]->name, sizeof(abis) > sizeof(abis[0]) ? " and " : "",
                 sizeof(abis) > sizeof(abis[0]) ? abis[sizeof(abis) / sizeof(abis[0]) - 1]->name
                                                : "");
    }
}

/* IST_CUDA_NCCL=FILE: that library alone, as for dlopen(); for one of several releases, or for none. */
static void open_once(void)
{
    const char *wish = getenv("IST_CUDA_NCCL");
    const char *name = wish != NULL && wish[0] != '\0' ? wish : "libnccl.so.2";
    library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *why = dlerror();
        snprintf(failure, sizeof(failure), "no NCCL: %s", why != NULL ? why : name);
        return;
    }
    version = version_of();
    check_release();
}

void *cuda_nccl_library(void)
{
    (void)pthread_once(&once, open_once);
    return library;
}

const char *cuda_nccl_host_reason(void)
{
    (void)pthread_once(&once, open_once);
    return library != NULL && fits ? NULL : failure;
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
    return abi != NULL ? abi->name : NULL;
}

/* ---- bounded calls --------------------------------------------------------------------------- */

#define POLL_NS UINT64_C(50000)
/* NCCL finds out about the machine and loads code when it is first used: short deadlines are for
 * peers, not for that. */
#define SETUP_NS_MIN UINT64_C(30000000000)

/*
 * Waits until a non-blocking call has settled. Calls report success although they have only begun, so
 * the communicator is asked in any case. @return the result, ncclInProgress after the time
 */
static ncclResult_t settle(ncclComm_t comm, ncclResult_t result, uint64_t deadline_ns)
{
    if (result != ncclSuccess && result != ncclInProgress) {
        return result;
    }
    for (;;) {
        if (nc.ncclCommGetAsyncError(comm, &result) != ncclSuccess) {
            return ncclInternalError;
        }
        if (result != ncclInProgress || cuda_now_ns() >= deadline_ns) {
            return result;
        }
        cuda_pause_ns(POLL_NS);
    }
}

static uint64_t setup_ns(const cuda_comm *comm)
{
    return comm->deadline_ns > SETUP_NS_MIN ? comm->deadline_ns : SETUP_NS_MIN;
}

static uint64_t deadline_of(const cuda_comm *comm)
{
    return cuda_after_ns(cuda_now_ns(), setup_ns(comm));
}

static ist_status fail_nccl(const cuda_comm *comm, ncclResult_t result, const char *call)
{
    ist_error details = {.rank = (int32_t)comm->rank,
                         .peer = IST_RANK_NONE,
                         .object = "nccl",
                         .observed = (uint64_t)result};
    if (result == ncclInProgress) {
        return ist_raise(IST_ERR_TIMEOUT, &details, "%s did not finish within %llu ns", call,
                         (unsigned long long)setup_ns(comm));
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

/* ---- errors of the network ------------------------------------------------------------------- */

#define WATCH_NS UINT64_C(200000)

/* NCCL does not say which peer it was: all count. */
static void spread(const cuda_nccl *nccl, const cuda_nccl_devcomm *devcomm)
{
    for (uint32_t peer = 0; peer < nccl->rank_count; ++peer) {
        if (peer != nccl->rank) {
            __atomic_store_n(&devcomm->peer_errors[peer], 1, __ATOMIC_RELEASE);
        }
    }
}

/* Only news is told: device code may have cleared what it knows. */
static void look(cuda_nccl *nccl)
{
    ncclResult_t result = ncclSuccess;
    bool failed = nc.ncclCommGetAsyncError(nccl->comm, &result) != ncclSuccess ||
                  (result != ncclSuccess && result != ncclInProgress);
    if (failed && !nccl->failed) {
        ist_log(IST_LOG_WARN, "rank %u: the network reports an error: %s", nccl->rank,
                nc.ncclGetErrorString(result));
        for (const cuda_nccl_devcomm *one = nccl->devcomms; one != NULL; one = one->next) {
            spread(nccl, one);
        }
    }
    nccl->failed = failed;
}

static void *watch_main(void *argument)
{
    cuda_nccl *nccl = argument;
    while (!atomic_load(&nccl->stop)) {
        /* Whoever holds it asks by itself. */
        if (pthread_mutex_trylock(&nccl->lock) == 0) {
            look(nccl);
            (void)pthread_mutex_unlock(&nccl->lock);
        }
        cuda_pause_ns(WATCH_NS);
    }
    return NULL;
}

static void watch_begin(cuda_nccl *nccl)
{
    int failed = pthread_create(&nccl->watcher, NULL, watch_main, nccl);
    nccl->watched = failed == 0;
    if (failed != 0) {
        ist_log(IST_LOG_WARN, "rank %u: no thread to watch the network: %s", nccl->rank,
                strerror(failed));
    }
}

static void watch_end(cuda_nccl *nccl)
{
    atomic_store(&nccl->stop, true);
    if (nccl->watched) {
        (void)pthread_join(nccl->watcher, NULL);
        nccl->watched = false;
    }
}

/* ---- communicators --------------------------------------------------------------------------- */

/* What the first rank brings: the id, and that NCCL is there. */
typedef struct invitation {
    int64_t ready;
    char why[200]; /* not */
    ncclUniqueId id;
} invitation;

static void invite(const cuda_comm *comm, invitation *own)
{
    memset(own, 0, sizeof(*own));
    const char *reason = cuda_nccl_reason();
    ncclResult_t result = ncclSuccess;
    if (reason == NULL && comm->rank == 0) {
        result = nc.ncclGetUniqueId(&own->id);
    }
    own->ready = reason == NULL && result == ncclSuccess;
    if (reason != NULL) {
        snprintf(own->why, sizeof(own->why), "%.199s", reason);
    } else if (result != ncclSuccess) {
        const char *last = nc.ncclGetLastError(NULL);
        snprintf(own->why, sizeof(own->why), "ncclGetUniqueId: %.60s: %.110s",
                 nc.ncclGetErrorString(result), last != NULL ? last : "");
    }
}

static ist_status meet(cuda_comm *comm, ncclUniqueId *id, bool *all_ready)
{
    cuda_call call;
    invitation own;
    invite(comm, &own);
    IST_RETURN_IF_ERROR(cuda_comm_gather(comm, &own, sizeof(own), -1, &call));
    const invitation *all = (const invitation *)(const void *)call.round->data;
    *all_ready = true;
    for (uint32_t peer = 0; peer < comm->rank_count; ++peer) {
        if (all[peer].ready == 0 && *all_ready) {
            *all_ready = false;
            snprintf(comm->gin_reason, sizeof(comm->gin_reason), "rank %u cannot use NCCL: %.199s",
                     peer, all[peer].why);
        }
    }
    *id = all[0].id;
    cuda_comm_release(comm, &call);
    return IST_OK;
}

/*
 * NCCL 2.28 does not load its plug-ins again once the last communicator has unloaded them: one that
 * has a single rank and is never closed keeps them.
 */
static void keep_plugins(const cuda_comm *comm)
{
    static pthread_mutex_t keeping = PTHREAD_MUTEX_INITIALIZER;
    static ncclComm_t keeper;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    cuda_nccl_config_fit(&config, version);
    config.blocking = 0;
    config.minCTAs = 1;
    config.maxCTAs = 1;
    (void)pthread_mutex_lock(&keeping);
    if (keeper == NULL && version < NCCL_VERSION(2, 29, 0) &&
        nc.ncclGetUniqueId(&id) == ncclSuccess) {
        ncclResult_t result = nc.ncclCommInitRankConfig(&keeper, 1, id, 0, &config);
        (void)settle(keeper, result, deadline_of(comm));
    }
    (void)pthread_mutex_unlock(&keeping);
}

/* One block is the least that NCCL prepares for; its own kernels are not used here. */
static bool init_comm(cuda_comm *comm, const ncclUniqueId *id)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    cuda_nccl_config_fit(&config, version);
    config.blocking = 0;
    config.minCTAs = 1;
    config.maxCTAs = 1;
    ncclComm_t *nccl = &comm->nccl->comm;
    ncclResult_t result =
        nc.ncclCommInitRankConfig(nccl, (int)comm->rank_count, *id, (int)comm->rank, &config);
    result = settle(*nccl, result, deadline_of(comm));
    if (result != ncclSuccess) {
        describe(comm, "ncclCommInitRankConfig", result);
    }
    return result == ncclSuccess;
}

static void give_up(cuda_nccl *nccl, cuda_nccl_devcomm *devcomm, ncclResult_t result)
{
    if (result == ncclInProgress) {
        devcomm->next = nccl->late;
        nccl->late = devcomm;
    } else {
        ist_free(devcomm);
    }
}

/* What a rank has found out about GIN. */
typedef struct finding {
    uint32_t has;
    uint32_t kind; /* NCCL's number */
    uint32_t lsa_size;
    uint32_t reserved;
} finding;

/* NCCL 2.28 tells whether it has GIN only when it is asked for. */
static void try_gin(cuda_comm *comm, finding *found)
{
    cuda_nccl_devcomm *trial = NULL;
    trial = ist_alloc(1, sizeof(*trial) + abi->bytes);
    if (trial == NULL) {
        snprintf(comm->gin_reason, sizeof(comm->gin_reason), "no host memory to try GIN");
        return;
    }
    ncclComm_t nccl = comm->nccl->comm;
    ncclResult_t result =
        abi->create(nc.create, nccl, TRIAL_COUNT, TRIAL_COUNT, TRIAL_COUNT, trial->image);
    result = settle(nccl, result, deadline_of(comm));
    if (result == ncclSuccess) {
        abi->read(trial->image, &found->lsa_size, &found->kind);
        found->has = 1;
        (void)nc.destroy(nccl, trial->image);
    } else {
        describe(comm, "ncclDevCommCreate", result);
    }
    give_up(comm->nccl, trial, result);
}

static ist_status raise_kinds(const cuda_comm *comm, uint32_t peer, const finding *own,
                              const finding *other)
{
    ist_error details = {.rank = (int32_t)comm->rank,
                         .peer = (int32_t)peer,
                         .object = "gin",
                         .operation = "comm.open",
                         .expected = own->kind,
                         .observed = other->kind};
    return ist_raise(IST_ERR_MISMATCH, &details,
                     "rank 0 has GIN of kind %u and NCCL teams of %u, rank %u of kind %u and teams "
                     "of %u: NCCL_GIN_TYPE and NCCL_LSA_TEAM_SIZE have to be equal",
                     own->kind, own->lsa_size, peer, other->kind, other->lsa_size);
}

static ist_status findings_read(cuda_comm *comm, const finding *rows, bool own, bool *all)
{
    *all = true;
    for (uint32_t peer = 0; peer < comm->rank_count; ++peer) {
        bool has = rows[peer].has != 0;
        if (!has && own && *all) {
            snprintf(comm->gin_reason, sizeof(comm->gin_reason), "rank %u has no GIN", peer);
        }
        *all = *all && has;
    }
    for (uint32_t peer = 1; *all && peer < comm->rank_count; ++peer) {
        if (rows[peer].kind != rows[0].kind || rows[peer].lsa_size != rows[0].lsa_size) {
            return raise_kinds(comm, peer, &rows[0], &rows[peer]);
        }
    }
    comm->gin_kind = *all ? rows[0].kind : 0;
    comm->nccl_lsa_size = *all ? rows[0].lsa_size : 0;
    return IST_OK;
}

static ist_status all_have_gin(cuda_comm *comm, const finding *own, bool *all)
{
    cuda_call call;
    IST_RETURN_IF_ERROR(cuda_comm_gather(comm, own, sizeof(*own), -1, &call));
    ist_status status =
        findings_read(comm, (const finding *)(const void *)call.round->data, own->has != 0, all);
    cuda_comm_release(comm, &call);
    return status;
}

static void nccl_new(cuda_comm *comm)
{
    cuda_nccl *nccl = ist_alloc(1, sizeof(*nccl));
    if (nccl == NULL || pthread_mutex_init(&nccl->lock, NULL) != 0) {
        ist_free(nccl);
        snprintf(comm->gin_reason, sizeof(comm->gin_reason), "no host memory for NCCL");
        return;
    }
    nccl->rank = comm->rank;
    nccl->rank_count = comm->rank_count;
    atomic_init(&nccl->stop, false);
    comm->nccl = nccl;
}

static ist_status open_with(cuda_comm *comm)
{
    ncclUniqueId id;
    bool ready = false;
    bool all = false;
    IST_RETURN_IF_ERROR(meet(comm, &id, &ready));
    if (!ready) {
        return IST_OK;
    }
    nccl_new(comm);
    keep_plugins(comm);
    finding own = {.has = 0};
    if (comm->nccl != NULL && init_comm(comm, &id)) {
        try_gin(comm, &own);
    }
    ist_status status = all_have_gin(comm, &own, &all);
    if (status != IST_OK || !all) {
        cuda_nccl_close(comm);
    } else {
        watch_begin(comm->nccl);
    }
    return status;
}

/* A rank whose NCCL fails at once waits for those that take their time to find out. */
ist_status cuda_nccl_open(cuda_comm *comm)
{
    uint64_t deadline_ns = comm->deadline_ns;
    comm->deadline_ns = setup_ns(comm);
    ist_status status = open_with(comm);
    comm->deadline_ns = deadline_ns;
    return status;
}

void cuda_nccl_close(cuda_comm *comm)
{
    cuda_nccl *nccl = comm->nccl;
    if (nccl == NULL) {
        return;
    }
    watch_end(nccl);
    if (nccl->comm != NULL) {
        (void)nc.ncclCommAbort(nccl->comm);
    }
    while (nccl->late != NULL) {
        cuda_nccl_devcomm *late = nccl->late;
        nccl->late = late->next;
        ist_free(late);
    }
    (void)pthread_mutex_destroy(&nccl->lock);
    ist_free(nccl);
    comm->nccl = NULL;
}

/* ---- windows and device communicators -------------------------------------------------------- */

ist_status cuda_nccl_window_open(cuda_comm *comm, void *local, uint64_t bytes, void **window)
{
    cuda_nccl *nccl = comm->nccl;
    (void)pthread_mutex_lock(&nccl->lock);
    nccl->opened = NULL;
    ncclResult_t result =
        nc.ncclCommWindowRegister(nccl->comm, local, bytes, &nccl->opened, NCCL_WIN_COLL_SYMMETRIC);
    result = settle(nccl->comm, result, deadline_of(comm));
    ncclWindow_t opened = nccl->opened;
    (void)pthread_mutex_unlock(&nccl->lock);
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
    cuda_nccl *nccl = comm->nccl;
    if (nccl == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&nccl->lock);
    (void)settle(nccl->comm, nc.ncclCommWindowDeregister(nccl->comm, window), deadline_of(comm));
    (void)pthread_mutex_unlock(&nccl->lock);
}

/* With the lock held. */
static void devcomm_link(cuda_nccl *nccl, cuda_nccl_devcomm *devcomm)
{
    devcomm->next = nccl->devcomms;
    nccl->devcomms = devcomm;
    if (nccl->failed) {
        spread(nccl, devcomm);
    }
}

static void devcomm_unlink(cuda_nccl *nccl, const cuda_nccl_devcomm *devcomm)
{
    cuda_nccl_devcomm **link = &nccl->devcomms;
    while (*link != NULL && *link != devcomm) {
        link = &(*link)->next;
    }
    *link = *link != NULL ? (*link)->next : NULL;
}

ist_status cuda_nccl_devcomm_open(cuda_comm *comm, const cuda_nccl_counts *counts,
                                  uint64_t *peer_errors, cuda_nccl_devcomm **result)
{
    cuda_nccl *nccl = comm->nccl;
    cuda_nccl_devcomm *devcomm = ist_alloc(1, sizeof(*devcomm) + abi->bytes);
    if (devcomm == NULL) {
        return cuda_fail_memory(comm->owner, "a device communicator");
    }
    devcomm->bytes = abi->bytes;
    devcomm->peer_errors = peer_errors;
    (void)pthread_mutex_lock(&nccl->lock);
    ncclResult_t created = abi->create(nc.create, nccl->comm, counts->contexts, counts->signals,
                                       counts->counters, devcomm->image);
    created = settle(nccl->comm, created, deadline_of(comm));
    if (created == ncclSuccess) {
        devcomm_link(nccl, devcomm);
    } else {
        give_up(nccl, devcomm, created);
    }
    (void)pthread_mutex_unlock(&nccl->lock);
    if (created != ncclSuccess) {
        return fail_nccl(comm, created, "ncclDevCommCreate");
    }
    *result = devcomm;
    return IST_OK;
}

void cuda_nccl_devcomm_close(cuda_comm *comm, cuda_nccl_devcomm *devcomm)
{
    cuda_nccl *nccl = comm->nccl;
    if (nccl != NULL) {
        (void)pthread_mutex_lock(&nccl->lock);
        devcomm_unlink(nccl, devcomm);
        (void)nc.destroy(nccl->comm, devcomm->image);
        (void)pthread_mutex_unlock(&nccl->lock);
    }
    ist_free(devcomm);
}

const void *cuda_nccl_devcomm_bytes(const cuda_nccl_devcomm *devcomm, size_t *bytes)
{
    *bytes = devcomm->bytes;
    return devcomm->image;
}

#endif
