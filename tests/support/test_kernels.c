/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels that tests launch; see test_kernels.h. Each shows one promise of the device header, and
 * leaves judging to the host.
 */
#include "test_kernels.h"

/** Writes a result word; one lane. */
IST_DEVICE_FN void tk_put(ist_coop *coop, uint64_t *word, uint64_t value)
{
    if (ist_coop_elect(coop)) {
        ist_store_u64(coop, word, value, IST_RELAXED, IST_SCOPE_DEVICE);
    }
}

IST_DEVICE_FN ist_gin_action tk_action(uint32_t kind, uint32_t signal, uint64_t value)
{
    ist_gin_action action;
    action.kind = (ist_gin_action_kind)kind;
    action.signal = signal;
    action.value = value;
    return action;
}

/* ---- order on streams ------------------------------------------------------------------------ */

IST_KERNEL(tk_gate, tk_gate_args)
{
    uint64_t deadline_ns = ist_clock_ns(coop) + args->wait_ns;
    ist_wait_result result =
        ist_coop_wait_word(coop, args->dev, args->word, args->least, deadline_ns, IST_SCOPE_SYSTEM);
    tk_put(coop, args->result, (uint64_t)result + 1u);
}

IST_KERNEL(tk_append, tk_append_args)
{
    uint64_t at = ist_coop_fetch_add(coop, args->list, 1, IST_ACQ_REL, IST_SCOPE_DEVICE);
    tk_put(coop, &args->list[1 + at], args->value);
}

IST_KERNEL(tk_affine, tk_affine_args)
{
    uint64_t value = ist_load_u64(coop, args->from, IST_RELAXED, IST_SCOPE_DEVICE);
    ist_coop_sync(coop);
    tk_put(coop, args->to, value * args->factor + args->addend);
}

/* ---- coops ----------------------------------------------------------------------------------- */

IST_KERNEL(tk_blocks, tk_blocks_args)
{
    uint32_t block = ist_coop_block(coop);
    uint32_t count = ist_coop_block_count(coop);
    uint64_t wrong = 0;
    tk_put(coop, &args->out[2 * block], block);
    tk_put(coop, &args->out[2 * block + 1], count);
    for (uint32_t round = 0; round < args->rounds; ++round) {
        uint64_t deadline_ns = ist_clock_ns(coop) + 50000000u;
        tk_put(coop, &args->values[block], round * 1000u + block);
        (void)ist_coop_fetch_add(coop, args->meet, 1, IST_ACQ_REL, IST_SCOPE_DEVICE);
        ist_wait_result met =
            ist_coop_wait_word(coop, (const ist_dev_comm *)0, args->meet,
                               (uint64_t)(2 * round + 1) * count, deadline_ns, IST_SCOPE_DEVICE);
        wrong += met != IST_WAIT_DONE;
        uint64_t value =
            ist_load_u64(coop, &args->values[(block + 1) % count], IST_RELAXED, IST_SCOPE_DEVICE);
        wrong += value != round * 1000u + (block + 1) % count;
        (void)ist_coop_fetch_add(coop, args->meet, 1, IST_ACQ_REL, IST_SCOPE_DEVICE);
        met = ist_coop_wait_word(coop, (const ist_dev_comm *)0, args->meet,
                                 (uint64_t)(2 * round + 2) * count, deadline_ns, IST_SCOPE_DEVICE);
        wrong += met != IST_WAIT_DONE;
    }
    (void)ist_coop_fetch_add(coop, &args->out[2 * count], wrong, IST_RELAXED, IST_SCOPE_DEVICE);
    if (ist_coop_elect(coop)) {
        (void)ist_fetch_add_u64(coop, &args->out[2 * count + 1], 1, IST_RELAXED, IST_SCOPE_DEVICE);
    }
}

