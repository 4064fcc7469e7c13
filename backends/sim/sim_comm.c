/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communicators of the simulator: members meet by id, exchange bytes, open windows and device
 * communicators. All waiting here is of host programs, in virtual time, and bounded.
 */
#include "sim_coll.h"
#include "sim_explore.h"

#include <isthmus/unstable/topology.h>
#include <string.h>

/* ---- exploring: what calls between programs order ---------------------------------------------- */

static void sim_host_publish(sim_rank *rank, uint32_t *released)
{
    sim_explore *explore = rank->world->explore;
    if (explore != NULL) {
        uint32_t agent = sim_agent_of(explore, &rank->host);
        *released = sim_snapshot_join(explore, *released, sim_agent_release(explore, agent));
    }
}

static void sim_host_learn(sim_rank *rank, uint32_t released)
{
    sim_explore *explore = rank->world->explore;
    if (explore != NULL) {
        sim_agent_join(explore, sim_agent_of(explore, &rank->host), released);
    }
}

/* A window covers part of an allocation. */
static void sim_allocation_share(sim_rank *rank, sim_allocation *allocation, const void *mem,
                                 uint64_t bytes)
{
    uint64_t begin = (uint64_t)((const uint8_t *)mem - rank->memory.base) - allocation->offset;
    if (rank->world->explore != NULL) {
        ++rank->world->explore->windows_serial;
    }
    if (allocation->shared_end == 0 || begin < allocation->shared_begin) {
        allocation->shared_begin = begin;
    }
    if (begin + bytes > allocation->shared_end) {
        allocation->shared_end = begin + bytes;
    }
}

/* Window 0: shared from the start, zeroed for all to read. */
static void sim_resource_opened(sim_rank *rank, const void *mem, uint64_t bytes)
{
    sim_allocation *allocation = sim_memory_find(rank, mem, bytes);
    if (allocation != NULL) {
        allocation->resource = true;
        sim_allocation_share(rank, allocation, mem, bytes);
    }
}

/* ---- forming --------------------------------------------------------------------------------- */

static void sim_comm_free(sim_comm *comm);

/* One that failed is over for all who came; who comes later, or again, meets under a new one. */
static sim_comm *sim_comm_find(sim_world *world, const uint8_t *id)
{
    for (sim_comm *comm = world->comms; comm != NULL; comm = comm->next) {
        if (!comm->formed && !comm->failed && memcmp(comm->id, id, sizeof(comm->id)) == 0) {
            return comm;
        }
    }
    return NULL;
}

static ist_status sim_comm_new(sim_world *world, const ist_backend_comm_desc *desc,
                               sim_comm **result)
{
    sim_comm *comm = ist_alloc(1, sizeof(*comm));
    sim_member *members = ist_alloc(desc->rank_count, sizeof(*members));
    if (comm == NULL || members == NULL) {
        ist_free(comm);
        ist_free(members);
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for a communicator of %u ranks",
                         desc->rank_count);
    }
    comm->world = world;
    memcpy(comm->id, desc->id, sizeof(comm->id));
    comm->rank_count = desc->rank_count;
    comm->lsa_size_max = desc->lsa_size_max;
    comm->members = members;
    comm->next = world->comms;
    world->comms = comm;
    *result = comm;
    return IST_OK;
}

/* Held against another description of the machine, where IST_TOPOLOGY names one. */
static ist_status sim_comm_announce(const sim_comm *comm, const uint32_t *world_ranks)
{
    const ist_topology_formed formed = {.size = sizeof(formed),
                                        .rank_count = comm->rank_count,
                                        .lsa_size = comm->lsa_size,
                                        .lsa_size_max = comm->lsa_size_max,
                                        .gin = (ist_gin_kind)comm->choice.gin,
                                        .gin_reason = comm->choice.gin_reason,
                                        .gpus = world_ranks};
    return ist_topology_announce(NULL, &formed, NULL);
}

