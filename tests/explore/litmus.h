/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Litmus tests: a few threads of a few operations, and the outcomes that the memory model allows.
 * A thread is a text, "RANK.BLOCK: operations"; words are named by letters, a … h in window 0 (zeroed
 * by the library), A … H in a window of its own (zeroed by the program). Operations, separated by ';':
 *
 *   W1.a=1@rs   store to word a of rank 1; order r(elease) or - (relaxed), scope s, d or b
 *   R1.a@as     load, order a(cquire) or -; its value is the thread's next result
 *   A1.a+1@qs   fetch add, order -, a, r or q (both); the value before is a result
 *   F@qs        fence
 *   B1.a=1      row of 8 bytes (row_fill)         C1.a     row of 8 bytes read (row_copy); a result
 *   Y           coop sync                         Z0       LSA barrier 0
 *   z0, y0      its two halves: arrive, wait
 *   E1.a>1@s    wait until own word a >= 1 (coop_wait_word)
 *   P0>1.a<b:s2#3  put on context 0 to word a of rank 1 from own word b; strong signal 2 (w: weak,
 *                  none without), counter 3
 *   V0>1.a=5:s2    put-value                      G0>1:s2  signal alone
 *   Q0.2@a      read signal 2 of context 0; a result
 *   ?1          the thread ends here unless its last result is 1
 *   T0.2>1      wait for the signal               K0.3>1   wait for a counter         L0  flush
 *
 * Results of all threads, in order, make an outcome of digits; '-' when there are none.
 */
#ifndef LITMUS_H
#define LITMUS_H

#include "ist_test.h"

#include <isthmus/unstable/explore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LITMUS_THREADS 4u
#define LITMUS_RESULTS 8u
#define LITMUS_OUTCOMES 64u
#define LITMUS_STEP 64u
#define LITMUS_WINDOW_BYTES 4096u

/* One direction of a test. */
typedef struct litmus_case {
    const char *name;
    uint32_t ranks;
    const char *threads[LITMUS_THREADS];
    const char *allowed; /* "00 01 11": all of them appear, nothing else does */
    int finding; /* ist_finding_kind that appears in some schedule; 0: nothing is ever found */
} litmus_case;

typedef struct litmus_run {
    const litmus_case *which;
    uint8_t results[LITMUS_THREADS][LITMUS_RESULTS];
    uint8_t count[LITMUS_THREADS];
} litmus_run;

typedef struct litmus_args {
    const ist_dev_comm *dev;
    litmus_run *run; /* host memory: the simulator's kernels are C functions */
    uint32_t window;
    uint32_t reserved;
} litmus_args;

/* ---- text ------------------------------------------------------------------------------------ */

typedef struct litmus_text {
    const char *at;
} litmus_text;

static inline char litmus_peek(const litmus_text *text)
{
    return *text->at;
}

static inline char litmus_next(litmus_text *text)
{
    return *text->at != '\0' ? *text->at++ : '\0';
}

static inline int litmus_take(litmus_text *text, char wanted)
{
    if (*text->at != wanted) {
        return 0;
    }
    ++text->at;
    return 1;
}

static inline uint32_t litmus_number(litmus_text *text)
{
    uint32_t value = 0;
    while (*text->at >= '0' && *text->at <= '9') {
        value = value * 10u + (uint32_t)(*text->at++ - '0');
    }
    return value;
}

typedef struct litmus_place {
    uint32_t rank;
    uint32_t window; /* 0 or 1: the program's */
    uint64_t offset;
} litmus_place;

static inline litmus_place litmus_place_of(litmus_text *text, uint32_t self)
{
    litmus_place place = {.rank = self};
    if (litmus_peek(text) >= '0' && litmus_peek(text) <= '9') {
        place.rank = litmus_number(text);
        (void)litmus_take(text, '.');
    }
    char name = litmus_next(text);
    place.window = name < 'a';
    place.offset = (uint64_t)(name - (name < 'a' ? 'A' : 'a')) * LITMUS_STEP;
    return place;
}

static inline void litmus_order(litmus_text *text, ist_order *order, ist_scope *scope)
{
    *order = IST_RELAXED;
    *scope = IST_SCOPE_SYSTEM;
    if (!litmus_take(text, '@')) {
        return;
    }
    for (char c = litmus_peek(text); c != '\0' && c != ';' && c != ' '; c = litmus_peek(text)) {
        *order = c == 'r' ? IST_RELEASE : c == 'a' ? IST_ACQUIRE : c == 'q' ? IST_ACQ_REL : *order;
        *scope = c == 'd' ? IST_SCOPE_DEVICE : c == 'b' ? IST_SCOPE_BLOCK : *scope;
        ++text->at;
    }
}

