/* SPDX-License-Identifier: Apache-2.0 */
/* The readable answer: what was run, a line a step, what was lost and agreed, and how to repeat it.
 */
#include "cli.h"
#include "cli_report.h"

#include <inttypes.h>
#include <isthmus/mask.h>
#include <isthmus/version.h>
#include <stdio.h>
#include <string.h>

/* A step as the ranks saw it that reached the end. */
typedef struct step_view {
    uint32_t told;       /* ranks that took part in it */
    uint32_t incomplete; /* of them, with contributions missing */
    uint32_t surprised;  /* of those, by a rank that was counted on */
    uint32_t evicted;    /* learned that the others went on without them */
    uint32_t lost_max;
    uint32_t active;
    uint32_t readmitted;
    uint64_t generation;
    uint64_t dispatch_ns;
    uint64_t combine_ns;
    uint64_t agree_ns;
    uint64_t rows;
    uint64_t wrong;
} step_view;

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static bool was_evicted(const cli_step_report *step)
{
    return step->dispatch_status == IST_ERR_EVICTED || step->combine_status == IST_ERR_EVICTED ||
           step->agree_status == (uint32_t)-IST_ERR_EVICTED;
}

static void view_add(step_view *view, const cli_step_report *step)
{
    bool incomplete =
        step->dispatch_status == IST_INCOMPLETE || step->combine_status == IST_INCOMPLETE;
    view->rows += step->rows;
    view->wrong += step->wrong_rows;
    view->active = (uint32_t)larger(view->active, step->active_count);
    view->generation = larger(view->generation, step->generation);
    view->readmitted += step->readmit_status != UINT32_MAX ? 1 : 0;
    if (was_evicted(step)) {
        ++view->evicted;
        return;
    }
    ++view->told;
    view->incomplete += incomplete ? 1 : 0;
    view->surprised += incomplete && step->lost_now != 0 ? 1 : 0;
    view->lost_max = (uint32_t)larger(view->lost_max, step->lost_now);
    view->dispatch_ns = larger(view->dispatch_ns, step->dispatch_ns);
    view->combine_ns = larger(view->combine_ns, step->combine_ns);
    view->agree_ns = larger(view->agree_ns, step->agree_ns);
}

static void print_us(uint64_t ns)
{
    printf(" %9" PRIu64 ".%" PRIu64, ns / 1000, ns % 1000 / 100);
}

/* What happened to ranks in a step, one line each. */
static void print_notes(const step_view *view)
{
    if (view->surprised != 0) {
        printf("      %u rank%s gave nothing: the outputs of the other %u are marked incomplete\n",
               view->lost_max, view->lost_max == 1 ? "" : "s", view->surprised);
    } else if (view->incomplete != 0) {
        printf("      outputs hold all that the survivors gave, and are marked as such\n");
    }
    if (view->evicted != 0) {
        printf("      late: %u rank%s came after the others had gone on, and stopped\n",
               view->evicted, view->evicted == 1 ? "" : "s");
    }
    if (view->readmitted != 0) {
        printf("      re-admission: %u ranks go on together\n", view->active);
    }
}

static void print_step(uint32_t number, const step_view *view)
{
    const char *how = view->surprised != 0    ? "incomplete"
                      : view->incomplete != 0 ? "survivors'"
                                              : "complete";
    printf("%4u  %-10s  %5u", number, how, view->told);
    print_us(view->dispatch_ns);
    print_us(view->combine_ns);
    print_us(view->agree_ns);
    printf(" %10" PRIu64 " %6" PRIu64 " %11" PRIu64 "\n", view->rows, view->wrong,
           view->generation);
    print_notes(view);
}

static void print_steps(const cli_options *options, const cli_outcome *outcome,
                        const cli_report *reports, const uint64_t *mask_words)
{
    uint32_t shown = options->iterations < CLI_STEPS_KEPT ? options->iterations : CLI_STEPS_KEPT;
    printf("\nstep  outputs     ranks dispatch us  combine us    agree us       rows  wrong"
           "  generation\n");
    for (uint32_t number = 1; number <= shown; ++number) {
        step_view view = {0};
        for (uint32_t r = 0; r < outcome->rank_count; ++r) {
            bool counts = mask_words != NULL && ist_mask_test(mask_words, r) &&
                          reports[r].state == CLI_STATE_DONE;
            if (counts) {
                view_add(&view, &reports[r].steps[number - 1]);
            }
        }
        print_step(number, &view);
    }
    if (shown < options->iterations) {
        printf("      ... %u more steps\n", options->iterations - shown);
    }
}

static void print_head(const cli_options *options, const cli_outcome *outcome)
{
    printf("isthmus %s  ep  backend %s, %u ranks, cluster %s, seed %" PRIu64 "\n",
           ist_version_string(), outcome->backend, outcome->rank_count,
           options->cluster == NULL ? "default" : options->cluster, options->seed);
    printf("%u tokens a rank, hidden %" PRIu64 ", %s, top-%u of %u experts, %s, routing %s\n",
           options->tokens, options->hidden, cli_dtype_name(options->dtype), options->topk,
           options->experts, cli_layout_name(options->layout), options->routing.text);
}

static void print_mask(const cli_outcome *outcome)
{
    printf("\nmask    generation %" PRIu64 ", %u of %u ranks active", outcome->generation,
           outcome->rank_count - outcome->lost_count, outcome->rank_count);
    for (uint32_t i = 0; i < outcome->lost_count && i < 16; ++i) {
        printf("%s%u", i == 0 ? ", lost: " : " ", outcome->lost_ranks[i]);
    }
    printf("%s\n", outcome->lost_count > 16 ? " ..." : "");
}

int cli_outcome_print_text(const cli_options *options, const cli_outcome *outcome,
                           const cli_report *reports, const uint64_t *mask_words)
{
    print_head(options, outcome);
    print_steps(options, outcome, reports, mask_words);
    print_mask(outcome);
    printf("result  %s: %" PRIu64 " rows checked, %" PRIu64 " wrong, %" PRIu64
           " of them presented as complete\n",
           outcome->ok ? "ok" : "FAILED", outcome->rows, outcome->wrong_rows,
           outcome->unmarked_wrong_rows);
    printf("digest  %016" PRIx64 "\n", outcome->digest);
    printf("cost    virtual %" PRIu64 ".%03" PRIu64 " ms, real %.2f s, peak memory %" PRIu64
           " MiB, %" PRIu64 " events\n",
           outcome->virtual_ns / 1000000, outcome->virtual_ns / 1000 % 1000, outcome->wall_s,
           outcome->rss_bytes >> 20, outcome->event_count);
    printf("again   %s\n", outcome->replay);
    return cli_put("ep", "");
}
