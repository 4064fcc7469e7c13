/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file team.h
 * Teams: arithmetic progressions of ranks. A team is a value, not an object: host and device code
 * use the same struct and the same closed forms. Works in C, C++ and device code.
 *
 * Source of the algebra: the device API of NCCL describes a team by (count, rank, stride).
 */
#ifndef IST_TEAM_H
#define IST_TEAM_H

#include <stdint.h>

#if defined(__CUDACC__)
#define IST_TEAM_FN static inline __host__ __device__
#else
#define IST_TEAM_FN static inline
#endif

/** Members of a team are the ranks r with r = self + (i - rank) * stride, 0 <= i < rank_count. */
typedef struct ist_team {
    uint32_t rank_count; /**< members */
    uint32_t rank;       /**< the caller's index in the team */
    uint32_t stride;     /**< distance between neighbours, in ranks of the communicator; >= 1 */
} ist_team;

/** Rank, in the communicator, of member `index` of `team`; `self` is the caller's rank there. */
IST_TEAM_FN uint32_t ist_team_to_comm(ist_team team, uint32_t self, uint32_t index)
{
    return self + (index - team.rank) * team.stride;
}

/** Index in `team` of a rank of the communicator, or -1 when it is not a member. */
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

/** The caller's block of `count` neighbours inside `parent`; `count` must divide its size. */
IST_TEAM_FN ist_team ist_team_inner(ist_team parent, uint32_t count)
{
    ist_team team = {count, parent.rank % count, parent.stride};
    return team;
}

/** One member of each block of `count`, those with the caller's place in its block. */
IST_TEAM_FN ist_team ist_team_outer(ist_team parent, uint32_t count)
{
    ist_team team = {parent.rank_count / count, parent.rank / count, parent.stride * count};
    return team;
}

/** The `index`-th member of `parent` that is not in `subset`; subset must be an inner team. */
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
