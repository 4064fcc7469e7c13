/* SPDX-License-Identifier: Apache-2.0 */
/* Parses and prints cluster descriptions and answers questions about who is where. The tables below
 * come from the list in the header; no number of a description ever passes through a float.
 */
#include "topo_cluster.h"

#include <isthmus/backend.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NUMBER_TEXT 24 /* 20 digits, NUL */
#define QUOTE_MAX 40

__extension__ typedef unsigned __int128 wide;

/* ------------------------------------------------------------------------------------ tables */

typedef enum unit_kind {
    UNIT_COUNT,
    UNIT_RATE,
    UNIT_TIME,
    UNIT_BYTES,
    UNIT_MODEL,  /* a word */
    UNIT_OPTION, /* a count that is printed only when it is not the default */
    UNIT_KINDS
} unit_kind;

typedef struct topo_unit {
    const char *name;
    uint64_t numerator;
    uint64_t denominator; /* 8 for bits, else 1 */
} topo_unit;

#define UNITS_A_KIND 14

/* Printing takes the first unit with denominator 1 that divides the value, so the order is from
 * large to small, and binary sizes come last. */
static const topo_unit units[UNIT_KINDS][UNITS_A_KIND] = {
    [UNIT_COUNT] = {{"", 1, 1}},
    [UNIT_RATE] = {{"TB/s", 1000000000000, 1},
                   {"GB/s", 1000000000, 1},
                   {"MB/s", 1000000, 1},
                   {"kB/s", 1000, 1},
                   {"B/s", 1, 1},
                   {"Tb/s", 1000000000000, 8},
                   {"Gb/s", 1000000000, 8},
                   {"Mb/s", 1000000, 8},
                   {"kb/s", 1000, 8},
                   {"b/s", 1, 8},
                   {"T", 1000000000000, 8}, /* as networks are sold: 400G */
                   {"G", 1000000000, 8},
                   {"M", 1000000, 8}},
    [UNIT_TIME] = {{"s", 1000000000000, 1},
                   {"ms", 1000000000, 1},
                   {"us", 1000000, 1},
                   {"ns", 1000, 1},
                   {"ps", 1, 1}},
    [UNIT_BYTES] = {{"TB", 1000000000000, 1},
                    {"GB", 1000000000, 1},
                    {"MB", 1000000, 1},
                    {"kB", 1000, 1},
                    {"B", 1, 1},
                    {"TiB", UINT64_C(1) << 40, 1},
                    {"GiB", UINT64_C(1) << 30, 1},
                    {"MiB", UINT64_C(1) << 20, 1},
                    {"KiB", UINT64_C(1) << 10, 1}},
    [UNIT_MODEL] = {{"", 1, 1}},
    [UNIT_OPTION] = {{"", 1, 1}},
};

static const char *const unit_expected[UNIT_KINDS] = {
    [UNIT_COUNT] = "a whole number without a unit",
    [UNIT_RATE] = "a rate in whole bytes per second, as 450GB/s or 400Gb/s",
    [UNIT_TIME] = "a time in whole picoseconds, as 700ns or 2.5us",
    [UNIT_BYTES] = "a size in whole bytes, as 141GB or 80GiB",
    [UNIT_MODEL] = "the name of a GPU, as h200",
    [UNIT_OPTION] = "a whole number without a unit",
};

static const char *const unit_base[UNIT_KINDS] = {
    [UNIT_COUNT] = "",   [UNIT_RATE] = " B/s", [UNIT_TIME] = " ps",
    [UNIT_BYTES] = " B", [UNIT_MODEL] = "",    [UNIT_OPTION] = "",
};

typedef struct model_row {
    const char *name;
    uint32_t sm;
    uint64_t nvlink_bytes_per_s, hbm_bytes_per_s, memory_bytes;
} model_row;