static ist_status sim_comm_form(sim_comm *comm)
{
    uint32_t *world_ranks = ist_alloc(comm->rank_count, sizeof(*world_ranks));
    if (world_ranks == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for %u rank numbers", comm->rank_count);
    }
    for (uint32_t i = 0; i < comm->rank_count; ++i) {
        world_ranks[i] = comm->members[i].rank->index;
    }
    comm->choice = topo_cluster_choose(&comm->world->cluster, world_ranks, comm->rank_count,
                                       comm->lsa_size_max);
    comm->lsa_size = comm->choice.lsa_size;
    comm->formed = true;
    ist_status status = sim_comm_announce(comm, world_ranks);
    ist_free(world_ranks);
    return status;
}

static ist_status sim_comm_missing(const sim_comm *comm, uint32_t rank, uint64_t waited_ns)
{
    uint32_t missing = 0;
    while (missing < comm->rank_count && comm->members[missing].rank != NULL) {
        ++missing;
    }
    ist_error details = {.rank = (int32_t)rank,
                         .peer = (int32_t)missing,
                         .expected = comm->rank_count,
                         .observed = comm->joined,
                         .waited_ns = waited_ns,
                         .object = "comm",
                         .operation = "comm.open"};
    return ist_raise(IST_ERR_TIMEOUT, &details,
                     "%u of %u ranks came to open the communicator; rank %u did not", comm->joined,
                     comm->rank_count, missing);
}

/* One member's failure is that of all: none of them may believe in the communicator. */
static void sim_comm_fail(sim_comm *comm, ist_status status)
{
    comm->failed = true;
    comm->failure = status;
    sim_waiters_wake(&comm->waiters);
}

static ist_status sim_comm_failed(const sim_comm *comm, uint32_t rank, uint64_t began_ps)
{
    ist_error details = {
        .rank = (int32_t)rank, .peer = IST_RANK_NONE, .object = "comm", .operation = "comm.open"};
    if (comm->failure == IST_ERR_TIMEOUT) {
        return sim_comm_missing(comm, rank, (comm->world->now_ps - began_ps) / SIM_PS_PER_NS);
    }
    return ist_raise(comm->failure, &details, "another rank could not open the communicator: %s",
                     ist_status_sentence(comm->failure));
}

static ist_status sim_comm_wait_formed(sim_comm *comm, sim_rank *rank,
                                       const ist_backend_comm_desc *desc)
{
    sim_actor *host = &rank->host;
    uint64_t began_ps = comm->world->now_ps;
    uint64_t deadline_ps = sim_add_sat(began_ps, sim_ps_from_ns(desc->deadline_ns));
    while (!comm->formed && !comm->failed) {
        host->next_waiter = comm->waiters;
        comm->waiters = host;
        bool woken = sim_actor_block(host, deadline_ps);
        if (rank->dead) {
            sim_waiters_remove(&comm->waiters, host);
            return IST_ERR_KILLED;
        }
        if (!woken && !comm->formed) {
            sim_waiters_remove(&comm->waiters, host);
            sim_comm_fail(comm, IST_ERR_TIMEOUT);
        }
    }
    return comm->failed ? sim_comm_failed(comm, desc->rank, began_ps) : IST_OK;
}

/* Teams are cut to the smallest limit, which makes them equal everywhere; that the limits differ is
   for the front to tell. */
static void sim_comm_limit_team(sim_comm *comm, uint32_t lsa_size_max)
{
    if (lsa_size_max != 0 && (comm->lsa_size_max == 0 || lsa_size_max < comm->lsa_size_max)) {
        comm->lsa_size_max = lsa_size_max;
    }
}

static ist_status sim_comm_refuse_count(sim_comm *comm, const ist_backend_comm_desc *desc)
{
    ist_error details = {.rank = (int32_t)desc->rank,
                         .peer = IST_RANK_NONE,
                         .object = "desc.rank_count",
                         .operation = "comm.open",
                         .expected = comm->rank_count,
                         .observed = desc->rank_count};
    sim_comm_fail(comm, IST_ERR_MISMATCH);
    return ist_raise(IST_ERR_MISMATCH, &details,
                     "rank %u opens the communicator with %u ranks, others with %u", desc->rank,
                     desc->rank_count, comm->rank_count);
}

