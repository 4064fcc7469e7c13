/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cooperative groups in the simulator: a block is one fiber that does the work of all lanes.
 */
#include "sim_device.h"

#include <stdarg.h>
#include <stdio.h>

static void sim_device_report(ist_coop *coop, const ist_dev_comm *dev, ist_status status,
                              const char *call, const char *reason)
{
    sim_rank *rank = coop->actor.rank;
    ist_error details = {.rank = dev != NULL ? (int32_t)dev->rank : (int32_t)rank->index,
                         .peer = IST_RANK_NONE,
                         .sequence = coop->launch->sequence};
    (void)snprintf(details.operation, sizeof(details.operation), "%s", call);
    (void)snprintf(details.object, sizeof(details.object), "%.31s", coop->launch->kernel->name);
    if (rank->device_fault == IST_OK) {
        rank->device_fault = status;
    }
    sim_explore *explore = rank->world->explore;
    if (explore != NULL && sim_detects(explore, IST_FINDING_OUTSIDE)) {
        sim_finding_words(explore, IST_FINDING_OUTSIDE, rank, status,
                          "kernel %s, block %u of rank %u: %s: %s", coop->launch->kernel->name,
                          coop->block, rank->index, call, reason);
    }
    (void)ist_raise(status, &details, "kernel %s, block %u of rank %u: %s: %s",
                    coop->launch->kernel->name, coop->block, rank->index, call, reason);
}

void sim_device_fault(ist_coop *coop, const ist_dev_comm *dev, const char *call, const char *format,
                      ...)
{
    char reason[160];
    va_list list;
    va_start(list, format);
    (void)vsnprintf(reason, sizeof(reason), format, list);
    va_end(list);
    sim_device_report(coop, dev, IST_ERR_DEVICE, call, reason);
}

void sim_device_no_memory(ist_coop *coop, const char *call, uint64_t bytes)
{
    char reason[64];
    (void)snprintf(reason, sizeof(reason), "no memory for %llu bytes", (unsigned long long)bytes);
    sim_device_report(coop, NULL, IST_ERR_MEMORY, call, reason);
}

uint32_t ist_coop_block(const ist_coop *coop)
{
    return coop->block;
}

uint32_t ist_coop_block_count(const ist_coop *coop)
{
    return coop->block_count;
}

int ist_coop_elect(const ist_coop *coop)
{
    (void)coop;
    return 1;
}

void sim_coop_await_rows(ist_coop *coop)
{
    sim_world *world = coop->actor.world;
    sim_wait wait = {.coop = coop, .kind = SIM_WAIT_ROWS, .pending = coop->transfers};
    if (!sim_wait_block(&wait,
                        sim_add_sat(world->now_ps / SIM_PS_PER_NS, world->setup->deadline_ns))) {
        sim_device_fault(coop, NULL, "row", "%u rows did not arrive in %llu ns: a link is down",
                         coop->transfers, (unsigned long long)world->setup->deadline_ns);
        coop->serial = ++world->coop_serial; /* late rows are somebody else's now */
        coop->transfers = 0;
    }
}

void ist_coop_sync(ist_coop *coop)
{
    sim_coop_drain(coop);
    if (coop->actor.world->explore != NULL) {
        sim_agent_sync(coop->actor.world->explore, coop->actor.agent);
    }
    sim_device_step_local(coop, coop->actor.world->cluster.sync_ps);
}

void *sim_coop_scratch(ist_coop *coop, uint32_t slot, uint32_t bytes)
{
    if (coop->scratch_bytes[slot] < bytes) {
        void *larger = ist_alloc(1, bytes);
        if (larger == NULL) {
            /* A kernel cannot go on without its scratch and has no way to say so. */
            sim_device_no_memory(coop, "coop_scratch", bytes);
            coop->actor.state = SIM_ENDED;
            sim_fiber_leave(&coop->actor.fiber);
        }
        ist_free(coop->scratch[slot]);
        coop->scratch[slot] = larger;
        coop->scratch_bytes[slot] = bytes;
    }
    return coop->scratch[slot];
}

void *ist_coop_scratch(ist_coop *coop, uint32_t slot, uint32_t bytes)
{
    static uint64_t nowhere[2];
    if (slot >= SIM_SCRATCH_SLOTS) {
        sim_device_fault(coop, NULL, "coop_scratch", "slot %u, there are %u", slot,
                         SIM_SCRATCH_SLOTS);
        return nowhere;
    }
    return sim_coop_scratch(coop, slot, bytes);
}

