/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the drill under a fault plan and judges what every rank saw. See ep_drill.h.
 */
#include "ep_drill.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRY(expression)                                                                            \
    do {                                                                                           \
        ist_status try_status_ = (expression);                                                     \
        if (try_status_ != IST_OK) {                                                               \
            return try_status_;                                                                    \
        }                                                                                          \
    } while (0)

bool ep_drill_init(ep_drill *drill)
{
    ep_shape shape = drill->shape;
    memset(drill->made, 0, sizeof(drill->made));
    for (uint32_t i = 0; i < EP_DRILL_STEPS_MAX; ++i) {
        shape.seed = drill->shape.seed * EP_DRILL_STEPS_MAX + i;
        if (!ep_case_init(&drill->made[i], &shape)) {
            ep_drill_fini(drill);
            return false;
        }
    }
    return true;
}

void ep_drill_fini(ep_drill *drill)
{
    for (uint32_t i = 0; i < EP_DRILL_STEPS_MAX; ++i) {
        ep_case_fini(&drill->made[i]);
    }
}

/* ---- the program ----------------------------------------------------------------------------- */

typedef struct player {
    const ep_drill *drill;
    ep_drill_rank *seen;
    ep_rig rig;
    ep_lane lane;
} player;

static uint32_t steps_before(const ep_drill *drill)
{
    return drill->steps == 0 ? 1 : drill->steps;
}

static ist_status open_all(ist_world *world, player *p)
{
    ep_rig_setup setup = ep_rig_setup_for(&p->drill->shape);
    setup.fault_tolerant = p->drill->no_mask ? 0 : 1;
    setup.deadline_ns = EP_DRILL_DEADLINE_NS;
    setup.block_count_max = p->drill->block_count_max;
    TRY(ep_rig_open(world, &setup, &p->rig));
    return ep_lane_open(&p->rig, &p->drill->made[0], &p->drill->lane, &p->lane);
}

/* Numbers are equal on all ranks, also where a rank has skipped some. */
static ist_status play_step(player *p, uint32_t number)
{
    ep_drill_rank *seen = p->seen;
    seen->steps = number + 1u;
    return ep_lane_step(&p->lane, &p->drill->made[number], &seen->step[number]);
}

static bool is_out(const player *p)
{
    const ep_step *last = &p->seen->step[p->seen->steps - 1];
    bool failed = last->evicted || last->record[0].status < 0 || last->record[1].status < 0;
    return last->status != IST_OK || (failed && !p->drill->lane.stubborn);
}

static ist_status agree(player *p)
{
    ep_drill_rank *seen = p->seen;
    seen->meet_ns = ist_world_clock_ns(p->rig.world);
    seen->agree = ist_comm_agree(p->rig.comm, p->rig.stream);
    seen->met_ns = ist_world_clock_ns(p->rig.world);
    seen->agree_ran = 1;
    if (seen->agree != IST_OK) {
        return seen->agree;
    }
    TRY(ep_rig_mask(&p->rig, seen->mask, &seen->generation));
    return play_step(p, steps_before(p->drill));
}

static ist_status sleep_until(ist_world *world, uint64_t at_ns)
{
    uint64_t now = ist_world_clock_ns(world);
    return now < at_ns ? ist_world_sleep(world, at_ns - now) : IST_OK;
}

static uint64_t meet_ns(const ep_drill *drill)
{
    return drill->meet_ns != 0 ? drill->meet_ns : 80ull * EP_DRILL_DEADLINE_NS;
}

/* All that live meet, clean, and do a step, as often as steps are left. */
static ist_status clean(player *p)
{
    ep_drill_rank *seen = p->seen;
    uint64_t meet = meet_ns(p->drill);
    for (uint32_t i = 1; i <= p->drill->clean; ++i) {
        TRY(sleep_until(p->rig.world, i * meet));
        seen->meet_ns = ist_world_clock_ns(p->rig.world);
        seen->agree = ist_ep_clean(p->rig.group, p->rig.stream);
        seen->met_ns = ist_world_clock_ns(p->rig.world);
        seen->agree_ran = 1;
        TRY(seen->agree == IST_ERR_KILLED ? IST_ERR_KILLED : IST_OK);
        TRY(ep_rig_mask(&p->rig, seen->mask, &seen->generation));
        ist_status status = play_step(p, steps_before(p->drill) + i - 1u);
        TRY(status == IST_ERR_KILLED ? status : IST_OK);
    }
    return IST_OK;
}