IST_KERNEL(tk_scan, tk_scan_args)
{
    uint32_t *values = (uint32_t *)ist_coop_scratch(coop, 0, (args->count + 1u) * 4u);
    IST_EACH_LANE (coop, i, args->count) {
        values[i] = ist_load_u32(coop, &args->in[i], IST_RELAXED, IST_SCOPE_DEVICE);
    }
    ist_coop_sync(coop);
    uint32_t total = ist_coop_scan(coop, values, args->count);
    IST_EACH_LANE (coop, j, args->count) {
        ist_store_u32(coop, &args->out[j], values[j], IST_RELAXED, IST_SCOPE_DEVICE);
    }
    if (ist_coop_elect(coop)) {
        ist_store_u32(coop, &args->out[args->count], total, IST_RELAXED, IST_SCOPE_DEVICE);
    }
}

IST_KERNEL(tk_rank_by_key, tk_rank_by_key_args)
{
    ist_coop_rank_by_key(coop, args->keys, args->count, args->ordinals, args->totals,
                         args->key_count);
}

IST_KERNEL(tk_scratch, tk_scratch_args)
{
    uint64_t wrong = 0;
    uint64_t misaligned = 0;
    uint64_t moved = 0;
    uint32_t words = args->bytes_a_slot / 4u;
    for (uint32_t slot = 0; slot < 8u; ++slot) {
        uint32_t *memory = (uint32_t *)ist_coop_scratch(coop, slot, args->bytes_a_slot);
        misaligned += ((uint64_t)memory & 15u) != 0;
        IST_EACH_LANE (coop, i, words) {
            memory[i] = slot * 65536u + i;
        }
    }
    ist_coop_sync(coop);
    for (uint32_t slot = 0; slot < 8u; ++slot) {
        uint32_t *memory = (uint32_t *)ist_coop_scratch(coop, slot, args->bytes_a_slot);
        moved += ist_coop_scratch(coop, slot, 4) != (void *)memory;
        for (uint32_t i = 0; i < words; ++i) {
            wrong += memory[i] != slot * 65536u + i;
        }
    }
    tk_put(coop, &args->out[0], wrong);
    tk_put(coop, &args->out[1], misaligned);
    tk_put(coop, &args->out[2], moved);
}

IST_KERNEL(tk_atomics, tk_atomics_args)
{
    uint64_t *words = args->words;
    uint64_t *out = args->out;
    if (!ist_coop_elect(coop)) {
        return;
    }
    ist_scope scope = IST_SCOPE_SYSTEM;
    out[0] = ist_fetch_add_u64(coop, &words[0], 5, IST_RELAXED, scope);
    out[1] = ist_fetch_add_u64(coop, &words[0], UINT64_MAX, IST_ACQ_REL, scope);
    ist_store_u64(coop, &words[1], 0xff00ff, IST_RELEASE, IST_SCOPE_DEVICE);
    out[2] = ist_fetch_and_u64(coop, &words[1], 0x0f00f0, IST_ACQUIRE, scope);
    out[3] = ist_compare_swap_u64(coop, &words[2], 1, 7, IST_RELEASE, scope);
    out[4] = ist_compare_swap_u64(coop, &words[2], 0, 8, IST_ACQ_REL, scope);
    out[5] = ist_load_u64(coop, &words[2], IST_ACQUIRE, scope);
    ist_store_u32(coop, (uint32_t *)&words[3], 0x12345678u, IST_RELAXED, IST_SCOPE_DEVICE);
    ist_fence(coop, IST_ACQ_REL, scope);
    out[6] = ist_load_u32(coop, (uint32_t *)&words[3], IST_RELAXED, IST_SCOPE_DEVICE);
    out[7] = ist_load_u32(coop, (uint32_t *)&words[3] + 1, IST_RELAXED, IST_SCOPE_DEVICE);
}

