/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Completion records of a handle, read from host-visible memory without a stream.
 */
#include "ist_ep_internal.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#define RECORD "ep.record"

/* Whether the caller's struct has the fields about lost words. */
static bool knows_words(const ist_completion *record)
{
    return record->size >= offsetof(ist_completion, word_count) + sizeof(record->word_count);
}

static ist_status check_record(const ist_ep_handle *handle, ist_ep_op op,
                               const ist_completion *record)
{
    const ist_world *world = handle->object.world;
    uint32_t words = IST_MASK_WORDS(handle->group->geometry.rank_count);
    if (op != IST_EP_OP_DISPATCH && op != IST_EP_OP_COMBINE) {
        return ist_fail_value(world, IST_ERR_ARGUMENT, "op", RECORD, IST_EP_OP_COMBINE,
                              (uint64_t)op, "op is %d, DISPATCH or COMBINE is required", (int)op);
    }
    IST_RETURN_IF_ERROR(ist_check_pointer(world, record, "record", RECORD));
    IST_RETURN_IF_ERROR(ist_out_check(world, record, "record", RECORD));
    if (knows_words(record) && record->lost_words != NULL && record->word_count < words) {
        return ist_fail_value(world, IST_ERR_SIZE, "record.word_count", RECORD, words,
                              record->word_count, "record.word_count is %u, %u is required",
                              record->word_count, words);
    }
    return IST_OK;
}

/* Whether the words that were read are those of one operation. */
static bool whole(const ist_ep_record_head *head, const uint64_t *lost, uint32_t words)
{
    uint64_t mix = 0;
    for (uint32_t w = 0; w < words; ++w) {
        mix += ist_ep_record_mix(lost[w], w);
    }
    return head->check == ist_ep_record_check(head, mix);
}

/* Reads the record. It may change meanwhile: what is not of one operation has not ended. */
static ist_status peek(const ist_ep_handle *handle, ist_ep_op op, ist_ep_record_head *head,
                       uint64_t *lost_words, bool *ended)
{
    ist_world *world = handle->object.world;
    uint32_t ranks = handle->group->geometry.rank_count;
    uint32_t words = IST_MASK_WORDS(ranks);
    uint64_t lost[IST_EP_RANKS_MAX / 64u];
    const uint8_t *at = handle->report + ist_ep_record_offset(ranks, (uint32_t)op);
    IST_RETURN_IF_ERROR(world->ops.mem_peek(world->self, at, head, sizeof(*head)));
    IST_RETURN_IF_ERROR(
        world->ops.mem_peek(world->self, at + sizeof(*head), lost, words * sizeof(lost[0])));
    *ended = head->done == head->started && head->issue >= handle->issued[op] && head->done != 0 &&
             whole(head, lost, words);
    if (*ended && lost_words != NULL) {
        memcpy(lost_words, lost, words * sizeof(lost[0]));
    }
    return IST_OK;
}

ist_status ist_ep_record(ist_ep_handle *handle, ist_ep_op op, ist_completion *record)
{
    IST_RETURN_IF_ERROR(ist_check_ep_handle(handle, RECORD));
    IST_RETURN_IF_ERROR(check_record(handle, op, record));
    bool words = knows_words(record);
    ist_completion full = {0};
    full.lost_words = words ? record->lost_words : NULL;
    full.word_count = words ? record->word_count : 0;
    ist_ep_record_head head;
    bool ended = false;
    IST_RETURN_IF_ERROR(peek(handle, op, &head, full.lost_words, &ended));
    full.status = IST_IN_PROGRESS;
    if (ended) {
        full.status = (ist_status)head.status;
        full.sequence = head.sequence;
        full.generation = head.generation;
        full.complete = head.complete;
        full.lost_count = head.lost_count;
    }
    ist_out_write(record, &full, sizeof(full));
    return IST_OK;
}
