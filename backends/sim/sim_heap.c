/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event queue: a binary heap ordered by (time, sequence), so that equal times are served in
 * the order of insertion on every machine.
 */
#include "sim_coll.h"
#include "sim_internal.h"

#include <string.h>

/* Below this many events nobody bothers about stale ones. */
#define SIM_HEAP_COMPACT_MIN 1024u

static bool sim_event_before(const sim_event *a, const sim_event *b)
{
    return a->at_ps != b->at_ps ? a->at_ps < b->at_ps : a->sequence < b->sequence;
}

static void sim_heap_sift_up(sim_event *heap, uint32_t index)
{
    sim_event event = heap[index];
    while (index > 0) {
        uint32_t parent = (index - 1) / 2;
        if (!sim_event_before(&event, &heap[parent])) {
            break;
        }
        heap[index] = heap[parent];
        index = parent;
    }
    heap[index] = event;
}

static void sim_heap_sift_down(sim_event *heap, uint32_t count, uint32_t index)
{
    sim_event event = heap[index];
    for (;;) {
        uint32_t child = 2 * index + 1;
        if (child >= count) {
            break;
        }
        if (child + 1 < count && sim_event_before(&heap[child + 1], &heap[child])) {
            ++child;
        }
        if (!sim_event_before(&heap[child], &event)) {
            break;
        }
        heap[index] = heap[child];
        index = child;
    }
    heap[index] = event;
}

static bool sim_event_is_stale(const sim_event *event)
{
    const sim_actor *actor = event->object;
    return event->type == SIM_EV_DEADLINE && actor->block_token != event->token;
}

/* Deadlines outlive their waits: most lie far in the future and would pile up in a long run. */
static void sim_heap_compact(sim_world *world)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < world->heap_count; ++i) {
        if (!sim_event_is_stale(&world->heap[i])) {
            world->heap[kept++] = world->heap[i];
        }
    }
    world->heap_count = kept;
    world->heap_stale = 0;
    for (uint32_t i = kept / 2; i-- > 0;) {
        sim_heap_sift_down(world->heap, kept, i);
    }
}

static ist_status sim_heap_grow(sim_world *world)
{
    uint32_t room = world->heap_room == 0 ? 256 : world->heap_room * 2;
    sim_event *heap = ist_alloc(room, sizeof(*heap));
    if (heap == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for %u simulator events", room);
    }
    if (world->heap_count > 0) {
        memcpy(heap, world->heap, world->heap_count * sizeof(*heap));
    }
    ist_free(world->heap);
    world->heap = heap;
    world->heap_room = room;
    return IST_OK;
}

ist_status sim_heap_push(sim_world *world, uint64_t at_ps, sim_event_type type, void *object,
                         uint64_t token)
{
    if (world->heap_count == world->heap_room) {
        if (world->heap_count >= SIM_HEAP_COMPACT_MIN &&
            world->heap_stale > world->heap_count / 2) {
            sim_heap_compact(world);
        } else {
            IST_RETURN_IF_ERROR(sim_heap_grow(world));
        }
    }
    sim_event *event = &world->heap[world->heap_count];
    *event = (sim_event){.at_ps = at_ps,
                         .sequence = ++world->sequence,
                         .object = object,
                         .token = token,
                         .type = type,
                         .pad = 0};
    sim_heap_sift_up(world->heap, world->heap_count++);
    return IST_OK;
}

void sim_heap_skip_stale(sim_world *world)
{
    sim_event event;
    while (world->heap_count > 0) {
        const sim_event *first = &world->heap[0];
        if (first->type == SIM_EV_EXCHANGE && sim_exchange_is_over(first->object)) {
            (void)sim_heap_pop(world, &event);
            sim_exchange_deadline(event.object);
        } else if (first->type == SIM_EV_COLL_TIMER && sim_coll_timer_is_over(first->object)) {
            (void)sim_heap_pop(world, &event);
            sim_coll_timer(event.object);
        } else if (sim_event_is_stale(first)) {
            (void)sim_heap_pop(world, &event);
        } else {
            return;
        }
    }
}

bool sim_heap_pop(sim_world *world, sim_event *event)
{
    if (world->heap_count == 0) {
        return false;
    }
    *event = world->heap[0];
    world->heap[0] = world->heap[--world->heap_count];
    if (world->heap_count > 0) {
        sim_heap_sift_down(world->heap, world->heap_count, 0);
    }
    return true;
}
