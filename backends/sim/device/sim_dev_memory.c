/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Words in memory: loads, stores, atomics, fences.
 *
 * A released word for another rank travels: it becomes visible one link latency after all rows
 * that the block has sent. Relaxed words are written at once; whoever reads them without having
 * acquired a released one reads something that the contract does not promise.
 */
#include "sim_device.h"

static bool sim_order_releases(ist_order order)
{
    return order == IST_RELEASE || order == IST_ACQ_REL;
}

static bool sim_order_acquires(ist_order order)
{
    return order == IST_ACQUIRE || order == IST_ACQ_REL;
}

static void sim_word_write(void *word, uint64_t value, uint32_t width)
{
    if (width == 4) {
        *(uint32_t *)word = (uint32_t)value;
    } else {
        *(uint64_t *)word = value;
    }
}

void sim_store_visible(sim_store *store)
{
    sim_rank *target = store->target;
    sim_world *world = target->world;
    /* A word for memory that was freed meanwhile must not hit its next owner. */
    if (store->barrier_of == NULL && sim_memory_find(target, store->word, store->width) == NULL) {
        ist_log(IST_LOG_INFO, "a word from rank %d to rank %u ends nowhere: its target was freed",
                store->from, target->index);
        sim_pool_give(&world->stores, store);
        return;
    }
    if (world->explore != NULL) {
        if (store->barrier_of != NULL) {
            sim_touch_named(world->explore, SIM_NAME_BARRIER, target, store->barrier_of->instance,
                            (uint64_t)(store->word - store->barrier_of->barrier_inbox), 1, true);
        }
        sim_word_arrive(world->explore, store->agent, store->word, store->value, store->width,
                        store->released);
    }
    sim_word_write(store->word, store->value, store->width);
    sim_event_log(world, IST_SIM_STORE, target, store->from, store->width, store->value);
    if (store->barrier_of != NULL) {
        sim_wait_barrier_written(store->barrier_of, store->barrier, store->member);
    } else {
        sim_wait_word_written(target, store->word, store->width);
    }
    sim_pool_give(&world->stores, store);
}

/* Latency of the way there, with what a fault plan adds. */
static uint64_t sim_store_latency(sim_rank *from, const sim_rank *target)
{
    sim_world *world = from->world;
    uint64_t latency_ps = world->cluster.nvlink_latency_ps;
    if (sim_faults_have_transfers(world->faults)) {
        const ist_fault *fault = sim_fault_on_transfer(world->faults, IST_FAULT_STORES, from->index,
                                                       target->index, world->now_ps);
        if (fault != NULL && fault->kind == IST_FAULT_DELAY) {
            latency_ps = sim_add_sat(latency_ps, sim_ps_from_ns(fault->duration_ns));
            sim_event_log(world, IST_SIM_FAULT, from, (int32_t)target->index, IST_FAULT_DELAY, 8);
        }
    }
    return latency_ps;
}

static void sim_store_hold(sim_world *world, sim_store *store)
{
    if (world->held_stores_tail != NULL) {
        world->held_stores_tail->next = store;
    } else {
        world->held_stores = store;
    }
    world->held_stores_tail = store;
}

void sim_store_send(ist_coop *coop, sim_store *filled)
{
    sim_world *world = coop->actor.world;
    sim_store *store = sim_pool_take(&world->stores, 0);
    if (store == NULL) {
        sim_device_no_memory(coop, "store", sizeof(*store));
        return;
    }
    *store = *filled;
    store->next = NULL;
    if (world->explore != NULL) {
        store->agent = coop->actor.agent;
        store->released = sim_agent_release(world->explore, coop->actor.agent);
    }
    if (!sim_link_pair_up(world, (uint32_t)store->from, store->target->index, SIM_ROUTE_LSA)) {
        sim_store_hold(world, store);
        return;
    }
    uint64_t latency_ps = sim_store_latency(coop->actor.rank, store->target);
    if (world->explore != NULL && latency_ps == world->cluster.nvlink_latency_ps) {
        sim_store_visible(store); /* readers choose how late they see it */
        return;
    }
    (void)sim_heap_push(world, sim_add_sat(world->now_ps, latency_ps), SIM_EV_STORE, store, 0);
}

