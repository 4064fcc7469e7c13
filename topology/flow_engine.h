/* SPDX-License-Identifier: Apache-2.0 */
/* An event engine for flows that share links max-min fairly. It knows no topology: links are
 * numbers with a rate, a flow crosses some of them. Integers only: bytes, bytes per second,
 * picoseconds.
 *
 * A flow may stand for many equal ones: `weight` of a use says how many of them cross that link
 * (and, when the link stands for many equal links, each of those). So a symmetric machine can be
 * computed on its quotient, and the same engine with weights of one computes the whole.
 *
 * A flow first moves its bytes, then is `latency_ps` under way without holding links, then is
 * popped. Without bytes and links it is a timer. Ends of bytes are rounded up to FLOW_GRAIN_PS, so
 * that equal flows whose shares differ by a rounding end together.
 */
#ifndef FLOW_ENGINE_H
#define FLOW_ENGINE_H

#include <isthmus/status.h>
#include <stdbool.h>
#include <stdint.h>

#define FLOW_USES_MAX 7u
#define FLOW_GRAIN_PS UINT64_C(1024)
#define FLOW_NEVER UINT64_MAX

typedef struct flow_engine flow_engine;

typedef struct flow_use {
    uint32_t link;
    uint64_t weight; /* >= 1 */
} flow_use;

typedef struct flow_desc {
    uint64_t bytes;      /* of each of the equal flows */
    uint64_t latency_ps; /* on top of the bytes */
    uint64_t cap;        /* bytes per second that one flow can use; 0: no limit but the links */
    uint64_t cookie;     /* caller's */
    uint32_t use_count;  /* bytes without a use and without a cap take no time */
    flow_use use[FLOW_USES_MAX]; /* distinct links */
} flow_desc;

typedef struct flow_link_usage {
    uint64_t bytes;   /* carried by each link that this one stands for, by flows that have ended */
    uint64_t busy_ps; /* while at least one flow crossed it */
} flow_link_usage;

/* `rates` in bytes per second, at least 1 each. IST_ERR_MEMORY. */
ist_status flow_open(const uint64_t *rates, uint32_t link_count, flow_engine **engine);
void flow_close(flow_engine *engine);

/* Forgets flows, time and usage; keeps links and memory. */
void flow_reset(flow_engine *engine);

/* Starts a flow at the engine's time. IST_ERR_MEMORY. */
ist_status flow_begin(flow_engine *engine, const flow_desc *desc);

/* Goes to the next arrival and takes it out; several at one time come in the order of their begin.
 * Returns false when there is none. */
bool flow_pop(flow_engine *engine, uint64_t *cookie);

/* Time of the last arrival that was popped. */
uint64_t flow_now(const flow_engine *engine);

flow_link_usage flow_usage(const flow_engine *engine, uint32_t link);

/* Begins and ends so far. */
uint64_t flow_event_count(const flow_engine *engine);

#endif
