/* SPDX-License-Identifier: Apache-2.0 */
/* Scenarios of what a communicator runs for itself: barrier, agreement, clean, mask as numbers. Oracle:
 * after a barrier every row that a member of it wrote before is there, whole; agreements and cleans
 * leave one mask; the mask as numbers lies between the masks before and after it.
 */
#include "explore_actor.h"
#include "explore_kernel.h"

#include "cli_hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MASK_BARRIER, MASK_AGREE, MASK_CLEAN, MASK_READ };

#define SLOTS_BYTES (EXPLORE_RANKS_MAX * EXPLORE_SLOT_BYTES)

typedef struct mask_actor {
    explore_actor base;
    const ist_dev_comm *dev;
    bool by_hand;     /* somebody was masked by hand in this step */
    int32_t *numbers; /* device memory, [rank_count] */
} mask_actor;

/* ------------------------------------------------------------------------------------ open, close */

static ist_status open_all(ist_world *world, mask_actor *a)
{
    ist_comm_desc desc = {
        .size = sizeof desc, .fault_tolerant = 1, .deadline_ns = EXPLORE_DEADLINE_NS};
    void *memory = NULL;
    EXPLORE_TRY(ist_comm_open(world, &desc, &a->base.comm));
    EXPLORE_TRY(ist_stream_open(world, &a->base.stream));
    EXPLORE_TRY(ist_dev_comm_open(a->base.comm, 2u * SLOTS_BYTES, 0, 0, 0, 0, &a->dev));
    EXPLORE_TRY(
        ist_mem_alloc(world, a->base.rank_count * sizeof *a->numbers, IST_MEM_PLAIN, &memory));
    a->numbers = memory;
    return IST_OK;
}

/* Also after a failure: what is open is closed. */
static ist_status close_all(mask_actor *a, ist_status status)
{
    explore_actor *base = &a->base;
    ist_status closed = ist_stream_close(base->stream);
    ist_status other = ist_mem_free(base->world, a->numbers);
    closed = closed == IST_OK ? other : closed;
    other = base->comm == NULL ? IST_OK : ist_dev_comm_close(base->comm, a->dev);
    closed = closed == IST_OK ? other : closed;
    other = ist_comm_close(base->comm);
    closed = explore_call(base, closed == IST_OK ? other : closed, "close");
    return closed == IST_ERR_KILLED ? closed : status;
}

/* ------------------------------------------------------------------------------------ barrier */

static uint32_t value_of(const mask_actor *a, uint32_t rank, uint32_t step)
{
    return (uint32_t)(cli_fold(cli_fold(a->base.run->seed, rank), step) | 1u) & 0xffu;
}

/* Rows of one step lie beside those of the last: a peer may be one barrier ahead. */
static uint64_t slots_of(uint32_t step)
{
    return step % 2u * SLOTS_BYTES;
}

static ist_status write_slots(mask_actor *a, uint32_t step)
{
    explore_slots_args args = {a->dev, slots_of(step), value_of(a, a->base.rank, step)};
    return explore_call(
        &a->base, ist_launch(a->base.stream, &ist_kernel_explore_slots, 1, &args, sizeof args),
        "launch");
}

/* A rank that others may have given up can be some steps behind them when it looks. */
static bool may_be_there(const mask_actor *a, uint32_t peer, uint32_t step, uint8_t byte)
{
    bool found = byte == value_of(a, peer, step);
    if (explore_may_be_out(&a->base) || a->by_hand) {
        found = found || byte == 0;
        for (uint32_t other = 0; other < a->base.run->numbers.steps; ++other) {
            found = found || byte == value_of(a, peer, other);
        }
    }
    return found;
}

static void check_slot(mask_actor *a, uint32_t peer, uint32_t step, const uint8_t *slot)
{
    for (uint32_t i = 0; i < EXPLORE_SLOT_BYTES; ++i) {
        if (!may_be_there(a, peer, step, slot[i])) {
            explore_wrong(&a->base,
                          "after barrier %u byte %u of rank %u's row is 0x%02x, not 0x%02x", step,
                          i, peer, slot[i], value_of(a, peer, step));
            return;
        }
    }
}

