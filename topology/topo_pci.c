/* SPDX-License-Identifier: Apache-2.0 */
/* Tables and small parsers of PCI, NVLink, XGMI and sockets. Rates of links are the makers'; what
 * is left of them for data follows the constants that NCCL publishes with its topology code.
 */
#include "topo_pci.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MEGA UINT64_C(1000000)
#define GIGA UINT64_C(1000000000)

/* ------------------------------------------------------------------------------------ bus ids */

/* Reads 1 to `digits` hexadecimal digits; NULL when there are none. */
static const char *hex_read(const char *at, uint32_t digits, uint64_t *value)
{
    *value = 0;
    const char *start = at;
    for (; (uint32_t)(at - start) < digits; at++) {
        char c = *at;
        uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                         : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a') + 10
                         : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A') + 10
                                                : 16;
        if (digit == 16) {
            break;
        }
        *value = *value << 4 | digit;
    }
    return at == start ? NULL : at;
}

bool topo_bus_parse(const char *text, uint64_t *bus)
{
    uint64_t domain = 0;
    uint64_t number = 0;
    uint64_t device = 0;
    uint64_t function = 0;
    const char *colon = strchr(text, ':');
    const char *at = text;
    if (colon != NULL && strchr(colon + 1, ':') != NULL) {
        at = hex_read(at, 8, &domain);
        if (at == NULL || *at++ != ':') {
            return false;
        }
    }
    if ((at = hex_read(at, 2, &number)) == NULL || *at != ':' ||
        (at = hex_read(at + 1, 2, &device)) == NULL || *at != '.' ||
        (at = hex_read(at + 1, 1, &function)) == NULL || *at != '\0') {
        return false;
    }
    /* Files of virtual machines name devices 20 to ff, which no bus has; 8 bits keep them apart. */
    *bus = domain << 24 | number << 16 | device << 8 | function;
    return true;
}

void topo_bus_print(uint64_t bus, char text[TOPO_BUS_TEXT])
{
    (void)snprintf(text, TOPO_BUS_TEXT, "%04" PRIx64 ":%02" PRIx64 ":%02" PRIx64 ".%" PRIx64,
                   bus >> 24 & 0xffffffffu, bus >> 16 & 0xff, bus >> 8 & 0xff, bus & 0xf);
}

/* ------------------------------------------------------------------------------------ classes */

#define VENDOR_NVIDIA 0x10de
#define VENDOR_AMD 0x1002
#define VENDOR_INTEL 0x8086
#define VENDOR_HYGON 0x1d94

/* AMD's display controllers of server boards: Rage XL, ES1000. */
static bool is_board_display(uint16_t vendor, uint16_t device)
{
    return vendor == VENDOR_AMD && (device == 0x4752 || device == 0x515e || device == 0x5159);
}

bool topo_pci_is_accelerator(uint16_t vendor, uint16_t device)
{
    return vendor == VENDOR_INTEL && device >= 0x2250 && device <= 0x225f; /* Xeon Phi cards */
}

static bool is_display_gpu(uint32_t sub, uint16_t vendor, uint16_t device)
{
    if (is_board_display(vendor, device)) {
        return false;
    }
    bool maker = vendor == VENDOR_NVIDIA || vendor == VENDOR_AMD || vendor == VENDOR_HYGON;
    /* Subclass 0, VGA: emulated and board controllers have it too. 2 and 80: cards for
     * computing. */
    return sub == 0 ? maker || vendor == 0 : sub == 2 || sub == 0x80;
}

topo_kind topo_pci_use(uint32_t class_id, uint16_t vendor, uint16_t device)
{
    uint32_t base = class_id >> 16;
    uint32_t sub = class_id >> 8 & 0xff;
    if ((base == 0x03 && is_display_gpu(sub, vendor, device)) || base == 0x12 ||
        topo_pci_is_accelerator(vendor, device)) {
        return TOPO_GPU;
    }
    if (base == 0x02) {
        return TOPO_NIC;
    }
    if (class_id >> 8 == TOPO_PCI_NVSWITCH && vendor == VENDOR_NVIDIA) {
        return TOPO_NVSWITCH;
    }
    return class_id >> 8 == TOPO_PCI_BRIDGE ? TOPO_PCI_SWITCH : TOPO_PCI_DEVICE;
}

/* ------------------------------------------------------------------------------------ PCI rates */

typedef struct generation_row {
    const char *speed;   /* as the kernel writes it */
    const char *number;  /* what a speed text begins with */
    uint64_t lane_bytes; /* one lane, after line coding */
    uint64_t lane_data;  /* one lane, as NCCL counts */
} generation_row;

#define GENERATIONS 7u
static const generation_row generations[GENERATIONS + 1] = {
    {"", "", 0, 0},
    {"2.5 GT/s PCIe", "2.5", 250 * MEGA, 187500000},
    {"5.0 GT/s PCIe", "5", 500 * MEGA, 375000000},
    {"8.0 GT/s PCIe", "8", 984615385, 750000000},
    {"16.0 GT/s PCIe", "16", 1969230769, 1500000000},
    {"32.0 GT/s PCIe", "32", 3938461538, 3000000000},
    {"64.0 GT/s PCIe", "64", 7563636364, 6000000000},
    {"128.0 GT/s PCIe", "128", 15127272727, 12000000000},
};

