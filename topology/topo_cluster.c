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

typedef enum unit_kind { UNIT_COUNT, UNIT_RATE, UNIT_TIME, UNIT_BYTES, UNIT_KINDS } unit_kind;

typedef struct topo_unit {
    const char *name;
    uint64_t numerator;
    uint64_t denominator; /* 8 for bits, else 1 */
} topo_unit;

#define UNITS_A_KIND 11

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
                   {"b/s", 1, 8}},
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
};

static const char *const unit_expected[UNIT_KINDS] = {
    [UNIT_COUNT] = "a whole number without a unit",
    [UNIT_RATE] = "a rate in whole bytes per second, as 450GB/s or 400Gb/s",
    [UNIT_TIME] = "a time in whole picoseconds, as 700ns or 2.5us",
    [UNIT_BYTES] = "a size in whole bytes, as 141GB or 80GiB",
};

static const char *const unit_base[UNIT_KINDS] = {
    [UNIT_COUNT] = "",
    [UNIT_RATE] = " B/s",
    [UNIT_TIME] = " ps",
    [UNIT_BYTES] = " B",
};

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
    if (kind != UNIT_COUNT && rest.length > 0 && rest.at[0] == '.') {
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

static ist_status field_set(topo_parser *parser, field_index index, span key, span text)
{
    const field_row *row = &fields[index];
    uint64_t value = 0;
    if (parser->seen[index]) {
        return refuse(parser, key, text, "given twice", "each key once (2x8 gives nodes and gpus)");
    }
    if (!quantity_read(text, row->kind, &value)) {
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

/* The first item may be `nodes x gpus`. */
static ist_status first_read(topo_parser *parser, span item)
{
    span nodes = item;
    span gpus = item;
    if (item.at[0] < '0' || item.at[0] > '9' || !span_split(item, 'x', &nodes, &gpus)) {
        return pair_read(parser, item);
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

static ist_status items_read(topo_parser *parser)
{
    const char *at = separator_skip(parser->text, false);
    for (bool first = true; first || *at != '\0'; first = false) {
        span item = {at, 0};
        while (at[item.length] != '\0' && !is_separator(at[item.length])) {
            item.length++;
        }
        if (item.length == 0) {
            return refuse(parser, item, (span){NULL, 0}, "nothing there", "2x8 or key=value");
        }
        IST_RETURN_IF_ERROR(first ? first_read(parser, item) : pair_read(parser, item));
        at = separator_skip(at + item.length, true);
    }
    return IST_OK;
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