static ist_status sim_comm_refuse_rank(sim_comm *comm, const ist_backend_comm_desc *desc)
{
    ist_error details = {.rank = (int32_t)desc->rank,
                         .peer = IST_RANK_NONE,
                         .object = "desc.rank",
                         .operation = "comm.open",
                         .observed = desc->rank};
    sim_comm_fail(comm, IST_ERR_ARGUMENT);
    return ist_raise(IST_ERR_ARGUMENT, &details, "two ranks open the communicator as rank %u",
                     desc->rank);
}

ist_status sim_comm_join(sim_rank *rank, const ist_backend_comm_desc *desc, sim_member **result)
{
    sim_world *world = rank->world;
    sim_comm *comm = sim_comm_find(world, desc->id);
    if (comm == NULL) {
        IST_RETURN_IF_ERROR(sim_comm_new(world, desc, &comm));
    }
    if (comm->rank_count != desc->rank_count) {
        return sim_comm_refuse_count(comm, desc);
    }
    sim_member *member = &comm->members[desc->rank];
    if (member->rank != NULL) {
        return sim_comm_refuse_rank(comm, desc);
    }
    sim_comm_limit_team(comm, desc->lsa_size_max);
    *member = (sim_member){.rank = rank,
                           .comm = comm,
                           .index = desc->rank,
                           .deadline_ns = desc->deadline_ns,
                           .open = true};
    sim_host_publish(rank, &comm->released);
    if (++comm->joined == comm->rank_count) {
        ist_status status = sim_comm_form(comm);
        if (status != IST_OK) {
            sim_comm_fail(comm, status);
            return status;
        }
        sim_waiters_wake(&comm->waiters);
    }
    IST_RETURN_IF_ERROR(sim_comm_wait_formed(comm, rank, desc));
    sim_host_learn(rank, comm->released);
    *result = member;
    return IST_OK;
}

/* ---- exchange -------------------------------------------------------------------------------- */

#define SIM_WORDS(count) (((count) + 63u) / 64u)

static void sim_exchange_free(sim_exchange *exchange)
{
    ist_free(exchange->data);
    ist_free(exchange->arrived);
    ist_free(exchange);
}

static sim_exchange *sim_exchange_new(sim_comm *comm, size_t bytes)
{
    uint32_t words = SIM_WORDS(comm->rank_count);
    sim_exchange *exchange = ist_alloc(1, sizeof(*exchange));
    if (exchange == NULL) {
        return NULL;
    }
    exchange->data = ist_alloc(comm->rank_count, bytes == 0 ? 1 : bytes);
    exchange->arrived = ist_alloc(2u * words, sizeof(uint64_t));
    if (exchange->data == NULL || exchange->arrived == NULL) {
        sim_exchange_free(exchange);
        return NULL;
    }
    exchange->excused = exchange->arrived + words;
    exchange->comm = comm;
    exchange->bytes = bytes;
    return exchange;
}

/* All are there, or the deadline has passed: whoever came sees the same result. */
static void sim_exchange_end(sim_exchange *exchange)
{
    sim_comm *comm = exchange->comm;
    exchange->done = true;
    exchange->readers = exchange->arrived_count;
    comm->exchange = NULL;
    exchange->next = comm->exchanges_done;
    comm->exchanges_done = exchange;
    sim_event_log(comm->world, IST_SIM_EXCHANGE, NULL, -1, (uint32_t)exchange->bytes,
                  comm->rank_count - exchange->arrived_count);
    sim_waiters_wake(&exchange->waiters);
}

void sim_exchange_deadline(sim_exchange *exchange)
{
    exchange->timer = false;
    if (!exchange->done) {
        sim_exchange_end(exchange);
    } else if (exchange->readers == 0) {
        sim_exchange_free(exchange);
    }
}

bool sim_exchange_is_over(const sim_exchange *exchange)
{
    return exchange->done;
}

void sim_exchange_timer_dropped(sim_exchange *exchange)
{
    exchange->timer = false;
    if (exchange->done && exchange->readers == 0) {
        sim_exchange_free(exchange);
    }
}

static void sim_exchange_leave(sim_exchange *exchange)
{
    if (--exchange->readers > 0) {
        return;
    }
    sim_exchange **link = &exchange->comm->exchanges_done;
    while (*link != exchange) {
        link = &(*link)->next;
    }
    *link = exchange->next;
    if (!exchange->timer) { /* else the timer's event still names it */
        sim_exchange_free(exchange);
    }
}

