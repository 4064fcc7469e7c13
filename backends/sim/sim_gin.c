/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated network of GIN: puts on their way, their order, their faults.
 *
 * Puts between one pair on one context stand in a list in the order of issue. Data lands whenever
 * it arrives; a strong signal is raised when it has reached the head of the list, that is, when
 * every earlier put of the pair has landed; a weak one with its own put.
 */
#include "sim_explore.h"

#include <string.h>

/* How long a reordered put waits for a later one that never comes. */
#define SIM_REORDER_PS (20ull * 1000 * 1000)
/* How long a NIC retries towards a rank that is gone before it reports an error. */
#define SIM_RETRY_PS (1000ull * 1000 * 1000 * 1000)

static sim_pair *sim_put_pair(const sim_put *put)
{
    return &put->src->pairs[(size_t)put->context * put->src->pub.rank_count + put->peer];
}

static bool sim_action_is_strong(const ist_gin_action *action)
{
    return action->kind == IST_GIN_SIGNAL_INC || action->kind == IST_GIN_SIGNAL_ADD;
}

static void sim_signal_raise(const sim_put *put)
{
    sim_devcomm *dst = put->dst;
    const ist_gin_action *action = &put->action;
    bool add = action->kind == IST_GIN_SIGNAL_ADD || action->kind == IST_GIN_WEAK_SIGNAL_ADD;
    uint64_t *word = &dst->signals[(size_t)put->context * dst->pub.signal_count + action->signal];
    *word += add ? action->value : 1;
    if (dst->member->rank->world->explore != NULL) {
        sim_touch_named(dst->member->rank->world->explore, SIM_NAME_SIGNAL, dst->member->rank,
                        dst->instance, (uint64_t)(word - dst->signals), 1, true);
        sim_key_release(dst->member->rank->world->explore, word, put->released);
    }
    sim_event_log(dst->member->rank->world, IST_SIM_SIGNAL, dst->member->rank,
                  (int32_t)put->src->pub.rank, put->context << 16 | action->signal, *word);
    sim_wait_signal_raised(dst, put->context, action->signal);
}

/* ---- exploring ------------------------------------------------------------------------------- */

const void *sim_flush_key(const sim_devcomm *dev, uint32_t context)
{
    return &dev->pairs[(size_t)context * dev->pub.rank_count];
}

uint64_t sim_flush_context(const sim_devcomm *dev, const void *key)
{
    const sim_pair *pair = key;
    return (uint64_t)(pair - dev->pairs) / dev->pub.rank_count;
}

/* Local completion says that the source was read, nothing about the target. */
static void sim_put_consumed(const sim_put *put, const void *key)
{
    sim_explore *explore = put->src->member->rank->world->explore;
    if (explore != NULL) {
        sim_key_release(explore, key, sim_agent_release(explore, put->agents[0]));
    }
}

static void sim_put_read(sim_put *put)
{
    sim_explore *explore = put->src->member->rank->world->explore;
    if (!put->read && put->bytes > 0 && put->from != &put->value) {
        sim_shadow_access(explore, put->agents[0], put->from, put->bytes, false, SIM_WEAK,
                          "gin_put");
    }
    put->read = true;
}

static void sim_put_touches(sim_put *put)
{
    sim_explore *explore = put->src->member->rank->world->explore;
    if (put->copy == NULL) {
        sim_put_read(put);
    }
    bool word = put->from == &put->value;
    sim_shadow_access(explore, put->agents[1], put->to, put->bytes, true,
                      word ? SIM_STRONG_SYSTEM : SIM_WEAK, word ? "gin_put_value" : "gin_put");
}

static void sim_put_complete_locally(sim_put *put);

/* Whether anybody could tell that the source was read before the put has landed. */
static bool sim_put_is_watched(const sim_put *put)
{
    if (put->counter != IST_GIN_NO_COUNTER) {
        return true;
    }
    for (const sim_wait *wait = put->src->member->rank->waits; wait != NULL; wait = wait->next) {
        if (wait->kind == SIM_WAIT_FLUSH && wait->dev == put->src &&
            wait->context == put->context && wait->coop->serial == put->block_serial) {
            return true;
        }
    }
    return false;
}

