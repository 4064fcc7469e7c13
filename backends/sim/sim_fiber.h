/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fibers: a stack and a saved context. Switching is Boost.Context's; stacks are pooled by thread
 * so that a world that follows another pays for none.
 */
#ifndef SIM_FIBER_H
#define SIM_FIBER_H

#include <isthmus/status.h>
#include <stddef.h>

typedef struct sim_fiber {
    void *context; /* saved by Boost.Context; NULL until started */
    void *stack;   /* lowest usable address */
    size_t stack_bytes;
    void (*entry)(void *argument);
    void *argument;
    void *sanitizer_stack; /* address sanitizer's fake stack */
    unsigned valgrind_id;
} sim_fiber;

/* Stack sizes: a host program is the user's code, a block is a kernel. */
typedef enum sim_stack_kind { SIM_STACK_HOST, SIM_STACK_BLOCK } sim_stack_kind;

/* Takes a stack from the pool and prepares the fiber to run entry(argument). */
ist_status sim_fiber_init(sim_fiber *fiber, sim_stack_kind kind, void (*entry)(void *argument),
                          void *argument);

/* Gives the stack back. Must not be the running fiber. */
void sim_fiber_fini(sim_fiber *fiber, sim_stack_kind kind);

/* From the scheduler: runs the fiber, and those that it switches to, until one yields or ends. */
void sim_fiber_enter(sim_fiber *fiber);

/* From the running fiber: back to the scheduler. */
void sim_fiber_yield(sim_fiber *fiber);

/* From the running fiber: straight to another one; returns when somebody enters this one again. */
void sim_fiber_switch(sim_fiber *from, sim_fiber *to);

/* As yield, for the last time; never returns. */
void sim_fiber_leave(sim_fiber *fiber);

/* A world may run inside a fiber of another: its loop saves where that one yields to, and which it
   is. */
typedef struct sim_fiber_outer {
    void *scheduler;
    sim_fiber *running;
} sim_fiber_outer;

sim_fiber_outer sim_fiber_scheduler_save(void);
void sim_fiber_scheduler_restore(const sim_fiber_outer *outer);

#endif