static const model_row models[] = {
#define X(name, sm, nvlink, hbm, memory) {name, sm, nvlink, hbm, memory},
    IST_CLUSTER_MODELS(X)
#undef X
};
#define MODEL_COUNT (sizeof(models) / sizeof(models[0]))

typedef enum field_index {
#define X(field, key, unit, preset, low, high) FIELD_##field,
    IST_CLUSTER_FIELDS(X)
#undef X
        FIELDS
} field_index;

typedef struct field_row {
    const char *key;
    unit_kind kind;
    uint64_t preset, low, high;
} field_row;

static const field_row fields[FIELDS] = {
#define X(field, key, unit, preset, low, high) {key, UNIT_##unit, preset, low, high},
    IST_CLUSTER_FIELDS(X)
#undef X
};

#define X(field, key, unit, preset, low, high) key ", "
static const char keys_expected[] = "one of " IST_CLUSTER_FIELDS(X) "each once";
#undef X

static uint64_t *field_of(ist_cluster *cluster, field_index index)
{
    switch (index) {
#define X(field, key, unit, preset, low, high)                                                     \
    case FIELD_##field: return &cluster->field;
        IST_CLUSTER_FIELDS(X)
#undef X
    case FIELDS: break;
    }
    return NULL;
}

static uint64_t field_value(const ist_cluster *cluster, field_index index)
{
    ist_cluster copy = *cluster;
    return *field_of(&copy, index);
}

static void presets_set(ist_cluster *cluster)
{
    for (uint32_t i = 0; i < FIELDS; i++) {
        *field_of(cluster, (field_index)i) = fields[i].preset;
    }
}

/* ------------------------------------------------------------------------------------ parsing */

/* A piece of the line that is being parsed. */
typedef struct span {
    const char *at;
    size_t length;
} span;

typedef struct topo_parser {
    const char *text;
    ist_cluster cluster;
    bool seen[FIELDS];
    bool nvswitch; /* the word was there */
} topo_parser;

/* Texts of strangers go into one log line: cut, and without control characters. */
static const char *quote(span from, char to[QUOTE_MAX])
{
    size_t length = from.length < QUOTE_MAX ? from.length : QUOTE_MAX - 1;
    for (size_t i = 0; i < length; i++) {
        char c = from.at[i];
        to[i] = c >= ' ' && c <= '~' ? c : '?';
    }
    to[length] = '\0';
    return to;
}

static ist_status refuse(const topo_parser *parser, span key, span value, const char *what,
                         const char *expected)
{
    char key_text[QUOTE_MAX];
    char value_text[QUOTE_MAX];
    uint64_t position = (uint64_t)(key.at - parser->text) + 1;
    ist_error details = {.size = sizeof(details),
                         .rank = IST_RANK_NONE,
                         .peer = IST_RANK_NONE,
                         .observed = position,
                         .object = "cluster",
                         .operation = "cluster.parse"};
    return ist_raise(IST_ERR_PARSE, &details, "position %" PRIu64 ", %s%s%s: %s, expected %s",
                     position, quote(key, key_text), value.at != NULL ? "=" : "",
                     value.at != NULL ? quote(value, value_text) : "", what, expected);
}

/* Reads digits. Returns how many, or 0 when there are none or the number passes 64 bits. */
static size_t digits_read(span from, uint64_t *number)
{
    size_t length = 0;
    uint64_t sum = *number;
    for (; length < from.length && from.at[length] >= '0' && from.at[length] <= '9'; length++) {
        uint64_t digit = (uint64_t)(from.at[length] - '0');
        if (sum > (UINT64_MAX - digit) / 10) {
            return 0;
        }
        sum = sum * 10 + digit;
    }
    *number = sum;
    return length;
}

static span span_from(span from, size_t offset)
{
    return (span){from.at + offset, from.length - offset};
}

static bool span_is(span from, const char *text)
{
    return strlen(text) == from.length && memcmp(from.at, text, from.length) == 0;
}