static inline ist_gin_action litmus_action(litmus_text *text)
{
    ist_gin_action action = {IST_GIN_NONE, 0, 0};
    if (litmus_take(text, ':')) {
        action.kind = litmus_next(text) == 'w' ? IST_GIN_WEAK_SIGNAL_INC : IST_GIN_SIGNAL_INC;
        action.signal = litmus_number(text);
    }
    return action;
}

/* ---- the kernel ------------------------------------------------------------------------------ */

typedef struct litmus_thread {
    ist_coop *coop;
    const litmus_args *args;
    uint32_t number;
    uint64_t deadline_ns;
} litmus_thread;

static inline void litmus_result(const litmus_thread *thread, uint64_t value)
{
    litmus_run *run = thread->args->run;
    uint8_t *count = &run->count[thread->number];
    if (*count < LITMUS_RESULTS) {
        run->results[thread->number][(*count)++] = (uint8_t)value;
    }
}

static inline uint32_t litmus_last(const litmus_thread *thread)
{
    const litmus_run *run = thread->args->run;
    uint8_t count = run->count[thread->number];
    return count > 0 ? run->results[thread->number][count - 1u] : UINT32_MAX;
}

static inline void *litmus_address(const litmus_thread *thread, litmus_place place)
{
    uint32_t window = place.window ? thread->args->window : 0;
    return ist_window_peer(thread->coop, thread->args->dev, window, place.offset, place.rank);
}

static inline void litmus_word(const litmus_thread *thread, char kind, litmus_text *text)
{
    ist_coop *coop = thread->coop;
    uint64_t *word = litmus_address(thread, litmus_place_of(text, thread->args->dev->rank));
    uint32_t value = 0;
    if (litmus_take(text, '=') || litmus_take(text, '+') || litmus_take(text, '>')) {
        value = litmus_number(text);
    }
    ist_order order;
    ist_scope scope;
    litmus_order(text, &order, &scope);
    if (kind == 'W') {
        ist_store_u64(coop, word, value, order, scope);
    } else if (kind == 'R') {
        litmus_result(thread, ist_load_u64(coop, word, order, scope));
    } else if (kind == 'A') {
        litmus_result(thread, ist_fetch_add_u64(coop, word, value, order, scope));
    } else if (kind == 'E') {
        (void)ist_coop_wait_word(coop, NULL, word, value, thread->deadline_ns, scope);
    } else if (kind == 'B') {
        ist_row_fill(coop, word, (uint8_t)value, 8);
    } else {
        uint64_t *copy = ist_coop_scratch(coop, 0, 8);
        ist_row_copy(coop, copy, word, 8);
        litmus_result(thread, *copy & 0xffu);
    }
}

static inline void litmus_network(const litmus_thread *thread, char kind, litmus_text *text)
{
    ist_coop *coop = thread->coop;
    const ist_dev_comm *dev = thread->args->dev;
    uint32_t context = litmus_number(text);
    (void)litmus_take(text, '>');
    if (kind == 'G') {
        uint32_t peer = litmus_number(text);
        ist_gin_signal(coop, dev, context, peer, litmus_action(text));
        return;
    }
    litmus_place to = litmus_place_of(text, dev->rank);
    uint32_t to_window = to.window ? thread->args->window : 0;
    if (kind == 'V') {
        (void)litmus_take(text, '=');
        uint32_t value = litmus_number(text);
        ist_gin_put_value(coop, dev, context, to.rank, to_window, to.offset, value,
                          litmus_action(text));
        return;
    }
    (void)litmus_take(text, '<');
    litmus_place from = litmus_place_of(text, dev->rank);
    ist_gin_action action = litmus_action(text);
    uint32_t counter = litmus_take(text, '#') ? litmus_number(text) : IST_GIN_NO_COUNTER;
    ist_gin_put(coop, dev, context, to.rank, to_window, to.offset,
                from.window ? thread->args->window : 0, from.offset, 8, action, counter);
}

static inline void litmus_signal(const litmus_thread *thread, char kind, litmus_text *text)
{
    ist_coop *coop = thread->coop;
    const ist_dev_comm *dev = thread->args->dev;
    uint32_t context = litmus_number(text);
    (void)litmus_take(text, '.');
    uint32_t number = litmus_number(text);
    ist_order order;
    ist_scope scope;
    if (kind == 'Q') {
        litmus_order(text, &order, &scope);
        litmus_result(thread, ist_gin_signal_read(coop, dev, context, number, order));
        return;
    }
    (void)litmus_take(text, '>');
    uint64_t least = litmus_number(text);
    if (kind == 'T') {
        (void)ist_gin_signal_wait(coop, dev, context, number, least, thread->deadline_ns);
    } else {
        (void)ist_gin_counter_wait(coop, dev, context, number, least, thread->deadline_ns);
    }
}

