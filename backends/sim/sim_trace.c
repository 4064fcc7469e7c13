/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trace writer: one walk over the kept events, one line of JSON each or more. Format: "Trace
 * Event Format" (Chrome, public document), the part that Perfetto reads.
 *
 * Kernels, and waits of several blocks, overlap on a rank, while slices of a track must nest; so a
 * slice takes the lowest lane of its rank that is free, and each lane is a track.
 */
#include "sim_trace.h"

#include <errno.h>
#include <inttypes.h>
#include <isthmus/backend.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Track numbers of a rank; lanes follow, number by number. */
enum {
    TRACK_HOST = 1,
    TRACK_PUTS,
    TRACK_ARRIVALS,
    TRACK_DEVICE,
    TRACK_FAULTS,
    TRACK_KERNELS = 100,
    TRACK_WAITS = 100000
};

enum { LANES_KERNELS, LANES_WAITS, LANES_KINDS };

/* One track of slices that do not overlap. */
typedef struct trace_lane {
    struct trace_lane *next; /* the rank's next higher lane */
    uint64_t key[2];         /* what its open slice is recognised by */
    uint32_t track;
    bool open;
} trace_lane;

/* A put on its way. Those of a bucket are chained in the order of issue. */
typedef struct trace_put {
    const ist_sim_event *event;
    uint32_t next; /* into puts, NO_PUT at the end */
} trace_put;

#define NO_PUT UINT32_MAX

/* Puts of some pairs of ranks, oldest first. */
typedef struct trace_bucket {
    uint32_t head, tail;
} trace_bucket;

typedef struct trace {
    const sim_log *log;
    FILE *file;
    uint32_t rank_count;
    trace_lane **lanes; /* (rank_count + 1) x LANES_KINDS; the last rank is the world itself */
    trace_put *puts;
    trace_bucket *buckets;
    uint32_t bucket_mask; /* their number less 1; a power of two less 1 */
    uint32_t put_count;
    uint64_t flow_count;
    uint64_t end_ps;
    bool begun; /* a line was written */
    bool world_named;
} trace;

/* ------------------------------------------------------------------------------ lines */

/* Holds a name of 255 bytes, all escaped, and everything else a line has. */
typedef struct trace_line {
    char text[2048];
    size_t used;
} trace_line;

__attribute__((format(printf, 2, 3))) static void add(trace_line *line, const char *format, ...)
{
    const size_t room = sizeof line->text - line->used;
    va_list arguments;
    va_start(arguments, format);
    const int bytes = vsnprintf(line->text + line->used, room, format, arguments);
    va_end(arguments);
    if (bytes > 0) {
        line->used += (size_t)bytes < room ? (size_t)bytes : room - 1;
    }
}

static void add_escaped(trace_line *line, const char *text)
{
    for (; *text != '\0'; text++) {
        const unsigned char byte = (unsigned char)*text;
        if (byte == '"' || byte == '\\') {
            add(line, "\\%c", byte);
        } else if (byte < 0x20 || byte > 0x7e) {
            add(line, "\\u%04x", byte);
        } else {
            add(line, "%c", byte);
        }
    }
}

/* JSON numbers above 2^63 are not read everywhere. */
static void add_number(trace_line *line, const char *key, uint64_t value)
{
    add(line, value <= INT64_MAX ? "\"%s\":%" PRIu64 : "\"%s\":\"%" PRIu64 "\"", key, value);
}

static void add_time(trace_line *line, const char *key, uint64_t ps)
{
    add(line, "\"%s\":%" PRIu64 ".%06u", key, ps / 1000000, (unsigned)(ps % 1000000));
}

static void trace_emit(trace *out, const trace_line *line)
{
    (void)fputs(out->begun ? ",\n" : "\n", out->file);
    (void)fwrite(line->text, 1, line->used, out->file);
    out->begun = true;
}

/* Processes count from 1: viewers give process 0 a meaning of its own. */
static uint32_t rank_slot(const trace *out, int32_t rank)
{
    return rank >= 0 && (uint32_t)rank < out->rank_count ? (uint32_t)rank : out->rank_count;
}

static trace_line line_begin(const trace *out, const char *phase, int32_t rank, uint32_t track)
{
    trace_line line;
    line.used = 0;
    add(&line, "{\"ph\":\"%s\",\"pid\":%u,\"tid\":%u", phase, rank_slot(out, rank) + 1, track);
    return line;
}

