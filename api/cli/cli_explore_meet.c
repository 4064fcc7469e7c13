/* SPDX-License-Identifier: Apache-2.0 */
/* How processes of one job find each other without an MPI library: the launcher's variables say who is
 * who, and workers talk to process 0 over TCP. Where it listens stands in a file in the output folder,
 * or was told with --meet.
 */
#include "cli.h"
#include "cli_explore.h"

#include "cli_hash.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_S 60u
#define TRY_NS 50000000

static const char speaker[] = "explore";

/* ------------------------------------------------------------------------------------ the job */

static const struct {
    const char *rank, *size;
} launchers[] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                 {"PMI_RANK", "PMI_SIZE"},
                 {"SLURM_PROCID", "SLURM_NTASKS"}};

uint32_t cli_explore_process(uint32_t *count)
{
    *count = 1;
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; ++i) {
        const char *rank = getenv(launchers[i].rank), *size = getenv(launchers[i].size);
        uint64_t number = 0, all = 0;
        if (rank != NULL && size != NULL && cli_parse_number(size, 1, 100000, &all) &&
            cli_parse_number(rank, 0, all - 1u, &number)) {
            *count = (uint32_t)all;
            return (uint32_t)number;
        }
    }
    return 0;
}

static uint64_t key_of(const char *text)
{
    uint64_t key = 0;
    for (; text != NULL && *text != '\0'; ++text) {
        key = cli_fold(key, (uint64_t)(unsigned char)*text);
    }
    return key;
}

/* Two jobs in one folder must not meet. */
static uint64_t job_key(void)
{
    static const char *const names[] = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID",
                                        "SLURM_JOB_ID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
        const char *value = getenv(names[i]);
        if (value != NULL && *value != '\0') {
            return cli_fold(key_of(value), (uint64_t)getuid());
        }
    }
    return 0;
}

static uint64_t run_key(const cli_explore *options)
{
    cli_text text = {.bytes = NULL};
    cli_explore_identity(options, &text);
    uint64_t key = cli_fold(key_of(text.failed ? "" : text.bytes), job_key());
    cli_text_free(&text);
    return key;
}

static void hello(const cli_explore *options, char line[64])
{
    uint32_t count = 1, process = cli_explore_process(&count);
    (void)snprintf(line, 64, "isthmus-explore 1 %016" PRIx64 " %u\n", run_key(options), process);
}

bool cli_explore_is_hello(const cli_explore *options, const char *line, uint32_t *process)
{
    uint64_t key = 0;
    return sscanf(line, "isthmus-explore 1 %16" SCNx64 " %" SCNu32, &key, process) == 2 &&
           key == run_key(options);
}

static void note_path(const cli_explore *options, char *path, size_t bytes)
{
    (void)snprintf(path, bytes, "%s/.explore-%016" PRIx64, options->out, job_key());
}

/* ------------------------------------------------------------------------------------ listening */

static bool split_address(const char *text, char host[128], char port[8])
{
    const char *colon = strrchr(text, ':');
    if (colon == NULL || (size_t)(colon - text) >= 128u || strlen(colon + 1) >= 8u) {
        return false;
    }
    memcpy(host, text, (size_t)(colon - text));
    host[colon - text] = '\0';
    (void)snprintf(port, 8, "%s", colon + 1);
    return true;
}

static int listen_on(const char *port)
{
    struct addrinfo hints = {
        .ai_family = AF_INET, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *found = NULL;
    int one = 1, made = -1;
    if (getaddrinfo(NULL, port, &hints, &found) != 0) {
        return -1;
    }
    made = socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC, 0);
    if (made >= 0 &&
        (setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
         bind(made, found->ai_addr, found->ai_addrlen) != 0 || listen(made, 64) != 0)) {
        (void)close(made);
        made = -1;
    }
    freeaddrinfo(found);
    return made;
}

/* Written beside and moved, so that nobody reads half of it. */
static bool write_note(const cli_explore *options, int listening, char *note, size_t note_bytes)
{
    char host[128], beside[4096], port[8];
    struct sockaddr_storage address;
    socklen_t bytes = sizeof address;
    note_path(options, note, note_bytes);
    int used = snprintf(beside, sizeof beside, "%s.%ld", note, (long)getpid());
    if (used < 0 || (size_t)used >= sizeof beside || gethostname(host, sizeof host) != 0 ||
        getsockname(listening, (struct sockaddr *)&address, &bytes) != 0 ||
        getnameinfo((struct sockaddr *)&address, bytes, NULL, 0, port, sizeof port,
                    NI_NUMERICSERV) != 0) {
        return false;
    }
    FILE *file = fopen(beside, "w");
    bool good = file != NULL && fprintf(file, "%s:%s\n", host, port) > 0;
    good = file != NULL && fclose(file) == 0 && good;
    return good && rename(beside, note) == 0;
}

int cli_explore_listen(const cli_explore *options, char *note, size_t note_bytes)
{
    char host[128], port[8] = "0";
    *note = '\0';
    if (options->meet != NULL && !split_address(options->meet, host, port)) {
        (void)cli_usage(speaker, "--meet: '%s' is not HOST:PORT", options->meet);
        return -1;
    }
    int listening = listen_on(port);
    if (listening < 0) {
        (void)cli_failed(speaker, "cannot listen on port %s: %s", port, strerror(errno));
    } else if (options->meet == NULL && !write_note(options, listening, note, note_bytes)) {
        (void)cli_failed(speaker, "cannot write into %s where this process is met", options->out);
        (void)close(listening);
        listening = -1;
    }
    return listening;
}

/* ------------------------------------------------------------------------------------ connecting */

static bool find_address(const cli_explore *options, char host[128], char port[8])
{
    char path[4096], text[160] = "";
    if (options->meet != NULL) {
        return split_address(options->meet, host, port);
    }
    note_path(options, path, sizeof path);
    FILE *file = fopen(path, "r");
    bool good = file != NULL && fgets(text, sizeof text, file) != NULL;
    if (file != NULL) {
        (void)fclose(file);
    }
    text[strcspn(text, "\n")] = '\0';
    return good && split_address(text, host, port);
}

static int connect_to(const char *host, const char *port)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int made = -1;
    if (getaddrinfo(host, port, &hints, &found) != 0) {
        return -1;
    }
    for (struct addrinfo *one = found; one != NULL && made < 0; one = one->ai_next) {
        made = socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, 0);
        if (made >= 0 && connect(made, one->ai_addr, one->ai_addrlen) != 0) {
            (void)close(made);
            made = -1;
        }
    }
    freeaddrinfo(found);
    return made;
}

int cli_explore_connect(const cli_explore *options)
{
    char host[128], port[8], line[64];
    const struct timespec pause = {.tv_nsec = TRY_NS};
    int made = -1;
    for (uint64_t waited_ns = 0; made < 0 && waited_ns < PATIENCE_S * UINT64_C(1000000000);
         waited_ns += TRY_NS) {
        made = find_address(options, host, port) ? connect_to(host, port) : -1;
        /* On its own host a name may not resolve. */
        made = made < 0 && find_address(options, host, port) ? connect_to("localhost", port) : made;
        if (made < 0) {
            (void)nanosleep(&pause, NULL);
        }
    }
    hello(options, line);
    if (made >= 0 && send(made, line, strlen(line), MSG_NOSIGNAL) != (ssize_t)strlen(line)) {
        (void)close(made);
        made = -1;
    }
    return made;
}
