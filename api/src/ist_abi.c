/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The binary interface, pinned: offsets and sizes of every stable public struct on 64-bit machines. A
 * change here breaks programs that are already compiled; new fields go to the end and get a line.
 */
#include <isthmus/backend.h>
#include <isthmus/device.h>
#include <isthmus/isthmus.h>

#define FIELD(type, field, at)                                                                     \
    _Static_assert(offsetof(type, field) == (at), #type "." #field " has moved")
#define BYTES(type, bytes) _Static_assert(sizeof(type) == (bytes), #type " has another size")

/* status.h */
FIELD(ist_error, size, 0);
FIELD(ist_error, status, 4);
FIELD(ist_error, rank, 8);
FIELD(ist_error, peer, 12);
FIELD(ist_error, sequence, 16);
FIELD(ist_error, expected, 24);
FIELD(ist_error, observed, 32);
FIELD(ist_error, waited_ns, 40);
FIELD(ist_error, object, 48);
FIELD(ist_error, operation, 80);
FIELD(ist_error, message, 112);
BYTES(ist_error, 368);

/* types.h */
FIELD(ist_tensor, size, 0);
FIELD(ist_tensor, dtype, 4);
FIELD(ist_tensor, dim_count, 8);
FIELD(ist_tensor, reserved, 12);
FIELD(ist_tensor, dims, 16);
FIELD(ist_tensor, data, 56);
FIELD(ist_tensor, window, 64);
FIELD(ist_tensor, window_offset, 72);
BYTES(ist_tensor, 80);

/* world.h */
FIELD(ist_world_desc, size, 0);
FIELD(ist_world_desc, rank_count, 4);
FIELD(ist_world_desc, backend, 8);
FIELD(ist_world_desc, cluster, 16);
FIELD(ist_world_desc, seed, 24);
FIELD(ist_world_desc, deadline_ns, 32);
FIELD(ist_world_desc, check, 40);
FIELD(ist_world_desc, reserved, 44);
FIELD(ist_world_desc, faults, 48);
FIELD(ist_world_desc, sim, 56);
BYTES(ist_world_desc, 64);

FIELD(ist_world_result, size, 0);
FIELD(ist_world_result, status, 4);
FIELD(ist_world_result, failed_rank, 8);
FIELD(ist_world_result, lost_count, 12);
FIELD(ist_world_result, digest, 16);
FIELD(ist_world_result, event_count, 24);
FIELD(ist_world_result, device_op_count, 32);
FIELD(ist_world_result, virtual_ns, 40);
BYTES(ist_world_result, 48);

/* comm.h */
FIELD(ist_unique_id, bytes, 0);
BYTES(ist_unique_id, 128);

FIELD(ist_comm_desc, size, 0);
FIELD(ist_comm_desc, rank_count, 4);
FIELD(ist_comm_desc, rank, 8);
FIELD(ist_comm_desc, fault_tolerant, 12);
FIELD(ist_comm_desc, deadline_ns, 16);
FIELD(ist_comm_desc, id, 24);
FIELD(ist_comm_desc, check, 32);
FIELD(ist_comm_desc, lsa_size_max, 36);
FIELD(ist_comm_desc, reserved, 40);
BYTES(ist_comm_desc, 56);

FIELD(ist_comm_info, size, 0);
FIELD(ist_comm_info, rank, 4);
FIELD(ist_comm_info, rank_count, 8);
FIELD(ist_comm_info, lsa_rank, 12);
FIELD(ist_comm_info, lsa_size, 16);
FIELD(ist_comm_info, gin_supported, 20);
FIELD(ist_comm_info, fault_tolerant, 24);
FIELD(ist_comm_info, sm_count, 28);
FIELD(ist_comm_info, deadline_ns, 32);
FIELD(ist_comm_info, gin_reason, 40);
BYTES(ist_comm_info, 48);

/* mask.h */
FIELD(ist_mask, size, 0);
FIELD(ist_mask, rank_count, 4);
FIELD(ist_mask, generation, 8);
FIELD(ist_mask, words, 16);
FIELD(ist_mask, word_count, 24);
FIELD(ist_mask, reserved, 28);
BYTES(ist_mask, 32);

FIELD(ist_completion, size, 0);
FIELD(ist_completion, status, 4);
FIELD(ist_completion, sequence, 8);
FIELD(ist_completion, generation, 16);
FIELD(ist_completion, complete, 24);
FIELD(ist_completion, lost_count, 28);
FIELD(ist_completion, lost_words, 32);
FIELD(ist_completion, word_count, 40);
FIELD(ist_completion, reserved, 44);
BYTES(ist_completion, 48);

/* ep.h */
FIELD(ist_ep_alloc, alloc, 0);
FIELD(ist_ep_alloc, free, 8);
FIELD(ist_ep_alloc, context, 16);
BYTES(ist_ep_alloc, 24);

FIELD(ist_ep_group_desc, size, 0);
FIELD(ist_ep_group_desc, algorithm, 4);
FIELD(ist_ep_group_desc, expert_count, 8);
FIELD(ist_ep_group_desc, tokens_per_rank_max, 12);
FIELD(ist_ep_group_desc, topk_max, 16);
FIELD(ist_ep_group_desc, context_count, 20);
FIELD(ist_ep_group_desc, token_bytes_max, 24);
FIELD(ist_ep_group_desc, buffer_bytes, 32);
FIELD(ist_ep_group_desc, block_count_max, 40);
FIELD(ist_ep_group_desc, staged_count_max, 44);
FIELD(ist_ep_group_desc, zero_copy, 48);
FIELD(ist_ep_group_desc, check, 52);
FIELD(ist_ep_group_desc, deadline_ns, 56);
FIELD(ist_ep_group_desc, alloc, 64);
FIELD(ist_ep_group_desc, enable_mask, 88);
FIELD(ist_ep_group_desc, combine_order, 92);
FIELD(ist_ep_group_desc, reserved, 96);
BYTES(ist_ep_group_desc, 104);

FIELD(ist_ep_group_info, size, 0);
FIELD(ist_ep_group_info, expert_count, 4);
FIELD(ist_ep_group_info, expert_first, 8);
FIELD(ist_ep_group_info, expert_local_count, 12);
FIELD(ist_ep_group_info, tokens_per_rank_max, 16);
FIELD(ist_ep_group_info, topk_max, 20);
FIELD(ist_ep_group_info, block_count, 24);
FIELD(ist_ep_group_info, staged_count_max, 28);
FIELD(ist_ep_group_info, deadline_ns, 32);
FIELD(ist_ep_group_info, device_bytes, 40);
FIELD(ist_ep_group_info, rank_count, 48);
FIELD(ist_ep_group_info, context_count, 52);
FIELD(ist_ep_group_info, combine_order, 56);
FIELD(ist_ep_group_info, reserved, 60);
BYTES(ist_ep_group_info, 64);

FIELD(ist_ep_layout_info, size, 0);
FIELD(ist_ep_layout_info, id_kind, 4);
FIELD(ist_ep_layout_info, expert_counters, 8);
FIELD(ist_ep_layout_info, rank_counters, 16);
BYTES(ist_ep_layout_info, 24);

FIELD(ist_ep_dispatch_in, size, 0);
FIELD(ist_ep_dispatch_in, reserved, 4);
FIELD(ist_ep_dispatch_in, tokens, 8);
FIELD(ist_ep_dispatch_in, topk_weights, 16);
BYTES(ist_ep_dispatch_in, 24);

FIELD(ist_ep_dispatch_out, size, 0);
FIELD(ist_ep_dispatch_out, reserved, 4);
FIELD(ist_ep_dispatch_out, tokens, 8);
FIELD(ist_ep_dispatch_out, topk_weights, 16);
FIELD(ist_ep_dispatch_out, topk_idx, 24);
BYTES(ist_ep_dispatch_out, 32);

FIELD(ist_ep_combine_in, size, 0);
FIELD(ist_ep_combine_in, reserved, 4);
FIELD(ist_ep_combine_in, tokens, 8);
BYTES(ist_ep_combine_in, 16);

FIELD(ist_ep_combine_out, size, 0);
FIELD(ist_ep_combine_out, reserved, 4);
FIELD(ist_ep_combine_out, tokens, 8);
FIELD(ist_ep_combine_out, topk_weights, 16);
FIELD(ist_ep_combine_out, lost_counts, 24);
BYTES(ist_ep_combine_out, 32);

FIELD(ist_ep_op_desc, size, 0);
FIELD(ist_ep_op_desc, send_only, 4);
FIELD(ist_ep_op_desc, deadline_ns, 8);
FIELD(ist_ep_op_desc, reserved, 16);
BYTES(ist_ep_op_desc, 32);

/* device.h */
FIELD(ist_row_sums, dst, 0);
FIELD(ist_row_sums, src, 8);
FIELD(ist_row_sums, weight, 16);
FIELD(ist_row_sums, elements, 24);
FIELD(ist_row_sums, stride, 32);
FIELD(ist_row_sums, row_count, 36);
FIELD(ist_row_sums, dtype, 40);
FIELD(ist_row_sums, reserved, 44);
BYTES(ist_row_sums, 48);

FIELD(ist_dev_error, status, 0);
FIELD(ist_dev_error, peer, 4);
FIELD(ist_dev_error, operation, 8);
FIELD(ist_dev_error, reserved, 12);
FIELD(ist_dev_error, sequence, 16);
FIELD(ist_dev_error, expected, 24);
FIELD(ist_dev_error, observed, 32);
FIELD(ist_dev_error, waited_ns, 40);
BYTES(ist_dev_error, 48);

FIELD(ist_dev_mask, generation, 0);
FIELD(ist_dev_mask, rank_count, 8);
FIELD(ist_dev_mask, fault_tolerant, 12);
FIELD(ist_dev_mask, abort_word, 16);
FIELD(ist_dev_mask, error_count, 24);
FIELD(ist_dev_mask, evicted, 32);
FIELD(ist_dev_mask, failed_status, 40);
FIELD(ist_dev_mask, alarm, 48);
FIELD(ist_dev_mask, errors, 56);
FIELD(ist_dev_mask, words, 824);
BYTES(ist_dev_mask, 824);

FIELD(ist_dev_window, bytes, 0);
FIELD(ist_dev_window, local, 8);
FIELD(ist_dev_window, lsa, 16);
FIELD(ist_dev_window, backend, 24);
BYTES(ist_dev_window, 32);

FIELD(ist_dev_comm, rank, 0);
FIELD(ist_dev_comm, rank_count, 4);
FIELD(ist_dev_comm, lsa_rank, 8);
FIELD(ist_dev_comm, lsa_size, 12);
FIELD(ist_dev_comm, context_count, 16);
FIELD(ist_dev_comm, signal_count, 20);
FIELD(ist_dev_comm, counter_count, 24);
FIELD(ist_dev_comm, lsa_barrier_count, 28);
FIELD(ist_dev_comm, window_count, 32);
FIELD(ist_dev_comm, reserved, 36);
FIELD(ist_dev_comm, windows, 40);
FIELD(ist_dev_comm, mask, 48);
FIELD(ist_dev_comm, backend, 56);
BYTES(ist_dev_comm, 64);

FIELD(ist_gin_action, kind, 0);
FIELD(ist_gin_action, signal, 4);
FIELD(ist_gin_action, value, 8);
BYTES(ist_gin_action, 16);

FIELD(ist_peer_wait, words, 0);
FIELD(ist_peer_wait, expected, 8);
FIELD(ist_peer_wait, deadline_ns, 16);
FIELD(ist_peer_wait, signal_first, 24);
FIELD(ist_peer_wait, skip_self, 28);
BYTES(ist_peer_wait, 32);

FIELD(ist_kernel, name, 0);
FIELD(ist_kernel, args_bytes, 8);
FIELD(ist_kernel, reserved, 12);
FIELD(ist_kernel, body, 16);
FIELD(ist_kernel, source, 24);
BYTES(ist_kernel, 32);

/* backend.h */
FIELD(ist_backend_caps, size, 0);
FIELD(ist_backend_caps, sm_count, 4);
FIELD(ist_backend_caps, device_name, 8);
FIELD(ist_backend_caps, window_reason, 16);
FIELD(ist_backend_caps, gin_reason, 24);
FIELD(ist_backend_caps, graph_reason, 32);
FIELD(ist_backend_caps, peeks_by_loads, 40);
FIELD(ist_backend_caps, reserved, 44);
BYTES(ist_backend_caps, 48);

FIELD(ist_backend_comm_desc, id, 0);
FIELD(ist_backend_comm_desc, rank, 128);
FIELD(ist_backend_comm_desc, rank_count, 132);
FIELD(ist_backend_comm_desc, lsa_size_max, 136);
FIELD(ist_backend_comm_desc, reserved, 140);
FIELD(ist_backend_comm_desc, deadline_ns, 144);
BYTES(ist_backend_comm_desc, 152);

FIELD(ist_backend_comm_info, lsa_rank, 0);
FIELD(ist_backend_comm_info, lsa_size, 4);
FIELD(ist_backend_comm_info, gin_supported, 8);
FIELD(ist_backend_comm_info, reserved, 12);
FIELD(ist_backend_comm_info, gin_reason, 16);
BYTES(ist_backend_comm_info, 24);

FIELD(ist_devcomm_desc, resource_bytes, 0);
FIELD(ist_devcomm_desc, context_count, 8);
FIELD(ist_devcomm_desc, signal_count, 12);
FIELD(ist_devcomm_desc, counter_count, 16);
FIELD(ist_devcomm_desc, lsa_barrier_count, 20);
FIELD(ist_devcomm_desc, mask, 24);
BYTES(ist_devcomm_desc, 32);

FIELD(ist_backend_process, rank, 0);
FIELD(ist_backend_process, rank_count, 4);
FIELD(ist_backend_process, job_key, 8);
FIELD(ist_backend_process, run, 16);
BYTES(ist_backend_process, 24);

FIELD(ist_backend_world, size, 0);
FIELD(ist_backend_world, rank_count, 4);
FIELD(ist_backend_world, cluster, 8);
FIELD(ist_backend_world, seed, 16);
FIELD(ist_backend_world, deadline_ns, 24);
FIELD(ist_backend_world, faults, 32);
FIELD(ist_backend_world, sim, 40);
FIELD(ist_backend_world, process, 48);
FIELD(ist_backend_world, rank_main, 56);
FIELD(ist_backend_world, context, 64);
BYTES(ist_backend_world, 72);

FIELD(ist_feature, size, 0);
FIELD(ist_feature, reserved, 4);
FIELD(ist_feature, name, 8);
FIELD(ist_feature, value, 16);
FIELD(ist_feature, reason, 24);
BYTES(ist_feature, 32);

FIELD(ist_backend, size, 0);
FIELD(ist_backend, abi, 4);
FIELD(ist_backend, name, 8);
FIELD(ist_backend, explicit_only, 16);
FIELD(ist_backend, reserved, 20);
FIELD(ist_backend, probe, 24);
FIELD(ist_backend, world_run, 32);
FIELD(ist_backend, ops, 40);
FIELD(ist_backend, feature, 48);
BYTES(ist_backend, 56);

FIELD(ist_backend_coll, comm, 0);
FIELD(ist_backend_coll, stream, 8);
FIELD(ist_backend_coll, kind, 16);
FIELD(ist_backend_coll, dtype, 20);
FIELD(ist_backend_coll, reduction, 24);
FIELD(ist_backend_coll, peer, 28);
FIELD(ist_backend_coll, send, 32);
FIELD(ist_backend_coll, recv, 40);
FIELD(ist_backend_coll, count, 48);
FIELD(ist_backend_coll, scale, 56);
BYTES(ist_backend_coll, 64);

FIELD(ist_backend_coll_info, library_version, 0);
FIELD(ist_backend_coll_info, all_to_all_native, 4);
FIELD(ist_backend_coll_info, library, 8);
FIELD(ist_backend_coll_info, reason, 16);
FIELD(ist_backend_coll_info, estimate_reason, 24);
BYTES(ist_backend_coll_info, 32);

FIELD(ist_backend_ground, topology, 0);
FIELD(ist_backend_ground, lsa_size_max, 8);
FIELD(ist_backend_ground, peer_access, 12);
FIELD(ist_backend_ground, gin_off, 16);
FIELD(ist_backend_ground, gin_known, 20);
FIELD(ist_backend_ground, gin, 24);
FIELD(ist_backend_ground, maps_known, 28);
FIELD(ist_backend_ground, rank_count, 32);
FIELD(ist_backend_ground, reserved, 36);
FIELD(ist_backend_ground, source, 40);
BYTES(ist_backend_ground, 1064);

/* coll.h */
FIELD(ist_coll_info, size, 0);
FIELD(ist_coll_info, opened, 4);
FIELD(ist_coll_info, library_version, 8);
FIELD(ist_coll_info, all_to_all_native, 12);
FIELD(ist_coll_info, library, 16);
FIELD(ist_coll_info, reason, 24);
FIELD(ist_coll_info, estimate_reason, 32);
BYTES(ist_coll_info, 40);

/* team.h */
FIELD(ist_team, rank_count, 0);
FIELD(ist_team, rank, 4);
FIELD(ist_team, stride, 8);
BYTES(ist_team, 12);

/* The table: the head, then one slot a row; a row's place is its number. */
enum {
#define X(op, params, args, need) ROW_##op,
    IST_BACKEND_OPS(X)
#undef X
        ROW_COUNT
};
#define X(op, params, args, need) FIELD(ist_backend_ops, op, 8 + 8 * (size_t)ROW_##op);
IST_BACKEND_OPS(X)
#undef X