static inline void litmus_step(const litmus_thread *thread, char kind, litmus_text *text)
{
    ist_coop *coop = thread->coop;
    const ist_dev_comm *dev = thread->args->dev;
    ist_order order;
    ist_scope scope;
    switch (kind) {
    case 'F':
        litmus_order(text, &order, &scope);
        ist_fence(coop, order, scope);
        break;
    case 'Y': ist_coop_sync(coop); break;
    case 'Z':
        (void)ist_lsa_barrier_sync(coop, dev, litmus_number(text), thread->deadline_ns, NULL);
        break;
    case 'z': ist_lsa_barrier_arrive(coop, dev, litmus_number(text)); break;
    case 'y':
        (void)ist_lsa_barrier_wait(coop, dev, litmus_number(text), thread->deadline_ns, NULL);
        break;
    case 'L': (void)ist_gin_flush(coop, dev, litmus_number(text), thread->deadline_ns); break;
    case 'P':
    case 'V':
    case 'G': litmus_network(thread, kind, text); break;
    case 'Q':
    case 'T':
    case 'K': litmus_signal(thread, kind, text); break;
    default: litmus_word(thread, kind, text); break;
    }
}

IST_KERNEL(litmus, litmus_args)
{
    const litmus_case *which = args->run->which;
    for (uint32_t i = 0; i < LITMUS_THREADS && which->threads[i] != NULL; ++i) {
        litmus_text text = {which->threads[i]};
        uint32_t rank = litmus_number(&text);
        (void)litmus_take(&text, '.');
        if (rank != args->dev->rank || litmus_number(&text) != ist_coop_block(coop)) {
            continue;
        }
        litmus_thread thread = {coop, args, i, ist_clock_ns(coop) + 1000000u};
        while (litmus_peek(&text) != '\0') {
            char kind = litmus_next(&text);
            if (kind == '?' && litmus_last(&thread) != litmus_number(&text)) {
                break;
            }
            if (kind != ';' && kind != ' ' && kind != ':' && kind != '?') {
                litmus_step(&thread, kind, &text);
            }
        }
    }
}

/* ---- the world ------------------------------------------------------------------------------- */

static inline uint32_t litmus_blocks(const litmus_case *which, uint32_t rank)
{
    uint32_t blocks = 1;
    for (uint32_t i = 0; i < LITMUS_THREADS && which->threads[i] != NULL; ++i) {
        litmus_text text = {which->threads[i]};
        uint32_t of = litmus_number(&text);
        (void)litmus_take(&text, '.');
        uint32_t block = litmus_number(&text);
        blocks = of == rank && block >= blocks ? block + 1u : blocks;
    }
    return blocks;
}

static inline ist_status litmus_main(ist_world *world, void *arg)
{
    litmus_run *run = arg;
    uint32_t rank = ist_world_rank(world);
    ist_comm *comm = NULL;
    ist_stream *stream = NULL;
    const ist_dev_comm *dev = NULL;
    const ist_dev_comm *meeting = NULL;
    void *memory = NULL;
    ist_window *window = NULL;
    if (rank == 0) { /* runs that a search cuts short leave results behind */
        memset(run->count, 0, sizeof(run->count));
    }
    IST_TEST_PASS_ON(ist_comm_open(world, NULL, &comm));
    IST_TEST_PASS_ON(ist_stream_open(world, &stream));
    IST_TEST_PASS_ON(ist_mem_alloc(world, LITMUS_WINDOW_BYTES, IST_MEM_SYMMETRIC, &memory));
    IST_TEST_PASS_ON(ist_fill(stream, memory, 0, LITMUS_WINDOW_BYTES));
    IST_TEST_PASS_ON(ist_stream_sync(stream, 0));
    IST_TEST_PASS_ON(ist_window_open(comm, memory, LITMUS_WINDOW_BYTES, &window));
    IST_TEST_PASS_ON(ist_dev_comm_open(comm, LITMUS_WINDOW_BYTES, 2, 4, 4, 2, &dev));
    litmus_args args = {.dev = dev, .run = run, .window = ist_window_index(window)};
    IST_TEST_PASS_ON(ist_launch(stream, &ist_kernel_litmus, litmus_blocks(run->which, rank), &args,
                                sizeof(args)));
    IST_TEST_PASS_ON(ist_stream_sync(stream, 0));
    /* A window is closed when all are done with it: another collective call is a meeting. */
    IST_TEST_PASS_ON(ist_dev_comm_open(comm, 0, 0, 0, 0, 0, &meeting));
    IST_TEST_PASS_ON(ist_dev_comm_close(comm, meeting));
    IST_TEST_PASS_ON(ist_window_close(window));
    IST_TEST_PASS_ON(ist_mem_free(world, memory));
    IST_TEST_PASS_ON(ist_dev_comm_close(comm, dev));
    IST_TEST_PASS_ON(ist_stream_close(stream));
    return ist_comm_close(comm);
}