/* Whether only the source is read now: the put lands in a later move. */
static bool sim_put_splits(sim_put *put)
{
    sim_world *world = put->src->member->rank->world;
    bool whole = !sim_put_is_watched(put) || put->bytes == 0 || put->from == &put->value ||
                 put->read || put->error || put->lost || put->duplicate || put->extra_ps > 0 ||
                 put->dst->member->rank->dead ||
                 sim_memory_find(put->src->member->rank, put->from, put->bytes) == NULL;
    if (whole || sim_choose_value(world->explore, 2) == 0) {
        return false;
    }
    put->copy = ist_alloc(1, put->bytes);
    if (put->copy == NULL) {
        return false;
    }
    memcpy(put->copy, put->from, put->bytes);
    sim_put_read(put);
    sim_put_complete_locally(put);
    sim_move_add(world->explore, SIM_MOVE_PUT, put);
    return true;
}

/* A put in front of a dead link waits until it is up. */
static bool sim_put_held(sim_put *put)
{
    sim_world *world = put->src->member->rank->world;
    if (sim_link_pair_up(world, put->src->member->rank->index, put->dst->member->rank->index,
                         SIM_ROUTE_GIN)) {
        return false;
    }
    put->next_held = world->held_puts;
    world->held_puts = put;
    return true;
}

void sim_held_puts_release(sim_world *world)
{
    sim_put *put = world->held_puts;
    world->held_puts = NULL;
    while (put != NULL) {
        sim_put *next = put->next_held;
        sim_move_add(world->explore, SIM_MOVE_PUT, put);
        put = next;
    }
}

/* Memory was freed under a put. As with races: once a rank was given up, that is for the oracle. */
static void sim_put_lost_place(const sim_put *put, bool to_there)
{
    sim_rank *from = put->src->member->rank;
    sim_explore *explore = from->world->explore;
    if (explore == NULL || explore->gave_up || !sim_detects(explore, IST_FINDING_OUTSIDE)) {
        return;
    }
    sim_finding_words(explore, IST_FINDING_OUTSIDE, from, IST_ERR_DEVICE,
                      "a put of %llu bytes from rank %u to rank %u, context %u: its %s was freed "
                      "while it was on its way",
                      (unsigned long long)put->bytes, from->index, put->dst->member->rank->index,
                      put->context, to_there ? "source" : "target");
}

/* The data reaches the target's memory. A rank that is gone takes nothing. */
static void sim_put_land(sim_put *put)
{
    sim_rank *target = put->dst->member->rank;
    if (target->world->explore != NULL && put->bytes > 0) { /* also where nothing is any more */
        if (put->from != &put->value) {
            sim_touch(target->world->explore, put->from, put->bytes, false);
        }
        sim_touch(target->world->explore, put->to, put->bytes, true);
    }
    bool to_there = put->bytes == 0 || sim_memory_find(target, put->to, put->bytes) != NULL;
    bool from_there = put->bytes == 0 || put->copy != NULL || put->from == &put->value ||
                      sim_memory_find(put->src->member->rank, put->from, put->bytes) != NULL;
    if (!to_there || !from_there) {
        sim_put_lost_place(put, to_there);
        ist_log(IST_LOG_WARN,
                "a put of %llu bytes from rank %u to rank %u ends nowhere: its %s "
                "was freed while it was on its way",
                (unsigned long long)put->bytes, put->src->member->rank->index, target->index,
                to_there ? "source" : "target");
    } else if (put->bytes > 0) {
        if (target->world->explore != NULL && !put->duplicate) {
            sim_put_touches(put);
        }
        memcpy(put->to, put->copy != NULL ? put->copy : put->from, put->bytes);
        sim_wait_word_written(target, put->to, put->bytes);
    }
    if (target->world->explore != NULL) {
        sim_explore *explore = target->world->explore;
        put->released = sim_snapshot_join(explore, sim_agent_release(explore, put->agents[0]),
                                          sim_agent_release(explore, put->agents[1]));
    }
    sim_event_log(target->world, IST_SIM_PUT_DONE, target, (int32_t)put->src->pub.rank,
                  put->context, put->bytes);
    if (put->action.kind != IST_GIN_NONE && !sim_action_is_strong(&put->action)) {
        sim_signal_raise(put);
    }
}

