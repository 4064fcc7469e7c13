/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults by plan. A plan is a list of rules; each says what happens to which operations. Operations
 * are counted from 0 for every (rank, context, peer), in the order in which they are handed over, so
 * that a plan strikes the same operations in every run.
 */
#ifndef GIN_FAULT_H
#define GIN_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GIN_RULES_MAX = 64 };

typedef enum gin_fault_kind {
    GIN_FAULT_DROP = 0,    /* neither data nor signal arrive; the source completes */
    GIN_FAULT_DROP_DATA,   /* the signal arrives without its data */
    GIN_FAULT_DROP_SIGNAL, /* the data arrives without its signal */
    GIN_FAULT_DOUBLE,      /* the signal is added twice */
    GIN_FAULT_DELAY,       /* it, and all behind it, waits `rounds` rounds at the target */
    GIN_FAULT_ERROR        /* dropped, and the network reports an error */
} gin_fault_kind;

typedef struct gin_rule {
    gin_fault_kind kind;
    uint64_t rank, peer, context; /* UINT64_MAX: any */
    uint64_t op;                  /* first operation; default 0 */
    uint64_t count;               /* how many; default 1 where op is given, else all */
    uint64_t every;               /* of these, each so-manieth */
    uint64_t one_in;              /* of these, one in so many, drawn from the seed */
    uint64_t seed;
    uint64_t rounds;  /* DELAY */
    uint64_t queries; /* ERROR: reported so often; 0: from then on */
} gin_rule;

typedef struct gin_plan {
    gin_rule rules[GIN_RULES_MAX];
    uint32_t count;
} gin_plan;

/* What happens to one operation. */
typedef struct gin_verdict {
    bool drop_data;
    bool drop_signal;
    bool double_signal;
    bool error;
    uint64_t rounds;
    uint64_t queries;
} gin_verdict;

/* An operation as rules name it. */
typedef struct gin_op_name {
    uint64_t rank, peer, context, number;
} gin_op_name;

/*
 * Reads `kind:key=value,…;kind:…`; lines end rules too, and # begins a comment. NULL or "" is an
 * empty plan. On failure `problem` says what is wrong where.
 */
bool gin_plan_read(const char *text, gin_plan *plan, char *problem, size_t problem_bytes);
/* The plan of ISTHMUS_GIN_FAULTS, which is a plan or @file. */
bool gin_plan_load(gin_plan *plan, char *problem, size_t problem_bytes);

gin_verdict gin_plan_decide(const gin_plan *plan, const gin_op_name *op);

#endif