static ist_status play(ist_world *world, player *p)
{
    ep_drill_rank *seen = p->seen;
    uint32_t steps = steps_before(p->drill);
    seen->setup = open_all(world, p);
    TRY(seen->setup);
    for (uint32_t i = 0; i < steps && (i == 0 || !is_out(p)); ++i) {
        ist_status status = play_step(p, i);
        TRY(status == IST_ERR_KILLED || !p->drill->clean ? status : IST_OK);
    }
    if (p->drill->clean) {
        return clean(p);
    }
    return p->drill->no_mask || is_out(p) ? IST_OK : agree(p);
}

static ist_status drill_main(ist_world *world, void *arg)
{
    ep_drill_run *run = arg;
    player p = {.drill = run->drill, .seen = &run->ranks[ist_world_rank(world)]};
    ist_status status = play(world, &p);
    /* Windows may be closed when peers are done with them, also after a failure. */
    if (status != IST_OK && status != IST_ERR_KILLED) {
        (void)ist_world_sleep(world, 40ull * EP_DRILL_DEADLINE_NS);
    }
    ist_status lane = ep_lane_close(&p.lane);
    ist_status rig = ep_rig_close(&p.rig);
    p.seen->close = lane != IST_OK ? lane : rig;
    p.seen->ended = status != IST_ERR_KILLED && p.seen->close != IST_ERR_KILLED;
    p.seen->end_ns = ist_world_clock_ns(world);
    return p.seen->ended ? IST_OK : IST_ERR_KILLED;
}

void ep_drill_run_once(const ep_drill *drill, const ist_fault_plan *plan, ep_drill_run *run)
{
    ist_sim_desc sim = {.size = sizeof(sim),
                        .links = drill->links,
                        .log_capacity = drill->log_path != NULL ? 1u << 20 : 1024u,
                        .log_path = drill->log_path};
    ist_world_desc desc = ist_test_desc(drill->shape.rank_count, drill->cluster);
    memset(run, 0, sizeof(*run));
    run->drill = drill;
    run->result.size = sizeof(run->result);
    desc.faults = plan;
    desc.sim = &sim;
    desc.deadline_ns = 4u * EP_DRILL_DEADLINE_NS;
    run->status = ist_world_run(&desc, drill_main, run, &run->result);
}

/* ---- rules ----------------------------------------------------------------------------------- */

#define FAIL(...)                                                                                  \
    do {                                                                                           \
        snprintf(run->why, sizeof(run->why), __VA_ARGS__);                                         \
        return false;                                                                              \
    } while (0)

static bool is_in(uint64_t set, uint32_t rank)
{
    return ((set >> rank) & 1u) != 0;
}

static bool died(const ep_drill_run *run, uint32_t rank, uint64_t killed)
{
    return is_in(killed, rank) && !run->ranks[rank].ended;
}

static const char *op_name(uint32_t op)
{
    return op == IST_EP_OP_DISPATCH ? "dispatch" : "combine";
}

/* A record says complete exactly if nobody is lost, and says who. */
static bool record_is_true(ep_drill_run *run, uint32_t rank, uint32_t number, uint32_t op)
{
    const ep_step *step = &run->ranks[rank].step[number];
    const ist_completion *record = &step->record[op];
    uint64_t lost = step->lost[op][0];
    uint32_t count = (uint32_t)__builtin_popcountll(lost);
    bool whole = record->status == IST_OK;
    if (record->status == IST_IN_PROGRESS) {
        FAIL("rank %u, step %u: %s has ended, its record says in progress", rank, number,
             op_name(op));
    }
    /* A failure may have lost nobody: an answer is missing, or the rank is out. */
    if (record->complete != (whole ? 1u : 0u) || record->lost_count != count ||
        (record->status >= 0 && (count == 0) != whole)) {
        FAIL(
            "rank %u, step %u: %s record has status %s, complete %u, lost_count %u, lost 0x%" PRIx64,
            rank, number, op_name(op), ist_status_name(record->status), record->complete,
            record->lost_count, lost);
    }
    return true;
}

