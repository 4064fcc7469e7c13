/* SPDX-License-Identifier: Apache-2.0 */
/* Calls NVML through dlsym. Its types are restated here as far as they are used; a function that an
 * older library lacks costs only what it would have told.
 */
#include "topo_nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define LINKS_MAX 36u
#define REMOTE_GPU 0u
#define REMOTE_CPU 1u
#define REMOTE_SWITCH 2u
#define P2P_READ 0u
#define P2P_WRITE 1u
#define FABRIC_COMPLETED 3u

typedef void *nvml_device;

/* nvmlPciInfo, third version. */
typedef struct nvml_pci {
    char bus_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} nvml_pci;

/* nvmlGpuFabricInfo, first version. */
typedef struct nvml_fabric {
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
} nvml_fabric;

/* X(field, symbol, parameters) */
#define NVML_FUNCTIONS(X)                                                                          \
    X(init, "nvmlInit_v2", (void))                                                                 \
    X(shutdown, "nvmlShutdown", (void))                                                            \
    X(count, "nvmlDeviceGetCount_v2", (unsigned *))                                                \
    X(handle, "nvmlDeviceGetHandleByIndex_v2", (unsigned, nvml_device *))                          \
    X(pci, "nvmlDeviceGetPciInfo_v3", (nvml_device, nvml_pci *))                                   \
    X(name, "nvmlDeviceGetName", (nvml_device, char *, unsigned))                                  \
    X(uuid, "nvmlDeviceGetUUID", (nvml_device, char *, unsigned))                                  \
    X(capability, "nvmlDeviceGetCudaComputeCapability", (nvml_device, int *, int *))               \
    X(link_state, "nvmlDeviceGetNvLinkState", (nvml_device, unsigned, unsigned *))                 \
    X(link_pci, "nvmlDeviceGetNvLinkRemotePciInfo_v2", (nvml_device, unsigned, nvml_pci *))        \
    X(link_type, "nvmlDeviceGetNvLinkRemoteDeviceType", (nvml_device, unsigned, unsigned *))       \
    X(p2p, "nvmlDeviceGetP2PStatus", (nvml_device, nvml_device, unsigned, unsigned *))             \
    X(generation_max, "nvmlDeviceGetMaxPcieLinkGeneration", (nvml_device, unsigned *))             \
    X(width_max, "nvmlDeviceGetMaxPcieLinkWidth", (nvml_device, unsigned *))                       \
    X(generation_now, "nvmlDeviceGetCurrPcieLinkGeneration", (nvml_device, unsigned *))            \
    X(width_now, "nvmlDeviceGetCurrPcieLinkWidth", (nvml_device, unsigned *))                      \
    X(fabric, "nvmlDeviceGetGpuFabricInfo", (nvml_device, nvml_fabric *))

typedef struct nvml {
#define X(field, symbol, parameters) int(*field) parameters;
    NVML_FUNCTIONS(X)
#undef X
    nvml_device devices[TOPO_NVML_GPUS];
} nvml;

/* Data pointers become function pointers only this way in strict C. */
static void symbols_find(void *library, nvml *api)
{
    void *symbol = NULL;
#define X(field, name, parameters)                                                                 \
    symbol = dlsym(library, name);                                                                 \
    memcpy(&api->field, &symbol, sizeof(symbol));
    NVML_FUNCTIONS(X)
#undef X
}

static uint64_t bus_of(const nvml_pci *pci)
{
    return (uint64_t)pci->domain << 24 | (uint64_t)(pci->bus & 0xff) << 16 |
           (uint64_t)(pci->device & 0xff) << 8;
}

static void number_read(int (*get)(nvml_device, unsigned *), nvml_device device, uint32_t *value)
{
    unsigned found = 0;
    if (get != NULL && get(device, &found) == 0) {
        *value = found;
    }
}

static void fabric_read(const nvml *api, nvml_device device, topo_nvml_gpu *gpu)
{
    nvml_fabric fabric;
    memset(&fabric, 0, sizeof(fabric));
    if (api->fabric == NULL || api->fabric(device, &fabric) != 0 ||
        fabric.state != FABRIC_COMPLETED || fabric.status != 0) {
        return;
    }
    gpu->fabric = true;
    gpu->clique = fabric.clique;
    for (size_t i = 0; i < sizeof(fabric.cluster); i++) {
        (void)snprintf(gpu->cluster + 2 * i, 3, "%02x", fabric.cluster[i]);
    }
}

