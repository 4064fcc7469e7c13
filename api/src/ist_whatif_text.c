/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations and edits as words.
 */
#include "ist_group.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define WORD_BYTES 48u
#define OP "op.parse"
#define EDIT "edit.parse"

/* ---- words and numbers ----------------------------------------------------------------------- */

/* The next word, ended by a blank or one of `stops`. False at the end. */
static bool next_word(const char **text, const char *stops, char word[WORD_BYTES])
{
    const char *at = *text;
    while (*at == ' ' || (*at != '\0' && strchr(stops, *at) != NULL)) {
        ++at;
    }
    size_t length = 0;
    while (at[length] != '\0' && at[length] != ' ' && strchr(stops, at[length]) == NULL) {
        ++length;
    }
    const size_t kept = length < WORD_BYTES - 1 ? length : WORD_BYTES - 1;
    memcpy(word, at, kept);
    word[kept] = '\0';
    *text = at + length;
    return length > 0;
}

/* Digits at the start; false when there are none or too many. */
static bool read_digits(const char **text, uint64_t *value)
{
    const char *at = *text;
    uint64_t sum = 0;
    while (*at >= '0' && *at <= '9') {
        if (__builtin_mul_overflow(sum, 10u, &sum) ||
            __builtin_add_overflow(sum, (uint64_t)(*at - '0'), &sum)) {
            return false;
        }
        ++at;
    }
    const bool any = at != *text;
    *text = at;
    *value = sum;
    return any;
}

typedef struct size_unit {
    const char *name;
    uint64_t bytes;
} size_unit;

static const size_unit size_units[] = {
    {"", 1},
    {"B", 1},
    {"kB", 1000},
    {"MB", 1000000},
    {"GB", 1000000000},
    {"TB", 1000000000000},
    {"KiB", UINT64_C(1) << 10},
    {"MiB", UINT64_C(1) << 20},
    {"GiB", UINT64_C(1) << 30},
    {"TiB", UINT64_C(1) << 40},
};

static bool read_size(const char *text, uint64_t *value)
{
    uint64_t number = 0;
    if (!read_digits(&text, &number)) {
        return false;
    }
    for (size_t i = 0; i < sizeof(size_units) / sizeof(size_units[0]); ++i) {
        if (strcmp(text, size_units[i].name) == 0) {
            return !__builtin_mul_overflow(number, size_units[i].bytes, value);
        }
    }
    return false;
}

static bool find_name(const char *word, const char *const *names, uint32_t count, uint32_t *found)
{
    for (uint32_t i = 0; i < count; ++i) {
        if (strcmp(word, names[i]) == 0) {
            *found = i;
            return true;
        }
    }
    return false;
}

static ist_status refuse(const char *operation, const char *what, const char *seen,
                         const char *expected)
{
    return ist_fail(NULL, IST_ERR_PARSE, what, operation, "%s is \"%.40s\", expected %s", what,
                    seen, expected);
}

/* ---- operations ------------------------------------------------------------------------------ */

typedef enum op_key {
    KEY_BYTES,
    KEY_GROUP,
    KEY_SRC,
    KEY_DST,
    KEY_TOKENS,
    KEY_ROW,
    KEY_TOPK,
    KEY_EXPERTS,
    KEY_STREAM,
    KEY_LIMIT,
    KEY_BLOCKS,
    KEY_COUNT
} op_key;

static const char *const key_names[KEY_COUNT] = {"bytes",  "group", "src",   "dst",
                                                 "tokens", "row",   "topk",  "experts",
                                                 "stream", "limit", "blocks"};

static const char *const routing_names[] = {"random", "spread", "every"};

