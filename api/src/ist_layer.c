/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stacks layers on a world's table and takes them down again.
 */
#include "ist_layer.h"

static ist_status layer_push(ist_world *world, const ist_backend_ops *ops)
{
    ist_layer *layer = ist_alloc(1, sizeof(*layer));
    if (layer == NULL) {
        return ist_fail_memory(world, "a layer", "world.run");
    }
    layer->below = world->ops;
    layer->below_self = world->self;
    layer->rank = world->rank;
    layer->next = world->layers;
    world->layers = layer;
    world->ops = *ops;
    world->self = layer;
    return IST_OK;
}

ist_status ist_layers_push(ist_world *world)
{
    if (ist_call_fault_wanted()) {
        IST_RETURN_IF_ERROR(layer_push(world, ist_layer_fault_ops()));
    }
    if (ist_log_level_max() >= IST_LOG_TRACE) {
        IST_RETURN_IF_ERROR(layer_push(world, ist_layer_trace_ops()));
    }
    return IST_OK;
}

void ist_layers_free(ist_world *world)
{
    while (world->layers != NULL) {
        ist_layer *layer = world->layers;
        world->layers = layer->next;
        ist_free(layer);
    }
}
