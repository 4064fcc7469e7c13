/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who touched which bytes: a cell for every four bytes of device memory that was touched, with the
 * last write and the reads since (FastTrack). Two accesses race when one writes, neither happens
 * before the other, and they are not both words of sufficient scope. Also here: is the memory there,
 * in a window where it must be, and was it ever written.
 */
#include "sim_explore.h"

#include <string.h>

/* Detectors that need to know who touched what. */
#define SIM_SHADOWED                                                                               \
    (IST_DETECTOR(IST_FINDING_RACE) | IST_DETECTOR(IST_FINDING_REUSED) |                           \
     IST_DETECTOR(IST_FINDING_UNWRITTEN) | IST_DETECTOR(IST_FINDING_OUTSIDE) |                     \
     IST_DETECTOR(IST_FINDING_FOREIGN))
#define SIM_PAGE_BYTES (1u << SIM_SHADOW_PAGE_LOG2)

/* ---- pages ----------------------------------------------------------------------------------- */

static sim_shadow_page *sim_page_new(sim_explore *explore)
{
    if (explore->page_count == explore->page_room) {
        uint32_t room = explore->page_room == 0 ? 256u : explore->page_room * 2u;
        sim_shadow_page **pages = ist_alloc(room, sizeof(*pages));
        if (pages == NULL) {
            return NULL;
        }
        if (explore->page_count > 0) {
            memcpy(pages, explore->pages, explore->page_count * sizeof(*pages));
        }
        ist_free(explore->pages);
        explore->pages = pages;
        explore->page_room = room;
    }
    if (explore->page_count == explore->page_high) {
        explore->pages[explore->page_count] = ist_alloc(1, sizeof(sim_shadow_page));
        if (explore->pages[explore->page_count] == NULL) {
            return NULL;
        }
        ++explore->page_high;
    } else {
        memset(explore->pages[explore->page_count], 0, sizeof(sim_shadow_page));
    }
    return explore->pages[explore->page_count++];
}

static bool sim_shadow_room(sim_shadow *shadow, uint32_t page)
{
    if (page < shadow->room) {
        return true;
    }
    uint32_t room = shadow->room == 0 ? 256u : shadow->room;
    while (room <= page) {
        room *= 2u;
    }
    sim_shadow_page **pages = ist_alloc(room, sizeof(sim_shadow_page *));
    if (pages == NULL) {
        return false;
    }
    if (shadow->room > 0) {
        memcpy(pages, shadow->pages, shadow->room * sizeof(*pages));
    }
    ist_free(shadow->pages);
    shadow->pages = pages;
    shadow->room = room;
    return true;
}

static sim_shadow_page *sim_shadow_page_make(sim_explore *explore, uint32_t rank, uint64_t page)
{
    sim_shadow *shadow = &explore->shadows[rank];
    if (page > UINT32_MAX / 2u || !sim_shadow_room(shadow, (uint32_t)page)) {
        return NULL;
    }
    sim_shadow_page *made = sim_page_new(explore);
    shadow->pages[page] = made;
    shadow->high = page + 1u > shadow->high ? (uint32_t)page + 1u : shadow->high;
    return made;
}

/* The page of an offset, made when it is missing. */
static inline sim_shadow_page *sim_shadow_page_of(sim_explore *explore, uint32_t rank,
                                                  uint64_t offset)
{
    const sim_shadow *shadow = &explore->shadows[rank];
    uint64_t page = offset >> SIM_SHADOW_PAGE_LOG2;
    return page < shadow->room && shadow->pages[page] != NULL
               ? shadow->pages[page]
               : sim_shadow_page_make(explore, rank, page);
}

void sim_shadow_begin(sim_explore *explore)
{
    for (uint32_t i = 0; i < explore->shadow_room; ++i) {
        sim_shadow *shadow = &explore->shadows[i];
        if (shadow->high > 0) {
            memset(shadow->pages, 0, shadow->high * sizeof(*shadow->pages));
        }
        shadow->high = 0;
    }
    explore->page_count = 0;
    explore->reader_count = 0;
    explore->ring_count = 0;
}

/* Allocations begin and end at pages. */
void sim_shadow_freed(sim_rank *rank, uint64_t offset, uint64_t bytes)
{
    sim_explore *explore = rank->world->explore;
    sim_shadow *shadow = &explore->shadows[rank->index];
    sim_touch(explore, rank->memory.base + offset, bytes, true);
    uint64_t end = (offset + bytes + SIM_PAGE_BYTES - 1u) >> SIM_SHADOW_PAGE_LOG2;
    bool words = false;
    for (uint64_t page = offset >> SIM_SHADOW_PAGE_LOG2; page < end && page < shadow->high;
         ++page) {
        words = words || (shadow->pages[page] != NULL && shadow->pages[page]->words);
        shadow->pages[page] = NULL;
    }
    if (words) {
        sim_words_forget(explore, rank->memory.base + offset, bytes);
    }
}

