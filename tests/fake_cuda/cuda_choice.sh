#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Which way two ranks on GPUs take, and why: the topology, what the driver maps, what NCCL answers, and
# what is asked for, one by one; and ranks that would not agree. Over the driver without GPU.
set -u
isthmus=${IST_BIN_DIR:?}/isthmus
fake=${IST_FAKE_CUDA_DIR:?}
export IST_LOG=warn IST_LAUNCH=none OMPI_MCA_rmaps_base_oversubscribe=1
export LD_LIBRARY_PATH="$fake:$fake/nccl"
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
cd / # programs of a build tree look for libraries in the current folder, too

. "$here/two_gpus.bash"
machine "$link" >"$work/nvlink.json"
machine '' >"$work/pcie.json"

has() { # NAME OUTPUT TEXT...: the output, its lines joined, has every text
    local name=$1 output text
    output=$(tr -s ' \n' '  ' <<<"$2")
    shift 2
    for text in "$@"; do
        grep -qF -- "$text" <<<"$output" || {
            printf 'FAILED: %s: no "%s" in:\n%s\n' "$name" "$text" "$output"
            failed=1
        }
    done
}

# choose NAME FILE "VARIABLE=VALUE..." "ARGUMENT..." TEXT...: what a communicator on FILE explains
choose() {
    local name=$1 file=$work/$2.json output
    # shellcheck disable=SC2086 # words
    output=$(env $3 IST_TOPOLOGY="$file" timeout 60 "$isthmus" topo explain "$file" $4 \
        --backend cuda 2>&1)
    [ $? -le 1 ] || { echo "FAILED: $name: ended badly"; failed=1; }
    shift 4
    has "$name" "$output" "$@"
}

proxy="FAKE_NCCL_WORKS=1 FAKE_NCCL_GIN=2,1"
choose "NVLink" nvlink "A=1" "0 1" "path NVL" "NV18" "way load/store (LSA), teams of 2" \
    "because both are in one NVLink domain" "better nothing: no way is better"
choose "all ranks" nvlink "A=1" "" "1 load/store teams of 2" "1 by load/store (LSA)" \
    "GIN not available: all ranks are in one load/store team"
choose "an operation" nvlink "A=1" "--op ep.dispatch" "1 by load/store (LSA)"
choose "no NVLink" pcie "A=1" "0 1" "way load/store (LSA), teams of 2" \
    "because the driver maps memory over PCIe, which IST_PEER_ACCESS allows"
choose "no topology" nvlink "IST_TOPOLOGY=off" "0 1" "way load/store (LSA), teams of 2"

# No peer access: GIN, or the hosts and a warning.
choose "no peers, GIN" nvlink "FAKE_CUDA_NO_PEERS=1 $proxy" "0 1" \
    "way GPU-initiated network (GIN), proxy" \
    "better the driver does not allow one to read and write the other's memory" \
    "communicator and topology differ: 2 ranks in load/store teams of 1, GIN yes"
choose "no peers, no GIN" nvlink "FAKE_CUDA_NO_PEERS=1" "0 1" "way copies by the hosts" \
    "no GPU-initiated network: rank 0 cannot use NCCL" \
    "2 load/store teams of 1, and kernels have no way between them: rank 0 cannot use NCCL"

# Overrides.
choose "NVLink only" pcie "IST_PEER_ACCESS=NVL FAKE_NCCL_WORKS=1 FAKE_NCCL_GIN=3,1" "0 1" \
    "way GPU-initiated network (GIN), GDAKI" \
    "better NVLink does not join them; the driver allows peer access over PCIe, which is not asked for"
choose "NVLink only, and there is" nvlink "IST_PEER_ACCESS=NVL" "0 1" "way load/store (LSA), teams of 2"
choose "small teams" nvlink "$proxy" "0 1 --lsa-max 1" "way GPU-initiated network (GIN), proxy" \
    "better load/store would reach, but they are in two teams" "override NCCL_GIN_TYPE"
choose "small teams of all" nvlink "IST_CUDA_LSA=1 $proxy" "0 1" "way GPU-initiated network (GIN)"
choose "GIN off" nvlink "NCCL_GIN_ENABLE=0 $proxy" "0 1 --lsa-max 1" "way copies by the hosts" \
    "no GPU-initiated network: GIN is switched off" "GIN is switched off (NCCL_GIN_ENABLE=0)"
choose "no such path" nvlink "IST_PEER_ACCESS=NVX" "0 1" \
    "IST_PEER_ACCESS is 'NVX', one of NVL, C2C, PIX, PXB, PHB, NODE, SYS is required"
choose "NCCL's teams" nvlink "FAKE_CUDA_NO_PEERS=1 FAKE_NCCL_WORKS=1 FAKE_NCCL_GIN=2,2" "0 1" \
    "load/store teams have 1 ranks, NCCL's 2"

# differ NAME TEXT VARIABLE=VALUE VARIABLE=VALUE: ranks 0 and 1 with a setting each; both say TEXT
differ() {
    local output
    output=$(IST_LAUNCH=mpi IST_LOG=error timeout 60 mpirun --enable-recovery \
        -n 1 env "$3" "$isthmus" topo explain "$work/pcie.json" 0 1 --backend cuda : \
        -n 1 env "$4" "$isthmus" topo explain "$work/pcie.json" 0 1 --backend cuda 2>&1)
    [ "$(grep -cF -- "error: rank 0: comm.open: $2" <<<"$output")" -eq 1 ] &&
        [ "$(grep -cF -- "error: rank 1: comm.open: $2" <<<"$output")" -eq 1 ] || {
        printf 'FAILED: %s: not said by both ranks: %s\n%s\n' "$1" "$2" "$output"
        failed=1
    }
}
if command -v mpirun >/dev/null; then
    export IST_TOPOLOGY=$work/pcie.json
    differ "teams" "ranks 0 and 1 choose different ways: load/store teams of 2 (at most 0, PCIe up to SYS, \
GIN on, by two GPUs) and of 1 (at most 0, PCIe up to NVL, GIN on, by two GPUs)" A=1 IST_PEER_ACCESS=NVL
    differ "GIN off" "ranks 0 and 1 choose different ways: load/store teams of 2 (at most 0, PCIe up to SYS, \
GIN off" NCCL_GIN_ENABLE=0 A=1
    export FAKE_CUDA_NO_PEERS=1 FAKE_NCCL_WORKS=1
    differ "kinds of GIN" "rank 0 has GIN of kind 2 and NCCL teams of 1, rank 1 of kind 3 and teams of 1" \
        FAKE_NCCL_GIN=2,1 FAKE_NCCL_GIN=3,1
else
    echo "mpirun is not here: ranks that differ are not tested"
fi
exit $failed