static void line_name(trace_line *line, const char *name)
{
    add(line, ",\"name\":\"");
    add_escaped(line, name);
    add(line, "\"");
}

static void line_at(trace_line *line, uint64_t at_ps)
{
    add(line, ",");
    add_time(line, "ts", at_ps);
}

static void line_args(trace_line *line, const ist_sim_event *event)
{
    add(line, ",\"args\":{\"peer\":%d,\"detail\":%u,", (int)event->peer, event->detail);
    add_number(line, "value", event->value);
    add(line, "}}");
}

/* ------------------------------------------------------------------------------ metadata */

static void emit_track_name(trace *out, int32_t rank, uint32_t track, const char *name)
{
    trace_line line = line_begin(out, "M", rank, track);
    add(&line, ",\"name\":\"thread_name\",\"args\":{\"name\":\"%s\"}}", name);
    trace_emit(out, &line);
    line = line_begin(out, "M", rank, track);
    add(&line, ",\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":%u}}", track);
    trace_emit(out, &line);
}

static void emit_process_name(trace *out, int32_t rank, const char *name)
{
    trace_line line = line_begin(out, "M", rank, 0);
    add(&line, ",\"name\":\"process_name\",\"args\":{\"name\":\"%s\"}}", name);
    trace_emit(out, &line);
    line = line_begin(out, "M", rank, 0);
    add(&line, ",\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%u}}",
        rank_slot(out, rank));
    trace_emit(out, &line);
    emit_track_name(out, rank, TRACK_HOST, "host");
    emit_track_name(out, rank, TRACK_PUTS, "puts");
    emit_track_name(out, rank, TRACK_ARRIVALS, "arrivals");
    emit_track_name(out, rank, TRACK_DEVICE, "device");
    emit_track_name(out, rank, TRACK_FAULTS, "faults");
}

static void emit_ranks(trace *out)
{
    for (uint32_t rank = 0; rank < out->rank_count; rank++) {
        char name[24];
        (void)snprintf(name, sizeof name, "rank %u", rank);
        emit_process_name(out, (int32_t)rank, name);
    }
}

/* ------------------------------------------------------------------------------ instants */

static const char *const kind_texts[] = {
#define X(name, value, text) [value] = text,
    IST_SIM_EVENT_LIST(X)
#undef X
};

static const char *const fault_texts[] = {
#define X(name, value, json) [value] = json,
    IST_FAULT_LIST(X)
#undef X
};

static const char *const op_texts[] = {
#define X(op, parameters, arguments, need) #op,
    IST_BACKEND_OPS(X)
#undef X
};

static const char *text_or_unknown(const char *const *texts, size_t count, uint32_t index)
{
    return index < count && texts[index] != NULL ? texts[index] : "unknown";
}

#define TEXT_OF(texts, index) text_or_unknown(texts, sizeof(texts) / sizeof(texts)[0], index)

/* scope: "t" marks the track, "p" the whole rank. */
static void emit_instant(trace *out, const ist_sim_event *event, uint32_t track, const char *scope,
                         const char *name)
{
    trace_line line = line_begin(out, "i", event->rank, track);
    add(&line, ",\"s\":\"%s\"", scope);
    line_name(&line, name);
    line_at(&line, event->at_ps);
    line_args(&line, event);
    trace_emit(out, &line);
}

static void emit_kind(trace *out, const ist_sim_event *event, uint32_t track)
{
    emit_instant(out, event, track, "t", TEXT_OF(kind_texts, event->kind));
}

/* A name that the log no longer knows appears as its hash. */
static const char *hashed_name(const trace *out, uint32_t hash, char *buffer, size_t bytes)
{
    const char *name = sim_log_name_of(out->log, hash);
    if (name != NULL) {
        return name;
    }
    (void)snprintf(buffer, bytes, "0x%08x", hash);
    return buffer;
}

/* ------------------------------------------------------------------------------ slices */

static trace_lane *lane_open(const trace *out, int32_t rank, uint32_t lanes, const uint64_t key[2])
{
    trace_lane *lane = out->lanes[(size_t)rank_slot(out, rank) * LANES_KINDS + lanes];
    while (lane != NULL && (!lane->open || lane->key[0] != key[0] || lane->key[1] != key[1])) {
        lane = lane->next;
    }
    return lane;
}

