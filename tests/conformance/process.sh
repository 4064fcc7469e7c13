#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# One process a rank, under mpirun: the run of one process, event for event; a process that is
# killed or leaves is a lost rank and the others finish; nothing is left behind.
set -euo pipefail

program=${IST_BUILD_DIR:?}/tests/conformance/test_process_ranks
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

command -v mpirun > /dev/null || { echo "mpirun is not here"; exit 77; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

failed=0
fail() {
    echo "FAILED: $*"
    failed=1
}

# ranks LOG ARGUMENT...: the program with a process for each rank.
ranks() {
    local log=$1
    shift
    timeout -k 5 120 mpirun --enable-recovery --oversubscribe -n 4 "$program" "$@" \
        > "$log" 2>&1 < /dev/null
}

# world LOG: the distinct lines that tell how the world ended.
world() {
    grep -h '^world ' "$1" | sort -u
}

# count LOG PATTERN
count() {
    grep -c "$2" "$1" || true
}

"$program" > "$work/one" 2>&1 || fail "the program fails in one process"
ranks "$work/four" || fail "the program fails in four processes"
[ "$(world "$work/one")" = "$(world "$work/four")" ] || fail "one and four processes differ"
[ "$(count "$work/four" '^world ')" = 4 ] || fail "not every process tells how the world ended"

for how in kill leave; do
    for rank in 0 2 3; do
        for step in 0 3; do
            log=$work/$how.$rank.$step
            ranks "$log" --end $how $rank $step || true
            again=$log.again
            ranks "$again" --end $how $rank $step || true
            [ "$(count "$log" '^finished ')" = 3 ] || fail "$how $rank at $step: survivors"
            [ "$(count "$log" '^world status=IST_OK lost=1 ')" = 3 ] ||
                fail "$how $rank at $step: end of the world"
            [ "$(world "$log")" = "$(world "$again")" ] || fail "$how $rank at $step: not repeated"
        done
    done
done

# Of this script: the program alone may be running beside it, as a test of its own.
if pgrep -f -- "$program --end" > /dev/null; then
    fail "processes are left"
fi
if [ $failed != 0 ]; then
    tail -n 20 "$work"/* || true
fi
exit $failed
