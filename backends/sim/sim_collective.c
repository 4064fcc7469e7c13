/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collective calls that disagree, and what programs leave behind. The n-th call of a kind must have one
 * shape on all members of a communicator; who comes first says which. Kinds count apart: a call that
 * fails on one member, before it gets here, is made up for in the next meeting.
 */
#include "sim_explore.h"

#include <string.h>

typedef struct sim_collective {
    sim_collective_kind kind;
    uint32_t number; /* among those of its kind */
    uint32_t rank;   /* who came first */
    uint64_t value;
} sim_collective;

static const char *const sim_collective_names[] = {
    [SIM_COLLECTIVE_EXCHANGE] = "exchanges bytes",
    [SIM_COLLECTIVE_WINDOW] = "opens a window",
    [SIM_COLLECTIVE_DEVCOMM] = "opens a device communicator",
};

static bool sim_collective_room(sim_comm *comm)
{
    if (comm->agreed_count < comm->agreed_room) {
        return true;
    }
    uint32_t room = comm->agreed_room == 0 ? 32u : comm->agreed_room * 2u;
    sim_collective *agreed = ist_alloc(room, sizeof(*agreed));
    if (agreed == NULL) {
        return false;
    }
    if (comm->agreed_count > 0) {
        memcpy(agreed, comm->agreed, comm->agreed_count * sizeof(*agreed));
    }
    ist_free(comm->agreed);
    comm->agreed = agreed;
    comm->agreed_room = room;
    return true;
}

static const sim_collective *sim_collective_find(const sim_comm *comm, sim_collective_kind kind,
                                                 uint32_t number)
{
    for (uint32_t i = comm->agreed_count; i-- > 0;) {
        if (comm->agreed[i].kind == kind && comm->agreed[i].number == number) {
            return &comm->agreed[i];
        }
    }
    return NULL;
}

void sim_collective_check(sim_member *member, sim_collective_kind kind, uint64_t value)
{
    sim_comm *comm = member->comm;
    sim_explore *explore = comm->world->explore;
    if (explore == NULL || !sim_detects(explore, IST_FINDING_DISAGREE) ||
        comm->world->fault_struck || member->aborted) {
        return;
    }
    uint32_t number = member->collectives[kind]++;
    const sim_collective *first = sim_collective_find(comm, kind, number);
    if (first == NULL) {
        if (sim_collective_room(comm)) {
            comm->agreed[comm->agreed_count++] =
                (sim_collective){kind, number, member->index, value};
        }
        return;
    }
    if (first->value != value) {
        sim_finding_words(
            explore, IST_FINDING_DISAGREE, member->rank, IST_ERR_MISMATCH,
            "collective call %u of a communicator that %s: rank %u says %llu, rank %u "
            "says %llu",
            number + 1u, sim_collective_names[kind], first->rank, (unsigned long long)first->value,
            member->index, (unsigned long long)value);
    }
}

void sim_leak_check(sim_rank *rank)
{
    sim_explore *explore = rank->world->explore;
    uint32_t left = 0;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < rank->memory.count; ++i) {
        const sim_allocation *allocation = &rank->memory.table[i];
        left += allocation->resource ? 0u : 1u;
        bytes += allocation->resource ? 0u : allocation->bytes;
    }
    if (left > 0 && rank->status == IST_OK && !rank->world->fault_struck &&
        sim_detects(explore, IST_FINDING_LEAK)) {
        sim_finding_words(explore, IST_FINDING_LEAK, rank, IST_ERR_DEVICE,
                          "the program of rank %u leaves %u allocations of %llu bytes of device "
                          "memory",
                          rank->index, left, (unsigned long long)bytes);
    }
}
