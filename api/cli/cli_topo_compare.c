/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a communicator of all GPUs on a backend, has it explained, and holds its teams against what the
 * topology says.
 */
#include "cli.h"
#include "cli_topo.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMMAND "topo"

typedef struct comparing {
    const ist_topology *topology;
    const ist_explain_desc *asked; /* NULL: nothing is to be explained */
    ist_topology_policy policy;
    ist_topology_comparison found;
    char *text;   /* the explanation */
    bool is_here; /* rank 0 ran in this process */
} comparing;

static ist_status explain(ist_comm *comm, const ist_explain_desc *asked, char **text)
{
    size_t needed = 0;
    ist_status status = ist_comm_explain(comm, asked, NULL, 0, &needed);
    char *made = status == IST_OK ? malloc(needed) : NULL;
    if (made != NULL) {
        status = ist_comm_explain(comm, asked, made, needed, NULL);
    }
    *text = made;
    return status == IST_OK && made == NULL ? IST_ERR_MEMORY : status;
}

static ist_status rank_main(ist_world *world, void *arg)
{
    comparing *self = arg;
    ist_comm *comm = NULL;
    ist_comm_desc desc = {.size = sizeof desc, .lsa_size_max = self->policy.lsa_size_max};
    ist_status status = ist_comm_open(world, &desc, &comm);
    if (status != IST_OK) {
        return status;
    }
    if (ist_world_rank(world) == 0) {
        self->is_here = true;
        status = ist_topology_compare(self->topology, &self->policy, comm, &self->found);
        if (status == IST_OK && self->asked != NULL) {
            status = explain(comm, self->asked, &self->text);
        }
    }
    ist_status closed = ist_comm_close(comm);
    return status != IST_OK ? status : closed;
}

static void say(const ist_topology_comparison *found)
{
    printf("    load/store team: %" PRIu32 ", predicted %" PRIu32 "%s\n", found->lsa_size_found,
           found->lsa_size_predicted,
           found->lsa_size_found == found->lsa_size_predicted ? "" : "   <- differs");
    printf("    GIN: %s, predicted %s%s\n", found->gin_found != 0 ? "yes" : "no",
           found->gin_predicted != 0 ? "yes" : "no",
           (found->gin_found != 0) == (found->gin_predicted != 0) ? "" : "   <- differs");
    if (found->gin_reason_predicted != NULL) {
        printf("    topology: %s\n", found->gin_reason_predicted);
    }
}

static int result_say(const comparing *self, const char *backend)
{
    if (!self->is_here) { /* another process has said it */
        return CLI_OK;
    }
    if (self->text != NULL) {
        printf("%s%s says\n", self->text, backend);
    }
    say(&self->found);
    return self->found.difference_count == 0 ? cli_put(COMMAND, "") : CLI_FAILED;
}

int cli_topo_compare(const ist_topology *topology, const cli_topo_options *options,
                     const ist_explain_desc *asked)
{
    ist_topology_info info = {.size = sizeof info};
    comparing self = {.topology = topology, .asked = asked, .policy = cli_topo_policy(options)};
    self.found.size = sizeof self.found;
    ist_status status = ist_topology_query(topology, &info);
    if (status != IST_OK || info.gpu_count == 0) {
        return cli_failed(COMMAND, "nothing to compare: the topology has no GPU");
    }
    char line[1024];
    ist_world_desc desc = {
        .size = sizeof desc, .rank_count = info.gpu_count, .backend = options->backend};
    if (strcmp(options->backend, "sim") == 0) {
        status = ist_topology_cluster(topology, &self.policy, line, sizeof line, NULL);
        desc.cluster = line;
    }
    if (status != IST_OK) {
        return cli_failed(COMMAND, "%s", cli_error_text(status));
    }
    status = ist_world_run(&desc, rank_main, &self, NULL);
    int result = status == IST_OK
                     ? result_say(&self, options->backend)
                     : cli_failed(COMMAND, "%s: %s", options->backend, cli_error_text(status));
    free(self.text);
    return result;
}