void sim_held_stores_release(sim_world *world)
{
    sim_store *store = world->held_stores;
    world->held_stores = NULL;
    world->held_stores_tail = NULL;
    while (store != NULL) {
        sim_store *next = store->next;
        store->next = NULL;
        if (sim_link_pair_up(world, (uint32_t)store->from, store->target->index, SIM_ROUTE_LSA)) {
            uint64_t at_ps = sim_add_sat(world->now_ps, world->cluster.nvlink_latency_ps);
            (void)sim_heap_push(world, at_ps, SIM_EV_STORE, store, 0);
        } else {
            sim_store_hold(world, store);
        }
        store = next;
    }
}

/* Only a release at system scope is certain to travel at once; the explorer knows the others. */
static void sim_store_explored(ist_coop *coop, void *word, uint64_t value, uint32_t width,
                               ist_order order, ist_scope scope)
{
    sim_explore *explore = coop->actor.world->explore;
    sim_device_step_word(coop, coop->actor.world->cluster.load_ps >> SIM_LANES_SHIFT);
    if (word == NULL) {
        sim_device_fault(coop, NULL, "store", "the address is NULL");
        return;
    }
    sim_rank *target =
        sim_word_store(explore, coop->actor.agent, word, value, width, order, scope, "store");
    if (sim_order_releases(order) && target != NULL && target != coop->actor.rank) {
        sim_event_log(coop->actor.world, IST_SIM_STORE, target, (int32_t)coop->actor.rank->index,
                      width, value);
    }
    if (target != NULL && target->waits != NULL) {
        sim_wait_word_written(target, word, width);
    }
}

static bool sim_store_may_be_late(const sim_rank *from, const void *word)
{
    const sim_world *world = from->world;
    if (world->link_states == NULL && !sim_faults_have_transfers(world->faults)) {
        return false;
    }
    const sim_rank *target = sim_memory_owner(from->world, word);
    return target != NULL && target != from;
}

static void sim_store_word(ist_coop *coop, void *word, uint64_t value, uint32_t width,
                           ist_order order, ist_scope scope)
{
    sim_rank *rank = coop->actor.rank;
    if (rank->world->explore != NULL) {
        if (!sim_order_releases(order)) {
            sim_store_explored(coop, word, value, width, order, scope);
            return;
        }
        if (!sim_store_may_be_late(rank, word)) {
            ++rank->world->device_op_count;
            sim_rank_op(rank);
            sim_store_explored(coop, word, value, width, order, scope);
            return;
        }
    }
    sim_rank *target = sim_memory_owner(rank->world, word);
    if (sim_order_releases(order)) {
        sim_coop_drain(coop);
        sim_device_step_ordered(coop, rank->world->cluster.load_ps);
        if (target != NULL && target != rank) {
            sim_store_send(coop, &(sim_store){.target = target,
                                              .word = word,
                                              .value = value,
                                              .from = (int32_t)rank->index,
                                              .width = width});
            return;
        }
    } else {
        sim_device_step_local(coop, rank->world->cluster.load_ps >> SIM_LANES_SHIFT);
    }
    if (word == NULL) {
        sim_device_fault(coop, NULL, "store", "the address is NULL");
        return;
    }
    sim_word_write(word, value, width);
    if (target != NULL && target->waits != NULL) {
        sim_wait_word_written(target, word, width);
    }
}

static uint64_t sim_load_word(ist_coop *coop, const void *word, uint32_t width, ist_order order,
                              ist_scope scope)
{
    sim_explore *explore = coop->actor.world->explore;
    if (explore != NULL) {
        return sim_word_load(explore, coop->actor.agent, word, width, order, scope, "load");
    }
    return width == 4 ? *(const uint32_t *)word : *(const uint64_t *)word;
}

static bool sim_load_step(ist_coop *coop, const void *word, ist_order order)
{
    uint64_t load_ps = coop->actor.world->cluster.load_ps;
    if (sim_order_acquires(order)) {
        sim_device_step_ordered(coop, load_ps);
    } else {
        sim_device_step_word(coop, load_ps >> SIM_LANES_SHIFT);
    }
    if (word == NULL) {
        sim_device_fault(coop, NULL, "load", "the address is NULL");
    }
    return word != NULL;
}

