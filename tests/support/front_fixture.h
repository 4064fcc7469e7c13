/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests of the front share: a quiet log, a reset fake, and running a program on it.
 */
#ifndef FRONT_FIXTURE_H
#define FRONT_FIXTURE_H

#include "fake_backend.h"
#include "test_log.h"

#include <isthmus/isthmus.h>
#include <isthmus/unstable/sim.h>
#include <stdlib.h>

static test_log front_log;

static inline int front_set_up(void **state)
{
    (void)state;
    memset(&front_log, 0, sizeof(front_log));
    ist_log_sink_set(test_log_line, &front_log, IST_LOG_WARN);
    setenv("IST_LAUNCH", "none", 1);
    fake_backend();
    fake_reset();
    return 0;
}

static inline ist_status front_run(uint32_t rank_count, ist_rank_fn program, void *arg)
{
    ist_world_desc desc = {.size = sizeof(desc), .backend = "fake", .rank_count = rank_count};
    return ist_world_run(&desc, program, arg, NULL);
}

static inline ist_error front_error(void)
{
    ist_error error = {.size = sizeof(error)};
    if (ist_error_last(&error) != IST_OK) {
        error.status = IST_ERR_INTERNAL;
    }
    return error;
}

#endif
