/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slow-is-not-dead. A healthy rank compiled its kernels for more than two minutes; its peers waited for
 * 60 or 100 seconds, whatever happened, declared it dead, and when it came it missed their part and
 * declared them dead. Public: sgl-project/DeepGEMM PR 57.
 *
 * Here: one of two ranks is late by a time that is drawn from the seed, and beats while it is. Broken:
 * the wait has a fixed limit. Fixed: the limit is one of silence, each beat begins it anew. Oracle: at
 * the end nobody who lives is masked.
 */
#include "museum.h"

#define FLAG 0u
#define BEATS 64u
#define OPERATIONS 2u
#define SECOND_NS UINT64_C(1000000000)
#define LIMIT_NS (60u * SECOND_NS)
#define BEAT_S 15u        /* between two beats */
#define COMPILES_MAX 150u /* seconds */

typedef struct slow_args {
    const ist_dev_comm *dev;
    uint32_t number;
    uint32_t heeds_beats;
} slow_args;

IST_KERNEL(museum_slow_beat, slow_args)
{
    const ist_dev_comm *dev = args->dev;
    if (ist_coop_elect(coop)) {
        ist_store_u64(coop, ist_window_peer(coop, dev, 0, BEATS, 1u - dev->rank), args->number,
                      IST_RELEASE, IST_SCOPE_SYSTEM);
    }
}

static ist_wait_result wait_for_peer(ist_coop *coop, const slow_args *args)
{
    const ist_dev_comm *dev = args->dev;
    const uint64_t *flag = ist_window_local(coop, dev, 0, FLAG);
    uint64_t *beats = ist_window_local(coop, dev, 0, BEATS);
    uint64_t heard = 0;
    for (;;) {
        ist_wait_result result = ist_coop_wait_word(
            coop, dev, flag, args->number + 1u, ist_clock_ns(coop) + LIMIT_NS, IST_SCOPE_SYSTEM);
        /* Loads may see old values for long; an update sees the newest. */
        uint64_t now = ist_fetch_add_u64(coop, beats, 0, IST_ACQUIRE, IST_SCOPE_SYSTEM);
        if (result != IST_WAIT_TIMEOUT || !args->heeds_beats || now == heard) {
            return result;
        }
        heard = now;
    }
}

IST_KERNEL(museum_slow_exchange, slow_args)
{
    const ist_dev_comm *dev = args->dev;
    uint32_t peer = 1u - dev->rank;
    if (!ist_mask_active(coop, dev, peer)) {
        return;
    }
    if (ist_coop_elect(coop)) {
        ist_store_u64(coop, ist_window_peer(coop, dev, 0, FLAG, peer), args->number + 1u,
                      IST_RELEASE, IST_SCOPE_SYSTEM);
    }
    ist_point(coop, "slow.receive");
    if (wait_for_peer(coop, args) == IST_WAIT_TIMEOUT && ist_coop_elect(coop)) {
        ist_dev_error error = {.status = IST_ERR_TIMEOUT,
                               .peer = peer,
                               .operation = IST_DEV_OP_USER,
                               .sequence = args->number + 1u};
        (void)ist_mask_drop(coop, dev, &error);
    }
}

static ist_status launch(const museum_rig *rig, const ist_kernel *kernel, uint32_t number)
{
    slow_args args = {.dev = rig->dev, .number = number, .heeds_beats = 1u - rig->run->broken};
    return ist_launch(rig->stream, kernel, 1, &args, sizeof(args));
}

static ist_status compile(const museum_rig *rig)
{
    uint32_t seconds = museum_draw(rig->run, 1, COMPILES_MAX);
    for (uint32_t beat = 1; seconds > 0; ++beat) {
        uint32_t now = seconds < BEAT_S ? seconds : BEAT_S;
        IST_TEST_PASS_ON(ist_world_sleep(rig->world, now * SECOND_NS));
        IST_TEST_PASS_ON(launch(rig, &ist_kernel_museum_slow_beat, beat));
        seconds -= now;
    }
    return IST_OK;
}

static ist_status expect_all_active(const museum_rig *rig)
{
    uint64_t word = 0;
    ist_mask mask = {.size = sizeof(mask), .words = &word, .word_count = 1};
    IST_TEST_PASS_ON(ist_comm_mask_query(rig->comm, &mask));
    if (word != 3) {
        museum_wrong(rig, "has masked rank %u, which lives", 1u - rig->rank);
    }
    return IST_OK;
}

static ist_status slow_main(ist_world *world, void *run)
{
    museum_rig rig;
    IST_TEST_PASS_ON(museum_open(world, run, &rig));
    if (rig.rank == museum_draw(rig.run, 0, 2)) {
        IST_TEST_PASS_ON(compile(&rig));
    }
    for (uint32_t i = 0; i < OPERATIONS; ++i) {
        IST_TEST_PASS_ON(launch(&rig, &ist_kernel_museum_slow_exchange, i));
    }
    IST_TEST_PASS_ON(ist_stream_sync(rig.stream, 0));
    IST_TEST_PASS_ON(expect_all_active(&rig));
    IST_TEST_PASS_ON(museum_meet(&rig));
    return museum_leave(&rig);
}

/* Waits end by their limit on purpose here: the oracle judges, not the detector of deadlocks. */
const museum_piece museum_slow_is_not_dead = {
    .name = "slow-is-not-dead",
    .address = "sgl-project/DeepGEMM PR 57",
    .rank_count = 2,
    .answers = {{MUSEUM_KIND(STATUS), {"has masked rank", "which lives"}}},
    .rank_main = slow_main,
    .detectors_off = IST_DETECTOR(IST_FINDING_DEADLOCK),
};