void sim_shadow_has_word(sim_explore *explore, const void *address)
{
    const sim_rank *owner = sim_memory_owner(explore->world, address);
    if (owner == NULL) {
        return;
    }
    uint64_t offset = (uint64_t)((const uint8_t *)address - owner->memory.base);
    sim_shadow_page *page = sim_shadow_page_of(explore, owner->index, offset);
    if (page != NULL) {
        page->words = true;
    }
}

static bool sim_agent_own(const sim_agent *agent, sim_epoch epoch)
{
    uint32_t number = sim_epoch_agent(epoch);
    return number == agent->number ||
           (agent->kind == SIM_AGENT_BLOCK && number == agent->number + 1u);
}

/* ---- readers --------------------------------------------------------------------------------- */

static sim_readers *sim_readers_of(sim_explore *explore, sim_epoch read)
{
    return &explore->readers[read & ~SIM_READS];
}

static bool sim_reads_shared(sim_epoch read)
{
    return (read & SIM_READS) == SIM_READS;
}

static sim_epoch sim_readers_new(sim_explore *explore, sim_epoch one, sim_epoch other)
{
    if (explore->reader_count == explore->reader_room) {
        uint32_t room = explore->reader_room == 0 ? 1024u : explore->reader_room * 2u;
        sim_readers *readers = ist_alloc(room, sizeof(*readers));
        if (readers == NULL) {
            return other;
        }
        if (explore->reader_count > 0) {
            memcpy(readers, explore->readers, explore->reader_count * sizeof(*readers));
        }
        ist_free(explore->readers);
        explore->readers = readers;
        explore->reader_room = room;
    }
    sim_readers *made = &explore->readers[explore->reader_count];
    made->count = 2;
    made->next_victim = 0;
    made->each[0] = one;
    made->each[1] = other;
    return SIM_READS | explore->reader_count++;
}

/* A list is shared by the cells of a row that were read together: one more reader makes a new list
   for those that it read. */
static sim_epoch sim_readers_add(sim_explore *explore, sim_epoch read, const sim_agent *agent,
                                 sim_epoch epoch)
{
    sim_readers old = explore->readers[read & ~SIM_READS];
    uint32_t place = old.count;
    for (uint32_t i = 0; i < old.count && place == old.count; ++i) {
        sim_epoch other = old.each[i];
        if (other == epoch) {
            return read;
        }
        if (sim_agent_own(agent, other) || sim_agent_knows(agent, other)) {
            place = i;
        }
    }
    sim_epoch made = sim_readers_new(explore, epoch, epoch);
    if (!sim_reads_shared(made)) {
        return read;
    }
    place = place < SIM_READERS_MAX ? place : old.next_victim++ % SIM_READERS_MAX;
    old.each[place] = epoch;
    old.count = place == old.count ? old.count + 1u : old.count;
    explore->readers[made & ~SIM_READS] = old;
    return made;
}

/* ---- races ----------------------------------------------------------------------------------- */

static bool sim_both_strong(const sim_explore *explore, sim_epoch one, sim_epoch other)
{
    uint32_t weaker = sim_epoch_class(one) < sim_epoch_class(other) ? sim_epoch_class(one)
                                                                    : sim_epoch_class(other);
    if (weaker == SIM_STRONG_DEVICE) {
        return explore->agents[sim_epoch_agent(one)].rank ==
               explore->agents[sim_epoch_agent(other)].rank;
    }
    return weaker == SIM_STRONG_SYSTEM;
}

/* A row that reads words which others store as words gets each of them whole, old or new. */
static bool sim_words_read_as_row(sim_epoch read, sim_epoch write)
{
    return sim_epoch_class(read) == SIM_WEAK && sim_epoch_class(write) == SIM_STRONG_SYSTEM;
}

/* Whether the access of `epoch` by the agent may follow `other` without order. */
static bool sim_ordered(const sim_explore *explore, const sim_agent *agent, sim_epoch epoch,
                        sim_epoch other)
{
    if (sim_agent_knows(agent, other) || sim_both_strong(explore, epoch, other)) {
        return true;
    }
    return sim_agent_own(agent, other);
}

typedef struct sim_check {
    sim_explore *explore;
    const sim_agent *agent;
    const sim_access *access;
    uint64_t address;            /* of the cell */
    const sim_shadow_page *page; /* the first */
} sim_check;

