/* SPDX-License-Identifier: Apache-2.0 */
/* Links of a simulated cluster and the transfers that share them. A GPU has NVLink out, NVLink in and
 * memory (HBM); a NIC has out and in; GPU g of a node uses NIC g * nics / gpus of its node.
 * Integers only: bytes, bytes per second, picoseconds. Nothing here calls back or keeps time itself.
 *
 * IN_ORDER: a link serves transfers in the order of sim_links_begin(); the end is known at once.
 * MAX_MIN:  transfers share links max-min fairly; every begin and end changes the others' rates.
 *
 * Times given to one sim_links never decrease. Under MAX_MIN, ends that are due are popped before a
 * later begin, cancel or scale.
 */
#ifndef SIM_LINK_H
#define SIM_LINK_H

#include "topo_cluster.h"

#include <isthmus/unstable/sim.h>
#include <stdbool.h>
#include <stdint.h>

#define SIM_LINKS_A_ROUTE 4u
#define SIM_TIME_NEVER UINT64_MAX

typedef struct sim_links sim_links;

typedef enum sim_route_kind {
    SIM_ROUTE_LSA = 0,  /* load and store through NVLink; to itself: as LOCAL */
    SIM_ROUTE_GIN = 1,  /* through NICs, also inside a node */
    SIM_ROUTE_LOCAL = 2 /* memory of one GPU */
} sim_route_kind;

/* The caller's memory; zero it before the first use. */
typedef struct sim_transfer {
    struct sim_transfer *next, *prev; /* the caller's, except while in flight (MAX_MIN) or parked */
    uint64_t bytes;                   /* caller; LOCAL: bytes read plus bytes written */
    uint64_t end_ps;                  /* last byte has left the links; the latency comes on top */
    uint32_t link_count;
    uint32_t link[SIM_LINKS_A_ROUTE];
    uint32_t state; /* from here to `rate`: of sim_link.c */
    uint64_t sequence;
    uint64_t settled_ps;
    uint64_t left_high, left_low; /* bytes * 10^12 still to go at settled_ps, 128 bits */
    uint64_t rate;                /* bytes per second; 0: stands still */
    struct sim_transfer *link_next[SIM_LINKS_A_ROUTE], *link_prev[SIM_LINKS_A_ROUTE];
    void *owner; /* caller */
} sim_transfer;

/* One allocation for the first `rank_count` GPUs of the cluster.
 * IST_ERR_RANGE: more ranks than GPUs, or too many links; IST_ERR_MEMORY. */
ist_status sim_links_open(const ist_cluster *cluster, uint32_t rank_count, ist_link_model model,
                          sim_links **links);

/* NULL allowed. Transfers in flight are forgotten. */
void sim_links_close(sim_links *links);

/* Sets link[] and link_count of `transfer`, and the one-way latency of the route (LOCAL: 0).
 * Under IN_ORDER remote routes leave out HBM: a queue for a remote link would hold up local work.
 * IST_ERR_UNSUPPORTED: no such path, naming what is missing; IST_ERR_RANGE: no such rank. */
ist_status sim_links_route(const sim_links *links, uint32_t src_rank, uint32_t dst_rank,
                           sim_route_kind kind, sim_transfer *transfer, uint64_t *latency_ps);

/* Starts a routed transfer. IN_ORDER: true, and end_ps is set; SIM_TIME_NEVER means parked, because a
 * link of the route is down. MAX_MIN: false; the end comes through sim_links_next() and _pop(). */
bool sim_links_begin(sim_links *links, uint64_t now_ps, sim_transfer *transfer);

/* MAX_MIN: time of the next end; SIM_TIME_NEVER when there is none. IN_ORDER: SIM_TIME_NEVER. */
uint64_t sim_links_next(sim_links *links);

/* MAX_MIN: takes out a transfer that has ended at or before now_ps, by (end_ps, begin order), or NULL. */
sim_transfer *sim_links_pop(sim_links *links, uint64_t now_ps);

/* Takes out a transfer that is in flight (MAX_MIN) or parked; what it has moved stays counted.
 * Does nothing for another: an IN_ORDER booking stands. */
void sim_links_cancel(sim_links *links, uint64_t now_ps, sim_transfer *transfer);

/* Bytes a MAX_MIN transfer has moved by now_ps, whole bytes only. */
uint64_t sim_links_progress(sim_links *links, uint64_t now_ps, const sim_transfer *transfer);

/* Sets a link to num/den of its nominal rate; 0: down; den >= 1. IN_ORDER: what is booked stays. After
 * a link has come up, the caller empties sim_links_unpark(). */
void sim_links_scale(sim_links *links, uint64_t now_ps, uint32_t link, uint64_t num, uint64_t den);

/* Takes out the first parked transfer whose links are all up, to be begun again, or NULL. */
sim_transfer *sim_links_unpark(sim_links *links);

/* Links a fault between two ranks would touch, without HBM: those of the route from src to dst.
 * Returns how many; 0 when there is no such route. */
uint32_t sim_links_of_pair(const sim_links *links, uint32_t src_rank, uint32_t dst_rank,
                           sim_route_kind kind, uint32_t link[SIM_LINKS_A_ROUTE]);

/* Links are numbered 0 … count - 1, in an order that depends on the cluster and rank_count only. */
uint32_t sim_links_count(const sim_links *links);

/* What a link has carried and how long it was busy, up to now_ps (IN_ORDER: all that is booked).
 * MAX_MIN counts the bytes of a transfer when it ends or is cancelled. */
typedef struct sim_link_usage {
    uint64_t bytes;
    uint64_t busy_ps;
} sim_link_usage;

sim_link_usage sim_links_usage(const sim_links *links, uint64_t now_ps, uint32_t link);

/* Writes e.g. "nvlink out rank 3" or "nic out node 1 nic 2", cut to `capacity`, ending in a NUL. */
void sim_links_name(const sim_links *links, uint32_t link, char *text, size_t capacity);

#endif
