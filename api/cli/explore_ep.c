/* SPDX-License-Identifier: Apache-2.0 */
/* Scenarios of expert parallelism: steps of dispatch, experts' work and combine, by one handle or two,
 * whole or in halves, replayed from graphs, with new routings, with ranks re-admitted. Oracle: every
 * byte of every output, poison included, given who is lost by the record; a record that is true to
 * itself; nobody is missed without a reason.
 */
#include "explore_actor.h"

#include "cli_hash.h"
#include "ep_lane.h"

#include <inttypes.h>
#include <stdlib.h>

enum {
    EP_RANK_MAJOR = 1,
    EP_STAGED = 2,   /* two operations in flight, in halves */
    EP_UPDATE = 4,   /* a new routing each step */
    EP_PAIR = 8,     /* two handles, one of each layout */
    EP_GRAPH = 16,   /* operations are replayed; one rank leaves after the first step */
    EP_REDUCED = 64, /* each rank adds up its own rows; one team only */
    EP_CLEAN = 32    /* one rank is masked by hand, and comes back with a clean */
};

#define EP_LANES 2u
#define EP_STEPS_MAX 16u
#define EP_CASES (EP_LANES * (EP_STEPS_MAX + 1u))

/* What must come out, for all ranks. */
typedef struct ep_cases {
    ep_case made[EP_CASES];
} ep_cases;

typedef struct ep_actor {
    explore_actor base;
    uint32_t flags, lane_count;
    ep_rig rig;
    ep_lane lanes[EP_LANES];
    ist_graph *graphs[2]; /* by ist_ep_op */
} ep_actor;

static uint64_t draw(const explore_run *run, uint64_t what)
{
    return cli_fold(cli_fold(run->seed, 0x6570u), what);
}

static uint32_t lane_count_of(const explore_run *run)
{
    return (run->scenario->flags & (EP_PAIR | EP_STAGED)) != 0 ? 2u : 1u;
}

/* The rank that is masked by hand, or leaves. */
static uint32_t victim_of(const explore_run *run)
{
    return 1u + (uint32_t)(draw(run, 1) % (run->numbers.ranks - 1u));
}

static const ep_case *case_of(const ep_actor *a, uint32_t step, uint32_t lane)
{
    const ep_cases *cases = a->base.run->data;
    return &cases->made[step % (EP_STEPS_MAX + 1u) * EP_LANES + lane];
}

/* ------------------------------------------------------------------------------------ cases */

static ep_shape shape_of(const explore_run *run, uint32_t lane)
{
    static const ist_dtype types[] = {IST_BF16, IST_F16, IST_F32};
    bool by_rank = (run->scenario->flags & EP_RANK_MAJOR) != 0;
    by_rank = (run->scenario->flags & EP_PAIR) != 0 ? lane == 1 : by_rank;
    ep_shape shape = {.seed = draw(run, 2u + lane) >> 8,
                      .rank_count = run->numbers.ranks,
                      .expert_count = run->numbers.experts,
                      .topk = run->numbers.topk,
                      .tokens_max = run->numbers.tokens,
                      .hidden = run->numbers.hidden,
                      .dtype = types[draw(run, 4) % 3u],
                      .layout = by_rank ? IST_EP_RANK_MAJOR : IST_EP_EXPERT_MAJOR,
                      .order = (run->scenario->flags & EP_REDUCED) != 0 ? IST_EP_COMBINE_REDUCED
                                                                        : IST_EP_COMBINE_STRICT,
                      .masked_permille = 100,
                      .uneven = (uint32_t)(draw(run, 5) & 1u)};
    return shape;
}

static void discard(explore_run *run)
{
    ep_cases *cases = run->data;
    for (uint32_t i = 0; cases != NULL && i < EP_CASES; ++i) {
        ep_case_fini(&cases->made[i]);
    }
    free(cases);
    run->data = NULL;
}

static bool prepare(explore_run *run)
{
    ep_cases *cases = calloc(1, sizeof *cases);
    run->data = cases;
    bool good = cases != NULL;
    for (uint32_t step = 0; good && step <= run->numbers.steps; ++step) {
        for (uint32_t lane = 0; good && lane < lane_count_of(run); ++lane) {
            ep_shape shape = shape_of(run, lane);
            shape.seed += (run->scenario->flags & EP_UPDATE) != 0 ? step : 0;
            good = ep_case_init_step(&cases->made[step * EP_LANES + lane], &shape, step + 1u);
        }
    }
    if ((run->scenario->flags & EP_GRAPH) != 0) {
        run->blame.blamed |= UINT64_C(1) << victim_of(run);
    }
    return good;
}

