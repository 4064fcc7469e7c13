/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GIN calls of kernels: checks, then a put on its way (sim_gin.c).
 */
#include "sim_device.h"

#include <string.h>

/* What a block spends to hand one operation to its NIC. */
#define SIM_GIN_ISSUE_PS 100000ull

static bool sim_gin_signal_valid(ist_coop *coop, const ist_dev_comm *dev, uint32_t context,
                                 uint32_t signal, const char *call)
{
    if (context >= dev->context_count || signal >= dev->signal_count) {
        sim_device_fault(coop, dev, call, "signal %u of context %u, there are %u of %u", signal,
                         context, dev->signal_count, dev->context_count);
        return false;
    }
    return true;
}

static bool sim_gin_target_valid(ist_coop *coop, const ist_dev_comm *dev, uint32_t context,
                                 uint32_t peer, ist_gin_action action, const char *call)
{
    if (peer >= dev->rank_count || context >= dev->context_count) {
        sim_device_fault(coop, dev, call, "peer %u of %u, context %u of %u", peer, dev->rank_count,
                         context, dev->context_count);
        return false;
    }
    return action.kind == IST_GIN_NONE ||
           sim_gin_signal_valid(coop, dev, context, action.signal, call);
}

/* The caller's writes are released to the network; from here two agents go on. */
static void sim_put_agents(ist_coop *coop, sim_put *put)
{
    sim_explore *explore = coop->actor.world->explore;
    uint32_t released = sim_agent_release(explore, coop->actor.agent);
    put->agents[0] = sim_agent_network(explore, coop->actor.rank, put->dst->member->rank);
    put->agents[1] = sim_agent_network(explore, coop->actor.rank, put->dst->member->rank);
    sim_agent_join(explore, put->agents[0], released);
    sim_agent_join(explore, put->agents[1], released);
}

static sim_put *sim_gin_prepare(ist_coop *coop, const ist_dev_comm *dev, uint32_t context,
                                uint32_t peer, ist_gin_action action, const char *call)
{
    sim_devcomm *self = sim_devcomm_of(dev);
    ist_coop_sync(coop);
    sim_device_step_ordered(coop, SIM_GIN_ISSUE_PS);
    if (!sim_gin_target_valid(coop, dev, context, peer, action, call)) {
        return NULL;
    }
    sim_devcomm *other = sim_devcomm_peer(self, peer);
    if (other == NULL) {
        sim_device_fault(coop, dev, call, "rank %u has no device communicator", peer);
        return NULL;
    }
    sim_put *put = sim_put_new(coop->actor.world);
    if (put == NULL) {
        sim_device_no_memory(coop, call, sizeof(*put));
        return NULL;
    }
    put->src = self;
    put->dst = other;
    put->block_serial = coop->serial;
    put->context = context;
    put->peer = peer;
    put->action = action;
    put->counter = IST_GIN_NO_COUNTER;
    if (coop->actor.world->explore != NULL) {
        sim_put_agents(coop, put);
    }
    return put;
}

/* Address in the peer's copy of a window, or NULL when the range does not fit it. */
static void *sim_gin_target(sim_devcomm *self, uint32_t window, uint64_t offset, uint64_t bytes,
                            uint32_t peer)
{
    if (window >= self->pub.window_count) {
        return NULL;
    }
    uint64_t size = sim_window_bytes(self, window, peer);
    if (offset > size || bytes > size - offset) {
        return NULL;
    }
    void *const *bases = self->windows[window].backend;
    return bases != NULL && bases[peer] != NULL ? (uint8_t *)bases[peer] + offset : NULL;
}

static void sim_gin_discard(ist_coop *coop, sim_put *put)
{
    sim_pool_give(&coop->actor.world->puts, put);
}

