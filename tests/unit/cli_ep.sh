#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Whole runs of the command in the simulator: every layout, type, routing and way of running is right
# to the last byte, survivors of a death go on, and a run repeats from its line and from its record.
set -euo pipefail

isthmus=${IST_BIN_DIR:?}/isthmus
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0

# field NAME: of the last answer.
field() {
    python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$scratch/out" "$1"
}

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

same() {
    if [[ $2 != "$3" ]]; then
        echo "$1: $2, expected $3"
        failed=1
    fi
}

small=(ep --backend sim --json --ranks 4 --tokens 8 --hidden 256 --experts 16 --seed 3)
for layout in em rm; do
    for way in "" "--staged" "--graph --iterations 3" "--windows" "--uneven --masked 100" \
        "--nodes 2" "--nodes 2 --windows --links max-min" "--nodes 4 --uneven --iterations 2"; do
        for dtype in bf16 fp16 fp32; do
            # shellcheck disable=SC2086
            run 0 "${small[@]}" --layout $layout --dtype $dtype $way || true
        done
    done
    for routing in uniform zipf:0 zipf:1.5 zipf:4 deepseek; do
        run 0 "${small[@]}" --layout $layout --routing $routing || true
    done
    run 0 "${small[@]}" --layout $layout --experts 7 --top-k 7 || true
    run 0 "${small[@]}" --layout $layout --experts 3 --top-k 1 || true
done

# Tables: the same routing as CSV and as .npy of both types gives one digest.
python3 - "$scratch" <<'PYTHON'
import struct, sys
rows = [[(7 * t + 5 * k) % 16 for k in range(3)] for t in range(32)]
with open(sys.argv[1] + "/table.csv", "w") as out:
    out.write("# ids\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))
for code, letter in (("i4", "i"), ("i8", "q")):
    header = "{'descr': '<%s', 'fortran_order': False, 'shape': (32, 3), }" % code
    header += " " * (64 - (10 + len(header) + 1) % 64) + "\n"
    with open(sys.argv[1] + "/table_%s.npy" % code, "wb") as out:
        out.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        out.write(b"".join(struct.pack("<3" + letter, *row) for row in rows))
PYTHON
for table in table.csv table_i4.npy table_i8.npy; do
    run 0 ep --backend sim --json --ranks 4 --hidden 256 --experts 16 --routing "$scratch/$table" || true
    same "$table" "$(field digest)" "${digest=$(field digest)}"
done

# A death, and the survivors' next steps.
run 0 "${small[@]}" --iterations 3 --deadline 1ms --fault kill:rank=2:at_point=ep.dispatch.sent:nth=2 || true
same "lost ranks" "$(field lost_ranks)" "[2]"
same "wrong rows" "$(field wrong_rows)" 0

# The line and the record repeat it; another seed does not.
digest=$(field digest)
line=$(field replay)
run 0 replay --json "$line" || true
same "digest of the line" "$(field digest)" "$digest"
same "command" "$(field command)" replay
run 0 "${small[@]}" --faults random --seed 5 --iterations 2 --record "$scratch/record.json" || true
digest=$(field digest)
run 0 replay --json "$scratch/record.json" || true
same "digest of the record" "$(field digest)" "$digest"
run 1 ep --backend sim --json --ranks 2 --expect 0123456789abcdef || true
same "ok" "$(field ok)" False

# Output files and the readable answer.
run 0 ep --backend sim --ranks 2 --trace "$scratch/trace.json" --log "$scratch/log" || true
python3 -m json.tool "$scratch/trace.json" >/dev/null || failed=1
[[ -s $scratch/log ]] || failed=1
grep -q "^result  ok: " "$scratch/out" || failed=1
exit $failed
