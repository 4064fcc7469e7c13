/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of meeting. Whoever came to an exchange sees the same result; a member that gives up
 * while a communicator forms takes the others with it; a rank that is gone is not waited for.
 */
#include "cuda_meet.h"

#include <string.h>
#include <unistd.h>

/* A communicator, forming or formed. */
typedef struct cuda_party {
    struct cuda_party *next;
    cuda_round *round; /* under way */
    uint64_t number;
    uint8_t id[128];
    uint32_t rank_count;
    uint32_t *clients; /* [rank_count] world ranks */
    uint64_t *came;    /* members that have come to join */
    uint64_t *left;    /* members that closed it */
    uint64_t *aborted; /* members that aborted it */
    bool formed;
} cuda_party;

/* ---- rounds ---------------------------------------------------------------------------------- */

cuda_round *cuda_round_new(uint32_t rank_count, size_t bytes)
{
    cuda_round *round = ist_alloc(1, sizeof(*round));
    if (round == NULL) {
        return NULL;
    }
    uint32_t words = CUDA_WORDS(rank_count);
    round->data = ist_alloc(rank_count, bytes == 0 ? 1 : bytes);
    round->fds = ist_alloc(rank_count, sizeof(*round->fds));
    round->arrived = ist_alloc(2u * (size_t)words, sizeof(*round->arrived));
    round->bytes = bytes;
    round->rank_count = rank_count;
    round->deadline_ns = CUDA_NEVER_NS;
    for (uint32_t i = 0; round->fds != NULL && i < rank_count; ++i) {
        round->fds[i] = -1;
    }
    if (round->data == NULL || round->fds == NULL || round->arrived == NULL) {
        cuda_round_free(round);
        return NULL;
    }
    round->excused = round->arrived + words;
    return round;
}

void cuda_round_free(cuda_round *round)
{
    if (round == NULL) {
        return;
    }
    for (uint32_t i = 0; round->fds != NULL && i < round->rank_count; ++i) {
        if (round->fds[i] >= 0) {
            (void)close(round->fds[i]);
        }
    }
    ist_free(round->data);
    ist_free(round->fds);
    ist_free(round->arrived);
    ist_free(round);
}

static void round_unref(cuda_round *round)
{
    if (--round->refs == 0) {
        cuda_round_free(round);
    }
}

/* ---- parties --------------------------------------------------------------------------------- */

static void party_free(cuda_party *party)
{
    if (party->round != NULL) {
        cuda_round_free(party->round);
    }
    ist_free(party->clients);
    ist_free(party->came);
    ist_free(party);
}

static cuda_party *party_new(cuda_meet *meet, uint32_t rank_count)
{
    uint32_t words = CUDA_WORDS(rank_count);
    cuda_party *party = ist_alloc(1, sizeof(*party));
    if (party == NULL) {
        return NULL;
    }
    party->clients = ist_alloc(rank_count, sizeof(*party->clients));
    party->came = ist_alloc(3u * (size_t)words, sizeof(*party->came));
    if (party->clients == NULL || party->came == NULL) {
        party_free(party);
        return NULL;
    }
    party->left = party->came + words;
    party->aborted = party->left + words;
    party->rank_count = rank_count;
    party->number = meet->next_number++;
    party->next = meet->parties;
    meet->parties = party;
    return party;
}

static void party_remove(cuda_meet *meet, cuda_party *party)
{
    cuda_party **link = &meet->parties;
    while (*link != party) {
        link = &(*link)->next;
    }
    *link = party->next;
    party_free(party);
}

static cuda_party *party_find(const cuda_meet *meet, uint64_t number)
{
    cuda_party *party = meet->parties;
    while (party != NULL && party->number != number) {
        party = party->next;
    }
    return party;
}

/* Whether the member will never come to an exchange again. */
static bool party_member_gone(const cuda_meet *meet, const cuda_party *party, uint32_t member)
{
    uint8_t state = meet->gone[party->clients[member]];
    return cuda_bit(party->left, member) || cuda_bit(party->aborted, member) ||
           state == CUDA_CLIENT_GONE ||
           (state == CUDA_CLIENT_ENDED && party->number != CUDA_MEET_ALL);
}

/* ---- answers --------------------------------------------------------------------------------- */

static void answer(cuda_meet *meet, cuda_call *call, ist_status status, uint32_t peer,
                   uint64_t expected, uint64_t observed)
{
    call->status = status;
    call->peer = peer;
    call->expected = expected;
    call->observed = observed;
    call->done = true;
    if (meet->answered != NULL) {
        meet->answered(meet, call);
    }
}

