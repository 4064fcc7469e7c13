#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# `isthmus probe` in the simulator finds what the cluster's description says, and its answer is a
# profile as topology/profile.md says. Tolerances are what a kernel's own steps add: some loads and
# syncs a round, and the hand-over of a put.
set -euo pipefail

isthmus=${IST_BIN_DIR:?}/isthmus
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0

# probed LINE KEY=LEAST..MOST...
probed() {
    local line=$1
    shift
    if ! "$isthmus" probe --backend sim --cluster "$line" -b 64K -e 4M -n 50 --json --name try ${puts-} >"$scratch/out"; then
        failed=1
        return
    fi
    python3 - "$scratch/out" "$@" <<'PYTHON' || { echo "cluster $line"; failed=1; }
import json, sys
profile = json.load(open(sys.argv[1]))
assert profile["format"] == "isthmus-profile" and profile["version"] == 1, profile
assert profile["name"] == "try" and profile["machine"]["clock"] == "virtual"
for entry in profile["values"].values():
    assert isinstance(entry["value"], int) and entry["origin"] in profile["origins"], entry
    assert entry["unit"] in ("ps", "bytes/s", "count"), entry
for key, curve in profile["curves"].items():
    assert curve["origin"] in profile["origins"] and curve["points"], key
    for point in curve["points"]:
        assert point["time_ps"] > 0 and point["blocks"] > 0, point
        if key != "lsa_barrier":
            rate = point["bytes"] * 1e12 / point["time_ps"] * (2 if key == "local_copy" else 1)
            assert abs(point["rate"] - rate) <= 1, point
for wanted in sys.argv[2:]:
    key, _, span = wanted.partition("=")
    if span == "none":
        assert key not in profile["values"] and key not in profile["curves"], key
        continue
    low, high = (float(x) for x in span.split(".."))
    value = profile["values"][key]["value"]
    assert low <= value <= high, (key, value, span)
PYTHON
}

# Default links: 366 GB/s, 730 ns; 50 GB/s, 2.5 us; 4.2 TB/s; launch 2.5 us, call 200 ns.
probed 1x2 nvlink_latency_ps=730000..750000 nvlink_bytes_per_s=365.6e9..366.4e9 \
    lsa_load_bytes_per_s=365.6e9..366.4e9 hbm_bytes_per_s=4.19e12..4.21e12 nic_latency_ps=2.5e6..2.8e6 \
    nic_bytes_per_s=49.9e9..50.1e9 launch_ps=2.5e6..2.5e6 host_call_ps=200000..200000 sync_ps=30000..30000 \
    atomic_ps=500000..500000 load_ps=5000..5000 sm_count=4..4
# Others, with steps that cost nothing: latencies come out to the picosecond of the clock.
probed 2x2,nvlink_rate=200GB/s,nvlink_latency=1us,nic_rate=100Gb/s,nic_latency=5us,launch=4us,host_call=100ns,load=0ps,sync=0ps,sms=8 \
    nvlink_latency_ps=1000000..1000000 nvlink_bytes_per_s=199.9e9..200.1e9 nic_latency_ps=5e6..5.2e6 \
    nic_bytes_per_s=12.49e9..12.51e9 launch_ps=4000000..4000000 host_call_ps=100000..100000 sm_count=8..8
# Without NICs no puts, without NVLink no loads and stores.
# On a communicator without teams puts cost the same.
puts=--puts probed 1x2 nic_latency_ps=2.5e6..2.8e6 nic_bytes_per_s=49.9e9..50.1e9 nvlink_latency_ps=730000..750000
probed 1x2,nics=0 nic_latency_ps=none gin_put=none nvlink_latency_ps=730000..750000
probed 1x2,nvlink=0 nvlink_latency_ps=none lsa_store=none lsa_barrier=none nic_latency_ps=2.5e6..2.8e6
probed 1x1 nvlink_latency_ps=none gin_put=none hbm_bytes_per_s=4.19e12..4.21e12

"$isthmus" probe --backend sim -e 1M --blocks 1,2 -J "$scratch/file.json" >"$scratch/out" || failed=1
grep -q "virtual clock" "$scratch/out" || failed=1
grep -qE "^lsa_store +1048576 +2 " "$scratch/out" || failed=1
python3 -m json.tool "$scratch/file.json" >/dev/null || failed=1
exit $failed
