/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scenarios that are broken on purpose, each in a way of its own, and `isthmus explore` with them: the
 * tests of the command run this program. A row goes to the next rank of a ring, and a flag says so.
 *
 *   broken-race   the flag does not release the row
 *   broken-bytes  the flag comes first, and no detector looks: the oracle has to
 *   broken-wait   one rank never raises its flag
 *   broken-crash  every hundredth seed kills its process
 *   broken-hang   every hundredth seed never ends
 */
#include "cli.h"
#include "explore_actor.h"

#include <isthmus/device.h>
#include <signal.h>
#include <unistd.h>

#define ROW_BYTES 64u
#define WAIT_NS 1000000000u

enum { BROKEN_RACE, BROKEN_BYTES, BROKEN_WAIT, BROKEN_CRASH, BROKEN_HANG };

typedef struct ring_args {
    const ist_dev_comm *dev;
    uint64_t flag;
    uint32_t value, how;
} ring_args;

IST_DEVICE_FN void ring_raise(ist_coop *coop, const ring_args *args, uint32_t next)
{
    bool silent = args->how == BROKEN_WAIT && args->dev->rank == 1u;
    uint64_t *flag = (uint64_t *)ist_window_peer(coop, args->dev, 0, 0, next);
    ist_coop_sync(coop);
    if (ist_coop_elect(coop) && !silent) {
        ist_store_u64(coop, flag, args->flag, args->how == BROKEN_RACE ? IST_RELAXED : IST_RELEASE,
                      IST_SCOPE_SYSTEM);
    }
}

IST_KERNEL(broken_ring, ring_args)
{
    const ist_dev_comm *dev = args->dev;
    uint32_t next = (dev->rank + 1u) % dev->rank_count;
    uint64_t deadline_ns = ist_clock_ns(coop) + WAIT_NS;
    bool early = args->how == BROKEN_BYTES && dev->rank == 0;
    ist_point(coop, "ring.send");
    if (early) {
        ring_raise(coop, args, next);
        ist_fence(coop, IST_RELEASE, IST_SCOPE_SYSTEM);
    }
    ist_row_fill(coop, ist_window_peer(coop, dev, 0, ROW_BYTES, next), (uint8_t)args->value,
                 ROW_BYTES);
    if (!early) {
        ring_raise(coop, args, next);
    }
    ist_point(coop, "ring.receive");
    (void)ist_coop_wait_word(coop, dev, (uint64_t *)ist_window_local(coop, dev, 0, 0), args->flag,
                             deadline_ns, IST_SCOPE_SYSTEM);
    ist_row_copy(coop, ist_window_local(coop, dev, 0, 2u * ROW_BYTES),
                 ist_window_local(coop, dev, 0, ROW_BYTES), ROW_BYTES);
}

static uint32_t value_of(uint32_t rank, uint32_t step)
{
    return rank * 16u + step + 1u;
}

static ist_status check(explore_actor *actor, const ist_dev_comm *dev, uint32_t step)
{
    uint8_t host[ROW_BYTES];
    uint32_t from = (actor->rank + actor->rank_count - 1u) % actor->rank_count;
    const uint8_t *mine = dev->windows[0].local;
    EXPLORE_TRY(ist_copy_to_host(actor->stream, host, mine + 2u * ROW_BYTES, sizeof host));
    for (uint32_t i = 0; i < ROW_BYTES; ++i) {
        if (host[i] != value_of(from, step)) {
            explore_wrong(actor, "step %u: byte %u is 0x%02x, not 0x%02x", step, i, host[i],
                          value_of(from, step));
            break;
        }
    }
    return IST_OK;
}

static ist_status play(explore_actor *actor, const ist_dev_comm *dev)
{
    const explore_run *run = actor->run;
    for (uint32_t step = 0; step < run->numbers.steps; ++step) {
        ring_args args = {.dev = dev,
                          .flag = step + 1u,
                          .value = value_of(actor->rank, step),
                          .how = run->scenario->flags};
        EXPLORE_TRY(ist_launch(actor->stream, &ist_kernel_broken_ring, 1, &args, sizeof args));
        EXPLORE_TRY(check(actor, dev, step));
        EXPLORE_TRY(ist_comm_barrier(actor->comm, actor->stream));
        EXPLORE_TRY(ist_stream_sync(actor->stream, 0));
    }
    return IST_OK;
}

static ist_status open_all(ist_world *world, explore_actor *actor, const ist_dev_comm **dev)
{
    ist_comm_desc desc = {
        .size = sizeof desc, .fault_tolerant = 1, .deadline_ns = EXPLORE_DEADLINE_NS};
    EXPLORE_TRY(ist_comm_open(world, &desc, &actor->comm));
    EXPLORE_TRY(ist_stream_open(world, &actor->stream));
    return ist_dev_comm_open(actor->comm, 3u * ROW_BYTES, 0, 0, 0, 0, dev);
}

static ist_status ring_main(ist_world *world, void *run)
{
    explore_actor actor;
    const ist_dev_comm *dev = NULL;
    explore_begin(world, run, &actor);
    bool crashes = actor.run->scenario->flags == BROKEN_CRASH;
    bool hangs = actor.run->scenario->flags == BROKEN_HANG;
    bool now = actor.run->seed % 100u == 42u;
    if (crashes && now) {
        (void)raise(SIGKILL);
    }
    while (hangs && now) {
        (void)pause();
    }
    ist_status status = explore_opened(&actor, open_all(world, &actor, &dev));
    if (status == IST_OK && !crashes && !hangs) {
        status = play(&actor, dev);
    }
    if (status != IST_ERR_KILLED && status != IST_OK) {
        (void)ist_world_sleep(world, EXPLORE_MEET_NS);
    }
    ist_status closed = ist_stream_close(actor.stream);
    ist_status other = ist_comm_close(actor.comm);
    closed = closed == IST_OK ? other : closed;
    return explore_end(&actor, closed == IST_ERR_KILLED ? closed : status);
}

#define UNSEEN (IST_DETECTOR(IST_FINDING_RACE) | IST_DETECTOR(IST_FINDING_REUSED))
#define BROKEN(name_, flags_, off_)                                                                \
    {                                                                                              \
        .name = name_, .about = "broken on purpose", .net = EXPLORE_LSA,                           \
        .numbers = {.ranks = 4, .steps = 3}, .flags = flags_, .detectors_off = off_,               \
        .rank_main = ring_main,                                                                    \
    }

static const explore_scenario broken[] = {
    BROKEN("broken-race", BROKEN_RACE, 0), BROKEN("broken-bytes", BROKEN_BYTES, UNSEEN),
    BROKEN("broken-wait", BROKEN_WAIT, 0), BROKEN("broken-crash", BROKEN_CRASH, 0),
    BROKEN("broken-hang", BROKEN_HANG, 0),
};

static void drop_line(ist_log_level level, const char *line, void *context)
{
    (void)level;
    (void)line;
    (void)context;
}

int main(int argc, char **argv)
{
    ist_log_sink_set(drop_line, NULL, IST_LOG_NONE);
    for (size_t i = 0; i < sizeof broken / sizeof *broken; ++i) {
        explore_scenario_add(&broken[i]);
    }
    return cli_explore_command(argc, argv);
}