static bool sim_exchange_complete(const sim_exchange *exchange)
{
    uint32_t words = SIM_WORDS(exchange->comm->rank_count);
    uint32_t covered = 0;
    for (uint32_t i = 0; i < words; ++i) {
        covered += (uint32_t)__builtin_popcountll(exchange->arrived[i] | exchange->excused[i]);
    }
    return covered == exchange->comm->rank_count;
}

static ist_status sim_exchange_enter(sim_member *member, size_t bytes, uint64_t deadline_ns,
                                     sim_exchange **result)
{
    sim_comm *comm = member->comm;
    sim_exchange *exchange = comm->exchange;
    if (exchange == NULL) {
        exchange = sim_exchange_new(comm, bytes);
        if (exchange == NULL) {
            return ist_raise(IST_ERR_MEMORY, NULL, "no memory to exchange %zu bytes of %u ranks",
                             bytes, comm->rank_count);
        }
        uint64_t at_ps = sim_add_sat(comm->world->now_ps, sim_ps_from_ns(deadline_ns));
        ist_status status = sim_heap_push(comm->world, at_ps, SIM_EV_EXCHANGE, exchange, 0);
        if (status != IST_OK) {
            sim_exchange_free(exchange);
            return status;
        }
        exchange->timer = true;
        comm->exchange = exchange;
    }
    if (exchange->bytes != bytes) {
        ist_error details = {.rank = (int32_t)member->index,
                             .peer = IST_RANK_NONE,
                             .object = "bytes",
                             .operation = "comm.exchange",
                             .expected = exchange->bytes,
                             .observed = bytes};
        return ist_raise(IST_ERR_MISMATCH, &details,
                         "rank %u is in another collective call than its peers: it brings %zu "
                         "bytes, they %zu",
                         member->index, bytes, exchange->bytes);
    }
    *result = exchange;
    return IST_OK;
}

ist_status sim_comm_exchange(sim_member *member, const void *send, size_t bytes, void *recv,
                             uint64_t deadline_ns, uint64_t *lost_words)
{
    sim_comm *comm = member->comm;
    sim_rank *rank = member->rank;
    uint32_t words = SIM_WORDS(comm->rank_count);
    sim_exchange *exchange = NULL;
    sim_actor_sync(&rank->host);
    if (rank->dead) {
        return IST_ERR_KILLED;
    }
    sim_collective_check(member, SIM_COLLECTIVE_EXCHANGE, bytes);
    IST_RETURN_IF_ERROR(sim_exchange_enter(member, bytes, deadline_ns, &exchange));
    if (bytes > 0) {
        memcpy(exchange->data + (size_t)member->index * bytes, send, bytes);
    }
    exchange->arrived[member->index / 64u] |= 1ull << (member->index % 64u);
    ++exchange->arrived_count;
    sim_host_publish(rank, &exchange->released);
    for (uint32_t i = 0; i < words; ++i) {
        exchange->excused[i] |= lost_words[i];
    }
    if (sim_exchange_complete(exchange)) {
        sim_exchange_end(exchange);
    }
    while (!exchange->done && !rank->dead && !member->aborted) {
        rank->host.next_waiter = exchange->waiters;
        exchange->waiters = &rank->host;
        (void)sim_actor_block(&rank->host, SIM_NEVER);
    }
    if (!exchange->done) { /* killed or aborted while it waited: it counts as come */
        sim_waiters_remove(&exchange->waiters, &rank->host);
        exchange->arrived[member->index / 64u] &= ~(1ull << (member->index % 64u));
        --exchange->arrived_count;
        return rank->dead ? IST_ERR_KILLED : IST_ERR_ABORTED;
    }
    for (uint32_t i = 0; i < comm->rank_count; ++i) {
        bool here = ist_mask_test(exchange->arrived, i) != 0;
        if (!here) {
            memset(exchange->data + (size_t)i * bytes, 0, bytes);
            lost_words[i / 64u] |= 1ull << (i % 64u);
        } else {
            lost_words[i / 64u] &= ~(1ull << (i % 64u));
        }
    }
    if (bytes > 0) {
        memcpy(recv, exchange->data, (size_t)comm->rank_count * bytes);
    }
    sim_host_learn(rank, exchange->released);
    sim_exchange_leave(exchange);
    rank->host.lag_ps += comm->world->cluster.exchange_ps;
    return rank->dead ? IST_ERR_KILLED : IST_OK;
}

