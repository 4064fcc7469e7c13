/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lost-atomic. The network came up and data went through, but the atomics that raise signals never
 * arrived on that fabric; nothing had tried them before they were relied on, and the first wait never
 * ended. Public: NVIDIA/nccl issue 2255.
 *
 * Here: two ranks exchange a row by put and signal, on a network that, as the seed says, delivers
 * signals of nobody, of one rank, or of both. Broken: initialisation tries nothing. Fixed: it sends a
 * signal each way, with a deadline, and all ranks refuse the network when one has missed it. Oracle:
 * every rank has the row, or all have refused.
 */
#include "museum.h"

#define PAGE 0u
#define SLOT 1024u
#define COPY 2048u
#define PROBED 512u
#define ARRIVED 0u /* signals */
#define PROBE 1u
#define PROBE_NS 1000000u

typedef struct atomic_args {
    const ist_dev_comm *dev;
} atomic_args;

IST_KERNEL(museum_atomic_probe, atomic_args)
{
    const ist_dev_comm *dev = args->dev;
    ist_gin_action raise = {IST_GIN_SIGNAL_INC, PROBE, 0};
    ist_gin_signal(coop, dev, 0, 1u - dev->rank, raise);
    ist_wait_result result =
        ist_gin_signal_wait(coop, dev, 0, PROBE, 1, ist_clock_ns(coop) + PROBE_NS);
    ist_store_u64(coop, ist_window_local(coop, dev, 0, PROBED), result == IST_WAIT_DONE,
                  IST_RELAXED, IST_SCOPE_DEVICE);
}

IST_KERNEL(museum_atomic_exchange, atomic_args)
{
    const ist_dev_comm *dev = args->dev;
    uint32_t peer = 1u - dev->rank;
    ist_gin_action nothing = {IST_GIN_NONE, 0, 0};
    ist_gin_action raise = {IST_GIN_SIGNAL_INC, ARRIVED, 0};
    ist_row_fill(coop, ist_window_local(coop, dev, 0, PAGE), (uint8_t)(dev->rank + 1u), MUSEUM_ROW);
    ist_gin_put(coop, dev, 0, peer, 0, SLOT, 0, PAGE, MUSEUM_ROW, nothing, IST_GIN_NO_COUNTER);
    ist_gin_signal(coop, dev, 0, peer, raise);
    ist_point(coop, "atomic.wait");
    while (ist_gin_signal_wait(coop, dev, 0, ARRIVED, 1, ist_clock_ns(coop) + MUSEUM_LOOK_NS) !=
           IST_WAIT_DONE) {
    }
    ist_row_copy(coop, ist_window_local(coop, dev, 0, COPY), ist_window_local(coop, dev, 0, SLOT),
                 MUSEUM_ROW);
}

/* Who of the ranks loses its signals: 0 nobody, 1 and 2 one of them, 3 both. */
static uint32_t losers(const museum_run *run)
{
    return museum_draw(run, 0, 4);
}

static ist_status atomic_faults(const museum_run *run, ist_fault_plan *plan)
{
    ist_fault fault = {.size = sizeof(fault),
                       .kind = IST_FAULT_DROP,
                       .trigger = IST_FAULT_NTH,
                       .peer = IST_FAULT_ANY,
                       .classes = IST_FAULT_SIGNALS,
                       .at_op = 1,
                       .count = 1000};
    for (uint32_t rank = 0; rank < 2; ++rank) {
        if ((losers(run) >> rank & 1u) != 0) {
            fault.rank = (int32_t)rank;
            IST_TEST_PASS_ON(ist_fault_plan_add(plan, &fault));
        }
    }
    return IST_OK;
}

static ist_status launch(const museum_rig *rig, const ist_kernel *kernel)
{
    atomic_args args = {.dev = rig->dev};
    return ist_launch(rig->stream, kernel, 1, &args, sizeof(args));
}

/* Whether all ranks have got their signal: those that have not split off. */
static ist_status probe(const museum_rig *rig, bool *usable)
{
    uint64_t arrived = 0;
    ist_comm *with_me = NULL;
    ist_comm_info info = {.size = sizeof(info)};
    IST_TEST_PASS_ON(launch(rig, &ist_kernel_museum_atomic_probe));
    IST_TEST_PASS_ON(ist_copy_to_host(rig->stream, &arrived, rig->mine + PROBED, sizeof(arrived)));
    IST_TEST_PASS_ON(ist_comm_split(rig->meeting, arrived == 1 ? 0 : 1, 0, &with_me));
    IST_TEST_PASS_ON(ist_comm_query(with_me, &info));
    *usable = arrived == 1 && info.rank_count == rig->rank_count;
    return ist_comm_close(with_me);
}

static ist_status atomic_main(ist_world *world, void *run)
{
    museum_rig rig;
    bool usable = true;
    IST_TEST_PASS_ON(museum_open(world, run, &rig));
    if (!rig.run->broken) {
        IST_TEST_PASS_ON(probe(&rig, &usable));
        if (usable != (losers(rig.run) == 0)) {
            museum_wrong(&rig, "the network is judged wrongly");
        }
    }
    if (usable) {
        IST_TEST_PASS_ON(launch(&rig, &ist_kernel_museum_atomic_exchange));
        IST_TEST_PASS_ON(museum_expect_row(&rig, COPY, 1, (uint8_t)(2u - rig.rank), "the row"));
    }
    return museum_close(&rig);
}

const museum_piece museum_lost_atomic = {
    .name = "lost-atomic",
    .address = "NVIDIA/nccl issue 2255",
    .rank_count = 2,
    .answers = {{MUSEUM_KIND(LIVELOCK), {"the limit of steps", "in museum_atomic_exchange"}}},
    .rank_main = atomic_main,
    .faults = atomic_faults,
    .step_count_max = 5000,
};
