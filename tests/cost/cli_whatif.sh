#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# `isthmus whatif` and `isthmus fit`: text that fits 80 columns, stable JSON, CSV of sweeps, curves
# that a rasteriser draws, profiles from one to the other, and bad usage.
set -euo pipefail

isthmus=${IST_BIN_DIR:?}/isthmus
source_dir=${IST_SOURCE_DIR:?}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0

fail() {
    echo "$*"
    failed=1
}

# refused STATUS PATTERN ARGUMENT...
refused() {
    local expected=$1 pattern=$2 status=0
    shift 2
    "$isthmus" "$@" >"$scratch/out" 2>"$scratch/err" || status=$?
    if [[ $status != "$expected" ]] || [[ -s $scratch/out ]] ||
        ! head -n 1 "$scratch/err" | grep -qE -- "$pattern"; then
        fail "isthmus $*: exit status $status (expected $expected), pattern: $pattern"
        cat "$scratch/out" "$scratch/err"
    fi
}

refused 2 "an operation is missing" whatif
refused 2 "key is \"color\"" whatif --op allreduce,color=red
refused 2 "place is \"x\"" whatif --op barrier --edit "drop nic x"
refused 2 "--svg and --csv need --sweep" whatif --op barrier --svg x.svg
refused 2 "--sweep is 'bytes=5'" whatif --op barrier --sweep bytes=5
refused 1 "No such file" whatif --op barrier --profile "$scratch/absent"
refused 1 "gpus" whatif --op barrier --cluster "gpus=zero"
refused 1 "no NICs" whatif --cluster 2x8,nics=0 --op allreduce,bytes=1MiB
refused 2 "table of timings is missing" fit
refused 2 "exclude each other" fit x --cross-validate --test y

# Text: 80 columns; names the bottleneck, the idle links and the comparison.
"$isthmus" whatif --cluster 4x8 --op ep_dispatch,tokens=128,row=14336,algorithm=ll \
    --op ep_combine,tokens=128,row=14336,algorithm=ht --op allreduce,bytes=1MiB,group=8,stream=1 \
    --edit 'drop nic 2:5' --edit 'twice nodes; half fabric' --edit 'ep over 2 domains' \
    >"$scratch/text"
! grep -qE '^.{81}' "$scratch/text" || fail "the text is wider than 80 columns"
for part in "<- bottleneck" "idle: " "as described" "drop nic 2:5" "twice nodes; half fabric"; do
    grep -qF -- "$part" "$scratch/text" || fail "the text lacks: $part"
done

# JSON: the same twice, and without a GPU or a world.
"$isthmus" whatif --cluster 64x8 --op allreduce,bytes=1GiB --json >"$scratch/one"
"$isthmus" whatif --cluster 64x8 --op allreduce,bytes=1GiB --json >"$scratch/two"
cmp "$scratch/one" "$scratch/two" || fail "two answers differ"
grep -q '"bottleneck":"nic_out"' "$scratch/one" || fail "the JSON names no bottleneck"

"$isthmus" whatif --cluster 4x8 --op barrier --edit 'half nic all' --edit 'twice nodes' --json |
    grep -q '^{"scenes":\[{"edit":"","estimate":{.*"edit":"twice nodes"' || fail "the JSON lacks scenes"

# Sweeps: as many lines as steps and scenes; times grow with the size.
"$isthmus" whatif --cluster 8x8 --op alltoall,bytes=1 --edit 'half nic all' --sweep bytes=1KiB:1GiB \
    --csv "$scratch/sweep.csv" --svg "$scratch/sweep.svg"
[[ $(wc -l <"$scratch/sweep.csv") == 43 ]] || fail "the CSV has $(wc -l <"$scratch/sweep.csv") lines"
awk -F, 'NR > 1 && $2 == "" { if ($4 + 0 < last) exit 1; last = $4 + 0 }' "$scratch/sweep.csv" ||
    fail "a larger buffer takes less time"
"$isthmus" whatif --cluster 1x8 --op ep_dispatch,tokens=128,row=14336,algorithm=ll --sweep ep=8:2048 |
    awk -F, 'END { exit $3 != 2048 }' || fail "the sweep over EP does not end at 2048 ranks"