static const topo_unit *unit_find(unit_kind kind, span name)
{
    for (size_t i = 0; i < UNITS_A_KIND && units[kind][i].name != NULL; i++) {
        if (span_is(name, units[kind][i].name)) {
            return &units[kind][i];
        }
    }
    return NULL;
}

/* Reads `digits[.digits]unit` exactly: all digits make one integer, and the decimals a divisor. */
static bool quantity_read(span text, unit_kind kind, uint64_t *value)
{
    uint64_t digits = 0;
    wide divisor = 1;
    size_t length = digits_read(text, &digits);
    if (length == 0) {
        return false;
    }
    span rest = span_from(text, length);
    if (kind != UNIT_COUNT && kind != UNIT_OPTION && rest.length > 0 && rest.at[0] == '.') {
        rest = span_from(rest, 1);
        length = digits_read(rest, &digits);
        /* 20 digits: with the largest denominator the divisor stays below 2^70. */
        if (length == 0 || length > 20) {
            return false;
        }
        for (size_t i = 0; i < length; i++) {
            divisor *= 10;
        }
        rest = span_from(rest, length);
    }
    const topo_unit *unit = unit_find(kind, rest);
    if (unit == NULL) {
        return false;
    }
    divisor *= unit->denominator;
    wide product = (wide)digits * unit->numerator;
    if (product % divisor != 0 || product / divisor > UINT64_MAX) {
        return false;
    }
    *value = (uint64_t)(product / divisor);
    return true;
}

static bool model_find(span name, uint64_t *model)
{
    for (size_t i = 0; i < MODEL_COUNT; i++) {
        if (span_is(name, models[i].name)) {
            *model = i;
            return true;
        }
    }
    return false;
}

static ist_status field_set(topo_parser *parser, field_index index, span key, span text)
{
    const field_row *row = &fields[index];
    uint64_t value = 0;
    if (parser->seen[index]) {
        return refuse(parser, key, text, "given twice", "each key once (2x8 gives nodes and gpus)");
    }
    bool read =
        row->kind == UNIT_MODEL ? model_find(text, &value) : quantity_read(text, row->kind, &value);
    if (!read) {
        return refuse(parser, key, text, "cannot be read", unit_expected[row->kind]);
    }
    if (value < row->low || value > row->high) {
        char expected[2 * NUMBER_TEXT + 16];
        (void)snprintf(expected, sizeof(expected), "%" PRIu64 " to %" PRIu64 "%s", row->low,
                       row->high, unit_base[row->kind]);
        return refuse(parser, key, text, "out of range", expected);
    }
    parser->seen[index] = true;
    *field_of(&parser->cluster, index) = value;
    return IST_OK;
}