static void sim_cell_read(const sim_check *check, sim_cell *cell, sim_epoch epoch)
{
    const sim_agent *agent = check->agent;
    if (cell->write == 0) {
        if (check->page->symmetric && !check->page->zeroed &&
            sim_detects(check->explore, IST_FINDING_UNWRITTEN)) {
            sim_access at = *check->access;
            at.address = check->address;
            at.bytes = 4;
            sim_finding_access(check->explore, IST_FINDING_UNWRITTEN, &at,
                               "nobody has written it since it was allocated");
        }
    } else if (!sim_ordered(check->explore, agent, epoch, cell->write) &&
               !sim_words_read_as_row(epoch, cell->write)) {
        sim_finding_race(check->explore, agent->number, check->access, check->address, cell->write,
                         true);
    }
    if (sim_reads_shared(cell->read)) {
        cell->read = sim_readers_add(check->explore, cell->read, agent, epoch);
    } else if (cell->read == 0 || sim_agent_own(agent, cell->read) ||
               sim_agent_knows(agent, cell->read)) {
        cell->read = epoch;
    } else {
        cell->read = sim_readers_new(check->explore, cell->read, epoch);
    }
}

static void sim_cell_write(const sim_check *check, sim_cell *cell, sim_epoch epoch)
{
    sim_explore *explore = check->explore;
    const sim_agent *agent = check->agent;
    if (cell->write != 0 && !sim_ordered(explore, agent, epoch, cell->write)) {
        sim_finding_race(explore, agent->number, check->access, check->address, cell->write, true);
    }
    if (sim_reads_shared(cell->read)) {
        const sim_readers *readers = sim_readers_of(explore, cell->read);
        for (uint32_t i = 0; i < readers->count; ++i) {
            if (!sim_ordered(explore, agent, epoch, readers->each[i]) &&
                !sim_words_read_as_row(readers->each[i], epoch)) {
                sim_finding_race(explore, agent->number, check->access, check->address,
                                 readers->each[i], false);
                break;
            }
        }
    } else if (cell->read != 0 && !sim_ordered(explore, agent, epoch, cell->read) &&
               !sim_words_read_as_row(cell->read, epoch)) {
        sim_finding_race(explore, agent->number, check->access, check->address, cell->read, false);
    }
    cell->write = epoch;
    cell->read = 0;
}

/* Most rows were touched as a whole before: equal cells are judged once and filled. */
static uint64_t sim_equal_run(const sim_cell *cells, uint64_t count)
{
    if (count == 1) {
        return 1;
    }
    if (count > 2 && memcmp(cells, cells + 1, (count - 1u) * sizeof(*cells)) == 0) {
        return count;
    }
    uint64_t run = 1;
    while (run < count && cells[run].write == cells[0].write && cells[run].read == cells[0].read) {
        ++run;
    }
    return run;
}

static void sim_cells_fill(sim_cell *cells, uint64_t count)
{
    const sim_cell first = cells[0];
    uint64_t i = 1;
    for (; i + 4u <= count; i += 4u) {
        cells[i] = first;
        cells[i + 1u] = first;
        cells[i + 2u] = first;
        cells[i + 3u] = first;
    }
    for (; i < count; ++i) {
        cells[i] = first;
    }
}

static void sim_cells_judge(sim_check *check, sim_cell *cells, uint64_t count, sim_epoch epoch)
{
    while (count > 0 && !check->explore->stopped) {
        bool same = check->access->write ? cells->write == epoch && cells->read == 0
                                         : cells->read == epoch && cells->write != 0;
        uint64_t run = sim_equal_run(cells, count);
        if (!same) {
            if (check->access->write) {
                sim_cell_write(check, cells, epoch);
            } else {
                sim_cell_read(check, cells, epoch);
            }
            sim_cells_fill(cells, run);
        }
        cells += run;
        count -= run;
        check->address += 4u * run;
    }
}

/* ---- access ---------------------------------------------------------------------------------- */

/* Looks up what a page may be used for. False: it is in no allocation. */
static bool sim_page_look_up(const sim_explore *explore, sim_rank *owner, uint64_t offset,
                             sim_shadow_page *page)
{
    const sim_allocation *allocation = sim_memory_find(owner, owner->memory.base + offset, 1);
    if (allocation == NULL) {
        return false;
    }
    bool shared = allocation->windows > 0 || allocation->resource;
    page->checked = explore->windows_serial;
    page->symmetric = (allocation->flags & IST_MEM_SYMMETRIC) != 0;
    page->zeroed = allocation->resource;
    page->begin = allocation->offset;
    page->end = allocation->offset + allocation->bytes;
    page->shared_begin = allocation->offset + allocation->shared_begin;
    page->shared_end = shared ? allocation->offset + allocation->shared_end : 0;
    return true;
}

