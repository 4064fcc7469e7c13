/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this machine can do, for people and programs that ask before they open a world.
 */
#ifndef CUDA_FEATURES_H
#define CUDA_FEATURES_H

#include <isthmus/backend.h>

/* The feature at `index`; false past the last. */
bool cuda_feature(uint32_t index, ist_feature *feature);

#endif
