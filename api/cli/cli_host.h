/* SPDX-License-Identifier: Apache-2.0 */
/* This machine in one line, as hwloc sees it.
 */
#ifndef CLI_HOST_H
#define CLI_HOST_H

#include <stddef.h>

/* Writes e.g. "1 package, 2 cores, 2 threads, 23 GiB, 1 NUMA node". An empty text when hwloc cannot
   tell. */
void cli_host_describe(char *text, size_t capacity);

#endif
