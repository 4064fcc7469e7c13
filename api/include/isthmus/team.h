/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file team.h
 * Teams: arithmetic progressions of ranks. A team is a value, not an object: host and device code
 * use the same struct and the same closed forms. Works in C, C++ and device code. Nothing is checked:
 * arguments outside the stated ranges give a number without meaning.
 *
 * Source of the algebra: the device API of NCCL describes a team by (count, rank, stride).
 *
 * @threads any; pure functions
 * @since 0.1
 */
#ifndef IST_TEAM_H
#define IST_TEAM_H

#include <stdint.h>

/** @def IST_TEAM_FN
 * Marks a function that host and device code compile alike. */
#if defined(__CUDACC__)
#define IST_TEAM_FN static inline __host__ __device__
#else
#define IST_TEAM_FN static inline
#endif

/**
 * A team of a communicator, as one of its members sees it. With `self` the caller's rank in the
 * communicator, member i is the rank self + (i - rank) * stride, 0 <= i < rank_count.
 */
typedef struct ist_team {
    uint32_t rank_count; /**< members */
    uint32_t rank;       /**< the caller's index in the team */
    uint32_t stride;     /**< distance between neighbours, in ranks of the communicator; >= 1 */
} ist_team;

/**
 * Where a member of a team is in the communicator.
 *
 * @param self   the caller's rank in the communicator
 * @param index  of the member, 0 … team.rank_count - 1
 * @return its rank in the communicator
 */
IST_TEAM_FN uint32_t ist_team_to_comm(ist_team team, uint32_t self, uint32_t index)
{
    return self + (index - team.rank) * team.stride;
}

/**
 * Where a rank of the communicator is in a team.
 *
 * @param self       the caller's rank in the communicator
 * @param comm_rank  the rank to look for
 * @return its index in the team, or -1 when it is not a member
 */
IST_TEAM_FN int32_t ist_team_from_comm(ist_team team, uint32_t self, uint32_t comm_rank)
{
    int64_t first = (int64_t)self - (int64_t)team.rank * (int64_t)team.stride;
    int64_t distance = (int64_t)comm_rank - first;
    if (distance < 0 || team.stride == 0 || distance % (int64_t)team.stride != 0) {
        return -1;
    }
    int64_t index = distance / (int64_t)team.stride;
    return index < (int64_t)team.rank_count ? (int32_t)index : -1;
}

/**
 * The caller's block of neighbours inside a team.
 *
 * @param count  members of a block; divides parent.rank_count
 * @return the block: `count` members with the parent's stride
 */
IST_TEAM_FN ist_team ist_team_inner(ist_team parent, uint32_t count)
{
    ist_team team = {count, parent.rank % count, parent.stride};
    return team;
}

/**
 * One member of each block of neighbours: those that have the caller's place in their block.
 *
 * @param count  members of a block; divides parent.rank_count
 * @return a team of parent.rank_count / count members
 */
IST_TEAM_FN ist_team ist_team_outer(ist_team parent, uint32_t count)
{
    ist_team team = {parent.rank_count / count, parent.rank / count, parent.stride * count};
    return team;
}

/**
 * A member of a team that is outside a part of it.
 *
 * @param subset  made from `parent` by ist_team_inner() or ist_team_outer()
 * @param index   among the members outside, 0 … parent.rank_count - subset.rank_count - 1
 * @return its index in `parent`
 */
IST_TEAM_FN uint32_t ist_team_difference(ist_team parent, ist_team subset, uint32_t index)
{
    uint32_t first = parent.rank - subset.rank * (subset.stride / parent.stride);
    uint32_t step = subset.stride / parent.stride;
    uint32_t skipped = 0;
    for (uint32_t i = 0; i < subset.rank_count; ++i) {
        if (first + i * step <= index + skipped) {
            ++skipped;
        }
    }
    return index + skipped;
}

#endif
