/* SPDX-License-Identifier: Apache-2.0 */
/* What NVIDIA's management library says of the GPUs here. The library is opened when asked and
 * closed again; nothing of it is needed to build or to run.
 */
#ifndef TOPO_NVML_H
#define TOPO_NVML_H

#include "topo_graph.h"

#define TOPO_NVML_GPUS 64u

typedef struct topo_nvml_gpu {
    uint64_t bus;
    char name[64];
    char uuid[64];
    uint32_t sm;                     /* 90 for 9.0; 0: not known */
    uint32_t link_total;             /* NVLinks that it has */
    uint32_t link_up;                /* of them active */
    uint32_t to_switch;              /* active ones that lead to a switch */
    uint32_t to_cpu;                 /* … to a processor */
    uint32_t to_gpu[TOPO_NVML_GPUS]; /* … to the GPU of that number here */
    bool peers[TOPO_NVML_GPUS];      /* reads and writes of that GPU's memory are possible */
    uint32_t generation_max, width_max;
    uint32_t generation_now, width_now;
    bool fabric;      /* part of a fabric that is set up */
    char cluster[33]; /* of the fabric, hexadecimal */
    uint32_t clique;
} topo_nvml_gpu;

typedef struct topo_nvml {
    uint32_t count;
    topo_nvml_gpu gpus[TOPO_NVML_GPUS];
} topo_nvml;

/* Fills `found`; NULL, or why nothing is known: static text. */
const char *topo_nvml_read(topo_nvml *found);

#endif
