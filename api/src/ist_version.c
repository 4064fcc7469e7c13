/* SPDX-License-Identifier: Apache-2.0 */
/* Answers which library runs: the numbers of version.h as this file was compiled with them. */
#include <isthmus/version.h>

/* Two steps, so that the number and not the macro's name is turned into text. */
#define TEXT_OF(token) #token
#define TEXT(macro) TEXT_OF(macro)

uint32_t ist_version(void)
{
    return IST_VERSION;
}

const char *ist_version_string(void)
{
    return TEXT(IST_VERSION_MAJOR) "." TEXT(IST_VERSION_MINOR) "." TEXT(IST_VERSION_PATCH);
}
