/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening and closing communicators. Opening ends alike on all ranks: each step that can fail on
 * one rank alone is followed by a meeting that makes it fail on all.
 */
#include "ist_internal.h"

#include "../../kernels/mask/mask_args.h"

#include <inttypes.h>
#include <string.h>

#define DESC_BYTES_FIRST 56u
#define OPERATION "comm.open"
#define LINE_BYTES 64u

/* ---- description ----------------------------------------------------------------------------- */

static ist_status read_desc(ist_world *world, const ist_comm_desc *desc, ist_comm_desc *checked)
{
    memset(checked, 0, sizeof(*checked));
    if (desc != NULL) {
        IST_RETURN_IF_ERROR(ist_desc_read(world, desc, DESC_BYTES_FIRST, checked, sizeof(*checked),
                                          "desc", OPERATION));
    }
    IST_RETURN_IF_ERROR(ist_check_reserved(world, checked->reserved, sizeof(checked->reserved),
                                           "desc.reserved", OPERATION));
    IST_RETURN_IF_ERROR(
        ist_check_deadline(world, checked->deadline_ns, "desc.deadline_ns", OPERATION));
    if (checked->fault_tolerant > 1) {
        return ist_fail_value(
            world, IST_ERR_ARGUMENT, "desc.fault_tolerant", OPERATION, 1, checked->fault_tolerant,
            "desc.fault_tolerant is %u, 0 or 1 is required", checked->fault_tolerant);
    }
    if ((uint32_t)checked->check > IST_CHECK_PEERS) {
        return ist_fail_value(world, IST_ERR_ARGUMENT, "desc.check", OPERATION, IST_CHECK_PEERS,
                              (uint64_t)checked->check,
                              "desc.check is %d, AUTO, CALLS or PEERS is required",
                              (int)checked->check);
    }
    return IST_OK;
}

static ist_status check_whole_world(const ist_world *world, const ist_comm_desc *desc)
{
    if (desc->rank_count != 0 && desc->rank_count != world->rank_count) {
        return ist_fail_value(world, IST_ERR_ARGUMENT, "desc.rank_count", OPERATION,
                              world->rank_count, desc->rank_count,
                              "desc.rank_count is %u without an id, the world has %u ranks",
                              desc->rank_count, world->rank_count);
    }
    if (desc->rank != 0 && desc->rank != world->rank) {
        return ist_fail_value(world, IST_ERR_ARGUMENT, "desc.rank", OPERATION, world->rank,
                              desc->rank, "desc.rank is %u without an id, this is rank %u",
                              desc->rank, world->rank);
    }
    return IST_OK;
}

static ist_status check_with_id(const ist_world *world, const ist_comm_desc *desc)
{
    uint32_t rank_count = desc->rank_count != 0 ? desc->rank_count : world->rank_count;
    if (!ist_unique_id_valid(desc->id)) {
        return ist_fail(world, IST_ERR_ARGUMENT, "desc.id", OPERATION,
                        "desc.id was not made by ist_unique_id_create()");
    }
    if (rank_count > world->rank_count) {
        return ist_fail_value(world, IST_ERR_RANGE, "desc.rank_count", OPERATION, world->rank_count,
                              rank_count, "desc.rank_count is %u, the world has %u ranks",
                              rank_count, world->rank_count);
    }
    if (desc->rank >= rank_count) {
        return ist_fail_value(world, IST_ERR_RANGE, "desc.rank", OPERATION, rank_count, desc->rank,
                              "desc.rank is %u, below %u is required", desc->rank, rank_count);
    }
    return IST_OK;
}

