/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs begin together: when every rank has its device. A rank that has none is an error on all,
 * told before anybody waits for it, and no time of a program is spent on a slow start of another.
 */
#include "cuda_begin.h"
#include "cuda_wire.h"

#include <string.h>

/* What a rank brings. */
typedef struct entry {
    int64_t status; /* of opening its device */
    uint8_t uuid[16];
    uint64_t now_ns;
    uint64_t may_share; /* 1: this rank accepts a device that another rank has, too */
} entry;

static ist_status raise_absent(const cuda_beginner *one, const cuda_call *call)
{
    bool known = call->status == IST_ERR_TIMEOUT && call->peer < one->rank_count;
    ist_error details = {.rank = (int32_t)one->rank,
                         .peer = known ? (int32_t)call->peer : IST_RANK_NONE,
                         .object = "world",
                         .operation = "world.run"};
    return known ? ist_raise(IST_ERR_RANK_LOST, &details,
                             "rank %u ended, or did not come, before the world could begin",
                             call->peer)
                 : ist_raise(call->status, &details, "rank %u cannot meet the others: %s",
                             one->rank, ist_status_sentence(call->status));
}

static ist_status raise_failed(const cuda_beginner *one, uint32_t peer, ist_status status)
{
    ist_error details = {.rank = (int32_t)one->rank,
                         .peer = (int32_t)peer,
                         .object = "world",
                         .operation = "world.run"};
    return ist_raise(status, &details, "rank %u has no device, so the world cannot begin: %s", peer,
                     ist_status_sentence(status));
}

static ist_status raise_shared(const cuda_beginner *one, uint32_t first, uint32_t second)
{
    ist_error details = {.rank = (int32_t)one->rank,
                         .peer = (int32_t)second,
                         .object = "desc.rank_count",
                         .operation = "world.run",
                         .observed = one->rank_count};
    return ist_raise(IST_ERR_RANGE, &details,
                     "ranks %u and %u have the same GPU: %u ranks are more than there are GPUs, or "
                     "CUDA_VISIBLE_DEVICES gives one twice (IST_CUDA_SHARE=1 lets tests share)",
                     first, second, one->rank_count);
}

static ist_status check_failed(const cuda_beginner *one, const entry *all)
{
    for (uint32_t peer = 0; peer < one->rank_count; ++peer) {
        if (all[peer].status < 0) {
            return raise_failed(one, peer, (ist_status)all[peer].status);
        }
    }
    return IST_OK;
}

/* All ranks compare the same entries, so all come to the same answer. */
static ist_status check_shared(const cuda_beginner *one, const entry *all)
{
    for (uint32_t second = 0; second < one->rank_count; ++second) {
        for (uint32_t first = 0; first < second; ++first) {
            bool same = memcmp(all[first].uuid, all[second].uuid, sizeof(all->uuid)) == 0;
            if (same && (all[first].may_share == 0 || all[second].may_share == 0)) {
                return raise_shared(one, first, second);
            }
        }
    }
    return IST_OK;
}

/* When the last came: the same on all ranks, which share the host's clock. */
static uint64_t last_ns(const cuda_beginner *one, const entry *all)
{
    uint64_t last = 0;
    for (uint32_t peer = 0; peer < one->rank_count; ++peer) {
        last = all[peer].now_ns > last ? all[peer].now_ns : last;
    }
    return last;
}

static uint32_t count_sharers(const cuda_beginner *one, const entry *all)
{
    uint32_t count = 0;
    for (uint32_t peer = 0; peer < one->rank_count; ++peer) {
        count += memcmp(all[peer].uuid, one->uuid, sizeof(all->uuid)) == 0 ? 1u : 0u;
    }
    return count;
}

ist_status cuda_begin(const cuda_beginner *one, ist_status own, cuda_beginning *beginning)
{
    static const char name[] = "world.begin";
    entry brought = {.status = own, .now_ns = cuda_now_ns(), .may_share = one->may_share ? 1u : 0u};
    memcpy(brought.uuid, one->uuid, sizeof(brought.uuid));
    cuda_call call = {.kind = CUDA_CALL_JOIN,
                      .client = one->rank,
                      .member = one->rank,
                      .rank_count = one->rank_count,
                      .fd = -1,
                      .deadline_ns = cuda_after_ns(cuda_now_ns(), CUDA_MEET_NS),
                      .send = &brought,
                      .bytes = sizeof(brought)};
    memcpy(call.id, name, sizeof(name));
    one->endpoint->call(one->endpoint, &call);
    if (call.status != IST_OK) {
        return own != IST_OK ? own : raise_absent(one, &call);
    }
    const entry *all = (const entry *)(const void *)call.round->data;
    ist_status status = own;
    if (own == IST_OK) {
        status = check_failed(one, all);
        beginning->bystander = status != IST_OK;
    }
    status = status == IST_OK ? check_shared(one, all) : status;
    beginning->at_ns = last_ns(one, all);
    beginning->sharers = count_sharers(one, all);
    one->endpoint->release(one->endpoint, &call);
    one->endpoint->leave(one->endpoint, call.comm, one->rank);
    return status;
}
