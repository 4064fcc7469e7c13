/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host memory: the only allocator of the library, zeroed, and able to fail on demand. A thread keeps
 * the blocks that it frees, by size, up to a bound: worlds that follow each other ask for the same
 * ones again. Sanitizers and valgrind are to see every block, so under them nothing is kept.
 */
#include "ist_layer.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IST_ALLOC_PLAIN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define IST_ALLOC_PLAIN 1
#endif
#endif

#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#else
#define RUNNING_ON_VALGRIND 0
#endif

#define KEPT_LOG2_MIN 6u
#define KEPT_LOG2_MAX 17u
#define KEPT_CLASSES (KEPT_LOG2_MAX - KEPT_LOG2_MIN + 1u)
#define KEPT_BYTES_MAX ((size_t)4 << 20)
/* Of a block that is too large to be kept. */
#define KEPT_NEVER UINT32_MAX

/* In front of each block. */
typedef struct block_head {
    _Alignas(max_align_t) struct block_head *next; /* while kept */
    uint32_t class;                                /* block_bytes(), or KEPT_NEVER */
} block_head;

typedef struct kept_blocks {
    block_head *first[KEPT_CLASSES];
    size_t bytes;
    bool watched; /* the thread's end will free them */
} kept_blocks;

static _Thread_local kept_blocks kept;
static pthread_key_t kept_key;
static pthread_once_t kept_once = PTHREAD_ONCE_INIT;
static bool kept_usable;

static size_t block_bytes(uint32_t class)
{
    return (size_t)1 << (class + KEPT_LOG2_MIN);
}

static uint32_t block_class(size_t bytes)
{
    if (bytes <= block_bytes(0)) {
        return 0;
    }
    return 64u - (uint32_t)__builtin_clzll((unsigned long long)bytes - 1u) - KEPT_LOG2_MIN;
}

static void kept_free(void *blocks)
{
    kept_blocks *all = blocks;
    for (uint32_t class = 0; class < KEPT_CLASSES; ++class) {
        while (all->first[class] != NULL) {
            block_head *head = all->first[class];
            all->first[class] = head->next;
            free(head);
        }
    }
    all->bytes = 0;
    all->watched = false;
}

static void kept_begin(void)
{
    kept_usable = pthread_key_create(&kept_key, kept_free) == 0;
}

/* Threads may outlive the library where a program opened it at run time: they must not call into it. */
static __attribute__((destructor)) void kept_end(void)
{
    if (kept_usable) {
        kept_usable = false;
        (void)pthread_key_delete(kept_key);
    }
    kept_free(&kept);
}

/* Whether the thread's end will free what it keeps. */
static bool kept_watch(void)
{
    if (!kept.watched) {
        kept.watched = pthread_once(&kept_once, kept_begin) == 0 && kept_usable &&
                       pthread_setspecific(kept_key, &kept) == 0;
    }
    return kept.watched;
}

static void *block_take(size_t bytes)
{
    uint32_t class = bytes <= block_bytes(KEPT_CLASSES - 1u) ? block_class(bytes) : KEPT_NEVER;
    block_head *head = class != KEPT_NEVER ? kept.first[class] : NULL;
    if (head != NULL) {
        kept.first[class] = head->next;
        kept.bytes -= block_bytes(class);
        return memset(head + 1, 0, bytes);
    }
    size_t room = class != KEPT_NEVER ? block_bytes(class) : bytes;
    if (room > SIZE_MAX - sizeof(*head)) {
        return NULL;
    }
    head = calloc(1, sizeof(*head) + room);
    if (head == NULL) {
        return NULL;
    }
    head->class = class;
    return head + 1;
}

static void block_give(void *memory)
{
    block_head *head = (block_head *)memory - 1;
    uint32_t class = head->class;
    if (class == KEPT_NEVER || kept.bytes + block_bytes(class) > KEPT_BYTES_MAX || !kept_watch()) {
        free(head);
        return;
    }
    head->next = kept.first[class];
    kept.first[class] = head;
    kept.bytes += block_bytes(class);
}

/* Constant in a process; who keeps blocks need not ask. */
static bool plain(void)
{
#if defined(IST_ALLOC_PLAIN)
    return true;
#else
    return !kept.watched && RUNNING_ON_VALGRIND != 0;
#endif
}

void *ist_alloc(size_t count, size_t bytes)
{
    if (ist_call_fault_due(IST_CALL_HOST_ALLOC) != IST_OK) {
        return NULL;
    }
    if (plain()) {
        return calloc(count, bytes);
    }
    size_t all = 0;
    return __builtin_mul_overflow(count, bytes, &all) ? NULL : block_take(all);
}

void ist_free(void *memory)
{
    if (memory == NULL) {
        return;
    }
    if (plain()) {
        free(memory);
    } else {
        block_give(memory);
    }
}
