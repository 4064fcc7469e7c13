/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The target's side. Records are taken in batches: first all data of the batch goes to its place, then
 * the signals of the batch are read, added to and written. Only this rank changes its signals, besides
 * its own kernels, which must not reset one while others raise it: so reading and writing is enough.
 */
#include "gin_comm.h"

#include <string.h>

/* Records of one ring in one batch, so that none starves. */
#define TURN_MAX 32u

typedef enum taking {
    TAKEN,
    LATER /* not in this batch */
} taking;

/* ---- what records name ----------------------------------------------------------------------- */

/* Number 0 is no region: found, and NULL. */
static bool find_region(const gin_comm *comm, uint32_t number, const gin_region **region)
{
    if (number > comm->region_count) {
        return false; /* its registration here is still to come */
    }
    *region = number != 0 ? comm->regions[number - 1u] : NULL;
    return true;
}

static uint8_t *range_of(gin_comm *comm, const gin_region *region, uint64_t offset, uint64_t bytes)
{
    uint8_t *range = gin_region_range(region, offset, bytes);
    if (range == NULL) {
        GIN_SAY(comm->log, GIN_LOG_WARN,
                "GIN/Isthmus: rank %u is asked for %llu bytes at %llu of region %u, which it does "
                "not have",
                comm->rank, (unsigned long long)bytes, (unsigned long long)offset, region->number);
        gin_comm_fail(comm, 0);
    }
    return range;
}

/* ---- taking ---------------------------------------------------------------------------------- */

static void take_data(gin_comm *comm, const gin_record *record, const gin_region *region)
{
    if (region == NULL || record->payload == 0) {
        return;
    }
    uint8_t *to = range_of(comm, region, record->target_offset, record->payload);
    if (to == NULL) {
        return;
    }
    if (region->device) {
        gin_lane_to_device(&comm->in, to, gin_record_data(record), record->payload);
        comm->batch.copied = true;
    } else {
        memcpy(to, gin_record_data(record), record->payload);
    }
}

static void take_signal(gin_comm *comm, const gin_record *record, const gin_region *region)
{
    gin_batch *batch = &comm->batch;
    uint8_t *address =
        region != NULL ? range_of(comm, region, record->signal_offset, sizeof(uint64_t)) : NULL;
    uint32_t at = 0;
    if (address == NULL) {
        return;
    }
    while (at < batch->word_count && batch->words[at].address != address) {
        ++at;
    }
    if (at == batch->word_count) {
        batch->words[batch->word_count++] =
            (gin_word){.address = address, .device = region->device};
    }
    batch->words[at].sum += record->signal_value;
}

/* The bytes go back as an operation of this rank's own. */
static bool take_get(gin_comm *comm, uint32_t source, const gin_record *record,
                     const gin_region *from)
{
    gin_request *unused = NULL;
    gin_request reply = {.source = from,
                         .source_offset = record->signal_offset,
                         .bytes = record->bytes,
                         .peer = source,
                         .internal = true,
                         .head = {.kind = GIN_RECORD_REPLY,
                                  .target_region = record->target_region,
                                  .target_offset = record->target_offset,
                                  .token = record->token}};
    if (from == NULL || range_of(comm, from, record->signal_offset, record->bytes) == NULL) {
        reply.source = NULL;
        reply.bytes = 0;
    }
    return gin_post(comm, &reply, &unused) == GIN_OK;
}

static taking take(gin_comm *comm, uint32_t source)
{
    gin_peer *peer = &comm->peers[source];
    gin_batch *batch = &comm->batch;
    const gin_record *record = gin_ring_peek(&peer->in);
    const gin_region *target = NULL;
    const gin_region *signal = NULL;
    if (record == NULL || batch->word_count == GIN_WORDS_MAX ||
        batch->token_count == GIN_WORDS_MAX) {
        return LATER;
    }
    if (peer->held < record->hold) {
        ++peer->held;
        return LATER;
    }
    if (!find_region(comm, record->target_region, &target) ||
        !find_region(comm, record->signal_region, &signal)) {
        return LATER;
    }
    if (record->kind == GIN_RECORD_GET) {
        if (!take_get(comm, source, record, signal)) {
            return LATER;
        }
    } else {
        take_data(comm, record, target);
        take_signal(comm, record, signal);
        if (record->token != 0) {
            batch->tokens[batch->token_count++] = record->token;
        }
    }
    peer->held = 0;
    ++comm->applied_count;
    gin_ring_pass(&peer->in, record);
    return TAKEN;
}

