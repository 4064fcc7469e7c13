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
[[ ${#readers[@]} -gt 0 ]] || readers=(nccl hwloc graphs json line)
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
[[ ! ${FUZZ_FAST-} ]] || sanitizers=fuzzer,undefined
read -ra libraries <<<"$(pkg-config --libs jansson hwloc expat)"

compiler=(clang)
! command -v ccache >/dev/null || compiler=(ccache clang)

# What is common to all targets is compiled once.
objects=()
for source in "$here"/topology/topo_*.c "$here"/tests/topology/fuzz/fuzz_support.c; do
    object=$work/$(basename "$source" .c).o
    "${compiler[@]}" -g -O1 -D_GNU_SOURCE -fsanitize=${sanitizers/fuzzer/fuzzer-no-link} -fno-sanitize-recover=all \
        -I "$here/topology" -I "$here/api/include" -c "$source" -o "$object"
    objects+=("$object")
done

number() {
    case $1 in
    nccl) echo 1 ;;
    hwloc) echo 2 ;;
    graphs) echo 3 ;;
    json) echo 4 ;;
    line) echo 5 ;;
    *) echo "no reader named $1" >&2 && return 2 ;;
    esac
}

seed_corpus() {
    local fixtures=$here/tests/topology/fixtures
    case $1 in
    nccl) cp "$fixtures"/nccl_[^g]*.xml "$fixtures"/nccl_groups.xml "$2" ;;
    hwloc) cp "$fixtures"/hwloc*.xml "$2" ;;
    graphs) cp "$fixtures"/nccl_graphs.xml "$2" ;;
    json) cp "$fixtures"/*.json "$2" ;;
    line)
        cp "$fixtures"/*.txt "$2"
        printf 'pack:2 numa:2 core:4 pu:2' >"$2/synthetic"
        printf '2x8,nvlink=4,nics=4,nic_rate=400Gb/s' >"$2/keys"
        ;;
    esac
}

for reader in "${readers[@]}"; do
    kind=$(number "$reader")
    corpus=$work/corpus_$reader
    mkdir -p "$corpus"
    seed_corpus "$reader" "$corpus"
    clang -g -O1 -D_GNU_SOURCE -DFUZZ_READER="$kind" -fsanitize=$sanitizers -fno-sanitize-recover=all \
        -I "$here/topology" -I "$here/api/include" "$here/tests/topology/fuzz/fuzz_reader.c" \
        "${objects[@]}" -o "$work/fuzz_$reader" "${libraries[@]}" -ldl
    if ! (cd "$work" && "./fuzz_$reader" "$corpus" -runs="$runs" -seed=1 -max_len=4096 -timeout=60 \
        -rss_limit_mb=2500 >"$work/$reader.log" 2>&1); then
        tail -n 40 "$work/$reader.log"
        exit 1
    fi
    printf '%-7s %s\n' "$reader" "$(tail -n 1 "$work/$reader.log")"
done
