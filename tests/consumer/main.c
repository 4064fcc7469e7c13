/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a C program compiles, links and runs against the installed package alone. */
#include <isthmus/isthmus.h>

#include <stdio.h>
#include <string.h>

int main(void)
{
    if (ist_version() != IST_VERSION) {
        fprintf(stderr, "library %s, headers %#lx\n", ist_version_string(),
                (unsigned long)IST_VERSION);
        return 1;
    }
    return strcmp(ist_status_name(IST_OK), "IST_OK") == 0 ? 0 : 1;
}
