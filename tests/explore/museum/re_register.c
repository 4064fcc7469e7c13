/* SPDX-License-Identifier: Apache-2.0 */
/*
 * re-register. Memory that was registered and deregistered again and again got a new symmetric address
 * every time, and the old ones were never given back, until there were none. Public: NVIDIA/nccl issue
 * 2331.
 *
 * Here: two ranks register and deregister three buffers in an order that is drawn from the seed, and
 * keep a small table of symmetric addresses. Broken: an address is used once. Fixed: deregistering
 * gives it back. Oracle: there is an address for every registration, and never two for one.
 */
#include "museum.h"

#define ADDRESSES 8u
#define BUFFERS 3u
#define ROUNDS 24u
#define BUFFER_BYTES 4096u
#define NOWHERE UINT32_MAX

typedef struct registry {
    uint32_t used; /* bits of the addresses that are taken */
    uint32_t next; /* that was never used */
} registry;

typedef struct buffer {
    void *memory;
    ist_window *window; /* NULL: not registered */
    uint32_t address;
} buffer;

static uint32_t address_take(const museum_rig *rig, registry *addresses)
{
    uint32_t found = rig->run->broken ? addresses->next++ : 0;
    while (!rig->run->broken && (addresses->used >> found & 1u) != 0) {
        ++found;
    }
    if (found >= ADDRESSES) {
        return NOWHERE;
    }
    addresses->used |= UINT32_C(1) << found;
    return found;
}

/* Registers what is not registered, and the other way round. */
static ist_status toggle(museum_rig *rig, registry *addresses, buffer *which, uint32_t round)
{
    if (which->window != NULL) {
        IST_TEST_PASS_ON(museum_meet(rig)); /* peers are done with it */
        IST_TEST_PASS_ON(ist_window_close(which->window));
        which->window = NULL;
        addresses->used &= rig->run->broken ? UINT32_MAX : ~(UINT32_C(1) << which->address);
        return IST_OK;
    }
    which->address = address_take(rig, addresses);
    if (which->address == NOWHERE) {
        museum_wrong(rig, "no symmetric address is left in round %u", round);
        return IST_OK;
    }
    return ist_window_open(rig->comm, which->memory, BUFFER_BYTES, &which->window);
}

static ist_status register_main(ist_world *world, void *run)
{
    museum_rig rig;
    registry addresses = {0, 0};
    buffer buffers[BUFFERS] = {{NULL, NULL, 0}};
    IST_TEST_PASS_ON(museum_open(world, run, &rig));
    for (uint32_t i = 0; i < BUFFERS; ++i) {
        IST_TEST_PASS_ON(ist_mem_alloc(world, BUFFER_BYTES, IST_MEM_SYMMETRIC, &buffers[i].memory));
    }
    for (uint32_t i = 0; i < ROUNDS && (rig.run->wrong >> rig.rank & 1u) == 0; ++i) {
        buffer *which = &buffers[museum_draw(rig.run, i, BUFFERS)];
        IST_TEST_PASS_ON(toggle(&rig, &addresses, which, i));
    }
    IST_TEST_PASS_ON(museum_meet(&rig));
    for (uint32_t i = 0; i < BUFFERS; ++i) {
        IST_TEST_PASS_ON(ist_window_close(buffers[i].window));
        IST_TEST_PASS_ON(ist_mem_free(world, buffers[i].memory));
    }
    return museum_close(&rig);
}

const museum_piece museum_re_register = {
    .name = "re-register",
    .address = "NVIDIA/nccl issue 2331",
    .rank_count = 2,
    .answers = {{MUSEUM_KIND(STATUS), {"no symmetric address is left in round"}}},
    .rank_main = register_main,
    .always = 1,
};
