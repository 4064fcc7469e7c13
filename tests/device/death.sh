#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A process a GPU; one is killed between steps, or with its kernels in flight, or stopped and continued
# later. Prints the time from its death to the survivors' completed, marked output.
#
#   IST_DEATH_RANKS     processes (number of GPUs)
#   IST_DEATH_REPEATS   of each kind (2)
#   IST_DEATH_US        the deadline in microseconds (20000)
set -u
program=${IST_BUILD_DIR:?}/tests/device/test_peer_death
ranks=${IST_DEATH_RANKS:-$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')}
repeats=${IST_DEATH_REPEATS:-2}
deadline=${IST_DEATH_US:-20000}
command -v mpirun >/dev/null || { echo "mpirun is not here"; exit 77; }
[ "$ranks" -ge 2 ] || { echo "fewer than two GPUs"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export IST_TEST_BACKEND=${IST_TEST_BACKEND:-cuda} OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

failed=0
fail() {
    echo "FAILED: $*"
    tail -n 20 "$log"
    failed=1
}

# count PATTERN
count() {
    grep -c "$1" "$log"
}

# death HOW RANK ARGUMENT...
death() {
    local how=$1 rank=$2 survivors=$((ranks - 1))
    log=$work/log
    head -c 4096 /dev/zero >"$work/board"
    timeout -k 5 60 mpirun --enable-recovery -n "$ranks" "$program" "$work/board" "$@" \
        --deadline-us "$deadline" >"$log" 2>&1 </dev/null
    [ $? -lt 124 ] || fail "$*: hangs"
    grep -h -e ' missed ' "$log" | sed "s/^/$* /"
    [ "$(count ' missed ')" = $survivors ] || fail "$*: not every survivor missed it"
    if [ "$how" = stop ]; then
        [ "$(count ' evicted')" = 1 ] || fail "$*: it did not learn that it was out"
        [ "$(count ' re-admitted ')" = "$ranks" ] || fail "$*: not re-admitted"
        [ "$(count '^world status=IST_OK lost=0')" = "$ranks" ] || fail "$*: end of the world"
    else
        [ "$(count ' survived')" = $survivors ] || fail "$*: the survivors did not go on"
        [ "$(count '^world status=IST_OK lost=1')" = $survivors ] || fail "$*: end of the world"
    fi
}

for ((i = 0; i < repeats; ++i)); do
    for layout in 0 1; do
        for graph in 0 1; do
            for how in kill flight stop; do
                death $how $((i % ranks)) --layout $layout --graph $graph
            done
        done
    done
done
exit $failed
