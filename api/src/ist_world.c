/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a world: checks the description, chooses the backend, gives each rank its view of the world,
 * and closes what a rank leaves open. Also what a program may ask its world.
 */
#include "ist_bootstrap.h"
#include "ist_layer.h"
#include "ist_registry.h"

#include <inttypes.h>
#include <isthmus/unstable/sim.h>
#include <stdlib.h>
#include <string.h>

#define DESC_BYTES_FIRST 64u
#define SIM_DESC_BYTES_FIRST 56u
#define OPERATION "world.run"

/* One call of ist_world_run(), seen by all its ranks; they may be threads. */
typedef struct run {
    ist_rank_fn rank_main;
    void *arg;
    const ist_backend *backend;
    ist_world_desc desc;
    ist_sim_desc sim; /* what desc.sim points to, in full size */
    ist_backend_process process;
    bool processes;
    _Atomic(ist_world *) worlds; /* pushed by each rank, freed when all have ended */
} run;

/* ---- description ----------------------------------------------------------------------------- */

static ist_status check_from_environment(ist_check *check)
{
    const char *text = getenv("IST_CHECK");
    if (text == NULL || text[0] == '\0' || strcmp(text, "calls") == 0) {
        *check = IST_CHECK_CALLS;
        return IST_OK;
    }
    if (strcmp(text, "peers") == 0) {
        *check = IST_CHECK_PEERS;
        return IST_OK;
    }
    return ist_fail(NULL, IST_ERR_ARGUMENT, "IST_CHECK", OPERATION,
                    "IST_CHECK is \"%s\", calls or peers is required", text);
}

static ist_status resolve_check(ist_check *check)
{
    switch (*check) {
    case IST_CHECK_AUTO: return check_from_environment(check);
    case IST_CHECK_CALLS:
    case IST_CHECK_PEERS: return IST_OK;
    }
    return ist_fail_value(NULL, IST_ERR_ARGUMENT, "desc.check", OPERATION, IST_CHECK_PEERS,
                          (uint64_t)*check, "desc.check is %d, AUTO, CALLS or PEERS is required",
                          (int)*check);
}

static ist_status read_desc(const ist_world_desc *desc, ist_world_desc *checked)
{
    memset(checked, 0, sizeof(*checked));
    if (desc != NULL) {
        IST_RETURN_IF_ERROR(ist_desc_read(NULL, desc, DESC_BYTES_FIRST, checked, sizeof(*checked),
                                          "desc", OPERATION));
    }
    IST_RETURN_IF_ERROR(ist_check_reserved(NULL, &checked->reserved, sizeof(checked->reserved),
                                           "desc.reserved", OPERATION));
    IST_RETURN_IF_ERROR(
        ist_check_deadline(NULL, checked->deadline_ns, "desc.deadline_ns", OPERATION));
    if (checked->rank_count > IST_RANK_COUNT_MAX) {
        return ist_fail_value(NULL, IST_ERR_RANGE, "desc.rank_count", OPERATION, IST_RANK_COUNT_MAX,
                              checked->rank_count, "desc.rank_count is %u, at most %u is possible",
                              checked->rank_count, IST_RANK_COUNT_MAX);
    }
    if (checked->deadline_ns == 0) {
        checked->deadline_ns = IST_DEADLINE_NS_DEFAULT;
    }
    return resolve_check(&checked->check);
}

static ist_status read_sim_desc(run *state)
{
    ist_sim_desc *sim = &state->sim;
    if (state->desc.sim == NULL) {
        return IST_OK;
    }
    IST_RETURN_IF_ERROR(ist_desc_read(NULL, state->desc.sim, SIM_DESC_BYTES_FIRST, sim,
                                      sizeof(*sim), "desc.sim", OPERATION));
    IST_RETURN_IF_ERROR(ist_check_reserved(NULL, &sim->reserved, sizeof(sim->reserved),
                                           "desc.sim.reserved", OPERATION));
    if ((uint32_t)sim->links > IST_LINKS_MAX_MIN) {
        return ist_fail_value(NULL, IST_ERR_ARGUMENT, "desc.sim.links", OPERATION,
                              IST_LINKS_MAX_MIN, (uint64_t)sim->links,
                              "desc.sim.links is %d, IN_ORDER or MAX_MIN is required",
                              (int)sim->links);
    }
    state->desc.sim = sim;
    return IST_OK;
}

static ist_status find_processes(run *state)
{
    IST_RETURN_IF_ERROR(ist_bootstrap_find(&state->process, &state->processes));
    uint32_t wanted = state->desc.rank_count;
    if (!state->processes || wanted == 0 || wanted == state->process.rank_count) {
        return IST_OK;
    }
    return ist_fail_value(NULL, IST_ERR_ARGUMENT, "desc.rank_count", OPERATION,
                          state->process.rank_count, wanted,
                          "desc.rank_count is %u, but the launcher started %u processes; "
                          "IST_LAUNCH=none runs all ranks in each process",
                          wanted, state->process.rank_count);
}

/* ---- one rank -------------------------------------------------------------------------------- */

static ist_status close_world(void *object)
{
    (void)object;
    return IST_OK;
}

static void push_world(run *state, ist_world *world)
{
    world->next = atomic_load(&state->worlds);
    while (!atomic_compare_exchange_weak(&state->worlds, &world->next, world)) {
    }
}