static void resolve(const ist_world *world, const ist_comm_desc *desc, ist_comm *opening)
{
    if (desc->id != NULL) {
        opening->id = *desc->id;
        opening->rank = desc->rank;
    } else {
        ist_unique_id_of_world(world->comm_open_count, &opening->id);
        opening->of_world = true;
        opening->rank = world->rank;
    }
    opening->rank_count = desc->rank_count != 0 ? desc->rank_count : world->rank_count;
    opening->fault_tolerant = desc->fault_tolerant;
    opening->lsa_size_max = desc->lsa_size_max;
    opening->deadline_ns = desc->deadline_ns != 0 ? desc->deadline_ns : world->deadline_ns;
    opening->check = desc->check != IST_CHECK_AUTO ? desc->check : world->check;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static ist_status open_in_backend(ist_world *world, ist_comm *opening)
{
    ist_backend_comm_desc desc = {.rank = opening->rank,
                                  .rank_count = opening->rank_count,
                                  .lsa_size_max = opening->lsa_size_max,
                                  .deadline_ns = opening->deadline_ns};
    memcpy(desc.id, opening->id.bytes, sizeof(desc.id));
    ist_backend_comm_info info = {0};
    uint64_t number = 0;
    IST_RETURN_IF_ERROR(world->ops.comm_open(world->self, &desc, &number, &info));
    opening->object.world = world;
    opening->object.number = number;
    opening->lsa_rank = info.lsa_rank;
    opening->lsa_size = info.lsa_size;
    opening->gin_supported = info.gin_supported;
    opening->gin_reason = info.gin_reason;
    return IST_OK;
}

/* The mask in host memory, as device code is to find it. */
static ist_status poke_mask(ist_comm *opening, void *memory, size_t bytes)
{
    ist_world *world = opening->object.world;
    ist_dev_mask *image = ist_alloc(1, bytes);
    if (image == NULL) {
        return ist_fail_memory(world, "a mask", OPERATION);
    }
    image->generation = 1;
    image->rank_count = opening->rank_count;
    image->fault_tolerant = opening->fault_tolerant;
    image->alarm = opening->alarm;
    for (uint32_t rank = 0; rank < opening->rank_count; ++rank) {
        image->words[rank / 64u] |= UINT64_C(1) << (rank % 64u);
    }
    ist_status status = world->ops.mem_poke(world->self, memory, image, bytes);
    ist_free(image);
    return status;
}

/* Near the host: the alarm and the result of the last consensus. */
static ist_status open_reports(ist_comm *opening)
{
    ist_world *world = opening->object.world;
    const uint64_t quiet[2] = {0, 0};
    void *memory = NULL;
    IST_RETURN_IF_ERROR(world->ops.mem_alloc(world->self, LINE_BYTES + sizeof(ist_mask_result),
                                             IST_MEM_HOST_VISIBLE, &memory));
    opening->alarm = memory;
    opening->mask_result = (ist_mask_result *)(void *)((uint8_t *)memory + LINE_BYTES);
    ist_status status = world->ops.mem_poke(world->self, memory, quiet, sizeof(quiet));
    if (status >= 0) {
        status = world->ops.mem_poke(world->self, opening->mask_result, quiet, sizeof(quiet));
    }
    return status;
}

/* Near the device: the mask and the participants of a clean. Being symmetric says so. */
static ist_status open_mask(ist_comm *opening)
{
    ist_world *world = opening->object.world;
    size_t words_bytes = IST_MASK_WORDS(opening->rank_count) * sizeof(uint64_t);
    size_t participants_at = ist_layout_round(IST_DEV_MASK_BYTES(opening->rank_count), LINE_BYTES);
    size_t bytes = participants_at + words_bytes;
    uint32_t flags = (uint32_t)IST_MEM_HOST_VISIBLE | (uint32_t)IST_MEM_SYMMETRIC;
    void *memory = NULL;
    ist_status status = open_reports(opening);
    if (status >= 0) {
        status = world->ops.mem_alloc(world->self, bytes, flags, &memory);
    }
    IST_RETURN_IF_ERROR(status);
    status = poke_mask(opening, memory, bytes);
    if (status < 0) {
        ist_error why; /* the meeting that follows would read a mask that was never written */
        ist_error_save(&why);
        (void)world->ops.mem_free(world->self, memory);
        ist_error_restore(&why);
        return status;
    }
    opening->mask = memory;
    opening->participants = (uint64_t *)(void *)((uint8_t *)memory + participants_at);
    return status;
}

static ist_status check_team(const ist_comm *opening)
{
    uint32_t size = opening->lsa_size;
    if (size >= 1 && opening->rank_count % size == 0 && opening->lsa_rank < size &&
        opening->rank % size == opening->lsa_rank) {
        return IST_OK;
    }
    return ist_fail_value(opening->object.world, IST_ERR_INTERNAL, "lsa_size", OPERATION,
                          opening->rank_count, size,
                          "the backend reports place %u in a team of %u for rank %u of %u",
                          opening->lsa_rank, size, opening->rank, opening->rank_count);
}

static ist_status meet_first(ist_comm *opening, const char *operation)
{
    const ist_field fields[] = {
        {"desc.rank_count", opening->rank_count},
        {"desc.fault_tolerant", opening->fault_tolerant},
        {"desc.deadline_ns", opening->deadline_ns},
        {"desc.lsa_size_max", opening->lsa_size_max},
        {"desc.check", (uint64_t)opening->check},
        {"the size of the load/store team", opening->lsa_size},
    };
    ist_status local = check_team(opening);
    if (local == IST_OK) {
        local = open_mask(opening);
    }
    return ist_comm_meet(opening, local, fields, sizeof(fields) / sizeof(fields[0]), operation);
}

/* Whether device code reaches all peers; equal on all ranks. */
static bool peers_in_reach(const ist_comm *comm)
{
    return comm->object.world->has_devcomm &&
           (comm->lsa_size == comm->rank_count || comm->gin_supported != 0);
}

static ist_status open_service(ist_comm *opening, const char *operation)
{
    bool needs_gin = opening->lsa_size != opening->rank_count;
    ist_devcomm_desc desc = {
        .resource_bytes = ist_mask_layout_of(opening->rank_count).bytes,
        .context_count = needs_gin ? 1 : 0,
        .signal_count = needs_gin ? ist_mask_signal_count(opening->rank_count) : 0,
    };
    if (!peers_in_reach(opening)) {
        return IST_OK;
    }
    return ist_devcomm_open_agreed(opening, &desc, operation, &opening->service);
}

static void keep_first_failure(ist_status *first, ist_status status)
{
    if (*first == IST_OK) {
        *first = status;
    }
}

static void free_devcomm_nodes(ist_comm *comm)
{
    while (comm->devcomms != NULL) {
        ist_user_devcomm *node = comm->devcomms;
        comm->devcomms = node->next;
        ist_free(node);
    }
}

static void discard_comm(void *object)
{
    ist_comm *comm = object;
    free_devcomm_nodes(comm);
    ist_free(comm->coll);
    comm->coll = NULL;
}

/* Everything but the struct. Goes on after a failure, and returns the first. */
static ist_status take_down(ist_comm *comm)
{
    ist_world *world = comm->object.world;
    ist_status first = IST_OK;
    for (const ist_user_devcomm *node = comm->devcomms; node != NULL; node = node->next) {
        keep_first_failure(&first, ist_devcomm_close(comm, node->dev));
    }
    free_devcomm_nodes(comm);
    ist_coll_group_forget(world, comm->object.number, 0);
    if (comm->coll != NULL) {
        keep_first_failure(&first, world->ops.coll_close(world->self, comm->object.number));
        ist_free(comm->coll);
        comm->coll = NULL;
    }
    if (comm->service != NULL) {
        keep_first_failure(&first, ist_devcomm_close(comm, comm->service));
        comm->service = NULL;
    }
    keep_first_failure(&first, world->ops.comm_close(world->self, comm->object.number));
    if (comm->mask != NULL) {
        keep_first_failure(&first, world->ops.mem_free(world->self, comm->mask));
        comm->mask = NULL;
    }
    if (comm->alarm != NULL) {
        keep_first_failure(&first, world->ops.mem_free(world->self, comm->alarm));
        comm->alarm = NULL;
    }
    return first;
}

static ist_status close_comm(void *object)
{
    return ist_comm_close(object);
}

ist_status ist_comm_open_resolved(ist_world *world, ist_comm *opening, const char *operation,
                                  ist_comm **comm)
{
    ist_status status = open_in_backend(world, opening);
    if (status < 0) {
        ist_free(opening);
        return status;
    }
    /* Counted when all ranks have joined, which all of them see alike: whatever fails from here on
       may fail on some ranks only, and they must still meet under one id the next time. */
    world->comm_open_count += opening->of_world ? 1u : 0u;
    status = meet_first(opening, operation);
    if (status == IST_OK) {
        status = open_service(opening, operation);
    }
    if (status < 0) {
        ist_error why;
        ist_error_save(&why);
        take_down(opening);
        ist_error_restore(&why);
        ist_free(opening);
        return status;
    }
    ist_object_open(opening, IST_KIND_COMM, world, opening->object.number, close_comm);
    opening->object.discard = discard_comm;
    *comm = opening;
    return IST_OK;
}

ist_status ist_comm_open(ist_world *world, const ist_comm_desc *desc, ist_comm **comm)
{
    ist_comm_desc checked;
    IST_RETURN_IF_ERROR(ist_check_world(world, "world", OPERATION));
    IST_RETURN_IF_ERROR(ist_check_pointer(world, comm, "comm", OPERATION));
    IST_RETURN_IF_ERROR(read_desc(world, desc, &checked));
    IST_RETURN_IF_ERROR(checked.id != NULL ? check_with_id(world, &checked)
                                           : check_whole_world(world, &checked));
    ist_comm *opening = ist_alloc(1, sizeof(*opening));
    if (opening == NULL) {
        return ist_fail_memory(world, "a communicator", OPERATION);
    }
    resolve(world, &checked, opening);
    return ist_comm_open_resolved(world, opening, OPERATION, comm);
}

ist_status ist_comm_close(ist_comm *comm)
{
    if (comm == NULL) {
        return IST_OK;
    }
    IST_RETURN_IF_ERROR(ist_check_comm_open(comm, "comm", "comm.close"));
    if (comm->window_count != 0 || comm->group_count != 0) {
        return ist_fail_value(comm->object.world, IST_ERR_USAGE, "comm", "comm.close", 0,
                              (uint64_t)comm->window_count + comm->group_count,
                              "%u windows and %u groups of comm are open", comm->window_count,
                              comm->group_count);
    }
    ist_status status = take_down(comm);
    ist_object_close(comm);
    return status;
}