static void answer_memory(cuda_meet *meet, cuda_call *call)
{
    answer(meet, call, IST_ERR_MEMORY, UINT32_MAX, 0, 0);
}

/* All who wait get the same result. The party lets go of the round. */
static void round_end(cuda_meet *meet, cuda_round *round, ist_status status, uint32_t peer)
{
    cuda_party *party = round->party;
    uint32_t came = 0;
    round->done = true;
    party->round = NULL;
    for (const cuda_call *call = round->waiters; call != NULL; call = call->next) {
        ++came;
    }
    round->refs = 1 + (status == IST_OK ? came : 0);
    cuda_call *call = round->waiters;
    round->waiters = NULL;
    while (call != NULL) {
        cuda_call *next = call->next;
        call->next = NULL;
        call->round = status == IST_OK ? round : NULL;
        call->comm = party->number;
        answer(meet, call, status, peer, party->rank_count, came);
        call = next;
    }
    round_unref(round);
}

static void round_add(cuda_round *round, cuda_call *call)
{
    uint32_t member = call->member;
    if (call->bytes > 0) {
        memcpy(round->data + (size_t)member * call->bytes, call->send, call->bytes);
    }
    if (call->fd >= 0) {
        round->fds[member] = dup(call->fd);
    }
    cuda_bit_set(round->arrived, member);
    call->next = round->waiters;
    round->waiters = call;
}

/* A call that leaves before the end has not come. */
static void round_remove(cuda_round *round, cuda_call **link)
{
    cuda_call *call = *link;
    uint32_t member = call->member;
    *link = call->next;
    call->next = NULL;
    cuda_bit_clear(round->arrived, member);
    memset(round->data + (size_t)member * round->bytes, 0, round->bytes);
    if (round->fds[member] >= 0) {
        (void)close(round->fds[member]);
        round->fds[member] = -1;
    }
}

/* ---- exchanges ------------------------------------------------------------------------------- */

static void settle_all(cuda_meet *meet, uint32_t client);

static bool exchange_complete(const cuda_meet *meet, const cuda_round *round)
{
    for (uint32_t member = 0; member < round->rank_count; ++member) {
        if (!cuda_bit(round->arrived, member) && !cuda_bit(round->excused, member) &&
            !party_member_gone(meet, round->party, member)) {
            return false;
        }
    }
    return true;
}

static void exchange(cuda_meet *meet, cuda_call *call)
{
    cuda_party *party = party_find(meet, call->comm);
    if (party == NULL || !party->formed || call->member >= party->rank_count) {
        answer(meet, call, IST_ERR_OBJECT, UINT32_MAX, 0, call->comm);
        return;
    }
    if (party->number == CUDA_MEET_ALL && meet->gone[call->client] == CUDA_CLIENT_HERE) {
        meet->gone[call->client] = CUDA_CLIENT_ENDED;
        settle_all(meet, call->client);
    }
    if (cuda_bit(party->aborted, call->member)) {
        answer(meet, call, IST_ERR_ABORTED, UINT32_MAX, 0, 0);
        return;
    }
    if (party->round == NULL) {
        party->round = cuda_round_new(party->rank_count, call->bytes);
        if (party->round == NULL) {
            answer_memory(meet, call);
            return;
        }
        party->round->party = party;
        party->round->deadline_ns = call->deadline_ns;
    }
    cuda_round *round = party->round;
    if (round->bytes != call->bytes || cuda_bit(round->arrived, call->member)) {
        answer(meet, call, IST_ERR_MISMATCH, UINT32_MAX, round->bytes, call->bytes);
        return;
    }
    for (uint32_t i = 0; i < CUDA_WORDS(party->rank_count); ++i) {
        round->excused[i] |= call->lost[i];
    }
    round_add(round, call);
    if (exchange_complete(meet, round)) {
        round_end(meet, round, IST_OK, UINT32_MAX);
    }
}

/* ---- joining --------------------------------------------------------------------------------- */

static uint32_t came_count(const cuda_party *party)
{
    uint32_t count = 0;
    for (uint32_t member = 0; member < party->rank_count; ++member) {
        count += cuda_bit(party->came, member) ? 1u : 0u;
    }
    return count;
}

/* In a communicator of all clients a rank that is gone is a better answer than one that is late. */
static uint32_t first_missing(const cuda_meet *meet, const cuda_party *party)
{
    bool all = party->rank_count == meet->client_count;
    uint32_t member = 0;
    for (uint32_t client = 0; all && client < party->rank_count; ++client) {
        if (meet->gone[client] != CUDA_CLIENT_HERE && !cuda_bit(party->came, client)) {
            return client;
        }
    }
    while (member < party->rank_count && cuda_bit(party->came, member)) {
        ++member;
    }
    return member;
}