static bool step_is_safe(ep_drill_run *run, uint32_t rank, uint32_t number)
{
    const ep_step *step = &run->ranks[rank].step[number];
    for (uint32_t op = 0; op < 2 && step->ran[op]; ++op) {
        if (!record_is_true(run, rank, number, op)) {
            return false;
        }
        if (step->finding[op].wrong != 0) {
            FAIL("step %u: %s record has status %s, lost 0x%" PRIx64 ", and %" PRIu64
                 " bytes are wrong: %s",
                 number, op_name(op), ist_status_name(step->record[op].status), step->lost[op][0],
                 step->finding[op].wrong, step->finding[op].first);
        }
    }
    return true;
}

static bool rank_is_safe(ep_drill_run *run, uint32_t rank, uint64_t killed)
{
    const ep_drill_rank *seen = &run->ranks[rank];
    if (died(run, rank, killed)) {
        return true;
    }
    if (!seen->ended) {
        FAIL("rank %u did not come to its end", rank);
    }
    for (uint32_t i = 0; i < seen->steps; ++i) {
        if (!step_is_safe(run, rank, i)) {
            return false;
        }
    }
    uint64_t most = (uint64_t)EP_DRILL_DEADLINES_MAX * EP_DRILL_DEADLINE_NS +
                    run->drill->clean * meet_ns(run->drill);
    if (seen->end_ns > most) {
        FAIL("rank %u ended at %" PRIu64 " ns", rank, seen->end_ns);
    }
    return true;
}

bool ep_drill_is_safe(ep_drill_run *run, uint64_t killed)
{
    if (run->status != IST_OK) {
        FAIL("the world ended with %s, rank %d", ist_status_name(run->status),
             run->result.failed_rank);
    }
    for (uint32_t rank = 0; rank < run->drill->shape.rank_count; ++rank) {
        if (!rank_is_safe(run, rank, killed)) {
            return false;
        }
    }
    return true;
}

/* ---- survivors ------------------------------------------------------------------------------- */

bool ep_drill_setup_failed(const ep_drill_run *run, uint64_t killed)
{
    for (uint32_t rank = 0; rank < run->drill->shape.rank_count; ++rank) {
        if (!died(run, rank, killed) && run->ranks[rank].setup != IST_OK) {
            return true;
        }
    }
    return false;
}

/* A peer died while all opened: told so, and closed. */
bool ep_drill_setup_is_clean(ep_drill_run *run, uint64_t killed)
{
    for (uint32_t rank = 0; rank < run->drill->shape.rank_count; ++rank) {
        ist_status status = run->ranks[rank].setup;
        bool fair = status == IST_OK || status == IST_ERR_TIMEOUT || status == IST_ERR_RANK_LOST ||
                    status == IST_ERR_MISMATCH;
        if (!died(run, rank, killed) && (!fair || run->ranks[rank].close != IST_OK)) {
            FAIL("rank %u: open ended with %s, close with %s", rank, ist_status_name(status),
                 ist_status_name(run->ranks[rank].close));
        }
    }
    return true;
}

static uint64_t the_dead(const ep_drill_run *run, uint64_t killed)
{
    uint64_t dead = 0;
    for (uint32_t peer = 0; peer < run->drill->shape.rank_count; ++peer) {
        dead |= (uint64_t)died(run, peer, killed) << peer;
    }
    return dead;
}

static bool only_the_dead_are_lost(ep_drill_run *run, uint32_t rank, uint64_t killed)
{
    const ep_drill_rank *seen = &run->ranks[rank];
    uint64_t dead = the_dead(run, killed);
    for (uint32_t i = 0; i < seen->steps; ++i) {
        const ep_step *step = &seen->step[i];
        if (step->status != IST_OK || !step->ran[0] || !step->ran[1]) {
            FAIL("rank %u, step %u: %s ended with %s", rank, i, step->call,
                 ist_status_name(step->status));
        }
        if (((step->lost[0][0] | step->lost[1][0]) & ~dead) != 0 || step->record[0].status < 0 ||
            step->record[1].status < 0) {
            FAIL("rank %u, step %u: lost 0x%" PRIx64 " and 0x%" PRIx64 ", dead are 0x%" PRIx64,
                 rank, i, step->lost[0][0], step->lost[1][0], dead);
        }
    }
    return true;
}

/* After an agreement all survivors hold the same mask, with all of them in it, and nobody is
   missed who is in it. */
