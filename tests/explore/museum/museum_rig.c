/* SPDX-License-Identifier: Apache-2.0 */
/* The usual objects of a rank in the museum, and its oracle's words. */
#include "museum.h"

#include <stdio.h>

#include <cmocka.h>

ist_status museum_open(ist_world *world, void *run, museum_rig *rig)
{
    *rig = (museum_rig){.run = run,
                        .world = world,
                        .rank = ist_world_rank(world),
                        .rank_count = ist_world_rank_count(world)};
    ist_comm_desc desc = {.size = sizeof(desc), .fault_tolerant = 1};
    if (rig->rank == 0) { /* a search runs the program again and again */
        rig->run->wrong = 0;
        rig->run->why[0] = '\0';
    }
    IST_TEST_PASS_ON(ist_comm_open(world, NULL, &rig->meeting));
    IST_TEST_PASS_ON(ist_comm_open(world, &desc, &rig->comm));
    IST_TEST_PASS_ON(ist_stream_open(world, &rig->stream));
    IST_TEST_PASS_ON(ist_dev_comm_open(rig->comm, MUSEUM_RESOURCE, 2, 4, 4, 1, &rig->dev));
    rig->mine = rig->dev->windows[0].local;
    return IST_OK;
}

ist_status museum_meet(const museum_rig *rig)
{
    const ist_dev_comm *dev = NULL;
    IST_TEST_PASS_ON(ist_dev_comm_open(rig->meeting, 0, 0, 0, 0, 0, &dev));
    return ist_dev_comm_close(rig->meeting, dev);
}

ist_status museum_leave(museum_rig *rig)
{
    IST_TEST_PASS_ON(ist_dev_comm_close(rig->comm, rig->dev));
    IST_TEST_PASS_ON(ist_stream_close(rig->stream));
    IST_TEST_PASS_ON(ist_comm_close(rig->comm));
    IST_TEST_PASS_ON(ist_comm_close(rig->meeting));
    return (rig->run->wrong >> rig->rank & 1u) == 0 ? IST_OK : IST_ERR_INTERNAL;
}

ist_status museum_close(museum_rig *rig)
{
    IST_TEST_PASS_ON(ist_stream_sync(rig->stream, 0));
    IST_TEST_PASS_ON(museum_meet(rig));
    return museum_leave(rig);
}

void museum_wrong(const museum_rig *rig, const char *format, ...)
{
    char *why = rig->run->why;
    bool first = rig->run->wrong == 0;
    rig->run->wrong |= UINT32_C(1) << rig->rank;
    if (!first) {
        return;
    }
    int used = snprintf(why, sizeof(rig->run->why), "rank %u: ", rig->rank);
    va_list list;
    va_start(list, format);
    (void)vsnprintf(why + used, sizeof(rig->run->why) - (size_t)used, format, list);
    va_end(list);
}

ist_status museum_expect_row(const museum_rig *rig, uint64_t offset, uint32_t rows, uint8_t value,
                             const char *what)
{
    uint8_t host[8 * MUSEUM_ROW];
    size_t bytes = rows * MUSEUM_ROW;
    IST_TEST_PASS_ON(ist_copy_to_host(rig->stream, host, rig->mine + offset, bytes));
    for (size_t i = 0; i < bytes; ++i) {
        if (host[i] != value) {
            museum_wrong(rig, "%s holds 0x%02x instead of 0x%02x", what, host[i], value);
            return IST_OK;
        }
    }
    return IST_OK;
}

uint32_t museum_draw(const museum_run *run, uint32_t which, uint32_t bound)
{
    uint64_t state = run->seed * 64u + which;
    return ist_test_random_below(&state, bound);
}