uint64_t ist_coop_fetch_add(ist_coop *coop, uint64_t *word, uint64_t value, ist_order order,
                            ist_scope scope)
{
    ist_coop_sync(coop);
    return ist_fetch_add_u64(coop, word, value, order, scope);
}

static void sim_wait_word_done(ist_coop *coop, const uint64_t *word, ist_scope scope)
{
    sim_explore *explore = coop->actor.world->explore;
    if (explore != NULL) {
        sim_agent_sync(explore, coop->actor.agent);
        sim_word_acquire(explore, coop->actor.agent, word, 8, scope, true, "coop_wait_word");
    }
}

ist_wait_result ist_coop_wait_word(ist_coop *coop, const ist_dev_comm *dev, const uint64_t *word,
                                   uint64_t least, uint64_t deadline_ns, ist_scope scope)
{
    sim_coop_drain(coop);
    sim_device_step_ordered(coop, coop->actor.world->cluster.load_ps);
    if (*word >= least) {
        sim_wait_word_done(coop, word, scope);
        return IST_WAIT_DONE;
    }
    if (dev != NULL && ist_aborted(coop, dev)) {
        return IST_WAIT_ABORTED;
    }
    sim_wait wait = {.coop = coop,
                     .dev = dev != NULL ? sim_devcomm_of(dev) : NULL,
                     .kind = SIM_WAIT_WORD,
                     .pending = 1,
                     .words = word,
                     .expected = least};
    bool done = sim_wait_block(&wait, deadline_ns);
    if (wait.aborted) {
        return IST_WAIT_ABORTED;
    }
    sim_wait_word_done(coop, word, scope);
    return done || *word >= least ? IST_WAIT_DONE : IST_WAIT_TIMEOUT;
}

/* One word after the other: all are waited for until the same time. */
ist_wait_result ist_coop_wait_tagged(ist_coop *coop, const ist_dev_comm *dev,
                                     const uint64_t *const *words, uint32_t *data, uint32_t count,
                                     uint32_t tag, uint64_t deadline_ns, ist_scope scope)
{
    uint64_t least = (uint64_t)tag << 32;
    ist_coop_sync(coop);
    for (uint32_t i = 0; i < count; ++i) {
        if (words[i] == NULL) {
            continue;
        }
        ist_wait_result result = ist_coop_wait_word(coop, dev, words[i], least, deadline_ns, scope);
        if (result != IST_WAIT_DONE) {
            return result;
        }
        uint64_t value = ist_load_u64(coop, words[i], IST_RELAXED, scope);
        if (value >> 32 != tag) { /* a later tag: the one that is waited for has gone by */
            return IST_WAIT_TIMEOUT;
        }
        data[i] = (uint32_t)value;
    }
    return IST_WAIT_DONE;
}

uint32_t ist_coop_scan(ist_coop *coop, uint32_t *values, uint32_t count)
{
    uint32_t total = 0;
    for (uint32_t i = 0; i < count; ++i) {
        uint32_t value = values[i];
        values[i] = total;
        total += value;
    }
    ist_coop_sync(coop);
    return total;
}

void ist_coop_rank_by_key(ist_coop *coop, const int32_t *keys, uint32_t count, uint32_t *ordinals,
                          uint32_t *totals, uint32_t key_count)
{
    for (uint32_t key = 0; key < key_count; ++key) {
        totals[key] = 0;
    }
    sim_device_row(coop, keys, 4ull * count, false, "coop_rank_by_key");
    sim_device_row(coop, ordinals, 4ull * count, true, "coop_rank_by_key");
    sim_device_row(coop, totals, 4ull * key_count, true, "coop_rank_by_key");
    for (uint32_t i = 0; i < count; ++i) {
        bool valid = keys[i] >= 0 && (uint32_t)keys[i] < key_count;
        ordinals[i] = valid ? totals[keys[i]]++ : UINT32_MAX;
    }
    uint64_t accesses = 2ull * count + key_count;
    sim_device_spend(coop, (accesses * coop->actor.world->cluster.load_ps) >> SIM_LANES_SHIFT);
    ist_coop_sync(coop);
}