uint32_t topo_pci_generation(const char *speed)
{
    for (uint32_t i = 1; i <= GENERATIONS; i++) {
        size_t length = strlen(generations[i].number);
        if (strncmp(speed, generations[i].number, length) != 0) {
            continue;
        }
        const char *rest = speed + length;
        rest += strncmp(rest, ".0", 2) == 0 ? 2 : 0;
        rest += strspn(rest, " ");
        if (strncmp(rest, "GT/s", 4) == 0 || *rest == '\0') {
            return i;
        }
    }
    return 0;
}

const char *topo_pci_speed(uint32_t generation)
{
    return generations[generation <= GENERATIONS ? generation : 0].speed;
}

uint64_t topo_pci_nominal(uint32_t generation, uint32_t width)
{
    return generation <= GENERATIONS ? generations[generation].lane_bytes * width : 0;
}

uint64_t topo_pci_effective(uint32_t generation, uint32_t width)
{
    return generation <= GENERATIONS ? generations[generation].lane_data * width : 0;
}

void topo_pci_guess(uint64_t nominal, uint32_t *generation, uint32_t *width)
{
    uint64_t nearest = UINT64_MAX;
    *generation = 0;
    *width = 0;
    for (uint32_t lanes = 16; lanes >= 1; lanes /= 2) {
        for (uint32_t i = 1; i <= GENERATIONS; i++) {
            uint64_t rate = topo_pci_nominal(i, lanes);
            uint64_t distance = rate > nominal ? rate - nominal : nominal - rate;
            /* Nearer by more than a hundredth, so that the widest of equal ones stays. */
            if (distance + nominal / 100 < nearest) {
                nearest = distance;
                *generation = i;
                *width = lanes;
            }
        }
    }
}

/* ------------------------------------------------------------------------------------ GPU links */

void topo_nvlink_rate(uint32_t sm, uint64_t *nominal, uint64_t *effective)
{
    static const struct {
        uint32_t sm;
        uint64_t nominal, effective;
    } rows[] = {{100, 50 * GIGA, 40100 * MEGA}, {90, 25 * GIGA, 20600 * MEGA},
                {87, 25 * GIGA, 20 * GIGA},     {86, 14062500000, 12 * GIGA},
                {70, 25 * GIGA, 20 * GIGA},     {0, 20 * GIGA, 18 * GIGA}};
    size_t i = 0;
    while (sm < rows[i].sm) {
        i++;
    }
    *nominal = rows[i].nominal;
    *effective = rows[i].effective;
}

void topo_xgmi_rate(uint32_t gfx, uint64_t *nominal, uint64_t *effective)
{
    bool third = gfx >= 940;
    bool second = gfx >= 910 || (gfx >= 90 && gfx < 100); /* 90a as its digits */
    *nominal = third ? 64 * GIGA : second ? 50 * GIGA : 37500 * MEGA;
    *effective = third ? 48 * GIGA : second ? 36 * GIGA : 24 * GIGA;
}

/* ------------------------------------------------------------------------------------ sockets */

uint64_t topo_smp_rate(const char *arch, const char *vendor, uint32_t family, uint32_t model)
{
    const char *maker = vendor != NULL ? vendor : "";
    const char *machine = arch != NULL ? arch : "";
    if (strncmp(machine, "ppc64", 5) == 0) {
        return 32 * GIGA;
    }
    if (strncmp(machine, "arm", 3) == 0 || strncmp(machine, "aarch", 5) == 0) {
        return 6 * GIGA;
    }
    if (strstr(maker, "AMD") != NULL || strstr(maker, "Hygon") != NULL) {
        return 16 * GIGA;
    }
    if (strstr(maker, "Shanghai") != NULL || strstr(maker, "Zhaoxin") != NULL) {
        return family == 7 && model == 0x5b ? 9 * GIGA : 6 * GIGA;
    }
    if (strstr(maker, "Intel") != NULL && family == 6) {
        return (model >= 0xcf ? 40 : model >= 0x8f ? 22 : model >= 0x55 ? 10 : 6) * GIGA;
    }
    return 10 * GIGA;
}

uint64_t topo_latency(topo_link_kind kind)
{
    switch (kind) {
    case TOPO_LINK_LOCAL: return 0;
    case TOPO_LINK_NVLINK: return 365000; /* half of GPU to GPU through a switch */
    case TOPO_LINK_XGMI: return 365000;
    case TOPO_LINK_C2C: return 400000;
    case TOPO_LINK_PCI: return 250000;
    case TOPO_LINK_SMP: return 100000;
    case TOPO_LINK_NET: return 1250000; /* half of NIC to NIC through one switch */
    case TOPO_LINK_KINDS: break;
    }
    return 0;
}
