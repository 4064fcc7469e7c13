/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Agree and clean: the host's half. The kernels in kernels/mask do the rounds; here they are
 * launched, waited for, and their result is read from host-visible memory.
 */
#include "ist_internal.h"

#include "../../kernels/mask/mask_args.h"

#include <inttypes.h>
#include <string.h>

static ist_status check_call(ist_comm *comm, const ist_stream *stream, const char *operation)
{
    IST_RETURN_IF_ERROR(ist_check_comm(comm, "comm", operation));
    if (comm->fault_tolerant == 0) {
        return ist_fail(comm->object.world, IST_ERR_USAGE, "comm", operation,
                        "comm was not opened as fault tolerant, so it has no mask");
    }
    IST_RETURN_IF_ERROR(ist_check_comm_stream(comm, stream, operation));
    IST_RETURN_IF_ERROR(ist_check_not_capturing(stream, operation));
    return ist_check_comm_service(comm, operation);
}

/* Each round ends at its own deadline, and there is at most one more than there are ranks; what was
   on the stream before has the world's. */
static uint64_t wait_bound_ns(const ist_comm *comm)
{
    uint64_t rounds = ((uint64_t)comm->rank_count + 4u) * IST_MASK_PATIENCE;
    uint64_t bound = 0;
    if (__builtin_mul_overflow(comm->deadline_ns, rounds, &bound) ||
        __builtin_add_overflow(bound, comm->object.world->deadline_ns, &bound)) {
        return UINT64_MAX;
    }
    return bound;
}

static ist_status launch_and_wait(ist_comm *comm, const ist_stream *stream,
                                  const ist_kernel *kernel, const void *args, size_t args_bytes)
{
    ist_world *world = comm->object.world;
    IST_RETURN_IF_ERROR(
        world->ops.launch(world->self, stream->object.number, kernel, 1, args, args_bytes));
    return world->ops.stream_sync(world->self, stream->object.number, wait_bound_ns(comm));
}

static ist_status judge_result(const ist_comm *comm, const ist_mask_result *result,
                               const char *operation)
{
    ist_status status = (ist_status)result->status;
    ist_error details = ist_details(comm->object.world, "comm", operation);
    details.sequence = result->generation;
    details.observed = result->rounds;
    if (status >= 0) {
        return status;
    }
    return ist_raise(status, &details, "%s ended in round %u: %s", operation, result->rounds,
                     ist_status_sentence(status));
}

static ist_status read_result(ist_comm *comm, uint64_t sequence, const char *operation)
{
    ist_world *world = comm->object.world;
    ist_mask_result result;
    IST_RETURN_IF_ERROR(
        world->ops.mem_peek(world->self, comm->mask_result, &result, sizeof(result)));
    if (result.sequence == sequence) {
        return judge_result(comm, &result, operation);
    }
    if (atomic_load(&comm->aborted) != 0) {
        return ist_comm_refuse_aborted(comm, operation);
    }
    return ist_fail_value(world, IST_ERR_DEVICE, "comm", operation, sequence, result.sequence,
                          "the kernel ended without a result");
}

ist_status ist_comm_agree(ist_comm *comm, ist_stream *stream)
{
    IST_RETURN_IF_ERROR(check_call(comm, stream, "comm.agree"));
    ist_mask_agree_args args = {
        .dev = comm->service,
        .deadline_ns = comm->deadline_ns,
        .result = comm->mask_result,
        .sequence = ++comm->consensus_count,
    };
    IST_RETURN_IF_ERROR(launch_and_wait(comm, stream, &ist_kernel_mask_agree, &args, sizeof(args)));
    return read_result(comm, args.sequence, "comm.agree");
}

/* ---- clean ----------------------------------------------------------------------------------- */

#define PAYLOAD_WORDS 4u
#define ROW_CALL UINT64_C(0x636c65616e) /* "clean": a rank in another exchange does not take part */

/* What each rank tells the others before the clean. */
typedef struct row {
    uint64_t call;
    int64_t status;
    uint64_t generation;
    uint64_t payload[PAYLOAD_WORDS];
} row;

/* Who came, and the largest numbers that they brought. */
typedef struct gathering {
    uint64_t *participants; /* IST_MASK_WORDS(rank_count) */
    uint64_t generation;
    uint64_t payload[PAYLOAD_WORDS];
} gathering;

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void add_participant(gathering *all, uint32_t rank, const row *from)
{
    all->participants[rank / 64u] |= UINT64_C(1) << (rank % 64u);
    all->generation = larger(all->generation, from->generation);
    for (uint32_t i = 0; i < PAYLOAD_WORDS; ++i) {
        all->payload[i] = larger(all->payload[i], from->payload[i]);
    }
}