/* The lowest free lane, a new one if need be; NULL when memory is short. */
static trace_lane *lane_take(trace *out, int32_t rank, uint32_t lanes)
{
    trace_lane **link = &out->lanes[(size_t)rank_slot(out, rank) * LANES_KINDS + lanes];
    uint32_t number = 0;
    for (; *link != NULL && (*link)->open; link = &(*link)->next) {
        number++;
    }
    if (*link != NULL) {
        return *link;
    }
    trace_lane *lane = ist_alloc(1, sizeof *lane);
    if (lane == NULL) {
        return NULL;
    }
    char name[24];
    (void)snprintf(name, sizeof name, "%s %u", lanes == LANES_KERNELS ? "kernels" : "waits",
                   number);
    lane->track = (lanes == LANES_KERNELS ? TRACK_KERNELS : TRACK_WAITS) + number;
    emit_track_name(out, rank, lane->track, name);
    *link = lane;
    return lane;
}

static ist_status slice_begin(trace *out, const ist_sim_event *event, uint32_t lanes,
                              uint64_t key_0, uint64_t key_1, const char *name)
{
    trace_lane *lane = lane_take(out, event->rank, lanes);
    if (lane == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for the trace's tracks of rank %d",
                         (int)event->rank);
    }
    lane->open = true;
    lane->key[0] = key_0;
    lane->key[1] = key_1;
    trace_line line = line_begin(out, "B", event->rank, lane->track);
    line_name(&line, name);
    line_at(&line, event->at_ps);
    line_args(&line, event);
    trace_emit(out, &line);
    return IST_OK;
}

/* `event` NULL: the slice is cut off. */
static void lane_close(trace *out, int32_t rank, trace_lane *lane, uint64_t at_ps,
                       const ist_sim_event *event)
{
    trace_line line = line_begin(out, "E", rank, lane->track);
    line_at(&line, at_ps);
    if (event != NULL) {
        line_args(&line, event);
    } else {
        add(&line, ",\"args\":{\"cut\":1}}");
    }
    trace_emit(out, &line);
    lane->open = false;
}

/* An end whose begin is no longer kept, or was cut off when its rank died, is left out. */
static void slice_end(trace *out, const ist_sim_event *event, uint32_t lanes, uint64_t key_0,
                      uint64_t key_1)
{
    const uint64_t key[2] = {key_0, key_1};
    trace_lane *lane = lane_open(out, event->rank, lanes, key);
    if (lane != NULL) {
        lane_close(out, event->rank, lane, event->at_ps, event);
    }
}

static void slices_cut(trace *out, int32_t rank, uint64_t at_ps)
{
    for (uint32_t lanes = 0; lanes < LANES_KINDS; lanes++) {
        trace_lane *lane = out->lanes[(size_t)rank_slot(out, rank) * LANES_KINDS + lanes];
        for (; lane != NULL; lane = lane->next) {
            if (lane->open) {
                lane_close(out, rank, lane, at_ps, NULL);
            }
        }
    }
}

/* ------------------------------------------------------------------------------ puts */

static bool puts_match(const ist_sim_event *put, const ist_sim_event *done)
{
    return put->rank == done->peer && put->peer == done->rank && put->detail == done->detail &&
           put->value == done->value;
}

static trace_bucket *put_bucket(const trace *out, int32_t src, int32_t dst)
{
    const uint32_t hash = (uint32_t)src * 0x9e3779b1u ^ (uint32_t)dst * 0x85ebca77u;
    return &out->buckets[hash >> 7 & out->bucket_mask];
}

static void put_append(trace *out, const ist_sim_event *event)
{
    trace_bucket *bucket = put_bucket(out, event->rank, event->peer);
    const uint32_t number = out->put_count++;
    out->puts[number] = (trace_put){event, NO_PUT};
    if (bucket->head == NO_PUT) {
        bucket->head = number;
    } else {
        out->puts[bucket->tail].next = number;
    }
    bucket->tail = number;
}

/* Takes the oldest put that `done` may complete; NULL if there is none. */
static const ist_sim_event *put_take(trace *out, const ist_sim_event *done)
{
    trace_bucket *bucket = put_bucket(out, done->peer, done->rank);
    uint32_t before = NO_PUT;
    uint32_t number = bucket->head;
    while (number != NO_PUT && !puts_match(out->puts[number].event, done)) {
        before = number;
        number = out->puts[number].next;
    }
    if (number == NO_PUT) {
        return NULL;
    }
    const uint32_t next = out->puts[number].next;
    *(before == NO_PUT ? &bucket->head : &out->puts[before].next) = next;
    bucket->tail = next == NO_PUT ? before : bucket->tail;
    return out->puts[number].event;
}

