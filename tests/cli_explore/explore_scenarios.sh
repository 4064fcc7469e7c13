#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Goal: every protocol of the library, on every network, under every kind of fault, has an answer for each
# schedule. Method: `isthmus explore all`, some dozens of seeds of each scenario, each kind of fault twice
# at least; the sums say that all of it ran. `explore_scenarios.sh N` runs N seeds.
set -euo pipefail

isthmus=${IST_BIN_DIR:?}/isthmus
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
seeds=${1:-112}

"$isthmus" explore all --schedules "$seeds" --keep-going --out "$scratch" --json >"$scratch/out" || {
    cat "$scratch/out"
    exit 1
}
"$isthmus" explore --list --json >"$scratch/list"
python3 - "$scratch" "$seeds" <<'PYTHON'
import json, sys
answer, known = (json.load(open(f"{sys.argv[1]}/{name}")) for name in ("out", "list"))
seeds = int(sys.argv[2])
assert answer["ok"] and answer["failed"] == 0 and answer["failures"] == [], answer
assert set(answer["scenarios"]) == set(known["scenarios"]) and len(known["scenarios"]) == 46, known
for name, one in answer["scenarios"].items():
    assert one["schedules"] == seeds and one["device_ops"] > seeds, (name, one)
for kind in known["faults"]:
    assert answer["faults"].get(kind, 0) >= 2 * 12, (kind, answer["faults"])
assert answer["schedules"] == 46 * seeds
assert answer["distinct_digests"] > answer["schedules"] * 0.8, answer["distinct_digests"]
assert answer["distinct_wait_shapes"] > 100
print(answer["schedules"], "schedules,", answer["device_ops"], "device operations")
PYTHON

# Small programs, all their schedules.
"$isthmus" explore 'mask-barrier-*' --ranks 2 --rounds 1 --scheduler exhaustive --schedules 100000 >"$scratch/all"
[[ $(grep -c 'all there are' "$scratch/all") == 3 ]] || {
    cat "$scratch/all"
    exit 1
}