/* ------------------------------------------------------------------------------------ open, close */

static ist_status open_all(ist_world *world, ep_actor *a)
{
    ep_shape shape = shape_of(a->base.run, 0);
    ep_rig_setup setup = ep_rig_setup_for(&shape);
    setup.fault_tolerant = 1;
    setup.deadline_ns = EXPLORE_DEADLINE_NS;
    setup.staged_count_max = 2;
    ist_status status = ep_rig_open(world, &setup, &a->rig);
    a->base.comm = a->rig.comm;
    a->base.stream = a->rig.stream;
    for (uint32_t lane = 0; status == IST_OK && lane < a->lane_count; ++lane) {
        ep_lane_setup ways = {.windows = (uint32_t)draw(a->base.run, 6u + lane) & 3u,
                              .keep_route = (a->flags & EP_UPDATE) == 0,
                              .staged = (a->flags & EP_STAGED) != 0 ? 3u : 0};
        status = ep_lane_open(&a->rig, case_of(a, 0, lane), &ways, &a->lanes[lane]);
    }
    return status;
}

static ist_status close_all(ep_actor *a, ist_status status)
{
    ist_status closed = ist_graph_close(a->graphs[0]);
    ist_status other = ist_graph_close(a->graphs[1]);
    closed = closed == IST_OK ? other : closed;
    for (uint32_t lane = 0; lane < EP_LANES; ++lane) {
        other = ep_lane_close(&a->lanes[lane]);
        closed = closed == IST_OK ? other : closed;
    }
    other = ep_rig_close(&a->rig);
    closed = explore_call(&a->base, closed == IST_OK ? other : closed, "close");
    return closed == IST_ERR_KILLED ? closed : status;
}

/* ------------------------------------------------------------------------------------ judging a step */

static void judge_record(ep_actor *a, const ep_step *step, uint32_t number, uint32_t op)
{
    const ist_completion *record = &step->record[op];
    const char *name = op == IST_EP_OP_DISPATCH ? "dispatch" : "combine";
    uint64_t lost = step->lost[op][0];
    uint32_t count = (uint32_t)__builtin_popcountll(lost);
    bool whole = record->status == IST_OK;
    bool known = whole || record->status == IST_INCOMPLETE || record->status == IST_ERR_EVICTED;
    if (!known || record->complete != (whole ? 1u : 0u) || record->lost_count != count ||
        (record->status >= 0 && (count == 0) != whole)) {
        explore_wrong(
            &a->base, "step %u: the record of %s says %s, complete %u, %u lost, 0x%" PRIx64, number,
            name, ist_status_name(record->status), record->complete, record->lost_count, lost);
    }
    if (step->finding[op].wrong != 0) {
        explore_wrong(&a->base,
                      "step %u: %s says %s, lost 0x%" PRIx64 ", and %" PRIu64
                      " bytes are wrong: %.100s",
                      number, name, ist_status_name(record->status), lost, step->finding[op].wrong,
                      step->finding[op].first);
    }
    if (record->status >= 0) {
        explore_missed(&a->base, lost, name);
    }
}

static ist_status judge_step(ep_actor *a, const ep_step *step, uint32_t number)
{
    for (uint32_t op = 0; op < 2u && step->ran[op]; ++op) {
        judge_record(a, step, number, op);
    }
    if (step->status != IST_OK) {
        return explore_call(&a->base, step->status, step->call);
    }
    if (step->evicted) {
        explore_evicted(&a->base, "a record");
        return IST_ERR_EVICTED;
    }
    return IST_OK;
}

/* After an agreement or clean, who is not in the mask is lost to every operation. */
static void judge_mask(ep_actor *a, const ep_step *step, uint32_t number)
{
    uint64_t out = explore_all(&a->base) & ~a->base.seen->mask;
    for (uint32_t op = 0; op < 2u && step->ran[op]; ++op) {
        if (step->record[op].status >= 0 && (out & ~step->lost[op][0]) != 0) {
            explore_wrong(&a->base,
                          "step %u: ranks 0x%" PRIx64 " are masked, the record says 0x%" PRIx64
                          " are lost",
                          number, out, step->lost[op][0]);
        }
    }
}

/* ------------------------------------------------------------------------------------ kinds of steps */

#define STEP(name, expression)                                                                     \
    do {                                                                                           \
        step->call = (name);                                                                       \
        step->status = (expression);                                                               \
        if (step->status != IST_OK) {                                                              \
            return step->status;                                                                   \
        }                                                                                          \
    } while (0)