/* ---- judging --------------------------------------------------------------------------------- */

typedef struct litmus_seen {
    const litmus_case *which;
    litmus_run run;
    char outcomes[LITMUS_OUTCOMES][LITMUS_THREADS * LITMUS_RESULTS + 1u];
    uint32_t outcome_count;
    uint32_t findings[IST_FINDING_LEAK + 1];
    char text[2048]; /* of the first finding that is not expected */
    uint32_t failures;
} litmus_seen;

/* Which of two unordered accesses comes first is chance. */
static inline ist_finding_kind litmus_family(ist_finding_kind kind)
{
    return kind == IST_FINDING_REUSED ? IST_FINDING_RACE : kind;
}

static inline void litmus_note(litmus_seen *seen, const ist_explore_report *report)
{
    char outcome[LITMUS_THREADS * LITMUS_RESULTS + 1u];
    uint32_t used = 0;
    for (uint32_t i = 0; i < LITMUS_THREADS; ++i) {
        for (uint32_t k = 0; k < seen->run.count[i]; ++k) {
            outcome[used++] = (char)('0' + seen->run.results[i][k] % 10u);
        }
    }
    if (used == 0) {
        outcome[used++] = '-';
    }
    outcome[used] = '\0';
    uint32_t at = 0;
    while (at < seen->outcome_count && strcmp(seen->outcomes[at], outcome) != 0) {
        ++at;
    }
    if (at == seen->outcome_count && at < LITMUS_OUTCOMES) {
        memcpy(seen->outcomes[seen->outcome_count++], outcome, used + 1u);
    }
    ++seen->findings[litmus_family(report->finding.kind)];
    if (report->finding.kind != IST_FINDING_NONE &&
        litmus_family(report->finding.kind) !=
            litmus_family((ist_finding_kind)seen->which->finding) &&
        seen->text[0] == '\0') {
        (void)snprintf(seen->text, sizeof(seen->text), "%s", report->finding.text);
    }
}

static inline void litmus_clear(litmus_seen *seen)
{
    memset(&seen->run, 0, sizeof(seen->run));
    seen->run.which = seen->which;
}

static inline void litmus_fail(litmus_seen *seen, const char *way, const char *format,
                               const char *value)
{
    print_error("litmus %s (%s): ", seen->which->name, way);
    print_error(format, value);
    print_error("\n");
    ++seen->failures;
}

static inline bool litmus_listed(const char *list, const char *outcome)
{
    size_t bytes = strlen(outcome);
    for (const char *at = list; (at = strstr(at, outcome)) != NULL; at += bytes) {
        if ((at == list || at[-1] == ' ') && (at[bytes] == ' ' || at[bytes] == '\0')) {
            return true;
        }
    }
    return false;
}

/* Everything that appeared is allowed; everything that is allowed appeared, if `all`. */
static inline void litmus_judge(litmus_seen *seen, const char *way, bool all)
{
    const litmus_case *which = seen->which;
    for (uint32_t i = 0; i < seen->outcome_count; ++i) {
        if (!litmus_listed(which->allowed, seen->outcomes[i])) {
            litmus_fail(seen, way, "outcome %s appeared and is forbidden", seen->outcomes[i]);
        }
    }
    char wanted[64];
    for (const char *at = which->allowed; all && *at != '\0';) {
        size_t bytes = strcspn(at, " ");
        (void)snprintf(wanted, sizeof(wanted), "%.*s", (int)bytes, at);
        bool found = false;
        for (uint32_t i = 0; i < seen->outcome_count; ++i) {
            found = found || strcmp(seen->outcomes[i], wanted) == 0;
        }
        if (!found) {
            litmus_fail(seen, way, "outcome %s is allowed and never appeared", wanted);
        }
        at += bytes + (at[bytes] == ' ');
    }
    if (seen->text[0] != '\0') {
        litmus_fail(seen, way, "a finding that is not expected:\n%s", seen->text);
    }
    if (which->finding != 0 &&
        seen->findings[litmus_family((ist_finding_kind)which->finding)] == 0 && all) {
        litmus_fail(seen, way, "nothing was found, expected: %s",
                    ist_finding_name((ist_finding_kind)which->finding));
    }
}

