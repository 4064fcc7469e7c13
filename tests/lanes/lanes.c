/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lanes of blocks for tests: stacks, turns, block syncs, and what the thread sanitizer is told. Each
 * lane is a fiber of the sanitizer; switching between lanes orders nothing. The simulator below is not
 * watched, so its calls are made as another fiber.
 *
 * What is ordered: lanes of a block by its syncs; a release of one block before every acquire of
 * another that comes later (the schedulers of the simulator look at that more closely; here the
 * question is only whether the lane that releases has met the lanes that wrote); a kernel after those
 * that ended before it began. With LANES_ALONE=1 each block is looked at by itself: under faults
 * rows of other ranks are read while they change, and judged afterwards.
 */
#define LANES_RUNTIME
#include "lanes.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LANE_STACK (UINT64_C(1) << 18)
#define LANE_SLOTS 8u
#define LANE_SLOT_BYTES 65536u
#define LANE_NO_SYNC 1u

extern void *__tsan_get_current_fiber(void);
extern void *__tsan_create_fiber(unsigned flags);
extern void __tsan_destroy_fiber(void *fiber);
extern void __tsan_switch_to_fiber(void *fiber, unsigned flags);
extern void __tsan_acquire(void *object);
extern void __tsan_release(void *object);
extern void __tsan_read_range_pc(void *address, unsigned long bytes, void *pc);
extern void __tsan_write_range_pc(void *address, unsigned long bytes, void *pc);
extern void AnnotateIgnoreReadsBegin(const char *file, int line);
extern void AnnotateIgnoreReadsEnd(const char *file, int line);
extern void AnnotateIgnoreWritesBegin(const char *file, int line);
extern void AnnotateIgnoreWritesEnd(const char *file, int line);
const char *__tsan_default_options(void);

extern int __tsan_get_report_mop(void *report, unsigned long n, int *thread, void **address,
                                 int *size, int *write, int *atomic, void **trace,
                                 unsigned long trace_size);
extern int __tsan_get_report_thread(void *report, unsigned long n, int *thread,
                                    unsigned long long *system, int *running, const char **name,
                                    int *parent, void **trace, unsigned long trace_size);
extern void __tsan_set_fiber_name(void *fiber, const char *name);
extern void __sanitizer_symbolize_pc(void *pc, const char *format, char *text, size_t text_bytes);
void __tsan_on_report(void *report);

/* Reports come through __tsan_on_report(). */
__attribute__((visibility("default"))) const char *__tsan_default_options(void)
{
    return "log_path=/dev/null:exitcode=0:report_signal_unsafe=0:report_bugs=1:"
           "suppress_equal_stacks=0:suppress_equal_addresses=0:history_size=2";
}

#define LANE_FRAMES 16u
#define LANE_TEXT 512u

static void say_access(const char *what, void *const *trace)
{
    char text[LANE_TEXT];
    (void)fprintf(stderr, "  %s", what);
    for (uint32_t i = 0; i < 6 && trace[i] != NULL; ++i) {
        __sanitizer_symbolize_pc(trace[i], "%f %s:%l", text, sizeof(text));
        (void)fprintf(stderr, "%s%s\n", i == 0 ? " in " : "         ", text);
    }
}

/* A file of the source; a compiler that was told to leave places of machines out names it relative to
   the build folder. */
static FILE *source_open(const char *path)
{
    char whole[2 * LANE_TEXT];
    while (strncmp(path, "../", 3) == 0) {
        path += 3;
    }
    (void)snprintf(whole, sizeof(whole), "%s%s", path[0] == '/' ? "" : LANES_SOURCE_DIR "/", path);
    return fopen(whole, "r");
}