static ist_status set_up_rank(run *state, ist_world *world, const ist_backend_ops *ops, void *self)
{
    world->object.world = world;
    world->object.close = close_world;
    world->owner = ist_error_bound;
    world->self = self;
    world->deadline_ns = state->desc.deadline_ns;
    world->check = state->desc.check;
    world->backend_name = state->backend->name;
    IST_RETURN_IF_ERROR(ist_backend_ops_complete(ops, &world->ops));
    world->has_windows = ist_backend_has_windows(&world->ops);
    world->has_devcomm = ist_backend_has_devcomm(&world->ops);
    world->has_coll = ist_backend_has_coll(&world->ops);
    world->has_ground = ist_backend_has_ground(&world->ops);
    IST_RETURN_IF_ERROR(ist_layers_push(world));
    world->object.magic = IST_MAGIC(IST_KIND_WORLD);
    return IST_OK;
}

static void close_rank(ist_world *world, ist_status status)
{
    /* A killed rank had no chance to close anything; that it did not is no news. */
    bool quiet = status == IST_ERR_KILLED;
    ist_object_close_all(world, quiet);
    if (world->memory_count != 0 && !quiet) {
        ist_log(IST_LOG_WARN, "rank %u left %u allocations of device memory", world->rank,
                world->memory_count);
    }
    world->object.magic = IST_MAGIC_CLOSED + IST_KIND_WORLD;
}

static ist_status run_rank(const ist_backend_ops *ops, void *self, uint32_t rank,
                           uint32_t rank_count, void *context)
{
    run *state = context;
    ist_world *world = ist_alloc(1, sizeof(*world));
    if (world == NULL) {
        ist_error details = {.size = sizeof(details),
                             .rank = (int32_t)rank,
                             .peer = IST_RANK_NONE,
                             .object = "world",
                             .operation = OPERATION};
        return ist_raise(IST_ERR_MEMORY, &details, "no host memory for rank %u of %u", rank,
                         rank_count);
    }
    world->rank = rank;
    world->rank_count = rank_count;
    push_world(state, world);
    IST_RETURN_IF_ERROR(set_up_rank(state, world, ops, self));
    ist_status status = state->rank_main(world, state->arg);
    close_rank(world, status);
    return status;
}

/* Ranks whose program was abandoned (killed for good) are cleaned up here too. */
static void free_worlds(run *state)
{
    ist_world *world = atomic_load(&state->worlds);
    while (world != NULL) {
        ist_world *next = world->next;
        ist_object_free_all(world);
        ist_coll_group_free(world);
        ist_layers_free(world);
        ist_free(world);
        world = next;
    }
}

/* ---- the whole world ------------------------------------------------------------------------- */

static ist_status run_world(run *state, ist_world_result *result)
{
    ist_backend_world world = {
        .size = sizeof(world),
        .rank_count = state->desc.rank_count,
        .cluster = state->desc.cluster,
        .seed = state->desc.seed,
        .deadline_ns = state->desc.deadline_ns,
        .faults = state->desc.faults,
        .sim = state->desc.sim,
        .process = state->processes ? &state->process : NULL,
        .rank_main = run_rank,
        .context = state,
    };
    ist_status status = state->backend->world_run(&world, result);
    free_worlds(state);
    return status;
}

static ist_status prepare_and_run(const ist_world_desc *desc, ist_rank_fn rank_main, void *arg,
                                  ist_world_result *result)
{
    run state = {.rank_main = rank_main, .arg = arg};
    if (rank_main == NULL) {
        return ist_fail_null(NULL, "rank_main", OPERATION);
    }
    IST_RETURN_IF_ERROR(read_desc(desc, &state.desc));
    IST_RETURN_IF_ERROR(read_sim_desc(&state));
    IST_RETURN_IF_ERROR(ist_registry_find(state.desc.backend, &state.backend));
    IST_RETURN_IF_ERROR(find_processes(&state));
    return run_world(&state, result);
}

ist_status ist_world_run(const ist_world_desc *desc, ist_rank_fn rank_main, void *arg,
                         ist_world_result *result)
{
    if (result != NULL) {
        IST_RETURN_IF_ERROR(ist_out_check(NULL, result, "result", OPERATION));
    }
    ist_world_result full = {.size = sizeof(full), .failed_rank = IST_RANK_NONE};
    ist_status status = prepare_and_run(desc, rank_main, arg, &full);
    full.status = status;
    if (result != NULL) {
        ist_out_write(result, &full, sizeof(full));
    }
    return status;
}

/* ---- queries --------------------------------------------------------------------------------- */

static bool world_is_open(const ist_world *world)
{
    return world != NULL && world->object.magic == IST_MAGIC(IST_KIND_WORLD);
}

uint32_t ist_world_rank(const ist_world *world)
{
    return world_is_open(world) ? world->rank : 0;
}

uint32_t ist_world_rank_count(const ist_world *world)
{
    return world_is_open(world) ? world->rank_count : 0;
}

const char *ist_world_backend_name(const ist_world *world)
{
    return world_is_open(world) ? world->backend_name : "";
}

uint64_t ist_world_clock_ns(ist_world *world)
{
    uint64_t now_ns = 0;
    if (!world_is_open(world) || world->ops.clock(world->self, &now_ns) != IST_OK) {
        return 0;
    }
    return now_ns;
}

ist_status ist_world_sleep(ist_world *world, uint64_t ns)
{
    IST_RETURN_IF_ERROR(ist_check_world(world, "world", "world.sleep"));
    return world->ops.sleep(world->self, ns);
}

ist_status ist_world_caps(ist_world *world, const ist_backend_caps **caps)
{
    if (!world->caps_known) {
        ist_backend_caps known = {.size = sizeof(known)};
        IST_RETURN_IF_ERROR(world->ops.caps(world->self, &known));
        world->caps = known;
        world->sm_count = known.sm_count;
        world->peeks_by_loads = known.peeks_by_loads != 0;
        world->caps_known = true;
    }
    *caps = &world->caps;
    return IST_OK;
}