/* A short slice, so that an arrow has ends to hold on to. */
static void emit_put_slice(trace *out, const ist_sim_event *event, uint32_t track, const char *word)
{
    char name[32];
    (void)snprintf(name, sizeof name, "put %s %d", word, (int)event->peer);
    trace_line line = line_begin(out, "X", event->rank, track);
    line_name(&line, name);
    line_at(&line, event->at_ps);
    add(&line, ",\"dur\":0.001000");
    line_args(&line, event);
    trace_emit(out, &line);
}

static void emit_flow(trace *out, const ist_sim_event *event, uint32_t track, const char *phase)
{
    trace_line line = line_begin(out, phase, event->rank, track);
    add(&line, ",\"cat\":\"put\",\"bp\":\"e\",\"id\":%" PRIu64, out->flow_count);
    line_name(&line, "put");
    line_at(&line, event->at_ps);
    add(&line, "}");
    trace_emit(out, &line);
}

static void trace_put_issued(trace *out, const ist_sim_event *event)
{
    emit_put_slice(out, event, TRACK_PUTS, "to");
    put_append(out, event);
}

/* A duplicate has no arrow, nor has an arrival whose put is no longer kept. */
static void trace_put_arrived(trace *out, const ist_sim_event *event)
{
    emit_put_slice(out, event, TRACK_ARRIVALS, "from");
    const ist_sim_event *put = put_take(out, event);
    if (put != NULL) {
        out->flow_count++;
        emit_flow(out, put, TRACK_PUTS, "s");
        emit_flow(out, event, TRACK_ARRIVALS, "f");
    }
}

/* ------------------------------------------------------------------------------ the walk */

static void trace_fault(trace *out, const ist_sim_event *event)
{
    if (event->detail == IST_FAULT_KILL) {
        slices_cut(out, event->rank, event->at_ps);
    }
    emit_instant(out, event, TRACK_FAULTS, "p", TEXT_OF(fault_texts, event->detail));
}

static ist_status trace_event(trace *out, const ist_sim_event *event)
{
    char buffer[16];
    const uint64_t peer = (uint32_t)event->peer;
    switch ((ist_sim_event_kind)event->kind) {
    case IST_SIM_HOST_CALL:
        emit_instant(out, event, TRACK_HOST, "t", TEXT_OF(op_texts, event->detail));
        return IST_OK;
    case IST_SIM_LAUNCH:
    case IST_SIM_EXCHANGE:
    case IST_SIM_RANK_END: emit_kind(out, event, TRACK_HOST); return IST_OK;
    case IST_SIM_KERNEL_BEGIN:
        return slice_begin(out, event, LANES_KERNELS, event->detail, event->value,
                           hashed_name(out, event->detail, buffer, sizeof buffer));
    case IST_SIM_KERNEL_END:
        slice_end(out, event, LANES_KERNELS, event->detail, event->value);
        return IST_OK;
    case IST_SIM_WAIT: return slice_begin(out, event, LANES_WAITS, event->at_ps, peer, "wait");
    case IST_SIM_WAIT_END:
        slice_end(out, event, LANES_WAITS, event->at_ps - event->value, peer);
        return IST_OK;
    case IST_SIM_PUT: trace_put_issued(out, event); return IST_OK;
    case IST_SIM_PUT_DONE: trace_put_arrived(out, event); return IST_OK;
    case IST_SIM_SIGNAL: emit_kind(out, event, TRACK_ARRIVALS); return IST_OK;
    case IST_SIM_COPY:
    case IST_SIM_ROW:
    case IST_SIM_STORE:
    case IST_SIM_MASK: emit_kind(out, event, TRACK_DEVICE); return IST_OK;
    case IST_SIM_FAULT: trace_fault(out, event); return IST_OK;
    case IST_SIM_POINT:
        emit_instant(out, event, TRACK_DEVICE, "t",
                     hashed_name(out, event->detail, buffer, sizeof buffer));
        return IST_OK;
    }
    emit_kind(out, event, TRACK_DEVICE); /* a file of a newer library */
    return IST_OK;
}

