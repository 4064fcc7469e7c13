/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mask of a communicator as the program sees it: snapshots, updates, and the errors that device
 * code recorded, turned into words. Host and device share one block of host-visible memory.
 */
#include "ist_internal.h"

#include "../../kernels/mask/mask_args.h"

#include <inttypes.h>
#include <stdio.h>

#define MASK_BYTES_FIRST 32u

static ist_status check_masked(const ist_comm *comm, const char *operation)
{
    if (IST_LIKELY(comm->fault_tolerant != 0)) {
        return IST_OK;
    }
    return ist_fail(comm->object.world, IST_ERR_USAGE, "comm", operation,
                    "comm was not opened as fault tolerant, so it has no mask");
}

static ist_status peek(ist_comm *comm, const void *from, void *host, size_t bytes)
{
    ist_world *world = comm->object.world;
    return world->ops.mem_peek(world->self, from, host, bytes);
}

static ist_status check_mask_struct(const ist_comm *comm, const ist_mask *mask)
{
    const ist_world *world = comm->object.world;
    ist_mask checked;
    IST_RETURN_IF_ERROR(ist_check_pointer(world, mask, "mask", "comm.mask_query"));
    IST_RETURN_IF_ERROR(ist_desc_read(world, mask, MASK_BYTES_FIRST, &checked, sizeof(checked),
                                      "mask", "comm.mask_query"));
    IST_RETURN_IF_ERROR(ist_check_reserved(world, &checked.reserved, sizeof(checked.reserved),
                                           "mask.reserved", "comm.mask_query"));
    IST_RETURN_IF_ERROR(ist_check_pointer(world, checked.words, "mask.words", "comm.mask_query"));
    uint32_t needed = IST_MASK_WORDS(comm->rank_count);
    if (checked.word_count >= needed) {
        return IST_OK;
    }
    return ist_fail_value(world, IST_ERR_SIZE, "mask.word_count", "comm.mask_query", needed,
                          checked.word_count, "mask.word_count is %u, %u ranks need %u words",
                          checked.word_count, comm->rank_count, needed);
}

ist_status ist_comm_mask_query(ist_comm *comm, ist_mask *mask)
{
    IST_RETURN_IF_ERROR(ist_check_comm_open(comm, "comm", "comm.mask_query"));
    IST_RETURN_IF_ERROR(check_masked(comm, "comm.mask_query"));
    IST_RETURN_IF_ERROR(check_mask_struct(comm, mask));
    uint64_t generation = 0;
    IST_RETURN_IF_ERROR(peek(comm, &comm->mask->generation, &generation, sizeof(generation)));
    uint32_t words = IST_MASK_WORDS(comm->rank_count);
    IST_RETURN_IF_ERROR(peek(comm, comm->mask->words, mask->words, words * sizeof(uint64_t)));
    for (uint32_t i = words; i < mask->word_count; ++i) {
        mask->words[i] = 0;
    }
    mask->rank_count = comm->rank_count;
    mask->generation = generation;
    return IST_OK;
}

ist_status ist_comm_mask_read(ist_comm *comm, int32_t *out, ist_stream *stream)
{
    IST_RETURN_IF_ERROR(ist_check_comm(comm, "comm", "comm.mask_read"));
    IST_RETURN_IF_ERROR(check_masked(comm, "comm.mask_read"));
    IST_RETURN_IF_ERROR(ist_check_comm_stream(comm, stream, "comm.mask_read"));
    IST_RETURN_IF_ERROR(ist_check_comm_service(comm, "comm.mask_read"));
    ist_world *world = comm->object.world;
    IST_RETURN_IF_ERROR(ist_memory_check(world, out, comm->rank_count * sizeof(int32_t), 0, "out",
                                         "comm.mask_read"));
    if ((uintptr_t)out % sizeof(int32_t) != 0) {
        return ist_fail_value(world, IST_ERR_ALIGNMENT, "out", "comm.mask_read", sizeof(int32_t),
                              (uintptr_t)out % sizeof(int32_t), "out is not aligned to %zu bytes",
                              sizeof(int32_t));
    }
    ist_mask_read_args args = {.dev = comm->service, .out = out};
    return world->ops.launch(world->self, stream->object.number, &ist_kernel_mask_read, 1, &args,
                             sizeof(args));
}

static ist_status check_update(const ist_comm *comm, const uint64_t *words)
{
    const ist_world *world = comm->object.world;
    uint32_t used = comm->rank_count % 64u;
    uint32_t last = IST_MASK_WORDS(comm->rank_count) - 1u;
    IST_RETURN_IF_ERROR(ist_check_pointer(world, words, "words", "comm.mask_update"));
    if (!ist_mask_test(words, comm->rank)) {
        return ist_fail_value(world, IST_ERR_ARGUMENT, "words", "comm.mask_update", 1, 0,
                              "words masks rank %u, the caller itself", comm->rank);
    }
    if (used != 0 && words[last] >> used != 0) {
        return ist_fail_value(world, IST_ERR_ARGUMENT, "words", "comm.mask_update", 0, words[last],
                              "words has bits beyond the %u ranks", comm->rank_count);
    }
    return IST_OK;
}