static bool agreed(ep_drill_run *run, uint32_t rank, uint32_t first)
{
    const ep_drill_rank *seen = &run->ranks[rank];
    const ep_drill_rank *other = &run->ranks[first];
    uint64_t all = (UINT64_C(1) << run->drill->shape.rank_count) - 1u;
    if (!seen->agree_ran || seen->agree != IST_OK || seen->close != IST_OK) {
        FAIL("rank %u: agreement ended with %s, close with %s", rank, ist_status_name(seen->agree),
             ist_status_name(seen->close));
    }
    if (seen->mask[0] != other->mask[0] || seen->generation != other->generation) {
        FAIL("ranks %u and %u hold masks 0x%" PRIx64 " and 0x%" PRIx64 ", generations %" PRIu64
             " and %" PRIu64,
             rank, first, seen->mask[0], other->mask[0], seen->generation, other->generation);
    }
    const ep_step *last = &seen->step[seen->steps - 1];
    if (!is_in(seen->mask[0], rank) || (~seen->mask[0] & all & ~last->lost[1][0]) != 0 ||
        (seen->step[0].lost[1][0] & seen->mask[0]) != 0) {
        FAIL("rank %u: mask 0x%" PRIx64 ", lost before 0x%" PRIx64 ", after 0x%" PRIx64, rank,
             seen->mask[0], seen->step[0].lost[1][0], last->lost[1][0]);
    }
    return true;
}

bool ep_drill_is_survived(ep_drill_run *run, uint64_t killed)
{
    uint32_t first = UINT32_MAX;
    if (!ep_drill_is_safe(run, killed)) {
        return false;
    }
    if (ep_drill_setup_failed(run, killed)) {
        return ep_drill_setup_is_clean(run, killed);
    }
    for (uint32_t rank = 0; rank < run->drill->shape.rank_count; ++rank) {
        if (died(run, rank, killed)) {
            continue;
        }
        first = first == UINT32_MAX ? rank : first;
        if (!only_the_dead_are_lost(run, rank, killed) || !agreed(run, rank, first)) {
            return false;
        }
    }
    return true;
}

/* Steps [0, end) of everybody. */
static bool all_perfect(ep_drill_run *run, uint32_t end)
{
    for (uint32_t rank = 0; rank < run->drill->shape.rank_count; ++rank) {
        for (uint32_t i = 0; i < end && i < run->ranks[rank].steps; ++i) {
            const ep_step *step = &run->ranks[rank].step[i];
            if (!ep_step_is_perfect(step)) {
                FAIL("rank %u, step %u: %s ended with %s; records %s, %s; lost 0x%" PRIx64
                     ", 0x%" PRIx64,
                     rank, i, step->call, ist_status_name(step->status),
                     ist_status_name(step->record[0].status),
                     ist_status_name(step->record[1].status), step->lost[0][0], step->lost[1][0]);
            }
        }
    }
    return true;
}

bool ep_drill_is_recovered(ep_drill_run *run)
{
    uint32_t count = run->ranks[0].steps;
    if (count != 0 && all_perfect(run, count - 1u)) {
        return true;
    }
    run->why[0] = '\0';
    for (uint32_t rank = 0; rank < run->drill->shape.rank_count; ++rank) {
        const ep_drill_rank *seen = &run->ranks[rank];
        if (seen->steps != count || seen->agree != IST_OK || seen->close != IST_OK) {
            FAIL("rank %u: %u steps, clean ended with %s, close with %s", rank, seen->steps,
                 ist_status_name(seen->agree), ist_status_name(seen->close));
        }
        if (!ep_step_is_perfect(&seen->step[count - 1u])) {
            FAIL("rank %u: the last step is not perfect", rank);
        }
    }
    return true;
}

static bool step_is_live(ep_drill_run *run, uint32_t number, uint64_t dead)
{
    for (uint32_t rank = 0; rank < run->drill->shape.rank_count; ++rank) {
        const ep_drill_rank *seen = &run->ranks[rank];
        const ep_step *step = &seen->step[number];
        if (is_in(dead, rank)) {
            continue;
        }
        if (seen->steps <= number || !step->ran[0] || !step->ran[1] || step->lost[0][0] != dead ||
            step->lost[1][0] != dead || step->evicted || seen->close != IST_OK) {
            FAIL("rank %u, step %u of %u: %s ended with %s, lost 0x%" PRIx64 " and 0x%" PRIx64
                 ", dead are 0x%" PRIx64 ", close ended with %s",
                 rank, number, seen->steps, step->call != NULL ? step->call : "nothing",
                 ist_status_name(step->status), step->lost[0][0], step->lost[1][0], dead,
                 ist_status_name(seen->close));
        }
    }
    return true;
}

