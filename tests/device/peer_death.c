/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: on hardware a peer's process that is killed is masked, named and done without, in little more
 * than the deadline; one that is stopped and goes on later learns that it is out, and is re-admitted;
 * replayed graphs see both; the device stays usable. Method: a process a rank, all outputs compared
 * with the oracle, and a file that the processes share for what they tell each other.
 *
 *   mpirun --enable-recovery -n N test_peer_death FILE HOW RANK [--layout 1] [--graph 1]
 *       [--deadline-us N]
 *     FILE   of zeros, of at least a page
 *     HOW    kill: SIGKILL between two steps; flight: SIGKILL with its kernels in flight;
 *            stop: SIGSTOP at any moment, SIGCONT when the others have masked it
 *
 * death.sh runs it. Alone it has nothing to do.
 */
#include "ep_rig.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define SKIPPED 77
#define STEPS_BEFORE 20u
#define STEPS_AFTER 20u
#define STEPS_MAX 2000000u
#define POLL_NS 200000

/* What the processes tell each other. */
typedef struct board {
    _Atomic uint64_t died_ns; /* of the host's clock, just before the end */
    atomic_uint ready;        /* the one that is to stop has come so far */
    atomic_uint masked;       /* by all the others: a count */
    atomic_uint back;         /* it has gone on, and knows that it is out */
} board;

typedef enum end { END_KILL, END_FLIGHT, END_STOP } end;

typedef struct plan {
    board *board;
    ep_case *made;
    uint64_t deadline_ns;
    end how;
    uint32_t victim;
    uint32_t graph; /* 1: steps are replays of one graph */
} plan;

typedef struct player {
    const plan *at;
    ep_rig rig;
    ep_lane lane;
    ist_graph *graph;
    uint64_t lost; /* of the last step, both operations */
    bool evicted;
} player;

static uint64_t host_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* ---- steps ------------------------------------------------------------------------------------ */

/* Experts that do nothing: what was received goes back, by a copy that a graph can make. */
static void same_expert(const void *context, uint32_t expert, void *row)
{
    (void)context;
    (void)expert;
    (void)row;
}

static void same_rank(const void *context, uint32_t rank, const int32_t *ids, const float *weights,
                      void *row)
{
    (void)context;
    (void)rank;
    (void)ids;
    (void)weights;
    (void)row;
}

static ist_status enqueue(player *p)
{
    ep_lane *lane = &p->lane;
    ist_world *world = p->rig.world;
    ist_stream *stream = p->rig.stream;
    uint64_t bytes = lane->block_count * lane->block_rows * lane->row_bytes;
    EXPECT_OK(world, ep_lane_dispatch(lane, stream, 0));
    EXPECT_OK(world, ist_ep_complete(lane->handle, stream));
    EXPECT_OK(world, ist_copy(stream, lane->worked, lane->received, bytes));
    EXPECT_OK(world, ep_lane_combine(lane, stream, 0));
    EXPECT_OK(world, ist_ep_complete(lane->handle, stream));
    return IST_OK;
}

static ist_status begin_step(player *p)
{
    ist_world *world = p->rig.world;
    EXPECT_OK(world, ep_lane_load(&p->lane, p->at->made));
    if (p->graph != NULL) {
        EXPECT_OK(world, ist_graph_launch(p->graph, p->rig.stream));
        return IST_OK;
    }
    return enqueue(p);
}

static ist_status read_records(player *p)
{
    ist_world *world = p->rig.world;
    p->lost = 0;
    p->evicted = false;
    for (int op = IST_EP_OP_DISPATCH; op <= IST_EP_OP_COMBINE; ++op) {
        const ist_completion *record = &p->lane.record[op];
        EXPECT_OK(world, ep_lane_read_record(&p->lane, (ist_ep_op)op));
        p->evicted = p->evicted || record->status == IST_ERR_EVICTED;
        p->lost |= p->lane.lost[op][0];
        EXPECT(world, p->evicted || record->status == IST_OK || record->status == IST_INCOMPLETE);
        EXPECT(world, p->evicted || record->complete == (p->lane.lost[op][0] == 0));
    }
    return IST_OK;
}