static void gpu_read(const nvml *api, nvml_device device, topo_nvml_gpu *gpu)
{
    nvml_pci pci;
    int major = 0;
    int minor = 0;
    memset(&pci, 0, sizeof(pci));
    gpu->bus = TOPO_BUS_NONE;
    if (api->pci != NULL && api->pci(device, &pci) == 0) {
        gpu->bus = bus_of(&pci);
    }
    if (api->name == NULL || api->name(device, gpu->name, sizeof(gpu->name)) != 0) {
        gpu->name[0] = '\0';
    }
    if (api->uuid == NULL || api->uuid(device, gpu->uuid, sizeof(gpu->uuid)) != 0) {
        gpu->uuid[0] = '\0';
    }
    if (api->capability != NULL && api->capability(device, &major, &minor) == 0) {
        gpu->sm = (uint32_t)(major * 10 + minor);
    }
    number_read(api->generation_max, device, &gpu->generation_max);
    number_read(api->width_max, device, &gpu->width_max);
    number_read(api->generation_now, device, &gpu->generation_now);
    number_read(api->width_now, device, &gpu->width_now);
    fabric_read(api, device, gpu);
}

/* What an active link leads to: by type where the library tells, else by the bus id of a GPU here.
 * A far end that cannot be named is a switch, as NCCL takes it. */
static void far_end_read(const nvml *api, nvml_device device, unsigned link, topo_nvml *found,
                         topo_nvml_gpu *gpu)
{
    unsigned type = 0xff;
    nvml_pci pci;
    memset(&pci, 0, sizeof(pci));
    bool typed = api->link_type != NULL && api->link_type(device, link, &type) == 0;
    bool placed = api->link_pci != NULL && api->link_pci(device, link, &pci) == 0;
    for (uint32_t i = 0; placed && i < found->count; i++) {
        if (found->gpus[i].bus == bus_of(&pci)) {
            gpu->to_gpu[i]++;
            return;
        }
    }
    if (typed && type == REMOTE_CPU) {
        gpu->to_cpu++;
    } else if (!typed || type == REMOTE_SWITCH || type == 0xff) {
        gpu->to_switch++;
    }
}

static void links_read(const nvml *api, nvml_device device, topo_nvml *found, topo_nvml_gpu *gpu)
{
    for (unsigned link = 0; api->link_state != NULL && link < LINKS_MAX; link++) {
        unsigned active = 0;
        if (api->link_state(device, link, &active) != 0) {
            continue; /* this GPU has no such link */
        }
        gpu->link_total++;
        if (active != 0) {
            gpu->link_up++;
            far_end_read(api, device, link, found, gpu);
        }
    }
}

static void peers_read(const nvml *api, topo_nvml *found, uint32_t self)
{
    for (uint32_t i = 0; api->p2p != NULL && i < found->count; i++) {
        unsigned reads = 1;
        unsigned writes = 1;
        nvml_device a = api->devices[self];
        nvml_device b = api->devices[i];
        found->gpus[self].peers[i] = i != self && api->p2p(a, b, P2P_READ, &reads) == 0 &&
                                     api->p2p(a, b, P2P_WRITE, &writes) == 0 && reads == 0 &&
                                     writes == 0;
    }
}

static const char *all_read(nvml *api, topo_nvml *found)
{
    unsigned count = 0;
    if (api->count == NULL || api->handle == NULL || api->count(&count) != 0) {
        return "NVML does not count the GPUs";
    }
    for (unsigned i = 0; i < count && found->count < TOPO_NVML_GPUS; i++) {
        nvml_device device = NULL;
        if (api->handle(i, &device) == 0) {
            api->devices[found->count] = device;
            gpu_read(api, device, &found->gpus[found->count++]);
        }
    }
    for (uint32_t i = 0; i < found->count; i++) {
        links_read(api, api->devices[i], found, &found->gpus[i]);
        peers_read(api, found, i);
    }
    return found->count > 0 ? NULL : "NVML sees no GPU";
}

const char *topo_nvml_read(topo_nvml *found)
{
    nvml api;
    memset(found, 0, sizeof(*found));
    memset(&api, 0, sizeof(api));
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        return "NVML (libnvidia-ml.so.1) is not installed";
    }
    symbols_find(library, &api);
    const char *reason = "NVML does not start";
    if (api.init != NULL && api.shutdown != NULL && api.init() == 0) {
        reason = all_read(&api, found);
        (void)api.shutdown();
    }
    (void)dlclose(library);
    return reason;
}
