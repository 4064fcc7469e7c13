/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file cuda_device_check.cu
 * Uses every function of the device header once, so that a build proves that all of them exist and
 * compile for CUDA. The kernels are never launched; what they compute has no meaning.
 *
 * One kernel a group, so that registers and stack that the compiler reports belong to a few
 * functions.
 */
#define IST_CUDA_BULK_BYTES_MIN 2048u /* so that the copy engine's path is compiled too */
#include <isthmus/device.h>

typedef struct ist_check_args {
    const ist_dev_comm *dev;
    uint64_t *words;
    uint32_t *small_words;
    const int32_t *keys;
    void *rows[4];
    float weights[4];
    ist_dev_error error;
    ist_peer_wait wait;
    uint64_t bytes;
    uint64_t deadline_ns;
    uint32_t count;
    uint32_t dtype;
} ist_check_args;

IST_KERNEL(check_coop, ist_check_args)
{
    uint32_t *values = (uint32_t *)ist_coop_scratch(coop, 0, 4096);
    uint8_t *flags = (uint8_t *)ist_coop_scratch(coop, 1, 256);
    IST_EACH_LANE (coop, i, args->count) {
        values[i] = (uint32_t)args->keys[i];
        flags[i % 256u] = 1;
    }
    uint32_t total = ist_coop_scan(coop, values, args->count);
    uint64_t before = ist_coop_fetch_add(coop, args->words, total, IST_ACQ_REL, IST_SCOPE_DEVICE);
    ist_wait_result result = ist_coop_wait_word(coop, args->dev, args->words, before,
                                                args->deadline_ns, IST_SCOPE_DEVICE);
    ist_point(coop, "check");
    ist_coop_sync(coop);
    if (ist_coop_elect(coop)) {
        args->words[1] = ist_coop_block(coop) + ist_coop_block_count(coop) + (uint64_t)result +
                         values[args->count / 2u] + flags[args->count % 256u];
    }
}

IST_KERNEL(check_rank, ist_check_args)
{
    ist_coop_rank_by_key(coop, args->keys, args->count, args->small_words,
                         args->small_words + args->count, 256);
}

/* Every order and scope of every access: the PTX of this kernel is the list of all forms. */
IST_KERNEL(check_memory, ist_check_args)
{
#define CHECK_LOAD(order, scope)                                                                   \
    sum += ist_load_u32(coop, args->small_words, order, scope);                                    \
    sum += ist_load_u64(coop, args->words, order, scope)
#define CHECK_STORE(order, scope)                                                                  \
    ist_store_u32(coop, args->small_words, (uint32_t)sum, order, scope);                           \
    ist_store_u64(coop, args->words, sum, order, scope)
#define CHECK_ATOMIC(order, scope)                                                                 \
    sum += ist_fetch_add_u64(coop, args->words, sum, order, scope);                                \
    sum += ist_fetch_and_u64(coop, args->words, sum, order, scope);                                \
    sum += ist_compare_swap_u64(coop, args->words, sum, 1, order, scope);                          \
    ist_fence(coop, order, scope)
#define CHECK_SCOPES(what, order)                                                                  \
    what(order, IST_SCOPE_BLOCK);                                                                  \
    what(order, IST_SCOPE_DEVICE);                                                                 \
    what(order, IST_SCOPE_SYSTEM)
    uint64_t sum = 0;
    CHECK_SCOPES(CHECK_LOAD, IST_RELAXED);
    CHECK_SCOPES(CHECK_LOAD, IST_ACQUIRE);
    CHECK_SCOPES(CHECK_STORE, IST_RELAXED);
    CHECK_SCOPES(CHECK_STORE, IST_RELEASE);
    CHECK_SCOPES(CHECK_ATOMIC, IST_RELAXED);
    CHECK_SCOPES(CHECK_ATOMIC, IST_ACQUIRE);
    CHECK_SCOPES(CHECK_ATOMIC, IST_RELEASE);
    CHECK_SCOPES(CHECK_ATOMIC, IST_ACQ_REL);
    args->words[1] = sum;
}

IST_KERNEL(check_copy, ist_check_args)
{
    ist_row_copy(coop, args->rows[0], args->rows[1], args->bytes);
    ist_coop_sync(coop);
    if (ist_coop_elect(coop)) {
        ist_store_u64(coop, args->words, 1, IST_RELEASE, IST_SCOPE_SYSTEM);
    }
}

IST_KERNEL(check_copy_many, ist_check_args)
{
    ist_row_copy_many(coop, args->rows, args->count, args->rows[3], args->bytes);
}

IST_KERNEL(check_fill, ist_check_args)
{
    ist_row_fill(coop, args->rows[0], 0xff, args->bytes);
}

IST_KERNEL(check_reduce, ist_check_args)
{
    ist_row_reduce(coop, args->rows[0], args->rows, args->weights, args->count, args->bytes,
                   (ist_dtype)args->dtype);
}

