#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs test_cuda_host against the driver without GPU. usage: cuda_host.sh WAY PROGRAM
#   threads    two ranks in one process
#   plain      the same where the driver refuses dependent launches
#   processes  four ranks as processes
#   death      the last of three processes is killed; the others must end within the deadline
#   faults     the Nth call that makes something fails, for N = 1, 2, … until none is hit: every run
#              must end with an answer and leave nothing open
#   starve     the same for allocations of host memory
#   topology   teams are held against a topology when the first communicator opens
set -u
way=$1
program=$2
export LD_LIBRARY_PATH="$IST_FAKE_CUDA_DIR${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export IST_LOG=none
export IST_TOPOLOGY=off

needs_mpirun() {
    if ! command -v mpirun >/dev/null; then
        echo "mpirun is not installed"
        exit 77
    fi
}

clean() { # output: nothing of it may speak of a leak or a failed check
    if grep -q -e 'left open' -e 'cuda_host\.c' <<<"$1"; then
        echo "$1"
        return 1
    fi
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. "$(dirname "$0")/two_gpus.bash"
machine "$link" >"$work/joined.json"

case $way in
threads | plain)
    [ "$way" = threads ] || export FAKE_CUDA_NO_DEPENDENT=1
    output=$(timeout 60 "$program" 2>&1) || { echo "$output"; exit 1; }
    clean "$output"
    ;;
processes)
    needs_mpirun
    export FAKE_CUDA_DEVICES=4
    output=$(timeout 60 mpirun -n 4 "$program" 2>&1) || { echo "$output"; exit 1; }
    clean "$output"
    ;;
death)
    needs_mpirun
    export FAKE_CUDA_DEVICES=3
    output=$(timeout 60 mpirun --enable-recovery -n 3 "$program" die 2>&1)
    [ $? -ne 124 ] && clean "$output"
    ;;
faults)
    for ((n = 1; n < 1000; ++n)); do
        output=$(FAKE_CUDA_FAIL=$n timeout 30 "$program" 2>&1)
        if [ $? -gt 1 ] || ! clean "$output"; then
            echo "failing call $n: $output"
            exit 1
        fi
        grep -q 'not reached' <<<"$output" && break
    done
    echo "$((n - 1)) calls failed, one by one"
    [ "$n" -gt 50 ] && [ "$n" -lt 1000 ]
    ;;
starve)
    for topology in off "$work/joined.json"; do
        output=$(IST_TOPOLOGY=$topology timeout 120 "$program" starve 2>&1) || { echo "$output"; exit 1; }
        echo "$output"
        clean "$output" || exit 1
    done
    ;;
topology)
    machine '' >"$work/pcie.json"
    machine '' ', "p2p": ""' ', "p2p": ""' >"$work/refused.json"
    export IST_LOG=warn
    worlds=2 # that the program opens; each compares once
    warnings() { # file; how many lines say $2
        local output count
        output=$(IST_TOPOLOGY=$1 timeout 60 "$program" 2>&1) || [ "${FAKE_CUDA_NO_PEERS-}" ] ||
            { echo "$output"; exit 1; }
        count=$(grep -c -- "$2" <<<"$output")
        [ "$count" -eq "$3" ] || { echo "$1: $count times \"$2\" in: $output"; exit 1; }
    }
    warnings "$work/joined.json" topology 0
    warnings "$work/pcie.json" topology 0 # the driver maps peers over PCIe, too
    warnings "$work/refused.json" 'load/store teams of 2, GIN no .*teams of 1, GIN no' "$worlds"
    export FAKE_CUDA_NO_PEERS=1 # and no network: the program ends at its first barrier
    worlds=1
    warnings "$work/joined.json" 'predicted load/store (LSA)' "$worlds"
    warnings off topology 0
    warnings 1x2 'not compared with the topology: cluster 1x2 has 2 GPUs, rank 0 is on GPU-01' "$worlds"
    ;;
*)
    echo "unknown way: $way"
    exit 2
    ;;
esac
