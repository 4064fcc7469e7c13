#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Goal: the readers of topologies take any bytes without a crash, a hang or lost memory.
# Method: libFuzzer under address and undefined-behaviour sanitizers, one target a reader, a fixed seed,
# from the fixtures of tests/topology. Runs briefly; `tests/fuzz/topo_readers.sh RUNS [READER...]` runs
# longer, without the address sanitizer when FUZZ_FAST is set, and keeps the corpus in FUZZ_DIR.
set -euo pipefail

here=$(cd "$(dirname "$0")/../.." && pwd)
runs=${1:-3000}
shift || true
readers=("$@")
[[ ${#readers[@]} -gt 0 ]] || readers=(nccl hwloc graphs json line synthetic profile points bench probe ask)
case ${IST_BUILD_DIR-} in
*/asan | */release | */clang | */cuda)
    echo "the targets are compiled by themselves: once, with the dev build, is enough"
    exit 77
    ;;
esac
if ! command -v clang >/dev/null || ! echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long s) { return d && s ? 0 : 0; }' |
    clang -x c -fsanitize=fuzzer - -o /dev/null 2>/dev/null; then
    echo "clang with libFuzzer is not here"
    exit 77
fi

work=${FUZZ_DIR:-$(mktemp -d)}
[[ ${FUZZ_DIR-} ]] || trap 'rm -rf "$work"' EXIT
mkdir -p "$work"
sanitizers=fuzzer,address,undefined
instrument=(-fsanitize=fuzzer-no-link,address,undefined)
options=()
if [[ ${FUZZ_FAST-} ]]; then
    # Counters alone: what compared values and rare features would guide costs two thirds of the time.
    sanitizers=fuzzer,undefined
    instrument=(-O2 -fsanitize=undefined -fsanitize-coverage=inline-8bit-counters,pc-table)
    options=(-entropic=0)
fi
read -ra libraries <<<"$(pkg-config --libs jansson hwloc expat)"

compiler=(clang)
! command -v ccache >/dev/null || compiler=(ccache clang)

# What is common to all targets is compiled once. Synthetic strings are kept to few objects: what
# takes long is hwloc's own.
flags=(-g -O1 -D_GNU_SOURCE -DSYNTHETIC_MAX=256 -fno-sanitize-recover=all -I "$here/topology"
    -I "$here/api/include" -I "$here/api/src" -I "$here/kernels")
objects=()
for source in "$here"/topology/*.c "$here"/api/src/ist_whatif_text.c \
    "$here"/tests/topology/fuzz/fuzz_support.c; do
    [[ $source != */cost_shipped.c ]] || continue # made from files that are not hostile
    object=$work/$(basename "$source" .c).o
    "${compiler[@]}" "${flags[@]}" "${instrument[@]}" -c "$source" -o "$object"
    objects+=("$object")
done

# From an archive a target takes what it needs: fewer counters to look at after each execution.
rm -f "$work/library.a"
ar rcs "$work/library.a" "${objects[@]}"

# Longest input, file and number of a target.
target() {
    case $1 in
    nccl) echo 3072 fuzz_reader 1 ;;
    hwloc) echo 4608 fuzz_reader 2 ;;
    graphs) echo 1024 fuzz_reader 3 ;;
    json) echo 2048 fuzz_reader 4 ;;
    line) echo 160 fuzz_reader 5 ;;
    synthetic) echo 128 fuzz_reader 6 ;;
    profile) echo 3072 fuzz_constants 1 ;;
    points) echo 1280 fuzz_constants 2 ;;
    bench) echo 1024 fuzz_constants 3 ;;
    probe) echo 3072 fuzz_constants 4 ;;
    ask) echo 128 fuzz_constants 5 ;;
    *) echo "no reader named $1" >&2 && return 2 ;;
    esac
}

seed_corpus() {
    local fixtures=$here/tests/topology/fixtures
    local constants=$here/tests/cost/fixtures
    case $1 in
    nccl) cp "$fixtures"/nccl_[^g]*.xml "$fixtures"/nccl_groups.xml "$2" ;;
    hwloc) cp "$fixtures"/hwloc*.xml "$2" ;;
    graphs) cp "$fixtures"/nccl_graphs.xml "$2" ;;
    json) cp "$fixtures"/*.json "$2" ;;
    line)
        cp "$fixtures"/*.txt "$2"
        printf '2x8,nvlink=4,nics=4,nic_rate=400Gb/s' >"$2/keys"
        printf '4x(h200:8 nvswitch nic:8x400G sockets:2) rails fat-tree:2:1 leaf:2' >"$2/words"
        ;;
    synthetic)
        printf 'pack:2 numa:2 core:4 pu:2' >"$2/words"
        printf '[numa] pack:2 [numa(memory=1GB)] l3:1 core:2 pu:1(indexes=3,1,2,0)' >"$2/attributes"
        ;;
    profile | probe) cp "$constants"/profile.json "$2" ;;
    points) cp "$constants"/points.csv "$2" ;;
    bench) cp "$constants"/bench.json "$2" ;;
    ask)
        printf 'allreduce,bytes=1GiB,algorithm=ring,stream=1,group=64' >"$2/op"
        printf 'ep_dispatch,tokens=128,row=14336,topk=8,experts=256,routing=spread' >"$2/expert"
        printf '3/4 nvlink 2:0' >"$2/link"
        printf 'ep over 2 domains' >"$2/domains"
        ;;
    esac
    # What once was a finding.
    local found=$here/tests/topology/fuzz/found file
    for file in "$found/$1"_*; do
        [[ ! -e $file ]] || cp "$file" "$2"
    done
}

for reader in "${readers[@]}"; do
    read -r length file kind <<<"$(target "$reader")"
    corpus=$work/corpus_$reader
    mkdir -p "$corpus"
    seed_corpus "$reader" "$corpus"
    "${compiler[@]}" "${flags[@]}" "${instrument[@]}" -DFUZZ_READER="$kind" \
        -c "$here/tests/topology/fuzz/$file.c" -o "$work/$reader.o"
    clang -fsanitize=$sanitizers "$work/$reader.o" "$work/library.a" -o "$work/fuzz_$reader" "${libraries[@]}" \
        -ldl -lm
    if ! (cd "$work" && "./fuzz_$reader" "$corpus" -runs="$runs" -seed=1 -max_len="${FUZZ_LENGTH:-$length}" \
        -timeout=60 -rss_limit_mb=2500 "${options[@]}" >"$work/$reader.log" 2>&1); then
        tail -n 40 "$work/$reader.log"
        exit 1
    fi
    printf '%-9s %s\n' "$reader" "$(tail -n 1 "$work/$reader.log")"
done
