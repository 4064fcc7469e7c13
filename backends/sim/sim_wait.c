/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device waits: what a block waits for, and who tells it. A wait is an entry in the list of the
 * rank whose memory or signals it watches; every write that could end one looks there, so a wait
 * costs nothing while nothing happens.
 */
#include "sim_explore.h"

void sim_wait_remove(sim_rank *rank, sim_wait *wait)
{
    sim_wait **link = &rank->waits;
    while (*link != NULL && *link != wait) {
        link = &(*link)->next;
    }
    if (*link != NULL) {
        *link = wait->next;
    }
}

static void sim_wait_satisfied(sim_wait *wait)
{
    if (wait->pending > 0 && --wait->pending == 0) {
        sim_actor_wake(&wait->coop->actor);
    }
}

/* One entry of a wait for many peers is over. */
static void sim_wait_peer_over(sim_wait *wait, uint32_t peer, ist_wait_result result)
{
    if (wait->results[peer] == SIM_RESULT_PENDING) {
        wait->results[peer] = (uint8_t)result;
        sim_wait_satisfied(wait);
    }
}

/* Rolling compare: a value that is at most half the range ahead counts as reached. */
static bool sim_reached(uint64_t value, uint64_t least)
{
    return value - least <= UINT64_MAX / 2;
}

static void sim_wait_check_words(sim_wait *wait, uint64_t first, uint64_t bytes)
{
    uint64_t base = (uint64_t)(uintptr_t)wait->words;
    uint32_t count = wait->kind == SIM_WAIT_PEERS ? wait->dev->pub.rank_count : 1;
    if (first >= base + (uint64_t)count * 8 || first + bytes <= base) {
        return;
    }
    if (wait->kind == SIM_WAIT_WORD) {
        if (*wait->words >= wait->expected) {
            sim_wait_satisfied(wait);
        }
        return;
    }
    uint64_t low = first > base ? (first - base) / 8 : 0;
    uint64_t high = (first + bytes - base + 7) / 8;
    for (uint64_t i = low; i < high && i < count; ++i) {
        if (wait->words[i] == wait->expected && ist_dev_is_lsa(&wait->dev->pub, (uint32_t)i)) {
            sim_wait_peer_over(wait, (uint32_t)i, IST_WAIT_DONE);
        }
    }
}

void sim_wait_word_written(sim_rank *rank, const void *address, uint64_t bytes)
{
    for (sim_wait *wait = rank->waits, *next; wait != NULL; wait = next) {
        next = wait->next;
        if (wait->kind == SIM_WAIT_PEERS || wait->kind == SIM_WAIT_WORD) {
            sim_wait_check_words(wait, (uint64_t)(uintptr_t)address, bytes);
        }
    }
}

void sim_wait_barrier_written(sim_devcomm *dev, uint32_t barrier, uint32_t member)
{
    const uint64_t *words = dev->barrier_inbox + (size_t)barrier * dev->pub.lsa_size;
    for (sim_wait *wait = dev->member->rank->waits, *next; wait != NULL; wait = next) {
        next = wait->next;
        if (wait->kind == SIM_WAIT_BARRIER && wait->words == words &&
            sim_reached(words[member], wait->expected)) {
            sim_wait_peer_over(wait, member, IST_WAIT_DONE);
        }
    }
}

void sim_wait_signal_raised(sim_devcomm *dev, uint32_t context, uint32_t signal)
{
    uint64_t value = dev->signals[(size_t)context * dev->pub.signal_count + signal];
    for (sim_wait *wait = dev->member->rank->waits, *next; wait != NULL; wait = next) {
        next = wait->next;
        if (wait->dev != dev) {
            continue;
        }
        if (wait->kind == SIM_WAIT_SIGNAL && wait->context == context &&
            wait->signal_first == signal && sim_reached(value, wait->expected)) {
            sim_wait_satisfied(wait);
        } else if (wait->kind == SIM_WAIT_PEERS && signal >= wait->signal_first &&
                   signal - wait->signal_first < dev->pub.rank_count) {
            uint32_t peer = signal - wait->signal_first;
            if (peer % dev->pub.context_count == context && value == wait->expected &&
                !ist_dev_is_lsa(&dev->pub, peer)) {
                sim_wait_peer_over(wait, peer, IST_WAIT_DONE);
            }
        }
    }
}

void sim_wait_counter_raised(sim_devcomm *dev, uint32_t context, uint32_t counter)
{
    uint64_t value = dev->counters[(size_t)context * dev->pub.counter_count + counter];
    for (sim_wait *wait = dev->member->rank->waits, *next; wait != NULL; wait = next) {
        next = wait->next;
        if (wait->dev == dev && wait->kind == SIM_WAIT_COUNTER && wait->context == context &&
            wait->signal_first == counter && sim_reached(value, wait->expected)) {
            sim_wait_satisfied(wait);
        }
    }
}

void sim_wait_put_done(sim_devcomm *dev, const sim_put *put)
{
    for (sim_wait *wait = dev->member->rank->waits, *next; wait != NULL; wait = next) {
        next = wait->next;
        if (wait->dev == dev && wait->kind == SIM_WAIT_FLUSH && wait->context == put->context &&
            wait->coop->serial == put->block_serial) {
            wait->failed = wait->failed || put->error;
            sim_wait_satisfied(wait);
        }
    }
}

