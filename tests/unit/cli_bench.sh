#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# `isthmus bench` in the simulator: every way of running is checked and timed, the forms of the answer
# agree, times are ordered and repeat exactly, and a lost rank leaves no times.
set -euo pipefail

isthmus=${IST_BIN_DIR:?}/isthmus
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0

# run STATUS ARGUMENT...
run() {
    local expected=$1 status=0
    shift
    "$isthmus" "$@" >"$scratch/out" 2>"$scratch/err" || status=$?
    if [[ $status != "$expected" ]]; then
        echo "isthmus $*: exit status $status, expected $expected"
        sed 's/^/    /' "$scratch/out" "$scratch/err"
        failed=1
        return 1
    fi
}

complain() {
    echo "$1"
    failed=1
}

small=(bench ep --backend sim --ranks 4 --tokens 8 --hidden 256 --experts 16 --top-k 4 -n 4 -w 1)
for way in "--layout em,rm" "--staged" "--graph --layout em,rm" "-R 2 --layout rm" "-G 3 -R 2" \
    "--nodes 2 -N 2" "--uneven --masked 100 -d fp32" "--op route,pair -a 3" "-b 1 -e 8 -f 2" "-b 2 -e 8 -i 3"; do
    # shellcheck disable=SC2086
    run 0 "${small[@]}" --json $way || continue
    python3 - "$scratch/out" "$way" <<'PYTHON' || failed=1
import json, sys
answer = json.load(open(sys.argv[1]))
assert answer["clock"] == "virtual" and answer["cases"], answer
for case in answer["cases"]:
    assert case["wrong_rows"] == 0 and case["checked_rows"] > 0, case
    assert case["times"], case
    for op in case["times"]:
        for kind in ("host", "stream"):
            t = op[kind]
            assert 0 < t["min_us"] <= t["median_us"] <= t["p99_us"], op
            assert t["min_us"] <= t["mean_us"] <= t["p99_us"], op
        assert 0 < op["run_us"] and op["run_least_us"] <= op["run_us"] * 1.0001, op
        if op["op"] != "route":
            assert op["gb_per_s"] >= op["link_gb_per_s"] > 0, op
            # An operation alone and waited for is not faster than one of many in a row.
            assert op["host"]["mean_us"] >= 0.999 * op["run_us"], op
tokens = [case["tokens"] for case in answer["cases"]]
if "-f 2" in sys.argv[2]:
    assert tokens == [1, 2, 4, 8], tokens
if "-i 3" in sys.argv[2]:
    assert tokens == [2, 5, 8], tokens
PYTHON
done

# The simulator repeats its times, and three forms say the same.
run 0 "${small[@]}" --json -J "$scratch/file.json" || true
cp "$scratch/out" "$scratch/first"
cmp "$scratch/out" "$scratch/file.json" || complain "--json and -J differ"
run 0 "${small[@]}" --json || true
cmp "$scratch/out" "$scratch/first" || complain "times of a second run differ"
run 0 "${small[@]}" --csv || true
python3 - "$scratch/out" "$scratch/first" <<'PYTHON' || failed=1
import csv, json, sys
rows = list(csv.DictReader(open(sys.argv[1])))
case = json.load(open(sys.argv[2]))["cases"][0]
assert [row["op"] for row in rows] == ["dispatch", "combine", "pair"], rows
for row, op in zip(rows, case["times"]):
    assert abs(float(row["run_us"]) - op["run_us"]) < 0.001, (row, op)
    assert abs(float(row["host_median_us"]) - op["host"]["median_us"]) < 0.001, (row, op)
    assert int(row["group_bytes"]) == case["group_bytes"], row
PYTHON
run 0 "${small[@]}" -N 2 || true
grep -q "virtual clock" "$scratch/out" || complain "the table does not say that times are virtual"
grep -qE "^em +8 pair " "$scratch/out" || complain "no row of the pair in the table"

# Sent bytes: with one expert a rank and every token to all ranks, a rank sends tokens x ranks rows.
run 0 bench ep --backend sim --ranks 4 --tokens 8 --hidden 256 --experts 4 --top-k 4 -n 2 -w 1 --json || true
python3 - "$scratch/out" <<'PYTHON' || failed=1
import json, sys
for op in json.load(open(sys.argv[1]))["cases"][0]["times"]:
    rows = {"dispatch": 32, "combine": 32, "pair": 64}[op["op"]]
    bytes_sent = op["gb_per_s"] * op["run_us"] * 1000
    assert abs(bytes_sent - rows * 512) < 1, (op, bytes_sent)
    assert abs(op["link_gb_per_s"] / op["gb_per_s"] - 0.75) < 1e-6, op
PYTHON

# A rank that is lost leaves no times.
for fault in kill:rank=2:at_op=60 kill:rank=1:at_point=ep.combine.sent:nth=3; do
    run 1 "${small[@]}" --deadline 1ms --fault "$fault" || true
    [[ -s $scratch/out ]] && complain "$fault: something was printed"
    grep -q "lost" "$scratch/err" || complain "$fault: not said"
done

# Barrier and agreement.
for way in "" "--nodes 2" "-g 1"; do
    # shellcheck disable=SC2086
    run 0 bench coll --backend sim --ranks 4 -n 4 -w 1 -c 3 --json $way || continue
    python3 - "$scratch/out" <<'PYTHON' || failed=1
import json, sys
times = json.load(open(sys.argv[1]))["times"]
assert [t["op"] for t in times] == ["barrier", "barrier, graph", "agree"], times
assert all(0 < t["host"]["min_us"] <= t["host"]["p99_us"] for t in times), times
PYTHON
done

# Opening, and the soak.
run 0 bench setup --backend sim --ranks 4 --tokens 8 --hidden 256 --experts 16 --top-k 4 -N 2 --windows --json || true
python3 - "$scratch/out" <<'PYTHON' || failed=1
import json, sys
cycles = json.load(open(sys.argv[1]))["cycles"]
assert len(cycles) == 2, cycles
for c in cycles:
    parts = c["group"] + c["handle"] + c["dispatch 1st"] + c["combine 1st"]
    assert abs(parts - c["group+handle"]) < 1e-6 and c["windows"] > 0, c
PYTHON
for way in "" "--windows" "--nodes 2 --windows" "--ranks 3 --experts 17 --top-k 5" "--seed 9 --links max-min"; do
    # shellcheck disable=SC2086
    run 0 bench soak --backend sim --ranks 4 --tokens 8 --hidden 64 --experts 16 --top-k 4 -n 60 --json $way || continue
    python3 - "$scratch/out" <<'PYTHON' || failed=1
import json, sys
answer = json.load(open(sys.argv[1]))
assert answer["ok"] and answer["steps"] == 60 and answer["words"] > 10000, answer
PYTHON
done

# Ranks as processes get the same times, to the last digit, and one of them answers.
if command -v mpirun >/dev/null; then
    for what in "bench ep --tokens 4 --hidden 64 --experts 8 --top-k 2 -n 3 -w 1" "probe -b 64K -e 256K -n 20"; do
        # shellcheck disable=SC2086
        "$isthmus" $what --backend sim --ranks 2 --json >"$scratch/one" || failed=1
        # shellcheck disable=SC2086
        mpirun --oversubscribe -n 2 "$isthmus" $what --backend sim --ranks 2 --json >"$scratch/two" || failed=1
        cmp "$scratch/one" "$scratch/two" || complain "$what: processes find something else"
    done
fi
exit $failed
