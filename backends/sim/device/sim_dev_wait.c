/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits for peers, masks, windows, the clock, the LSA barrier.
 */
#include "sim_device.h"

#include <string.h>

/* ---- windows --------------------------------------------------------------------------------- */

void *ist_window_local(ist_coop *coop, const ist_dev_comm *dev, uint32_t window, uint64_t offset)
{
    if (window >= dev->window_count || offset >= dev->windows[window].bytes) {
        sim_device_fault(
            coop, dev, "window_local", "offset %llu of window %u, which has %llu bytes",
            (unsigned long long)offset, window,
            window < dev->window_count ? (unsigned long long)dev->windows[window].bytes : 0ull);
        return NULL;
    }
    return (uint8_t *)dev->windows[window].local + offset;
}

void *ist_window_peer(ist_coop *coop, const ist_dev_comm *dev, uint32_t window, uint64_t offset,
                      uint32_t peer)
{
    (void)coop;
    if (!ist_dev_is_lsa(dev, peer) || window >= dev->window_count) {
        return NULL;
    }
    sim_devcomm *self = sim_devcomm_of(dev);
    uint64_t bytes = sim_window_bytes(self, window, peer);
    if (offset >= bytes) {
        return NULL;
    }
    uint32_t lsa_peer = peer - (dev->rank - dev->lsa_rank);
    return (uint8_t *)dev->windows[window].lsa[lsa_peer] + offset;
}

/* ---- clock, points --------------------------------------------------------------------------- */

uint64_t ist_clock_ns(ist_coop *coop)
{
    return sim_actor_now_ps(&coop->actor) / SIM_PS_PER_NS;
}

void ist_point(ist_coop *coop, const char *name)
{
    sim_rank *rank = coop->actor.rank;
    sim_world *world = rank->world;
    if (world->explore != NULL) {
        sim_agent *agent = &world->explore->agents[coop->actor.agent];
        agent->phase = name;
        agent->label = 0;
    }
    if (world->watched) {
        const ist_sim_event event = {.at_ps = world->now_ps,
                                     .kind = IST_SIM_POINT,
                                     .rank = (int32_t)rank->index,
                                     .peer = -1,
                                     .value = rank->op_number};
        sim_watch_event(world, &event, name);
    }
    if (!sim_faults_have_points(world->faults)) {
        return;
    }
    sim_coop_drain(coop);
    sim_actor_sync(&coop->actor);
    uint32_t cursor = 0;
    const ist_fault *fault;
    while ((fault = sim_fault_on_point(world->faults, rank->index, name, &cursor)) != NULL) {
        sim_event_log(world, IST_SIM_POINT, rank, -1, sim_log_name(&world->log, name),
                      rank->op_number);
        sim_rank_fault(rank, fault);
    }
}

/* ---- masks ----------------------------------------------------------------------------------- */

int ist_mask_active(ist_coop *coop, const ist_dev_comm *dev, uint32_t peer)
{
    sim_device_step_local(coop, coop->actor.world->cluster.load_ps >> SIM_LANES_SHIFT);
    if (coop->actor.world->explore != NULL) {
        sim_touch(coop->actor.world->explore, dev->mask, 8, false);
    }
    return dev->mask == NULL || ist_mask_test(dev->mask->words, peer);
}

int ist_aborted(ist_coop *coop, const ist_dev_comm *dev)
{
    (void)coop;
    return dev->mask != NULL && dev->mask->abort_word != 0;
}

/* Somebody was given up. */
static void sim_mask_explored(ist_coop *coop, const ist_dev_comm *dev)
{
    sim_explore *explore = coop->actor.world->explore;
    sim_touch(explore, dev->mask, 8, true);
    explore->gave_up = true;
}

int ist_mask_drop(ist_coop *coop, const ist_dev_comm *dev, const ist_dev_error *error)
{
    ist_dev_mask *mask = dev->mask;
    sim_rank *rank = coop->actor.rank;
    sim_coop_drain(coop);
    sim_device_step_ordered(coop, rank->world->cluster.atomic_ps);
    if (mask == NULL || error->peer >= mask->rank_count ||
        !ist_mask_test(mask->words, error->peer)) {
        return 0;
    }
    if (mask->fault_tolerant) {
        mask->words[error->peer / 64u] &= ~(1ull << (error->peer % 64u));
    } else if (mask->failed_status != 0) {
        return 0;
    } else {
        mask->failed_status = error->status;
    }
    if (mask->error_count < IST_DEV_ERRORS_MAX) {
        mask->errors[mask->error_count] = *error;
    }
    ++mask->error_count;
    if (mask->alarm != NULL) {
        *mask->alarm = 1;
    }
    if (rank->world->explore != NULL) {
        sim_mask_explored(coop, dev);
    }
    sim_event_log(rank->world, IST_SIM_MASK, rank, (int32_t)error->peer, 0, error->sequence);
    sim_wait_mask_changed(rank);
    return 1;
}