static bool is_separator(char c)
{
    return c == ',' || c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Splits at the first `mark`; false when there is none. */
static bool span_split(span from, char mark, span *head, span *tail)
{
    const char *at = memchr(from.at, mark, from.length);
    if (at == NULL) {
        return false;
    }
    size_t length = (size_t)(at - from.at);
    *head = (span){from.at, length};
    *tail = span_from(from, length + 1);
    return true;
}

static ist_status pair_read(topo_parser *parser, span item)
{
    span key = item;
    span value = {NULL, 0};
    if (!span_split(item, '=', &key, &value)) {
        return refuse(parser, item, value, "not understood", "key=value, or 2x8 at the beginning");
    }
    for (uint32_t i = 0; i < FIELDS; i++) {
        if (span_is(key, fields[i].key)) {
            return field_set(parser, (field_index)i, key, value);
        }
    }
    return refuse(parser, key, value, "unknown key", keys_expected);
}

/* `word:value`: fields that words stand for, inside the parentheses and outside. */
typedef struct word_row {
    const char *word;
    field_index field;
    bool inside;
} word_row;

static const word_row words[] = {{"nvlink", FIELD_nvlink_domain, true},
                                 {"nvl", FIELD_nvlink_domain, true},
                                 {"sockets", FIELD_socket_count, true},
                                 {"sms", FIELD_sm_count, true},
                                 {"leaf", FIELD_leaf_nodes, false}};

/* `nic:8x400G`: count and rate; `nic:8` leaves the rate as it is. */
static ist_status nic_read(topo_parser *parser, span item, span value)
{
    span count = value;
    span rate = value;
    if (!span_split(value, 'x', &count, &rate)) {
        return field_set(parser, FIELD_nics_per_node, item, value);
    }
    IST_RETURN_IF_ERROR(field_set(parser, FIELD_nics_per_node, item, count));
    return field_set(parser, FIELD_nic_bytes_per_s, item, rate);
}

/* `fat-tree:2:1`: bandwidth down to bandwidth up; `fat-tree` alone: as much up as down. */
static ist_status tree_read(topo_parser *parser, span item, span value)
{
    static const char one[] = "1";
    span down = value.at != NULL ? value : (span){one, 1};
    span up = {one, 1};
    if (value.at != NULL && !span_split(value, ':', &down, &up)) {
        up = (span){one, 1};
    }
    IST_RETURN_IF_ERROR(field_set(parser, FIELD_tree_down, item, down));
    return field_set(parser, FIELD_tree_up, item, up);
}

static ist_status inside_read(topo_parser *parser, span item, span word, span value)
{
    static const char none[] = "0";
    uint64_t model = 0;
    bool alone = value.at == NULL;
    if (span_is(word, "nvswitch") && alone) {
        parser->nvswitch = true;
        return IST_OK;
    }
    if (span_is(word, "pcie") && alone) {
        return field_set(parser, FIELD_nvlink_domain, item, (span){none, 1});
    }
    if (span_is(word, "nic") && !alone) {
        return nic_read(parser, item, value);
    }
    if ((model_find(word, &model) || span_is(word, "gpu")) && !alone) {
        if (!span_is(word, "gpu")) {
            IST_RETURN_IF_ERROR(field_set(parser, FIELD_gpu_model, item, word));
        }
        return field_set(parser, FIELD_gpus_per_node, item, value);
    }
    return refuse(
        parser, item, (span){NULL, 0}, "not understood",
        "h200:8 or another GPU, nvswitch, nvlink:4, pcie, nic:8x400G, sockets:2, key=value");
}

static ist_status outside_read(topo_parser *parser, span item, span word, span value)
{
    static const char one[] = "1";
    if (span_is(word, "rails") && value.at == NULL) {
        return field_set(parser, FIELD_rails, item, (span){one, 1});
    }
    if (span_is(word, "fat-tree")) {
        return tree_read(parser, item, value);
    }
    return refuse(parser, item, (span){NULL, 0}, "not understood",
                  "rails, fat-tree:2:1, leaf:16 or key=value, or 2x8 or 2x(…) at the beginning");
}

/* One item: key=value, or a word. */
static ist_status item_read(topo_parser *parser, span item, bool inside)
{
    span word = item;
    span value = {NULL, 0};
    if (memchr(item.at, '=', item.length) != NULL) {
        return pair_read(parser, item);
    }
    (void)span_split(item, ':', &word, &value);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]) && value.at != NULL; i++) {
        if (words[i].inside == inside && span_is(word, words[i].word)) {
            return field_set(parser, words[i].field, item, value);
        }
    }
    return inside ? inside_read(parser, item, word, value)
                  : outside_read(parser, item, word, value);
}

/* The first item may be `nodes x gpus`. */
static ist_status first_read(topo_parser *parser, span item)
{
    span nodes = item;
    span gpus = item;
    if (item.at[0] < '0' || item.at[0] > '9' || !span_split(item, 'x', &nodes, &gpus)) {
        return item_read(parser, item, false);
    }
    IST_RETURN_IF_ERROR(field_set(parser, FIELD_node_count, item, nodes));
    return field_set(parser, FIELD_gpus_per_node, item, gpus);
}

