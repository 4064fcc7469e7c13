/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An NCCL of any release, for testing what is said of a library that does not fit, and what the host
 * side does with one that fails: FAKE_NCCL_VERSION is what it reports (22809). It can do nothing, unless
 * FAKE_NCCL_WORKS is set: then communicators open and calls succeed, and move no bytes;
 * FAKE_NCCL_FAIL=n makes the nth call fail. Compiled with FAKE_NCCL_BARE it has no other function.
 */
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

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

/* What GIN would need always fails. */
#define FAILS(name)                                                                                \
    FAKE int name(void);                                                                           \
    FAKE int name(void)                                                                            \
    {                                                                                              \
        return INTERNAL_ERROR;                                                                     \
    }
FAILS(ncclCommWindowRegister)
FAILS(ncclCommWindowDeregister)
FAILS(ncclDevCommCreate)
FAILS(ncclDevCommDestroy)

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
