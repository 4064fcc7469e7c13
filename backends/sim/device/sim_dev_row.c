/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows: copies between memories, charged to the links that lie between them. Several rows of a
 * block are on their way at once; sim_coop_drain() waits for all.
 */
#include "sim_device.h"

#include <string.h>

void sim_row_done(sim_flow *flow)
{
    ist_coop *coop = flow->object;
    sim_world *world = coop->actor.world;
    if (coop->serial == flow->token && coop->transfers > 0) {
        --coop->transfers;
        sim_wait *wait = coop->wait;
        if (wait != NULL && wait->kind == SIM_WAIT_ROWS && --wait->pending == 0) {
            sim_actor_wake(&coop->actor);
        }
    }
    sim_flow_free(world, flow);
}

static void sim_row_travel(ist_coop *coop, sim_rank *from, sim_rank *to, uint64_t bytes)
{
    sim_world *world = coop->actor.world;
    sim_flow *flow = sim_flow_new(world);
    if (flow == NULL) {
        sim_device_no_memory(coop, "row", sizeof(*flow));
        return;
    }
    flow->type = SIM_EV_ROW;
    flow->object = coop;
    flow->token = coop->serial;
    if (sim_flow_route(world, flow, from->index, to->index, SIM_ROUTE_LSA, bytes) != IST_OK) {
        sim_flow_free(world, flow);
        sim_device_fault(coop, NULL, "row", "ranks %u and %u share no memory", from->index,
                         to->index);
        return;
    }
    sim_event_log(world, IST_SIM_ROW, from, (int32_t)to->index, coop->block, bytes);
    if (sim_flow_begin(world, flow)) {
        uint64_t arrives_ps = sim_add_sat(flow->transfer.end_ps, flow->latency_ps);
        if (arrives_ps > coop->rows_until_ps) {
            coop->rows_until_ps = arrives_ps;
        }
        sim_flow_free(world, flow);
    } else {
        ++coop->transfers;
    }
}

/* Time of a block that moves bytes in its own memory; all blocks together saturate the memory. */
static void sim_row_local(ist_coop *coop, uint64_t bytes)
{
    sim_device_step_local(coop, bytes * coop->actor.world->local_ps_per_kib / 1024);
}

/* Exploring: rows take no time, and are no step of their own. */
static inline void sim_row_explored(ist_coop *coop, uint64_t bytes)
{
    sim_device_spend(coop, bytes * coop->actor.world->local_ps_per_kib / 512);
}

/* Memory outside the arena is block-private. */
static __attribute__((noinline)) void sim_row_way(ist_coop *coop, const void *dst, const void *src,
                                                  uint64_t bytes)
{
    sim_rank *self = coop->actor.rank;
    const bool explored = self->world->explore != NULL;
    sim_rank *from = sim_memory_owner(self->world, src);
    sim_rank *to = sim_memory_owner(self->world, dst);
    from = from == NULL ? self : from;
    to = to == NULL ? self : to;
    if (explored &&
        (from == to || sim_link_pair_up(self->world, from->index, to->index, SIM_ROUTE_LSA))) {
        sim_row_explored(coop, bytes);
        return;
    }
    if (from == to) {
        sim_row_local(coop, 2 * bytes);
        return;
    }
    sim_device_step_ordered(coop, self->world->cluster.load_ps);
    sim_row_travel(coop, from, to, bytes);
    if (explored) { /* in front of a dead link: not before words that wait there */
        sim_coop_drain(coop);
    }
}

/* Charges the way from `src` to `dst`. */
static inline void sim_row_charge(ist_coop *coop, const void *dst, const void *src, uint64_t bytes)
{
    const sim_world *world = coop->actor.world;
    if (world->explore != NULL && world->link_states == NULL) {
        sim_row_explored(coop, bytes);
    } else {
        sim_row_way(coop, dst, src, bytes);
    }
}

static inline bool sim_row_check(ist_coop *coop, const void *address, const char *call)
{
    if (address == NULL) {
        sim_device_fault(coop, NULL, call,
                         "the address is NULL: outside a window, or not in the "
                         "load/store team");
    }
    return address != NULL;
}

static inline void sim_row_write(sim_rank *target, void *dst, const void *src, uint64_t bytes)
{
    memmove(dst, src, bytes);
    if (target != NULL && target->waits != NULL) {
        sim_wait_word_written(target, dst, bytes);
    }
}

void ist_row_copy(ist_coop *coop, void *dst, const void *src, uint64_t bytes)
{
    if (!sim_row_check(coop, dst, "row_copy") || !sim_row_check(coop, src, "row_copy")) {
        return;
    }
    sim_device_call(coop);
    sim_row_charge(coop, dst, src, bytes);
    sim_world *world = coop->actor.world;
    sim_rank *target = world->explore != NULL ? sim_shadow_copy(world->explore, coop->actor.agent,
                                                                dst, src, bytes, "row_copy")
                                              : sim_memory_owner(world, dst);
    sim_row_write(target, dst, src, bytes);
    if (world->explore != NULL) {
        sim_words_copied(world->explore, coop->actor.agent, dst, src, bytes);
    }
}