/* The line of the source that an access is in. */
static bool line_of(void *pc, char *line)
{
    char place[LANE_TEXT];
    __sanitizer_symbolize_pc(pc, "%s:%l", place, sizeof(place));
    char *colon = strrchr(place, ':');
    long left = colon != NULL ? strtol(colon + 1, NULL, 10) : 0;
    if (left == 0) {
        return false;
    }
    *colon = 0;
    FILE *file = source_open(place);
    bool found = file != NULL;
    while (found && left-- > 0) {
        found = fgets(line, LANE_TEXT, file) != NULL;
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return found;
}

/* ---- places in the kernels' text ------------------------------------------------------------- */

#define PLACES 4096u

/* A call of the device header: where it stands. */
typedef struct call_place {
    void *pc;
    bool row;    /* it moves rows */
    bool stamps; /* it stages rows behind a stamp */
    bool checks; /* it compares one */
} call_place;

static call_place places[PLACES];

/* Functions that stage rows behind a stamp, which they zero first. */
static const char *const stamping[] = {"ist_ep_stage_puts", "ist_ep_put_owed"};

/* And those that compare the stamp of what came. */
static const char *const checking[] = {"ist_ep_stamp_is"};

static bool is_one_of(void *pc, const char *const *names, size_t count)
{
    char name[LANE_TEXT];
    __sanitizer_symbolize_pc(pc, "%f", name, sizeof(name));
    for (size_t i = 0; i < count; ++i) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

static call_place *place_of(void *pc)
{
    size_t at = ((uintptr_t)pc * UINT64_C(0x9e3779b97f4a7c15) >> 40) % PLACES;
    while (places[at].pc != NULL && places[at].pc != pc) {
        at = (at + 1u) % PLACES;
    }
    if (places[at].pc == NULL) {
        places[at] = (call_place){
            .pc = pc, .stamps = is_one_of(pc, stamping, 2), .checks = is_one_of(pc, checking, 1)};
    }
    return &places[at];
}

/* Lanes that write the same text at once, as "somebody found …" does: what they write is equal, or any
   of it will do. */
static bool write_the_same(void *one, void *other)
{
    char first[LANE_TEXT], second[LANE_TEXT];
    if (place_of(one)->row || place_of(other)->row) {
        return false;
    }
    return one == other || (line_of(one, first) && line_of(other, second) &&
                            strcmp(first + strspn(first, " "), second + strspn(second, " ")) == 0);
}

/* Text that reads what other lanes may be writing, and where it does not matter which of the two it
   sees: a rank is found broken by whoever looks first. */
static const char *const tolerant[] = {"ist_ep_check_entries"};

static bool is_tolerant(void *pc)
{
    return is_one_of(pc, tolerant, sizeof(tolerant) / sizeof(*tolerant));
}

/* Whether the two lanes belong to one block; their fibers are named after it. */
static bool in_one_block(void *report)
{
    const char *names[2] = {NULL, NULL};
    for (unsigned long n = 0; n < 2; ++n) {
        int thread, running, parent;
        unsigned long long system;
        void *trace[1];
        (void)__tsan_get_report_thread(report, n, &thread, &system, &running, &names[n], &parent,
                                       trace, 1);
    }
    return names[0] == NULL || names[1] == NULL || strcmp(names[0], names[1]) == 0;
}

/* Words that stand for themselves, notices and beats: other ranks look at them when they like. */
static bool is_told(void *const *one, void *const *other)
{
    static const char *const telling[] = {"ist_wire_tell"};
    return is_one_of(one[0], telling, 1) || is_one_of(other[0], telling, 1);
}

static bool alone(void)
{
    const char *text = getenv("LANES_ALONE");
    return text != NULL && text[0] == '1';
}

static bool is_checked(const void *stamp);

/* The first race ends the program. */
__attribute__((visibility("default"))) void __tsan_on_report(void *report)
{
    void *traces[2][LANE_FRAMES] = {{NULL}};
    int writes[2] = {0, 0};
    void *address = NULL;
    for (unsigned long n = 0; n < 2; ++n) {
        int thread, size, atomic;
        (void)__tsan_get_report_mop(report, n, &thread, &address, &size, &writes[n], &atomic,
                                    traces[n], LANE_FRAMES);
    }
    if (is_told(traces[0], traces[1]) && !in_one_block(report)) {
        return;
    }
    if ((writes[0] && writes[1] && write_the_same(traces[0][0], traces[1][0])) ||
        (is_tolerant(traces[0][0]) && is_tolerant(traces[1][0])) ||
        ((alone() || is_checked(address)) && !in_one_block(report))) {
        return;
    }
    (void)fprintf(stderr, "data race between lanes: no block sync lies between\n");
    say_access(writes[1] ? "write" : "read", traces[1]);
    say_access(writes[0] ? "write" : "read", traces[0]);
    _exit(66);
}

/* Boost.Context, as in the simulator. */
typedef struct lane_transfer {
    void *context;
    void *data;
} lane_transfer;

extern lane_transfer jump_fcontext(void *to, void *data);
extern void *make_fcontext(void *stack_top, size_t stack_bytes, void (*entry)(lane_transfer));

typedef struct lane {
    void *pc; /* of the call of the device header that it is in */
    void *context;
    void *fiber; /* of the sanitizer */
    uint8_t *stack;
    struct lane_block *block;
    uint32_t number;
    uint32_t syncs; /* how many it has entered, */
    uint32_t rows;  /* and how many calls that move rows */
    bool inside;    /* one whose other lanes are still to come */
    bool ended;
} lane;

typedef struct lane_block {
    lane lanes[LANES];
    ist_coop *coop; /* NULL: free */
    void (*body)(ist_coop *coop, const void *args);
    const void *args;
    void *turns;        /* context of whoever gives turns */
    uint64_t answer[2]; /* of the collective calls that sync: in turn */
    uint32_t entered;   /* lanes in the sync that is on */
    uint32_t calls[LANES];
    uint64_t released; /* object of the sanitizer, which wants 8 bytes: what this block releases */
    uint64_t met[2];   /* syncs, in turn */
    uint8_t *scratch;
    struct lane_block *next;
} lane_block;

static void sources_forget(uint64_t now_ns);

static lane_block *blocks;
static lane *now;
static void *outside;  /* the sanitizer's fiber of all that is not a lane */
static uint64_t ended; /* object of the sanitizer: kernels that have ended */
static uint64_t drawn;

/* Lanes alone are watched: not the simulator, nor what the C library does for it. */
__attribute__((constructor)) static void outside_is_ignored(void)
{
    outside = __tsan_get_current_fiber();
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}

__attribute__((destructor)) static void outside_was_ignored(void)
{
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}

uint32_t lanes_self(void)
{
    return now->number;
}

/* ---- stacks and turns ------------------------------------------------------------------------ */

static uint32_t draw(uint32_t bound)
{
    drawn = drawn * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(drawn >> 33) % bound;
}

static void lane_main(lane_transfer transfer)
{
    lane *self = transfer.data;
    lane_block *block = self->block;
    block->turns = transfer.context;
    __tsan_switch_to_fiber(self->fiber, LANE_NO_SYNC);
    __tsan_acquire(&ended);
    block->body(block->coop, block->args);
    __tsan_release(&ended);
    __tsan_switch_to_fiber(outside, LANE_NO_SYNC);
    self->ended = true;
    (void)jump_fcontext(block->turns, NULL);
}

static void *memory(size_t bytes)
{
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) {
        (void)fprintf(stderr, "no memory for lanes\n");
        _exit(2);
    }
    return map;
}

static void lane_fiber(lane_block *block, uint32_t number)
{
    char name[32];
    (void)snprintf(name, sizeof(name), "block %p", (void *)block);
    block->lanes[number].fiber = __tsan_create_fiber(0);
    __tsan_set_fiber_name(block->lanes[number].fiber, name);
}

/* A block that was killed in mid-kernel leaves its lanes where they were. */
static void lane_block_bury(lane_block *block)
{
    for (uint32_t i = 0; i < LANES; ++i) {
        if (!block->lanes[i].ended) {
            __tsan_switch_to_fiber(block->lanes[i].fiber, LANE_NO_SYNC);
            __tsan_release(&ended);
            __tsan_switch_to_fiber(outside, LANE_NO_SYNC);
            __tsan_destroy_fiber(block->lanes[i].fiber);
            lane_fiber(block, i);
        }
    }
    block->coop = NULL;
}

static lane_block *lane_block_take(ist_coop *coop)
{
    lane_block *found = NULL;
    for (lane_block *block = blocks; block != NULL; block = block->next) {
        if (block->coop == coop) {
            lane_block_bury(block);
        }
        found = found == NULL && block->coop == NULL ? block : found;
    }
    if (found == NULL) {
        found = memory(sizeof(*found));
        found->scratch = memory(LANE_SLOTS * LANE_SLOT_BYTES);
        for (uint32_t i = 0; i < LANES; ++i) {
            found->lanes[i].stack = memory(LANE_STACK);
            lane_fiber(found, i);
        }
        found->next = blocks;
        blocks = found;
    }
    return found;
}

static void lane_turn(lane *next)
{
    now = next;
    lane_transfer back = jump_fcontext(next->context, next);
    next->context = back.context;
}

void lanes_run(ist_coop *coop, const void *args, void (*body)(ist_coop *coop, const void *args))
{
    lane_block *block = lane_block_take(coop);
    block->coop = coop;
    block->body = body;
    block->args = args;
    block->entered = 0;
    drawn = ist_clock_ns(coop) * UINT64_C(0x9e3779b97f4a7c15) + ist_coop_block(coop);
    sources_forget(ist_clock_ns(coop));
    memset(block->calls, 0, sizeof(block->calls));
    for (uint32_t i = 0; i < LANES; ++i) {
        lane *each = &block->lanes[i];
        each->block = block;
        each->number = i;
        each->syncs = 0;
        each->rows = 0;
        each->inside = false;
        each->ended = false;
        each->context = make_fcontext(each->stack + LANE_STACK - 64, LANE_STACK - 64, lane_main);
    }
    for (uint32_t left = LANES; left > 0;) {
        lane *next = &block->lanes[draw(LANES)];
        if (block->entered == left) {
            (void)fprintf(stderr, "kernel: some lanes wait for lanes that have ended\n");
            _exit(3);
        }
        if (!next->ended && !next->inside) {
            lane_turn(next);
            left -= next->ended;
        }
    }
    block->coop = NULL;
}

/* Another lane's turn, perhaps. */
static void lane_yield(lane *self)
{
    lane_block *block = self->block;
    __tsan_switch_to_fiber(outside, LANE_NO_SYNC);
    lane_transfer back = jump_fcontext(block->turns, NULL);
    block->turns = back.context;
    now = self;
    __tsan_switch_to_fiber(self->fiber, LANE_NO_SYNC);
}

/* Before lane 0 waits for what other ranks do: on a GPU the other lanes run on meanwhile, and may have
   to, so that those ranks do it; here a wait holds all of the block. Orders nothing between lanes. */
static void let_others_come(void)
{
    lane *self = now;
    while (self->block->entered < LANES - 1u) {
        lane_yield(self);
    }
}

/* All lanes meet. */
void lanes_sync(ist_coop *coop)
{
    lane *self = now;
    lane_block *block = self->block;
    uint64_t *met = &block->met[self->syncs++ & 1u];
    __tsan_release(met);
    self->inside = true;
    if (++block->entered == LANES) {
        block->entered = 0;
        for (uint32_t i = 0; i < LANES; ++i) {
            block->lanes[i].inside = false;
        }
        /* What others can observe of a sync is the block's, once. */
        __tsan_switch_to_fiber(outside, LANE_NO_SYNC);
        (ist_coop_sync)(coop);
        now = self;
        __tsan_switch_to_fiber(self->fiber, LANE_NO_SYNC);
    }
    lane_yield(self);
    __tsan_acquire(met);
}

/* ---- what lanes touch ------------------------------------------------------------------------ */

#define LANE_ENTER() (now->pc = __builtin_return_address(0))

static void reads(const void *address, uint64_t bytes)
{
    if (bytes != 0 && address != NULL) {
        __tsan_read_range_pc((void *)(uintptr_t)address, bytes, now->pc);
    }
}

static void writes(void *address, uint64_t bytes)
{
    if (bytes != 0 && address != NULL) {
        __tsan_write_range_pc(address, bytes, now->pc);
    }
}

/* Words of one block's lanes are in no order unless it syncs, whatever their own order is. */
static void reads_word(const void *word, uint64_t bytes, ist_order order)
{
    if (order == IST_RELAXED) {
        reads(word, bytes);
    }
}

static void writes_word(void *word, uint64_t bytes, ist_order order)
{
    if (order == IST_RELAXED) {
        writes(word, bytes);
    }
}

/*
 * Sources of puts, which the network may read late. Those of rows begin with a stamp, which is zeroed
 * before the row is staged again, and set after that: whoever writes the row has to come after the
 * lane that zeroed it, and whoever sets the stamp after all that wrote the row.
 */
#define SOURCES 8192u
#define STAMP_BYTES 16u
#define LANE_LEAD_NS 10000u /* blocks of one world are no farther apart when they begin */

typedef struct source {
    uint64_t *stamp; /* NULL: free */
    uint64_t bytes;
    bool zeroed; /* since it was put */
} source;

static source sources[SOURCES];

static source *source_at(const void *stamp)
{
    size_t at = ((uintptr_t)stamp * UINT64_C(0x9e3779b97f4a7c15) >> 40) % SOURCES;
    for (size_t i = 0; i < 16u && sources[at].stamp != NULL && sources[at].stamp != stamp; ++i) {
        at = (at + 1u) % SOURCES;
    }
    return &sources[at];
}

static void source_is_put(void *stamp, uint64_t bytes)
{
    if (bytes > STAMP_BYTES && ((uintptr_t)stamp & 7u) == 0) {
        *source_at(stamp) = (source){stamp, bytes, false};
    }
}

static void source_is_staged(const void *row)
{
    const source *from = source_at((const uint8_t *)row - STAMP_BYTES);
    if ((const uint8_t *)from->stamp != (const uint8_t *)row - STAMP_BYTES) {
        return;
    }
    if (from->zeroed) {
        reads(from->stamp, sizeof(*from->stamp));
    } else if (*from->stamp != 0 && place_of(now->pc)->stamps) {
        (void)fprintf(stderr, "a row is staged again under its last stamp\n");
        say_access("write", (void *const[2]){now->pc, NULL});
        _exit(66);
    }
}

static void source_is_stamped(const uint64_t *word, uint64_t value)
{
    source *from = source_at(word);
    if (from->stamp == word && value != 0 && from->zeroed) {
        reads((const uint8_t *)word + STAMP_BYTES, from->bytes - STAMP_BYTES);
    }
    from->zeroed = from->stamp == word && value == 0;
}

/*
 * Stamps of what came by the network: compared once before the row behind is read, and once more after
 * all lanes have read it. To the sanitizer a look at the stamp writes it, and whoever reads of the row
 * reads it; of one block, as others compare when they have read what is theirs.
 */
static const void *checked[SOURCES];

static const void **checked_at(const void *stamp)
{
    size_t at = ((uintptr_t)stamp * UINT64_C(0x9e3779b97f4a7c15) >> 40) % SOURCES;
    for (size_t i = 0; i < 16u && checked[at] != NULL && checked[at] != stamp; ++i) {
        at = (at + 1u) % SOURCES;
    }
    return &checked[at];
}

static bool is_checked(const void *stamp)
{
    return stamp != NULL && *checked_at(stamp) == stamp;
}

static bool stamp_is_checked(const void *word)
{
    bool tag = place_of(now->pc)->checks && ((uintptr_t)word & (STAMP_BYTES - 1u)) == 0;
    if (tag) {
        *checked_at(word) = word;
    }
    return tag;
}

static void row_is_read(const void *row)
{
    const uint8_t *stamp = (const uint8_t *)row - STAMP_BYTES;
    if (is_checked(stamp)) {
        reads(stamp, sizeof(uint64_t));
    }
}

/* Another world: what was put in the last one says nothing about this one's memory. */
static void sources_forget(uint64_t now_ns)
{
    static uint64_t newest_ns;
    if (now_ns + LANE_LEAD_NS < newest_ns) {
        memset(sources, 0, sizeof(sources));
        memset(checked, 0, sizeof(checked));
        newest_ns = 0;
    }
    newest_ns = now_ns > newest_ns ? now_ns : newest_ns;
}

static void row_begins(void)
{
    place_of(now->pc)->row = true;
    ++now->rows;
}

/* ---- calls of one lane ----------------------------------------------------------------------- */

static bool releases(ist_order order)
{
    return order == IST_RELEASE || order == IST_ACQ_REL;
}

static lane *call_begin(ist_order order)
{
    lane *self = now;
    if (releases(order)) {
        __tsan_release(&self->block->released);
    }
    __tsan_switch_to_fiber(outside, LANE_NO_SYNC);
    return self;
}

static void call_end(lane *self, ist_order order)
{
    now = self;
    __tsan_switch_to_fiber(self->fiber, LANE_NO_SYNC);
    if (order == IST_ACQUIRE || order == IST_ACQ_REL) {
        for (lane_block *block = blocks; block != NULL; block = block->next) {
            if (block != self->block) {
                __tsan_acquire(&block->released);
            }
        }
    }
}

#define LANE_CALL(order, statement)                                                                \
    do {                                                                                           \
        lane *self_ = call_begin(order);                                                           \
        statement;                                                                                 \
        call_end(self_, order);                                                                    \
    } while (0)

uint32_t lanes_load_u32(ist_coop *coop, const uint32_t *word, ist_order order, ist_scope scope)
{
    uint32_t value;
    LANE_ENTER();
    reads_word(word, 4, order);
    LANE_CALL(order, value = ist_load_u32(coop, word, order, scope));
    return value;
}

uint64_t lanes_load_u64(ist_coop *coop, const uint64_t *word, ist_order order, ist_scope scope)
{
    uint64_t value;
    LANE_ENTER();
    if (stamp_is_checked(word)) {
        writes((void *)(uintptr_t)word, 8);
    } else {
        reads_word(word, 8, order);
    }
    LANE_CALL(order, value = ist_load_u64(coop, word, order, scope));
    return value;
}

void lanes_store_u32(ist_coop *coop, uint32_t *word, uint32_t value, ist_order order,
                     ist_scope scope)
{
    LANE_ENTER();
    writes_word(word, 4, order);
    LANE_CALL(order, ist_store_u32(coop, word, value, order, scope));
}

void lanes_store_u64(ist_coop *coop, uint64_t *word, uint64_t value, ist_order order,
                     ist_scope scope)
{
    LANE_ENTER();
    source_is_stamped(word, value);
    writes_word(word, 8, order);
    LANE_CALL(order, ist_store_u64(coop, word, value, order, scope));
}

uint64_t lanes_fetch_add_u64(ist_coop *coop, uint64_t *word, uint64_t value, ist_order order,
                             ist_scope scope)
{
    uint64_t before;
    LANE_CALL(order, before = ist_fetch_add_u64(coop, word, value, order, scope));
    return before;
}

uint64_t lanes_fetch_and_u64(ist_coop *coop, uint64_t *word, uint64_t value, ist_order order,
                             ist_scope scope)
{
    uint64_t before;
    LANE_CALL(order, before = ist_fetch_and_u64(coop, word, value, order, scope));
    return before;
}

uint64_t lanes_compare_swap_u64(ist_coop *coop, uint64_t *word, uint64_t expected, uint64_t desired,
                                ist_order order, ist_scope scope)
{
    uint64_t before;
    LANE_CALL(order, before = ist_compare_swap_u64(coop, word, expected, desired, order, scope));
    return before;
}

void lanes_fence(ist_coop *coop, ist_order order, ist_scope scope)
{
    LANE_CALL(order, ist_fence(coop, order, scope));
}

void *lanes_window_local(ist_coop *coop, const ist_dev_comm *dev, uint32_t window, uint64_t offset)
{
    void *address;
    LANE_CALL(IST_RELAXED, address = ist_window_local(coop, dev, window, offset));
    return address;
}

void *lanes_window_peer(ist_coop *coop, const ist_dev_comm *dev, uint32_t window, uint64_t offset,
                        uint32_t peer)
{
    void *address;
    LANE_CALL(IST_RELAXED, address = ist_window_peer(coop, dev, window, offset, peer));
    return address;
}

uint64_t lanes_clock_ns(ist_coop *coop)
{
    uint64_t value;
    LANE_CALL(IST_RELAXED, value = ist_clock_ns(coop));
    return value;
}

int lanes_mask_active(ist_coop *coop, const ist_dev_comm *dev, uint32_t peer)
{
    int active;
    LANE_CALL(IST_RELAXED, active = ist_mask_active(coop, dev, peer));
    return active;
}

int lanes_mask_drop(ist_coop *coop, const ist_dev_comm *dev, const ist_dev_error *error)
{
    int dropped;
    LANE_CALL(IST_RELEASE, dropped = ist_mask_drop(coop, dev, error));
    return dropped;
}

int lanes_aborted(ist_coop *coop, const ist_dev_comm *dev)
{
    int aborted;
    LANE_CALL(IST_RELAXED, aborted = ist_aborted(coop, dev));
    return aborted;
}

uint64_t lanes_gin_signal_read(ist_coop *coop, const ist_dev_comm *dev, uint32_t context,
                               uint32_t signal, ist_order order)
{
    uint64_t value;
    LANE_CALL(order, value = ist_gin_signal_read(coop, dev, context, signal, order));
    return value;
}

void lanes_gin_signal_reset(ist_coop *coop, const ist_dev_comm *dev, uint32_t context,
                            uint32_t signal)
{
    LANE_CALL(IST_RELAXED, ist_gin_signal_reset(coop, dev, context, signal));
}

void lanes_gin_peer_clear(ist_coop *coop, const ist_dev_comm *dev, uint32_t peer)
{
    LANE_CALL(IST_RELAXED, ist_gin_peer_clear(coop, dev, peer));
}

/* ---- collective calls ------------------------------------------------------------------------ */

/* The answer of lane 0, for all, after they met. Two places, so that lane 0 is never a call ahead of
   a lane that has not read the last one. */
static uint64_t broadcast(ist_coop *coop, uint64_t answer)
{
    lane *self = now;
    lane_block *block = self->block;
    uint64_t *slot = &block->answer[block->calls[self->number]++ & 1u];
    if (self->number == 0) {
        *slot = answer;
    }
    lanes_sync(coop);
    return *slot;
}

uint64_t lanes_coop_fetch_add(ist_coop *coop, uint64_t *word, uint64_t value, ist_order order,
                              ist_scope scope)
{
    uint64_t before = 0;
    lanes_sync(coop);
    if (now->number == 0) {
        LANE_CALL(order, before = ist_fetch_add_u64(coop, word, value, order, scope));
    }
    return broadcast(coop, before);
}

ist_wait_result lanes_coop_wait_word(ist_coop *coop, const ist_dev_comm *dev, const uint64_t *word,
                                     uint64_t least, uint64_t deadline_ns, ist_scope scope)
{
    ist_wait_result result = IST_WAIT_DONE;
    if (now->number == 0) {
        let_others_come();
        LANE_CALL(IST_ACQUIRE,
                  result = ist_coop_wait_word(coop, dev, word, least, deadline_ns, scope));
    }
    return (ist_wait_result)broadcast(coop, (uint64_t)result);
}

uint32_t lanes_coop_scan(ist_coop *coop, uint32_t *values, uint32_t count)
{
    LANE_ENTER();
    uint32_t total = 0;
    if (now->number == 0) {
        writes(values, 4ul * count);
        LANE_CALL(IST_RELAXED, total = ist_coop_scan(coop, values, count));
    }
    return (uint32_t)broadcast(coop, total);
}

void lanes_coop_rank_by_key(ist_coop *coop, const int32_t *keys, uint32_t count, uint32_t *ordinals,
                            uint32_t *totals, uint32_t key_count)
{
    LANE_ENTER();
    if (now->number == 0) {
        reads(keys, 4ul * count);
        writes(ordinals, 4ul * count);
        writes(totals, 4ul * key_count);
        LANE_CALL(IST_RELAXED,
                  ist_coop_rank_by_key(coop, keys, count, ordinals, totals, key_count));
    }
    lanes_sync(coop);
}

uint32_t lanes_wait_peers(ist_coop *coop, const ist_dev_comm *dev, const ist_peer_wait *wait,
                          uint8_t *results)
{
    LANE_ENTER();
    uint32_t missing = 0;
    if (now->number == 0) {
        let_others_come();
        writes(results, dev->rank_count);
        LANE_CALL(IST_ACQUIRE, missing = ist_wait_peers(coop, dev, wait, results));
    }
    return (uint32_t)broadcast(coop, missing);
}

void lanes_gin_put(ist_coop *coop, const ist_dev_comm *dev, uint32_t context, uint32_t peer,
                   uint32_t dst_window, uint64_t dst_offset, uint32_t src_window,
                   uint64_t src_offset, uint64_t bytes, ist_gin_action remote,
                   uint32_t local_counter)
{
    lanes_sync(coop);
    if (now->number == 0) {
        source_is_put(ist_window_local(coop, dev, src_window, src_offset), bytes);
        LANE_CALL(IST_RELEASE, ist_gin_put(coop, dev, context, peer, dst_window, dst_offset,
                                           src_window, src_offset, bytes, remote, local_counter));
    }
}

void lanes_gin_put_value(ist_coop *coop, const ist_dev_comm *dev, uint32_t context, uint32_t peer,
                         uint32_t dst_window, uint64_t dst_offset, uint64_t value,
                         ist_gin_action remote)
{
    lanes_sync(coop);
    if (now->number == 0) {
        LANE_CALL(IST_RELEASE, ist_gin_put_value(coop, dev, context, peer, dst_window, dst_offset,
                                                 value, remote));
    }
}

void lanes_gin_signal(ist_coop *coop, const ist_dev_comm *dev, uint32_t context, uint32_t peer,
                      ist_gin_action remote)
{
    lanes_sync(coop);
    if (now->number == 0) {
        LANE_CALL(IST_RELEASE, ist_gin_signal(coop, dev, context, peer, remote));
    }
}

void lanes_point(ist_coop *coop, const char *name)
{
    if (now->number == 0) {
        LANE_CALL(IST_RELAXED, ist_point(coop, name));
    }
}

/* ---- memory of the block ----------------------------------------------------------------------- */

void *lanes_scratch(ist_coop *coop, uint32_t slot, uint32_t bytes)
{
    (void)coop;
    if (slot >= LANE_SLOTS || bytes > LANE_SLOT_BYTES) {
        (void)fprintf(stderr, "scratch slot %u of %u bytes\n", slot, bytes);
        _exit(2);
    }
    return now->block->scratch + slot * LANE_SLOT_BYTES;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* This lane's part of a row. No call promises which part is whose: it is another one in each. */
static uint32_t part_number(void)
{
    return (now->number + now->rows) % LANES;
}

/* Where a part of a row begins: whole words, as some are others'. */
static uint64_t part_at(uint64_t bytes, uint32_t number)
{
    return number == LANES ? bytes : bytes * number / LANES / 8u * 8u;
}

static void row_copy(ist_coop *coop, void *dst, const void *src, uint64_t bytes)
{
    uint64_t from = part_at(bytes, part_number());
    uint64_t count = part_at(bytes, part_number() + 1u) - from;
    if (dst == NULL || src == NULL) { /* the simulator reports it */
        LANE_CALL(IST_RELAXED, ist_row_copy(coop, dst, src, bytes));
        return;
    }
    if (count != 0) {
        source_is_staged(dst);
        row_is_read(src);
        reads((const uint8_t *)src + from, count);
        writes((uint8_t *)dst + from, count);
        LANE_CALL(IST_RELAXED,
                  ist_row_copy(coop, (uint8_t *)dst + from, (const uint8_t *)src + from, count));
    }
}

void lanes_row_copy(ist_coop *coop, void *dst, const void *src, uint64_t bytes)
{
    LANE_ENTER();
    row_begins();
    row_copy(coop, dst, src, bytes);
}

void lanes_row_copy_many(ist_coop *coop, void *const *dst, uint32_t count, const void *src,
                         uint64_t bytes)
{
    LANE_ENTER();
    row_begins();
    reads(dst, count * sizeof(*dst));
    for (uint32_t i = 0; i < count; ++i) {
        row_copy(coop, dst[i], src, bytes);
    }
}

ist_wait_result lanes_coop_wait_tagged(ist_coop *coop, const ist_dev_comm *dev,
                                       const uint64_t *const *words, uint32_t *data, uint32_t count,
                                       uint32_t tag, uint64_t deadline_ns, ist_scope scope)
{
    LANE_ENTER();
    ist_wait_result result = IST_WAIT_DONE;
    for (uint32_t i = now->number; i < count; i += LANES) { /* as on a GPU: a lane a word */
        reads(&words[i], sizeof(words[i]));
        writes(&data[i], sizeof(data[i]));
    }
    lanes_sync(coop);
    if (now->number == 0) {
        LANE_CALL(IST_ACQUIRE, result = ist_coop_wait_tagged(coop, dev, words, data, count, tag,
                                                             deadline_ns, scope));
    }
    return (ist_wait_result)broadcast(coop, (uint64_t)result);
}

void lanes_row_copy_batch(ist_coop *coop, const ist_row_batch *batch)
{
    LANE_ENTER();
    row_begins();
    reads(batch->places, batch->row_count * sizeof(*batch->places));
    reads(batch->src, batch->row_count * sizeof(*batch->src));
    for (uint32_t row = 0; row < batch->row_count; ++row) {
        void *const *dst = batch->dst + (uint64_t)row * batch->stride;
        reads(dst, batch->places[row] * sizeof(*dst));
        for (uint32_t i = 0; i < batch->places[row]; ++i) {
            if (dst[i] != NULL) {
                row_copy(coop, dst[i], batch->src[row], batch->bytes);
            }
        }
    }
}

void lanes_row_copy_list(ist_coop *coop, const ist_row_part *parts, uint32_t count)
{
    LANE_ENTER();
    row_begins();
    reads(parts, count * sizeof(*parts));
    for (uint32_t i = 0; i < count; ++i) {
        if (parts[i].bytes != 0) {
            row_copy(coop, parts[i].dst, parts[i].src, parts[i].bytes);
        }
    }
}

void lanes_row_fill(ist_coop *coop, void *dst, uint8_t value, uint64_t bytes)
{
    LANE_ENTER();
    row_begins();
    uint64_t from = part_at(bytes, part_number());
    uint64_t count = part_at(bytes, part_number() + 1u) - from;
    if (count != 0) {
        writes((uint8_t *)dst + from, count);
        LANE_CALL(IST_RELAXED, ist_row_fill(coop, (uint8_t *)dst + from, value, count));
    }
}

static void row_reduce(ist_coop *coop, void *dst, const void *const *src, const float *weight,
                       uint32_t count, uint64_t elements, ist_dtype dtype)
{
    uint64_t width = dtype == IST_F32 ? 4u : 2u;
    uint64_t from = part_at(elements, part_number());
    uint64_t mine = part_at(elements, part_number() + 1u) - from;
    const void *parts[IST_ROW_TARGETS_MAX];
    reads(src, count * sizeof(*src)); /* of the lane itself, in a batch: nobody else's */
    reads(weight, weight == NULL ? 0 : count * sizeof(*weight));
    if (mine == 0 || count > IST_ROW_TARGETS_MAX) {
        return;
    }
    for (uint32_t i = 0; i < count; ++i) {
        parts[i] = (const uint8_t *)src[i] + from * width;
        row_is_read(src[i]);
        reads(parts[i], mine * width);
    }
    writes((uint8_t *)dst + from * width, mine * width);
    LANE_CALL(IST_RELAXED, ist_row_reduce(coop, (uint8_t *)dst + from * width, parts, weight, count,
                                          mine, dtype));
}

/* One sum: its sources that are there, in order. */
static void reduce_one(ist_coop *coop, const ist_row_sums *batch, uint32_t row)
{
    const void *const *src = batch->src + (uint64_t)row * batch->stride;
    const float *weight =
        batch->weight == NULL ? NULL : batch->weight + (uint64_t)row * batch->stride;
    const void *there[IST_ROW_TARGETS_MAX];
    float weights[IST_ROW_TARGETS_MAX];
    uint32_t count = 0;
    reads(src, batch->stride * sizeof(*src));
    for (uint32_t i = 0; i < batch->stride && count < IST_ROW_TARGETS_MAX; ++i) {
        if (src[i] != NULL) {
            reads(weight == NULL ? NULL : weight + i, sizeof(*weight));
            weights[count] = weight == NULL ? 0.0f : weight[i];
            there[count++] = src[i];
        }
    }
    row_reduce(coop, batch->dst[row], there, weight == NULL ? NULL : weights, count,
               batch->elements, batch->dtype);
}

void lanes_row_reduce(ist_coop *coop, void *dst, const void *const *src, const float *weight,
                      uint32_t count, uint64_t elements, ist_dtype dtype)
{
    LANE_ENTER();
    row_begins();
    row_reduce(coop, dst, src, weight, count, elements, dtype);
}

void lanes_row_reduce_batch(ist_coop *coop, const ist_row_sums *batch)
{
    LANE_ENTER();
    row_begins();
    reads(batch->dst, batch->row_count * sizeof(*batch->dst));
    for (uint32_t row = 0; row < batch->row_count; ++row) {
        if (batch->dst[row] != NULL) {
            reduce_one(coop, batch, row);
        }
    }
}