/* Both lanes' operations of one kind are under way before either ends; the second half in order of
   the first, or of their own. */
static ist_status both(ep_actor *a, ist_ep_op op, ep_step *steps)
{
    ist_stream *stream = a->rig.stream;
    bool dispatch = op == IST_EP_OP_DISPATCH;
    for (uint32_t i = 0; i < a->lane_count; ++i) {
        ep_lane *lane = &a->lanes[dispatch ? i : a->lane_count - 1u - i];
        ep_step *step = &steps[lane - a->lanes];
        uint32_t halves = lane->setup.staged != 0;
        if (dispatch) {
            STEP("dispatch", ep_lane_dispatch(lane, stream, halves));
        } else {
            STEP("combine", ep_lane_combine(lane, stream, halves));
        }
    }
    for (uint32_t i = 0; i < a->lane_count; ++i) {
        ep_step *step = &steps[i];
        STEP("complete", ist_ep_complete(a->lanes[i].handle, stream));
    }
    for (uint32_t i = 0; i < a->lane_count; ++i) {
        EXPLORE_TRY(ep_lane_end(&a->lanes[i], op, &steps[i]));
    }
    return IST_OK;
}

static ist_status run_both(ep_actor *a, uint32_t number, ep_step *steps)
{
    for (uint32_t i = 0; i < a->lane_count; ++i) {
        ep_step *step = &steps[i];
        *step = (ep_step){.status = IST_OK};
        STEP("load", ep_lane_load(&a->lanes[i], case_of(a, number, i)));
        if (!a->lanes[i].setup.keep_route || !a->lanes[i].routed) {
            STEP("update", ep_lane_route(&a->lanes[i], a->rig.stream));
        }
    }
    EXPLORE_TRY(both(a, IST_EP_OP_DISPATCH, steps));
    for (uint32_t i = 0; i < a->lane_count; ++i) {
        ep_step *step = &steps[i];
        if (steps[0].evicted || steps[1].evicted) {
            return IST_OK;
        }
        STEP("work", ep_lane_work(&a->lanes[i]));
    }
    return both(a, IST_EP_OP_COMBINE, steps);
}

static ist_status capture(ep_actor *a, ist_ep_op op)
{
    ep_lane *lane = &a->lanes[0];
    ist_stream *stream = a->rig.stream;
    if (a->graphs[op] != NULL) {
        return IST_OK;
    }
    EXPLORE_TRY(ist_graph_begin(stream));
    EXPLORE_TRY(op == IST_EP_OP_DISPATCH ? ep_lane_dispatch(lane, stream, 0)
                                         : ep_lane_combine(lane, stream, 0));
    return ist_graph_end(stream, &a->graphs[op]);
}

static ist_status run_graphs(ep_actor *a, uint32_t number, ep_step *step)
{
    ep_lane *lane = &a->lanes[0];
    *step = (ep_step){.status = IST_OK};
    STEP("load", ep_lane_load(lane, case_of(a, number, 0)));
    if (!lane->routed) {
        STEP("update", ep_lane_route(lane, a->rig.stream));
    }
    STEP("capture", capture(a, IST_EP_OP_DISPATCH));
    STEP("graph_launch", ist_graph_launch(a->graphs[IST_EP_OP_DISPATCH], a->rig.stream));
    EXPLORE_TRY(ep_lane_end(lane, IST_EP_OP_DISPATCH, step));
    if (step->evicted) {
        return IST_OK;
    }
    STEP("work", ep_lane_work(lane));
    STEP("capture", capture(a, IST_EP_OP_COMBINE));
    STEP("graph_launch", ist_graph_launch(a->graphs[IST_EP_OP_COMBINE], a->rig.stream));
    return ep_lane_end(lane, IST_EP_OP_COMBINE, step);
}

static ist_status play_step(ep_actor *a, uint32_t number)
{
    ep_step steps[EP_LANES] = {{.status = IST_OK}};
    ist_status status = IST_OK;
    if ((a->flags & EP_GRAPH) != 0) {
        (void)run_graphs(a, number, &steps[0]);
    } else if (a->lane_count == 2u) {
        (void)run_both(a, number, steps);
    } else {
        (void)ep_lane_step(&a->lanes[0], case_of(a, number, 0), &steps[0]);
    }
    for (uint32_t i = 0; i < a->lane_count; ++i) {
        ist_status judged = judge_step(a, &steps[i], number);
        status = status == IST_OK ? judged : status;
        if (a->base.seen->met) {
            judge_mask(a, &steps[i], number);
        }
    }
    return status;
}