void ist_row_copy_many(ist_coop *coop, void *const *dst, uint32_t count, const void *src,
                       uint64_t bytes)
{
    if (count > IST_ROW_TARGETS_MAX) {
        sim_device_fault(coop, NULL, "row_copy_many", "%u targets, at most %u", count,
                         IST_ROW_TARGETS_MAX);
        return;
    }
    if (count == 0 || !sim_row_check(coop, src, "row_copy_many")) {
        return;
    }
    /* The source is read once: only the first place pays the way from it. */
    for (uint32_t i = 0; i < count; ++i) {
        if (!sim_row_check(coop, dst[i], "row_copy_many")) {
            return;
        }
        sim_device_call(coop);
        sim_row_charge(coop, dst[i], i == 0 ? src : NULL, bytes);
        (void)sim_device_row(coop, src, bytes, false,
                             "row_copy_many"); /* as it is after the step */
        sim_row_write(sim_device_row(coop, dst[i], bytes, true, "row_copy_many"), dst[i], src,
                      bytes);
    }
}

/* One row of a batch: places that are NULL are left out. */
static void sim_row_scatter(ist_coop *coop, void *const *dst, uint32_t places, const void *src,
                            uint64_t bytes)
{
    void *there[IST_ROW_TARGETS_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < places && i < IST_ROW_TARGETS_MAX; ++i) {
        if (dst[i] != NULL) {
            there[count++] = dst[i];
        }
    }
    ist_row_copy_many(coop, there, count, src, bytes);
}

void ist_row_copy_batch(ist_coop *coop, const ist_row_batch *batch)
{
    for (uint32_t i = 0; i < batch->row_count; ++i) {
        sim_row_scatter(coop, batch->dst + (size_t)i * batch->stride, batch->places[i],
                        batch->src[i], batch->bytes);
    }
}

void ist_row_copy_list(ist_coop *coop, const ist_row_part *parts, uint32_t count)
{
    for (uint32_t i = 0; i < count; ++i) {
        if (parts[i].bytes != 0) {
            ist_row_copy(coop, parts[i].dst, parts[i].src, parts[i].bytes);
        }
    }
}

void ist_row_fill(ist_coop *coop, void *dst, uint8_t value, uint64_t bytes)
{
    if (!sim_row_check(coop, dst, "row_fill")) {
        return;
    }
    sim_device_call(coop);
    sim_row_charge(coop, dst, NULL, bytes);
    (void)sim_device_row(coop, dst, bytes, true, "row_fill");
    memset(dst, value, bytes);
}

void ist_row_reduce(ist_coop *coop, void *dst, const void *const *src, const float *weight,
                    uint32_t count, uint64_t elements, ist_dtype dtype)
{
    uint64_t bytes = elements * ist_dtype_bytes(dtype);
    if (!sim_row_check(coop, dst, "row_reduce")) {
        return;
    }
    for (uint32_t i = 0; i < count; ++i) {
        if (!sim_row_check(coop, src[i], "row_reduce")) {
            return;
        }
        sim_row_charge(coop, NULL, src[i], bytes);
        (void)sim_device_row(coop, src[i], bytes, false, "row_reduce");
    }
    if (!sim_reduce_rows(dst, src, weight, count, elements, dtype)) {
        sim_device_fault(coop, NULL, "row_reduce", "element type %d is not a float", (int)dtype);
        return;
    }
    sim_device_call(coop);
    sim_row_charge(coop, dst, NULL, bytes);
    (void)sim_device_row(coop, dst, bytes, true, "row_reduce");
}

/* One sum of a batch: sources that are NULL are left out. */
static void sim_row_sum(ist_coop *coop, const ist_row_sums *batch, uint32_t row)
{
    const void *src[IST_ROW_TARGETS_MAX];
    float weight[IST_ROW_TARGETS_MAX];
    size_t first = (size_t)row * batch->stride;
    uint32_t count = 0;
    for (uint32_t i = 0; i < batch->stride; ++i) {
        if (batch->src[first + i] != NULL) {
            src[count] = batch->src[first + i];
            weight[count++] = batch->weight != NULL ? batch->weight[first + i] : 0.0f;
        }
    }
    if (batch->dst[row] == NULL) {
        return;
    }
    ist_row_reduce(coop, batch->dst[row], src, batch->weight != NULL ? weight : NULL, count,
                   batch->elements, batch->dtype);
}

void ist_row_reduce_batch(ist_coop *coop, const ist_row_sums *batch)
{
    if (batch->stride > IST_ROW_TARGETS_MAX) {
        sim_device_fault(coop, NULL, "row_reduce_batch", "%u sources, at most %u", batch->stride,
                         IST_ROW_TARGETS_MAX);
        return;
    }
    for (uint32_t row = 0; row < batch->row_count; ++row) {
        sim_row_sum(coop, batch, row);
    }
}
