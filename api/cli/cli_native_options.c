/* SPDX-License-Identifier: Apache-2.0 */
/* Options of `isthmus bench coll` that choose native collectives: nccl-tests' letters where they mean
 * the same.
 */
#include "cli.h"
#include "cli_native.h"
#include "cli_text.h"

#include <stdio.h>
#include <string.h>

#define COMMAND "bench coll"
#define BYTES_MAX (UINT64_C(1) << 40)

/* X(ID, long name, letter or 0, takes a value) */
#define OPTION_LIST(X)                                                                             \
    X(MIN_BYTES, "minbytes", 'b', 1)                                                               \
    X(MAX_BYTES, "maxbytes", 'e', 1)                                                               \
    X(FACTOR, "stepfactor", 'f', 1)                                                                \
    X(STEP, "stepbytes", 'i', 1)                                                                   \
    X(DATATYPE, "datatype", 'd', 1)                                                                \
    X(REDUCTION, "op", 'o', 1)                                                                     \
    X(ROOT, "root", 'r', 1)                                                                        \
    X(CALLS, "calls", 0, 1)                                                                        \
    X(IN_PLACE, "in-place", 0, 0)                                                                  \
    X(ESTIMATE, "estimate", 0, 0)                                                                  \
    X(PROFILE, "profile", 0, 1)                                                                    \
    X(CSV, "csv", 0, 0)

typedef enum own_option {
#define X(id, name, letter, takes) OWN_##id,
    OPTION_LIST(X)
#undef X
        OWN_COUNT
} own_option;

static const struct {
    const char *name;
    char letter;
    bool takes;
} own[OWN_COUNT] = {
#define X(id, name, letter, takes) [OWN_##id] = {name, letter, takes},
    OPTION_LIST(X)
#undef X
};

static const struct {
    const char *name;
    ist_dtype dtype;
} dtypes[] = {{"int8", IST_I8},    {"uint8", IST_U8},      {"int32", IST_I32},
              {"uint32", IST_U32}, {"int64", IST_I64},     {"uint64", IST_U64},
              {"half", IST_F16},   {"bfloat16", IST_BF16}, {"float", IST_F32},
              {"double", IST_F64}, {"f8e4m3", IST_F8E4M3}, {"f8e5m2", IST_F8E5M2}};

static const struct {
    const char *name;
    ist_reduction reduction;
} reductions[] = {{"sum", IST_REDUCE_SUM},
                  {"prod", IST_REDUCE_PROD},
                  {"max", IST_REDUCE_MAX},
                  {"min", IST_REDUCE_MIN},
                  {"avg", IST_REDUCE_AVG}};

static const char *const calls[NATIVE_CALL_COUNT] = {
#define X(id, name) [NATIVE_##id] = name,
    NATIVE_CALL_LIST(X)
#undef X
};

const char *native_dtype_name(ist_dtype dtype)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; ++i) {
        if (dtypes[i].dtype == dtype) {
            return dtypes[i].name;
        }
    }
    return "?";
}

const char *native_reduction_name(ist_reduction reduction)
{
    for (size_t i = 0; i < sizeof reductions / sizeof *reductions; ++i) {
        if (reductions[i].reduction == reduction) {
            return reductions[i].name;
        }
    }
    return "?";
}

const char *native_call_name(uint32_t call)
{
    return call < NATIVE_CALL_COUNT ? calls[call] : "?";
}

/* A whole number with K, M or G behind it: powers of 1024, as nccl-tests has them. */
static bool read_bytes(const char *text, uint64_t *bytes)
{
    char digits[24];
    size_t length = strspn(text, "0123456789");
    uint64_t unit = 1;
    if (length == 0 || length >= sizeof digits) {
        return false;
    }
    switch (text[length]) {
    case 'G':
    case 'g': unit = UINT64_C(1) << 30; break;
    case 'M':
    case 'm': unit = UINT64_C(1) << 20; break;
    case 'K':
    case 'k': unit = 1024; break;
    default: break;
    }
    snprintf(digits, sizeof digits, "%.*s", (int)length, text);
    const char *end = text + length + (unit > 1 ? 1 : 0);
    return (*end == '\0' || strcmp(end, "B") == 0) &&
           cli_parse_number(digits, 0, BYTES_MAX / unit, bytes) && (*bytes *= unit, true);
}

static int take_size(own_option which, const char *text, uint64_t *bytes)
{
    return read_bytes(text, bytes) ? CLI_OK
                                   : cli_usage(COMMAND, "--%s: '%s' is no size, such as 8 or 64M",
                                               own[which].name, text);
}

static int take_calls(native_options *options, const char *text)
{
    while (true) {
        const size_t length = strcspn(text, ",");
        uint32_t call = 0;
        while (call < NATIVE_CALL_COUNT &&
               (strlen(calls[call]) != length || strncmp(calls[call], text, length) != 0)) {
            ++call;
        }
        if (call == NATIVE_CALL_COUNT && strncmp(text, "all", length) == 0 && length == 3) {
            memset(options->calls, 1, sizeof options->calls);
        } else if (call == NATIVE_CALL_COUNT) {
            return cli_usage(COMMAND, "--calls: '%.*s' is no native collective", (int)length, text);
        } else {
            options->calls[call] = true;
        }
        if (text[length] == '\0') {
            return CLI_OK;
        }
        text += length + 1;
    }
}

