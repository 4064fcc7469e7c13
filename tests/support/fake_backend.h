/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A backend that does next to nothing and counts: for tests of the front. Its ranks run one after
 * the other; peers are made up: an exchange echoes the caller's row for everybody who is expected, then a hook
 * may change rows or lose ranks. One at a time in a process.
 */
#ifndef FAKE_BACKEND_H
#define FAKE_BACKEND_H

#include <isthmus/backend.h>
#include <isthmus/device.h>
#include <stdbool.h>

/* Numbers of the operations. */
typedef enum fake_op {
#define X(op, params, args, need) FAKE_##op,
    IST_BACKEND_OPS(X)
#undef X
        FAKE_OP_COUNT
} fake_op;

typedef struct fake_state {
    uint64_t calls[FAKE_OP_COUNT];
    ist_status fail[FAKE_OP_COUNT]; /* not 0: the operation answers with it and does nothing */
    /* Settings, zero is usual. */
    uint32_t rank_count; /* used when the world does not say; 0: 1 */
    uint32_t lsa_size;   /* 0: all ranks */
    bool gin_supported;
    const char *window_reason;
    const char *coll_reason;  /* not NULL: there are no native collectives */
    const char *probe_reason; /* not NULL: the backend cannot be used */
    uint32_t window_index;    /* 0: count from 1 */
    bool window_null;         /* report success without a window */
    ist_status stream_state;  /* answer of stream_query and event_query */
    /* Changes what peers sent; called after each exchange was echoed. */
    void (*on_exchange)(uint32_t number, uint32_t rank, uint32_t rank_count, size_t bytes,
                        uint8_t *rows, uint64_t *lost_words);
    /* Does a kernel's work on the host. */
    void (*on_launch)(const ist_kernel *kernel, const void *args);
    /* What is open: all must be 0 when a world has ended. */
    int64_t memory_live, stream_live, event_live, graph_live, comm_live, window_live, devcomm_live;
    /* What was seen. */
    ist_backend_comm_desc comm_desc;
    ist_backend_world world;
    ist_backend_process process;
    bool had_process;
    uint32_t exchange_count;
    ist_backend_coll coll_last; /* of the last group, which had so many calls */
    uint32_t coll_count;
} fake_state;

extern fake_state fake;

/* The backend, named "fake", not explicit_only; registers it on the first call. */
const ist_backend *fake_backend(void);
/* Forgets counts and settings. */
void fake_reset(void);
/* Sum of everything that is open. */
int64_t fake_live(void);

#endif