/* The agent may not be where it is: why? */
static void sim_range_refuse(const sim_check *check, sim_rank *owner)
{
    const sim_access *access = check->access;
    const sim_allocation *allocation =
        sim_memory_find(owner, (const void *)(uintptr_t)access->address, access->bytes);
    ist_finding_kind kind = IST_FINDING_OUTSIDE;
    const char *why = "the range lies in no allocation: outside, or freed";
    if (allocation != NULL && allocation->shared_end == 0) {
        kind = IST_FINDING_FOREIGN;
        why = "another rank's memory, which was never in a window";
    } else if (allocation != NULL) {
        why = allocation->windows == 0 && !allocation->resource
                  ? "the window was closed"
                  : "outside the windows of the memory";
    }
    if (sim_detects(check->explore, kind)) {
        sim_finding_access(check->explore, kind, access, why);
    }
}

/* Cells that a row covers in part belong to its neighbour as well: only that they were written is
   kept. */
static void sim_shadow_edge(const sim_check *check, uint32_t rank, uint64_t offset, sim_epoch epoch)
{
    sim_shadow_page *page = sim_shadow_page_of(check->explore, rank, offset);
    if (page != NULL && check->access->write) {
        sim_cell *cell = &page->cells[(offset & (SIM_PAGE_BYTES - 1u)) / 4u];
        cell->write = cell->write == 0 ? epoch : cell->write;
    }
}

static void sim_shadow_range(sim_check *check, uint32_t rank, uint64_t offset, uint64_t end,
                             sim_epoch epoch)
{
    if ((offset & 3u) != 0) {
        sim_shadow_edge(check, rank, offset, epoch);
        offset = (offset + 3u) & ~UINT64_C(3);
        check->address += 4;
    }
    if ((end & 3u) != 0 && end > offset) {
        sim_shadow_edge(check, rank, end, epoch);
        end &= ~UINT64_C(3);
    }
    while (offset < end && !check->explore->stopped) {
        uint64_t inside = offset & (SIM_PAGE_BYTES - 1u);
        uint64_t part =
            SIM_PAGE_BYTES - inside < end - offset ? SIM_PAGE_BYTES - inside : end - offset;
        sim_shadow_page *page = sim_shadow_page_of(check->explore, rank, offset);
        if (page == NULL) {
            return;
        }
        sim_cells_judge(check, &page->cells[inside / 4u], part / 4u, epoch);
        offset += part;
    }
}

void sim_shadow_access(sim_explore *explore, uint32_t number, const void *address, uint64_t bytes,
                       bool write, sim_class class, const char *call)
{
    sim_agent *agent = &explore->agents[number];
    sim_world *world = explore->world;
    sim_rank *owner = sim_memory_owner(world, address);
    if (owner != NULL) {
        sim_touch(explore, address, bytes, write);
    }
    if (owner == NULL || bytes == 0 ||
        (explore->desc.detectors_off & SIM_SHADOWED) == SIM_SHADOWED || explore->closing ||
        explore->stopped) {
        return;
    }
    sim_epoch epoch = sim_epoch_of(number, agent->clock[number], class);
    if (class == SIM_WEAK && agent->kind == SIM_AGENT_BLOCK) {
        agent->rows = true;
        epoch = sim_epoch_of(number + 1u, agent->row_clock, class);
    }
    sim_access *access = &explore->ring[explore->ring_count++ % SIM_ACCESS_RING];
    *access = (sim_access){.address = (uint64_t)(uintptr_t)address,
                           .bytes = bytes,
                           .epoch = epoch,
                           .step = explore->step,
                           .call = call,
                           .kernel = agent->kernel,
                           .phase = agent->phase,
                           .write = write ? 1u : 0u,
                           .reserved = 0};
    uint64_t offset = access->address - (uint64_t)(uintptr_t)owner->memory.base;
    uint64_t end = offset + bytes;
    sim_shadow_page *page = sim_shadow_page_of(explore, owner->index, offset);
    if (page == NULL) {
        return;
    }
    sim_check check = {explore, agent, access, access->address & ~UINT64_C(3), page};
    bool known =
        page->checked == explore->windows_serial || sim_page_look_up(explore, owner, offset, page);
    bool own = owner == agent->rank && agent->kind != SIM_AGENT_NETWORK;
    if (!known || offset < page->begin || end > page->end ||
        (!own && (offset < page->shared_begin || end > page->shared_end))) {
        sim_range_refuse(&check, owner);
        return;
    }
    uint64_t inside = offset & (SIM_PAGE_BYTES - 1u);
    if ((offset & 3u) == 0 && (bytes & 3u) == 0 && inside + bytes <= SIM_PAGE_BYTES) {
        sim_cells_judge(&check, &page->cells[inside / 4u], bytes / 4u, epoch);
        return;
    }
    sim_shadow_range(&check, owner->index, offset, end, epoch);
}
