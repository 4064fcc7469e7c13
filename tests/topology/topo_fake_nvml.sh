#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Goal: what NVML says becomes NVLinks, teams and reasons; a GPU that the PCIe tree hides is still there.
# Method: a library of NVML's name that answers for two H200 with 18 links to a switch each, in the way of
# LD_LIBRARY_PATH; then one link down, then none, then no peer access.
set -euo pipefail

isthmus=${IST_BIN_DIR:?}/isthmus
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/nvml.c" <<'C'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef struct { char legacy[16]; unsigned domain, bus, device, id, sub; char text[32]; } pci;
typedef struct { unsigned char cluster[16]; int status; unsigned clique; unsigned char state; } fabric;
static unsigned links(void) { const char *n = getenv("FAKE_LINKS"); return n ? (unsigned)atoi(n) : 18; }
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = (void *)(size_t)(i + 1); return 0; }
int nvmlDeviceGetPciInfo_v3(void *d, pci *p) { memset(p, 0, sizeof *p); p->domain = 0xfab; p->bus = (unsigned)(size_t)d; return 0; }
int nvmlDeviceGetName(void *d, char *t, unsigned n) { (void)d; snprintf(t, n, "NVIDIA H200"); return 0; }
int nvmlDeviceGetUUID(void *d, char *t, unsigned n) { snprintf(t, n, "GPU-%d", (int)(size_t)d); return 0; }
int nvmlDeviceGetCudaComputeCapability(void *d, int *a, int *b) { (void)d; *a = 9; *b = 0; return 0; }
int nvmlDeviceGetNvLinkState(void *d, unsigned l, unsigned *s) { (void)d; *s = l < links(); return l < 18 ? 0 : 3; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *d, unsigned l, pci *p) { (void)d; memset(p, 0, sizeof *p); p->domain = 7; p->bus = l; return 0; }
int nvmlDeviceGetNvLinkRemoteDeviceType(void *d, unsigned l, unsigned *t) { (void)d; (void)l; *t = 2; return 0; }
int nvmlDeviceGetP2PStatus(void *a, void *b, unsigned i, unsigned *s) { (void)a; (void)b; (void)i; *s = getenv("FAKE_NO_PEERS") != NULL; return 0; }
int nvmlDeviceGetMaxPcieLinkGeneration(void *d, unsigned *g) { (void)d; *g = 5; return 0; }
int nvmlDeviceGetMaxPcieLinkWidth(void *d, unsigned *g) { (void)d; *g = 16; return 0; }
int nvmlDeviceGetCurrPcieLinkGeneration(void *d, unsigned *g) { (void)d; *g = 1; return 0; }
int nvmlDeviceGetCurrPcieLinkWidth(void *d, unsigned *g) { (void)d; *g = 16; return 0; }
int nvmlDeviceGetGpuFabricInfo(void *d, fabric *f) { (void)d; memset(f, 0, sizeof *f); f->state = 3; f->clique = 5; return 0; }
C
${CC:-cc} -shared -fPIC -o "$work/libnvidia-ml.so.1" "$work/nvml.c"
export LD_LIBRARY_PATH=$work${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

say() {
    grep -qF -- "$1" <<<"$out" || { printf 'no "%s" in\n%s\n' "$1" "$out"; exit 1; }
}

out=$("$isthmus" topo show)
say 'gpu 0 NVIDIA H200'
say '2 GPUs'
say 'LSA 2 (1 teams), NVLink domains 1'
say 'NV18'
say 'not available:'
out=$("$isthmus" topo explain 0 1)
say 'path      NVL'
say '(NV18)'
say '370.8 GB/s'
say 'way       load/store (LSA), teams of 2'
out=$("$isthmus" topo show --json)
say '"fabric_clique": "5"'
say '"p2p": "1"'
# One link of each GPU down: fewer, degraded, and it is said.
out=$(FAKE_LINKS=17 "$isthmus" topo show)
say 'NV17'
say 'some links of a GPU are not active'
out=$(FAKE_LINKS=17 "$isthmus" topo explain 0 1)
say 'degraded'
# None: two teams, and NVLink is what a better way would need.
out=$(FAKE_LINKS=0 "$isthmus" topo explain 0 1)
say 'NVLink does not join them'
# Links there, but no peer access: the driver's word counts.
out=$(FAKE_NO_PEERS=1 "$isthmus" topo explain 0 1)
say 'path      NVL'
say 'the driver does not allow'
out=$(FAKE_NO_PEERS=1 "$isthmus" topo show)
say 'LSA 1 (2 teams)'