ist_status ist_comm_mask_update(ist_comm *comm, const uint64_t *words, ist_stream *stream)
{
    IST_RETURN_IF_ERROR(ist_check_comm(comm, "comm", "comm.mask_update"));
    IST_RETURN_IF_ERROR(check_masked(comm, "comm.mask_update"));
    IST_RETURN_IF_ERROR(ist_check_comm_stream(comm, stream, "comm.mask_update"));
    IST_RETURN_IF_ERROR(check_update(comm, words));
    ist_world *world = comm->object.world;
    comm->mask_touched = true;
    return world->ops.copy_in(world->self, stream->object.number, comm->mask->words, words,
                              IST_MASK_WORDS(comm->rank_count) * sizeof(uint64_t));
}

const char *ist_dev_operation_text(uint32_t operation)
{
    switch (operation) {
    case IST_DEV_OP_BARRIER: return "barrier";
    case IST_DEV_OP_AGREE: return "agree";
    case IST_DEV_OP_CLEAN: return "clean";
    case IST_DEV_OP_EP_DISPATCH: return "ep.dispatch";
    case IST_DEV_OP_EP_COMBINE: return "ep.combine";
    case IST_DEV_OP_EP_CLEAN: return "ep.clean";
    default: return operation >= IST_DEV_OP_USER ? "kernel of the program" : "device operation";
    }
}

static void write_message(const ist_dev_error *from, ist_error *error)
{
    const char *operation = error->operation;
    if (from->status == IST_ERR_TIMEOUT) {
        snprintf(error->message, sizeof(error->message),
                 "%s: rank %u did not come within %" PRIu64 " ns: expected tag %#" PRIx64
                 ", saw %#" PRIx64,
                 operation, from->peer, from->waited_ns, from->expected, from->observed);
        return;
    }
    snprintf(error->message, sizeof(error->message),
             "%s: rank %u is given up: %s: expected tag %#" PRIx64 ", saw %#" PRIx64, operation,
             from->peer, ist_status_sentence((ist_status)from->status), from->expected,
             from->observed);
}

void ist_dev_error_describe(const ist_comm *comm, const ist_dev_error *from, ist_error *error)
{
    *error = ist_details(comm->object.world, "comm", ist_dev_operation_text(from->operation));
    error->status = (ist_status)from->status;
    error->peer = (int32_t)from->peer;
    error->sequence = from->sequence;
    error->expected = from->expected;
    error->observed = from->observed;
    error->waited_ns = from->waited_ns;
    write_message(from, error);
}

ist_status ist_comm_error_get(ist_comm *comm, uint32_t index, uint32_t *count, ist_error *error)
{
    IST_RETURN_IF_ERROR(ist_check_comm_open(comm, "comm", "comm.error_get"));
    const ist_world *world = comm->object.world;
    IST_RETURN_IF_ERROR(ist_check_pointer(world, count, "count", "comm.error_get"));
    if (error != NULL) {
        IST_RETURN_IF_ERROR(ist_out_check(world, error, "error", "comm.error_get"));
    }
    uint64_t recorded = 0;
    IST_RETURN_IF_ERROR(peek(comm, comm->alarm, &recorded, sizeof(recorded)));
    if (recorded != 0) { /* the alarm stays on; what is recorded may have been cleared */
        IST_RETURN_IF_ERROR(peek(comm, &comm->mask->error_count, &recorded, sizeof(recorded)));
    }
    uint64_t kept = recorded < IST_DEV_ERRORS_MAX ? recorded : IST_DEV_ERRORS_MAX;
    if (error != NULL && index >= kept) {
        return ist_fail_value(world, IST_ERR_RANGE, "index", "comm.error_get", kept, index,
                              "index is %u, %" PRIu64 " errors are kept", index, kept);
    }
    if (error != NULL) {
        ist_dev_error from;
        ist_error full;
        IST_RETURN_IF_ERROR(peek(comm, &comm->mask->errors[index], &from, sizeof(from)));
        ist_dev_error_describe(comm, &from, &full);
        ist_out_write(error, &full, sizeof(full));
    }
    *count = recorded < UINT32_MAX ? (uint32_t)recorded : UINT32_MAX;
    return IST_OK;
}

ist_status ist_comm_error_clear(ist_comm *comm)
{
    IST_RETURN_IF_ERROR(ist_check_comm_open(comm, "comm", "comm.error_clear"));
    ist_world *world = comm->object.world;
    const uint64_t none = 0;
    return world->ops.mem_poke(world->self, &comm->mask->error_count, &none, sizeof(none));
}
