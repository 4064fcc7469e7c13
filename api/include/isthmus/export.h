/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file export.h
 * Marks that every public header puts on its prototypes.
 *
 * The marks are also data: ci/check-symbols reads them to write and to check the
 * version script, so a prototype without one is not exported.
 */
#ifndef IST_EXPORT_H
#define IST_EXPORT_H

/** @def IST_BEGIN_DECLS
 * Opens the declarations of a header: C linkage, also in C++. */
/** @def IST_END_DECLS
 * Closes what IST_BEGIN_DECLS opened. */
#ifdef __cplusplus
#define IST_BEGIN_DECLS extern "C" {
#define IST_END_DECLS }
#else
#define IST_BEGIN_DECLS
#define IST_END_DECLS
#endif

#if defined(__GNUC__)

/** A stable function: its symbol lives in a release node (IST_0.1, ...) of the version script. */
#define IST_API __attribute__((visibility("default")))

/** The caller has to look at the result. */
#define IST_MUST_USE __attribute__((warn_unused_result))

/** Still works; `use` names what replaces it. */
#define IST_DEPRECATED(use) __attribute__((deprecated(use)))

#else

#define IST_API
#define IST_MUST_USE
#define IST_DEPRECATED(use)

#endif

/**
 * A function that may change or go without notice. Only headers below isthmus/unstable/ use this
 * mark; the symbols live in the node IST_UNSTABLE, so that `readelf -V` shows who depends on them.
 */
#define IST_API_UNSTABLE IST_API

#endif