/* Every byte, given who is lost by the records. */
static ist_status check_outputs(player *p)
{
    ist_world *world = p->rig.world;
    ep_lane_finding finding = {0};
    EXPECT_OK(world, ep_lane_check_dispatch(&p->lane, &finding));
    IST_TEST_PASS_ON(ist_test_true(world, finding.wrong == 0, finding.first, __FILE__, __LINE__));
    EXPECT_OK(world, ep_lane_check_combine(&p->lane, &finding));
    IST_TEST_PASS_ON(ist_test_true(world, finding.wrong == 0, finding.first, __FILE__, __LINE__));
    return IST_OK;
}

static ist_status step(player *p)
{
    IST_TEST_PASS_ON(begin_step(p));
    EXPECT_OK(p->rig.world, ist_stream_sync(p->rig.stream, 0));
    return read_records(p);
}

/* Steps that lose exactly `lost`, all bytes compared. */
static ist_status steps(player *p, uint32_t count, uint64_t lost)
{
    for (uint32_t i = 0; i < count; ++i) {
        IST_TEST_PASS_ON(step(p));
        EXPECT(p->rig.world, !p->evicted);
        EXPECT_EQUAL(p->rig.world, p->lost, lost);
        IST_TEST_PASS_ON(check_outputs(p));
    }
    return IST_OK;
}

/* ---- the one that ends or stops ---------------------------------------------------------------- */

static ist_status die(player *p)
{
    if (p->at->how == END_FLIGHT) {
        IST_TEST_PASS_ON(begin_step(p));
    }
    atomic_store(&p->at->board->died_ns, host_ns());
    (void)raise(SIGKILL);
    return IST_ERR_INTERNAL;
}

/* It is stopped somewhere in here, and goes on. */
static ist_status be_stopped(player *p)
{
    atomic_store(&p->at->board->ready, 1);
    for (uint32_t i = 0; i < STEPS_MAX && !p->evicted; ++i) {
        IST_TEST_PASS_ON(step(p));
    }
    EXPECT(p->rig.world, p->evicted);
    printf("rank=%" PRIu32 " evicted\n", p->rig.rank);
    atomic_store(&p->at->board->back, 1);
    return IST_OK;
}

/* ---- the others -------------------------------------------------------------------------------- */

static ist_status expect_named(player *p)
{
    ist_world *world = p->rig.world;
    uint32_t count = 0;
    ist_error error = {.size = sizeof(error)};
    EXPECT_OK(world, ist_comm_error_get(p->rig.comm, 0, &count, &error));
    EXPECT_EQUAL(world, count, 1);
    EXPECT_EQUAL(world, error.peer, p->at->victim);
    EXPECT_EQUAL(world, error.status, IST_ERR_TIMEOUT);
    EXPECT(world, error.waited_ns >= p->at->deadline_ns);
    printf("rank=%" PRIu32 " error: %s\n", p->rig.rank, error.message);
    EXPECT_OK(world, ist_comm_error_clear(p->rig.comm));
    return IST_OK;
}

/* Goes on until the victim is missed; its output then is marked, and right without it. */
static ist_status miss_it(player *p)
{
    uint64_t ended_ns = 0, began_ns = 0;
    for (uint32_t i = 0; i < STEPS_MAX && p->lost == 0; ++i) {
        IST_TEST_PASS_ON(begin_step(p));
        began_ns = host_ns();
        EXPECT_OK(p->rig.world, ist_stream_sync(p->rig.stream, 0));
        ended_ns = host_ns();
        IST_TEST_PASS_ON(read_records(p));
        EXPECT(p->rig.world, !p->evicted);
    }
    EXPECT_EQUAL(p->rig.world, p->lost, 1ull << p->at->victim);
    IST_TEST_PASS_ON(check_outputs(p));
    uint64_t died_ns = atomic_load(&p->at->board->died_ns);
    uint64_t from_ns = died_ns != 0 ? died_ns : began_ns;
    printf("rank=%" PRIu32 " missed rank=%" PRIu32 " after_us=%.1f deadline_us=%" PRIu64
           " over_us=%.1f step_us=%.1f\n",
           p->rig.rank, p->at->victim, (double)(ended_ns - from_ns) / 1e3,
           p->at->deadline_ns / 1000u,
           ((double)(ended_ns - from_ns) - (double)p->at->deadline_ns) / 1e3,
           (double)(ended_ns - began_ns) / 1e3);
    return expect_named(p);
}