/* Only out of the exchange, or of a close: whatever else the host waits for ends by itself. */
void sim_member_wake(sim_member *member)
{
    const sim_exchange *exchange = member->comm->exchange;
    sim_actor *host = exchange != NULL ? exchange->waiters : NULL;
    while (host != NULL && host != &member->rank->host) {
        host = host->next_waiter;
    }
    for (sim_devcomm *dev = member->devcomms; dev != NULL; dev = dev->next) {
        host = dev->drainer != NULL ? dev->drainer : host;
    }
    if (host != NULL) {
        sim_actor_wake(host);
    }
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* What a member opens now that opened `own_last` before: the number that others are opening, or a
   new one. */
static uint32_t sim_numbers_enter(sim_numbers *numbers, uint32_t own_last)
{
    if (numbers->last == 0 || numbers->abandoned || own_last == numbers->last) {
        ++numbers->last;
        numbers->opened_count = 0;
        numbers->abandoned = false;
    }
    return numbers->last;
}

static void sim_numbers_opened(sim_numbers *numbers, uint32_t *own_last)
{
    *own_last = numbers->last;
    ++numbers->opened_count;
}

/* Nobody closes what has not been opened by all, unless the opening failed somewhere. */
static void sim_numbers_closed(sim_numbers *numbers, uint32_t number, uint32_t rank_count)
{
    if (number == numbers->last && numbers->opened_count < rank_count) {
        numbers->abandoned = true;
    }
}

/* ---- windows --------------------------------------------------------------------------------- */

static ist_status sim_bases_room(sim_window_bases **table, uint32_t *room, uint32_t index,
                                 uint32_t rank_count)
{
    while (index >= *room) {
        uint32_t larger = *room == 0 ? 8 : *room * 2;
        sim_window_bases *grown = ist_alloc(larger, sizeof(*grown));
        if (grown == NULL) {
            return ist_raise(IST_ERR_MEMORY, NULL, "no memory for %u windows", larger);
        }
        if (*room > 0) {
            memcpy(grown, *table, *room * sizeof(*grown));
        }
        ist_free(*table);
        *table = grown;
        *room = larger;
    }
    sim_window_bases *entry = &(*table)[index];
    if (entry->base == NULL) {
        entry->base = ist_alloc(rank_count, sizeof(*entry->base) + sizeof(*entry->bytes));
        if (entry->base == NULL) {
            return ist_raise(IST_ERR_MEMORY, NULL, "no memory for the addresses of %u ranks",
                             rank_count);
        }
        entry->bytes = (uint64_t *)(void *)(entry->base + rank_count);
    }
    return IST_OK;
}

/* Entry `index` of the member's window table, and of all its dev comms, which share the tail. */
static ist_status sim_member_window_room(sim_member *member, uint32_t index)
{
    if (index < member->window_room) {
        return IST_OK;
    }
    uint32_t larger = member->window_room == 0 ? 8 : member->window_room * 2;
    for (sim_devcomm *dev = member->devcomms; dev != NULL; dev = dev->next) {
        ist_dev_window *table = ist_alloc(larger, sizeof(*table));
        if (table == NULL) {
            return ist_raise(IST_ERR_MEMORY, NULL, "no memory for %u windows", larger);
        }
        memcpy(table, dev->windows, dev->pub.window_count * sizeof(*table));
        ist_free(dev->windows);
        dev->windows = table;
        dev->pub.windows = table;
        dev->pub.window_count = larger;
    }
    ist_dev_window *table = ist_alloc(larger, sizeof(*table));
    if (table == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for %u windows", larger);
    }
    if (member->window_room > 0) {
        memcpy(table, member->windows, member->window_room * sizeof(*table));
    }
    ist_free(member->windows);
    member->windows = table;
    member->window_room = larger;
    return IST_OK;
}

static void sim_member_publish(sim_member *member, uint32_t index)
{
    for (sim_devcomm *dev = member->devcomms; dev != NULL; dev = dev->next) {
        if (index < dev->pub.window_count) {
            dev->windows[index] = member->windows[index];
        }
    }
}

ist_status sim_window_register(sim_member *member, void *mem, size_t bytes, uint32_t *index)
{
    sim_comm *comm = member->comm;
    sim_rank *rank = member->rank;
    if (sim_fault_on_register(comm->world->faults, rank->index)) {
        sim_event_log(comm->world, IST_SIM_FAULT, rank, -1, IST_FAULT_REGISTER, bytes);
        return ist_raise(IST_ERR_MEMORY, NULL, "the fault plan fails this registration on rank %u",
                         rank->index);
    }
    sim_allocation *allocation = sim_memory_find(rank, mem, bytes);
    if (allocation == NULL) {
        return ist_raise(IST_ERR_ARGUMENT, NULL, "rank %u registers memory it does not own",
                         rank->index);
    }
    sim_collective_check(member, SIM_COLLECTIVE_WINDOW, 0);
    uint32_t number = sim_numbers_enter(&comm->window_numbers, member->window_last);
    IST_RETURN_IF_ERROR(sim_member_window_room(member, number));
    IST_RETURN_IF_ERROR(
        sim_bases_room(&comm->windows, &comm->window_room, number, comm->rank_count));
    sim_window_bases *bases = &comm->windows[number];
    bases->base[member->index] = mem;
    bases->bytes[member->index] = bytes;
    uint32_t lsa_first = member->index - member->index % comm->lsa_size;
    member->windows[number] = (ist_dev_window){
        .bytes = bytes, .local = mem, .lsa = bases->base + lsa_first, .backend = bases->base};
    sim_member_publish(member, number);
    ++allocation->windows;
    sim_allocation_share(rank, allocation, mem, bytes);
    sim_numbers_opened(&comm->window_numbers, &member->window_last);
    *index = number;
    return IST_OK;
}

ist_status sim_window_unregister(sim_member *member, uint32_t index)
{
    sim_comm *comm = member->comm;
    if (index == 0 || index >= member->window_room || member->windows[index].bytes == 0) {
        return ist_raise(IST_ERR_OBJECT, NULL, "window %u of rank %u is not open", index,
                         member->index);
    }
    sim_allocation *allocation = sim_memory_find(member->rank, member->windows[index].local, 1);
    if (allocation != NULL) {
        --allocation->windows;
    }
    if (comm->world->explore != NULL) {
        ++comm->world->explore->windows_serial;
    }
    comm->windows[index].base[member->index] = NULL;
    comm->windows[index].bytes[member->index] = 0;
    member->windows[index].bytes = 0;
    member->windows[index].local = NULL;
    sim_numbers_closed(&comm->window_numbers, index, comm->rank_count);
    sim_member_publish(member, index);
    return IST_OK;
}

/* ---- device communicators -------------------------------------------------------------------- */

static void sim_devcomm_free(sim_devcomm *dev)
{
    ist_free(dev->windows);
    ist_free(dev->signals);
    ist_free(dev->pairs);
    ist_free(dev);
}

/* Signals, counters, barrier words and error bytes in one piece. */
static ist_status sim_devcomm_arrays(sim_devcomm *dev, const ist_devcomm_desc *desc)
{
    sim_comm *comm = dev->member->comm;
    size_t signals = (size_t)desc->context_count * desc->signal_count;
    size_t counters = (size_t)desc->context_count * desc->counter_count;
    size_t inbox = (size_t)desc->lsa_barrier_count * comm->lsa_size;
    size_t errors = ((size_t)comm->rank_count + 7) / 8;
    uint64_t *words =
        ist_alloc(signals + counters + inbox + desc->lsa_barrier_count + errors, sizeof(*words));
    if (words == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for %zu signals and %zu counters",
                         signals, counters);
    }
    dev->signals = words;
    dev->counters = dev->signals + signals;
    dev->barrier_inbox = dev->counters + counters;
    dev->barrier_epoch = dev->barrier_inbox + inbox;
    dev->peer_errors = (uint8_t *)(dev->barrier_epoch + desc->lsa_barrier_count);
    if (desc->context_count > 0) {
        dev->pairs = ist_alloc((size_t)desc->context_count * comm->rank_count, sizeof(*dev->pairs));
        if (dev->pairs == NULL) {
            return ist_raise(IST_ERR_MEMORY, NULL, "no memory for %u contexts",
                             desc->context_count);
        }
    }
    return IST_OK;
}