/* ------------------------------------------------------------------------------------ the program */

static ist_status agree(ep_actor *a)
{
    return explore_met(&a->base, ist_comm_agree(a->rig.comm, a->rig.stream), "agree");
}

/* Steps, an agreement, one more. With graphs one rank leaves after the first step. */
static ist_status play_to_agreement(ep_actor *a)
{
    uint32_t steps = a->base.run->numbers.steps;
    uint32_t before = (a->flags & EP_GRAPH) != 0 && steps > 0 ? 1u : steps;
    for (uint32_t i = 0; i < before; ++i) {
        EXPLORE_TRY(play_step(a, i));
    }
    if ((a->flags & EP_GRAPH) != 0 && a->base.rank == victim_of(a->base.run)) {
        return explore_sleep_until(&a->base, 2u * (uint64_t)EXPLORE_MEET_NS);
    }
    EXPLORE_TRY(agree(a));
    for (uint32_t i = before; i <= steps && steps > 0; ++i) {
        EXPLORE_TRY(play_step(a, i));
    }
    return IST_OK;
}

static ist_status drop_victim(ep_actor *a)
{
    uint64_t words = explore_all(&a->base) & ~(UINT64_C(1) << victim_of(a->base.run));
    return a->base.rank != 0
               ? IST_OK
               : explore_call(&a->base, ist_comm_mask_update(a->rig.comm, &words, a->rig.stream),
                              "mask_update");
}

/* The last step is without a blemish when nothing but the drill's own mask was in the way. */
static ist_status play_after_clean(ep_actor *a)
{
    EXPLORE_TRY(play_step(a, a->base.run->numbers.steps));
    if (a->base.run->healthy && a->base.seen->lost != 0) {
        explore_wrong(&a->base, "no fault struck, and after the clean ranks 0x%" PRIx64 " are lost",
                      a->base.seen->lost);
    }
    return IST_OK;
}

static ist_status play_to_clean(ep_actor *a)
{
    ist_status status = IST_OK;
    for (uint32_t i = 0; i < a->base.run->numbers.steps && status == IST_OK; ++i) {
        status = i == 0 ? IST_OK : drop_victim(a);
        status = status == IST_OK ? play_step(a, i) : status;
    }
    if (status != IST_OK && status != IST_ERR_EVICTED) {
        return status;
    }
    EXPLORE_TRY(explore_sleep_until(&a->base, EXPLORE_MEET_NS));
    EXPLORE_TRY(explore_call(&a->base, ist_comm_error_clear(a->rig.comm), "error_clear"));
    explore_forget_missed(&a->base);  /* whom the victim took along is back, too */
    a->base.seen->met_loosely = true; /* the group's own meeting comes last */
    EXPLORE_TRY(explore_met(&a->base, ist_ep_clean(a->rig.group, a->rig.stream), "clean"));
    return play_after_clean(a);
}

static ist_status play(ep_actor *a)
{
    EXPLORE_TRY((a->flags & EP_CLEAN) != 0 ? play_to_clean(a) : play_to_agreement(a));
    return explore_errors(&a->base);
}