static bool gather(gin_comm *comm)
{
    bool any = false;
    for (uint32_t source = 0; source < comm->rank_count; ++source) {
        uint32_t turns = 0;
        while (turns < TURN_MAX && take(comm, source) == TAKEN) {
            ++turns;
        }
        any = any || turns > 0;
    }
    return any;
}

/* ---- a batch --------------------------------------------------------------------------------- */

/* @return whether there was anything */
static bool batch_begin(gin_comm *comm)
{
    gin_batch *batch = &comm->batch;
    bool reads = false;
    batch->word_count = 0;
    batch->token_count = 0;
    batch->copied = false;
    if (!gather(comm)) {
        return false;
    }
    for (uint32_t i = 0; i < batch->word_count; ++i) {
        if (batch->words[i].device) {
            gin_lane_from_device(&comm->in, &comm->words[i], batch->words[i].address,
                                 sizeof(uint64_t));
            reads = true;
        }
    }
    batch->phase = reads ? GIN_PHASE_READING : GIN_PHASE_WRITING;
    batch->mark = reads || batch->copied ? gin_lane_mark(&comm->in) : comm->in.reached;
    return true;
}

static void batch_add(gin_comm *comm)
{
    gin_batch *batch = &comm->batch;
    for (uint32_t i = 0; i < batch->word_count; ++i) {
        if (batch->words[i].device) {
            comm->words[i] += batch->words[i].sum;
            gin_lane_to_device(&comm->in, batch->words[i].address, &comm->words[i],
                               sizeof(uint64_t));
        }
    }
    batch->phase = GIN_PHASE_WRITING;
    batch->mark = gin_lane_mark(&comm->in);
}

static void batch_end(gin_comm *comm)
{
    gin_batch *batch = &comm->batch;
    for (uint32_t i = 0; i < batch->word_count; ++i) {
        if (!batch->words[i].device) {
            _Atomic uint64_t *word = (_Atomic uint64_t *)(void *)batch->words[i].address;
            atomic_fetch_add_explicit(word, batch->words[i].sum, memory_order_release);
        }
    }
    for (uint32_t i = 0; i < batch->token_count; ++i) {
        ((gin_request *)(uintptr_t)batch->tokens[i])->done = true;
    }
    for (uint32_t source = 0; source < comm->rank_count; ++source) {
        gin_ring_release(&comm->peers[source].in);
    }
    batch->phase = GIN_PHASE_IDLE;
}

bool gin_apply_finish(gin_comm *comm)
{
    gin_batch *batch = &comm->batch;
    if (batch->phase == GIN_PHASE_READING && comm->in.reached >= batch->mark) {
        batch_add(comm);
    }
    if (batch->phase == GIN_PHASE_WRITING && comm->in.reached >= batch->mark) {
        batch_end(comm);
    }
    return batch->phase == GIN_PHASE_IDLE;
}

/* At most one batch is begun, so that senders get their turn. */
void gin_apply_progress(gin_comm *comm)
{
    if (comm->has_device) {
        gin_lane_poll(&comm->in);
    }
    if (gin_apply_finish(comm) && batch_begin(comm)) {
        (void)gin_apply_finish(comm);
    }
}

bool gin_apply_idle(gin_comm *comm)
{
    bool idle = comm->batch.phase == GIN_PHASE_IDLE;
    for (uint32_t source = 0; idle && source < comm->rank_count; ++source) {
        idle = gin_ring_peek(&comm->peers[source].in) == NULL;
    }
    return idle;
}
