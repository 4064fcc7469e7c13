/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An NCCL of any release, for testing what is said of a library that does not fit, and what the host
 * side does with one that fails: FAKE_NCCL_VERSION is what it reports (22809). It can do nothing, unless
 * FAKE_NCCL_WORKS is set: then communicators open and calls succeed, and move no bytes;
 * FAKE_NCCL_FAIL=n makes the nth call fail. FAKE_NCCL_GIN=kind,members (2: proxy, 3: GDAKI; of a
 * load/store team): there is GIN. Compiled with FAKE_NCCL_BARE it has no other function.
 */
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#include "fake_nccl_devcomm.h"

#define FAKE __attribute__((visibility("default")))
#define SUCCESS 0
#define INTERNAL_ERROR 3
#define IN_PROGRESS 7

FAKE int ncclGetVersion(int *version);

FAKE int ncclGetVersion(int *version)
{
    const char *text = getenv("FAKE_NCCL_VERSION");
    *version = text != NULL ? atoi(text) : 22809;
    return SUCCESS;
}

#ifndef FAKE_NCCL_BARE

/* Open communicators and reductions: the last one out says whether all were closed. */
static atomic_int live;
static atomic_int calls;

static int answer(void)
{
    const char *fail = getenv("FAKE_NCCL_FAIL");
    int number = atomic_fetch_add(&calls, 1) + 1;
    if (getenv("FAKE_NCCL_WORKS") == NULL) {
        return INTERNAL_ERROR;
    }
    return fail != NULL && atoi(fail) == number ? INTERNAL_ERROR : SUCCESS;
}

typedef struct fake_comm {
    int asked; /* it is in progress when it is asked first */
} fake_comm;

static int open_comm(void **comm)
{
    int result = answer();
    *comm = result == SUCCESS ? calloc(1, sizeof(fake_comm)) : NULL;
    if (*comm != NULL) {
        (void)atomic_fetch_add(&live, 1);
    }
    return result;
}

/* How many communicators are open, and how many calls were made. */
FAKE int fakeNcclLive(void);
FAKE int fakeNcclCalls(void);

FAKE int fakeNcclLive(void)
{
    return atomic_load(&live);
}

FAKE int fakeNcclCalls(void)
{
    return atomic_load(&calls);
}

FAKE int ncclGetUniqueId(void *id);
FAKE int ncclCommInitRankConfig(void **comm, int count, char id[128], int rank, void *config);
FAKE int ncclCommSplit(void *parent, int color, int key, void **comm, void *config);
FAKE int ncclCommAbort(void *comm);
FAKE int ncclCommRevoke(void *comm, int flags);
FAKE int ncclCommGetAsyncError(void *comm, int *state);

FAKE int ncclGetUniqueId(void *id)
{
    (void)id;
    return answer();
}

/* The id is a struct of 128 bytes by value, behind what registers hold: it is not looked at. */
FAKE int ncclCommInitRankConfig(void **comm, int count, char id[128], int rank, void *config)
{
    (void)count, (void)id, (void)rank, (void)config;
    return open_comm(comm);
}

FAKE int ncclCommSplit(void *parent, int color, int key, void **comm, void *config)
{
    (void)parent, (void)color, (void)key, (void)config;
    return open_comm(comm);
}

FAKE int ncclCommAbort(void *comm)
{
    if (comm != NULL) {
        (void)atomic_fetch_sub(&live, 1);
    }
    free(comm);
    return SUCCESS;
}

FAKE int ncclCommRevoke(void *comm, int flags)
{
    (void)comm, (void)flags;
    return SUCCESS;
}

FAKE int ncclCommGetAsyncError(void *comm, int *state)
{
    if (getenv("FAKE_NCCL_WORKS") == NULL || comm == NULL) {
        return INTERNAL_ERROR;
    }
    *state = ((fake_comm *)comm)->asked++ == 0 ? IN_PROGRESS : SUCCESS;
    return SUCCESS;
}

/* Calls whose arguments do not matter here. */
#define ANSWERS(name)                                                                              \
    FAKE int name(void);                                                                           \
    FAKE int name(void)                                                                            \
    {                                                                                              \
        return answer();                                                                           \
    }
ANSWERS(ncclGroupStart)
ANSWERS(ncclGroupEnd)
ANSWERS(ncclAllReduce)
ANSWERS(ncclBroadcast)
ANSWERS(ncclReduce)
ANSWERS(ncclAllGather)
ANSWERS(ncclReduceScatter)
ANSWERS(ncclSend)
ANSWERS(ncclRecv)
ANSWERS(ncclRedOpDestroy)

FAKE int ncclRedOpCreatePreMulSum(int *op, void *scalar, int dtype, int residence, void *comm);

FAKE int ncclRedOpCreatePreMulSum(int *op, void *scalar, int dtype, int residence, void *comm)
{
    (void)scalar, (void)dtype, (void)residence, (void)comm;
    *op = 5;
    return answer();
}

/* What GIN needs: puts would go nowhere, but it opens. */
FAKE int ncclCommWindowRegister(void *comm, void *base, size_t bytes, void **window, int flags);
FAKE int ncclCommWindowDeregister(void *comm, void *window);
FAKE int ncclDevCommCreate(void *comm, const void *requirements, void *devcomm);
FAKE int ncclDevCommDestroy(void *comm, const void *devcomm);

static int gin_answer(void)
{
    return getenv("FAKE_NCCL_GIN") != NULL ? SUCCESS : INTERNAL_ERROR;
}

FAKE int ncclCommWindowRegister(void *comm, void *base, size_t bytes, void **window, int flags)
{
    (void)comm, (void)bytes, (void)flags;
    *window = base;
    return gin_answer();
}

FAKE int ncclCommWindowDeregister(void *comm, void *window)
{
    (void)comm, (void)window;
    return gin_answer();
}

FAKE int ncclDevCommCreate(void *comm, const void *requirements, void *devcomm)
{
    const char *text = getenv("FAKE_NCCL_GIN");
    (void)comm, (void)requirements;
#ifndef FAKE_NCCL_NO_GIN
    if (text != NULL) {
        char *rest = NULL;
        int kind = (int)strtol(text, &rest, 10);
        fake_devcomm_fill(devcomm, *rest == ',' ? atoi(rest + 1) : 1, kind);
    }
    return gin_answer();
#else
    (void)text, (void)devcomm;
    return INTERNAL_ERROR;
#endif
}

FAKE int ncclDevCommDestroy(void *comm, const void *devcomm)
{
    (void)comm, (void)devcomm;
    return gin_answer();
}

FAKE const char *ncclGetErrorString(int result);

FAKE const char *ncclGetErrorString(int result)
{
    return result == SUCCESS ? "no error" : "fake error";
}

FAKE const char *ncclGetLastError(void *comm);

FAKE const char *ncclGetLastError(void *comm)
{
    (void)comm;
    return "this NCCL can do nothing";
}

#endif