static ist_status sim_devcomm_resource(sim_devcomm *dev, uint64_t bytes)
{
    sim_member *member = dev->member;
    sim_comm *comm = member->comm;
    IST_RETURN_IF_ERROR(
        sim_bases_room(&comm->resources, &comm->resource_room, dev->instance, comm->rank_count));
    sim_window_bases *bases = &comm->resources[dev->instance];
    if (bytes > 0) {
        IST_RETURN_IF_ERROR(sim_memory_alloc(
            member->rank, bytes, IST_MEM_SYMMETRIC | IST_MEM_HOST_VISIBLE, &dev->resource));
        sim_resource_opened(member->rank, dev->resource, bytes);
    }
    uint32_t lsa_first = member->index - member->index % comm->lsa_size;
    bases->base[member->index] = dev->resource;
    bases->bytes[member->index] = bytes;
    dev->windows[0] = (ist_dev_window){.bytes = bytes,
                                       .local = dev->resource,
                                       .lsa = bases->base + lsa_first,
                                       .backend = bases->base};
    return IST_OK;
}

static ist_status sim_devcomm_fill(sim_devcomm *dev, const ist_devcomm_desc *desc)
{
    sim_member *member = dev->member;
    sim_comm *comm = member->comm;
    uint32_t room = member->window_room == 0 ? 8 : member->window_room;
    dev->windows = ist_alloc(room, sizeof(*dev->windows));
    if (dev->windows == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for %u windows", room);
    }
    if (member->window_room > 0) {
        memcpy(dev->windows, member->windows, member->window_room * sizeof(*dev->windows));
    }
    dev->pub = (ist_dev_comm){.rank = member->index,
                              .rank_count = comm->rank_count,
                              .lsa_rank = member->index % comm->lsa_size,
                              .lsa_size = comm->lsa_size,
                              .context_count = desc->context_count,
                              .signal_count = desc->signal_count,
                              .counter_count = desc->counter_count,
                              .lsa_barrier_count = desc->lsa_barrier_count,
                              .window_count = room,
                              .windows = dev->windows,
                              .mask = desc->mask,
                              .backend = dev};
    IST_RETURN_IF_ERROR(sim_devcomm_arrays(dev, desc));
    return sim_devcomm_resource(dev, desc->resource_bytes);
}