/* Moves past blanks and at most one comma. */
static const char *separator_skip(const char *at, bool comma_allowed)
{
    for (bool comma = !comma_allowed; is_separator(*at); at++) {
        if (*at == ',') {
            if (comma) {
                break;
            }
            comma = true;
        }
    }
    return at;
}

/* An item ends before a separator or a parenthesis. */
static span item_at(const char *at)
{
    span item = {at, 0};
    while (at[item.length] != '\0' && !is_separator(at[item.length]) && at[item.length] != '(' &&
           at[item.length] != ')') {
        item.length++;
    }
    return item;
}

static ist_status refuse_mark(const topo_parser *parser, const char *at, const char *what,
                              const char *expected)
{
    span mark = {at, *at == '\0' ? 0 : 1};
    return refuse(parser, mark, (span){NULL, 0}, what, expected);
}

/* `(` item … `)`: what one node has. */
static ist_status group_read(topo_parser *parser, const char **place)
{
    const char *at = separator_skip(*place + 1, false);
    while (*at != ')') {
        span item = item_at(at);
        if (item.length == 0) {
            return refuse_mark(parser, at,
                               *at == '\0' ? "the parenthesis stays open" : "not understood",
                               "an item or )");
        }
        IST_RETURN_IF_ERROR(item_read(parser, item, true));
        at = separator_skip(at + item.length, true);
    }
    *place = at + 1;
    return IST_OK;
}

/* `2x(` or `(` at the beginning. */
static ist_status group_first(topo_parser *parser, const char **place, bool *there)
{
    span item = item_at(*place);
    const char *open = *place + item.length;
    *there = *open == '(';
    if (!*there) {
        return IST_OK;
    }
    if (item.length > 0) {
        if (item.at[item.length - 1] != 'x') {
            return refuse_mark(parser, open, "not understood",
                               "a count and x before the parenthesis");
        }
        span nodes = {item.at, item.length - 1};
        IST_RETURN_IF_ERROR(field_set(parser, FIELD_node_count, item, nodes));
    }
    *place = open;
    return group_read(parser, place);
}

static ist_status items_read(topo_parser *parser)
{
    bool group = false;
    const char *at = separator_skip(parser->text, false);
    IST_RETURN_IF_ERROR(group_first(parser, &at, &group));
    at = group ? separator_skip(at, true) : at;
    for (bool first = !group; first || *at != '\0'; first = false) {
        span item = item_at(at);
        if (item.length == 0) {
            return refuse_mark(parser, at,
                               *at == '\0' || *at == ',' ? "nothing there" : "not understood",
                               "2x8, 2x(…) or key=value");
        }
        IST_RETURN_IF_ERROR(first ? first_read(parser, item) : item_read(parser, item, false));
        at = separator_skip(at + item.length, true);
    }
    return IST_OK;
}

/* What the named GPU implies, where the line does not say otherwise. */
static void model_apply(topo_parser *parser)
{
    const model_row *model = &models[parser->cluster.gpu_model];
    if (!parser->seen[FIELD_gpu_model]) {
        return;
    }
    if (!parser->seen[FIELD_hbm_bytes_per_s]) {
        parser->cluster.hbm_bytes_per_s = model->hbm_bytes_per_s;
    }
    if (!parser->seen[FIELD_memory_bytes]) {
        parser->cluster.memory_bytes = model->memory_bytes;
    }
    if (!parser->seen[FIELD_nvlink_bytes_per_s] && model->nvlink_bytes_per_s > 0) {
        parser->cluster.nvlink_bytes_per_s = model->nvlink_bytes_per_s;
    }
    if (!parser->seen[FIELD_nvlink_domain] && !parser->nvswitch && model->nvlink_bytes_per_s == 0) {
        parser->seen[FIELD_nvlink_domain] = true;
        parser->cluster.nvlink_domain = 0;
    }
}

/* ------------------------------------------------------------------------------------ shape */