/* It is over for all who came; who comes later, or again, meets under a new one. */
static void join_fail(cuda_meet *meet, cuda_party *party, ist_status status)
{
    uint32_t peer = status == IST_ERR_TIMEOUT ? first_missing(meet, party) : UINT32_MAX;
    round_end(meet, party->round, status, peer);
    party_remove(meet, party);
}

static cuda_party *forming(const cuda_meet *meet, const uint8_t *id)
{
    for (cuda_party *party = meet->parties; party != NULL; party = party->next) {
        if (!party->formed && memcmp(party->id, id, sizeof(party->id)) == 0) {
            return party;
        }
    }
    return NULL;
}

static cuda_party *join_begin(cuda_meet *meet, const cuda_call *call)
{
    cuda_party *party = party_new(meet, call->rank_count);
    cuda_round *round = party != NULL ? cuda_round_new(call->rank_count, call->bytes) : NULL;
    if (round == NULL) {
        if (party != NULL) {
            party_remove(meet, party);
        }
        return NULL;
    }
    memcpy(party->id, call->id, sizeof(party->id));
    party->round = round;
    round->party = party;
    return party;
}

/* Members that came and clients that could still come must be enough. */
static bool join_possible(const cuda_meet *meet, const cuda_party *party)
{
    uint32_t free_clients = 0;
    for (uint32_t client = 0; client < meet->client_count; ++client) {
        free_clients += meet->gone[client] == CUDA_CLIENT_HERE ? 1u : 0u;
    }
    uint32_t here = 0;
    for (uint32_t member = 0; member < party->rank_count; ++member) {
        if (cuda_bit(party->came, member)) {
            ++here;
            free_clients -= meet->gone[party->clients[member]] == CUDA_CLIENT_HERE ? 1u : 0u;
        }
    }
    return party->rank_count - here <= free_clients;
}

static void join_enter(cuda_meet *meet, cuda_party *party, cuda_call *call)
{
    cuda_round *round = party->round;
    party->clients[call->member] = call->client;
    cuda_bit_set(party->came, call->member);
    if (call->deadline_ns < round->deadline_ns) {
        round->deadline_ns = call->deadline_ns;
    }
    round_add(round, call);
    if (came_count(party) == party->rank_count) {
        party->formed = true;
        round_end(meet, round, IST_OK, UINT32_MAX);
    } else if (!join_possible(meet, party)) {
        join_fail(meet, party, IST_ERR_TIMEOUT);
    }
}

/* One member's mistake is the failure of all; it alone learns what it did. */
static void join_refuse(cuda_meet *meet, cuda_party *party, cuda_call *call, ist_status status)
{
    uint32_t rank_count = party->rank_count;
    join_fail(meet, party, status);
    answer(meet, call, status, call->member, rank_count, call->rank_count);
}

static void join(cuda_meet *meet, cuda_call *call)
{
    cuda_party *party = forming(meet, call->id);
    if (party == NULL) {
        party = join_begin(meet, call);
        if (party == NULL) {
            answer_memory(meet, call);
            return;
        }
    }
    if (party->rank_count != call->rank_count || party->round->bytes != call->bytes) {
        join_refuse(meet, party, call, IST_ERR_MISMATCH);
    } else if (cuda_bit(party->came, call->member)) {
        join_refuse(meet, party, call, IST_ERR_ARGUMENT);
    } else {
        join_enter(meet, party, call);
    }
}

/* ---- the whole ------------------------------------------------------------------------------- */

ist_status cuda_meet_open(cuda_meet *meet, uint32_t client_count)
{
    memset(meet, 0, sizeof(*meet));
    meet->next_number = CUDA_MEET_ALL;
    meet->client_count = client_count;
    meet->gone = ist_alloc(client_count, 1);
    cuda_party *all = meet->gone != NULL ? party_new(meet, client_count) : NULL;
    if (all == NULL) {
        cuda_meet_close(meet);
        return ist_raise(IST_ERR_MEMORY, NULL, "no host memory for the meeting of %u ranks",
                         client_count);
    }
    all->formed = true;
    for (uint32_t client = 0; client < client_count; ++client) {
        all->clients[client] = client;
    }
    return IST_OK;
}

