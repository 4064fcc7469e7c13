/* SPDX-License-Identifier: Apache-2.0 */
/* Expectations of a healthy operation. See ep_rig.h. */
#include "ep_rig.h"

#include <stdio.h>

/* What device code recorded says more than the status. */
static void print_comm_errors(ist_comm *comm)
{
    uint32_t count = 0;
    ist_error error = {.size = sizeof(error)};
    for (uint32_t i = 0; ist_comm_error_get(comm, i, &count, &error) == IST_OK && i < count; ++i) {
        printf("#   rank %d: %s\n", error.rank, error.message);
    }
}

static ist_status expect_ended(ep_lane *lane, ist_ep_op op, const char *file, int line)
{
    ist_world *world = lane->rig->world;
    const ist_completion *record = &lane->record[op];
    IST_TEST_PASS_ON(ist_test_status(world, ist_stream_sync(lane->rig->stream, 0), IST_OK,
                                     "ist_stream_sync", file, line));
    IST_TEST_PASS_ON(
        ist_test_status(world, ep_lane_read_record(lane, op), IST_OK, "ist_ep_record", file, line));
    ist_status status =
        ist_test_status(world, record->status, IST_OK, "record->status", file, line);
    if (status != IST_OK) {
        print_comm_errors(lane->rig->comm);
        return status;
    }
    IST_TEST_PASS_ON(ist_test_equal(world, record->complete, 1, "record->complete", file, line));
    return ist_test_equal(world, record->lost_count, 0, "record->lost_count", file, line);
}

static ist_status expect_right(ep_lane *lane, ist_status status, const ep_lane_finding *finding,
                               const char *file, int line)
{
    ist_world *world = lane->rig->world;
    IST_TEST_PASS_ON(ist_test_status(world, status, IST_OK, "check", file, line));
    return ist_test_true(world, finding->wrong == 0, finding->first, file, line);
}

ist_status ep_expect_dispatch(ep_lane *lane, const char *file, int line)
{
    ep_lane_finding finding = {0};
    IST_TEST_PASS_ON(expect_ended(lane, IST_EP_OP_DISPATCH, file, line));
    ist_status status = ep_lane_check_dispatch(lane, &finding);
    return expect_right(lane, status, &finding, file, line);
}

ist_status ep_expect_combine(ep_lane *lane, const char *file, int line)
{
    ep_lane_finding finding = {0};
    IST_TEST_PASS_ON(expect_ended(lane, IST_EP_OP_COMBINE, file, line));
    ist_status status = ep_lane_check_combine(lane, &finding);
    return expect_right(lane, status, &finding, file, line);
}
