/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a process's place in a job from what Open MPI's and PMI launchers put into its environment:
 * enough for a world whose ranks are processes of one machine, without any MPI library.
 */
#include "ist_bootstrap.h"

#include "ist_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

/* Variables of one kind of launcher. */
typedef struct launcher {
    const char *rank;
    const char *size;
} launcher;

static const launcher launchers[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"PMIX_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"PMI_RANK", "PMI_SIZE"},
};

/* Names the job, most specific first. */
static const char *const job_variables[] = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid",
                                            "PMI_JOBID"};

static atomic_uint run_count;

static ist_status read_number(const char *variable, const char *text, uint32_t *number)
{
    char *end = NULL;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value > IST_RANK_COUNT_MAX) {
        return ist_fail(NULL, IST_ERR_PARSE, variable, "world.run",
                        "the launcher's %s is \"%s\", a number up to %u is required", variable,
                        text, IST_RANK_COUNT_MAX);
    }
    *number = (uint32_t)value;
    return IST_OK;
}

/* Jobs of two users, or two jobs of one user, must not meet. */
static uint64_t job_key(void)
{
    char text[512] = "";
    for (size_t i = 0; i < sizeof(job_variables) / sizeof(job_variables[0]); ++i) {
        const char *value = getenv(job_variables[i]);
        if (value != NULL && value[0] != '\0') {
            snprintf(text, sizeof(text), "%s=%s uid=%lu", job_variables[i], value,
                     (unsigned long)getuid());
            break;
        }
    }
    return XXH3_64bits(text, strlen(text));
}

static ist_status read_place(const launcher *from, ist_backend_process *process)
{
    const char *rank = getenv(from->rank);
    const char *size = getenv(from->size);
    IST_RETURN_IF_ERROR(read_number(from->rank, rank, &process->rank));
    IST_RETURN_IF_ERROR(read_number(from->size, size, &process->rank_count));
    if (process->rank >= process->rank_count) {
        return ist_fail_value(NULL, IST_ERR_RANGE, from->rank, "world.run", process->rank_count,
                              process->rank, "the launcher's rank is %u of %u", process->rank,
                              process->rank_count);
    }
    process->job_key = job_key();
    return IST_OK;
}

static const launcher *launcher_present(void)
{
    for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); ++i) {
        if (getenv(launchers[i].rank) != NULL && getenv(launchers[i].size) != NULL) {
            return &launchers[i];
        }
    }
    return NULL;
}

static ist_status read_wish(bool *insist, bool *look)
{
    const char *wish = getenv("IST_LAUNCH");
    *insist = wish != NULL && strcmp(wish, "mpi") == 0;
    *look = wish == NULL || wish[0] == '\0' || *insist;
    if (!*look && strcmp(wish, "none") != 0) {
        return ist_fail(NULL, IST_ERR_ARGUMENT, "IST_LAUNCH", "world.run",
                        "IST_LAUNCH is \"%s\", mpi or none is required", wish);
    }
    return IST_OK;
}

ist_status ist_bootstrap_find(ist_backend_process *process, bool *found)
{
    bool insist = false;
    bool look = false;
    IST_RETURN_IF_ERROR(read_wish(&insist, &look));
    const launcher *from = look ? launcher_present() : NULL;
    if (from == NULL) {
        *found = false;
        return insist ? ist_fail(NULL, IST_ERR_SYSTEM, "IST_LAUNCH", "world.run",
                                 "IST_LAUNCH is mpi, but no launcher's variables are set "
                                 "(%s and %s)",
                                 launchers[0].rank, launchers[0].size)
                      : IST_OK;
    }
    ist_backend_process place = {0};
    IST_RETURN_IF_ERROR(read_place(from, &place));
    *found = insist || place.rank_count > 1;
    if (*found) {
        place.run = atomic_fetch_add(&run_count, 1);
        *process = place;
    }
    return IST_OK;
}