static ist_status refuse_shape(const ist_cluster *cluster, const char *what, const char *expected)
{
    ist_error details = {.size = sizeof(details),
                         .rank = IST_RANK_NONE,
                         .peer = IST_RANK_NONE,
                         .object = "cluster",
                         .operation = "cluster.parse"};
    return ist_raise(IST_ERR_PARSE, &details,
                     "nodes=%" PRIu64 ",gpus=%" PRIu64 ",nvlink=%" PRIu64 ",nics=%" PRIu64
                     ": %s, expected %s",
                     cluster->node_count, cluster->gpus_per_node, cluster->nvlink_domain,
                     cluster->nics_per_node, what, expected);
}

static ist_status shape_check(const ist_cluster *cluster)
{
    uint64_t gpus = cluster->gpus_per_node;
    uint64_t domain = cluster->nvlink_domain;
    uint64_t nics = cluster->nics_per_node;
    if (cluster->node_count > IST_CLUSTER_RANKS_MAX / gpus) {
        return refuse_shape(cluster, "too many GPUs", "nodes * gpus below 2^31");
    }
    if (domain > 1 && gpus % domain != 0 && domain % gpus != 0) {
        return refuse_shape(cluster, "NVLink domains would cut through nodes",
                            "nvlink to divide gpus, or to be a multiple of it");
    }
    if (nics > 0 && gpus % nics != 0) {
        return refuse_shape(cluster, "NICs cannot be shared out evenly",
                            "nics to divide gpus, or to be 0");
    }
    return IST_OK;
}

ist_status ist_cluster_parse(const char *text, ist_cluster *cluster)
{
    topo_parser parser = {.text = text};
    presets_set(&parser.cluster);
    if (text != NULL) {
        IST_RETURN_IF_ERROR(items_read(&parser));
    }
    model_apply(&parser);
    if (!parser.seen[FIELD_nvlink_domain]) {
        parser.cluster.nvlink_domain = parser.cluster.gpus_per_node;
    }
    if (!parser.seen[FIELD_nics_per_node]) {
        parser.cluster.nics_per_node = parser.cluster.gpus_per_node;
    }
    IST_RETURN_IF_ERROR(shape_check(&parser.cluster));
    *cluster = parser.cluster;
    return IST_OK;
}

ist_status ist_cluster_for_ranks(uint32_t rank_count, ist_cluster *cluster)
{
    if (rank_count == 0 || rank_count > IST_CLUSTER_RANKS_MAX) {
        ist_error details = {.size = sizeof(details),
                             .rank = IST_RANK_NONE,
                             .peer = IST_RANK_NONE,
                             .observed = rank_count,
                             .object = "rank_count",
                             .operation = "cluster.for_ranks"};
        return ist_raise(IST_ERR_RANGE, &details, "rank_count is %" PRIu32 ", expected 1 to %u",
                         rank_count, IST_CLUSTER_RANKS_MAX);
    }
    uint32_t gpus = rank_count < IST_CLUSTER_NODE_GPUS ? rank_count : IST_CLUSTER_NODE_GPUS;
    presets_set(cluster);
    cluster->node_count = rank_count / gpus + (rank_count % gpus != 0);
    cluster->gpus_per_node = gpus;
    cluster->nvlink_domain = gpus;
    cluster->nics_per_node = gpus;
    return IST_OK;
}

/* ------------------------------------------------------------------------------------ printing */

static const topo_unit *unit_for(unit_kind kind, uint64_t value)
{
    size_t i = 0;
    while (units[kind][i].denominator != 1 || value % units[kind][i].numerator != 0 ||
           (value == 0 && units[kind][i].numerator != 1)) {
        i++; /* ends: every kind has a unit of 1 */
    }
    return &units[kind][i];
}

