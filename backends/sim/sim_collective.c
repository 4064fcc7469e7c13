/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collective calls that disagree, and what programs leave behind. The n-th call of each member of a
 * communicator must be of one kind and shape; who comes first says which.
 */
#include "sim_explore.h"

#include <string.h>

typedef struct sim_collective {
    sim_collective_kind kind;
    uint32_t rank; /* who came first */
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

void sim_collective_check(sim_member *member, sim_collective_kind kind, uint64_t value)
{
    sim_comm *comm = member->comm;
    sim_explore *explore = comm->world->explore;
    if (explore == NULL || !sim_detects(explore, IST_FINDING_DISAGREE) ||
        comm->world->fault_struck || member->aborted) {
        return;
    }
    uint32_t number = member->collectives++;
    if (number == comm->agreed_count) {
        if (sim_collective_room(comm)) {
            comm->agreed[comm->agreed_count++] = (sim_collective){kind, member->index, value};
        }
        return;
    }
    const sim_collective *first = &comm->agreed[number];
    if (first->kind != kind || first->value != value) {
        sim_finding_words(explore, IST_FINDING_DISAGREE, member->rank, IST_ERR_MISMATCH,
                          "collective call %u of a communicator: rank %u %s (%llu), rank %u %s "
                          "(%llu)",
                          number + 1u, first->rank, sim_collective_names[first->kind],
                          (unsigned long long)first->value, member->index,
                          sim_collective_names[kind], (unsigned long long)value);
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
