/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An expert-parallel exchange that is checked to the last byte: a rank's communicator and group (the
 * rig), a handle with all its tensors (a lane), and steps whose every output byte is compared with
 * the oracle. The explorer's scenarios run it, and tests. Nothing here expects: calls return what the
 * library returned, checks count.
 *
 * A check builds the whole output as the oracle wants it, poison included, so that a row which must
 * stay untouched is compared too. Outputs of an operation that lost ranks are compared with what
 * the oracle says about exactly those ranks.
 */
#ifndef EP_LANE_H
#define EP_LANE_H

#include "ep_case.h"

#include <isthmus/isthmus.h>

#define EP_RIG_WORDS 4u /* of rank sets: up to 256 ranks */

/* Of a rank; equal on all. Zero is default. */
typedef struct ep_rig_setup {
    uint32_t expert_count, tokens_max, topk_max;
    uint64_t row_bytes_max;
    uint32_t staged_count_max, block_count_max, context_count;
    ist_ep_zero_copy zero_copy;
    ist_ep_check check;
    ist_ep_combine_order order;
    uint32_t fault_tolerant;
    uint32_t lsa_size_max;
    uint64_t deadline_ns; /* of communicator and group */
    ist_ep_alloc alloc;
} ep_rig_setup;

typedef struct ep_rig {
    ist_world *world;
    uint32_t rank, rank_count, word_count;
    ist_comm *comm;
    ist_stream *stream;
    ist_ep_group *group;
} ep_rig;

/* What a case needs. */
ep_rig_setup ep_rig_setup_for(const ep_shape *shape);
ist_ep_group_desc ep_rig_group_desc(const ep_rig_setup *setup);
/* On failure what is open stays open; ep_rig_close() closes it. */
ist_status ep_rig_open(ist_world *world, const ep_rig_setup *setup, ep_rig *rig);
/* Closes all that is open; the first failure. */
ist_status ep_rig_close(ep_rig *rig);
/* This rank's mask; zeros when there is none. */
ist_status ep_rig_mask(ep_rig *rig, uint64_t words[EP_RIG_WORDS], uint64_t *generation);

/* How a handle is made. */
typedef struct ep_lane_setup {
    uint32_t windows;       /* 1: tokens, 2: experts' outputs lie in windows; or-ed */
    uint32_t window_offset; /* of the rows in their windows */
    uint32_t own_memory;    /* 1: handle memory is the caller's */
    uint32_t dispatch_only; /* 1: steps end after the dispatch */
    uint32_t stubborn;      /* 1: a rank that is out goes on with its steps all the same */
    uint32_t staged;        /* steps run in two halves; 1: dispatch, 2: combine; or-ed */
    uint32_t keep_route;    /* 1: steps set the routing once; their cases have the same ids */
    ist_dtype id_type;      /* 0: IST_I32 */
    uint32_t no_lost_counts;
    uint32_t no_rank_counters;
    uint64_t deadline_ns; /* of each operation */
} ep_lane_setup;

/* What a check found. */
typedef struct ep_lane_finding {
    uint64_t wrong; /* bytes */
    char first[160];
} ep_lane_finding;

typedef struct ep_lane {
    ep_rig *rig;
    const ep_case *made;
    ep_lane_setup setup;
    ist_ep_handle *handle;
    void *handle_memory;
    uint64_t handle_bytes;
    uint32_t block_count; /* local experts or source ranks */
    uint64_t block_rows;
    size_t row_bytes;
    uint32_t tokens_max, topk;
    ist_window *window_in, *window_out;
    uint8_t *in_memory, *out_memory; /* allocations; rows begin at the offset */
    uint8_t *tokens, *worked;
    void *ids;
    float *weights;
    uint8_t *received;
    float *received_weights;
    int32_t *received_ids;
    int32_t *counters;
    uint8_t *combined;
    int32_t *lost_counts;
    uint8_t *host, *expected; /* the largest output each */
    size_t host_bytes;
    uint32_t routed;          /* 1: the routing was set */
    ist_completion record[2]; /* by ist_ep_op; lost_words is NULL */
    uint64_t lost[2][EP_RIG_WORDS];
} ep_lane;

/* The case says shape and routing; another of the same shape may be loaded later. */
ist_status ep_lane_open(ep_rig *rig, const ep_case *made, const ep_lane_setup *setup,
                        ep_lane *lane);
ist_status ep_lane_close(ep_lane *lane);

/* Enqueues: tokens, ids and weights of the case in, poison over all outputs. */
ist_status ep_lane_load(ep_lane *lane, const ep_case *made);
/* The handle's update with the ids that are loaded. */
ist_status ep_lane_route(ep_lane *lane, ist_stream *stream);
ist_status ep_lane_dispatch(ep_lane *lane, ist_stream *stream, uint32_t send_only);
ist_status ep_lane_combine(ep_lane *lane, ist_stream *stream, uint32_t send_only);
/* Reads the record of the last operation into the lane. */
ist_status ep_lane_read_record(ep_lane *lane, ist_ep_op op);
/* The experts: what was received, changed, becomes the input of combine. BLOCKS. */
ist_status ep_lane_work(ep_lane *lane);
/* Compares all outputs, given who is lost by the record. BLOCKS. */
ist_status ep_lane_check_dispatch(ep_lane *lane, ep_lane_finding *finding);
ist_status ep_lane_check_combine(ep_lane *lane, ep_lane_finding *finding);

/* How a step went on one rank. */
typedef struct ep_step {
    ist_status status; /* of the call that failed, else IST_OK */
    const char *call;  /* which one */
    uint32_t ran[2];   /* by ist_ep_op: ended, the record was read */
    ist_completion record[2];
    uint64_t lost[2][EP_RIG_WORDS];
    ep_lane_finding finding[2]; /* of operations that were not evicted or failed */
    uint64_t ended_ns[2];       /* when the records were read */
    uint32_t evicted;           /* 1: the rank learned that it is out, and stopped */
} ep_step;

/* Loads, routes, dispatches, works, combines, and checks each when it has ended. A rank that is out
   stops there. Fills the step as far as it came; returns step->status. */
ist_status ep_lane_step(ep_lane *lane, const ep_case *made, ep_step *step);
/* The part of it behind an operation: waits for it, reads its record, checks its outputs. */
ist_status ep_lane_end(ep_lane *lane, ist_ep_op op, ep_step *step);
/* Whether both operations ran, lost nobody, and every byte is right. */
bool ep_step_is_perfect(const ep_step *step);

/* A case with the ids of another and the contents of another step. */
bool ep_case_init_step(ep_case *made, const ep_shape *shape, uint64_t step);

#endif