void ist_gin_put(ist_coop *coop, const ist_dev_comm *dev, uint32_t context, uint32_t peer,
                 uint32_t dst_window, uint64_t dst_offset, uint32_t src_window, uint64_t src_offset,
                 uint64_t bytes, ist_gin_action remote, uint32_t local_counter)
{
    sim_put *put = sim_gin_prepare(coop, dev, context, peer, remote, "gin_put");
    if (put == NULL) {
        return;
    }
    put->to = sim_gin_target(put->src, dst_window, dst_offset, bytes, peer);
    put->from = sim_gin_target(put->src, src_window, src_offset, bytes, dev->rank);
    put->bytes = bytes;
    put->counter = local_counter;
    bool counter_valid = local_counter == IST_GIN_NO_COUNTER || local_counter < dev->counter_count;
    if (put->to == NULL || put->from == NULL || !counter_valid) {
        sim_device_fault(coop, dev, "gin_put",
                         "%llu bytes from window %u offset %llu to window %u offset %llu of rank "
                         "%u are out of range, or the counter %u is",
                         (unsigned long long)bytes, src_window, (unsigned long long)src_offset,
                         dst_window, (unsigned long long)dst_offset, peer, local_counter);
        sim_gin_discard(coop, put);
        return;
    }
    sim_put_issue(put);
}

void ist_gin_put_value(ist_coop *coop, const ist_dev_comm *dev, uint32_t context, uint32_t peer,
                       uint32_t dst_window, uint64_t dst_offset, uint64_t value,
                       ist_gin_action remote)
{
    sim_put *put = sim_gin_prepare(coop, dev, context, peer, remote, "gin_put_value");
    if (put == NULL) {
        return;
    }
    put->value = value;
    put->from = &put->value;
    put->to = sim_gin_target(put->src, dst_window, dst_offset, sizeof(value), peer);
    put->bytes = sizeof(value);
    if (put->to == NULL) {
        sim_device_fault(coop, dev, "gin_put_value", "window %u offset %llu of rank %u", dst_window,
                         (unsigned long long)dst_offset, peer);
        sim_gin_discard(coop, put);
        return;
    }
    sim_put_issue(put);
}

void ist_gin_signal(ist_coop *coop, const ist_dev_comm *dev, uint32_t context, uint32_t peer,
                    ist_gin_action remote)
{
    sim_put *put = sim_gin_prepare(coop, dev, context, peer, remote, "gin_signal");
    if (put != NULL) {
        sim_put_issue(put);
    }
}

static uint64_t *sim_gin_signal_word(const ist_dev_comm *dev, uint32_t context, uint32_t signal)
{
    return &sim_devcomm_of(dev)->signals[(size_t)context * dev->signal_count + signal];
}

static void sim_gin_acquire(ist_coop *coop, const ist_dev_comm *dev, sim_name name, const void *key,
                            bool acquires)
{
    sim_explore *explore = coop->actor.world->explore;
    const sim_devcomm *self = sim_devcomm_of(dev);
    if (explore != NULL) {
        const uint64_t *word = key;
        uint64_t index = name == SIM_NAME_SIGNAL    ? (uint64_t)(word - self->signals)
                         : name == SIM_NAME_COUNTER ? (uint64_t)(word - self->counters)
                                                    : sim_flush_context(self, key);
        sim_touch_named(explore, name, coop->actor.rank, self->instance, index, 1, false);
        sim_key_acquire(explore, coop->actor.agent, key, acquires);
    }
}

/* A loop that reads it is a wait of its own. */
static void sim_gin_looked(ist_coop *coop, const uint64_t *word, const char *what, uint32_t context,
                           uint32_t index)
{
    sim_explore *explore = coop->actor.world->explore;
    if (explore != NULL) {
        sim_poll_note(explore, coop->actor.agent,
                      &(sim_poll){.object = (uint64_t)(uintptr_t)word,
                                  .what = what,
                                  .seen = *word,
                                  .index = index,
                                  .context = context,
                                  .whom = IST_RANK_NONE,
                                  .numbered = true});
    }
}

