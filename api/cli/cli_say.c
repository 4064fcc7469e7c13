/* SPDX-License-Identifier: Apache-2.0 */
/* How the command speaks: bad usage, failures, errors of the library, answers.
 */
#include "cli.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void complain(const char *name, const char *format, va_list list)
{
    fprintf(stderr, "isthmus%s%s: ", *name == '\0' ? "" : " ", name);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
}

int cli_usage(const char *name, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    complain(name, format, list);
    va_end(list);
    fprintf(stderr, "Try `isthmus%s%s --help`.\n", *name == '\0' ? "" : " ", name);
    return CLI_USAGE;
}

int cli_failed(const char *name, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    complain(name, format, list);
    va_end(list);
    return CLI_FAILED;
}

const char *cli_error_text(ist_status status)
{
    static _Thread_local ist_error error;
    memset(&error, 0, sizeof error);
    error.size = sizeof error;
    if (ist_error_last(&error) == IST_OK && error.status == status && error.message[0] != '\0') {
        return error.message;
    }
    return ist_status_sentence(status);
}

int cli_put(const char *name, const char *text)
{
    if (fputs(text, stdout) < 0 || fflush(stdout) != 0) {
        return cli_failed(name, "cannot write to standard output");
    }
    return CLI_OK;
}
