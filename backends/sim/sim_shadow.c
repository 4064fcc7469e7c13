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
#define SIM_UNLIKELY(condition) __builtin_expect(!!(condition), 0)
#define SIM_PAGE_BYTES (1u << SIM_SHADOW_PAGE_LOG2)

/* ---- pages ----------------------------------------------------------------------------------- */

static sim_shadow_page *sim_page_new(sim_explore *explore)
{
    if (explore->page_count == explore->page_room) {
        uint32_t room = explore->page_room == 0 ? 64u : explore->page_room * 2u;
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
    }
    sim_shadow_page *page = explore->pages[explore->page_count++];
    sim_clear(page, offsetof(sim_shadow_page, cells));
    page->starts[0] = 1;
    page->cells[0] = (sim_cell){0, 0};
    return page;
}

static inline sim_near *sim_near_of(sim_explore *explore, uint64_t number)
{
    return &explore->near[number * UINT64_C(0x9e3779b97f4a7c15) >> (64u - SIM_NEAR_LOG2)];
}

static bool sim_shadow_room(sim_shadow *shadow, uint32_t page)
{
    if (page < shadow->room) {
        return true;
    }
    uint32_t room = shadow->room == 0 ? 64u : shadow->room;
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
    if (made != NULL) {
        made->owner = &explore->world->ranks[rank];
    }
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

/* The page is not near: after this it is. */
static __attribute__((noinline)) sim_shadow_page *sim_page_far(sim_explore *explore,
                                                               const void *address)
{
    const sim_rank *owner = sim_memory_owner(explore->world, address);
    if (owner == NULL) {
        return NULL;
    }
    uint64_t number = (uint64_t)(uintptr_t)address >> SIM_SHADOW_PAGE_LOG2;
    sim_shadow_page *page = sim_shadow_page_of(
        explore, owner->index, (uint64_t)((const uint8_t *)address - owner->memory.base));
    if (page != NULL) {
        *sim_near_of(explore, number) = (sim_near){number, page};
    }
    return page;
}

/* The page of an address, or NULL as sim_shadow_page_at(). */
static inline sim_shadow_page *sim_page_at(sim_explore *explore, const void *address)
{
    uint64_t number = (uint64_t)(uintptr_t)address >> SIM_SHADOW_PAGE_LOG2;
    const sim_near *near = sim_near_of(explore, number);
    return near->number == number ? near->page : sim_page_far(explore, address);
}

sim_shadow_page *sim_shadow_page_at(sim_explore *explore, const void *address)
{
    return sim_page_at(explore, address);
}

void sim_shadow_watch(sim_explore *explore)
{
    explore->blind = (explore->desc.detectors_off & SIM_SHADOWED) == SIM_SHADOWED;
}

void sim_shadow_begin(sim_explore *explore)
{
    sim_shadow_watch(explore);
    for (uint32_t i = 0; i < 1u << SIM_NEAR_LOG2; ++i) {
        explore->near[i].number = UINT64_MAX;
    }
    for (uint32_t i = 0; i < explore->shadow_room; ++i) {
        sim_shadow *shadow = &explore->shadows[i];
        if (shadow->high > 0) {
            memset(shadow->pages, 0, shadow->high * sizeof(*shadow->pages));
        }
        shadow->high = 0;
        shadow->fenced = 0;
    }
    explore->page_count = 0;
    explore->reader_count = 0;
    explore->ring_count = 0;
    explore->label_count = 1;
}

/* Allocations begin and end at pages. What was known of their words goes with them. */
void sim_shadow_freed(sim_rank *rank, uint64_t offset, uint64_t bytes)
{
    sim_explore *explore = rank->world->explore;
    sim_shadow *shadow = &explore->shadows[rank->index];
    sim_touch(explore, rank->memory.base + offset, bytes, true);
    uint64_t end = (offset + bytes) >> SIM_SHADOW_PAGE_LOG2;
    for (uint64_t page = offset >> SIM_SHADOW_PAGE_LOG2; page < end && page < shadow->high;
         ++page) {
        shadow->pages[page] = NULL;
        uint64_t number = ((uint64_t)(uintptr_t)rank->memory.base >> SIM_SHADOW_PAGE_LOG2) + page;
        sim_near_of(explore, number)->number = UINT64_MAX;
    }
}

/* ---- runs of cells ----------------------------------------------------------------------------- */

static inline bool sim_run_starts(const sim_shadow_page *page, uint32_t cell)
{
    return (page->starts[cell / 64u] >> (cell % 64u) & 1u) != 0;
}

static inline void sim_run_mark(sim_shadow_page *page, uint32_t cell)
{
    page->starts[cell / 64u] |= UINT64_C(1) << (cell % 64u);
}

/* Lets a run begin at a cell in the middle of one. */
static void sim_run_cut(sim_shadow_page *page, uint32_t cell)
{
    uint32_t group = cell / 64u;
    uint64_t before = page->starts[group] & ((UINT64_C(1) << (cell % 64u)) - 1u);
    while (before == 0) { /* cell 0 begins one */
        before = page->starts[--group];
    }
    page->cells[cell] = page->cells[group * 64u + 63u - (uint32_t)__builtin_clzll(before)];
    sim_run_mark(page, cell);
}

/* Lets runs begin at `first` and behind `end` - 1; returns where the first one ends, at most `end`. */
static inline uint32_t sim_run_between(sim_shadow_page *page, uint32_t first, uint32_t end)
{
    if (!sim_run_starts(page, first)) {
        sim_run_cut(page, first);
    }
    uint32_t group = (first + 1u) / 64u;
    uint64_t behind = UINT64_MAX << ((first + 1u) % 64u);
    for (; group * 64u < end; ++group) {
        behind &= page->starts[group];
        if (behind != 0) {
            uint32_t next = group * 64u + (uint32_t)__builtin_ctzll(behind);
            if (next <= end) {
                return next;
            }
            break;
        }
        behind = UINT64_MAX;
    }
    if (end < SIM_SHADOW_CELLS && !sim_run_starts(page, end)) { /* it reaches beyond */
        page->cells[end] = page->cells[first];
        sim_run_mark(page, end);
    }
    return end;
}

/* Cells first … end-1 are one run from now on, which the first begins. */
static void sim_run_join(sim_shadow_page *page, uint32_t first, uint32_t end)
{
    for (uint32_t at = first + 1u; at < end;) {
        uint32_t group = at / 64u;
        uint32_t stop = end - group * 64u < 64u ? end - group * 64u : 64u;
        uint64_t keep = (UINT64_C(1) << (at % 64u)) - 1u;
        keep |= stop == 64u ? 0 : ~UINT64_C(0) << stop;
        page->starts[group] &= keep;
        at = (group + 1u) * 64u;
    }
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
        if (sim_agent_knows(agent, other)) {
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
    return sim_agent_knows(agent, other) || sim_both_strong(explore, epoch, other);
}

typedef struct sim_check {
    sim_explore *explore;
    const sim_agent *agent;
    const sim_access *access;
    uint64_t address;            /* of the cell */
    const sim_shadow_page *page; /* the first */
} sim_check;

/* Of a row that was written behind a fence, without more order than that: whoever reads it and then
   passes an acquire fence knows what lies before the writer's. */
static void sim_row_fenced(const sim_check *check, sim_epoch write, sim_epoch read)
{
    sim_explore *explore = check->explore;
    const sim_agent *writer = &explore->agents[sim_epoch_agent(write)];
    if (sim_epoch_class(write) != SIM_WEAK || sim_epoch_class(read) != SIM_WEAK ||
        writer->kind == SIM_AGENT_NETWORK || writer->rank == NULL ||
        writer->rank == check->agent->rank) {
        return;
    }
    uint32_t fenced = explore->shadows[writer->rank->index].fenced;
    if (fenced != 0) {
        sim_agent_note(explore, check->agent->number, fenced, 1);
    }
}

static void sim_cell_read(const sim_check *check, sim_cell *cell, sim_epoch epoch)
{
    const sim_agent *agent = check->agent;
    if (cell->write == 0) {
        if (check->page->symmetric && !check->page->zeroed &&
            sim_detects(check->explore, IST_FINDING_UNWRITTEN)) {
            sim_access at = *check->access;
            at.place = check->address << 16 | sim_access_label(&at);
            at.size = 4u << 1;
            sim_finding_access(check->explore, IST_FINDING_UNWRITTEN, &at,
                               "nobody has written it since it was allocated");
        }
    } else if (check->explore->gave_up && !sim_agent_knows(agent, cell->write)) {
        sim_row_fenced(check, cell->write, epoch);
    } else if (!sim_ordered(check->explore, agent, epoch, cell->write) &&
               !sim_words_read_as_row(epoch, cell->write)) {
        sim_finding_race(check->explore, agent->number, check->access, check->address, cell->write,
                         true);
    }
    if (sim_reads_shared(cell->read)) {
        cell->read = sim_readers_add(check->explore, cell->read, agent, epoch);
    } else if (sim_agent_knows(agent, cell->read)) {
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

/* What needs no judging: all that was done to the cell before is known. True: done. Without branches
   but the last, as no predictor can guess them. */
static inline __attribute__((always_inline)) bool sim_cell_quick(const sim_agent *agent,
                                                                 sim_cell *cell, sim_epoch epoch,
                                                                 bool write)
{
    sim_cell was = *cell;
    sim_epoch reader = was.read < SIM_READS ? was.read : SIM_EPOCH_UNKNOWN;
    uint32_t known =
        (uint32_t)sim_agent_knows(agent, was.write) & (uint32_t)sim_agent_knows(agent, reader);
    if ((known & ((uint32_t)write | (uint32_t)(was.write != 0))) == 0) {
        return false;
    }
    *cell = write ? (sim_cell){epoch, 0} : (sim_cell){was.write, epoch};
    return true;
}

/* How a row of at most 64 cells was met. */
typedef enum sim_row { SIM_ROW_DONE, SIM_ROW_HISTORY, SIM_ROW_RUNS } sim_row;

/* Most rows are part of one run: lets runs begin at both ends, and judges the row. */
static inline __attribute__((always_inline)) sim_row sim_row_quick(const sim_agent *agent,
                                                                   sim_shadow_page *page,
                                                                   uint32_t cell, uint32_t count,
                                                                   sim_epoch epoch, bool write)
{
    uint32_t group = cell / 64u, shift = cell % 64u, behind = cell + count;
    uint64_t starts = page->starts[group] >> shift | (page->starts[group + 1u] << 1)
                                                         << (63u - shift);
    if ((starts & 1u) == 0) {
        sim_run_cut(page, cell);
    }
    if ((starts & ((UINT64_C(2) << (count - 1u)) - 2u)) != 0) {
        return SIM_ROW_RUNS;
    }
    uint64_t *last = &page->starts[behind / 64u];
    uint64_t bit = UINT64_C(1) << (behind % 64u);
    page->cells[behind] = page->cells[(*last & bit) != 0 ? behind : cell];
    *last |= bit;
    return sim_cell_quick(agent, &page->cells[cell], epoch, write) ? SIM_ROW_DONE : SIM_ROW_HISTORY;
}

static void sim_cell_judge(const sim_check *check, sim_cell *cell, sim_epoch epoch)
{
    if (sim_access_writes(check->access)) {
        if (cell->write != epoch || cell->read != 0) {
            sim_cell_write(check, cell, epoch);
        }
    } else if (cell->read != epoch || cell->write == 0) {
        sim_cell_read(check, cell, epoch);
    }
}

/* Cells first … end-1 of a page, of which those before `next` are one run. */
static void sim_cells_judge(sim_check *check, sim_shadow_page *page, uint32_t first, uint32_t next,
                            uint32_t end, sim_epoch epoch)
{
    uint64_t address = check->address;
    uint32_t at = first;
    for (;;) {
        bool write = sim_access_writes(check->access);
        if (write ? !sim_cell_quick(check->agent, &page->cells[at], epoch, true)
                  : !sim_cell_quick(check->agent, &page->cells[at], epoch, false)) {
            check->address = address + 4u * (at - first);
            sim_cell_judge(check, &page->cells[at], epoch);
        }
        if (next == end || check->explore->stopped) {
            break;
        }
        at = next;
        next = sim_run_between(page, at, end);
    }
    if (sim_access_writes(check->access) && at != first && !check->explore->stopped) {
        sim_run_join(page, first, end);
    }
    check->address = address + 4u * (end - first);
}

/* ---- access ---------------------------------------------------------------------------------- */

/* Looks up what a page may be used for: nothing, where it is in no allocation. */
static void sim_page_look_up(const sim_explore *explore, sim_rank *owner, uint64_t offset,
                             sim_shadow_page *page)
{
    const sim_allocation *allocation = sim_memory_find(owner, owner->memory.base + offset, 1);
    if (allocation == NULL) {
        memset(page->range, 0, sizeof(page->range));
        return;
    }
    bool shared = allocation->windows > 0 || allocation->resource;
    uint64_t base = (uint64_t)(uintptr_t)owner->memory.base + allocation->offset;
    page->checked = explore->windows_serial;
    page->symmetric = (allocation->flags & IST_MEM_SYMMETRIC) != 0;
    page->zeroed = allocation->resource;
    page->range[0].begin = base + allocation->shared_begin;
    page->range[0].end = shared ? base + allocation->shared_end : 0;
    page->range[1].begin = base;
    page->range[1].end = base + allocation->bytes;
    uint64_t near = ((uint64_t)(uintptr_t)owner->memory.base + offset) | (SIM_PAGE_BYTES - 1u);
    for (uint32_t own = 0; own < 2; ++own) {
        uint64_t end = page->range[own].end;
        page->range[own].near_end = end <= near ? end : near + 1u;
    }
}

/* The agent may not be where it is: why? */
static void sim_range_refuse(const sim_check *check, sim_rank *owner)
{
    const sim_access *access = check->access;
    const sim_allocation *allocation = sim_memory_find(
        owner, (const void *)(uintptr_t)sim_access_address(access), sim_access_bytes(access));
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
    if (page != NULL && sim_access_writes(check->access)) {
        uint32_t cell = (uint32_t)(offset & (SIM_PAGE_BYTES - 1u)) / 4u;
        (void)sim_run_between(page, cell, cell + 1u);
        page->cells[cell].write = page->cells[cell].write == 0 ? epoch : page->cells[cell].write;
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
        uint32_t first = (uint32_t)inside / 4u, last = (uint32_t)(inside + part) / 4u;
        sim_cells_judge(check, page, first, sim_run_between(page, first, last), last, epoch);
        offset += part;
    }
}

static __attribute__((noinline)) uint32_t sim_label_new(sim_explore *explore, sim_agent *agent)
{
    if (explore->label_count > SIM_LABELS_MAX) {
        return 0; /* reports will say less */
    }
    if (explore->label_count >= explore->label_room) {
        uint32_t room = explore->label_room == 0 ? 256u : explore->label_room * 2u;
        sim_label *labels = ist_alloc(room, sizeof(*labels));
        if (labels == NULL) {
            return 0;
        }
        if (explore->label_room > 0) {
            memcpy(labels, explore->labels, explore->label_count * sizeof(*labels));
        }
        ist_free(explore->labels);
        explore->labels = labels;
        explore->label_room = room;
    }
    explore->labels[explore->label_count] = (sim_label){agent->kernel, agent->phase};
    return explore->label_count++;
}

static inline __attribute__((always_inline)) sim_access *sim_access_note(
    sim_explore *explore, sim_agent *agent, uint64_t address, uint64_t bytes, bool write,
    sim_epoch epoch, const char *call)
{
    if (agent->label == 0) {
        agent->label = sim_label_new(explore, agent);
    }
    sim_access *access = &explore->ring[explore->ring_count++ % SIM_ACCESS_RING];
    access->place = address << 16 | agent->label;
    access->size = bytes << 1 | write;
    access->call = call;
    access->epoch = epoch;
    access->step = explore->step;
    return access;
}

/* Bytes that are not one run. */
static __attribute__((noinline)) void sim_shadow_judge(sim_explore *explore, const sim_agent *agent,
                                                       const sim_access *access,
                                                       const sim_shadow_page *page, sim_rank *owner)
{
    sim_check check = {explore, agent, access, sim_access_address(access) & ~UINT64_C(3), page};
    uint64_t offset = sim_access_address(access) - (uint64_t)(uintptr_t)owner->memory.base;
    sim_shadow_range(&check, owner->index, offset, offset + sim_access_bytes(access),
                     access->epoch);
}

/* One run with a history. */
static __attribute__((noinline)) void sim_shadow_run(sim_explore *explore, const sim_agent *agent,
                                                     const sim_access *access,
                                                     const sim_shadow_page *page, sim_cell *cell)
{
    sim_check check = {explore, agent, access, sim_access_address(access), page};
    sim_cell_judge(&check, cell, access->epoch);
}

/* Beyond the page, or what it may be used for. */
static __attribute__((noinline)) void sim_shadow_beyond(sim_explore *explore,
                                                        const sim_agent *agent,
                                                        const sim_access *access,
                                                        const sim_shadow_page *page)
{
    sim_rank *owner = page->owner;
    uint64_t at = sim_access_address(access);
    bool own = owner == agent->home;
    if (at >= page->range[own].begin && at + sim_access_bytes(access) <= page->range[own].end) {
        sim_shadow_judge(explore, agent, access, page, owner);
        return;
    }
    sim_check check = {explore, agent, access, at & ~UINT64_C(3), page};
    owner->memory.stray = true;
    sim_range_refuse(&check, owner);
}

bool sim_shadow_is_complete(const sim_explore *explore)
{
    return !(explore->blind || explore->closing || explore->stopped);
}

/* An access to a page that is none. */
static __attribute__((noinline)) void sim_access_lost(sim_explore *explore, const void *address)
{
    sim_rank *owner = sim_memory_owner(explore->world, address);
    if (owner != NULL) {
        owner->memory.stray = true; /* nobody can tell */
    }
}

/* Whether the access is not looked at. */
static __attribute__((noinline)) bool sim_access_special(sim_explore *explore, const void *address,
                                                         uint64_t bytes, bool write)
{
    sim_touch(explore, address, bytes, write);
    return bytes == 0 || !sim_shadow_is_complete(explore);
}

/* True: the access must be judged. `page`: of its first byte, or NULL. */
static inline bool sim_access_begin(sim_explore *explore, const void *address, uint64_t bytes,
                                    bool write, sim_shadow_page **page)
{
    *page = sim_page_at(explore, address);
    if (SIM_UNLIKELY(*page == NULL)) {
        sim_access_lost(explore, address);
        return false;
    }
    return !SIM_UNLIKELY((explore->special != 0) | (bytes == 0)) ||
           !sim_access_special(explore, address, bytes, write);
}

static inline __attribute__((always_inline)) void sim_access_judge(
    sim_explore *explore, sim_agent *agent, sim_shadow_page *page, const void *address,
    uint64_t bytes, bool write, sim_class class, const char *call)
{
    uint64_t at = (uint64_t)(uintptr_t)address;
    agent->rows |= class == SIM_WEAK;
    sim_epoch epoch = (uint32_t) class << 30 | agent->own[class == SIM_WEAK];
    const sim_access *access = sim_access_note(explore, agent, at, bytes, write, epoch, call);
    if (SIM_UNLIKELY(page->checked != explore->windows_serial)) {
        sim_page_look_up(explore, page->owner, at - (uint64_t)(uintptr_t)page->owner->memory.base,
                         page);
    }
    bool own = page->owner == agent->home;
    if (SIM_UNLIKELY((at < page->range[own].begin) | (at + bytes > page->range[own].near_end))) {
        sim_shadow_beyond(explore, agent, access, page);
        return;
    }
    uint32_t cell = (uint32_t)(at & (SIM_PAGE_BYTES - 1u)) / 4u;
    sim_row met = SIM_ROW_RUNS;
    if (!SIM_UNLIKELY((((at | bytes) & 3u) != 0) | (bytes > 256u))) {
        met = sim_row_quick(agent, page, cell, (uint32_t)bytes / 4u, epoch, write);
    }
    if (met == SIM_ROW_RUNS) {
        sim_shadow_judge(explore, agent, access, page, page->owner);
    } else if (met == SIM_ROW_HISTORY) {
        sim_shadow_run(explore, agent, access, page, &page->cells[cell]);
    }
}

sim_shadow_page *sim_shadow_read(sim_explore *explore, uint32_t number, const void *address,
                                 uint64_t bytes, sim_class class, const char *call)
{
    sim_shadow_page *page;
    if (sim_access_begin(explore, address, bytes, false, &page)) {
        sim_access_judge(explore, &explore->agents[number], page, address, bytes, false, class,
                         call);
    }
    return page;
}

sim_shadow_page *sim_shadow_write(sim_explore *explore, uint32_t number, const void *address,
                                  uint64_t bytes, sim_class class, const char *call)
{
    sim_shadow_page *page;
    if (sim_access_begin(explore, address, bytes, true, &page)) {
        sim_access_judge(explore, &explore->agents[number], page, address, bytes, true, class,
                         call);
    }
    return page;
}

sim_rank *sim_shadow_copy(sim_explore *explore, uint32_t number, void *to, const void *from,
                          uint64_t bytes, const char *call)
{
    sim_agent *agent = &explore->agents[number];
    sim_shadow_page *page;
    if (sim_access_begin(explore, from, bytes, false, &page)) {
        sim_access_judge(explore, agent, page, from, bytes, false, SIM_WEAK, call);
    }
    if (sim_access_begin(explore, to, bytes, true, &page)) {
        sim_access_judge(explore, agent, page, to, bytes, true, SIM_WEAK, call);
    }
    return page != NULL ? page->owner : sim_memory_owner(explore->world, to);
}