static ist_status ep_main(ist_world *world, void *run)
{
    ep_actor a = {.flags = 0};
    explore_begin(world, run, &a.base);
    a.flags = a.base.run->scenario->flags;
    a.lane_count = lane_count_of(a.base.run);
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

static const char *const step_points[] = {"ep.dispatch.begin",
                                          "ep.dispatch.staged",
                                          "ep.dispatch.written",
                                          "ep.dispatch.sent",
                                          "ep.dispatch.decided",
                                          "ep.dispatch.taken",
                                          "ep.dispatch.answered",
                                          "ep.dispatch.read",
                                          "ep.combine.begin",
                                          "ep.combine.staged",
                                          "ep.combine.written",
                                          "ep.combine.sent",
                                          "ep.combine.decided",
                                          "ep.combine.summed",
                                          "ep.combine.answered",
                                          "ep.combine.read",
                                          NULL};
static const char *const reduced_points[] = {
    "ep.dispatch.sent",   "ep.dispatch.answered", "ep.reduced.begin",  "ep.reduced.written",
    "ep.reduced.sent",    "ep.reduced.ready",     "ep.reduced.pushed", "ep.reduced.reported",
    "ep.reduced.decided", "ep.reduced.summed",    "ep.reduced.ended",  NULL};
static const char *const clean_points[] = {"ep.clean.begin",
                                           "ep.clean.drained",
                                           "ep.clean.closed",
                                           "mask.clean.begin",
                                           "mask.clean.drained",
                                           "mask.clean.reset",
                                           "mask.flood.sent",
                                           "mask.flood.decided",
                                           "ep.dispatch.sent",
                                           "ep.dispatch.decided",
                                           "ep.combine.sent",
                                           "ep.combine.answered",
                                           NULL};

/* Who is masked by hand, or leaves, lets waits end by their deadlines: that is no deadlock. */
#define DEADLOCKS(flags_)                                                                          \
    (((flags_) & (EP_CLEAN | EP_GRAPH)) != 0 ? IST_DETECTOR(IST_FINDING_DEADLOCK) : 0)
#define SCENARIO_(name_, net_, flags_, points_, tokens_, hidden_, about_)                          \
    {                                                                                              \
        .name = name_, .about = about_, .net = net_, .flags = flags_, .points = points_,           \
        .detectors_off = DEADLOCKS(flags_),                                                        \
        .numbers = {.ranks = 4,                                                                    \
                    .tokens = tokens_,                                                             \
                    .hidden = hidden_,                                                             \
                    .experts = 6,                                                                  \
                    .topk = 2,                                                                     \
                    .steps = 2},                                                                   \
        .prepare = prepare, .discard = discard, .rank_main = ep_main,                              \
    }
#define SCENARIO(name, net, flags, points, ...) SCENARIO_(name, net, flags, points, __VA_ARGS__)
#define ON_EVERY_NET_(name, flags, points, tokens, hidden, about)                                  \
    SCENARIO(name "-lsa", EXPLORE_LSA, flags, points, tokens, hidden, about ", load and store"),   \
        SCENARIO(name "-gin", EXPLORE_GIN, flags, points, tokens, hidden, about ", network"),      \
        SCENARIO(name "-hybrid", EXPLORE_HYBRID, flags, points, tokens, hidden,                    \
                 about ", two nodes")
#define ON_EVERY_NET(name, flags, points, ...) ON_EVERY_NET_(name, flags, points, __VA_ARGS__)
/* One block a launch; and rows enough for several. */
#define SMALL 4, 16
#define LARGE 8, 1024

const explore_scenario explore_ep_scenarios[EXPLORE_EP_SCENARIOS] = {
    ON_EVERY_NET("ep-em", 0, step_points, SMALL, "dispatch and combine, expert-major"),
    ON_EVERY_NET("ep-rm", EP_RANK_MAJOR, step_points, SMALL, "dispatch and combine, rank-major"),
    ON_EVERY_NET("ep-blocks", 0, step_points, LARGE, "several blocks, expert-major"),
    ON_EVERY_NET("ep-blocks-rm", EP_RANK_MAJOR, step_points, LARGE, "several blocks, rank-major"),
    ON_EVERY_NET("ep-staged", EP_STAGED, step_points, SMALL,
                 "send and receive halves of two handles"),
    ON_EVERY_NET("ep-staged-rm", EP_STAGED | EP_RANK_MAJOR, step_points, SMALL,
                 "halves of two handles, rank-major"),
    ON_EVERY_NET("ep-update", EP_UPDATE, step_points, SMALL, "a new routing each step"),
    ON_EVERY_NET("ep-two-handles", EP_PAIR, step_points, SMALL, "two handles, one of each layout"),
    ON_EVERY_NET("ep-graph", EP_GRAPH, step_points, SMALL,
                 "replayed graphs, a rank leaves meanwhile"),
    ON_EVERY_NET("ep-clean", EP_CLEAN, clean_points, SMALL, "a rank is masked, and re-admitted"),
    SCENARIO("ep-reduced-lsa", EXPLORE_LSA, EP_REDUCED, reduced_points, SMALL,
             "each rank adds up its own rows, load and store"),
    SCENARIO("ep-reduced-blocks-lsa", EXPLORE_LSA, EP_REDUCED, reduced_points, LARGE,
             "the same, several blocks"),
    SCENARIO("ep-reduced-graph-lsa", EXPLORE_LSA, EP_REDUCED | EP_GRAPH, reduced_points, SMALL,
             "the same, replayed from graphs"),
    SCENARIO("ep-reduced-clean-lsa", EXPLORE_LSA, EP_REDUCED | EP_CLEAN, clean_points, SMALL,
             "the same, a rank re-admitted"),
};
