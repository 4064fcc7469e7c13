#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Goal: what exploring has found once in our own protocols stays mended. Method: the schedule and the faults of
# each, shrunk, run again by `isthmus explore --replay`; nothing is found any more.
set -euo pipefail

isthmus=${IST_BIN_DIR:?}/isthmus
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# case_is_clean SCENARIO NUMBERS SEED FAULTS [SCHEDULE]: nothing is found any more.
case_is_clean() {
    local schedule=${5:-'"scheduler":"replay","depth":0,"steps":0,"choices":[]'}
    printf '{"isthmus_case":1,"scenario":"%s","params":%s,"seed":"%s",%s,"finding":"none","status":"IST_OK","digest":"0",
"device_ops":0,"faults":{"faults":%s}}' "$1" "$2" "$3" "$schedule" "$4" >"$scratch/case.json"
    "$isthmus" explore --replay "$scratch/case.json" --out "$scratch" >"$scratch/case" || true
    grep -q "^$1, none, " "$scratch/case" || {
        cat "$scratch/case"
        exit 1
    }
}
# Rows crossed a dead link, behind which the notice waited that its reader is out.
case_is_clean ep-em-lsa '{"ranks":[3,2],"tokens":[1,1],"hidden":[4,4],"experts":[3,1],"topk":[1,1],"steps":[1,1]}' \
    0000000000000937 '[{"kind":"stall","rank":2,"at_op":34,"duration_ns":2682727},
{"kind":"link_down","rank":0,"at_ns":17221,"duration_ns":4000000}]'
case_is_clean ep-staged-lsa '{"ranks":[4,2],"tokens":[1,1],"hidden":[4,4],"experts":[1,1],"topk":[1,1],"steps":[2,1]}' \
    0000000000000b36 '[{"kind":"stall","rank":1,"at_op":215,"duration_ns":3097584},
{"kind":"link_down","rank":3,"at_ns":99282,"duration_ns":4000000}]'

# One block of a launch is held by a dead link. Block 0 decided apart, and the others, when they went on, wrote
# over what it had kept, before they knew; a rank that missed its own flag gave itself up, and agreed on masks
# without itself.
case_is_clean ep-blocks-lsa '{"ranks":[3,2],"tokens":[5,1],"hidden":[1024,4],"experts":[2,1],"topk":[2,1],"steps":[1,1]}' \
    0000000000000622 '[{"kind":"link_down","rank":0,"at_op":128,"duration_ns":3420227}]' \
    '"scheduler":"replay","depth":2,"steps":2172,"choices":[[570,2],[638,1],[639,1]]'
case_is_clean ep-em-lsa '{"ranks":[4,2],"tokens":[8,1],"hidden":[1024,4],"experts":[6,1],"topk":[2,1],"steps":[2,1]}' \
    00000000000000ee '[{"kind":"link_down","rank":1,"peer":2,"at_point":"ep.dispatch.sent","nth":3,"duration_ns":2818405}]' \
    '"scheduler":"pct","depth":2,"steps":2172,"choices":[]'
case_is_clean ep-reduced-blocks-lsa '{"ranks":[3,2],"tokens":[5,1],"hidden":[1024,4],"experts":[2,1],"topk":[2,1],"steps":[2,1]}' \
    0000000000000353 '[{"kind":"stall","rank":2,"at_ns":60971,"duration_ns":3311327},
{"kind":"link_down","rank":1,"peer":2,"at_op":219,"duration_ns":1993078}]'

# Beats of after a clean were equal to those of before it: a rank that lived and waited passed for silent.
case_is_clean ep-clean-lsa '{"ranks":[4,2],"tokens":[1,1],"hidden":[4,4],"experts":[1,1],"topk":[1,1],"steps":[2,1]}' \
    0000000000000e5b '[{"kind":"kill","rank":3,"at_op":217}]' \
    '"scheduler":"replay","depth":1,"steps":2041,"choices":[[184,4],[197,3],[217,2],[219,3],[274,1],[276,1],[288,1],[882,1],[891,1],[893,2],[912,1],[927,1],[935,2],[984,1],[1166,1],[1360,1],[1372,1],[1383,1],[1393,1],[1401,1],[1589,1],[1602,2],[1605,1],[1610,2],[1627,1],[1629,1],[1637,1],[1644,1],[1646,2]]'

# Notices were read word by word: a load may return an older word, and rows of who had been given up passed for good.
case_is_clean ep-blocks-lsa '{"ranks":[3,2],"tokens":[5,1],"hidden":[1024,4],"experts":[6,1],"topk":[2,1],"steps":[2,1]}' \
    000000000000001f '[{"kind":"stall","rank":0,"at_point":"ep.dispatch.decided","nth":2,"duration_ns":5557686}]' \
    '"scheduler":"pct","depth":3,"steps":1865,"choices":[]'
case_is_clean ep-clean-lsa '{"ranks":[4,2],"tokens":[4,1],"hidden":[16,4],"experts":[6,1],"topk":[2,1],"steps":[2,1]}' \
    0000000000000008 '[{"kind":"link_down","rank":2,"peer":1,"at_point":"ep.dispatch.decided","duration_ns":1076803}]' \
    '"scheduler":"random","depth":0,"steps":0,"choices":[]'