/* The source may be reused: counters and flushes of the sender hear of it. */
static void sim_put_complete_locally(sim_put *put)
{
    sim_devcomm *src = put->src;
    if (!put->counted) {
        return;
    }
    put->counted = false;
    if (put->counter != IST_GIN_NO_COUNTER && !put->error) {
        uint64_t *counter =
            &src->counters[(size_t)put->context * src->pub.counter_count + put->counter];
        ++*counter;
        sim_put_consumed(put, counter);
        if (src->member->rank->world->explore != NULL) {
            sim_touch_named(src->member->rank->world->explore, SIM_NAME_COUNTER, src->member->rank,
                            src->instance, (uint64_t)(counter - src->counters), 1, true);
        }
        sim_wait_counter_raised(src, put->context, put->counter);
    }
    sim_put_consumed(put, sim_flush_key(src, put->context));
    if (src->member->rank->world->explore != NULL) {
        sim_touch_named(src->member->rank->world->explore, SIM_NAME_FLUSH, src->member->rank,
                        src->instance, put->context, 1, true);
    }
    sim_wait_put_done(src, put);
}

static void sim_put_recycle(sim_put *put)
{
    sim_world *world = put->src->member->rank->world;
    if (world->explore != NULL) {
        sim_agent_network_done(world->explore, put->agents[0]);
        sim_agent_network_done(world->explore, put->agents[1]);
        put->agents[0] = put->agents[1] = 0;
    }
    ist_free(put->copy);
    put->copy = NULL; /* the world's end frees copies of puts still under way */
    sim_pool_give(&world->puts, put);
}

/* Raises the strong signals whose turn has come, and frees what is done. */
static void sim_pair_advance(const sim_devcomm *src, sim_pair *pair)
{
    while (pair->head != NULL && pair->head->arrived) {
        sim_put *put = pair->head;
        pair->head = put->next;
        if (pair->head == NULL) {
            pair->tail = NULL;
        }
        /* A put that failed takes with it the strong signals that would have covered it. */
        sim_explore *explore = put->src->member->rank->world->explore;
        if (explore != NULL) { /* a strong signal covers all puts before it */
            pair->released = sim_snapshot_join(explore, pair->released, put->released);
            put->released = pair->released;
        }
        if (!put->lost && !put->error && !pair->errored && sim_action_is_strong(&put->action) &&
            !put->dst->member->rank->dead) {
            sim_signal_raise(put);
        }
        sim_put_recycle(put);
    }
    if (pair->head == NULL && src->drainer != NULL) {
        sim_actor_wake(src->drainer);
    }
}

static void sim_put_fail(sim_put *put)
{
    sim_devcomm *src = put->src;
    put->error = true;
    sim_put_pair(put)->errored = true;
    src->peer_errors[put->peer] = 1;
    sim_event_log(src->member->rank->world, IST_SIM_FAULT, src->member->rank, (int32_t)put->peer,
                  IST_FAULT_ERROR, put->bytes);
    sim_wait_peer_error(src, put->peer);
}

static void sim_put_again(const sim_put *put, uint64_t after_ps);

void sim_put_arrive(sim_put *put)
{
    sim_world *world = put->src->member->rank->world;
    if (world->explore != NULL && (sim_put_held(put) || sim_put_splits(put))) {
        return;
    }
    if (put->extra_ps > 0) { /* a fault holds it up once, after the wire */
        uint64_t at_ps = sim_add_sat(world->now_ps, put->extra_ps);
        put->extra_ps = 0;
        (void)sim_heap_push(world, at_ps, SIM_EV_PUT, put, 0);
        return;
    }
    if (put->arrived) {
        return;
    }
    put->lost = put->lost || put->src->closed;
    if (put->duplicate) { /* stands in no list, carries its own bytes */
        if (!put->dst->member->rank->dead && !put->lost) {
            sim_put_land(put);
            if (sim_action_is_strong(&put->action)) {
                sim_signal_raise(put);
            }
        }
        sim_put_recycle(put);
        return;
    }
    if (put->error) {
        sim_put_fail(put);
    } else if (put->dst->member->rank->dead && !put->retried) {
        put->retried = true;
        put->error = true;
        (void)sim_heap_push(world, sim_add_sat(world->now_ps, SIM_RETRY_PS), SIM_EV_PUT, put, 0);
        return;
    } else if (!put->lost) {
        sim_put_land(put);
        if (put->again_ps > 0) {
            sim_put_again(put, put->again_ps);
        }
    }
    put->arrived = true;
    sim_put_complete_locally(put);
    sim_pair_advance(put->src, sim_put_pair(put));
}

