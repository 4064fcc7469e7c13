/* SPDX-License-Identifier: Apache-2.0 */
/* One rank's program of `isthmus ep`, in parts: what it opens, one step of it, and the checking.
 */
#ifndef CLI_RANK_H
#define CLI_RANK_H

#include "cli_gather.h"
#include "cli_progress.h"
#include "cli_report.h"
#include "cli_step.h"

#include <isthmus/isthmus.h>

#define CLI_POISON 0xa5
/* Outputs up to this size are filled and compared as a whole; larger ones around their rows only,
   so that memory that nobody writes stays untouched. */
#define CLI_POISON_BYTES_MAX ((uint64_t)4 << 20)
#define CLI_CHUNK_BYTES ((size_t)1 << 20)

/* One run in this process, shared by its ranks. */
typedef struct cli_run {
    const cli_options *options;
    cli_steps steps;
    cli_progress progress;
    pthread_mutex_t lock;
    uint32_t rank_count;  /* 0 until the first rank has come */
    uint32_t local_count; /* ranks of this process */
    char backend[16];
    cli_report *reports;  /* [rank_count], this process's ranks, as they stand */
    cli_report *gathered; /* [rank_count], filled by the root */
    uint64_t *masks;      /* [rank_count][words], each rank's last mask */
} cli_run;

/* Device memory of a rank. */
typedef struct cli_memory {
    char *tokens;           /* [M, H] dispatch in */
    char *weights;          /* [M, K] */
    char *topk;             /* [M, K] i32 */
    char *received;         /* EM [L, R*M, H], RM [R, M, H] dispatch out */
    char *received_weights; /* RM [R, M, K] */
    char *received_ids;     /* RM [R, M, K] */
    char *counters;         /* EM [L], RM [R] */
    char *worked;           /* as received: combine in */
    char *combined;         /* [M + 1, H] combine out, one row more than needed */
    char *lost_counts;      /* [M] */
} cli_memory;

/* Host memory of a rank. */
typedef struct cli_scratch {
    char *chunk;        /* chunk_rows rows */
    char *row;          /* a row that is expected */
    char *other;        /* another row */
    float *sums;        /* [H] */
    int32_t *ids;       /* [M, K] */
    float *weights;     /* [M, K] */
    int32_t *numbers;   /* counters or lost counts: max(L, R, M) */
    uint64_t *mask;     /* words: the mask now */
    uint64_t *start;    /* words: the mask when the step began */
    uint64_t *lost;     /* words: of a completion record */
    uint64_t *excluded; /* words: tried by the check */
} cli_scratch;

typedef struct cli_rank cli_rank;

/* Enqueues what one operation of a step needs. */
typedef ist_status (*cli_enqueue)(cli_rank *rank);

struct cli_rank {
    cli_run *run;
    const cli_options *options;
    ist_world *world;
    cli_report *report;
    uint32_t rank;
    uint32_t rank_count;
    uint32_t word_count;  /* of masks */
    uint32_t token_count; /* N */
    uint32_t block_count; /* EM: L, RM: R */
    uint32_t chunk_rows;
    uint64_t block_rows; /* EM: R*M, RM: M */
    size_t row_bytes;
    bool poison_all;
    bool expert_major;
    uint64_t generation;
    ist_stream *stream;
    ist_comm *comm;
    ist_ep_group *group;
    ist_ep_handle *handle;
    ist_window *window_in;
    ist_window *window_out;
    ist_graph *dispatch_graph;
    ist_graph *combine_graph;
    cli_gather gather;
    cli_memory memory;
    cli_scratch scratch;
    cli_enqueue dispatch; /* routing included */
    cli_enqueue combine;
};

/* Outputs that are to be compared, and how their operation ended. */
typedef struct cli_check {
    const cli_step *step;
    const ep_oracle_received *full; /* what dispatch delivers when nobody is lost */
    const ist_completion *record;
} cli_check;

/* Enters a rank into the run; the first one of the process makes room for the reports. */
ist_status cli_rank_sign_in(cli_run *run, ist_world *world, cli_rank *rank);

/* Writes down in the rank's report why it ended. */
void cli_rank_note_failure(cli_report *report, ist_status status);

/* Program of a rank; `arg` is the cli_run. */
ist_status cli_rank_main(ist_world *world, void *arg);

/* Opens everything; what was opened before a failure is closed by cli_rank_close(). */
ist_status cli_rank_open(cli_rank *rank);
/* Its parts, in this order. */
ist_status cli_rank_open_comm(cli_rank *rank); /* and a stream */
ist_status cli_rank_open_memory(cli_rank *rank);
ist_status cli_rank_open_windows(cli_rank *rank);
ist_status cli_rank_open_group(cli_rank *rank);
ist_status cli_rank_open_handle(cli_rank *rank);
void cli_rank_close(cli_rank *rank);

/* Puts tokens, routing and weights of a step into device memory. */
ist_status cli_rank_upload(cli_rank *rank, uint32_t number);

/* One step. *evicted: the peers have gone on without this rank. */
ist_status cli_rank_step(cli_rank *rank, uint32_t number, bool *evicted);

/* Checks what the last dispatch and combine of a step have left, which was run again since. */
ist_status cli_rank_check_again(cli_rank *rank, uint32_t number);

/* Enqueue the operations of a step, directly or as graphs; what cli_rank_open() sets. */
ist_status cli_rank_enqueue_dispatch(cli_rank *rank);
ist_status cli_rank_enqueue_combine(cli_rank *rank);

/* The parts of these: the routing, and the operations alone. */
ist_status cli_rank_route(cli_rank *rank);
ist_status cli_rank_dispatch(cli_rank *rank);
ist_status cli_rank_combine(cli_rank *rank);

/* Fills outputs with poison before the step. */
ist_status cli_check_poison(cli_rank *rank, const ep_oracle_received *full);
/* Compares what dispatch delivered, and lets the experts work on it. */
ist_status cli_check_dispatch(cli_rank *rank, const cli_check *check);
/* Compares what combine returned. */
ist_status cli_check_combine(cli_rank *rank, const cli_check *check);

/* Row `row` of block `block` of an array shaped like dispatch's output. */
static inline char *cli_block_row(const cli_rank *rank, char *base, uint32_t block, uint64_t row)
{
    return base + (block * rank->block_rows + row) * rank->row_bytes;
}

/* Reads the mask into scratch.mask and notes the generation. */
ist_status cli_rank_read_mask(cli_rank *rank);

#endif
