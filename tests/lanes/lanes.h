/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file lanes.h
 * A second meaning of the portable device header, for tests: a block has LANES lanes, each with its
 * own stack, as on a GPU. Included before a kernel's text (-include), which is then compiled with the
 * thread sanitizer. lanes.c runs the lanes in turn, in an order drawn from a seed; only what the
 * contract of a call promises orders one lane's accesses before another's, so a block sync that is
 * missing is a data race between lanes, whatever the order was.
 *
 * The names below stand for the calls of the device header from here on. Calls of one lane go to the
 * simulator as they are. Collective calls that sync do so, and one lane makes the call. Rows are cut:
 * each lane moves its part.
 */
#ifndef LANES_H
#define LANES_H

#include <isthmus/device.h>

#define LANES 3u

uint32_t lanes_self(void);
void lanes_run(ist_coop *coop, const void *args, void (*body)(ist_coop *coop, const void *args));
void lanes_sync(ist_coop *coop);
void *lanes_scratch(ist_coop *coop, uint32_t slot, uint32_t bytes);

uint32_t lanes_load_u32(ist_coop *coop, const uint32_t *word, ist_order order, ist_scope scope);
uint64_t lanes_load_u64(ist_coop *coop, const uint64_t *word, ist_order order, ist_scope scope);
void lanes_store_u32(ist_coop *coop, uint32_t *word, uint32_t value, ist_order order,
                     ist_scope scope);
void lanes_store_u64(ist_coop *coop, uint64_t *word, uint64_t value, ist_order order,
                     ist_scope scope);
uint64_t lanes_fetch_add_u64(ist_coop *coop, uint64_t *word, uint64_t value, ist_order order,
                             ist_scope scope);
uint64_t lanes_fetch_and_u64(ist_coop *coop, uint64_t *word, uint64_t value, ist_order order,
                             ist_scope scope);
uint64_t lanes_compare_swap_u64(ist_coop *coop, uint64_t *word, uint64_t expected, uint64_t desired,
                                ist_order order, ist_scope scope);
void lanes_fence(ist_coop *coop, ist_order order, ist_scope scope);
void *lanes_window_local(ist_coop *coop, const ist_dev_comm *dev, uint32_t window, uint64_t offset);
void *lanes_window_peer(ist_coop *coop, const ist_dev_comm *dev, uint32_t window, uint64_t offset,
                        uint32_t peer);
uint64_t lanes_clock_ns(ist_coop *coop);
int lanes_mask_active(ist_coop *coop, const ist_dev_comm *dev, uint32_t peer);
int lanes_mask_drop(ist_coop *coop, const ist_dev_comm *dev, const ist_dev_error *error);
int lanes_aborted(ist_coop *coop, const ist_dev_comm *dev);
uint64_t lanes_gin_signal_read(ist_coop *coop, const ist_dev_comm *dev, uint32_t context,
                               uint32_t signal, ist_order order);
void lanes_gin_signal_reset(ist_coop *coop, const ist_dev_comm *dev, uint32_t context,
                            uint32_t signal);
void lanes_gin_peer_clear(ist_coop *coop, const ist_dev_comm *dev, uint32_t peer);

uint64_t lanes_coop_fetch_add(ist_coop *coop, uint64_t *word, uint64_t value, ist_order order,
                              ist_scope scope);
ist_wait_result lanes_coop_wait_word(ist_coop *coop, const ist_dev_comm *dev, const uint64_t *word,
                                     uint64_t least, uint64_t deadline_ns, ist_scope scope);
ist_wait_result lanes_coop_wait_tagged(ist_coop *coop, const ist_dev_comm *dev,
                                       const uint64_t *const *words, uint32_t *data, uint32_t count,
                                       uint32_t tag, uint64_t deadline_ns, ist_scope scope);
uint32_t lanes_coop_scan(ist_coop *coop, uint32_t *values, uint32_t count);
void lanes_coop_rank_by_key(ist_coop *coop, const int32_t *keys, uint32_t count, uint32_t *ordinals,
                            uint32_t *totals, uint32_t key_count);
uint32_t lanes_wait_peers(ist_coop *coop, const ist_dev_comm *dev, const ist_peer_wait *wait,
                          uint8_t *results);
void lanes_gin_put(ist_coop *coop, const ist_dev_comm *dev, uint32_t context, uint32_t peer,
                   uint32_t dst_window, uint64_t dst_offset, uint32_t src_window,
                   uint64_t src_offset, uint64_t bytes, ist_gin_action remote,
                   uint32_t local_counter);
void lanes_gin_put_value(ist_coop *coop, const ist_dev_comm *dev, uint32_t context, uint32_t peer,
                         uint32_t dst_window, uint64_t dst_offset, uint64_t value,
                         ist_gin_action remote);
void lanes_gin_signal(ist_coop *coop, const ist_dev_comm *dev, uint32_t context, uint32_t peer,
                      ist_gin_action remote);
void lanes_point(ist_coop *coop, const char *name);