static ist_status set_key(ist_op_desc *op, op_key key, uint64_t value)
{
    if (key >= KEY_TOPK && value > UINT32_MAX) {
        return refuse(OP, key_names[key], "that", "a number of 32 bits");
    }
    switch (key) {
    case KEY_BYTES: op->bytes = value; break;
    case KEY_GROUP: op->group_size = value; break;
    case KEY_SRC: op->src = value; break;
    case KEY_DST: op->dst = value; break;
    case KEY_TOKENS: op->tokens = value; break;
    case KEY_ROW: op->row_bytes = value; break;
    case KEY_TOPK: op->topk = (uint32_t)value; break;
    case KEY_EXPERTS: op->experts = (uint32_t)value; break;
    case KEY_STREAM: op->stream = (uint32_t)value; break;
    case KEY_LIMIT: op->node_limit = (uint32_t)value; break;
    case KEY_BLOCKS: op->block_count = (uint32_t)value; break;
    case KEY_COUNT: break;
    }
    return IST_OK;
}

static ist_status read_pair(ist_op_desc *op, const char *key, const char *value)
{
    uint32_t found = 0;
    if (strcmp(key, "algorithm") == 0) {
        if (!find_name(value, cost_algorithm_names, COST_ALGORITHM_COUNT, &found)) {
            return refuse(OP, key, value,
                          "auto, ring, tree, direct, oneshot, twoshot, multicast, ll or ht");
        }
        op->algorithm = (ist_op_algorithm)found;
        return IST_OK;
    }
    if (strcmp(key, "routing") == 0) {
        if (!find_name(value, routing_names, 3, &found)) {
            return refuse(OP, key, value, "random, spread or every");
        }
        op->routing = (ist_op_routing)found;
        return IST_OK;
    }
    uint64_t number = 0;
    if (!find_name(key, key_names, KEY_COUNT, &found)) {
        return refuse(OP, "key", key,
                      "bytes, group, src, dst, tokens, row, topk, experts, stream, limit, blocks, "
                      "algorithm or routing");
    }
    if (!read_size(value, &number)) {
        return refuse(OP, key, value, "a number, with B, kB, KiB … TiB or without");
    }
    return set_key(op, (op_key)found, number);
}

ist_status ist_op_parse(const char *text, ist_op_desc *op)
{
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, text, "text", OP));
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, op, "op", OP));
    ist_op_desc read = {.size = sizeof(read)};
    char word[WORD_BYTES];
    char value[WORD_BYTES];
    uint32_t kind = 0;
    if (!next_word(&text, ",=", word) ||
        !find_name(word, cost_kind_names, COST_KIND_COUNT, &kind)) {
        return refuse(
            OP, "operation", word,
            "allreduce, allgather, reducescatter, alltoall, broadcast, sendrecv, p2p, put, "
            "signal, barrier, ep_dispatch, ep_combine or copy");
    }
    read.kind = (ist_op_kind)kind;
    while (next_word(&text, ",=", word)) {
        if (*text != '=' || !next_word(&text, ",=", value)) {
            return refuse(OP, word, "", "a value after =");
        }
        IST_RETURN_IF_ERROR(read_pair(&read, word, value));
    }
    *op = read;
    return IST_OK;
}

/* ---- edits ----------------------------------------------------------------------------------- */

typedef struct how_word {
    const char *word;
    uint32_t num, den;
} how_word;

static const how_word how_words[] = {{"drop", 0, 1}, {"half", 1, 2}, {"twice", 2, 1}};

static bool read_how(const char *word, ist_edit *edit)
{
    for (size_t i = 0; i < sizeof(how_words) / sizeof(how_words[0]); ++i) {
        if (strcmp(word, how_words[i].word) == 0) {
            edit->num = how_words[i].num;
            edit->den = how_words[i].den;
            return true;
        }
    }
    uint64_t num = 0;
    uint64_t den = 1;
    if (!read_digits(&word, &num) || num > UINT32_MAX) {
        return false;
    }
    if (*word == '/') {
        ++word;
        if (!read_digits(&word, &den) || den == 0 || den > UINT32_MAX) {
            return false;
        }
    }
    edit->num = (uint32_t)num;
    edit->den = (uint32_t)den;
    return *word == '\0';
}