/* ---- waiting for peers ----------------------------------------------------------------------- */

static ist_wait_result sim_peer_state(ist_coop *coop, const ist_dev_comm *dev,
                                      const ist_peer_wait *wait, uint32_t peer)
{
    sim_devcomm *self = sim_devcomm_of(dev);
    (void)coop;
    if (wait->skip_self && peer == dev->rank) {
        return IST_WAIT_DONE;
    }
    if (dev->mask != NULL && !ist_mask_test(dev->mask->words, peer)) {
        return IST_WAIT_MASKED;
    }
    uint64_t value;
    if (ist_dev_is_lsa(dev, peer)) {
        value = wait->words[peer];
    } else {
        uint32_t context = dev->context_count > 0 ? peer % dev->context_count : 0;
        if (self->peer_errors[peer]) {
            return IST_WAIT_ERROR;
        }
        value = self->signals[(size_t)context * dev->signal_count + wait->signal_first + peer];
    }
    return value == wait->expected ? IST_WAIT_DONE : (ist_wait_result)SIM_RESULT_PENDING;
}

static bool sim_peer_wait_valid(ist_coop *coop, const ist_dev_comm *dev, const ist_peer_wait *wait)
{
    bool needs_gin = dev->lsa_size < dev->rank_count;
    if (needs_gin && (dev->context_count == 0 ||
                      (uint64_t)wait->signal_first + dev->rank_count > dev->signal_count)) {
        sim_device_fault(
            coop, dev, "wait_peers", "signals %u … of %u, in %u contexts, do not cover %u ranks",
            wait->signal_first, dev->signal_count, dev->context_count, dev->rank_count);
        return false;
    }
    return true;
}

static uint32_t sim_results_finish(uint8_t *results, uint32_t count, bool aborted)
{
    uint32_t failed = 0;
    for (uint32_t i = 0; i < count; ++i) {
        if (results[i] == SIM_RESULT_PENDING) {
            results[i] = aborted ? IST_WAIT_ABORTED : IST_WAIT_TIMEOUT;
        }
        failed += results[i] == IST_WAIT_TIMEOUT || results[i] == IST_WAIT_ERROR ||
                  results[i] == IST_WAIT_ABORTED;
    }
    return failed;
}

/* Those that are DONE: their words or signals were acquired at system scope. */
static void sim_peers_acquire(ist_coop *coop, const ist_dev_comm *dev, const ist_peer_wait *spec,
                              const uint8_t *results)
{
    sim_explore *explore = coop->actor.world->explore;
    sim_devcomm *self = sim_devcomm_of(dev);
    for (uint32_t peer = 0; peer < dev->rank_count; ++peer) {
        if (results[peer] != IST_WAIT_DONE || (spec->skip_self && peer == dev->rank)) {
            continue;
        }
        if (ist_dev_is_lsa(dev, peer)) {
            sim_word_acquire(explore, coop->actor.agent, &spec->words[peer], 8, IST_SCOPE_SYSTEM,
                             true, "wait_peers");
        } else {
            uint32_t context = peer % dev->context_count;
            sim_touch_named(explore, SIM_NAME_SIGNAL, coop->actor.rank, self->instance,
                            (uint64_t)context * dev->signal_count + spec->signal_first + peer, 1,
                            false);
            sim_key_acquire(
                explore, coop->actor.agent,
                &self->signals[(size_t)context * dev->signal_count + spec->signal_first + peer],
                true);
        }
    }
}

uint32_t ist_wait_peers(ist_coop *coop, const ist_dev_comm *dev, const ist_peer_wait *spec,
                        uint8_t *results)
{
    sim_coop_drain(coop);
    sim_device_step_ordered(coop, coop->actor.world->cluster.load_ps);
    if (!sim_peer_wait_valid(coop, dev, spec)) {
        memset(results, IST_WAIT_ERROR, dev->rank_count);
        return dev->rank_count;
    }
    sim_wait wait = {.coop = coop,
                     .dev = sim_devcomm_of(dev),
                     .kind = SIM_WAIT_PEERS,
                     .words = spec->words,
                     .expected = spec->expected,
                     .signal_first = spec->signal_first,
                     .results = results};
    for (uint32_t peer = 0; peer < dev->rank_count; ++peer) {
        results[peer] = (uint8_t)sim_peer_state(coop, dev, spec, peer);
        wait.pending += results[peer] == SIM_RESULT_PENDING;
    }
    bool aborted = ist_aborted(coop, dev) != 0;
    if (wait.pending > 0 && !aborted) {
        (void)sim_wait_block(&wait, spec->deadline_ns);
        aborted = wait.aborted;
    }
    uint32_t failed = sim_results_finish(results, dev->rank_count, aborted);
    if (coop->actor.world->explore != NULL) {
        sim_explore *explore = coop->actor.world->explore;
        bool masked = memchr(results, IST_WAIT_MASKED, dev->rank_count) != NULL;
        explore->gave_up = explore->gave_up || failed > 0 || masked;
        sim_peers_acquire(coop, dev, spec, results);
    }
    ist_coop_sync(coop);
    return failed;
}

