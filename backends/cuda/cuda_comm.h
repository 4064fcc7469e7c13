/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communicators of the CUDA backend: members, windows, device communicators.
 */
#ifndef CUDA_COMM_H
#define CUDA_COMM_H

#include "cuda_internal.h"
#include "cuda_nccl.h"

/* Where a member runs; brought by each when a communicator is opened. */
typedef struct cuda_place {
    uint64_t host;    /* equal on ranks of one running system */
    uint64_t process; /* distinct between processes of a host */
    uint8_t uuid[16]; /* of its GPU */
    uint32_t world_rank;
    uint32_t windows;      /* 1: its memory can be mapped by peers */
    uint32_t lsa_size_max; /* 0: no limit */
    uint32_t reserved;
} cuda_place;

/* What a member opens: a range of one of its chunks. */
typedef struct cuda_offer {
    int64_t status; /* ist_status: why there is nothing */
    uint64_t key;
    uint64_t chunk_bytes;
    uint64_t offset;
    uint64_t bytes;
    uint64_t used[CUDA_WINDOW_COUNT_MAX / 64u]; /* numbers that are taken on this rank */
} cuda_offer;

/* A range that all members have opened, as this rank sees it. */
typedef struct cuda_mapping {
    void *local;
    uint64_t bytes;
    void **members;        /* [2][lsa_size] addresses, the own one too, then bytes */
    cuda_import **imports; /* [lsa_size], NULL for the own */
    void *nccl;            /* ncclWindow_t, NULL without GIN */
} cuda_mapping;

typedef struct cuda_devcomm {
    struct cuda_devcomm *next;
    cuda_chunk *chunk;          /* holds the structs and tables that device code reads */
    CUdeviceptr base;           /* the ist_dev_comm */
    uint64_t windows_at;        /* bytes behind base */
    cuda_chunk *resource_chunk; /* NULL: no resource window */
    CUdeviceptr resource;
    cuda_mapping mapping;  /* of the resource window */
    cuda_pinned *errors;   /* NULL without GIN */
    uint64_t *peer_errors; /* in it */
    cuda_nccl_devcomm *nccl;
} cuda_devcomm;

/* What a communicator's ways are chosen by. */
typedef struct cuda_choice {
    const struct ist_topology *topology; /* of the world, or `own` */
    struct ist_topology *own; /* of the ranks alone, where no topology knows their GPUs */
    uint32_t *gpus;           /* [rank_count] in the topology */
    uint64_t *maps;           /* [rank_count][CUDA_WORDS(rank_count)]: a row maps … */
    uint32_t lsa_size_max;    /* of all ranks; 0: no limit */
    uint32_t peer_access;     /* ist_path: worst one for load/store */
    uint32_t gin_off;
} cuda_choice;

typedef struct cuda_comm {
    struct cuda_comm *next;
    cuda_rank *owner;
    uint64_t number; /* at the meeting */
    uint32_t rank;
    uint32_t rank_count;
    uint32_t lsa_rank;
    uint32_t lsa_size;
    uint64_t deadline_ns;
    atomic_int aborted;
    cuda_place *places;                           /* [rank_count] */
    cuda_mapping *windows[CUDA_WINDOW_COUNT_MAX]; /* by number; 0 is never used */
    cuda_chunk *table_chunk; /* [CUDA_WINDOW_COUNT_MAX][2][lsa_size] members for device code */
    CUdeviceptr table;
    cuda_devcomm *devcomms;
    cuda_choice choice;
    cuda_nccl *nccl;        /* NULL: no GIN */
    uint32_t gin_kind;      /* ist_gin_kind, equal on all ranks */
    uint32_t nccl_lsa_size; /* of NCCL's own teams; 0: it was not asked */
    char gin_reason[256];
    struct cuda_coll *coll; /* native collectives, NULL: not opened */
} cuda_comm;

/* ---- cuda_comm.c ----------------------------------------------------------------------------- */

ist_status cuda_id_create(void *self, uint8_t *id);
ist_status cuda_comm_open(void *self, const ist_backend_comm_desc *desc, uint64_t *number,
                          ist_backend_comm_info *info);
ist_status cuda_comm_close(void *self, uint64_t number);
ist_status cuda_comm_abort(void *self, uint64_t number);
ist_status cuda_comm_exchange(void *self, uint64_t number, const void *send, size_t bytes,
                              void *recv, uint64_t deadline_ns, uint64_t *lost_words);
void cuda_comms_close(cuda_rank *rank);

/*
 * All-gather in which nobody may be missing; `fd` (-1: none) travels along. The call holds the
 * result until cuda_comm_release().
 */
ist_status cuda_comm_gather(cuda_comm *comm, const void *send, size_t bytes, int fd,
                            cuda_call *call);
void cuda_comm_release(cuda_comm *comm, cuda_call *call);

/* ---- cuda_choice.c --------------------------------------------------------------------------- */

/* Chooses load/store teams, and whether GIN may be used, alike on all ranks. Collective. */
ist_status cuda_choice_open(cuda_comm *comm);
void cuda_choice_close(cuda_comm *comm);
/* Rank 0 says what was chosen and what is not there; `first`: and where the topology says otherwise. */
void cuda_choice_tell(const cuda_comm *comm, bool first);
ist_status cuda_comm_ground(void *self, uint64_t number, ist_backend_ground *ground, uint32_t *gpus,
                            uint64_t *maps);

/* ---- cuda_team.c ----------------------------------------------------------------------------- */

void cuda_place_fill(const cuda_rank *rank, uint32_t lsa_size_max, cuda_place *place);
/* Which members' memory this rank can map: a bit each. */
void cuda_team_reach(const cuda_comm *comm, uint64_t *reach);

/* ---- cuda_peer.c ----------------------------------------------------------------------------- */

/* Says what this rank opens; *fd for peers in other processes, -1: none needed. */
ist_status cuda_offer_fill(const cuda_comm *comm, const cuda_chunk *chunk, CUdeviceptr base,
                           uint64_t bytes, cuda_offer *offer, int *fd);
/* Maps the offers of the team; on failure nothing stays mapped. */
ist_status cuda_mapping_open(cuda_comm *comm, cuda_round *round, void *local,
                             cuda_mapping *mapping);
void cuda_mapping_close(cuda_comm *comm, cuda_mapping *mapping);
void cuda_imports_close(cuda_rank *rank);

/* ---- cuda_window.c, cuda_devcomm.c ----------------------------------------------------------- */

ist_status cuda_window_open(void *self, uint64_t number, void *mem, size_t bytes, uint32_t *index);
ist_status cuda_window_close(void *self, uint64_t number, uint32_t index);
void cuda_windows_close(cuda_comm *comm);
/* The window's entry for device code. */
ist_dev_window cuda_window_entry(const cuda_comm *comm, uint32_t index);
/* Makes the table of members' addresses, if there is none yet. */
ist_status cuda_window_table(cuda_comm *comm);

ist_status cuda_devcomm_open(void *self, uint64_t number, const ist_devcomm_desc *desc,
                             const ist_dev_comm **dev);
ist_status cuda_devcomm_close(void *self, uint64_t number, const ist_dev_comm *dev);
/* Brings a window's entry into the tables of all device communicators. */
ist_status cuda_devcomms_publish(cuda_comm *comm, uint32_t index);
void cuda_devcomms_close(cuda_comm *comm);

#endif