typedef struct link_word {
    const char *word;
    ist_link_kind link;
} link_word;

static const link_word link_words[] = {{"nvlink", IST_LINK_NVLINK_OUT},
                                       {"memory", IST_LINK_MEMORY},
                                       {"nic", IST_LINK_NIC_OUT},
                                       {"fabric", IST_LINK_FABRIC}};

static ist_status read_place(const char *word, ist_edit *edit)
{
    if (strcmp(word, "all") == 0) {
        edit->everywhere = 1;
        return IST_OK;
    }
    const char *at = word;
    uint64_t index = 0;
    if (!read_digits(&at, &edit->node) || *at != ':') {
        return refuse(EDIT, "place", word, "all or NODE:INDEX");
    }
    ++at;
    if (!read_digits(&at, &index) || *at != '\0' || index > UINT32_MAX) {
        return refuse(EDIT, "place", word, "all or NODE:INDEX");
    }
    edit->index = (uint32_t)index;
    return IST_OK;
}

static ist_status read_target(const char **text, ist_edit *edit)
{
    char word[WORD_BYTES];
    if (!next_word(text, "", word)) {
        return refuse(EDIT, "target", "", "nodes, nic, nvlink, memory or fabric");
    }
    if (strcmp(word, "nodes") == 0) {
        edit->kind = IST_EDIT_NODES;
        return IST_OK;
    }
    for (size_t i = 0; i < sizeof(link_words) / sizeof(link_words[0]); ++i) {
        if (strcmp(word, link_words[i].word) == 0) {
            edit->kind = IST_EDIT_LINK;
            edit->link = link_words[i].link;
            edit->everywhere = edit->link == IST_LINK_FABRIC;
            if (edit->link == IST_LINK_FABRIC) {
                return IST_OK;
            }
            if (!next_word(text, "", word)) {
                return refuse(EDIT, "place", "", "all or NODE:INDEX");
            }
            return read_place(word, edit);
        }
    }
    return refuse(EDIT, "target", word, "nodes, nic, nvlink, memory or fabric");
}

/* "ep over 2 domains", "domain 16": the number comes last or last but one. */
static ist_status read_number(const char **text, ist_edit *edit)
{
    char word[WORD_BYTES];
    while (next_word(text, "", word)) {
        const char *at = word;
        uint64_t number = 0;
        if (read_digits(&at, &number) && *at == '\0' && number <= UINT32_MAX) {
            edit->num = (uint32_t)number;
            edit->den = 1;
        } else if (strcmp(word, "over") != 0 && strcmp(word, "domains") != 0 &&
                   strcmp(word, "domain") != 0) {
            return refuse(EDIT, "word", word, "a number");
        }
    }
    return edit->den == 1 ? IST_OK : refuse(EDIT, "number", "", "a number");
}

ist_status ist_edit_parse(const char *text, ist_edit *edit)
{
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, text, "text", EDIT));
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, edit, "edit", EDIT));
    ist_edit read = {.size = sizeof(read)};
    char word[WORD_BYTES];
    if (!next_word(&text, "", word)) {
        return refuse(EDIT, "edit", "", "drop, half, twice, a ratio, domain or ep");
    }
    if (strcmp(word, "ep") == 0 || strcmp(word, "domain") == 0) {
        read.kind = word[0] == 'e' ? IST_EDIT_EP_DOMAINS : IST_EDIT_DOMAIN;
        IST_RETURN_IF_ERROR(read_number(&text, &read));
    } else if (!read_how(word, &read)) {
        return refuse(EDIT, "edit", word, "drop, half, twice, a ratio, domain or ep");
    } else {
        IST_RETURN_IF_ERROR(read_target(&text, &read));
        if (next_word(&text, "", word)) {
            return refuse(EDIT, "word", word, "nothing more");
        }
    }
    *edit = read;
    return IST_OK;
}