static int take_dtype(native_options *options, const char *text)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; ++i) {
        if (strcmp(dtypes[i].name, text) == 0) {
            options->dtype = dtypes[i].dtype;
            return CLI_OK;
        }
    }
    return cli_usage(COMMAND,
                     "--datatype: '%s' is none of int8 … uint64, half, bfloat16, float, "
                     "double, f8e4m3, f8e5m2",
                     text);
}

static int take_reduction(native_options *options, const char *text)
{
    for (size_t i = 0; i < sizeof reductions / sizeof *reductions; ++i) {
        if (strcmp(reductions[i].name, text) == 0) {
            options->reduction = reductions[i].reduction;
            return CLI_OK;
        }
    }
    return cli_usage(COMMAND, "--op: '%s' is none of sum, prod, max, min, avg", text);
}

static int take(native_options *options, own_option which, const char *text)
{
    uint64_t number = 0;
    options->wanted = true;
    switch (which) {
    case OWN_MIN_BYTES: return take_size(which, text, &options->bytes_first);
    case OWN_MAX_BYTES: return take_size(which, text, &options->bytes_last);
    case OWN_STEP: return take_size(which, text, &options->bytes_step);
    case OWN_FACTOR:
    case OWN_ROOT:
        if (!cli_parse_number(text, which == OWN_FACTOR ? 2 : 0, 65535, &number)) {
            return cli_usage(COMMAND, "--%s: '%s' is no number in range", own[which].name, text);
        }
        if (which == OWN_FACTOR) {
            options->factor = number;
        } else {
            options->root = (uint32_t)number;
        }
        return CLI_OK;
    case OWN_DATATYPE: return take_dtype(options, text);
    case OWN_REDUCTION: return take_reduction(options, text);
    case OWN_CALLS: return take_calls(options, text);
    case OWN_IN_PLACE: options->in_place = true; return CLI_OK;
    case OWN_ESTIMATE: options->estimate = true; return CLI_OK;
    case OWN_PROFILE: options->profile = text; return CLI_OK;
    case OWN_CSV: options->csv = true; return CLI_OK;
    case OWN_COUNT: break;
    }
    return CLI_OK;
}

/* Which option a word is; *value: what stands in the same word, or NULL. */
static own_option find(const char *word, const char **value)
{
    *value = NULL;
    for (uint32_t i = 0; i < OWN_COUNT; ++i) {
        const size_t length = strlen(own[i].name);
        if (own[i].letter != 0 && word[0] == '-' && word[1] == own[i].letter) {
            *value = word[2] != '\0' ? word + 2 : NULL;
            return (own_option)i;
        }
        if (strncmp(word, "--", 2) == 0 && strncmp(word + 2, own[i].name, length) == 0 &&
            (word[2 + length] == '\0' || (word[2 + length] == '=' && own[i].takes))) {
            *value = word[2 + length] == '=' ? word + 3 + length : NULL;
            return (own_option)i;
        }
    }
    return OWN_COUNT;
}

static int settle(native_options *options)
{
    bool any = false;
    for (uint32_t i = 0; i < NATIVE_CALL_COUNT; ++i) {
        any = any || options->calls[i];
    }
    options->calls[NATIVE_ALL_REDUCE] = options->calls[NATIVE_ALL_REDUCE] || !any;
    if (options->bytes_first == 0) {
        options->bytes_first = options->bytes_last != 0 ? options->bytes_last : 1024;
    }
    if (options->bytes_last == 0) {
        options->bytes_last = options->bytes_first;
    }
    return options->bytes_last >= options->bytes_first
               ? CLI_OK
               : cli_usage(COMMAND, "--maxbytes is less than --minbytes");
}

int native_options_take(int *argc, char **argv, native_options *options)
{
    int kept = 1;
    int status = CLI_OK;
    *options = (native_options){.factor = 2, .dtype = IST_F32};
    for (int i = 1; i < *argc && status == CLI_OK; ++i) {
        const char *value = NULL;
        const own_option which = find(argv[i], &value);
        if (which == OWN_COUNT) {
            argv[kept++] = argv[i];
        } else if (own[which].takes && value == NULL && i + 1 == *argc) {
            status = cli_usage(COMMAND, "--%s needs a value", own[which].name);
        } else {
            status = take(options, which, own[which].takes && value == NULL ? argv[++i] : value);
        }
    }
    *argc = kept;
    argv[kept] = NULL;
    return status == CLI_OK && options->wanted ? settle(options) : status;
}

uint32_t native_cells(const native_options *options, uint32_t rank_count, native_cell *cells)
{
    const uint64_t unit = ist_dtype_bytes(options->dtype);
    uint32_t count = 0;
    for (uint32_t call = 0; call < NATIVE_CALL_COUNT; ++call) {
        const bool shares =
            call == NATIVE_ALL_GATHER || call == NATIVE_REDUCE_SCATTER || call == NATIVE_ALL_TO_ALL;
        const uint64_t least = shares ? unit * rank_count : unit;
        uint64_t bytes = options->bytes_first;
        while (options->calls[call] && bytes <= options->bytes_last && count < NATIVE_CELLS_MAX) {
            const uint64_t whole = bytes / least * least;
            cells[count++] = (native_cell){.call = call, .bytes = whole > 0 ? whole : least};
            bytes =
                options->bytes_step != 0 ? bytes + options->bytes_step : bytes * options->factor;
        }
    }
    return count;
}
