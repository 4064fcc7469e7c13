/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of a world's objects: open ones, newest first, and closed ones, kept readable for a while
 * so that a late call on them is answered instead of reading freed memory.
 */
#include "ist_internal.h"

#include <stdio.h>

const char *ist_kind_text(ist_kind kind)
{
    switch (kind) {
#define X(name, text)                                                                              \
    case name: return text;
        IST_KIND_LIST(X)
#undef X
    case IST_KIND_COUNT: break;
    }
    return "object";
}

void ist_object_open(void *object, ist_kind kind, ist_world *world, uint64_t number,
                     ist_status (*close)(void *object))
{
    ist_object *head = object;
    head->magic = IST_MAGIC(kind);
    head->world = world;
    head->number = number;
    head->close = close;
    head->previous = NULL;
    head->next = world->open;
    if (world->open != NULL) {
        world->open->previous = head;
    }
    world->open = head;
}

static void unlink_open(ist_world *world, ist_object *object)
{
    if (object->previous != NULL) {
        object->previous->next = object->next;
    } else {
        world->open = object->next;
    }
    if (object->next != NULL) {
        object->next->previous = object->previous;
    }
}

static void free_oldest_closed(ist_world *world)
{
    ist_object *oldest = world->closed_first;
    world->closed_first = oldest->next;
    if (world->closed_first == NULL) {
        world->closed_last = NULL;
    }
    --world->closed_count;
    ist_free(oldest);
}

void ist_object_close(void *object)
{
    ist_object *head = object;
    ist_world *world = head->world;
    unlink_open(world, head);
    head->magic = IST_MAGIC_CLOSED + (head->magic - IST_MAGIC_OPEN);
    head->next = NULL;
    if (world->closed_last != NULL) {
        world->closed_last->next = head;
    } else {
        world->closed_first = head;
    }
    world->closed_last = head;
    if (++world->closed_count > IST_QUARANTINE_COUNT_MAX) {
        free_oldest_closed(world);
    }
}

/* One line for a rank: "left open: 2 streams, 1 window". */
static void log_open(const ist_world *world)
{
    uint32_t counts[IST_KIND_COUNT] = {0};
    for (const ist_object *object = world->open; object != NULL; object = object->next) {
        ++counts[object->magic - IST_MAGIC_OPEN];
    }
    char text[256] = "";
    size_t at = 0;
    for (uint32_t kind = 0; kind < IST_KIND_COUNT; ++kind) {
        if (counts[kind] != 0 && at < sizeof(text)) {
            at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%u %s%s", at != 0 ? ", " : "",
                                   counts[kind], ist_kind_text((ist_kind)kind),
                                   counts[kind] > 1 ? "s" : "");
        }
    }
    ist_log(IST_LOG_WARN, "rank %u left open: %s; closed for it", world->rank, text);
}

void ist_object_close_all(ist_world *world, bool quiet)
{
    if (world->open != NULL && !quiet) {
        log_open(world);
    }
    while (world->open != NULL) {
        ist_object *newest = world->open;
        ist_status status = newest->close(newest);
        if (world->open == newest) {
            /* Its close was refused; the memory must still not be lost. */
            ist_log(IST_LOG_WARN, "rank %u: a %s could not be closed: %s", world->rank,
                    ist_kind_text((ist_kind)(newest->magic - IST_MAGIC_OPEN)),
                    ist_status_name(status));
            ist_object_close(newest);
        }
    }
}

void ist_object_free_all(ist_world *world)
{
    while (world->open != NULL) {
        if (world->open->discard != NULL) {
            world->open->discard(world->open);
        }
        ist_object_close(world->open);
    }
    while (world->closed_first != NULL) {
        free_oldest_closed(world);
    }
}

static ist_status refuse(const char *argument, const char *operation, const char *is,
                         const char *kind, const char *required)
{
    return ist_fail(NULL, IST_ERR_OBJECT, argument, operation, "%s is %s%s, an open %s is required",
                    argument, is, kind, required);
}

ist_status ist_object_refuse(const void *object, ist_kind kind, const char *argument,
                             const char *operation)
{
    if (object == NULL) {
        return ist_fail_null(NULL, argument, operation);
    }
    uint32_t magic = ((const ist_object *)object)->magic;
    const char *required = ist_kind_text(kind);
    if (ist_object_is(object, kind)) {
        uint32_t rank = ((const ist_object *)object)->world->rank;
        return ist_fail_value(NULL, IST_ERR_OBJECT, argument, operation, 0, rank,
                              "%s belongs to rank %u, and another rank makes the call", argument,
                              rank);
    }
    if (magic - IST_MAGIC_OPEN < IST_KIND_COUNT) {
        return refuse(argument, operation,
                      "another kind of object: ", ist_kind_text((ist_kind)(magic - IST_MAGIC_OPEN)),
                      required);
    }
    if (magic - IST_MAGIC_CLOSED < IST_KIND_COUNT) {
        return refuse(argument, operation, "a closed ",
                      ist_kind_text((ist_kind)(magic - IST_MAGIC_CLOSED)), required);
    }
    return refuse(argument, operation, "no object of this library", "", required);
}

ist_status ist_object_refuse_foreign(const ist_world *world, const void *object,
                                     const char *argument, const char *operation)
{
    const ist_world *other = ((const ist_object *)object)->world;
    return ist_fail_value(world, IST_ERR_OBJECT, argument, operation, world->rank, other->rank,
                          "%s belongs to rank %u, the call is made by rank %u", argument,
                          other->rank, world->rank);
}