static ist_status survive(player *p)
{
    ist_world *world = p->rig.world;
    uint64_t word[EP_RIG_WORDS] = {0}, generation = 0;
    const uint64_t lost = 1ull << p->at->victim;
    const uint64_t all = (1ull << p->rig.rank_count) - 1u;
    IST_TEST_PASS_ON(miss_it(p));
    IST_TEST_PASS_ON(steps(p, STEPS_AFTER, lost));
    EXPECT_OK(world, ist_comm_agree(p->rig.comm, p->rig.stream));
    EXPECT_OK(world, ep_rig_mask(&p->rig, word, &generation));
    EXPECT_EQUAL(world, word[0], all & ~lost);
    IST_TEST_PASS_ON(steps(p, STEPS_AFTER, lost));
    printf("rank=%" PRIu32 " survived\n", p->rig.rank);
    return IST_OK;
}

static ist_status go_on_without(player *p)
{
    const board *shared = p->at->board;
    IST_TEST_PASS_ON(miss_it(p));
    (void)atomic_fetch_add(&p->at->board->masked, 1);
    for (uint32_t i = 0; i < STEPS_MAX && atomic_load(&shared->back) == 0; ++i) {
        IST_TEST_PASS_ON(steps(p, 1, 1ull << p->at->victim));
    }
    return IST_OK;
}

static ist_status come_together(player *p)
{
    ist_world *world = p->rig.world;
    uint64_t word[EP_RIG_WORDS] = {0}, generation = 0;
    IST_TEST_PASS_ON(p->rig.rank == p->at->victim ? be_stopped(p) : go_on_without(p));
    EXPECT_OK(world, ist_ep_clean(p->rig.group, p->rig.stream));
    EXPECT_OK(world, ep_rig_mask(&p->rig, word, &generation));
    EXPECT_EQUAL(world, word[0], (1ull << p->rig.rank_count) - 1u);
    EXPECT(world, generation > 1);
    IST_TEST_PASS_ON(steps(p, STEPS_AFTER, 0));
    printf("rank=%" PRIu32 " re-admitted generation=%" PRIu64 "\n", p->rig.rank, generation);
    return IST_OK;
}

/* ---- a rank ------------------------------------------------------------------------------------ */

static ist_status open_all(ist_world *world, player *p)
{
    const plan *at = p->at;
    ep_lane_setup lane = {.windows = 3};
    ep_rig_setup setup = {.expert_count = at->made->oracle.expert_count,
                          .tokens_max = at->made->oracle.tokens_max,
                          .topk_max = at->made->oracle.topk,
                          .fault_tolerant = 1,
                          .deadline_ns = at->deadline_ns};
    setup.row_bytes_max = at->made->oracle.hidden * 2u;
    EXPECT_OK(world, ep_rig_open(world, &setup, &p->rig));
    EXPECT_OK(world, ep_lane_open(&p->rig, at->made, &lane, &p->lane));
    EXPECT_OK(world, ep_lane_load(&p->lane, at->made));
    EXPECT_OK(world, ep_lane_route(&p->lane, p->rig.stream));
    if (at->graph != 0) {
        EXPECT_OK(world, ist_graph_begin(p->rig.stream));
        IST_TEST_PASS_ON(enqueue(p));
        EXPECT_OK(world, ist_graph_end(p->rig.stream, &p->graph));
    }
    EXPECT_OK(world, ist_comm_barrier(p->rig.comm, p->rig.stream));
    EXPECT_OK(world, ist_stream_sync(p->rig.stream, 0));
    return IST_OK;
}

static ist_status close_all(player *p)
{
    ist_world *world = p->rig.world;
    EXPECT_OK(world, ist_graph_close(p->graph));
    EXPECT_OK(world, ep_lane_close(&p->lane));
    EXPECT_OK(world, ep_rig_close(&p->rig));
    printf("closed\n");
    return IST_OK;
}

