/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Findings: what a detector saw, as numbers and as text for people. The first finding of a world is
 * kept; unless the world goes on, it ends there.
 */
#include "sim_explore.h"

#include <stdio.h>
#include <string.h>

/* ---- text ------------------------------------------------------------------------------------ */

static void sim_text_add(ist_finding *finding, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void sim_text_add(ist_finding *finding, const char *format, ...)
{
    size_t used = strlen(finding->text);
    va_list list;
    va_start(list, format);
    (void)vsnprintf(finding->text + used, sizeof(finding->text) - used, format, list);
    va_end(list);
}

static void sim_text_access(ist_finding *finding, const char *lead, const ist_access *access)
{
    sim_text_add(finding, "%s%s of %llu bytes at offset 0x%llx of rank %d's memory by ", lead,
                 access->write ? "write" : "read", (unsigned long long)access->bytes,
                 (unsigned long long)access->offset, access->owner);
    if (access->block >= 0) {
        sim_text_add(finding, "rank %d, kernel %s, block %d", access->rank, access->kernel,
                     access->block);
    } else {
        sim_text_add(finding, "rank %d, %s", access->rank, access->kernel);
    }
    sim_text_add(finding, ", %s%s%s (step %llu)\n", access->call,
                 access->phase[0] != '\0' ? " after " : "", access->phase,
                 (unsigned long long)access->step);
}

/* The line that repeats the schedule. */
static void sim_text_replay(const sim_explore *explore, ist_finding *finding)
{
    const ist_explore_desc *desc = &explore->desc;
    const char *lead = desc->replay != NULL ? desc->replay : "replay:";
    unsigned long long seed = explore->world->setup->seed;
    if (explore->guide != NULL || desc->scheduler == IST_SCHEDULER_REPLAY) {
        sim_text_add(finding, "%s --scheduler replay --seed %llu", lead, seed);
        for (uint32_t i = 0; i < explore->pick_count && i < 24; ++i) {
            sim_text_add(finding, "%s%u:%u", i == 0 ? " --choices " : ",", explore->picks[i].at,
                         explore->picks[i].pick);
        }
        sim_text_add(finding, explore->pick_count > 24 ? ",… (%u in all)\n" : "\n",
                     explore->pick_count);
    } else if (desc->scheduler == IST_SCHEDULER_PCT) {
        sim_text_add(finding, "%s --scheduler pct:%u --steps %u --seed %llu\n", lead, desc->depth,
                     desc->steps, seed);
    } else {
        sim_text_add(finding, "%s --scheduler random --seed %llu\n", lead, seed);
    }
}

/* ---- keeping --------------------------------------------------------------------------------- */

/* The record to fill, or NULL when another finding came first. */
static ist_finding *sim_finding_begin(sim_explore *explore, ist_finding_kind kind,
                                      ist_status status)
{
    if (explore->report.finding_count++ > 0) {
        return NULL;
    }
    ist_finding *finding = &explore->report.finding;
    memset(finding, 0, sizeof(*finding));
    finding->kind = kind;
    finding->status = status;
    finding->first.rank = finding->second.rank = IST_RANK_NONE;
    finding->first.owner = finding->second.owner = IST_RANK_NONE;
    finding->first.block = finding->second.block = -1;
    return finding;
}

static void sim_finding_end(sim_explore *explore, ist_finding *finding)
{
    if (finding != NULL) {
        sim_text_replay(explore, finding);
    }
    if ((explore->desc.options & IST_EXPLORE_GO_ON) == 0) {
        explore->stopped = true;
    }
}

static void sim_access_fill(const sim_explore *explore, const sim_access *from, ist_access *access)
{
    const sim_agent *agent = &explore->agents[sim_epoch_agent(from->epoch)];
    uint64_t address = sim_access_address(from);
    const sim_rank *owner = sim_memory_owner(explore->world, (const void *)(uintptr_t)address);
    const sim_label own = {agent->kernel, ""};
    const sim_label *label =
        sim_access_label(from) != 0 ? &explore->labels[sim_access_label(from)] : &own;
    access->rank = agent->rank != NULL ? (int32_t)agent->rank->index : IST_RANK_NONE;
    access->block = agent->block;
    access->owner = owner != NULL ? (int32_t)owner->index : IST_RANK_NONE;
    access->write = sim_access_writes(from) ? 1u : 0u;
    access->offset = owner != NULL ? address - (uint64_t)(uintptr_t)owner->memory.base : 0;
    access->bytes = sim_access_bytes(from);
    access->step = from->step;
    (void)snprintf(access->kernel, sizeof(access->kernel), "%s", label->kernel);
    (void)snprintf(access->call, sizeof(access->call), "%s", from->call);
    (void)snprintf(access->phase, sizeof(access->phase), "%s", label->phase);
}

/* The newest kept access that touched the place with that epoch. */
static const sim_access *sim_access_find(const sim_explore *explore, uint64_t address,
                                         sim_epoch epoch, bool write)
{
    uint64_t kept = explore->ring_count < SIM_ACCESS_RING ? explore->ring_count : SIM_ACCESS_RING;
    for (uint64_t i = 1; i <= kept; ++i) {
        const sim_access *access = &explore->ring[(explore->ring_count - i) % SIM_ACCESS_RING];
        if (access->epoch == epoch && sim_access_writes(access) == write &&
            sim_access_address(access) < address + 4u &&
            address < sim_access_address(access) + sim_access_bytes(access)) {
            return access;
        }
    }
    return NULL;
}

/* ---- races ----------------------------------------------------------------------------------- */

static const char *sim_missing_edge(const sim_agent *first, const sim_agent *second,
                                    sim_epoch epoch, bool first_writes)
{
    if (first->kind == SIM_AGENT_NETWORK) {
        return first_writes
                   ? "acquire of a signal that covers the put (its own, or a strong one of "
                     "its context)"
                   : "local completion of the put: a counter or a flush";
    }
    if (second->kind == SIM_AGENT_NETWORK) {
        return "order between the earlier access and the put that follows it";
    }
    if (first->rank == second->rank &&
        (first->kind != SIM_AGENT_BLOCK || second->kind != SIM_AGENT_BLOCK)) {
        return "order of a stream, an event or a stream sync";
    }
    if (sim_epoch_class(epoch) == SIM_WEAK && first->kind == SIM_AGENT_BLOCK &&
        sim_epoch_clock(epoch) > first[-1].row_synced) { /* rows: behind their block */
        return "coop sync and release after the first, acquire before the second";
    }
    return first->rank == second->rank
               ? "release at device scope after the first, acquire before the second"
               : "release at system scope after the first, acquire at system scope before the second";
}

/*
 * Once a rank has given another up, is dead, has waited in vain or aborted, races are not judged any
 * more: who takes part is decided after the fact then, what came too early or late is thrown away or
 * marked, and whether that is right is for the oracle to say.
 */
void sim_finding_race(sim_explore *explore, uint32_t number, const sim_access *access,
                      uint64_t address, sim_epoch other, bool other_writes)
{
    const sim_agent *second = &explore->agents[number];
    const sim_agent *first = &explore->agents[sim_epoch_agent(other)];
    ist_finding_kind kind = other_writes ? IST_FINDING_RACE : IST_FINDING_REUSED;
    if (!sim_detects(explore, kind) || explore->gave_up) {
        return;
    }
    ist_finding *finding = sim_finding_begin(explore, kind, IST_ERR_DEVICE);
    if (finding != NULL) {
        uint64_t second_at = sim_access_address(access);
        const sim_access *earlier = sim_access_find(explore, address, other, other_writes);
        sim_access unknown = {.place = address << 16,
                              .size = 4u << 1 | (other_writes ? 1u : 0u),
                              .call = "?",
                              .epoch = other};
        sim_access_fill(explore, earlier != NULL ? earlier : &unknown, &finding->first);
        sim_access_fill(explore, access, &finding->second);
        (void)snprintf(finding->missing, sizeof(finding->missing), "%s",
                       sim_missing_edge(first, second, other, other_writes));
        sim_text_add(finding, "%s at byte 0x%llx: nothing orders two accesses\n",
                     ist_finding_name(kind),
                     (unsigned long long)finding->second.offset +
                         (unsigned long long)(address > second_at ? address - second_at : 0));
        sim_text_access(finding, "  ", &finding->first);
        sim_text_access(finding, "  ", &finding->second);
        sim_text_add(finding, "  missing: %s\n", finding->missing);
    }
    sim_finding_end(explore, finding);
}

void sim_finding_access(sim_explore *explore, ist_finding_kind kind, const sim_access *access,
                        const char *why)
{
    ist_finding *finding = sim_finding_begin(explore, kind, IST_ERR_DEVICE);
    if (finding != NULL) {
        sim_access_fill(explore, access, &finding->second);
        (void)snprintf(finding->missing, sizeof(finding->missing), "%s", why);
        sim_text_add(finding, "%s: %s\n", ist_finding_name(kind), why);
        sim_text_access(finding, "  ", &finding->second);
    }
    sim_finding_end(explore, finding);
}

void sim_finding_words(sim_explore *explore, ist_finding_kind kind, sim_rank *rank,
                       ist_status status, const char *format, ...)
{
    ist_finding *finding = sim_finding_begin(explore, kind, status);
    if (finding != NULL) {
        finding->second.rank = rank != NULL ? (int32_t)rank->index : IST_RANK_NONE;
        sim_text_add(finding, "%s: ", ist_finding_name(kind));
        size_t used = strlen(finding->text);
        va_list list;
        va_start(list, format);
        (void)vsnprintf(finding->text + used, sizeof(finding->text) - used, format, list);
        va_end(list);
        sim_text_add(finding, "\n");
    }
    sim_finding_end(explore, finding);
}

/* ---- waits ----------------------------------------------------------------------------------- */

void sim_finding_wait(sim_explore *explore, ist_finding_kind kind, const ist_finding *wait,
                      const char *graph)
{
    ist_finding *finding = sim_finding_begin(explore, kind, IST_ERR_DEADLOCK);
    if (finding != NULL) {
        *finding = *wait;
        finding->kind = kind;
        finding->status = IST_ERR_DEADLOCK;
        sim_text_add(finding,
                     kind == IST_FINDING_DEADLOCK
                         ? "deadlock: nothing but a deadline can end these waits\n%s"
                         : "livelock: the limit of steps is passed; waiting or polling\n%s",
                     graph);
    }
    sim_finding_end(explore, finding);
}

#define X(name, value, text) [value] = text,
static const char *const sim_finding_names[] = {IST_FINDING_LIST(X)};
#undef X

const char *ist_finding_name(ist_finding_kind kind)
{
    return (uint32_t)kind < sizeof(sim_finding_names) / sizeof(*sim_finding_names)
               ? sim_finding_names[kind]
               : "?";
}