void cuda_meet_close(cuda_meet *meet)
{
    while (meet->parties != NULL) {
        party_remove(meet, meet->parties);
    }
    ist_free(meet->gone);
    meet->gone = NULL;
}

void cuda_meet_submit(cuda_meet *meet, cuda_call *call)
{
    call->done = false;
    call->round = NULL;
    call->next = NULL;
    switch (call->kind) {
    case CUDA_CALL_JOIN: join(meet, call); break;
    case CUDA_CALL_EXCHANGE: exchange(meet, call); break;
    }
}

void cuda_meet_expire(cuda_meet *meet, uint64_t now_ns)
{
    cuda_party *next = NULL;
    for (cuda_party *party = meet->parties; party != NULL; party = next) {
        next = party->next;
        if (party->round == NULL || party->round->deadline_ns > now_ns) {
            continue;
        }
        if (party->formed) {
            round_end(meet, party->round, IST_OK, UINT32_MAX);
        } else {
            join_fail(meet, party, IST_ERR_TIMEOUT);
        }
    }
}

uint64_t cuda_meet_next_ns(const cuda_meet *meet)
{
    uint64_t next_ns = CUDA_NEVER_NS;
    for (const cuda_party *party = meet->parties; party != NULL; party = party->next) {
        if (party->round != NULL && party->round->deadline_ns < next_ns) {
            next_ns = party->round->deadline_ns;
        }
    }
    return next_ns;
}

static cuda_call **waiter_of(cuda_round *round, uint32_t member)
{
    cuda_call **link = &round->waiters;
    while (*link != NULL && (*link)->member != member) {
        link = &(*link)->next;
    }
    return link;
}

static bool party_empty(const cuda_meet *meet, const cuda_party *party)
{
    bool empty = party->number != CUDA_MEET_ALL;
    for (uint32_t member = 0; empty && member < party->rank_count; ++member) {
        empty =
            cuda_bit(party->left, member) || meet->gone[party->clients[member]] != CUDA_CLIENT_HERE;
    }
    return empty;
}

/* After a member went: its exchange may be complete without it, or nobody may be left. */
static void party_settle(cuda_meet *meet, cuda_party *party)
{
    if (!party->formed) {
        if (!join_possible(meet, party)) {
            join_fail(meet, party, IST_ERR_TIMEOUT);
        }
        return;
    }
    if (party->round != NULL && exchange_complete(meet, party->round)) {
        round_end(meet, party->round, IST_OK, UINT32_MAX);
    }
    if (party_empty(meet, party)) {
        party_remove(meet, party);
    }
}

/* The word of the abort may come before the call that it is to end. */
void cuda_meet_abort(cuda_meet *meet, uint64_t comm, uint32_t member)
{
    cuda_party *party = party_find(meet, comm);
    if (party == NULL || !party->formed || member >= party->rank_count) {
        return;
    }
    cuda_bit_set(party->aborted, member);
    cuda_call **link = party->round != NULL ? waiter_of(party->round, member) : NULL;
    cuda_call *call = link != NULL ? *link : NULL;
    if (call != NULL) {
        round_remove(party->round, link);
        answer(meet, call, IST_ERR_ABORTED, UINT32_MAX, 0, 0);
    }
    party_settle(meet, party);
}

void cuda_meet_leave(cuda_meet *meet, uint64_t comm, uint32_t member)
{
    cuda_party *party = party_find(meet, comm);
    if (party != NULL && party->formed && member < party->rank_count) {
        cuda_bit_set(party->left, member);
        party_settle(meet, party);
    }
}

static void drop_waiters(cuda_round *round, uint32_t client)
{
    cuda_call **link = &round->waiters;
    while (*link != NULL) {
        if ((*link)->client == client) {
            round_remove(round, link);
        } else {
            link = &(*link)->next;
        }
    }
}

/* After the client's state changed: its waiting calls are dropped, peers no longer wait for it. */
static void settle_all(cuda_meet *meet, uint32_t client)
{
    cuda_party *next = NULL;
    for (cuda_party *party = meet->parties; party != NULL; party = next) {
        next = party->next;
        if (party->round != NULL) {
            drop_waiters(party->round, client);
        }
        party_settle(meet, party);
    }
}

void cuda_meet_client_gone(cuda_meet *meet, uint32_t client)
{
    meet->gone[client] = CUDA_CLIENT_GONE;
    settle_all(meet, client);
}

void cuda_meet_release(cuda_meet *meet, cuda_call *call)
{
    (void)meet;
    if (call->round != NULL) {
        round_unref(call->round);
        call->round = NULL;
    }
}