static inline uint32_t litmus_sample(const litmus_case *which, const char *way,
                                     const ist_explore_desc *explore, uint32_t runs, bool all)
{
    litmus_seen *seen = calloc(1, sizeof(*seen));
    if (seen == NULL) {
        return 1;
    }
    seen->which = which;
    ist_world_desc desc = {.size = sizeof(desc), .rank_count = which->ranks};
    ist_explore_report report = {.size = sizeof(report)};
    for (uint32_t i = 0; i < runs; ++i) {
        litmus_clear(seen);
        desc.seed = ist_test_seed() + i;
        (void)ist_explore_run(&desc, litmus_main, &seen->run, explore, &report);
        litmus_note(seen, &report);
    }
    litmus_judge(seen, way, all);
    uint32_t failures = seen->failures;
    free(seen);
    return failures;
}

static inline int litmus_each(void *context, ist_status status, const ist_explore_report *report)
{
    litmus_seen *seen = context;
    (void)status;
    litmus_note(seen, report);
    litmus_clear(seen);
    return 0;
}

typedef ist_explore_all_result litmus_search_result;

/* Every schedule of seen->which; what appears is in `seen`. */
static inline void litmus_explore(litmus_seen *seen, uint64_t run_count_max, uint32_t brute_force,
                                  litmus_search_result *result)
{
    memset(result, 0, sizeof(*result));
    result->size = sizeof(*result);
    litmus_clear(seen);
    ist_world_desc desc = {.size = sizeof(desc), .rank_count = seen->which->ranks};
    ist_explore_all_desc all = {
        .size = sizeof(all),
        .run_count_max = run_count_max,
        .brute_force = brute_force,
        .explore = {.size = sizeof(all.explore), .options = IST_EXPLORE_GO_ON},
        .each = litmus_each,
        .context = seen};
    (void)ist_explore_all(&desc, litmus_main, &seen->run, &all, result);
}

static inline uint32_t litmus_search_into(const litmus_case *which, uint64_t run_count_max,
                                          uint32_t brute_force, litmus_search_result *result)
{
    litmus_seen *seen = calloc(1, sizeof(*seen));
    if (seen == NULL) {
        memset(result, 0, sizeof(*result));
        return 1;
    }
    seen->which = which;
    litmus_explore(seen, run_count_max, brute_force, result);
    print_message("%-60s %8llu executions, %8llu runs%s%s\n", which->name,
                  (unsigned long long)result->executions, (unsigned long long)result->runs,
                  brute_force ? ", brute force" : "", result->complete ? "" : ", not complete");
    litmus_judge(seen, brute_force ? "brute force" : "exhaustive", true);
    uint32_t failures = seen->failures + (result->complete ? 0 : 1);
    free(seen);
    return failures;
}

/* Every schedule. */
static inline uint32_t litmus_search(const litmus_case *which, uint64_t run_count_max,
                                     uint32_t brute_force)
{
    litmus_search_result result;
    return litmus_search_into(which, run_count_max, brute_force, &result);
}

#define LITMUS_RANDOM_RUNS 1600u
#define LITMUS_SEARCH_RUNS 200000u

/* Both directions of a table; each entry by chance. */
static inline uint32_t litmus_check(const litmus_case *cases, uint32_t count)
{
    uint32_t failures = 0;
    /* Programs free their memory under puts that nobody waits for: that is not the question here. */
    ist_explore_desc random = {.size = sizeof(random),
                               .scheduler = IST_SCHEDULER_RANDOM,
                               .detectors_off = IST_DETECTOR(IST_FINDING_OUTSIDE),
                               .options = IST_EXPLORE_GO_ON};
    ist_explore_desc pct = random;
    pct.scheduler = IST_SCHEDULER_PCT;
    pct.steps = 64;
    for (uint32_t i = 0; i < count; ++i) {
        failures += litmus_search(&cases[i], LITMUS_SEARCH_RUNS, 0);
        failures += litmus_sample(&cases[i], "random", &random, LITMUS_RANDOM_RUNS, true);
        failures += litmus_sample(&cases[i], "pct", &pct, LITMUS_RANDOM_RUNS / 4u, false);
    }
    return failures;
}

#define LITMUS_COUNT(cases) ((uint32_t)(sizeof(cases) / sizeof((cases)[0])))

#endif
