#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Bad usage: exit status 2, nothing on standard output, and a first line on standard error that names
# the option and the value. Nothing is run.
set -euo pipefail

isthmus=${IST_BIN_DIR:?}/isthmus
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0
unset IST_BACKEND

# refused STATUS PATTERN ARGUMENT...
refused() {
    local expected=$1 pattern=$2 status=0
    shift 2
    "$isthmus" "$@" >"$scratch/out" 2>"$scratch/err" || status=$?
    if [[ $status != "$expected" ]] || [[ -s $scratch/out ]] ||
        ! head -n 1 "$scratch/err" | grep -qE -- "$pattern"; then
        echo "isthmus $*: exit status $status (expected $expected), pattern: $pattern"
        sed 's/^/    /' "$scratch/out" "$scratch/err"
        failed=1
    fi
}

refused 2 "command is missing"
refused 2 "unknown command 'nope'" nope
refused 2 "unknown option '--nope'" ep --nope
refused 2 "--ranks needs a value" ep --ranks
refused 2 "unexpected argument 'word'" ep word
refused 2 "--ranks: '0' is not a whole number from 1" ep --ranks 0
refused 2 "--ranks: '-4' is not" ep --ranks -4
refused 2 "--ranks: '4x' is not" ep --ranks 4x
refused 2 "--tokens: '99999999999999999999' is not" ep --tokens 99999999999999999999
refused 2 "--top-k: '33' is not a whole number from 1 to 32" ep --top-k 33
refused 2 "--top-k: 8 is more than the 4 experts" ep --top-k 8 --experts 4
refused 2 "--layout: 'flat' is not one of expert-major, rank-major" ep --layout flat
refused 2 "--dtype: 'int8' is not one of bf16, fp16, fp32" ep --dtype int8
refused 2 "--links: 'fast' is not one of in-order, max-min" ep --links fast
refused 2 "--deadline: '5' is not a time" ep --deadline 5
refused 2 "--deadline: '1h' is not a time" ep --deadline 1h
refused 2 "--nodes: 8 ranks do not spread evenly over 3" ep --ranks 8 --nodes 3
refused 2 "exclude each other" ep --nodes 2 --cluster 2x8
refused 2 "nodes=0: out of range" ep --backend sim --cluster nodes=0
refused 2 "--expect: 'xyz' is not a digest" ep --expect xyz
refused 2 "names the backend \"nope\"" ep --backend nope

refused 2 "--routing: the exponent of 'zipf:0.3'" ep --routing zipf:0.3
refused 2 "--routing: 'random' is not uniform" ep --routing random
refused 2 "--routing: cannot read '$scratch/none.csv'" ep --routing "$scratch/none.csv"
refused 2 "--routing: deepseek needs experts in 8 equal groups" ep --routing deepseek --experts 60
printf '0,1\n2\n' >"$scratch/ragged.csv"
refused 2 "--routing: line 2: 1 numbers, but the lines before have 2" ep --routing "$scratch/ragged.csv"
printf '0,1\n2,64\n' >"$scratch/high.csv"
refused 2 "--routing: row 1, column 1: 64 is not from -1 to 63" ep --ranks 2 --routing "$scratch/high.csv"
printf '0,1\n5,5\n' >"$scratch/twice.csv"
refused 2 "--routing: row 1, column 1: expert 5 is there twice" ep --ranks 2 --routing "$scratch/twice.csv"
printf '0,1\n2,3\n4,5\n' >"$scratch/three.csv"
refused 2 "--routing: 3 rows are neither the 2 tokens" ep --ranks 2 --tokens 2 --routing "$scratch/three.csv"
printf '\x93NUMPY\x03\x00' >"$scratch/three.npy"
refused 2 "--routing: not a .npy file of version 1 or 2" ep --routing "$scratch/three.npy"

refused 2 "--fault: 'kill:rank' is not KIND:KEY=VALUE" ep --fault kill:rank
refused 2 "--fault: .*\"at_op\" is missing" ep --fault kill:rank=3
refused 2 "--fault: .*\"melt\"" ep --fault melt:rank=3:at_op=1
refused 2 "faults\[0\].rank is 99" ep --backend sim --fault kill:rank=99:at_op=1
refused 2 "--faults: cannot read" ep --faults "$scratch/none.json"
refused 2 "--faults: " ep --faults '{"faults":[{]}'
refused 2 "--faults-random: needs --ranks" ep --cluster 2x8 --faults-random 3

refused 2 "what to measure is missing" bench
refused 2 "unknown measurement 'nope'" bench nope
refused 2 "bench ep: unknown option '--nope'" bench ep --nope
refused 2 "--begin: '0' is not a whole number from 1" bench ep -b 0
refused 2 "--end: 4 is less than --begin 8" bench ep -b 8 -e 4
refused 2 "--check: times are shown of what was checked" bench ep -c 0
refused 2 "--op: 'copy' is not one of route, dispatch, combine, pair" bench ep --op copy
refused 2 "--layout: 'flat' is not one of expert-major, rank-major" bench ep --layout flat
refused 2 "--csv and --json exclude each other" bench ep --csv --json
refused 2 "bench ep: --dtype: 'int8' is not one of" bench ep -d int8
refused 2 "measurements are more than 4096" bench ep -b 1 -e 65535 -f 1
refused 2 "--gap: 'long' is not a time" bench soak --gap long
refused 2 "--hidden: 12 is not a multiple of 8" bench soak --hidden 12
refused 2 "--begin: '10' is not a multiple of 16 bytes" probe -b 10
refused 2 "--end: 16384 bytes are less than" probe -b 1M -e 16K
refused 2 "--blocks: '8,1' is not" probe --blocks 8,1
refused 2 "names the backend \"nope\"" probe --backend nope

refused 2 "one FILE or LINE is needed" replay
refused 2 "neither a file nor a line" replay "$scratch/none"
echo '{"arguments":[]}' >"$scratch/half.json"
refused 2 "a record has" replay "$scratch/half.json"
refused 2 "open quote" replay "isthmus ep 'x"
refused 2 "unknown option '--nope'" info --nope
exit $failed