uint64_t ist_gin_signal_read(ist_coop *coop, const ist_dev_comm *dev, uint32_t context,
                             uint32_t signal, ist_order order)
{
    sim_device_step_ordered(coop, coop->actor.world->cluster.load_ps);
    if (!sim_gin_signal_valid(coop, dev, context, signal, "gin_signal_read")) {
        return 0;
    }
    const uint64_t *word = sim_gin_signal_word(dev, context, signal);
    sim_gin_acquire(coop, dev, SIM_NAME_SIGNAL, word, order == IST_ACQUIRE || order == IST_ACQ_REL);
    sim_gin_looked(coop, word, "a signal", context, signal);
    return *word;
}

void ist_gin_signal_reset(ist_coop *coop, const ist_dev_comm *dev, uint32_t context,
                          uint32_t signal)
{
    sim_device_step_ordered(coop, coop->actor.world->cluster.load_ps);
    if (sim_gin_signal_valid(coop, dev, context, signal, "gin_signal_reset")) {
        *sim_gin_signal_word(dev, context, signal) = 0;
        sim_gin_acquire(coop, dev, SIM_NAME_SIGNAL, sim_gin_signal_word(dev, context, signal),
                        false);
    }
}

static ist_wait_result sim_gin_wait(ist_coop *coop, const ist_dev_comm *dev, sim_wait *wait,
                                    const uint64_t *word, uint64_t least, uint64_t deadline_ns)
{
    wait->coop = coop;
    wait->dev = sim_devcomm_of(dev);
    wait->expected = least;
    wait->pending = 1;
    if (ist_aborted(coop, dev)) {
        return IST_WAIT_ABORTED;
    }
    bool done = *word - least <= UINT64_MAX / 2 || sim_wait_block(wait, deadline_ns);
    if (done) {
        sim_gin_acquire(coop, dev,
                        wait->kind == SIM_WAIT_SIGNAL ? SIM_NAME_SIGNAL : SIM_NAME_COUNTER, word,
                        true);
    }
    ist_coop_sync(coop);
    if (wait->aborted) {
        return IST_WAIT_ABORTED;
    }
    return done ? IST_WAIT_DONE : IST_WAIT_TIMEOUT;
}

ist_wait_result ist_gin_signal_wait(ist_coop *coop, const ist_dev_comm *dev, uint32_t context,
                                    uint32_t signal, uint64_t least, uint64_t deadline_ns)
{
    sim_coop_drain(coop);
    sim_device_step_ordered(coop, coop->actor.world->cluster.load_ps);
    if (!sim_gin_signal_valid(coop, dev, context, signal, "gin_signal_wait")) {
        return IST_WAIT_ERROR;
    }
    sim_wait wait = {.kind = SIM_WAIT_SIGNAL, .context = context, .signal_first = signal};
    return sim_gin_wait(coop, dev, &wait, sim_gin_signal_word(dev, context, signal), least,
                        deadline_ns);
}

static bool sim_gin_counter_valid(ist_coop *coop, const ist_dev_comm *dev, uint32_t context,
                                  uint32_t counter, const char *call)
{
    if (context >= dev->context_count || counter >= dev->counter_count) {
        sim_device_fault(coop, dev, call, "counter %u of context %u, there are %u of %u", counter,
                         context, dev->counter_count, dev->context_count);
        return false;
    }
    return true;
}

static uint64_t *sim_gin_counter_word(const ist_dev_comm *dev, uint32_t context, uint32_t counter)
{
    return &sim_devcomm_of(dev)->counters[(size_t)context * dev->counter_count + counter];
}

static uint64_t sim_gin_counter_seen(ist_coop *coop, const ist_dev_comm *dev, const uint64_t *word)
{
    sim_gin_acquire(coop, dev, SIM_NAME_COUNTER, word, true);
    return *word;
}