void lanes_row_copy(ist_coop *coop, void *dst, const void *src, uint64_t bytes);
void lanes_row_copy_many(ist_coop *coop, void *const *dst, uint32_t count, const void *src,
                         uint64_t bytes);
void lanes_row_copy_batch(ist_coop *coop, const ist_row_batch *batch);
void lanes_row_copy_list(ist_coop *coop, const ist_row_part *parts, uint32_t count);
void lanes_row_fill(ist_coop *coop, void *dst, uint8_t value, uint64_t bytes);
void lanes_row_reduce(ist_coop *coop, void *dst, const void *const *src, const float *weight,
                      uint32_t count, uint64_t elements, ist_dtype dtype);
void lanes_row_reduce_batch(ist_coop *coop, const ist_row_sums *batch);

#if !defined(LANES_RUNTIME)

#undef IST_KERNEL
#define IST_KERNEL(name_, args_type)                                                               \
    static void ist_kernel_body_##name_(ist_coop *coop, const args_type *args);                    \
    static void ist_kernel_lane_##name_(ist_coop *coop, const void *args_)                         \
    {                                                                                              \
        ist_kernel_body_##name_(coop, (const args_type *)args_);                                   \
    }                                                                                              \
    __attribute__((no_sanitize_thread)) static void ist_kernel_entry_##name_(ist_coop *coop,       \
                                                                             const void *args_)    \
    {                                                                                              \
        lanes_run(coop, args_, ist_kernel_lane_##name_);                                           \
    }                                                                                              \
    extern const ist_kernel ist_kernel_##name_;                                                    \
    const ist_kernel ist_kernel_##name_ = {#name_, (uint32_t)sizeof(args_type), 0,                 \
                                           ist_kernel_entry_##name_, __FILE__};                    \
    __attribute__((constructor)) static void ist_kernel_ctor_##name_(void)                         \
    {                                                                                              \
        ist_kernel_register(&ist_kernel_##name_);                                                  \
    }                                                                                              \
    static void ist_kernel_body_##name_(ist_coop *coop, const args_type *args)

#undef IST_EACH_LANE
#define IST_EACH_LANE(coop, i, n)                                                                  \
    (void)(coop);                                                                                  \
    for (uint32_t i = lanes_self(), i##_end_ = (uint32_t)(n); i < i##_end_; i += LANES)

/* Neither the first lane nor the one that is elected begins. */
#undef IST_EACH_LANE_BACK
#define IST_EACH_LANE_BACK(coop, i, n)                                                             \
    (void)(coop);                                                                                  \
    for (uint32_t i = (2u * LANES - 2u - lanes_self()) % LANES, i##_end_ = (uint32_t)(n);          \
         i < i##_end_; i += LANES)

#define ist_coop_elect(coop) ((void)(coop), lanes_self() == LANES - 1u)
#define ist_coop_sync lanes_sync
#define ist_coop_scratch lanes_scratch
#define ist_load_u32 lanes_load_u32
#define ist_load_u64 lanes_load_u64
#define ist_store_u32 lanes_store_u32
#define ist_store_u64 lanes_store_u64
#define ist_fetch_add_u64 lanes_fetch_add_u64
#define ist_fetch_and_u64 lanes_fetch_and_u64
#define ist_compare_swap_u64 lanes_compare_swap_u64
#define ist_fence lanes_fence
#define ist_window_local lanes_window_local
#define ist_window_peer lanes_window_peer
#define ist_clock_ns lanes_clock_ns
#define ist_mask_active lanes_mask_active
#define ist_mask_drop lanes_mask_drop
#define ist_aborted lanes_aborted
#define ist_gin_signal_read lanes_gin_signal_read
#define ist_gin_signal_reset lanes_gin_signal_reset
#define ist_gin_peer_clear lanes_gin_peer_clear
#define ist_coop_fetch_add lanes_coop_fetch_add
#define ist_coop_wait_word lanes_coop_wait_word
#define ist_coop_wait_tagged lanes_coop_wait_tagged
#define ist_coop_scan lanes_coop_scan
#define ist_coop_rank_by_key lanes_coop_rank_by_key
#define ist_wait_peers lanes_wait_peers
#define ist_gin_put lanes_gin_put
#define ist_gin_put_value lanes_gin_put_value
#define ist_gin_signal lanes_gin_signal
#define ist_point lanes_point
#define ist_row_copy lanes_row_copy
#define ist_row_copy_many lanes_row_copy_many
#define ist_row_copy_batch lanes_row_copy_batch
#define ist_row_copy_list lanes_row_copy_list
#define ist_row_fill lanes_row_fill
#define ist_row_reduce lanes_row_reduce
#define ist_row_reduce_batch lanes_row_reduce_batch

/* Not used by the kernels: whoever uses one of them first gives it a meaning in lanes.c. */
#pragma GCC poison ist_lsa_barrier_arrive ist_lsa_barrier_wait ist_lsa_barrier_sync
#pragma GCC poison ist_gin_signal_wait ist_gin_counter_wait ist_gin_flush ist_gin_peer_error
#pragma GCC poison ist_gin_counter_read ist_gin_counter_reset

#endif

#endif
