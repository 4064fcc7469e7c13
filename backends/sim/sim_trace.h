/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a log as a trace that Perfetto and chrome://tracing open (Trace Event Format, JSON). One
 * process a rank; tracks for the host, kernels, waits, puts and memory; arrows from a put to its
 * arrival; faults as instants. Time in microseconds, exact to the picosecond.
 */
#ifndef SIM_TRACE_H
#define SIM_TRACE_H

#include "sim_log.h"

/*
 * Writes what the log has kept. Slices whose end is missing end with the last event; ends whose
 * begin is no longer kept are left out.
 * IST_OK; IST_ERR_IO with the system's reason; IST_ERR_MEMORY.
 */
ist_status sim_trace_write(const sim_log *log, uint32_t rank_count, const char *path);

#endif
