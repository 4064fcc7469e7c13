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
set -u
way=$1
program=$2
export LD_LIBRARY_PATH="$IST_FAKE_CUDA_DIR${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export IST_LOG=none

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
    output=$(timeout 250 "$program" starve 2>&1) || { echo "$output"; exit 1; }
    echo "$output"
    clean "$output"
    ;;
*)
    echo "unknown way: $way"
    exit 2
    ;;
esac
