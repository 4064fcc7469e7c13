/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a program asks of an open communicator: its shape, its teams, its health, a barrier, and its
 * end by abort.
 */
#include "ist_internal.h"

#include "../../kernels/mask/mask_args.h"

#include <inttypes.h>

ist_status ist_comm_refuse_aborted(const ist_comm *comm, const char *operation)
{
    return ist_fail(comm->object.world, IST_ERR_ABORTED, "comm", operation, "comm was aborted");
}

ist_status ist_comm_abort(ist_comm *comm)
{
    if (!ist_object_is(comm, IST_KIND_COMM)) { /* any thread may abort */
        return ist_object_refuse(comm, IST_KIND_COMM, "comm", "comm.abort");
    }
    ist_world *world = comm->object.world;
    const uint64_t raised = 1;
    atomic_store(&comm->aborted, 1);
    ist_status poked =
        world->ops.mem_poke(world->self, &comm->mask->abort_word, &raised, sizeof(raised));
    ist_status aborted = world->ops.comm_abort(world->self, comm->object.number);
    return poked < 0 ? poked : aborted;
}

ist_status ist_comm_query(ist_comm *comm, ist_comm_info *info)
{
    IST_RETURN_IF_ERROR(ist_check_comm_open(comm, "comm", "comm.query"));
    ist_world *world = comm->object.world;
    IST_RETURN_IF_ERROR(ist_check_pointer(world, info, "info", "comm.query"));
    IST_RETURN_IF_ERROR(ist_out_check(world, info, "info", "comm.query"));
    const ist_backend_caps *caps = NULL;
    IST_RETURN_IF_ERROR(ist_world_caps(world, &caps));
    ist_comm_info full = {
        .rank = comm->rank,
        .rank_count = comm->rank_count,
        .lsa_rank = comm->lsa_rank,
        .lsa_size = comm->lsa_size,
        .gin_supported = comm->gin_supported,
        .fault_tolerant = comm->fault_tolerant,
        .sm_count = caps->sm_count,
        .deadline_ns = comm->deadline_ns,
        .gin_reason = comm->gin_supported != 0 ? NULL : comm->gin_reason,
    };
    ist_out_write(info, &full, sizeof(full));
    return IST_OK;
}

static ist_status check_team(const ist_comm *comm, const ist_team *team, const char *operation)
{
    IST_RETURN_IF_ERROR(ist_check_comm_open(comm, "comm", operation));
    return ist_check_pointer(comm->object.world, team, "team", operation);
}

ist_status ist_comm_team_world(ist_comm *comm, ist_team *team)
{
    IST_RETURN_IF_ERROR(check_team(comm, team, "comm.team_world"));
    *team = (ist_team){comm->rank_count, comm->rank, 1};
    return IST_OK;
}

ist_status ist_comm_team_lsa(ist_comm *comm, ist_team *team)
{
    IST_RETURN_IF_ERROR(check_team(comm, team, "comm.team_lsa"));
    *team = (ist_team){comm->lsa_size, comm->lsa_rank, 1};
    return IST_OK;
}

ist_status ist_comm_team_rail(ist_comm *comm, ist_team *team)
{
    IST_RETURN_IF_ERROR(check_team(comm, team, "comm.team_rail"));
    *team =
        (ist_team){comm->rank_count / comm->lsa_size, comm->rank / comm->lsa_size, comm->lsa_size};
    return IST_OK;
}

/* One without fault tolerance fails with its native collectives. */
static IST_COLD ist_status read_coll_failure(ist_comm *comm, ist_status *failed)
{
    ist_world *world = comm->object.world;
    ist_error why; /* not cleared: it is large, and barriers come here */
    why.size = sizeof(why);
    why.status = IST_OK;
    ist_status status = world->ops.coll_status(world->self, comm->object.number, &why);
    if (status < 0 && why.status == IST_OK) {
        return status; /* it could not be asked */
    }
    *failed = status;
    return IST_OK;
}

static ist_status read_failure(ist_comm *comm, ist_status *failed)
{
    ist_world *world = comm->object.world;
    uint64_t alarm = 0;
    int64_t word = 0;
    if (comm->coll != NULL && comm->fault_tolerant == 0) {
        IST_RETURN_IF_ERROR(read_coll_failure(comm, failed));
        if (*failed != IST_OK) {
            return IST_OK;
        }
    }
    IST_RETURN_IF_ERROR(world->ops.mem_peek(world->self, comm->alarm, &alarm, sizeof(alarm)));
    if (IST_LIKELY(alarm == 0)) {
        *failed = IST_OK;
        return IST_OK;
    }
    IST_RETURN_IF_ERROR(
        world->ops.mem_peek(world->self, &comm->mask->failed_status, &word, sizeof(word)));
    *failed = (ist_status)word;
    return IST_OK;
}

ist_status ist_comm_status(ist_comm *comm)
{
    ist_status failed = IST_OK;
    IST_RETURN_IF_ERROR(ist_check_comm_open(comm, "comm", "comm.status"));
    if (atomic_load(&comm->aborted) != 0) {
        return IST_ERR_ABORTED;
    }
    IST_RETURN_IF_ERROR(read_failure(comm, &failed));
    return failed;
}

static IST_COLD ist_status refuse_failed(ist_comm *comm, ist_status failed, const char *operation)
{
    ist_world *world = comm->object.world;
    ist_dev_error first = {0};
    ist_error details = ist_details(world, "comm", operation);
    if (comm->coll != NULL) {
        ist_error why = {.size = sizeof(why)};
        if (world->ops.coll_status(world->self, comm->object.number, &why) < 0 &&
            why.status == failed) {
            ist_error_adopt(&why);
            return failed;
        }
    }
    IST_RETURN_IF_ERROR(
        world->ops.mem_peek(world->self, &comm->mask->errors[0], &first, sizeof(first)));
    if (first.status != 0) {
        details.peer = (int32_t)first.peer;
        details.sequence = first.sequence;
    }
    return ist_raise(failed, &details, "comm has failed before, in %s with rank %d: %s",
                     ist_dev_operation_text(first.operation), (int)details.peer,
                     ist_status_sentence(failed));
}

ist_status ist_check_comm_usable(ist_comm *comm, const char *operation)
{
    ist_status failed = IST_OK;
    IST_RETURN_IF_ERROR(read_failure(comm, &failed));
    return IST_LIKELY(failed == IST_OK) ? IST_OK : refuse_failed(comm, failed, operation);
}

ist_status ist_check_comm_service(const ist_comm *comm, const char *operation)
{
    if (IST_LIKELY(comm->service != NULL)) {
        return IST_OK;
    }
    return ist_fail(comm->object.world, IST_ERR_UNSUPPORTED, "comm", operation,
                    "device code of comm does not reach all peers: %s",
                    comm->gin_reason != NULL ? comm->gin_reason
                                             : "the backend has no device communicators");
}

ist_status ist_comm_barrier(ist_comm *comm, ist_stream *stream)
{
    IST_RETURN_IF_ERROR(ist_check_comm(comm, "comm", "comm.barrier"));
    IST_RETURN_IF_ERROR(ist_check_comm_stream(comm, stream, "comm.barrier"));
    IST_RETURN_IF_ERROR(ist_check_comm_service(comm, "comm.barrier"));
    IST_RETURN_IF_ERROR(ist_check_comm_usable(comm, "comm.barrier"));
    ist_world *world = comm->object.world;
    ist_mask_barrier_args args = {.dev = comm->service, .deadline_ns = comm->deadline_ns};
    return world->ops.launch(world->self, stream->object.number, &ist_kernel_mask_barrier, 1, &args,
                             sizeof(args));
}
