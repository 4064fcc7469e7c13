/* SPDX-License-Identifier: Apache-2.0 */
/* A sweep as curves: time over size, both logarithmic, one curve a scene. Hand-written SVG 1.1; its
 * numbers are whole, so the picture is the same everywhere.
 */
#include "cli_whatif.h"

#include <inttypes.h>
#include <string.h>

#define WIDTH 840
#define HEIGHT 480
#define LEFT 90
#define RIGHT 20
#define TOP 40
#define BOTTOM 60

static const char *const colours[] = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd",
                                      "#ff7f0e", "#17becf", "#8c564b", "#7f7f7f"};

typedef struct axis {
    uint64_t low, high; /* of 256 * log2 */
} axis;

/* 256 * log2 of a value above 0: the characteristic, then eight squarings for the digits. */
static uint64_t log2_256(uint64_t value)
{
    uint64_t whole = 0;
    while (value >> whole > 1) {
        ++whole;
    }
    uint64_t x = whole >= 31 ? value >> (whole - 31) : value << (31 - whole); /* 1.31 */
    uint64_t digits = 0;
    for (uint32_t i = 0; i < 8; ++i) {
        x = x * x >> 31;
        digits <<= 1;
        if (x >> 32 != 0) {
            x >>= 1;
            digits |= 1;
        }
    }
    return whole * 256 + digits;
}

static uint64_t place(uint64_t value, axis along, uint64_t from, uint64_t length)
{
    const uint64_t span = along.high > along.low ? along.high - along.low : 1;
    const uint64_t at = log2_256(value);
    return from + (at > along.low ? at - along.low : 0) * length / span;
}

static uint64_t x_of(uint64_t value, axis along)
{
    return place(value, along, LEFT, WIDTH - LEFT - RIGHT);
}

static uint64_t y_of(uint64_t value, axis along)
{
    return HEIGHT - BOTTOM + TOP - place(value, along, TOP, HEIGHT - TOP - BOTTOM);
}

static void widen(axis *along, uint64_t value)
{
    const uint64_t at = log2_256(value);
    along->low = at < along->low ? at : along->low;
    along->high = at > along->high ? at : along->high;
}

static void append_escaped(cli_text *text, const char *words)
{
    for (; *words != '\0'; ++words) {
        switch (*words) {
        case '<': cli_text_append(text, "&lt;"); break;
        case '>': cli_text_append(text, "&gt;"); break;
        case '&': cli_text_append(text, "&amp;"); break;
        case '"': cli_text_append(text, "&quot;"); break;
        default:
            if ((unsigned char)*words >= ' ') {
                cli_text_append(text, "%c", *words);
            }
        }
    }
}

static void append_times(cli_text *text, axis times)
{
    for (uint64_t ps = 1; ps < UINT64_MAX / 10; ps *= 10) {
        if (log2_256(ps) < times.low || log2_256(ps) > times.high) {
            continue;
        }
        char label[24];
        cli_whatif_time(ps, label);
        const uint64_t y = y_of(ps, times);
        cli_text_append(text,
                        "<line x1=\"%d\" y1=\"%" PRIu64 "\" x2=\"%d\" y2=\"%" PRIu64
                        "\" stroke=\"#dddddd\"/>\n<text x=\"%d\" y=\"%" PRIu64
                        "\" text-anchor=\"end\">%s</text>\n",
                        LEFT, y, WIDTH - RIGHT, y, LEFT - 6, y + 4, label);
    }
}

static void append_steps(cli_text *text, const cli_question *question, axis steps)
{
    const uint32_t every = question->step_count / 8 + 1;
    for (uint32_t i = 0; i < question->step_count; i += every) {
        const uint64_t x = x_of(question->step[i], steps);
        cli_text_append(text,
                        "<line x1=\"%" PRIu64 "\" y1=\"%d\" x2=\"%" PRIu64
                        "\" y2=\"%d\" stroke=\"#dddddd\"/>\n<text x=\"%" PRIu64
                        "\" y=\"%d\" text-anchor=\"middle\">%" PRIu64 "</text>\n",
                        x, TOP, x, HEIGHT - BOTTOM, x, HEIGHT - BOTTOM + 18, question->step[i]);
    }
}

static void append_curve(cli_text *text, const cli_question *question, const cli_answer *answers,
                         uint32_t scene, axis steps, axis times)
{
    const char *colour = colours[scene % (sizeof colours / sizeof *colours)];
    cli_text_append(text, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"3\" points=\"",
                    colour);
    for (uint32_t step = 0; step < question->step_count; ++step) {
        const cli_answer *answer = &answers[step * question->scene_count + scene];
        if (answer->there) {
            cli_text_append(text, "%" PRIu64 ",%" PRIu64 " ", x_of(question->step[step], steps),
                            y_of(answer->estimate.total_ps + 1, times));
        }
    }
    cli_text_append(text, "\"/>\n<rect x=\"%d\" y=\"%u\" width=\"14\" height=\"4\" fill=\"%s\"/>\n",
                    LEFT + 12, TOP + 12 + scene * 18, colour);
    cli_text_append(text, "<text x=\"%d\" y=\"%u\">", LEFT + 32, TOP + 18 + scene * 18);
    append_escaped(text, scene == 0 ? "as described" : question->scene_text[scene]);
    cli_text_append(text, "</text>\n");
}

void cli_whatif_svg(const cli_question *question, const cli_answer *answers, cli_text *text)
{
    axis steps = {UINT64_MAX, 0};
    axis times = {UINT64_MAX, 0};
    for (uint32_t i = 0; i < question->step_count; ++i) {
        widen(&steps, question->step[i]);
        for (uint32_t scene = 0; scene < question->scene_count; ++scene) {
            const cli_answer *answer = &answers[i * question->scene_count + scene];
            if (answer->there) {
                widen(&times, answer->estimate.total_ps + 1);
            }
        }
    }
    cli_text_append(text,
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                    "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\">\n"
                    "<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n",
                    WIDTH, HEIGHT, WIDTH, HEIGHT, WIDTH, HEIGHT);
    if (times.low <= times.high) {
        append_times(text, times);
        append_steps(text, question, steps);
        for (uint32_t scene = 0; scene < question->scene_count; ++scene) {
            append_curve(text, question, answers, scene, steps, times);
        }
    }
    cli_text_append(text,
                    "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n"
                    "<text x=\"%d\" y=\"%d\">time</text>\n</svg>\n",
                    (WIDTH + LEFT) / 2, HEIGHT - 16, cli_whatif_sweep(question->sweep), LEFT - 60,
                    TOP - 14);
}
