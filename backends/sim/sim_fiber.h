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

/* ---- switching ------------------------------------------------------------------------------- */

#if defined(__SANITIZE_ADDRESS__)
#define SIM_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SIM_ASAN 1
#endif
#endif

/* Boost.Context, boost/context/detail/fcontext.hpp: plain C linkage, no header for C. */
typedef struct sim_context_transfer {
    void *context;
    void *data;
} sim_context_transfer;

extern sim_context_transfer jump_fcontext(void *to, void *data);

/* Where to go when the running fiber yields, and which one that is. */
extern _Thread_local void *sim_scheduler_context;
extern _Thread_local sim_fiber *sim_running;

#if defined(SIM_ASAN)
void sim_fiber_start_switch(sim_fiber *from, const sim_fiber *to);
void sim_fiber_finish_switch(const sim_fiber *left);
#endif

/* On the stack of the running fiber, after every switch to it: whoever was left, a fiber or else the
   scheduler, goes on from there. */
static inline void sim_fiber_arrive(sim_context_transfer in)
{
    sim_fiber *left = in.data;
#if defined(SIM_ASAN)
    sim_fiber_finish_switch(left);
#endif
    if (left != NULL) {
        left->context = in.context;
    } else {
        sim_scheduler_context = in.context;
    }
}

/* From the running fiber: straight to another one; returns when somebody enters this one again. Inline
   down to the jump: each return behind a switch is mispredicted. */
static inline void sim_fiber_switch(sim_fiber *from, sim_fiber *to)
{
#if defined(SIM_ASAN)
    sim_fiber_start_switch(from, to);
#endif
    sim_running = to;
    sim_fiber_arrive(jump_fcontext(to->context, from));
}

#endif