"$isthmus" whatif --cluster 2x8 --op allreduce,bytes=1GiB --sweep nodes=1:64 |
    awk -F, 'END { exit $3 != 512 }' || fail "the sweep over nodes does not end at 512 ranks"

# The picture: a rasteriser draws it, and both curves are there in their colours.
if command -v rsvg-convert >/dev/null; then
    rsvg-convert -f png -o "$scratch/sweep.png" "$scratch/sweep.svg"
    if command -v python3 >/dev/null; then
        python3 - "$scratch/sweep.png" <<'PYTHON' || fail "the picture lacks a curve"
import struct, sys, zlib

data = open(sys.argv[1], "rb").read()
at, packed = 8, b""
while at < len(data):
    length, kind = struct.unpack(">I4s", data[at:at + 8])
    body = data[at + 8:at + 8 + length]
    if kind == b"IHDR":
        width, height, depth, colour = struct.unpack(">IIBB", body[:10])
    if kind == b"IDAT":
        packed += body
    at += 12 + length
size = {2: 3, 6: 4}[colour]
raw, stride, previous, count = zlib.decompress(packed), width * size, None, {}
columns = {}
for y in range(height):
    kind, line = raw[y * (stride + 1)], bytearray(raw[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
    for x in range(stride):
        left = line[x - size] if x >= size else 0
        up = previous[x] if previous else 0
        corner = previous[x - size] if previous and x >= size else 0
        if kind == 1:
            line[x] = line[x] + left & 255
        elif kind == 2:
            line[x] = line[x] + up & 255
        elif kind == 3:
            line[x] = line[x] + (left + up) // 2 & 255
        elif kind == 4:
            guess = left + up - corner
            near = min((abs(guess - v), i, v) for i, v in enumerate((left, up, corner)))[2]
            line[x] = line[x] + near & 255
    previous = line
    for x in range(width):
        pixel = tuple(line[x * size:x * size + 3])
        columns.setdefault(pixel, set()).add(x)
for wanted in ((0x1F, 0x77, 0xB4), (0xD6, 0x27, 0x28)):
    # A curve goes over most of the width.
    assert len(columns.get(wanted, ())) > width // 2, wanted
assert len(columns[(255, 255, 255)]) == width
PYTHON
    fi
else
    echo "no rsvg-convert: the picture was not looked at"
fi

# A profile from a probe, and from a table, is what whatif takes.
"$isthmus" fit "$source_dir/topology/profiles/h200.json" -o "$scratch/h200.json"
"$isthmus" whatif --cluster 1x2 --profile "$scratch/h200.json" --op sendrecv,bytes=256MiB >"$scratch/text"
grep -q "constants calibrated" "$scratch/text" || fail "a fitted profile does not calibrate"

# Profiles by name; an unknown one is told those there are. A profile as the simulator's cluster.
"$isthmus" whatif --profiles | grep -qx h200 || fail "h200 is not among the profiles"
if "$isthmus" whatif --profile h201 --op barrier 2>"$scratch/text"; then
    fail "a profile that is not there is taken"
fi
grep -q '"h201", those shipped are: h200' "$scratch/text" || fail "known profiles are not named"
line=$("$isthmus" whatif --profile h200 --cluster 2x4 --line)
[[ $line == nodes=2,gpus=4,* && $line == *,launch=4228930ps,* ]] || fail "no line of the profile: $line"
"$isthmus" whatif --profile h200 --cluster 1x2 --op allreduce,bytes=64MiB --op copy,bytes=64MiB --json >"$scratch/text"
grep -q '"algorithm":"ring".*"confidence":"calibrated"' "$scratch/text" || fail "what was measured is not used"

# The CSV of a bench of collectives: every other size predicts those between.
{
    echo "call,backend,library,ranks,bytes,count,type,redop,in_place,graph,run_us,wrong"
    for ((bytes = 1024; bytes <= 1 << 28; bytes *= 2)); do
        echo "all_reduce,cuda,made,2,$bytes,$((bytes / 4)),float,sum,0,0,$((10 + bytes / 300000)).5,0"
        echo "all_gather,cuda,made,2,$bytes,$((bytes / 8)),float,sum,0,0,$((7 + bytes / 500000)).5,0"
        echo "scan,cuda,made,2,$bytes,$((bytes / 8)),float,sum,0,0,1.5,0"
    done
} >"$scratch/coll.csv"
"$isthmus" fit "$scratch/coll.csv" --halves --max-median 10 >"$scratch/text" || fail "$(cat "$scratch/text")"
grep -q '57 points, 38 used' "$scratch/text" || fail "other points were used: $(cat "$scratch/text")"
if "$isthmus" fit "$scratch/coll.csv" --halves --cross-validate 2>/dev/null; then
    fail "two ways of scoring at once"
fi
{
    echo "backend,clock,ranks,layout,tokens,hidden,dtype,top_k,experts,op,windows,staged,graph,run_us"
    for tokens in 1 2 4 8 16 32 64 128; do
        echo "cuda,real,2,em,$tokens,7168,bf16,8,256,dispatch,1,0,0,$((20 + tokens / 16)).25"
        echo "cuda,real,2,em,$tokens,7168,bf16,8,256,combine,1,0,0,$((20 + tokens / 4)).25"
        echo "cuda,real,2,em,$tokens,7168,bf16,8,256,pair,1,0,0,$((40 + tokens / 3)).25"
    done
} >"$scratch/ep.csv"
"$isthmus" fit "$scratch/ep.csv" --halves --max-median 10 >"$scratch/text" || fail "$(cat "$scratch/text")"
grep -q '24 points, 16 used' "$scratch/text" || fail "other points were used: $(cat "$scratch/text")"

# Half of the sizes of a bench in the simulator predict the other half: virtual time and estimate.
"$isthmus" bench ep --backend sim --cluster 1x2 -b 1 -e 64 -f 4 --hidden 1024 --experts 16 -n 5 \
    -J "$scratch/bench.json" >/dev/null
"$isthmus" bench ep --backend sim --cluster 1x2 -b 2 -e 32 -f 4 --hidden 1024 --experts 16 -n 5 \
    -J "$scratch/other.json" >/dev/null
"$isthmus" fit "$scratch/bench.json" --test "$scratch/other.json" --max-median 10 >"$scratch/text" ||
    fail "the bench is not predicted: $(cat "$scratch/text")"
"$isthmus" fit "$scratch/bench.json" -o "$scratch/bench-profile.json"
"$isthmus" whatif --cluster 1x2 --profile "$scratch/bench-profile.json" --json \
    --op ep_dispatch,tokens=16,row=2048,experts=16 |
    grep -q '"confidence":"calibrated"' || fail "a fitted bench does not calibrate"

{
    echo "id,hardware,n_gpus,gpus_per_node,lsa_domain_size,n_nodes,op,bytes,metric,value"
    for bytes in 1000 10000 100000 1000000 10000000 100000000; do
        for nodes in 1 2 4; do
            echo "t/a-n$nodes/$bytes,H100,$((nodes * 8)),8,8,$nodes,alltoall,$bytes,time_us,$((20 + bytes / (nodes * 10000)))"
        done
    done
} >"$scratch/points.csv"
"$isthmus" fit "$scratch/points.csv" --name made -o "$scratch/made.json"
"$isthmus" whatif --cluster 2x8 --profile "$scratch/made.json" --op alltoall,bytes=1MiB --json |
    grep -q '"confidence":"calibrated"' || fail "the fitted table does not calibrate"
"$isthmus" fit "$scratch/points.csv" --cross-validate --series | grep -q '^t/a-n2,world,6,' ||
    fail "no series line"
"$isthmus" fit "$scratch/points.csv" --test "$scratch/points.csv" >"$scratch/text"
grep -q "^all" "$scratch/text" || fail "no summary"
if "$isthmus" fit "$scratch/points.csv" --cross-validate --max-median 1 >"$scratch/text" 2>&1; then
    fail "errors above the limit, and exit status 0"
fi

exit $failed