IST_KERNEL(check_reduce_batch, ist_check_args)
{
    ist_row_sums batch = {args->rows,  args->rows, args->weights,          args->bytes,
                          args->count, 1,          (ist_dtype)args->dtype, 0};
    ist_row_reduce_batch(coop, &batch);
}

IST_KERNEL(check_tagged, ist_check_args)
{
    const uint64_t **words = (const uint64_t **)ist_coop_scratch(coop, 0, 4096);
    uint32_t *data = (uint32_t *)ist_coop_scratch(coop, 1, 2048);
    IST_EACH_LANE (coop, i, args->count) {
        words[i] = args->words + i;
    }
    ist_coop_sync(coop);
    ist_wait_result result = ist_coop_wait_tagged(coop, args->dev, words, data, args->count, 7,
                                                  args->deadline_ns, IST_SCOPE_SYSTEM);
    if (ist_coop_elect(coop)) {
        args->words[1] = data[args->count / 2u] + (uint64_t)result;
    }
}

IST_KERNEL(check_reduce_bf16, ist_check_args)
{
    ist_row_reduce(coop, args->rows[0], args->rows, NULL, args->count, args->bytes, IST_BF16);
}

IST_KERNEL(check_window, ist_check_args)
{
    uint64_t *local = (uint64_t *)ist_window_local(coop, args->dev, 1, args->bytes);
    uint64_t *peer = (uint64_t *)ist_window_peer(coop, args->dev, 1, args->bytes, args->count);
    if (ist_coop_elect(coop) && local != NULL && peer != NULL) {
        ist_store_u64(coop, peer, ist_clock_ns(coop), IST_RELEASE, IST_SCOPE_SYSTEM);
    }
}

IST_KERNEL(check_wait, ist_check_args)
{
    uint8_t *results = (uint8_t *)ist_coop_scratch(coop, 0, args->dev->rank_count);
    uint32_t lost = ist_wait_peers(coop, args->dev, &args->wait, results);
    if (ist_coop_elect(coop)) {
        args->words[0] = lost + results[0];
    }
}

IST_KERNEL(check_mask, ist_check_args)
{
    IST_EACH_LANE (coop, peer, args->dev->rank_count) {
        if (ist_mask_active(coop, args->dev, peer) && !ist_aborted(coop, args->dev)) {
            ist_dev_error error = args->error;
            error.peer = peer;
            args->words[peer] = (uint64_t)ist_mask_drop(coop, args->dev, &error);
        }
    }
}

IST_KERNEL(check_barrier, ist_check_args)
{
    uint8_t *results = (uint8_t *)ist_coop_scratch(coop, 0, args->dev->rank_count);
    uint32_t index = ist_coop_block(coop);
    ist_lsa_barrier_arrive(coop, args->dev, index);
    ist_wait_result result =
        ist_lsa_barrier_wait(coop, args->dev, index, args->deadline_ns, results);
    if (result == IST_WAIT_DONE) {
        result = ist_lsa_barrier_sync(coop, args->dev, index, args->deadline_ns, NULL);
    }
    if (ist_coop_elect(coop)) {
        args->words[index] = (uint64_t)result;
    }
}

IST_KERNEL(check_gin, ist_check_args)
{
    const ist_dev_comm *dev = args->dev;
    ist_gin_action strong = {IST_GIN_SIGNAL_ADD, 0, 5};
    ist_gin_action weak = {IST_GIN_WEAK_SIGNAL_INC, 1, 0};
    ist_gin_action none = {IST_GIN_NONE, 0, 0};
    ist_gin_put(coop, dev, 0, args->count, 1, 0, 1, 0, args->bytes, weak, 0);
    ist_gin_put(coop, dev, 0, args->count, 1, 0, 1, 0, args->bytes, none, IST_GIN_NO_COUNTER);
    ist_gin_put_value(coop, dev, 0, args->count, 1, 0, args->bytes, strong);
    ist_gin_signal(coop, dev, 0, args->count, strong);
    ist_wait_result result = ist_gin_signal_wait(coop, dev, 0, 0, 5, args->deadline_ns);
    if (result == IST_WAIT_DONE) {
        result = ist_gin_counter_wait(coop, dev, 0, 0, 1, args->deadline_ns);
    }
    if (result == IST_WAIT_DONE) {
        result = ist_gin_flush(coop, dev, 0, args->deadline_ns);
    }
    if (ist_coop_elect(coop)) {
        uint64_t value = ist_gin_signal_read(coop, dev, 0, 1, IST_ACQUIRE) +
                         ist_gin_signal_read(coop, dev, 0, 1, IST_RELAXED) +
                         ist_gin_counter_read(coop, dev, 0, 0);
        ist_gin_signal_reset(coop, dev, 0, 0);
        ist_gin_counter_reset(coop, dev, 0, 0);
        if (ist_gin_peer_error(coop, dev, args->count)) {
            ist_gin_peer_clear(coop, dev, args->count);
        }
        args->words[0] = value + (uint64_t)result + (uint64_t)ist_dev_is_lsa(dev, args->count);
    }
}