ist_status sim_devcomm_open(sim_member *member, const ist_devcomm_desc *desc, sim_devcomm **result)
{
    sim_devcomm *dev = ist_alloc(1, sizeof(*dev));
    if (dev == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for a device communicator");
    }
    dev->member = member;
    sim_collective_check(member, SIM_COLLECTIVE_DEVCOMM,
                         (uint64_t)desc->context_count << 48 |
                             (uint64_t)desc->lsa_barrier_count << 32 |
                             (desc->signal_count ^ (desc->counter_count << 16)));
    sim_numbers *numbers = &member->comm->devcomm_numbers;
    dev->instance = sim_numbers_enter(numbers, member->devcomm_last);
    ist_status status = sim_devcomm_fill(dev, desc);
    if (status != IST_OK) {
        if (dev->resource != NULL) {
            (void)sim_memory_free(member->rank, dev->resource);
        }
        sim_devcomm_free(dev);
        return status;
    }
    sim_numbers_opened(numbers, &member->devcomm_last);
    dev->next = member->devcomms;
    member->devcomms = dev;
    *result = dev;
    return IST_OK;
}

/* The memory of an instance lives until its last member has closed it, as memory that peers have
   mapped does: who closes first must not pull it away from under the others. */
static void sim_resource_release(sim_comm *comm, uint32_t instance)
{
    sim_window_bases *bases = &comm->resources[instance];
    for (uint32_t i = 0; i < comm->rank_count; ++i) {
        if (bases->base[i] != NULL) {
            (void)sim_memory_free(comm->members[i].rank, bases->base[i]);
        }
        bases->base[i] = NULL;
        bases->bytes[i] = 0;
    }
}

