/* SPDX-License-Identifier: Apache-2.0 */
/* PCI in numbers: bus ids, classes, who is a GPU, what a link of some generation and width carries.
 */
#ifndef TOPO_PCI_H
#define TOPO_PCI_H

#include "topo_graph.h"

#define TOPO_PCI_BRIDGE 0x0604u      /* class and subclass */
#define TOPO_PCI_NVSWITCH 0x0680u    /* "other bridge": NVSwitch */
#define TOPO_PCI_POWER_CPU 0x068001u /* whole class: the processor's end of an NVLink */
#define TOPO_BUS_TEXT 24             /* longest bus id with its NUL */

/* Reads "domain:bus:device.function", hexadecimal; without a domain it is 0. False when it is
 * none. */
bool topo_bus_parse(const char *text, uint64_t *bus);
void topo_bus_print(uint64_t bus, char text[TOPO_BUS_TEXT]);

/* What a function is for, by class and ids: TOPO_GPU, TOPO_NIC, TOPO_PCI_SWITCH for bridges,
 * TOPO_NVSWITCH, else TOPO_PCI_DEVICE. Display controllers of servers' own boards are no GPUs. */
topo_kind topo_pci_use(uint32_t class_id, uint16_t vendor, uint16_t device);

/* Whether a vendor and device are accelerators whatever class they show. */
bool topo_pci_is_accelerator(uint16_t vendor, uint16_t device);

/* Reads "16.0 GT/s PCIe" into a generation, 1 … 7; 0: the text says nothing known. */
uint32_t topo_pci_generation(const char *speed);
const char *topo_pci_speed(uint32_t generation); /* "16.0 GT/s PCIe"; "" for 0 */

/* One direction, 0 for an unknown generation or width: raw bits after line coding, and what is left
 * for data (as NCCL counts: 12 GB/s for 16 lanes of the third generation). */
uint64_t topo_pci_nominal(uint32_t generation, uint32_t width);
uint64_t topo_pci_effective(uint32_t generation, uint32_t width);

/* The generation and width, widest first, whose nominal rate is nearest. */
void topo_pci_guess(uint64_t nominal, uint32_t *generation, uint32_t *width);

/* One NVLink or XGMI link, one direction: nominal and what is left for data. `sm` is a CUDA
 * architecture as 90, or a GFX number as 942. */
void topo_nvlink_rate(uint32_t sm, uint64_t *nominal, uint64_t *effective);
void topo_xgmi_rate(uint32_t gfx, uint64_t *nominal, uint64_t *effective);

/* Between two NUMA nodes, by processor. `vendor` as "GenuineIntel"; may be NULL. */
uint64_t topo_smp_rate(const char *arch, const char *vendor, uint32_t family, uint32_t model);

/* Latencies assumed for one link, ps. */
uint64_t topo_latency(topo_link_kind kind);

#endif
