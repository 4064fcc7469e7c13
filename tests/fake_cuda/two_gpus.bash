# SPDX-License-Identifier: Apache-2.0
#
# The two GPUs of the driver without GPU as a topology, for the scripts here to read.

# machine LINKS [ATTRIBUTES ATTRIBUTES]: links behind those of PCIe; what GPU 0 and 1 have besides a uuid
machine() {
    cat <<JSON
{"format": "isthmus-topology", "version": 1, "source": "two GPUs", "missing": [],
 "nodes": [{"kind": "machine"}, {"kind": "numa", "parent": 0, "number": 0},
  {"kind": "gpu", "parent": 1, "number": 0,
   "attrs": {"uuid": "GPU-01000000-0000-0000-0000-000000000000"${2-}}},
  {"kind": "gpu", "parent": 1, "number": 1,
   "attrs": {"uuid": "GPU-02000000-0000-0000-0000-000000000000"${3-}}}],
 "links": [{"kind": "smp", "a": 1, "b": 0}, {"kind": "pci", "a": 2, "b": 1},
  {"kind": "pci", "a": 3, "b": 1}$1]}
JSON
}
link=', {"kind": "nvlink", "a": 2, "b": 3, "count": 18, "bytes_per_s": 366000000000}'