static ist_status trace_events(trace *out)
{
    const uint64_t end = sim_log_count(out->log);
    for (uint64_t i = sim_log_first(out->log); i < end; i++) {
        const ist_sim_event *event = sim_log_at(out->log, i);
        if (rank_slot(out, event->rank) == out->rank_count && !out->world_named) {
            out->world_named = true;
            emit_process_name(out, IST_RANK_NONE, "world");
        }
        out->end_ps = event->at_ps > out->end_ps ? event->at_ps : out->end_ps;
        IST_RETURN_IF_ERROR(trace_event(out, event));
    }
    for (uint32_t rank = 0; rank <= out->rank_count; rank++) {
        slices_cut(out, (int32_t)rank, out->end_ps);
    }
    return IST_OK;
}

static ist_status trace_body(trace *out)
{
    const uint64_t count = sim_log_count(out->log);
    trace_line line = {.used = 0};
    add(&line,
        "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"ranks\":\"%u\",\"events\":\"%" PRIu64
        "\",\"kept\":\"%" PRIu64 "\",\"digest\":\"%016" PRIx64 "\"},\n\"traceEvents\":[",
        out->rank_count, count, count - sim_log_first(out->log), sim_log_digest(out->log));
    (void)fwrite(line.text, 1, line.used, out->file);
    emit_ranks(out);
    const ist_status status = trace_events(out);
    (void)fputs("\n]}\n", out->file);
    return status;
}

/* ------------------------------------------------------------------------------ memory, file */

static uint32_t puts_kept(const sim_log *log)
{
    uint32_t count = 0;
    for (uint64_t i = sim_log_first(log); i < sim_log_count(log); i++) {
        count += sim_log_at(log, i)->kind == IST_SIM_PUT ? 1u : 0u;
    }
    return count;
}

static ist_status trace_alloc(trace *out)
{
    const uint32_t put_count = puts_kept(out->log);
    uint32_t buckets = 1;
    while (buckets < put_count && buckets < 1u << 20) {
        buckets *= 2;
    }
    out->bucket_mask = buckets - 1;
    out->lanes = ist_alloc(((size_t)out->rank_count + 1) * LANES_KINDS, sizeof *out->lanes);
    out->puts = ist_alloc((size_t)put_count + 1, sizeof *out->puts);
    out->buckets = ist_alloc(buckets, sizeof *out->buckets);
    if (out->lanes == NULL || out->puts == NULL || out->buckets == NULL) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for a trace of %u ranks and %u puts",
                         out->rank_count, put_count);
    }
    memset(out->buckets, 0xff, buckets * sizeof *out->buckets);
    return IST_OK;
}

static void trace_free(trace *out)
{
    const size_t count = out->lanes == NULL ? 0 : ((size_t)out->rank_count + 1) * LANES_KINDS;
    for (size_t i = 0; i < count; i++) {
        while (out->lanes[i] != NULL) {
            trace_lane *lane = out->lanes[i];
            out->lanes[i] = lane->next;
            ist_free(lane);
        }
    }
    ist_free(out->lanes);
    ist_free(out->puts);
    ist_free(out->buckets);
}

static ist_status raise_io(const char *path, int reason)
{
    const ist_error details = {.size = sizeof details,
                               .rank = IST_RANK_NONE,
                               .peer = IST_RANK_NONE,
                               .observed = (uint64_t)reason,
                               .object = "trace",
                               .operation = "world.run"};
    return ist_raise(IST_ERR_IO, &details, "cannot write trace %.120s: %s", path,
                     reason == 0 ? "input/output error" : strerror(reason));
}

static ist_status trace_to_file(trace *out, const char *path)
{
    out->file = fopen(path, "w");
    if (out->file == NULL) {
        return raise_io(path, errno);
    }
    errno = 0;
    const ist_status status = trace_body(out);
    const bool failed = ferror(out->file) != 0;
    int reason = errno;
    if (fclose(out->file) != 0 && !failed) {
        reason = errno;
        return status != IST_OK ? status : raise_io(path, reason);
    }
    return status != IST_OK || !failed ? status : raise_io(path, reason);
}

ist_status sim_trace_write(const sim_log *log, uint32_t rank_count, const char *path)
{
    trace out = {.log = log, .rank_count = rank_count};
    ist_status status = trace_alloc(&out);
    if (status == IST_OK) {
        status = trace_to_file(&out, path);
    }
    trace_free(&out);
    return status;
}