/* Appends `,key=value`; past the end it only counts. */
static size_t field_print(const ist_cluster *cluster, field_index index, char *text,
                          size_t capacity, size_t used)
{
    uint64_t value = field_value(cluster, index);
    unit_kind kind = fields[index].kind;
    if ((kind == UNIT_MODEL || kind == UNIT_OPTION) && value == fields[index].preset) {
        return used;
    }
    if (kind == UNIT_MODEL) {
        size_t room_left = used < capacity ? capacity - used : 0;
        int written = snprintf(room_left > 0 ? text + used : NULL, room_left, ",%s=%s",
                               fields[index].key, ist_cluster_model_name(value));
        return written < 0 ? used : used + (size_t)written;
    }
    const topo_unit *unit = unit_for(fields[index].kind, value);
    size_t room = used < capacity ? capacity - used : 0;
    int length =
        snprintf(room > 0 ? text + used : NULL, room, "%s%s=%" PRIu64 "%s", index == 0 ? "" : ",",
                 fields[index].key, value / unit->numerator, unit->name);
    return length < 0 ? used : used + (size_t)length;
}

static size_t fields_print(const ist_cluster *cluster, char *text, size_t capacity)
{
    size_t used = 0;
    for (uint32_t i = 0; i < FIELDS; i++) {
        used = field_print(cluster, (field_index)i, text, capacity, used);
    }
    return used;
}

ist_status ist_cluster_print(const ist_cluster *cluster, char *text, size_t capacity,
                             size_t *needed)
{
    size_t bytes = fields_print(cluster, NULL, 0) + 1;
    if (needed != NULL) {
        *needed = bytes;
    }
    if (text == NULL) {
        return IST_OK;
    }
    if (capacity < bytes) {
        ist_error details = {.size = sizeof(details),
                             .rank = IST_RANK_NONE,
                             .peer = IST_RANK_NONE,
                             .expected = bytes,
                             .observed = capacity,
                             .object = "capacity",
                             .operation = "cluster.print"};
        return ist_raise(IST_ERR_SIZE, &details, "capacity is %zu bytes, the line needs %zu",
                         capacity, bytes);
    }
    (void)fields_print(cluster, text, capacity);
    return IST_OK;
}

/* ------------------------------------------------------------------------------------ questions */

const char *ist_cluster_model_name(uint64_t model)
{
    return models[model < MODEL_COUNT ? model : 0].name;
}

uint32_t ist_cluster_model_sm(uint64_t model)
{
    return models[model < MODEL_COUNT ? model : 0].sm;
}

uint32_t ist_cluster_rank_count(const ist_cluster *cluster)
{
    return (uint32_t)(cluster->node_count * cluster->gpus_per_node);
}

uint32_t ist_cluster_node(const ist_cluster *cluster, uint32_t rank)
{
    return (uint32_t)(rank / cluster->gpus_per_node);
}

/* Number of the domain of a rank: equal for ranks of one domain only. */
static uint64_t domain_of(const ist_cluster *cluster, uint32_t rank)
{
    return cluster->nvlink_domain > 1 ? rank / cluster->nvlink_domain : rank;
}

bool ist_cluster_same_domain(const ist_cluster *cluster, uint32_t a, uint32_t b)
{
    return domain_of(cluster, a) == domain_of(cluster, b);
}

static uint32_t common_divisor(uint32_t a, uint32_t b)
{
    while (b != 0) {
        uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

uint32_t ist_cluster_lsa_size(const ist_cluster *cluster, const uint32_t *world_ranks,
                              uint32_t rank_count, uint32_t limit)
{
    uint32_t size = limit;
    uint32_t run = 0;
    uint64_t run_domain = 0;
    for (uint32_t i = 0; i < rank_count; i++) {
        uint64_t domain = domain_of(cluster, world_ranks != NULL ? world_ranks[i] : i);
        if (run > 0 && domain != run_domain) {
            size = common_divisor(size, run);
            run = 0;
        }
        run_domain = domain;
        run++;
    }
    return common_divisor(size, run);
}
