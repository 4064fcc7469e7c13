/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the pieces of the museum share. A piece is a small program of a protocol that failed in public,
 * written twice: broken, as it was, and fixed. museum.c explores both; museum_rig.c opens and closes
 * what every program needs.
 */
#ifndef MUSEUM_H
#define MUSEUM_H

#include "ist_test.h"

#include <isthmus/unstable/explore.h>

#define MUSEUM_ROW 64u               /* bytes of a row */
#define MUSEUM_RESOURCE 8192u        /* bytes of window 0 on each rank */
#define MUSEUM_LONG_NS 1000000000ull /* longest wait of a kernel */
#define MUSEUM_LOOK_NS 1000u         /* of one that asks again and again */
#define MUSEUM_KIND(name) (UINT32_C(1) << IST_FINDING_##name)
#define MUSEUM_RACES (MUSEUM_KIND(RACE) | MUSEUM_KIND(REUSED)) /* which came first is chance */

/* One schedule of one variant. */
typedef struct museum_run {
    uint64_t seed;   /* decides also what a piece draws */
    uint32_t broken; /* 1: the protocol as it was */
    uint32_t wrong;  /* bits of the ranks whose oracle saw something */
    char why[192];   /* the first thing that one saw, or empty */
} museum_run;

/* What the broken variant may be found as; its words stand in the report or in the oracle's words. */
typedef struct museum_answer {
    uint32_t kinds; /* MUSEUM_KIND(), or-ed */
    const char *words[3];
} museum_answer;

typedef struct museum_piece {
    const char *name;    /* as in the table of README.md */
    const char *address; /* where the failure was published */
    const char *cluster; /* NULL: one node */
    uint32_t rank_count;
    museum_answer answers[3];
    ist_rank_fn rank_main; /* its argument is a museum_run */
    ist_status (*faults)(const museum_run *run, ist_fault_plan *plan); /* NULL: none */
    uint32_t detectors_off;                                            /* IST_DETECTOR() bits */
    uint32_t always;         /* 1: every schedule of the broken variant shows the failure */
    uint64_t step_count_max; /* a longer run is a livelock; 0: 50000 */
} museum_piece;

/* ---- what a rank has open -------------------------------------------------------------------- */

typedef struct museum_rig {
    museum_run *run;
    ist_world *world;
    uint32_t rank, rank_count;
    ist_comm *meeting; /* never masks anybody: all meet here before they leave */
    ist_comm *comm;    /* fault tolerant */
    ist_stream *stream;
    const ist_dev_comm
        *dev;      /* of `comm`: one LSA barrier, 2 contexts of 4 signals and 4 counters */
    uint8_t *mine; /* window 0, zeroed */
} museum_rig;

ist_status museum_open(ist_world *world, void *run, museum_rig *rig);
/* Waits for the stream, meets the others, closes; IST_ERR_INTERNAL if something was wrong. */
ist_status museum_close(museum_rig *rig);
/* Closes, and meets nobody. */
ist_status museum_leave(museum_rig *rig);
/* All programs are here; says nothing about their streams. */
ist_status museum_meet(const museum_rig *rig);
/* The oracle's words. The program goes on, so that nobody waits for it in vain. */
void museum_wrong(const museum_rig *rig, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Bytes of window 0 from `offset` on are all `value`; else wrong: "<what> holds 0x.. instead of 0x..". */
ist_status museum_expect_row(const museum_rig *rig, uint64_t offset, uint32_t rows, uint8_t value,
                             const char *what);
/* One number of the piece's own, equal on all ranks: 0 … bound - 1. */
uint32_t museum_draw(const museum_run *run, uint32_t which, uint32_t bound);

/* ---- the pieces ------------------------------------------------------------------------------ */

#define MUSEUM_PIECES(X)                                                                           \
    X(museum_second_queue)                                                                         \
    X(museum_stride_overlap)                                                                       \
    X(museum_two_handles)                                                                          \
    X(museum_graph_ring)                                                                           \
    X(museum_error_is_not_yet)                                                                     \
    X(museum_mask_in_graph)                                                                        \
    X(museum_masked_token)                                                                         \
    X(museum_lost_atomic)                                                                          \
    X(museum_offset_handle)                                                                        \
    X(museum_deregister_race)                                                                      \
    X(museum_ragged_deregister)                                                                    \
    X(museum_exit_before_shrink)                                                                   \
    X(museum_slow_is_not_dead)                                                                     \
    X(museum_four_gibibytes)                                                                       \
    X(museum_cleanup_barrier)                                                                      \
    X(museum_re_register)

#define X(piece) extern const museum_piece piece;
MUSEUM_PIECES(X)
#undef X

#endif
