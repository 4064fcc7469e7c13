#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Goal: what is broken is found, shrunk, told, written, and the same again to the last event when it is
# replayed. Method: the command with scenarios that are broken on purpose (broken_scenarios.c).
set -euo pipefail

broken=${IST_BROKEN:?}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
failed=0

# run STATUS ARGUMENT...
run() {
    local expected=$1 status=0
    shift
    "$broken" "$@" >out 2>err || status=$?
    if [[ $status != "$expected" ]]; then
        echo "$*: exit status $status, expected $expected"
        sed 's/^/    /' out err
        failed=1
    fi
}

# find SCENARIO FINDING WORDS: found, and shrunk to two ranks and a handful of operations.
find_it() {
    run 1 "$1" --faults none --out "$scratch/$1" --json
    python3 - "$1" "$2" "$3" <<'PYTHON' || failed=1
import json, os, sys
name, finding, words = sys.argv[1:]
answer = json.load(open("out"))
assert not answer["ok"] and len(answer["failures"]) == 1, answer
one = answer["failures"][0]
assert one["scenario"] == name and one["finding"] == finding and words in one["text"], one
assert one["text"].rstrip().splitlines()[-1].startswith(f"isthmus explore {name} "), one["text"]
assert one["shrunk_ranks"] == 2 and one["shrunk_device_ops"] <= 20 and words in one["shrunk_text"], one
case = json.load(open(one["replay_file"]))
assert case["scenario"] == name and case["params"]["steps"][0] == 1, case
assert os.path.getsize(one["report_file"]) > 10000
PYTHON
    local file
    file=$(ls "$scratch/$1"/*.json)
    run 0 --replay "$file" --out again --json
    cp out first
    run 0 --replay "$file" --out again --json
    cmp first out || failed=1
    cmp "again/$(basename "$file" .json).html" "${file%.json}.html" || failed=1
    # A file that says something else than what happens is not "as recorded".
    sed 's/"digest":"[0-9a-f]*"/"digest":"0123456789abcdef"/' "$file" >other.json
    run 1 --replay other.json --out again
    # The line of the report repeats the seed that was found.
    run 1 "$1" --faults none --out line --shrink 0
    local line
    line=$(grep -m1 '^isthmus explore [a-z]' out | sed 's/^isthmus explore //')
    # shellcheck disable=SC2086
    run 1 $line --out line --shrink 0
    grep -q "1 failures" out || failed=1
}

find_it broken-race race "row_fill after ring.send"
find_it broken-bytes status "byte 0 is 0x"
find_it broken-wait deadlock "broken_ring"

# A search finds it, too, and what it wrote is the same again.
for scenario in race bytes wait; do
    run 1 broken-$scenario --ranks 2 --rounds 1 --scheduler exhaustive --out search
    grep -q '^report: search/' out || failed=1
    run 0 --replay "search/broken-$scenario-search.json" --out search
done

# All seeds fail, of one kind: one is told, all are counted.
run 1 broken-wait --faults none --schedules 200 --keep-going --shrink 0 --json
python3 -c 'import json; a = json.load(open("out")); f, = a["failures"]
assert a["failed"] == f["count"] == a["schedules"] == 200, a' || failed=1

# A seed that kills its worker is named; the others have their answer.
run 1 broken-crash --faults none --schedules 300 --keep-going --jobs 3 --json
python3 -c 'import json; a = json.load(open("out")); f, = a["failures"]
assert f["finding"] == "crash" and f["count"] == 3 and f["seed"] == 42, f
assert a["schedules"] == 300 and a["run"]["worker_deaths"] >= 6, a' || failed=1

# So is one that never ends.
run 1 broken-hang --faults none --schedules 64 --patience 3s --jobs 2 --json
python3 -c 'import json; a = json.load(open("out")); f, = a["failures"]
assert f["finding"] == "crash" and f["seed"] == 42 and a["run"]["worker_deaths"] >= 3, a' || failed=1

# Words about what cannot be.
run 2 no-such-scenario
run 2 broken-race --faults storm
run 2 broken-race --scheduler replay
run 2 broken-race --ranks 1
run 2
run 1 --replay nowhere.json
echo '{"isthmus_case":1}' >bad.json
run 1 --replay bad.json
exit $failed
