/* SPDX-License-Identifier: Apache-2.0 */
/* How much each link carries when every pair that an operation uses sends as much as every other:
 * the picture of an operation, in thousandths of the busiest link's time.
 */
#include "topo_error.h"
#include "topo_explain.h"
#include "topo_show.h"

#define OPERATION "topology.loads"
#define RANKS_MAX 512u
#define TIME_MAX UINT64_C(1000000000000) /* so that the sum over all pairs fits */
#define UNIT UINT64_C(1000000000000000)  /* one pair's share, divided by a rate in bytes a second */

__extension__ typedef unsigned __int128 wide;

static void path_add(const topo_graph *graph, const topo_path *path, uint64_t *times)
{
    for (uint32_t i = 0; i < path->hop_count; i++) {
        uint64_t rate = topo_link_at(graph, path->links[i])->bytes_per_s;
        uint64_t time = rate > 0 ? UNIT / rate + 1 : 0;
        times[path->links[i]] += time < TIME_MAX ? time : TIME_MAX;
    }
}

static void pairs_add(const topo_graph *graph, const topo_policy *policy, const char *operation,
                      uint64_t *times)
{
    topo_policy known = *policy;
    known.lsa_size = topo_policy_lsa(graph, policy);
    uint32_t count = topo_policy_ranks(graph, policy);
    count = count < RANKS_MAX ? count : RANKS_MAX;
    for (uint32_t a = 0; a < count; a++) {
        for (uint32_t b = a + 1; b < count; b++) {
            topo_choice choice;
            if (topo_operation_uses(operation, a, b, count, known.lsa_size)) {
                topo_choose(graph, &known, a, b, &choice);
                path_add(graph, &choice.path, times);
            }
        }
    }
}

ist_status topo_operation_loads(const topo_graph *graph, const topo_policy *policy,
                                const char *operation, uint32_t *loads)
{
    uint32_t count = topo_link_count(graph);
    uint64_t most = 0;
    uint64_t *times = ist_alloc(count > 0 ? count : 1, sizeof(*times));
    if (times == NULL) {
        return topo_error_memory(OPERATION, "loads of links");
    }
    pairs_add(graph, policy, operation, times);
    for (uint32_t i = 0; i < count; i++) {
        most = times[i] > most ? times[i] : most;
    }
    for (uint32_t i = 0; i < count; i++) {
        loads[i] = most == 0 ? 0 : (uint32_t)((wide)times[i] * 1000 / most);
        /* What carries anything is not idle. */
        loads[i] = times[i] > 0 && loads[i] == 0 ? 1 : loads[i];
    }
    ist_free(times);
    return IST_OK;
}