static ist_status check_slots(mask_actor *a, uint32_t step)
{
    uint8_t host[SLOTS_BYTES];
    uint64_t mask = 0, generation = 0;
    const uint8_t *mine = a->dev->windows[0].local;
    EXPLORE_TRY(explore_call(&a->base, ist_stream_sync(a->base.stream, 0), "stream_sync"));
    EXPLORE_TRY(explore_call(
        &a->base, ist_copy_to_host(a->base.stream, host, mine + slots_of(step), sizeof host),
        "copy_to_host"));
    EXPLORE_TRY(explore_look(&a->base, &mask, &generation));
    for (uint32_t peer = 0; peer < a->base.rank_count; ++peer) {
        if (explore_has(mask, peer) && ist_dev_is_lsa(a->dev, peer)) {
            check_slot(a, peer, step, host + (size_t)peer * EXPLORE_SLOT_BYTES);
        }
    }
    return IST_OK;
}

static ist_status barrier(mask_actor *a)
{
    return explore_call(&a->base, ist_comm_barrier(a->base.comm, a->base.stream), "barrier");
}

static ist_status play_barrier(mask_actor *a, uint32_t step)
{
    EXPLORE_TRY(write_slots(a, step));
    EXPLORE_TRY(barrier(a));
    return check_slots(a, step);
}

/* ------------------------------------------------------------------------------------ mask as numbers */

static ist_status play_read(mask_actor *a, uint32_t step)
{
    uint64_t before = 0, after = 0, generation = 0, read = 0;
    int32_t host[EXPLORE_RANKS_MAX];
    EXPLORE_TRY(explore_look(&a->base, &before, &generation));
    EXPLORE_TRY(barrier(a));
    EXPLORE_TRY(explore_call(&a->base, ist_comm_mask_read(a->base.comm, a->numbers, a->base.stream),
                             "mask_read"));
    EXPLORE_TRY(explore_call(
        &a->base,
        ist_copy_to_host(a->base.stream, host, a->numbers, a->base.rank_count * sizeof *host),
        "copy_to_host"));
    EXPLORE_TRY(explore_look(&a->base, &after, &generation));
    for (uint32_t rank = 0; rank < a->base.rank_count; ++rank) {
        if ((uint32_t)host[rank] > 1u) {
            explore_wrong(&a->base, "step %u: the mask of rank %u as a number is %d", step, rank,
                          host[rank]);
        }
        read |= (uint64_t)(host[rank] == 1) << rank;
    }
    if ((read & ~before) != 0 || (after & ~read) != 0) {
        explore_wrong(&a->base,
                      "step %u: the mask went from 0x%" PRIx64 " to 0x%" PRIx64
                      ", as numbers it was 0x%" PRIx64,
                      step, before, after, read);
    }
    return IST_OK;
}

/* ------------------------------------------------------------------------------------ agreement, clean */

static ist_status play_agree(mask_actor *a, uint32_t step)
{
    EXPLORE_TRY(play_barrier(a, step));
    ist_status status = ist_comm_agree(a->base.comm, a->base.stream);
    return explore_met(&a->base, status, "agree");
}

/* The rank that rank 0 drops by hand. It lives, does not hear of it at once, and may take others along
   when it goes; all come back with the clean. */
static uint32_t victim_of(const explore_run *run)
{
    return 1u + (uint32_t)(cli_fold(run->seed, 0x76696374u) % (run->numbers.ranks - 1u));
}

static ist_status drop_victim(mask_actor *a)
{
    uint64_t words = explore_all(&a->base) & ~(UINT64_C(1) << victim_of(a->base.run));
    if (a->base.rank != 0) {
        return IST_OK;
    }
    return explore_call(&a->base, ist_comm_mask_update(a->base.comm, &words, a->base.stream),
                        "mask_update");
}