/* Whether puts to peers that are not given up have yet to arrive. */
static bool sim_devcomm_is_busy(const sim_devcomm *dev)
{
    const ist_dev_comm *pub = &dev->pub;
    for (size_t i = 0; i < (size_t)pub->context_count * pub->rank_count; ++i) {
        uint32_t peer = (uint32_t)(i % pub->rank_count);
        if (dev->pairs[i].head != NULL &&
            (pub->mask == NULL || ist_mask_test(pub->mask->words, peer) != 0)) {
            return true;
        }
    }
    return false;
}

/* A network that is closed under its puts loses them, though peers may wait for them; and what they go
   to may be freed once all have closed. So who closes waits until they have arrived, for a deadline. */
static void sim_devcomm_drain(sim_devcomm *dev)
{
    sim_member *member = dev->member;
    sim_actor *host = &member->rank->host;
    if (!sim_devcomm_is_busy(dev)) {
        return;
    }
    sim_actor_sync(host);
    uint64_t until_ps =
        sim_add_sat(member->rank->world->now_ps, sim_ps_from_ns(member->deadline_ns));
    bool in_time = true;
    while (in_time && !member->rank->dead && !member->aborted && sim_devcomm_is_busy(dev)) {
        dev->drainer = host;
        in_time = sim_actor_block(host, until_ps);
        dev->drainer = NULL;
    }
}

/* Puts on their way still name both ends, so the struct lives until the world ends. */
ist_status sim_devcomm_close(sim_member *member, sim_devcomm *dev)
{
    sim_comm *comm = member->comm;
    if (dev->closed) {
        return ist_raise(IST_ERR_OBJECT, NULL, "the device communicator is closed already");
    }
    sim_devcomm_drain(dev);
    if (member->rank->dead) {
        return IST_ERR_KILLED;
    }
    dev->closed = true;
    if (++comm->resources[dev->instance].closed == comm->rank_count) {
        sim_resource_release(comm, dev->instance);
    }
    return IST_OK;
}

uint64_t sim_window_bytes(const sim_devcomm *dev, uint32_t window, uint32_t peer)
{
    const sim_comm *comm = dev->member->comm;
    if (window == 0) {
        return comm->resources[dev->instance].bytes[peer];
    }
    return window < comm->window_room && comm->windows[window].bytes != NULL
               ? comm->windows[window].bytes[peer]
               : 0;
}

/* The dev comm of the same instance on another member, or NULL while it is not open. */
sim_devcomm *sim_devcomm_peer(const sim_devcomm *dev, uint32_t peer)
{
    sim_devcomm *other = dev->member->comm->members[peer].devcomms;
    while (other != NULL && other->instance != dev->instance) {
        other = other->next;
    }
    return other;
}

/* ---- end ------------------------------------------------------------------------------------- */

static void sim_bases_free(sim_window_bases *table, uint32_t room)
{
    for (uint32_t i = 0; i < room; ++i) {
        ist_free(table[i].base);
    }
    ist_free(table);
}

static void sim_comm_free(sim_comm *comm)
{
    for (uint32_t i = 0; i < comm->rank_count; ++i) {
        sim_member *member = &comm->members[i];
        while (member->devcomms != NULL) {
            sim_devcomm *dev = member->devcomms;
            member->devcomms = dev->next;
            sim_devcomm_free(dev);
        }
        ist_free(member->windows);
    }
    while (comm->exchanges_done != NULL) {
        sim_exchange *exchange = comm->exchanges_done;
        comm->exchanges_done = exchange->next;
        sim_exchange_free(exchange);
    }
    if (comm->exchange != NULL) {
        sim_exchange_free(comm->exchange);
    }
    sim_bases_free(comm->windows, comm->window_room);
    sim_bases_free(comm->resources, comm->resource_room);
    sim_coll_free(comm->coll);
    ist_free(comm->agreed);
    ist_free(comm->members);
    ist_free(comm);
}

void sim_comms_free(sim_world *world)
{
    while (world->comms != NULL) {
        sim_comm *comm = world->comms;
        world->comms = comm->next;
        sim_comm_free(comm);
    }
}