uint32_t ist_load_u32(ist_coop *coop, const uint32_t *word, ist_order order, ist_scope scope)
{
    return sim_load_step(coop, word, order) ? (uint32_t)sim_load_word(coop, word, 4, order, scope)
                                            : 0;
}

uint64_t ist_load_u64(ist_coop *coop, const uint64_t *word, ist_order order, ist_scope scope)
{
    return sim_load_step(coop, word, order) ? sim_load_word(coop, word, 8, order, scope) : 0;
}

void ist_store_u32(ist_coop *coop, uint32_t *word, uint32_t value, ist_order order, ist_scope scope)
{
    sim_store_word(coop, word, value, 4, order, scope);
}

void ist_store_u64(ist_coop *coop, uint64_t *word, uint64_t value, ist_order order, ist_scope scope)
{
    sim_store_word(coop, word, value, 8, order, scope);
}

/* Atomics act where the word lives, at the time of the call; on a peer's word the caller pays the
   way there and back. */
static bool sim_atomic_step(ist_coop *coop, uint64_t *word, ist_order order)
{
    sim_rank *rank = coop->actor.rank;
    if (sim_order_releases(order)) {
        sim_coop_drain(coop);
    }
    sim_device_step_ordered(coop, rank->world->cluster.atomic_ps);
    if (word == NULL) {
        sim_device_fault(coop, NULL, "atomic", "the address is NULL");
        return false;
    }
    return true;
}

static void sim_atomic_done(ist_coop *coop, uint64_t *word)
{
    sim_rank *rank = coop->actor.rank;
    sim_rank *target = sim_memory_owner(rank->world, word);
    if (target == NULL) {
        return;
    }
    if (target != rank) {
        sim_device_spend(coop, 2 * rank->world->cluster.nvlink_latency_ps);
    }
    if (target->waits != NULL) {
        sim_wait_word_written(target, word, sizeof(*word));
    }
}

static uint64_t sim_atomic(ist_coop *coop, uint64_t *word, sim_word_op op, uint64_t operand,
                           uint64_t expected, ist_order order, ist_scope scope)
{
    sim_explore *explore = coop->actor.world->explore;
    if (explore != NULL) {
        return sim_word_update(explore, coop->actor.agent, word, op, operand, expected, order,
                               scope);
    }
    uint64_t before = *word;
    if (op == SIM_WORD_ADD) {
        *word = before + operand;
    } else if (op == SIM_WORD_AND) {
        *word = before & operand;
    } else if (before == expected) {
        *word = operand;
    }
    return before;
}

uint64_t ist_fetch_add_u64(ist_coop *coop, uint64_t *word, uint64_t value, ist_order order,
                           ist_scope scope)
{
    if (!sim_atomic_step(coop, word, order)) {
        return 0;
    }
    uint64_t before = sim_atomic(coop, word, SIM_WORD_ADD, value, 0, order, scope);
    sim_atomic_done(coop, word);
    return before;
}

uint64_t ist_fetch_and_u64(ist_coop *coop, uint64_t *word, uint64_t value, ist_order order,
                           ist_scope scope)
{
    if (!sim_atomic_step(coop, word, order)) {
        return 0;
    }
    uint64_t before = sim_atomic(coop, word, SIM_WORD_AND, value, 0, order, scope);
    sim_atomic_done(coop, word);
    return before;
}

uint64_t ist_compare_swap_u64(ist_coop *coop, uint64_t *word, uint64_t expected, uint64_t desired,
                              ist_order order, ist_scope scope)
{
    if (!sim_atomic_step(coop, word, order)) {
        return 0;
    }
    uint64_t before = sim_atomic(coop, word, SIM_WORD_SWAP, desired, expected, order, scope);
    if (before == expected) {
        sim_atomic_done(coop, word);
    }
    return before;
}

void ist_fence(ist_coop *coop, ist_order order, ist_scope scope)
{
    if (sim_order_releases(order)) {
        sim_coop_drain(coop);
    }
    sim_device_step_ordered(coop, coop->actor.world->cluster.load_ps);
    if (coop->actor.world->explore != NULL) {
        sim_agent_fence(coop->actor.world->explore, coop->actor.agent, order, scope);
    }
}