uint64_t ist_gin_counter_read(ist_coop *coop, const ist_dev_comm *dev, uint32_t context,
                              uint32_t counter)
{
    sim_device_step_ordered(coop, coop->actor.world->cluster.load_ps);
    if (!sim_gin_counter_valid(coop, dev, context, counter, "gin_counter_read")) {
        return 0;
    }
    const uint64_t *word = sim_gin_counter_word(dev, context, counter);
    sim_gin_looked(coop, word, "a counter", context, counter);
    return sim_gin_counter_seen(coop, dev, word);
}

void ist_gin_counter_reset(ist_coop *coop, const ist_dev_comm *dev, uint32_t context,
                           uint32_t counter)
{
    sim_device_step_ordered(coop, coop->actor.world->cluster.load_ps);
    if (sim_gin_counter_valid(coop, dev, context, counter, "gin_counter_reset")) {
        *sim_gin_counter_word(dev, context, counter) = 0;
    }
}

ist_wait_result ist_gin_counter_wait(ist_coop *coop, const ist_dev_comm *dev, uint32_t context,
                                     uint32_t counter, uint64_t least, uint64_t deadline_ns)
{
    sim_coop_drain(coop);
    sim_device_step_ordered(coop, coop->actor.world->cluster.load_ps);
    if (!sim_gin_counter_valid(coop, dev, context, counter, "gin_counter_wait")) {
        return IST_WAIT_ERROR;
    }
    sim_wait wait = {.kind = SIM_WAIT_COUNTER, .context = context, .signal_first = counter};
    return sim_gin_wait(coop, dev, &wait, sim_gin_counter_word(dev, context, counter), least,
                        deadline_ns);
}

static uint32_t sim_gin_outstanding(const sim_devcomm *self, uint32_t context, uint64_t serial)
{
    uint32_t count = 0;
    for (uint32_t peer = 0; peer < self->pub.rank_count; ++peer) {
        const sim_pair *pair = &self->pairs[(size_t)context * self->pub.rank_count + peer];
        for (const sim_put *put = pair->head; put != NULL; put = put->next) {
            count += put->counted && put->block_serial == serial;
        }
    }
    return count;
}

ist_wait_result ist_gin_flush(ist_coop *coop, const ist_dev_comm *dev, uint32_t context,
                              uint64_t deadline_ns)
{
    sim_devcomm *self = sim_devcomm_of(dev);
    sim_coop_drain(coop);
    sim_device_step_ordered(coop, coop->actor.world->cluster.load_ps);
    if (context >= dev->context_count) {
        sim_device_fault(coop, dev, "gin_flush", "context %u, there are %u", context,
                         dev->context_count);
        return IST_WAIT_ERROR;
    }
    sim_wait wait = {.coop = coop,
                     .dev = self,
                     .kind = SIM_WAIT_FLUSH,
                     .context = context,
                     .pending = sim_gin_outstanding(self, context, coop->serial)};
    bool done = wait.pending == 0 || sim_wait_block(&wait, deadline_ns);
    if (done) {
        sim_gin_acquire(coop, dev, SIM_NAME_FLUSH, sim_flush_key(self, context), true);
    }
    ist_coop_sync(coop);
    if (wait.aborted) {
        return IST_WAIT_ABORTED;
    }
    if (!done) {
        return IST_WAIT_TIMEOUT;
    }
    return wait.failed ? IST_WAIT_ERROR : IST_WAIT_DONE;
}

int ist_gin_peer_error(ist_coop *coop, const ist_dev_comm *dev, uint32_t peer)
{
    (void)coop;
    return sim_devcomm_of(dev)->peer_errors[peer];
}

void ist_gin_peer_clear(ist_coop *coop, const ist_dev_comm *dev, uint32_t peer)
{
    sim_devcomm *self = sim_devcomm_of(dev);
    sim_device_step_ordered(coop, coop->actor.world->cluster.load_ps);
    self->peer_errors[peer] = 0;
    for (uint32_t context = 0; context < dev->context_count; ++context) {
        self->pairs[(size_t)context * dev->rank_count + peer].errored = false;
    }
}
