/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file version.h
 * Version numbers: of the headers a program was compiled with (macros), and of the library it
 * runs with (functions). They may differ: the library can be newer.
 *
 * What this is not: a test for a feature. Ask the object that has the feature.
 */
#ifndef IST_VERSION_H
#define IST_VERSION_H

#include <isthmus/export.h>

#include <stdint.h>

/* The build reads these three lines; they are the only place where the version is written. */

/** Changes when programs have to be changed. */
#define IST_VERSION_MAJOR 0
/** Changes when something is added. */
#define IST_VERSION_MINOR 1
/** Changes when something is repaired. */
#define IST_VERSION_PATCH 0

/** Packs a version into one number that orders as versions do: 8 bits major, 8 minor, 16 patch. */
#define IST_VERSION_PACK(major, minor, patch)                                                      \
    (((uint32_t)(major) << 24) | ((uint32_t)(minor) << 16) | (uint32_t)(patch))

/** The version of these headers, packed. */
#define IST_VERSION IST_VERSION_PACK(IST_VERSION_MAJOR, IST_VERSION_MINOR, IST_VERSION_PATCH)

IST_BEGIN_DECLS

/**
 * The version of the library that runs.
 *
 * Packed as IST_VERSION_PACK() does, so two versions compare with `<`.
 *
 * @return the packed version; never fails
 * @threads any thread, at any time
 * @since 0.1
 */
IST_API uint32_t ist_version(void);

/**
 * The version of the library that runs, for people.
 *
 * Three decimal numbers and two dots, `"0.1.0"`.
 *
 * @return a string with static lifetime; never NULL
 * @threads any thread, at any time
 * @since 0.1
 */
IST_API const char *ist_version_string(void);

IST_END_DECLS

#endif
