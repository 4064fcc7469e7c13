/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file isthmus.h
 * Umbrella header: the stable part of the interface.
 */
#ifndef IST_ISTHMUS_H
#define IST_ISTHMUS_H

#include <isthmus/coll.h>
#include <isthmus/comm.h>
#include <isthmus/ep.h>
#include <isthmus/mask.h>
#include <isthmus/status.h>
#include <isthmus/stream.h>
#include <isthmus/team.h>
#include <isthmus/types.h>
#include <isthmus/version.h>
#include <isthmus/window.h>
#include <isthmus/world.h>

#endif
