/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests of expert parallelism expect of a healthy operation. Rig, lane and steps are those of
 * the command (ep_lane.h), which tests reach through this header.
 */
#ifndef EP_RIG_H
#define EP_RIG_H

#include "ep_lane.h"
#include "ist_test.h"

/* Checks of a healthy operation: complete record, no lost rank, every byte right. */
ist_status ep_expect_dispatch(ep_lane *lane, const char *file, int line);
ist_status ep_expect_combine(ep_lane *lane, const char *file, int line);
#define EXPECT_DISPATCHED(lane) IST_TEST_PASS_ON(ep_expect_dispatch((lane), __FILE__, __LINE__))
#define EXPECT_COMBINED(lane) IST_TEST_PASS_ON(ep_expect_combine((lane), __FILE__, __LINE__))

#endif