IST_KERNEL(tk_count, tk_count_args)
{
    for (uint32_t i = 0; i < args->times; ++i) {
        (void)ist_coop_fetch_add(coop, args->word, 1, IST_RELAXED, IST_SCOPE_DEVICE);
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

IST_KERNEL(tk_row, tk_row_args)
{
    if (args->fill != 0) {
        ist_row_fill(coop, args->dst, (uint8_t)args->value, args->bytes);
    } else {
        ist_row_copy(coop, args->dst, args->src, args->bytes);
    }
    ist_coop_sync(coop);
}

IST_KERNEL(tk_row_many, tk_row_many_args)
{
    ist_row_copy_many(coop, args->dst, args->count, args->src, args->bytes);
    ist_coop_sync(coop);
}

/* The same sum as the second of two; the first has no place. */
IST_DEVICE_FN void tk_reduce_batch(ist_coop *coop, const tk_row_reduce_args *args)
{
    enum { STRIDE = 2 * TK_SOURCES_MAX };
    const void **src = (const void **)ist_coop_scratch(coop, 0, 2u * STRIDE * sizeof(void *));
    float *weight = (float *)ist_coop_scratch(coop, 1, 2u * STRIDE * sizeof(float));
    void **dst = (void **)ist_coop_scratch(coop, 2, 2u * sizeof(void *));
    IST_EACH_LANE (coop, i, 2u * STRIDE) {
        uint32_t source = i % STRIDE / 2u;
        int there = i % 2u == 1u && source < args->count;
        src[i] = there ? args->src[source] : (const void *)0;
        weight[i] = there ? args->weight[source] : 0.0f;
    }
    IST_EACH_LANE (coop, i, 2u) {
        dst[i] = i == 1u ? args->dst : (void *)0;
    }
    ist_coop_sync(coop);
    ist_row_sums batch = {dst,
                          src,
                          args->weighted != 0 ? weight : (const float *)0,
                          args->elements,
                          STRIDE,
                          2,
                          (ist_dtype)args->dtype,
                          0};
    ist_row_reduce_batch(coop, &batch);
    ist_coop_sync(coop);
}

IST_KERNEL(tk_tagged, tk_tagged_args)
{
    const uint64_t **words =
        (const uint64_t **)ist_coop_scratch(coop, 0, (args->count + 1u) * sizeof(uint64_t *));
    uint32_t *data = (uint32_t *)ist_coop_scratch(coop, 1, (args->count + 1u) * 4u);
    uint32_t block = ist_coop_block(coop);
    uint32_t next = (block + 1u) % ist_coop_block_count(coop);
    uint64_t wrong = 0;
    uint64_t ended = 0;
    for (uint32_t round = 1; round <= args->rounds; ++round) {
        uint64_t tagged = (uint64_t)round << 32 | round << 8;
        IST_EACH_LANE (coop, i, args->count) {
            ist_store_u64(coop, &args->words[block * args->count + i], tagged | block, IST_RELAXED,
                          IST_SCOPE_DEVICE);
        }
        IST_EACH_LANE (coop, i, args->count + 1u) {
            words[i] = i < args->count ? &args->words[next * args->count + i] : (uint64_t *)0;
            data[i] = 77;
        }
        ist_coop_sync(coop);
        ended += ist_coop_wait_tagged(coop, (const ist_dev_comm *)0, words, data, args->count + 1u,
                                      round, ist_clock_ns(coop) + 50000000u,
                                      IST_SCOPE_DEVICE) != IST_WAIT_DONE;
        for (uint32_t i = 0; i < args->count; ++i) {
            wrong += data[i] != ((uint32_t)tagged | next);
        }
        wrong += data[args->count] != 77;
        /* Nobody goes on before all have looked. */
        (void)ist_coop_fetch_add(coop, &args->out[2], 1, IST_ACQ_REL, IST_SCOPE_DEVICE);
        ended +=
            ist_coop_wait_word(coop, (const ist_dev_comm *)0, &args->out[2],
                               (uint64_t)round * ist_coop_block_count(coop),
                               ist_clock_ns(coop) + 50000000u, IST_SCOPE_DEVICE) != IST_WAIT_DONE;
    }
    ended += ist_coop_wait_tagged(coop, (const ist_dev_comm *)0, words, data, args->count,
                                  args->rounds + 1u, ist_clock_ns(coop) + 20000u,
                                  IST_SCOPE_DEVICE) != IST_WAIT_TIMEOUT;
    (void)ist_coop_fetch_add(coop, &args->out[0], wrong, IST_RELAXED, IST_SCOPE_DEVICE);
    (void)ist_coop_fetch_add(coop, &args->out[1], ended, IST_RELAXED, IST_SCOPE_DEVICE);
}

IST_KERNEL(tk_row_reduce, tk_row_reduce_args)
{
    if (args->batch) {
        tk_reduce_batch(coop, args);
        return;
    }
    ist_row_reduce(coop, args->dst, args->src,
                   args->weighted != 0 ? args->weight : (const float *)0, args->count,
                   args->elements, (ist_dtype)args->dtype);
    ist_coop_sync(coop);
}

/* ---- load/store peers ------------------------------------------------------------------------ */

IST_DEVICE_FN uint64_t tk_lsa_data(const ist_dev_comm *dev, uint32_t words, uint32_t from)
{
    return 8u * ((uint64_t)dev->rank_count + (uint64_t)from * words);
}

IST_KERNEL(tk_lsa, tk_lsa_args)
{
    const ist_dev_comm *dev = args->dev;
    uint64_t unreachable = 0;
    uint64_t failed = 0;
    uint64_t sum = 0;
    for (uint32_t peer = 0; peer < dev->rank_count; ++peer) {
        uint64_t *data = (uint64_t *)ist_window_peer(
            coop, dev, args->window, tk_lsa_data(dev, args->words, dev->rank), peer);
        uint64_t *flag =
            (uint64_t *)ist_window_peer(coop, dev, args->window, 8u * (uint64_t)dev->rank, peer);
        if (data == (uint64_t *)0) {
            ++unreachable;
            continue;
        }
        IST_EACH_LANE (coop, i, args->words) {
            ist_store_u64(coop, &data[i], args->tag * 1000u + dev->rank * 10u + i, IST_RELAXED,
                          IST_SCOPE_SYSTEM);
        }
        ist_coop_sync(coop);
        if (ist_coop_elect(coop)) {
            ist_store_u64(coop, flag, args->tag, IST_RELEASE, IST_SCOPE_SYSTEM);
        }
    }
    uint64_t deadline_ns = ist_clock_ns(coop) + args->wait_ns;
    for (uint32_t peer = 0; peer < dev->rank_count; ++peer) {
        if (!ist_dev_is_lsa(dev, peer)) {
            continue;
        }
        const uint64_t *flag =
            (const uint64_t *)ist_window_local(coop, dev, args->window, 8u * (uint64_t)peer);
        const uint64_t *data = (const uint64_t *)ist_window_local(
            coop, dev, args->window, tk_lsa_data(dev, args->words, peer));
        failed += ist_coop_wait_word(coop, dev, flag, args->tag, deadline_ns, IST_SCOPE_SYSTEM) !=
                  IST_WAIT_DONE;
        for (uint32_t i = 0; i < args->words; ++i) {
            sum += ist_load_u64(coop, &data[i], IST_RELAXED, IST_SCOPE_SYSTEM);
        }
    }
    tk_put(coop, &args->out[0], failed);
    tk_put(coop, &args->out[1], sum);
    tk_put(coop, &args->out[2], unreachable);
}

IST_KERNEL(tk_lsa_barrier, tk_lsa_barrier_args)
{
    const ist_dev_comm *dev = args->dev;
    uint32_t first = dev->rank - dev->lsa_rank;
    uint32_t next = first + (dev->lsa_rank + 1u) % dev->lsa_size;
    uint64_t wrong = 0;
    uint64_t failed = 0;
    uint8_t *results = (uint8_t *)ist_coop_scratch(coop, 0, dev->lsa_size);
    for (uint32_t round = 0; round < args->rounds; ++round) {
        uint64_t wait_ns = round == 0 ? args->first_wait_ns : args->wait_ns;
        uint64_t deadline_ns = ist_clock_ns(coop) + wait_ns;
        uint64_t *there = (uint64_t *)ist_window_peer(coop, dev, args->window, 0, next);
        tk_put(coop, there, round + 1u);
        ist_wait_result met = ist_lsa_barrier_sync(coop, dev, args->barrier, deadline_ns, results);
        failed += met != IST_WAIT_DONE;
        uint64_t *here = (uint64_t *)ist_window_local(coop, dev, args->window, 0);
        uint64_t value = ist_load_u64(coop, here, IST_RELAXED, IST_SCOPE_SYSTEM);
        wrong += met == IST_WAIT_DONE && value != round + 1u;
        met = ist_lsa_barrier_sync(coop, dev, args->barrier, ist_clock_ns(coop) + args->wait_ns,
                                   (uint8_t *)0);
        failed += met != IST_WAIT_DONE;
    }
    tk_put(coop, &args->out[0], wrong);
    tk_put(coop, &args->out[1], failed);
}

IST_KERNEL(tk_address, tk_address_args)
{
    const ist_dev_comm *dev = args->dev;
    for (uint32_t peer = 0; peer < dev->rank_count; ++peer) {
        void *address = ist_window_peer(coop, dev, args->window, args->offset, peer);
        tk_put(coop, &args->out[peer], address != (void *)0);
    }
}

/* ---- the network ----------------------------------------------------------------------------- */

IST_KERNEL(tk_gin, tk_gin_args)
{
    const ist_dev_comm *dev = args->dev;
    ist_gin_action each = tk_action(args->put_action, args->signal, args->value);
    uint64_t deadline_ns = ist_clock_ns(coop) + args->wait_ns;
    for (uint32_t i = 0; i < args->count && (args->what & TK_GIN_PUT); ++i) {
        uint64_t at = i * args->bytes;
        ist_gin_put(coop, dev, args->context, args->peer, args->window, args->dst_offset + at,
                    args->window, args->src_offset + at, args->bytes, each,
                    args->what & TK_GIN_COUNTER ? args->counter : IST_GIN_NO_COUNTER);
    }
    if (args->what & TK_GIN_VALUE) {
        ist_gin_put_value(coop, dev, args->context, args->peer, args->window,
                          args->dst_offset + args->count * args->bytes, args->value, each);
    }
    if (args->what & TK_GIN_SIGNAL) {
        ist_gin_signal(coop, dev, args->context, args->peer,
                       tk_action(args->signal_action, args->signal, args->value));
    }
    if (args->what & TK_GIN_FLUSH) {
        ist_wait_result flushed = ist_gin_flush(coop, dev, args->context, deadline_ns);
        tk_put(coop, &args->out[0], (uint64_t)flushed + 1u);
    }
    if (args->what & TK_GIN_COUNTER) {
        ist_wait_result counted =
            ist_gin_counter_wait(coop, dev, args->context, args->counter, args->count, deadline_ns);
        tk_put(coop, &args->out[1], (uint64_t)counted + 1u);
    }
    if (args->what & TK_GIN_WAIT) {
        ist_wait_result signalled =
            ist_gin_signal_wait(coop, dev, args->context, args->signal, args->least, deadline_ns);
        tk_put(coop, &args->out[2], (uint64_t)signalled + 1u);
        tk_put(coop, &args->out[3],
               ist_gin_signal_read(coop, dev, args->context, args->signal, IST_ACQUIRE));
    }
}

IST_KERNEL(tk_gin_reset, tk_gin_reset_args)
{
    const ist_dev_comm *dev = args->dev;
    if (!ist_coop_elect(coop)) {
        return;
    }
    args->out[0] = ist_gin_signal_read(coop, dev, args->context, args->signal, IST_ACQUIRE);
    ist_gin_signal_reset(coop, dev, args->context, args->signal);
    args->out[1] = ist_gin_signal_read(coop, dev, args->context, args->signal, IST_RELAXED);
    args->out[2] = ist_gin_counter_read(coop, dev, args->context, args->counter);
    ist_gin_counter_reset(coop, dev, args->context, args->counter);
    args->out[3] = ist_gin_counter_read(coop, dev, args->context, args->counter);
}

/* ---- waits and masks ------------------------------------------------------------------------- */

/** Signals hold the tag when each rank raises them by what the tag has grown. */
IST_DEVICE_FN void tk_raise(ist_coop *coop, const tk_peers_args *args, uint32_t peer)
{
    const ist_dev_comm *dev = args->dev;
    if (ist_dev_is_lsa(dev, peer)) {
        uint64_t *flag =
            (uint64_t *)ist_window_peer(coop, dev, args->window, 8u * (uint64_t)dev->rank, peer);
        if (ist_coop_elect(coop)) {
            ist_store_u64(coop, flag, args->tag, IST_RELEASE, IST_SCOPE_SYSTEM);
        }
        return;
    }
    ist_gin_signal(coop, dev, dev->rank % dev->context_count, peer,
                   tk_action(IST_GIN_SIGNAL_ADD, dev->rank, args->step));
}

IST_KERNEL(tk_peers, tk_peers_args)
{
    const ist_dev_comm *dev = args->dev;
    uint8_t *results = (uint8_t *)ist_coop_scratch(coop, 0, dev->rank_count);
    uint64_t began_ns = ist_clock_ns(coop);
    ist_peer_wait wait;
    wait.words = (const uint64_t *)ist_window_local(coop, dev, args->window, 0);
    wait.expected = args->tag;
    wait.deadline_ns = began_ns + args->wait_ns;
    wait.signal_first = 0;
    wait.skip_self = args->skip_self;
    for (uint32_t peer = 0; peer < dev->rank_count && args->silent == 0; ++peer) {
        tk_raise(coop, args, peer);
    }
    uint32_t lost = ist_wait_peers(coop, dev, &wait, results);
    uint64_t waited_ns = ist_clock_ns(coop) - began_ns;
    uint64_t dropped = 0;
    tk_put(coop, &args->out[0], lost);
    tk_put(coop, &args->out[1], waited_ns);
    for (uint32_t peer = 0; peer < dev->rank_count; ++peer) {
        tk_put(coop, &args->out[2 + peer], results[peer] + 1u);
        if (args->drop != 0 && results[peer] == IST_WAIT_TIMEOUT && ist_coop_elect(coop)) {
            ist_dev_error error;
            error.status = IST_ERR_TIMEOUT;
            error.peer = peer;
            error.operation = IST_DEV_OP_USER;
            error.reserved = 0;
            error.sequence = 77;
            error.expected = args->tag;
            error.observed = 3;
            error.waited_ns = waited_ns;
            dropped += (uint64_t)ist_mask_drop(coop, dev, &error);
            dropped += 100u * (uint64_t)ist_mask_drop(coop, dev, &error);
        }
    }
    tk_put(coop, &args->out[2 + dev->rank_count], dropped);
}

IST_KERNEL(tk_timeouts, tk_timeouts_args)
{
    const ist_dev_comm *dev = args->dev;
    uint64_t wait_ns = args->wait_ns;
    ist_wait_result result = ist_coop_wait_word(coop, dev, args->word, 1,
                                                ist_clock_ns(coop) + wait_ns, IST_SCOPE_SYSTEM);
    tk_put(coop, &args->out[0], (uint64_t)result + 1u);
    if (args->network != 0) {
        result = ist_gin_signal_wait(coop, dev, 0, 0, 1, ist_clock_ns(coop) + wait_ns);
        tk_put(coop, &args->out[1], (uint64_t)result + 1u);
        result = ist_gin_counter_wait(coop, dev, 0, 0, 1, ist_clock_ns(coop) + wait_ns);
        tk_put(coop, &args->out[2], (uint64_t)result + 1u);
        /* Nothing is on its way, so this is done at once. */
        result = ist_gin_flush(coop, dev, 0, ist_clock_ns(coop) + wait_ns);
        tk_put(coop, &args->out[3], (uint64_t)result + 1u);
    }
}

IST_KERNEL(tk_mask, tk_mask_args)
{
    const ist_dev_comm *dev = args->dev;
    for (uint32_t peer = 0; peer < dev->rank_count; ++peer) {
        tk_put(coop, &args->out[peer], (uint64_t)ist_mask_active(coop, dev, peer));
    }
    tk_put(coop, &args->out[dev->rank_count], (uint64_t)ist_aborted(coop, dev));
}
