#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Conformance with every peer over GIN: no load/store teams, NCCL with the transport of
# backends/cuda/gin_plugin below it, in one host without a network adapter; and once more with delays,
# which are legal. A rank has a GPU. On a machine with one GPU two ranks share it: as threads where NCCL
# allows that (2.30), else as processes that NCCL takes for hosts.
#
#   IST_GIN_TESTS   programs (device_gin ep_basic ep_exact ep_staged ep_handles ep_graphs)
#   IST_GIN_WAY     threads, or processes
#   IST_GIN_TEST_S  limit of one program (120)
set -u
build=${IST_BUILD_DIR:?}
plugin=$build/lib/libnccl-net-isthmus.so
tests=${IST_GIN_TESTS:-device_gin ep_basic ep_exact ep_staged ep_handles ep_graphs}
limit=${IST_GIN_TEST_S:-120}
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
[ "$gpus" -gt 0 ] || { echo "no GPU"; exit 77; }
[ -f "$plugin" ] || { echo "$plugin was not built"; exit 77; }
version=$("$build/bin/isthmus" info 2>/dev/null | sed -nE 's/^ *nccl +([0-9]+\.[0-9]+)\..*/\1/p' | head -n 1)
[ -n "$version" ] || { echo "no NCCL that can be used: see isthmus info"; exit 77; }
way=${IST_GIN_WAY:-$([ "$gpus" -gt 1 ] || [ "${version#2.}" -ge 30 ] && echo threads || echo processes)}
echo "NCCL $version, GPUs: $gpus, ranks as $way"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export IST_TEST_BACKEND=cuda IST_CUDA_LSA=1 NCCL_NET_PLUGIN=$plugin NCCL_RMA_PLUGIN=$plugin
export IST_TEST_RANKS=$((gpus > 1 ? gpus : 2))
[ "$gpus" -gt 1 ] || export IST_CUDA_SHARE=1 NCCL_MULTI_RANK_GPU_ENABLE=1

threads() {
    IST_LAUNCH=none timeout -k 5 "$limit" "$1" >"$work/log0" 2>&1
}

# The variables of a launcher, and a name of its own for each host.
processes() {
    local rank pids=() status=0
    unset IST_LAUNCH
    for ((rank = 0; rank < IST_TEST_RANKS; ++rank)); do
        OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_SIZE=$IST_TEST_RANKS PMIX_NAMESPACE=over_gin.$$ \
            NCCL_HOSTID=host$rank timeout -k 5 "$limit" "$1" >"$work/log$rank" 2>&1 &
        pids+=($!)
    done
    for rank in "${!pids[@]}"; do
        wait "${pids[rank]}" || status=$?
    done
    return $status
}

failed=0
for plan in "" "delay:one_in=5,seed=3,rounds=200"; do
    export ISTHMUS_GIN_FAULTS=$plan
    for name in $tests; do
        begin=$SECONDS
        if $way "$build/tests/conformance/test_$name"; then
            printf 'ok    %-20s %4d s  %s\n' "$name" $((SECONDS - begin)) "$plan"
        else
            printf 'FAIL  %-20s %4d s  %s\n' "$name" $((SECONDS - begin)) "$plan"
            tail -n 15 "$work"/log*
            failed=1
        fi
    done
done
exit $failed
