#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Goal: `isthmus topo` answers, converts and compares, says what is wrong with a caret, and fits 80 columns.
# Method: runs it on fixtures and lines; conversions go there and back and must not differ.
set -euo pipefail

isthmus=${IST_BIN_DIR:?}/isthmus
fixtures=${IST_SOURCE_DIR:?}/tests/topology/fixtures
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

fail() {
    echo "$*"
    failed=1
}

# expect STATUS TEXT COMMAND...: exit status, and a text in what it prints
expect() {
    local wanted=$1 text=$2 status=0 out
    shift 2
    out=$("$isthmus" topo "$@" 2>&1) || status=$?
    [[ $status == "$wanted" ]] || fail "topo $*: exit status $status, not $wanted: $out"
    [[ $out == *"$text"* ]] || fail "topo $*: does not say '$text': $out"
    if [[ $wanted == 0 && ${1-} != convert && $* != *--json* ]] && grep -vE "$work|fixtures" <<<"$out" | grep -qE '^.{81}'; then
        fail "topo $*: more than 80 columns"
    fi
}

expect 0 'usage: isthmus topo' --help
expect 2 'is missing'
expect 2 'none of show' frobnicate
expect 2 'unknown option' show --frobnicate
expect 2 'a value is missing' show --svg
expect 2 '--to has to be' convert 2x8 --to gif
expect 2 'diff takes two' diff 2x8
expect 0 'not known' show
expect 0 'LSA 8 (8 teams), NVLink domains 8, rails 8' show '8x(h200:8 nvswitch nic:8x400G) rails fat-tree:2:1'
expect 0 'way       load/store (LSA), teams of 8' explain 2x8 0 7
expect 0 'way       GPU-initiated network (GIN)' explain 2x8 0 8
expect 0 'way       GPU-initiated network (GIN)' explain 0 8 --topo 2x8
expect 0 'way       copies by the hosts' explain 2x8 0 8 --no-gin
expect 0 'because   peer access over PCIe' explain '(l40s:4 nic:0)' 0 1 --peer-access PHB
expect 0 '4 load/store teams of 4' explain 2x8 --lsa-max 4
expect 0 'pattern   flags inside each team' explain 2x8 --op barrier
expect 1 'is not known, one of barrier' explain 2x8 --op nothing
expect 1 'the topology has 16' explain 2x8 0 16
expect 1 'there is nothing in it' check ''
expect 1 'No such file' check /nowhere/a.xml
expect 0 'ok  ' check "$fixtures"/*.xml "$fixtures"/*.json "$fixtures"/*.txt
expect 0 'load/store team: 8, predicted 8' check 2x8 --backend sim
expect 0 '3 GPUs' check --group box_b "$fixtures/nccl_groups.xml"
expect 1 '- GPU 0 to GPU 1: NVL' diff "$fixtures/nccl_two_sockets.xml" "$fixtures/nccl_mesh.xml"
expect 0 '16 GPUs' check --machines 2 '100000x(h200:8 nic:8x400G)'

# A caret below the place.
out=$("$isthmus" topo show '8x(h200:8 nic:8x400Q)' 2>&1 || true)
[[ $out == *$'\n  8x(h200:8 nic:8x400Q)\n            ^'* ]] || fail "no caret: $out"

# There and back in both forms; what a program notices stays.
for source in "$fixtures"/*.xml "$fixtures"/*.json "$fixtures"/*.txt; do
    for form in json nccl; do
        "$isthmus" topo convert "$source" --to $form -o "$work/$form"
        if [[ $form == json ]]; then
            "$isthmus" topo diff "$source" "$work/$form" || fail "$source changed on its way through $form"
        else
            "$isthmus" topo convert "$work/$form" --to $form -o "$work/again"
            "$isthmus" topo diff "$work/$form" "$work/again" || fail "$source changed on its second way"
        fi
    done
done
cmp <("$isthmus" topo show --json 2x8) <("$isthmus" topo convert 2x8 --to json) || fail "two ways to JSON differ"
exit $failed
