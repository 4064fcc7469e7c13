#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The measuring commands on GPUs: what they check is right, and what they print is ordered; no figure is
# judged. With one GPU two ranks share it, each with few blocks, so that both have room.
#
# IST_DEVICE_SOAK_STEPS  steps of the soak (10000)
set -euo pipefail

isthmus=${IST_BIN_DIR:?}/isthmus
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0
steps=${IST_DEVICE_SOAK_STEPS:-10000}

gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true)
if [[ $gpus -eq 0 ]] || ! "$isthmus" info | grep -qE '^ *cuda +usable'; then
    echo "no GPU that can be used"
    exit 77
fi
export IST_BACKEND=cuda IST_LAUNCH=none
few=()
if [[ $gpus -lt 2 ]]; then
    export IST_CUDA_SHARE=1
    few=(--blocks 32)
fi

# good PYTHON-CONDITION ARGUMENT...: runs, shows and checks the JSON answer.
good() {
    local condition=$1 status=0
    shift
    timeout 120 "$isthmus" "$@" --json >"$scratch/out" 2>"$scratch/err" || status=$?
    if [[ $status != 0 ]]; then
        echo "isthmus $*: exit status $status"
        sed 's/^/    /' "$scratch/err"
        failed=1
        return
    fi
    if ! python3 -c "import json, sys; a = json.load(open(sys.argv[1])); sys.exit(0 if $condition else 1)" "$scratch/out"; then
        echo "isthmus $*: not $condition"
        cat "$scratch/out"
        failed=1
    fi
}

right='all(c["wrong_rows"] == 0 and c["checked_rows"] > 0 and all(t["host"]["min_us"] <= t["host"]["p99_us"] and t["run_us"] > 0 for t in c["times"]) for c in a["cases"]) and a["clock"] == "real"'
for way in "--windows" "" "--graph --windows" "--staged"; do
    # shellcheck disable=SC2086
    good "$right" bench ep -g 2 --layout em,rm -b 1 -e 128 -i 127 -n 20 "${few[@]}" $way
done
good 'len(a["cycles"]) == 3 and a["checked_rows"] > 0' bench setup -g 2 "${few[@]}" --windows
good 'all(t["run_us"] > 0 for t in a["times"])' bench coll -g 2 -c 20
if [[ $gpus -ge 2 ]]; then # NCCL wants a GPU for each rank
    good 'all(c["wrong"] == 0 and c["run_us"] > 0 for c in a["calls"]) and len(a["calls"]) > 16' \
        bench coll -g 2 -b 8 -e 16M -f 128 --calls all --estimate -n 20
    good 'all(c["wrong"] == 0 for c in a["calls"])' \
        bench coll -g 2 -b 1M --calls all_reduce,reduce_scatter -d bfloat16 -o avg --in-place -n 20
fi
blocks=$([[ $gpus -lt 2 ]] && echo 1,8,32 || echo 1,8,32,132)
good 'a["format"] == "isthmus-profile" and a["values"]["nvlink_latency_ps"]["value"] > 0 and a["curves"]["lsa_store"]["points"]' \
    probe -g 2 -e 16M --blocks "$blocks"
good "a[\"ok\"] and a[\"steps\"] == $steps and a[\"wrong_words\"] == 0" bench soak -g 2 -n "$steps" "${few[@]}" --windows
good 'a["ok"] and a["wrong_words"] == 0' bench soak -g 2 -n 500 "${few[@]}" --seed 7
exit $failed
