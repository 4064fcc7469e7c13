/* SPDX-License-Identifier: Apache-2.0 */
/* `isthmus explore`: chooses between listing, replaying, searching, and leading or following a run. */
#include "cli_explore.h"

#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Schedules are explored in one process each, whoever has launched it. */
static bool stand_alone(void)
{
    return setenv("IST_LAUNCH", "none", 1) == 0 && setenv("IST_SIM_SCHEDULER", "", 1) == 0;
}

static int report_failures(const cli_explore *options, cli_explore_total *total)
{
    size_t index;
    json_t *failure;
    json_array_foreach(total->failures, index, failure)
    {
        if (index < options->reports_max) {
            cli_explore_report(options, failure);
        }
    }
    return json_array_size(total->failures) == 0 ? CLI_OK : CLI_FAILED;
}

static int explore(const cli_explore *options)
{
    cli_explore_total total;
    cli_explore_course course = {.wall_s = 0};
    if (!cli_explore_total_init(&total)) {
        return cli_failed("explore", "out of memory");
    }
    int status = cli_explore_lead(options, &total, &course);
    if (status == CLI_OK) {
        status = report_failures(options, &total);
        int printed = cli_explore_print(options, &total, &course);
        status = printed == CLI_OK ? status : printed;
        status = course.interrupted ? CLI_FAILED : status;
    }
    cli_explore_total_free(&total);
    return status;
}

int cli_explore_command(int argc, char **argv)
{
    cli_explore options;
    uint32_t count = 1;
    int status = cli_explore_read(argc, argv, &options);
    if (status != CLI_OK) {
        return status;
    }
    if (options.help) {
        for (uint32_t i = 0; status == CLI_OK && cli_explore_help[i] != NULL; ++i) {
            status = cli_put("explore", cli_explore_help[i]);
        }
        return status;
    }
    if (options.list) {
        return cli_explore_list(&options);
    }
    if (!stand_alone()) {
        return cli_failed("explore", "the environment cannot be changed");
    }
    (void)mkdir(options.out, 0777);
    if (options.replay != NULL) {
        return cli_explore_replay(&options);
    }
    if (cli_explore_process(&count) > 0) {
        return cli_explore_follow(&options);
    }
    return options.exhaustive ? cli_explore_search(&options) : explore(&options);
}
