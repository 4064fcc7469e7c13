/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Profiles as the program sees them: from a text, by name, as the cluster that a simulator runs.
 */
#include "ist_group.h"

#include "cost_graph.h"
#include "cost_shipped.h"

#include <stdio.h>
#include <string.h>

#define PARSE "profile.parse"
#define OPEN "profile.open"
#define CLUSTER "profile.cluster"
#define LINE_BYTES 1024u

ist_status ist_profile_parse(const char *text, size_t bytes, ist_profile **profile)
{
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, text, "text", PARSE));
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, profile, "profile", PARSE));
    ist_profile *read = ist_alloc(1, sizeof(*read));
    if (read == NULL) {
        return ist_fail(NULL, IST_ERR_MEMORY, "profile", PARSE, "no memory for a profile");
    }
    const ist_status status = cost_profile_parse(text, bytes, &read->profile);
    if (status != IST_OK) {
        ist_free(read);
        return status;
    }
    *profile = read;
    return IST_OK;
}

const char *ist_profile_name(uint32_t index)
{
    return cost_shipped_name(index);
}

static ist_status refuse_name(const char *name)
{
    char known[256] = "";
    size_t length = 0;
    const char *shipped = NULL;
    for (uint32_t i = 0; (shipped = cost_shipped_name(i)) != NULL; ++i) {
        const int more =
            snprintf(known + length, sizeof(known) - length, "%s%s", i > 0 ? ", " : "", shipped);
        length += more > 0 && (size_t)more < sizeof(known) - length ? (size_t)more : 0;
    }
    return ist_fail(NULL, IST_ERR_ARGUMENT, "name", OPEN,
                    "there is no profile \"%.40s\", those shipped are: %s", name, known);
}

ist_status ist_profile_open(const char *name, ist_profile **profile)
{
    size_t bytes = 0;
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, name, "name", OPEN));
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, profile, "profile", OPEN));
    const char *text = cost_shipped_text(name, &bytes);
    return text == NULL ? refuse_name(name) : ist_profile_parse(text, bytes, profile);
}

void ist_profile_close(ist_profile *profile)
{
    if (profile != NULL) {
        cost_profile_free(&profile->profile);
        ist_free(profile);
    }
}

ist_status ist_profile_cluster(const ist_profile *profile, const char *cluster, char *text,
                               size_t capacity, size_t *needed)
{
    ist_cluster line;
    ist_cluster again;
    char made[LINE_BYTES];
    IST_RETURN_IF_ERROR(ist_check_pointer(NULL, profile, "profile", CLUSTER));
    IST_RETURN_IF_ERROR(ist_cluster_parse(cluster, &line));
    cost_to_cluster(&profile->profile, &line);
    IST_RETURN_IF_ERROR(ist_cluster_print(&line, made, sizeof(made), NULL));
    /* What a profile says may be more than a cluster may have: told as for any other line. */
    IST_RETURN_IF_ERROR(ist_cluster_parse(made, &again));
    return ist_text_out(made, CLUSTER, text, capacity, needed);
}