/* ---- LSA barrier ----------------------------------------------------------------------------- */

static bool sim_barrier_valid(ist_coop *coop, const ist_dev_comm *dev, uint32_t index)
{
    if (index >= dev->lsa_barrier_count) {
        sim_device_fault(coop, dev, "lsa_barrier", "barrier %u, there are %u", index,
                         dev->lsa_barrier_count);
        return false;
    }
    return true;
}

void ist_lsa_barrier_arrive(ist_coop *coop, const ist_dev_comm *dev, uint32_t index)
{
    if (!sim_barrier_valid(coop, dev, index)) {
        return;
    }
    sim_devcomm *self = sim_devcomm_of(dev);
    ist_coop_sync(coop);
    sim_device_step_ordered(coop, coop->actor.world->cluster.load_ps);
    uint32_t first = dev->rank - dev->lsa_rank;
    for (uint32_t i = 0; i < dev->lsa_size; ++i) {
        sim_devcomm *peer = sim_devcomm_peer(self, first + i);
        bool active = dev->mask == NULL || ist_mask_test(dev->mask->words, first + i);
        if (i == dev->lsa_rank || !active || peer == NULL || peer->closed) {
            continue;
        }
        sim_store_send(coop, &(sim_store){.target = peer->member->rank,
                                          .word = peer->barrier_inbox +
                                                  (size_t)index * dev->lsa_size + dev->lsa_rank,
                                          .value = self->barrier_epoch[index] + 1,
                                          .from = (int32_t)coop->actor.rank->index,
                                          .width = 8,
                                          .barrier_of = peer,
                                          .barrier = index,
                                          .member = dev->lsa_rank});
    }
}

ist_wait_result ist_lsa_barrier_wait(ist_coop *coop, const ist_dev_comm *dev, uint32_t index,
                                     uint64_t deadline_ns, uint8_t *results)
{
    if (!sim_barrier_valid(coop, dev, index)) {
        return IST_WAIT_ERROR;
    }
    sim_devcomm *self = sim_devcomm_of(dev);
    uint8_t *each =
        results != NULL ? results : sim_coop_scratch(coop, SIM_SCRATCH_BARRIER, dev->lsa_size);
    uint64_t expected = ++self->barrier_epoch[index];
    sim_wait wait = {.coop = coop,
                     .dev = self,
                     .kind = SIM_WAIT_BARRIER,
                     .words = self->barrier_inbox + (size_t)index * dev->lsa_size,
                     .expected = expected,
                     .results = each};
    sim_device_step_ordered(coop, coop->actor.world->cluster.load_ps);
    uint32_t first = dev->rank - dev->lsa_rank;
    for (uint32_t i = 0; i < dev->lsa_size; ++i) {
        bool active = dev->mask == NULL || ist_mask_test(dev->mask->words, first + i);
        bool here = i == dev->lsa_rank || wait.words[i] - expected <= UINT64_MAX / 2;
        each[i] = !active ? IST_WAIT_MASKED : here ? IST_WAIT_DONE : SIM_RESULT_PENDING;
        wait.pending += each[i] == SIM_RESULT_PENDING;
    }
    bool aborted = ist_aborted(coop, dev) != 0;
    if (wait.pending > 0 && !aborted) {
        (void)sim_wait_block(&wait, deadline_ns);
        aborted = wait.aborted;
    }
    uint32_t failed = sim_results_finish(each, dev->lsa_size, aborted);
    for (uint32_t i = 0; coop->actor.world->explore != NULL && i < dev->lsa_size; ++i) {
        if (i != dev->lsa_rank && each[i] == IST_WAIT_DONE) {
            sim_touch_named(coop->actor.world->explore, SIM_NAME_BARRIER, coop->actor.rank,
                            self->instance, (uint64_t)index * dev->lsa_size + i, 1, false);
            sim_word_acquire(coop->actor.world->explore, coop->actor.agent, &wait.words[i], 8,
                             IST_SCOPE_SYSTEM, true, "lsa_barrier_wait");
        }
    }
    ist_coop_sync(coop);
    if (aborted) {
        return IST_WAIT_ABORTED;
    }
    return failed > 0 ? IST_WAIT_TIMEOUT : IST_WAIT_DONE;
}

ist_wait_result ist_lsa_barrier_sync(ist_coop *coop, const ist_dev_comm *dev, uint32_t index,
                                     uint64_t deadline_ns, uint8_t *results)
{
    ist_lsa_barrier_arrive(coop, dev, index);
    return ist_lsa_barrier_wait(coop, dev, index, deadline_ns, results);
}
