/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What native collectives do to memory, and, exploring, which accesses and edges that makes. Data go
 * from a rank's buffers to another's at the end of a run, when all who take part have come.
 */
#include "sim_coll.h"
#include "sim_explore.h"

#include <string.h>

static uint64_t share_bytes(const ist_backend_coll *call)
{
    return call->count * ist_dtype_bytes(call->dtype);
}

static const uint8_t *send_of(const sim_coll_run *run, uint32_t rank)
{
    return run->calls[rank]->call.send;
}

static uint8_t *recv_of(const sim_coll_run *run, uint32_t rank)
{
    return run->calls[rank]->call.recv;
}

static bool is_reduction(ist_coll_kind kind)
{
    return kind == IST_COLL_ALL_REDUCE || kind == IST_COLL_REDUCE ||
           kind == IST_COLL_REDUCE_SCATTER;
}

static void give(const sim_coll_run *run, uint32_t rank, uint8_t *to, const uint8_t *from,
                 uint64_t bytes)
{
    if (bytes == 0) {
        return;
    }
    if (to != from) {
        memmove(to, from, bytes);
    }
    sim_wait_word_written(run->calls[rank]->batch->member->member->rank, to, bytes);
}

/* ---- reductions ------------------------------------------------------------------------------ */

static bool receives(const sim_coll_run *run, uint32_t rank)
{
    return run->shape.kind != IST_COLL_REDUCE || rank == run->shape.peer;
}

/* `at`: elements from the start of the send buffers; results go to [to] of who receives. */
static void combine_chunk(const sim_coll_run *run, sim_coll_term *terms, uint64_t at,
                          uint32_t count, uint32_t only, uint64_t to)
{
    const uint64_t unit = ist_dtype_bytes(run->shape.dtype);
    uint8_t *first = NULL;
    for (uint32_t r = 0; r < run->room; ++r) {
        terms[r] = (sim_coll_term){send_of(run, r) + at * unit, run->calls[r]->call.scale};
    }
    for (uint32_t r = 0; r < run->room; ++r) {
        if ((only != UINT32_MAX && r != only) || !receives(run, r)) {
            continue;
        }
        uint8_t *dst = recv_of(run, r) + to * unit;
        if (first == NULL) {
            sim_coll_combine(dst, terms, run->room, count, run->shape.dtype, run->shape.reduction,
                             run->coll->work);
            first = dst;
        }
        give(run, r, dst, first, count * unit);
    }
}

static void reduce(const sim_coll_run *run)
{
    /* Behind the two chunks of work. */
    sim_coll_term *terms =
        (sim_coll_term *)(void *)(run->coll->work + 2u * SIM_COLL_CHUNK * sizeof(uint64_t));
    const bool scatter = run->shape.kind == IST_COLL_REDUCE_SCATTER;
    for (uint32_t share = 0; share < (scatter ? run->room : 1u); ++share) {
        for (uint64_t i = 0; i < run->shape.count; i += SIM_COLL_CHUNK) {
            const uint64_t left = run->shape.count - i;
            const uint32_t count = left < SIM_COLL_CHUNK ? (uint32_t)left : SIM_COLL_CHUNK;
            combine_chunk(run, terms, share * run->shape.count + i, count,
                          scatter ? share : UINT32_MAX, i);
        }
    }
}

/* ---- copies ---------------------------------------------------------------------------------- */

static void copy(const sim_coll_run *run)
{
    const uint64_t share = share_bytes(&run->shape);
    for (uint32_t r = 0; r < run->room; ++r) {
        for (uint32_t s = 0; s < run->room; ++s) {
            if (run->shape.kind == IST_COLL_ALL_GATHER) {
                give(run, r, recv_of(run, r) + s * share, send_of(run, s), share);
            } else {
                give(run, r, recv_of(run, r) + s * share, send_of(run, s) + r * share, share);
            }
        }
    }
}

void sim_coll_move(const sim_coll_run *run)
{
    const uint64_t share = share_bytes(&run->shape);
    if (share == 0) {
        return;
    }
    if (run->number == UINT64_MAX) {
        give(run, 1, run->calls[1]->call.recv, run->calls[0]->call.send, share);
    } else if (is_reduction(run->shape.kind)) {
        reduce(run);
    } else if (run->shape.kind == IST_COLL_BROADCAST) {
        for (uint32_t r = 0; r < run->room; ++r) {
            give(run, r, recv_of(run, r), send_of(run, run->shape.peer), share);
        }
    } else {
        copy(run);
    }
}

/* ---- exploring ------------------------------------------------------------------------------- */

static bool sends(const sim_coll_run *run, uint32_t slot)
{
    return run->number == UINT64_MAX
               ? slot == 0
               : run->shape.kind != IST_COLL_BROADCAST || slot == run->shape.peer;
}

static bool gets(const sim_coll_run *run, uint32_t slot)
{
    return run->number == UINT64_MAX ? slot == 1 : receives(run, slot);
}

static void touch_buffers(sim_explore *explore, const sim_coll_run *run, uint32_t slot, bool write)
{
    const ist_backend_coll *call = &run->calls[slot]->call;
    const uint64_t share = share_bytes(call);
    const bool whole = call->kind == IST_COLL_ALL_TO_ALL ||
                       call->kind == (write ? IST_COLL_ALL_GATHER : IST_COLL_REDUCE_SCATTER);
    const void *buffer = write ? call->recv : call->send;
    const uint64_t bytes = whole ? share * run->room : share;
    if (bytes > 0) {
        sim_shadow_access(explore, sim_agent_stream(explore, run->calls[slot]->batch->stream),
                          buffer, bytes, write, SIM_WEAK, sim_coll_text(call->kind));
    }
}

void sim_coll_observe(const sim_coll_run *run)
{
    sim_explore *explore = run->coll->comm->world->explore;
    for (uint32_t s = 0; s < run->room; ++s) {
        if (sends(run, s)) {
            touch_buffers(explore, run, s, false);
        }
    }
    for (uint32_t r = 0; r < run->room; ++r) {
        uint32_t agent = sim_agent_stream(explore, run->calls[r]->batch->stream);
        for (uint32_t s = 0; s < run->room; ++s) {
            if (s != r && gets(run, r) && sends(run, s)) {
                sim_agent_join(explore, agent, run->calls[s]->batch->released);
            }
        }
        if (gets(run, r)) {
            touch_buffers(explore, run, r, true);
        }
    }
}
