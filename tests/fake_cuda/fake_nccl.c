/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An NCCL of any release that can do nothing, for testing what is said of a library that does not fit:
 * FAKE_NCCL_VERSION is what it reports (22809). Compiled with FAKE_NCCL_BARE it has no other function.
 */
#include <stdlib.h>

#define FAKE __attribute__((visibility("default")))
#define SUCCESS 0
#define INTERNAL_ERROR 3

FAKE int ncclGetVersion(int *version);

FAKE int ncclGetVersion(int *version)
{
    const char *text = getenv("FAKE_NCCL_VERSION");
    *version = text != NULL ? atoi(text) : 22809;
    return SUCCESS;
}

#ifndef FAKE_NCCL_BARE

/* Every other function fails, whatever its arguments are. */
#define FAILS(name)                                                                                \
    FAKE int name(void);                                                                           \
    FAKE int name(void)                                                                            \
    {                                                                                              \
        return INTERNAL_ERROR;                                                                     \
    }
FAILS(ncclGetUniqueId)
FAILS(ncclCommInitRankConfig)
FAILS(ncclCommAbort)
FAILS(ncclCommGetAsyncError)
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
