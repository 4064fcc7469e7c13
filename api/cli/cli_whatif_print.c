/* SPDX-License-Identifier: Apache-2.0 */
/* Answers as text in 80 columns, and as CSV.
 */
#include "cli_whatif.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const link_texts[] = {"nvlink out", "nvlink in", "memory",     "nic out",
                                         "nic in",     "fabric",    "fixed costs"};
static const char *const kind_texts[] = {
#define X(name, value, text) [value] = text,
    IST_OP_LIST(X)
#undef X
};
static const char *const algorithm_texts[] = {
#define X(name, value, text) [value] = text,
    IST_OP_ALGORITHM_LIST(X)
#undef X
};
static const char *const confidence_texts[] = {"calibrated", "extrapolated", "default"};

const char *cli_whatif_link(uint32_t kind)
{
    return kind <= IST_LINK_KINDS ? link_texts[kind] : "?";
}

typedef struct time_unit {
    uint64_t ps;
    const char *name;
} time_unit;

void cli_whatif_time(uint64_t ps, char text[24])
{
    static const time_unit units[] = {
        {UINT64_C(1000000000000), "s"}, {1000000000, "ms"}, {1000000, "us"}, {1000, "ns"}};
    for (size_t i = 0; i < sizeof units / sizeof *units; ++i) {
        if (ps >= units[i].ps || i == 3) {
            const uint64_t tenths = (ps + units[i].ps / 20) / (units[i].ps / 10);
            (void)snprintf(text, 24, "%" PRIu64 ".%" PRIu64 " %s", tenths / 10, tenths % 10,
                           units[i].name);
            return;
        }
    }
}

static void bytes_text(uint64_t bytes, char text[24])
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    uint64_t tenths = bytes > UINT64_MAX / 10 ? UINT64_MAX : bytes * 10;
    uint32_t unit = 0;
    while (tenths >= 10000 && unit < 5) {
        tenths = (tenths + 500) / 1000;
        ++unit;
    }
    (void)snprintf(text, 24, "%" PRIu64 ".%" PRIu64 " %s", tenths / 10, tenths % 10, units[unit]);
}

/* ------------------------------------------------------------------------------------ text */

static void print_ops(const cli_answer *answer)
{
    printf("\n   operation     algorithm  stream      start        end  bound by     constants\n");
    for (uint32_t i = 0; i < answer->estimate.op_count; ++i) {
        const ist_estimate_op *op = &answer->op[i];
        char start[24];
        char end[24];
        cli_whatif_time(op->start_ps, start);
        cli_whatif_time(op->end_ps, end);
        printf("%c  %-13s %-10s %6" PRIu32 " %10s %10s  %-12s %s\n", op->critical != 0 ? '*' : ' ',
               kind_texts[op->kind], algorithm_texts[op->algorithm], op->stream, start, end,
               cli_whatif_link(op->bottleneck), confidence_texts[op->confidence]);
        printf("   by %s", op->path);
        for (uint32_t link = 0; link < IST_LINK_KINDS; ++link) {
            char bytes[24];
            const bool shown = link == IST_LINK_NVLINK_OUT || link == IST_LINK_NIC_OUT;
            bytes_text(op->bytes[link], bytes);
            if (shown && op->bytes[link] > 0) {
                printf(", %s %s", bytes, link_texts[link]);
            }
        }
        printf("\n");
    }
}

static void print_links(const ist_estimate *estimate)
{
    printf("\nlinks             bytes      links       idle  busiest\n");
    for (uint32_t i = 0; i < IST_LINK_KINDS; ++i) {
        const ist_estimate_link *link = &estimate->link[i];
        char bytes[24];
        bytes_text(link->bytes, bytes);
        if (link->link_count > 0) {
            printf("%-12s %10s %10" PRIu64 " %10" PRIu64 " %6" PRIu64 ".%" PRIu64 " %%%s\n",
                   link_texts[i], bytes, link->link_count, link->idle_count,
                   link->busiest_permille / 10, link->busiest_permille % 10,
                   i == estimate->bottleneck ? "  <- bottleneck" : "");
        }
    }
    printf("idle: %s\n", estimate->idle[0] == '\0' ? "none" : estimate->idle);
}

static void print_scenes(const cli_question *question, const cli_answer *answers)
{
    const uint64_t base = answers[0].estimate.total_ps;
    printf("\n%-34s %11s %9s  %s\n", "compared", "total", "", "bottleneck");
    for (uint32_t i = 0; i < question->scene_count; ++i) {
        const ist_estimate *estimate = &answers[i].estimate;
        const char *name = i == 0 ? "as described" : question->scene_text[i];
        char total[24];
        char change[32] = "";
        cli_whatif_time(estimate->total_ps, total);
        if (i > 0 && base > 0) {
            const bool more = estimate->total_ps >= base;
            const uint64_t off = more ? estimate->total_ps - base : base - estimate->total_ps;
            const uint64_t permille = off * 1000 / base;
            (void)snprintf(change, sizeof change, "%c%" PRIu64 ".%" PRIu64 " %%", more ? '+' : '-',
                           permille / 10, permille % 10);
        }
        printf("%-34.34s %11s %9s  %.22s\n", name, total, change,
               cli_whatif_link(estimate->bottleneck));
    }
}

void cli_whatif_print(const cli_question *question, const cli_answer *answers)
{
    const ist_estimate *estimate = &answers[0].estimate;
    char total[24];
    char serial[24];
    char memory[24];
    char limit[24];
    cli_whatif_time(estimate->total_ps, total);
    cli_whatif_time(estimate->serial_ps, serial);
    bytes_text(estimate->memory_bytes, memory);
    bytes_text(estimate->memory_limit_bytes, limit);
    printf("%" PRIu64 " ranks on %" PRIu64 " nodes: %s (%s one after the other)\n",
           estimate->rank_count, estimate->node_count, total, serial);
    printf("bottleneck %s; constants %s; buffers %s of %s%s\n",
           estimate->busiest[0] == '\0' ? "none" : estimate->busiest,
           confidence_texts[estimate->confidence], memory, limit,
           estimate->memory_bytes > estimate->memory_limit_bytes ? ": TOO MUCH" : "");
    print_ops(&answers[0]);
    print_links(estimate);
    if (question->scene_count > 1) {
        print_scenes(question, answers);
    }
}

/* ------------------------------------------------------------------------------------ CSV */

void cli_whatif_csv(const cli_question *question, const cli_answer *answers, cli_text *text)
{
    cli_text_append(text, "%s,edit,ranks,total_ps,bottleneck,busiest_permille,confidence\n",
                    cli_whatif_sweep(question->sweep));
    for (uint32_t step = 0; step < question->step_count; ++step) {
        for (uint32_t scene = 0; scene < question->scene_count; ++scene) {
            const cli_answer *answer = &answers[step * question->scene_count + scene];
            const ist_estimate *estimate = &answer->estimate;
            if (!answer->there) {
                cli_text_append(text, "%" PRIu64 ",%s,,,cannot be done,,\n", question->step[step],
                                question->scene_text[scene]);
                continue;
            }
            const uint64_t busiest = estimate->bottleneck < IST_LINK_KINDS
                                         ? estimate->link[estimate->bottleneck].busiest_permille
                                         : 0;
            cli_text_append(text, "%" PRIu64 ",%s,%" PRIu64 ",%" PRIu64 ",%s,%" PRIu64 ",%s\n",
                            question->step[step], question->scene_text[scene], estimate->rank_count,
                            estimate->total_ps, cli_whatif_link(estimate->bottleneck), busiest,
                            confidence_texts[estimate->confidence]);
        }
    }
}