static ist_status gather_rows(ist_comm *comm, const row *mine, row *rows, uint64_t *lost_words,
                              gathering *all)
{
    ist_world *world = comm->object.world;
    uint64_t deadline_ns = 0;
    if (__builtin_mul_overflow(comm->deadline_ns, IST_MASK_PATIENCE, &deadline_ns)) {
        deadline_ns = UINT64_MAX;
    }
    IST_RETURN_IF_ERROR(world->ops.comm_exchange(world->self, comm->object.number, mine,
                                                 sizeof(*mine), rows, deadline_ns, lost_words));
    for (uint32_t rank = 0; rank < comm->rank_count; ++rank) {
        const row *from = &rows[rank];
        if (!ist_mask_test(lost_words, rank) && from->call == ROW_CALL && from->status >= 0) {
            add_participant(all, rank, from);
        }
    }
    return IST_OK;
}

static ist_status check_own_bit(const ist_comm *comm, const gathering *all, const char *operation)
{
    if (ist_mask_test(all->participants, comm->rank)) {
        return IST_OK;
    }
    return ist_fail(comm->object.world, IST_ERR_EVICTED, "comm", operation,
                    "the peers went on without this rank");
}

static ist_status gather_allocated(ist_comm *comm, const row *mine, row *rows, uint64_t *lost_words,
                                   gathering *all, const char *operation)
{
    if (rows == NULL || lost_words == NULL) {
        return ist_fail_memory(comm->object.world, "an exchange", operation);
    }
    return gather_rows(comm, mine, rows, lost_words, all);
}

/* `local` is how the first step ended here; a rank that failed stays out, and says so. */
static ist_status gather(ist_comm *comm, ist_status local, const uint64_t payload[PAYLOAD_WORDS],
                         gathering *all, const char *operation)
{
    ist_world *world = comm->object.world;
    row mine = {.call = ROW_CALL};
    memcpy(mine.payload, payload, sizeof(mine.payload));
    if (local == IST_OK) {
        local = world->ops.mem_peek(world->self, &comm->mask->generation, &mine.generation,
                                    sizeof(mine.generation));
    }
    mine.status = local;
    ist_error own;
    ist_error_save(&own);
    row *rows = ist_alloc(comm->rank_count, sizeof(*rows));
    uint64_t *lost_words = ist_alloc(IST_MASK_WORDS(comm->rank_count), sizeof(*lost_words));
    ist_status status = gather_allocated(comm, &mine, rows, lost_words, all, operation);
    ist_free(rows);
    ist_free(lost_words);
    if (local < 0) {
        ist_error_restore(&own);
        return local;
    }
    IST_RETURN_IF_ERROR(status);
    return check_own_bit(comm, all, operation);
}

static ist_status run_clean(ist_comm *comm, const ist_stream *stream, const gathering *all,
                            const char *operation)
{
    ist_world *world = comm->object.world;
    IST_RETURN_IF_ERROR(world->ops.mem_poke(world->self, comm->participants, all->participants,
                                            IST_MASK_WORDS(comm->rank_count) * sizeof(uint64_t)));
    ist_mask_clean_args args = {
        .dev = comm->service,
        .deadline_ns = comm->deadline_ns,
        .participants = comm->participants,
        .generation = all->generation + 1,
        .result = comm->mask_result,
        .sequence = ++comm->consensus_count,
    };
    IST_RETURN_IF_ERROR(launch_and_wait(comm, stream, &ist_kernel_mask_clean, &args, sizeof(args)));
    return read_result(comm, args.sequence, operation);
}

static ist_status clean_gathered(ist_comm *comm, const ist_stream *stream, uint64_t payload[4],
                                 gathering *all, const char *operation)
{
    ist_mask_clean_begin_args begin = {.dev = comm->service};
    ist_status local =
        launch_and_wait(comm, stream, &ist_kernel_mask_clean_begin, &begin, sizeof(begin));
    IST_RETURN_IF_ERROR(gather(comm, local, payload, all, operation));
    memcpy(payload, all->payload, sizeof(all->payload));
    return run_clean(comm, stream, all, operation);
}

ist_status ist_comm_clean_with(ist_comm *comm, ist_stream *stream, uint64_t payload[4],
                               const char *operation)
{
    IST_RETURN_IF_ERROR(check_call(comm, stream, operation));
    gathering all = {0};
    all.participants = ist_alloc(IST_MASK_WORDS(comm->rank_count), sizeof(uint64_t));
    if (all.participants == NULL) {
        return ist_fail_memory(comm->object.world, "the participants", operation);
    }
    ist_status status = clean_gathered(comm, stream, payload, &all, operation);
    ist_free(all.participants);
    return status;
}

ist_status ist_comm_clean(ist_comm *comm, ist_stream *stream)
{
    uint64_t payload[PAYLOAD_WORDS] = {0};
    return ist_comm_clean_with(comm, stream, payload, "comm.clean");
}