static ist_status rank_main(ist_world *world, void *arg)
{
    player p = {.at = arg};
    IST_TEST_PASS_ON(open_all(world, &p));
    IST_TEST_PASS_ON(steps(&p, STEPS_BEFORE, 0));
    if (p.at->how == END_STOP) {
        IST_TEST_PASS_ON(come_together(&p));
    } else {
        IST_TEST_PASS_ON(p.rig.rank == p.at->victim ? die(&p) : survive(&p));
    }
    return close_all(&p);
}

/* ---- the program ------------------------------------------------------------------------------- */

static void pause_a_little(void)
{
    struct timespec pause = {.tv_nsec = POLL_NS};
    (void)nanosleep(&pause, NULL);
}

/* A process of its own, so that it goes on when its parent is stopped; ends when that has ended. */
static void stop_and_continue(const board *shared, pid_t parent, uint32_t others)
{
    while (atomic_load(&shared->ready) == 0 && getppid() == parent) {
        pause_a_little();
    }
    (void)kill(parent, SIGSTOP);
    while (atomic_load(&shared->masked) < others && getppid() == parent) {
        pause_a_little();
    }
    (void)kill(parent, SIGCONT);
    _exit(0);
}

static board *open_board(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    void *at = fd >= 0 ? mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (fd >= 0) {
        (void)close(fd);
    }
    return at != MAP_FAILED ? at : NULL;
}

static bool read_arguments(int argc, char **argv, plan *at)
{
    static const char *const names[] = {"kill", "flight", "stop"};
    bool known = false;
    for (uint32_t i = 0; i < 3 && argc >= 4; ++i) {
        if (strcmp(argv[2], names[i]) == 0) {
            at->how = (end)i;
            known = true;
        }
    }
    at->board = known ? open_board(argv[1]) : NULL;
    at->victim = known ? (uint32_t)strtoul(argv[3], NULL, 0) : 0;
    at->graph = ist_test_option(argc, argv, "--graph", 0);
    at->deadline_ns = 1000ull * ist_test_option(argc, argv, "--deadline-us", 20000);
    return at->board != NULL;
}

static bool make_case(uint32_t rank_count, ist_ep_layout layout, ep_case *made)
{
    ep_shape shape = {.seed = ist_test_seed(),
                      .rank_count = rank_count,
                      .expert_count = 32,
                      .topk = 8,
                      .tokens_max = 128,
                      .hidden = 1024,
                      .dtype = IST_BF16,
                      .layout = layout,
                      .masked_permille = 20};
    if (!ep_case_init(made, &shape)) {
        return false;
    }
    made->oracle.expert = same_expert;
    made->oracle.rank = same_rank;
    return true;
}

/* @return 0: all went as it must */
static int run(plan *at, uint32_t rank_count)
{
    ist_world_desc desc = ist_test_desc(rank_count, NULL);
    ist_world_result result = {.size = sizeof(result)};
    ist_status status = ist_test_run_desc(&desc, rank_main, at, &result);
    uint32_t lost = at->how == END_STOP ? 0 : 1;
    printf("world status=%s lost=%" PRIu32 "\n", ist_status_name(status), result.lost_count);
    return status == IST_OK && result.lost_count == lost ? 0 : 1;
}

int main(int argc, char **argv)
{
    plan at = {0};
    ep_case made;
    const char *size = getenv("OMPI_COMM_WORLD_SIZE"), *rank = getenv("OMPI_COMM_WORLD_RANK");
    ist_test_init(argc, argv);
    if (size == NULL || rank == NULL || !read_arguments(argc, argv, &at)) {
        printf("run by death.sh, with a process for each rank\n");
        return SKIPPED;
    }
    uint32_t rank_count = (uint32_t)strtoul(size, NULL, 0);
    bool rank_major = ist_test_option(argc, argv, "--layout", 0) != 0;
    if (!make_case(rank_count, rank_major ? IST_EP_RANK_MAJOR : IST_EP_EXPERT_MAJOR, &made)) {
        return 1;
    }
    at.made = &made;
    pid_t own = getpid();
    if (at.how == END_STOP && at.victim == strtoul(rank, NULL, 0) && fork() == 0) {
        stop_and_continue(at.board, own, rank_count - 1u);
    }
    int status = run(&at, rank_count);
    ep_case_fini(&made);
    return status;
}
