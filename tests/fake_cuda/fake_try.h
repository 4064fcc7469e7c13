/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the programs on the driver without GPU give up: with the status of what failed.
 */
#ifndef FAKE_TRY_H
#define FAKE_TRY_H

#include <isthmus/status.h>
#include <stdio.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            return IST_ERR_INTERNAL;                                                               \
        }                                                                                          \
    } while (0)
#define TRY(call)                                                                                  \
    do {                                                                                           \
        ist_status try_ = (call);                                                                  \
        if (try_ != IST_OK) {                                                                      \
            return try_;                                                                           \
        }                                                                                          \
    } while (0)

#endif
