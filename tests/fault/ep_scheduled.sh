#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Fault programs in other schedules than the fair one: links that are down for a while, stalls, kills.
set -u
programs=${IST_BUILD_DIR:?}/tests/fault
failed=0

run() { # SCHEDULER PROGRAM ARGUMENT...
    local scheduler=$1 program=$2 output
    shift 2
    if ! output=$(IST_TEST_LOG=1 IST_LOG=error IST_SIM_SCHEDULER=$scheduler "$programs/$program" "$@" 2>&1); then
        echo "IST_SIM_SCHEDULER=$scheduler $program $*"
        tail -n 40 <<<"$output"
        failed=1
    fi
}

for scheduler in random pct:3; do
    run "$scheduler" test_ep_random_faults --seed 3 --cases 40
    run "$scheduler" test_ep_stall --seed 3 --every 160
    run "$scheduler" test_ep_kill --seed 3 --every 160
    run "$scheduler" test_ep_network --seed 3 --every 160
done
exit $failed
