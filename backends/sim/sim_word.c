/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Words with a memory order. A word keeps its newest stores; a load returns any that the memory model
 * allows and the scheduler picks: none that is older than one the reader knows of, or has read. That
 * is how stores become visible late and in any order, to each reader by itself (CDSChecker, Norris
 * and Demsky, OOPSLA 2013). Releases and acquires meet only where the scopes of both reach the other
 * (as in PTX, and in GPUMC's model). A load returns before later stores: no value comes from the
 * future (as in RC11, Lahav et al., PLDI 2017).
 */
#include "sim_explore.h"

#include <string.h>

#define SIM_WORDS_FIRST 256u
#define SIM_KEYS_FIRST 256u
/* A load that polls gets the newest store after so many older ones. */
#define SIM_STALE_IN_ROW 2u
/* No index of a word. */
#define SIM_NO_WORD UINT32_MAX

/* ---- where words are ------------------------------------------------------------------------- */

void sim_words_begin(sim_explore *explore)
{
    explore->word_count = 0;
    explore->key_count = 0;
    ++explore->generation;
}

static __attribute__((noinline)) bool sim_words_grow(sim_explore *explore)
{
    uint32_t room = explore->word_room == 0 ? SIM_WORDS_FIRST : explore->word_room * 2u;
    sim_word *words = ist_alloc(room, sizeof(*words));
    if (words == NULL) {
        return false;
    }
    if (explore->word_count > 0) {
        memcpy(words, explore->words, explore->word_count * sizeof(*words));
    }
    ist_free(explore->words);
    explore->words = words;
    explore->word_room = room;
    return true;
}

static inline uint32_t sim_word_new(sim_explore *explore)
{
    if (explore->word_count == explore->word_room && !sim_words_grow(explore)) {
        return SIM_NO_WORD;
    }
    explore->words[explore->word_count].width = 0;
    return explore->word_count++;
}

static sim_word_key *sim_key_slot(sim_word_key *keys, uint32_t room, uint32_t generation,
                                  uint64_t address)
{
    uint32_t at = (uint32_t)(address * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (room - 1u);
    while (keys[at].generation == generation && keys[at].address != address) {
        at = (at + 1u) & (room - 1u);
    }
    return &keys[at];
}

static bool sim_keys_grow(sim_explore *explore)
{
    uint32_t room = explore->key_room == 0 ? SIM_KEYS_FIRST : explore->key_room * 2u;
    sim_word_key *keys = ist_alloc(room, sizeof(*keys));
    if (keys == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < explore->key_room; ++i) {
        const sim_word_key *old = &explore->keys[i];
        if (old->generation == explore->generation) {
            *sim_key_slot(keys, room, explore->generation, old->address) = *old;
        }
    }
    ist_free(explore->keys);
    explore->keys = keys;
    explore->key_room = room;
    return true;
}

/* The word's index by its address, where that is not device memory. */
static uint32_t sim_key_find(const sim_explore *explore, const void *address)
{
    if (explore->key_count == 0) {
        return SIM_NO_WORD;
    }
    const sim_word_key *key = sim_key_slot(explore->keys, explore->key_room, explore->generation,
                                           (uint64_t)(uintptr_t)address);
    return key->generation == explore->generation ? key->word : SIM_NO_WORD;
}

static __attribute__((noinline)) uint32_t sim_key_entry(sim_explore *explore, const void *address)
{
    if (explore->key_count + explore->key_count / 2u >= explore->key_room &&
        !sim_keys_grow(explore)) {
        return SIM_NO_WORD;
    }
    sim_word_key *key = sim_key_slot(explore->keys, explore->key_room, explore->generation,
                                     (uint64_t)(uintptr_t)address);
    if (key->generation != explore->generation) {
        uint32_t made = sim_word_new(explore);
        if (made == SIM_NO_WORD) {
            return made;
        }
        *key = (sim_word_key){(uint64_t)(uintptr_t)address, explore->generation, made};
        ++explore->key_count;
    }
    return key->word;
}

static inline uint32_t sim_word_cell(const void *address)
{
    return (uint32_t)((uintptr_t)address & ((1u << SIM_SHADOW_PAGE_LOG2) - 1u)) / 4u;
}

static inline bool sim_word_on_page(const sim_shadow_page *page, uint32_t cell)
{
    return (page->worded[cell / 64u] >> (cell % 64u) & 1u) != 0;
}

/* The word that is known at an address, or NULL; `page`: its page, NULL where there is none. */
static sim_word *sim_word_find(sim_explore *explore, const sim_shadow_page *page,
                               const void *address)
{
    uint32_t found = SIM_NO_WORD;
    uint32_t cell = sim_word_cell(address);
    if (page == NULL) {
        found = sim_key_find(explore, address);
    } else if (sim_word_on_page(page, cell)) {
        found = page->words[cell];
    }
    return found != SIM_NO_WORD && explore->words[found].width != 0 ? &explore->words[found] : NULL;
}

static inline sim_word *sim_word_entry(sim_explore *explore, sim_shadow_page *page,
                                       const void *address)
{
    uint32_t found = SIM_NO_WORD;
    uint32_t cell = sim_word_cell(address);
    if (page == NULL) {
        found = sim_key_entry(explore, address);
    } else if (sim_word_on_page(page, cell)) {
        found = page->words[cell];
    } else {
        found = sim_word_new(explore);
        if (found != SIM_NO_WORD) {
            page->worded[cell / 64u] |= UINT64_C(1) << (cell % 64u);
            page->words[cell] = found;
        }
    }
    return found != SIM_NO_WORD ? &explore->words[found] : NULL;
}

static uint64_t sim_word_now(const void *word, uint32_t width)
{
    return width == 4 ? *(const uint32_t *)word : *(const uint64_t *)word;
}

static inline void sim_word_push(const sim_explore *explore, sim_word *word, uint64_t value,
                                 sim_epoch epoch, uint32_t device, uint32_t system)
{
    word->newest_ps = explore->world->now_ps;
    if (word->next - word->first == SIM_STORES_KEPT) {
        ++word->first;
    }
    word->stores[word->next++ % SIM_STORES_KEPT] = (sim_store_seen){value, epoch, {device, system}};
}

/* The word's entry; a new one begins with the value that memory holds, which all know. */
static inline sim_word *sim_word_make(sim_explore *explore, sim_shadow_page *page,
                                      const void *address, uint32_t width)
{
    sim_word *word = sim_word_entry(explore, page, address);
    if (word == NULL) {
        return NULL;
    }
    uint64_t now = sim_word_now(address, width);
    if (word->width != width || word->stores[(word->next - 1u) % SIM_STORES_KEPT].value != now) {
        /* new, or rows have been written over it */
        word->width = width;
        word->first = 0;
        word->next = 1;
        word->seen_count = 0;
        word->stale_reads = 0;
        word->newest_ps = 0;
        word->stores[0] = (sim_store_seen){now, sim_epoch_of(0, 1, SIM_STRONG_SYSTEM), {0, 0}};
    }
    return word;
}

/* ---- order ----------------------------------------------------------------------------------- */

static bool sim_releases(ist_order order)
{
    return order == IST_RELEASE || order == IST_ACQ_REL;
}

static bool sim_acquires(ist_order order)
{
    return order == IST_ACQUIRE || order == IST_ACQ_REL;
}

static inline sim_class sim_class_of(ist_scope scope)
{
    _Static_assert((int)SIM_WEAK == (int)IST_SCOPE_BLOCK &&
                       (int)SIM_STRONG_DEVICE == (int)IST_SCOPE_DEVICE &&
                       (int)SIM_STRONG_SYSTEM == (int)IST_SCOPE_SYSTEM,
                   "classes of words are scopes");
    return scope <= IST_SCOPE_SYSTEM ? (sim_class)scope : SIM_WEAK;
}

static inline sim_epoch sim_word_epoch(const sim_explore *explore, uint32_t number, ist_scope scope)
{
    return explore->agents[number].own[0] | (uint32_t)sim_class_of(scope) << 30;
}

/* What the agent has seen, or somebody whose look happened before: nobody goes back behind it. */
static uint32_t sim_word_floor(const sim_explore *explore, const sim_word *word, uint32_t number)
{
    const sim_agent *agent = &explore->agents[number];
    uint32_t floor = word->first;
    for (uint32_t i = 0; i < word->seen_count; ++i) {
        bool known = word->seen[i].agent == number ||
                     word->seen[i].clock <= agent->clock[word->seen[i].agent];
        floor = known && word->seen[i].order > floor ? word->seen[i].order : floor;
    }
    return floor;
}

static void sim_word_saw(const sim_explore *explore, sim_word *word, uint32_t number,
                         uint32_t order)
{
    uint32_t at = 0;
    while (at < word->seen_count && word->seen[at].agent != number) {
        ++at;
    }
    if (at ==
        SIM_SEEN_KEPT) { /* more readers than are kept: one may be offered an old value again */
        at = number % SIM_SEEN_KEPT;
    } else if (at == word->seen_count) {
        ++word->seen_count;
    }
    word->seen[at].agent = number;
    word->seen[at].clock = explore->agents[number].clock[number];
    word->seen[at].order = order;
}

/* Joins what the store released, now or at the reader's next acquire fence. */
static void sim_word_sync(sim_explore *explore, uint32_t number, const sim_store_seen *store,
                          bool acquires, ist_scope scope)
{
    const sim_agent *agent = &explore->agents[number];
    const sim_agent *writer = &explore->agents[sim_epoch_agent(store->epoch)];
    uint32_t far = writer->rank != agent->rank ? 1u : 0u;
    ist_scope needed = far ? IST_SCOPE_SYSTEM : IST_SCOPE_DEVICE;
    uint32_t released = store->released[far];
    if (released == 0 || scope < needed) {
        return;
    }
    if (acquires) {
        sim_agent_join(explore, number, released);
        return;
    }
    sim_agent_note(explore, number, released, far);
}

/* Order of the oldest store that the agent may still read. */
static uint32_t sim_word_oldest(const sim_explore *explore, const sim_word *word, uint32_t number,
                                uint32_t seen)
{
    uint32_t oldest = word->next - 1u;
    while (
        oldest > word->first && oldest > seen &&
        !sim_agent_knows(&explore->agents[number], word->stores[oldest % SIM_STORES_KEPT].epoch)) {
        --oldest;
    }
    return oldest;
}

/* The store that a reader gets which may not know the newest: the scheduler picks. */
static const sim_store_seen *sim_word_pick(sim_explore *explore, sim_word *word, uint32_t number)
{
    uint32_t newest = word->next - 1u;
    uint32_t floor = sim_word_floor(explore, word, number);
    uint32_t oldest = sim_word_oldest(explore, word, number, floor);
    uint32_t older =
        word->stale_reads < SIM_STALE_IN_ROW ? sim_choose_value(explore, newest - oldest + 1u) : 0;
    word->stale_reads = older > 0 ? (uint16_t)(word->stale_reads + 1u) : 0;
    sim_word_saw(explore, word, number, newest - older);
    return &word->stores[(newest - older) % SIM_STORES_KEPT];
}

uint64_t sim_word_load(sim_explore *explore, uint32_t number, const void *address, uint32_t width,
                       ist_order order, ist_scope scope, const char *call)
{
    const sim_shadow_page *page =
        sim_shadow_access(explore, number, address, width, false, sim_class_of(scope), call);
    sim_word *word = sim_word_find(explore, page, address);
    uint64_t now = sim_word_now(address, width);
    if (word == NULL || word->width != width ||
        word->stores[(word->next - 1u) % SIM_STORES_KEPT].value != now) {
        return now;
    }
    const sim_store_seen *store = &word->stores[(word->next - 1u) % SIM_STORES_KEPT];
    if (!sim_agent_knows(&explore->agents[number], store->epoch)) {
        store = sim_word_pick(explore, word, number);
    }
    sim_word_sync(explore, number, store, sim_acquires(order), scope);
    return store->value;
}

void sim_word_acquire(sim_explore *explore, uint32_t number, const void *address, uint32_t width,
                      ist_scope scope, bool acquires, const char *call)
{
    const sim_shadow_page *page =
        sim_shadow_access(explore, number, address, width, false, sim_class_of(scope), call);
    sim_word *word = sim_word_find(explore, page, address);
    if (word == NULL || word->width != width) {
        return;
    }
    uint32_t newest = word->next - 1u;
    sim_word_saw(explore, word, number, newest);
    sim_word_sync(explore, number, &word->stores[newest % SIM_STORES_KEPT], acquires, scope);
}

static inline void sim_word_write(void *word, uint64_t value, uint32_t width)
{
    if (width == 4) {
        *(uint32_t *)word = (uint32_t)value;
    } else {
        *(uint64_t *)word = value;
    }
}

/* What a store makes available: to its own rank, and to others. */
static inline void sim_word_released(sim_explore *explore, uint32_t number, ist_order order,
                                     ist_scope scope, uint32_t released[2])
{
    const sim_agent *agent = &explore->agents[number];
    if (sim_releases(order) && scope >= IST_SCOPE_DEVICE) {
        released[0] = sim_agent_release(explore, number);
        released[1] = scope == IST_SCOPE_SYSTEM ? released[0] : 0;
        return;
    }
    released[0] = scope >= IST_SCOPE_DEVICE ? agent->released[0] : 0;
    released[1] = scope == IST_SCOPE_SYSTEM ? agent->released[1] : 0;
}

sim_rank *sim_word_store(sim_explore *explore, uint32_t number, void *address, uint64_t value,
                         uint32_t width, ist_order order, ist_scope scope, const char *call)
{
    sim_shadow_page *page =
        sim_shadow_access(explore, number, address, width, true, sim_class_of(scope), call);
    sim_epoch epoch = sim_word_epoch(explore, number, scope);
    sim_word *word = sim_word_make(explore, page, address, width);
    uint32_t released[2];
    sim_word_released(explore, number, order, scope, released);
    if (word != NULL) { /* who knows it, has seen it */
        sim_word_push(explore, word, value, epoch, released[0], released[1]);
    }
    sim_word_write(address, value, width);
    return page != NULL ? page->owner : sim_memory_owner(explore->world, address);
}

void sim_word_arrive(sim_explore *explore, uint32_t number, void *address, uint64_t value,
                     uint32_t width, uint32_t released)
{
    sim_shadow_page *page =
        sim_shadow_access(explore, number, address, width, true, SIM_STRONG_SYSTEM, "store");
    sim_word *word = sim_word_make(explore, page, address, width);
    if (word != NULL) {
        sim_word_push(explore, word, value, sim_word_epoch(explore, number, IST_SCOPE_SYSTEM),
                      released, released);
    }
    sim_word_write(address, value, width);
}

uint64_t sim_word_update(sim_explore *explore, uint32_t number, uint64_t *address, sim_word_op op,
                         uint64_t operand, uint64_t expected, ist_order order, ist_scope scope)
{
    sim_shadow_page *page =
        sim_shadow_access(explore, number, address, 8, true, sim_class_of(scope), "atomic");
    sim_epoch epoch = sim_word_epoch(explore, number, scope);
    uint64_t before = *address;
    sim_word *word = sim_word_make(explore, page, address, 8);
    sim_store_seen last = {before, 0, {0, 0}};
    if (word != NULL) {
        last = word->stores[(word->next - 1u) % SIM_STORES_KEPT];
        sim_word_sync(explore, number, &last, sim_acquires(order), scope);
    }
    if (op == SIM_WORD_SWAP && before != expected) {
        return before;
    }
    uint32_t released[2];
    sim_word_released(explore, number, order, scope, released);
    /* An update continues the release of the store that it replaces. */
    for (uint32_t s = 0; s < 2; ++s) {
        released[s] = sim_snapshot_join(explore, released[s], last.released[s]);
    }
    uint64_t after = op == SIM_WORD_ADD   ? before + operand
                     : op == SIM_WORD_AND ? (before & operand)
                                          : operand;
    if (word != NULL) {
        sim_word_push(explore, word, after, epoch, released[0], released[1]);
    }
    *address = after;
    return before;
}

/* One word of a row, which was copied as it is in memory. */
static void sim_word_copied(sim_explore *explore, uint32_t number, sim_word *word, uint64_t *copy)
{
    const sim_store_seen *newest = &word->stores[(word->next - 1u) % SIM_STORES_KEPT];
    const sim_world *world = explore->world;
    if (word->width == 8 && newest->value == *copy &&
        world->now_ps - word->newest_ps <= world->cluster.nvlink_latency_ps &&
        !sim_agent_knows(&explore->agents[number], newest->epoch)) {
        *copy = sim_word_pick(explore, word, number)->value;
    }
}

void sim_words_copied(sim_explore *explore, uint32_t number, void *dst, const void *src,
                      uint64_t bytes)
{
    if (!explore->gave_up || (((uintptr_t)dst | (uintptr_t)src) & 7u) != 0) {
        return;
    }
    const uint8_t *from = src;
    for (uint64_t at = 0; at + 8u <= bytes; at += 8u) {
        const sim_shadow_page *page = sim_shadow_page_at(explore, from + at);
        sim_word *word = page != NULL ? sim_word_find(explore, page, from + at) : NULL;
        if (word != NULL) {
            sim_word_copied(explore, number, word, (uint64_t *)(void *)((uint8_t *)dst + at));
        }
    }
}

void sim_words_acquire(sim_explore *explore, uint32_t number, const void *mem, uint64_t bytes)
{
    const uint8_t *base = mem;
    for (uint64_t at = 0; explore->word_count > 0 && at + 8u <= bytes; at += 8u) {
        const sim_shadow_page *page = sim_shadow_page_at(explore, base + at);
        sim_word *word = sim_word_find(explore, page, base + at);
        if (word != NULL) {
            sim_word_sync(explore, number, &word->stores[(word->next - 1u) % SIM_STORES_KEPT], true,
                          IST_SCOPE_SYSTEM);
        }
    }
}

/* ---- signals and counters -------------------------------------------------------------------- */

/* Keys are entries without a value: one store that all raises add to. */
#define SIM_KEY_WIDTH 1u

static sim_word *sim_key_make(sim_explore *explore, const void *key)
{
    sim_word *word = sim_word_entry(explore, NULL, key);
    if (word != NULL && word->width != SIM_KEY_WIDTH) {
        word->width = SIM_KEY_WIDTH;
        word->stores[0] = (sim_store_seen){0, sim_epoch_of(0, 1, SIM_STRONG_SYSTEM), {0, 0}};
    }
    return word;
}

void sim_key_release(sim_explore *explore, const void *key, uint32_t released)
{
    sim_word *word = sim_key_make(explore, key);
    if (word != NULL) {
        sim_store_seen *store = &word->stores[0];
        released = sim_snapshot_join(explore, store->released[1], released);
        store->released[0] = store->released[1] = released;
    }
}

void sim_key_acquire(sim_explore *explore, uint32_t number, const void *key, bool acquires)
{
    sim_word *word = sim_word_find(explore, NULL, key);
    if (word != NULL) {
        sim_word_sync(explore, number, &word->stores[0], acquires, IST_SCOPE_SYSTEM);
    }
}
