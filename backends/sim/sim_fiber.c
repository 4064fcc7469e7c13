/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fibers over Boost.Context's C entry points, with pooled stacks and the annotations that the
 * address sanitizer and valgrind need to follow a stack switch.
 */
#include "sim_fiber.h"

#include <isthmus/backend.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(SIM_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#define SIM_VALGRIND 1
#endif

extern void *make_fcontext(void *stack_top, size_t stack_bytes,
                           void (*entry)(sim_context_transfer));

#define SIM_POOL_KINDS 2

#if defined(SIM_ASAN)
static const size_t sim_stack_sizes[SIM_POOL_KINDS] = {1u << 20, 1u << 18};
#else
static const size_t sim_stack_sizes[SIM_POOL_KINDS] = {1u << 19, 1u << 16};
#endif

typedef struct sim_free_stack {
    struct sim_free_stack *next;
    unsigned valgrind_id;
} sim_free_stack;

/* The free list is threaded through the top of the stacks themselves. */
static _Thread_local sim_free_stack *sim_pool[SIM_POOL_KINDS];

_Thread_local void *sim_scheduler_context;
_Thread_local sim_fiber *sim_running;

#if defined(SIM_ASAN)
static _Thread_local const void *sim_scheduler_stack;
static _Thread_local size_t sim_scheduler_stack_bytes;
#endif

static sim_free_stack *sim_stack_link(void *stack, size_t bytes)
{
    return (sim_free_stack *)(void *)((uint8_t *)stack + bytes - sizeof(sim_free_stack));
}

static void *sim_stack_map(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK;
    uint8_t *map = mmap(NULL, bytes + page, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (map == MAP_FAILED) {
        return NULL;
    }
    if (mprotect(map, page, PROT_NONE) != 0) {
        (void)munmap(map, bytes + page);
        return NULL;
    }
    return map + page;
}

static ist_status sim_stack_take(sim_stack_kind kind, sim_fiber *fiber)
{
    size_t bytes = sim_stack_sizes[kind];
    sim_free_stack *link = sim_pool[kind];
    if (link != NULL) {
        sim_pool[kind] = link->next;
        fiber->valgrind_id = link->valgrind_id;
        fiber->stack = (uint8_t *)link + sizeof(*link) - bytes;
    } else {
        fiber->stack = sim_stack_map(bytes);
        if (fiber->stack == NULL) {
            return ist_raise(IST_ERR_MEMORY, NULL, "no address space for a stack of %zu bytes",
                             bytes);
        }
#if defined(SIM_VALGRIND)
        fiber->valgrind_id = VALGRIND_STACK_REGISTER(fiber->stack, (uint8_t *)fiber->stack + bytes);
#endif
    }
    fiber->stack_bytes = bytes;
    return IST_OK;
}

#if defined(SIM_ASAN)
void sim_fiber_start_switch(sim_fiber *from, const sim_fiber *to)
{
    __sanitizer_start_switch_fiber(&from->sanitizer_stack, to->stack, to->stack_bytes);
}

void sim_fiber_finish_switch(const sim_fiber *left)
{
    const void *stack = NULL;
    size_t bytes = 0;
    __sanitizer_finish_switch_fiber(sim_running->sanitizer_stack, &stack, &bytes);
    if (left == NULL) {
        sim_scheduler_stack = stack;
        sim_scheduler_stack_bytes = bytes;
    }
}
#endif

static void sim_fiber_main(sim_context_transfer in)
{
    sim_fiber *fiber = sim_running;
    sim_fiber_arrive(in);
    fiber->entry(fiber->argument);
    sim_fiber_leave(fiber);
}

ist_status sim_fiber_init(sim_fiber *fiber, sim_stack_kind kind, void (*entry)(void *argument),
                          void *argument)
{
    memset(fiber, 0, sizeof(*fiber));
    IST_RETURN_IF_ERROR(sim_stack_take(kind, fiber));
    fiber->entry = entry;
    fiber->argument = argument;
    uint8_t *top = (uint8_t *)fiber->stack + fiber->stack_bytes - sizeof(sim_free_stack);
    fiber->context = make_fcontext((void *)((uintptr_t)top & ~(uintptr_t)63),
                                   fiber->stack_bytes - 128, sim_fiber_main);
    return IST_OK;
}

void sim_fiber_fini(sim_fiber *fiber, sim_stack_kind kind)
{
    if (fiber->stack == NULL) {
        return;
    }
#if defined(SIM_ASAN)
    /* A fiber that was dropped in mid-flight leaves poisoned frames behind. */
    __asan_unpoison_memory_region(fiber->stack, fiber->stack_bytes);
#endif
    sim_free_stack *link = sim_stack_link(fiber->stack, fiber->stack_bytes);
    link->valgrind_id = fiber->valgrind_id;
    link->next = sim_pool[kind];
    sim_pool[kind] = link;
    fiber->stack = NULL;
    fiber->context = NULL;
}

void sim_fiber_enter(sim_fiber *fiber)
{
#if defined(SIM_ASAN)
    void *fake = NULL;
    __sanitizer_start_switch_fiber(&fake, fiber->stack, fiber->stack_bytes);
#endif
    sim_running = fiber;
    sim_context_transfer back = jump_fcontext(fiber->context, NULL);
#if defined(SIM_ASAN)
    __sanitizer_finish_switch_fiber(fake, NULL, NULL);
#endif
    sim_running->context = back.context; /* it may be another by now */
}

void sim_fiber_yield(sim_fiber *fiber)
{
#if defined(SIM_ASAN)
    __sanitizer_start_switch_fiber(&fiber->sanitizer_stack, sim_scheduler_stack,
                                   sim_scheduler_stack_bytes);
#else
    (void)fiber;
#endif
    sim_fiber_arrive(jump_fcontext(sim_scheduler_context, NULL));
}

void sim_fiber_leave(sim_fiber *fiber)
{
#if defined(SIM_ASAN)
    /* NULL: the fake stack of this fiber dies with it. */
    __sanitizer_start_switch_fiber(NULL, sim_scheduler_stack, sim_scheduler_stack_bytes);
#endif
    (void)jump_fcontext(sim_scheduler_context, NULL);
    /* The scheduler never enters a fiber that has left. */
    sim_fiber_yield(fiber);
}

sim_fiber_outer sim_fiber_scheduler_save(void)
{
    return (sim_fiber_outer){sim_scheduler_context, sim_running};
}

void sim_fiber_scheduler_restore(const sim_fiber_outer *outer)
{
    sim_scheduler_context = outer->scheduler;
    sim_running = outer->running;
}