/* Ranks that are out sit the step out; all meet again at one time and clean. */
static ist_status play_clean(mask_actor *a, uint32_t step)
{
    explore_actor *base = &a->base;
    a->by_hand = step == 0;
    ist_status status = a->by_hand ? drop_victim(a) : IST_OK;
    status = status == IST_OK ? play_barrier(a, step) : status;
    status = status == IST_OK
                 ? explore_call(base, ist_comm_agree(base->comm, base->stream), "agree")
                 : status;
    if (status != IST_OK && status != IST_ERR_EVICTED) {
        return status;
    }
    EXPLORE_TRY(explore_sleep_until(base, (step + 1u) * (uint64_t)EXPLORE_MEET_NS));
    EXPLORE_TRY(explore_call(base, ist_comm_error_clear(base->comm), "error_clear"));
    if (a->by_hand) {
        explore_forget_missed(base);
    }
    status = ist_comm_clean(base->comm, base->stream);
    EXPLORE_TRY(explore_met(base, status, "clean"));
    uint64_t missed = explore_all(base) & ~base->seen->mask;
    if (base->run->healthy && missed != 0) {
        explore_wrong(base, "no fault struck, and after the clean ranks 0x%" PRIx64 " are missing",
                      missed);
    }
    return IST_OK;
}

/* ------------------------------------------------------------------------------------ the program */

static ist_status play_step(mask_actor *a, uint32_t step)
{
    switch (a->base.run->scenario->flags) {
    case MASK_BARRIER: return play_barrier(a, step);
    case MASK_AGREE: return play_agree(a, step);
    case MASK_CLEAN: return play_clean(a, step);
    default: return play_read(a, step);
    }
}

static ist_status play(mask_actor *a)
{
    for (uint32_t step = 0; step < a->base.run->numbers.steps; ++step) {
        EXPLORE_TRY(play_step(a, step));
    }
    return explore_errors(&a->base);
}

static ist_status mask_main(ist_world *world, void *run)
{
    mask_actor a = {.dev = NULL};
    explore_begin(world, run, &a.base);
    ist_status status = explore_opened(&a.base, open_all(world, &a));
    if (status == IST_OK) {
        status = play(&a);
    }
    if (status != IST_ERR_KILLED && (status != IST_OK || a.base.seen->lost != 0)) {
        /* Peers may still write here. */
        (void)ist_world_sleep(world, EXPLORE_MEET_NS);
    }
    return explore_end(&a.base, close_all(&a, status));
}

static const char *const barrier_points[] = {"mask.barrier.begin", "mask.barrier.raised", NULL};
static const char *const agree_points[] = {"mask.barrier.raised", "mask.agree.begin",
                                           "mask.flood.sent", "mask.flood.decided", NULL};
static const char *const clean_points[] = {"mask.agree.begin",
                                           "mask.clean.begin",
                                           "mask.clean.drained",
                                           "mask.clean.reset",
                                           "mask.flood.sent",
                                           "mask.flood.decided",
                                           NULL};

/* Who is masked by hand waits until a deadline tells: that is no deadlock. */
#define DEADLOCKS(flags_) ((flags_) == MASK_CLEAN ? IST_DETECTOR(IST_FINDING_DEADLOCK) : 0)
#define SCENARIO(name_, suffix, net_, flags_, steps_, points_, about_)                             \
    {                                                                                              \
        .name = name_ suffix, .about = about_, .net = net_, .flags = flags_,                       \
        .detectors_off = DEADLOCKS(flags_), .numbers = {.ranks = 4, .steps = steps_},              \
        .points = points_, .rank_main = mask_main,                                                 \
    }
#define ON_EVERY_NET(name, flags, steps, points, about)                                            \
    SCENARIO(name, "-lsa", EXPLORE_LSA, flags, steps, points, about ", load and store"),           \
        SCENARIO(name, "-gin", EXPLORE_GIN, flags, steps, points, about ", network"),              \
        SCENARIO(name, "-hybrid", EXPLORE_HYBRID, flags, steps, points, about ", two nodes")

const explore_scenario explore_mask_scenarios[EXPLORE_MASK_SCENARIOS] = {
    ON_EVERY_NET("mask-barrier", MASK_BARRIER, 3, barrier_points, "barriers between rows"),
    ON_EVERY_NET("mask-agree", MASK_AGREE, 2, agree_points, "survivors agree on one mask"),
    ON_EVERY_NET("mask-clean", MASK_CLEAN, 2, clean_points, "a rank is masked, and comes back"),
    ON_EVERY_NET("mask-read", MASK_READ, 3, barrier_points, "the mask as numbers"),
};