bool ep_drill_is_live(ep_drill_run *run, uint64_t killed)
{
    uint64_t dead = the_dead(run, killed);
    uint32_t count = steps_before(run->drill) + run->drill->clean;
    if (step_is_live(run, count - 1u, dead)) {
        return true;
    }
    /* A rank that died in the last step was there in the one before. */
    char why[sizeof(run->why)];
    memcpy(why, run->why, sizeof(why));
    if (step_is_live(run, count - 2u, dead) || step_is_live(run, count - 2u, 0)) {
        run->why[0] = '\0';
        return true;
    }
    memcpy(run->why, why, sizeof(why));
    return false;
}

bool ep_drill_is_perfect(ep_drill_run *run)
{
    return ep_drill_is_safe(run, 0) && all_perfect(run, EP_DRILL_STEPS_MAX);
}

/* ---- plans ----------------------------------------------------------------------------------- */

ist_fault_plan *ep_drill_plan(const ist_fault *fault)
{
    ist_fault_plan *plan = NULL;
    if (ist_fault_plan_open(&plan) != IST_OK) {
        return NULL;
    }
    if (ist_fault_plan_add(plan, fault) != IST_OK) {
        ist_fault_plan_close(plan);
        return NULL;
    }
    return plan;
}

static void tell_rank(const ep_drill_run *run, uint32_t rank)
{
    const ep_drill_rank *seen = &run->ranks[rank];
    printf("#   rank %u: open %s", rank, ist_status_name(seen->setup));
    for (uint32_t i = 0; i < seen->steps; ++i) {
        const ep_step *step = &seen->step[i];
        if (step->call == NULL || ep_step_is_perfect(step)) {
            continue;
        }
        printf("; step %u %s %s", i, step->call, ist_status_name(step->status));
        for (uint32_t op = 0; op < 2; ++op) {
            printf(", %s %s lost 0x%" PRIx64 " at %" PRIu64 " ns", op_name(op),
                   step->ran[op] ? ist_status_name(step->record[op].status) : "did not end",
                   step->lost[op][0], step->ended_ns[op]);
        }
    }
    printf("; met %s, mask 0x%" PRIx64 ", generation %" PRIu64 ", from %" PRIu64 " to %" PRIu64
           " ns; close %s at %" PRIu64 " ns%s\n",
           seen->agree_ran ? ist_status_name(seen->agree) : "never", seen->mask[0],
           seen->generation, seen->meet_ns, seen->met_ns, ist_status_name(seen->close),
           seen->end_ns, seen->ended ? "" : "; killed");
}

void ep_drill_tell(const ep_drill_run *run, const ist_fault_plan *plan)
{
    const ep_drill *drill = run->drill;
    char text[4096] = "no faults";
    if (plan != NULL && ist_fault_plan_print(plan, text, sizeof(text), NULL) != IST_OK) {
        snprintf(text, sizeof(text), "a plan that is too long");
    }
    printf("# %s\n# cluster %s, layout %d, windows %u, shape seed %" PRIu64 ", seed %" PRIu64
           ": %s\n",
           run->why, drill->cluster != NULL ? drill->cluster : "default", (int)drill->shape.layout,
           drill->lane.windows, drill->shape.seed, ist_test_seed(), text);
    for (uint32_t rank = 0; rank < drill->shape.rank_count; ++rank) {
        tell_rank(run, rank);
    }
}

bool ep_drill_survives(const ep_drill *drill, const ist_fault *fault, bool *hit)
{
    ep_drill_run run;
    ist_fault_plan *plan = ep_drill_plan(fault);
    if (plan == NULL) {
        printf("# the plan was refused\n");
        return false;
    }
    ep_drill_run_once(drill, plan, &run);
    *hit = run.result.lost_count != 0;
    bool good = ep_drill_is_survived(&run, UINT64_C(1) << fault->rank);
    if (good && !*hit) {
        good = ep_drill_is_perfect(&run);
    }
    if (!good) {
        ep_drill_tell(&run, plan);
    }
    ist_fault_plan_close(plan);
    return good;
}