static bool sim_mask_has(const ist_dev_mask *mask, uint32_t peer)
{
    return mask == NULL || ist_mask_test(mask->words, peer) != 0;
}

/* Which communicator rank entry `index` of a wait stands for. */
static uint32_t sim_wait_peer_of(const sim_wait *wait, uint32_t index)
{
    const ist_dev_comm *pub = &wait->dev->pub;
    return wait->kind == SIM_WAIT_BARRIER ? pub->rank - pub->lsa_rank + index : index;
}

static void sim_wait_review(sim_wait *wait)
{
    const ist_dev_mask *mask = wait->dev != NULL ? wait->dev->pub.mask : NULL;
    if (mask == NULL) {
        return;
    }
    if (mask->abort_word != 0 && !wait->aborted) {
        wait->aborted = true;
        wait->pending = 1;
        sim_wait_satisfied(wait);
        return;
    }
    if (wait->kind == SIM_WAIT_PEERS || wait->kind == SIM_WAIT_BARRIER) {
        uint32_t count =
            wait->kind == SIM_WAIT_PEERS ? wait->dev->pub.rank_count : wait->dev->pub.lsa_size;
        for (uint32_t i = 0; i < count && wait->pending > 0; ++i) {
            if (!sim_mask_has(mask, sim_wait_peer_of(wait, i))) {
                sim_wait_peer_over(wait, i, IST_WAIT_MASKED);
            }
        }
    }
}

void sim_wait_mask_changed(sim_rank *rank)
{
    for (sim_wait *wait = rank->waits, *next; wait != NULL; wait = next) {
        next = wait->next;
        sim_wait_review(wait);
    }
}

void sim_wait_peer_error(sim_devcomm *dev, uint32_t peer)
{
    for (sim_wait *wait = dev->member->rank->waits, *next; wait != NULL; wait = next) {
        next = wait->next;
        if (wait->dev == dev && wait->kind == SIM_WAIT_PEERS && !ist_dev_is_lsa(&dev->pub, peer)) {
            sim_wait_peer_over(wait, peer, IST_WAIT_ERROR);
        }
    }
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* What was there was not enough: that it was read matters to who writes it. */
static void sim_wait_touch(sim_explore *explore, const sim_wait *wait)
{
    const sim_devcomm *dev = wait->dev;
    const sim_rank *rank = wait->coop->actor.rank;
    uint32_t instance = dev != NULL ? dev->instance : 0;
    uint64_t first = dev != NULL ? (uint64_t)wait->context * dev->pub.signal_count : 0;
    switch (wait->kind) {
    case SIM_WAIT_WORD: sim_touch(explore, wait->words, 8, false); break;
    case SIM_WAIT_BARRIER:
        sim_touch_named(explore, SIM_NAME_BARRIER, rank, instance,
                        (uint64_t)(wait->words - dev->barrier_inbox), dev->pub.lsa_size, false);
        break;
    case SIM_WAIT_PEERS:
        sim_touch(explore, wait->words, 8u * dev->pub.rank_count, false);
        sim_touch_named(explore, SIM_NAME_SIGNAL, rank, instance, 0,
                        (uint64_t)dev->pub.signal_count * dev->pub.context_count, false);
        break;
    case SIM_WAIT_SIGNAL:
        sim_touch_named(explore, SIM_NAME_SIGNAL, rank, instance, first + wait->signal_first, 1,
                        false);
        break;
    case SIM_WAIT_COUNTER:
        sim_touch_named(explore, SIM_NAME_COUNTER, rank, instance,
                        (uint64_t)wait->context * dev->pub.counter_count + wait->signal_first, 1,
                        false);
        break;
    case SIM_WAIT_FLUSH:
        sim_touch_named(explore, SIM_NAME_FLUSH, rank, instance, wait->context, 1, false);
        break;
    case SIM_WAIT_ROWS: break;
    }
}

/* Puts the wait into the list and blocks until it is over or the deadline; false: timed out. */
bool sim_wait_block(sim_wait *wait, uint64_t deadline_ns)
{
    ist_coop *coop = wait->coop;
    sim_rank *rank = coop->actor.rank;
    wait->began_ps = rank->world->now_ps;
    sim_event_log(rank->world, IST_SIM_WAIT, rank, -1, (uint32_t)wait->kind, wait->expected);
    if (rank->world->explore != NULL) {
        sim_wait_touch(rank->world->explore, wait);
    }
    wait->next = rank->waits;
    rank->waits = wait;
    coop->wait = wait;
    bool done = sim_actor_block(&coop->actor, sim_ps_from_ns(deadline_ns));
    sim_wait_remove(rank, wait);
    coop->wait = NULL;
    if (!done && rank->world->explore != NULL) {
        sim_wait_in_vain(rank->world->explore, wait);
    }
    sim_event_log(rank->world, IST_SIM_WAIT_END, rank, -1, done ? IST_WAIT_DONE : IST_WAIT_TIMEOUT,
                  rank->world->now_ps - wait->began_ps);
    return done;
}