/* A duplicate carries the bytes of the first time, whatever the source holds by then. */
static void sim_put_again(const sim_put *put, uint64_t after_ps)
{
    sim_world *world = put->src->member->rank->world;
    sim_put *again = sim_put_new(world);
    if (again == NULL) {
        return;
    }
    *again = *put;
    again->next = NULL;
    again->duplicate = true;
    again->counted = false;
    again->again_ps = 0;
    again->copy = put->bytes > 0 ? ist_alloc(1, put->bytes) : NULL;
    if (put->bytes > 0 && again->copy == NULL) {
        sim_put_recycle(again);
        return;
    }
    if (put->bytes > 0) {
        memcpy(again->copy, put->copy != NULL ? put->copy : put->from, put->bytes);
    }
    (void)sim_heap_push(world, sim_add_sat(world->now_ps, after_ps), SIM_EV_PUT, again, 0);
}

sim_put *sim_put_new(sim_world *world)
{
    return sim_pool_take(&world->puts, sizeof(sim_put));
}

/* ---- faults ---------------------------------------------------------------------------------- */

static void sim_put_strike(sim_put *put, const ist_fault *fault)
{
    uint64_t duration_ps = sim_ps_from_ns(fault->duration_ns);
    sim_rank *rank = put->src->member->rank;
    sim_event_log(rank->world, IST_SIM_FAULT, rank, (int32_t)put->peer, (uint32_t)fault->kind,
                  put->bytes);
    switch (fault->kind) {
    case IST_FAULT_DELAY: put->extra_ps = duration_ps; break;
    case IST_FAULT_DROP: put->lost = true; break;
    case IST_FAULT_ERROR: put->error = true; break;
    case IST_FAULT_DUPLICATE: put->again_ps = duration_ps == 0 ? 1 : duration_ps; break;
    case IST_FAULT_REORDER:
        put->extra_ps = SIM_REORDER_PS;
        sim_put_pair(put)->held = put;
        break;
    case IST_FAULT_KILL:
    case IST_FAULT_STALL:
    case IST_FAULT_SLOW:
    case IST_FAULT_LINK_DOWN:
    case IST_FAULT_LINK_SLOW:
    case IST_FAULT_ALLOC:
    case IST_FAULT_REGISTER:
    case IST_FAULT_RESUME: break;
    }
}

/* A strong signal after a dropped put still arrives: the network lies, and users must notice. A
   reordered put is let go right behind the next one of its pair. */
static void sim_put_meet_faults(sim_put *put)
{
    sim_rank *rank = put->src->member->rank;
    sim_pair *pair = sim_put_pair(put);
    if (pair->held != NULL && pair->held != put) {
        pair->held->extra_ps = put->flow.latency_ps + 1;
        pair->held = NULL;
    }
    if (!sim_faults_have_transfers(rank->world->faults)) {
        return;
    }
    uint32_t classes = (put->bytes > 0 ? IST_FAULT_PUTS : 0u) |
                       (put->action.kind != IST_GIN_NONE ? IST_FAULT_SIGNALS : 0u);
    const ist_fault *fault =
        sim_fault_on_transfer(rank->world->faults, (ist_fault_class)classes, rank->index,
                              put->dst->member->rank->index, rank->world->now_ps);
    if (fault != NULL) {
        sim_put_strike(put, fault);
    }
}

void sim_put_issue(sim_put *put)
{
    sim_rank *rank = put->src->member->rank;
    sim_world *world = rank->world;
    sim_pair *pair = sim_put_pair(put);
    put->counted = true;
    put->next = NULL;
    if (pair->tail == NULL) {
        pair->head = put;
    } else {
        pair->tail->next = put;
    }
    pair->tail = put;
    sim_event_log(world, IST_SIM_PUT, rank, (int32_t)put->peer, put->context, put->bytes);
    if (world->explore != NULL) {
        sim_touch_named(world->explore, SIM_NAME_PAIR, rank, put->src->instance,
                        (uint64_t)(pair - put->src->pairs), 1, true);
        sim_put_meet_faults(put);
        put->error = put->error || pair->errored;
        sim_move_add(world->explore, SIM_MOVE_PUT, put);
        return;
    }
    /* Headers and acknowledgements travel with every message. */
    put->flow.type = SIM_EV_PUT;
    put->flow.object = put;
    ist_status status =
        sim_flow_route(world, &put->flow, rank->index, put->dst->member->rank->index, SIM_ROUTE_GIN,
                       put->bytes + 64);
    sim_put_meet_faults(put);
    if (pair->errored || status != IST_OK) {
        put->error = true;
    }
    if (status != IST_OK) {
        (void)sim_heap_push(world, world->now_ps, SIM_EV_PUT, put, 0);
        return;
    }
    sim_flow_begin_event(world, &put->flow);
}
