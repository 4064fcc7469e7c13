#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What is missing or does not fit is told, in words, on every rank, and nobody waits for anybody: no
# driver, an old one, no or too few GPUs, GPUs that do not reach each other, a rank whose device cannot
# be opened, NCCL that is too old, too new or incomplete. Over the driver without GPU.
set -u
isthmus=${IST_BIN_DIR:?}/isthmus
fake=${IST_FAKE_CUDA_DIR:?}
export IST_LOG=error IST_LAUNCH=none OMPI_MCA_rmaps_base_oversubscribe=1
failed=0
cd / # programs of a build tree look for libraries in the current folder, too

# expect NAME TEXT STATUS OUTPUT: the output has the text, the status is not 124 (time) or beyond
expect() {
    if ! grep -qF -- "$2" <<<"$4" || [ "$3" -ge 124 ]; then
        printf 'FAILED: %s: status %s, expected "%s" in:\n%s\n' "$1" "$3" "$2" "$4"
        failed=1
    fi
}

# info NAME TEXT VARIABLE=VALUE...: what `isthmus info` says
info() {
    local name=$1 text=$2 output
    shift 2
    output=$(env LD_LIBRARY_PATH="$libraries" "$@" timeout 30 "$isthmus" info 2>&1)
    expect "$name" "$text" $? "$output"
}

# ep NAME TEXT RANKS VARIABLE=VALUE...: what a run says; it must fail
ep() {
    local name=$1 text=$2 ranks=$3 output status
    shift 3
    output=$(env LD_LIBRARY_PATH="$libraries" "$@" timeout 60 "$isthmus" ep --backend cuda \
        --ranks "$ranks" --tokens 4 --hidden 64 --experts 8 --top-k 2 2>&1)
    status=$?
    expect "$name" "$text" $status "$output"
    [ $status -ne 0 ] || { echo "FAILED: $name: a run that cannot work succeeds"; failed=1; }
}

# coll NAME TEXT VARIABLE=VALUE...: what native collectives say; they must fail
coll() {
    local name=$1 text=$2 output status
    shift 2
    output=$(env LD_LIBRARY_PATH="$libraries" "$@" timeout 60 "$isthmus" bench coll --backend cuda \
        -g 2 -b 8 -n 1 -w 0 2>&1)
    status=$?
    expect "$name" "$text" $status "$output"
    [ $status -ne 0 ] || { echo "FAILED: $name: a call that cannot work succeeds"; failed=1; }
}

# job NAME TEXT COUNT ARGUMENT...: what COUNT processes say, each of them
job() {
    local name=$1 text=$2 count=$3 output
    shift 3
    output=$(IST_LAUNCH=mpi LD_LIBRARY_PATH="$libraries" timeout 60 mpirun --enable-recovery "$@" 2>&1)
    expect "$name" "$text" $? "$output"
    if [ "$(grep -cF -- "$text" <<<"$output")" -lt "$count" ]; then
        printf 'FAILED: %s: not said by all of %d ranks:\n%s\n' "$name" "$count" "$output"
        failed=1
    fi
}

libraries=$fake/none
info "no driver" "cuda             not usable: no CUDA driver" NOTHING=1
ep "no driver" "no CUDA driver" 2 NOTHING=1

libraries=$fake:$fake/nccl
info "usable" "load/store team      2 of 2 GPUs" NOTHING=1
info "old driver" "the driver is for CUDA 12.4, 12.8 or newer is needed" FAKE_CUDA_VERSION=12040
info "no GPU" "the driver sees no GPU" FAKE_CUDA_DEVICES=0
info "old GPU" "the GPU has compute capability 8.0, 9.0 or newer is needed" FAKE_CUDA_CAPABILITY=8
ep "too few GPUs" "desc.rank_count is 3, but this process sees 2 GPUs" 3 NOTHING=1

info "no peers" "no: GPU 0 cannot map the memory of GPU 1" FAKE_CUDA_NO_PEERS=1
ep "no peers, no GIN" "this NCCL can do nothing" 2 FAKE_CUDA_NO_PEERS=1
info "NCCL too old" "NCCL 2.27.3 was found, 2.28.7 to 2.30" FAKE_NCCL_VERSION=22703
info "NCCL too new" "NCCL 2.31.1 was found, 2.28.7 to 2.30" FAKE_NCCL_VERSION=23101
info "no grow" "nccl grow            no: NCCL 2.28.9 has none, it came with 2.29.2" NOTHING=1
ep "no peers, old NCCL" "NCCL 2.27.3 was found" 2 FAKE_CUDA_NO_PEERS=1 FAKE_NCCL_VERSION=22703
coll "NCCL too old for collectives" "NCCL 2.27.3 was found" FAKE_NCCL_VERSION=22703
coll "NCCL that fails" "rank 0 cannot use NCCL" NOTHING=1
libraries=$fake:$fake/bare
coll "NCCL without collectives" "NCCL 2.28.9 lacks the function ncclGetUniqueId" NOTHING=1
info "no collectives" "native collectives   no: NCCL 2.28.9 lacks the function" NOTHING=1
info "NCCL incomplete" "NCCL 2.28.9 lacks the function ncclGetUniqueId" NOTHING=1
libraries=$fake:$fake/none
coll "no NCCL" "no NCCL: $fake/none/libnccl.so.2" IST_CUDA_NCCL="$fake/none/libnccl.so.2"
info "no NCCL" "native collectives   no: no NCCL: " IST_CUDA_NCCL="$fake/none/libnccl.so.2"
info "NCCL by name" "native collectives   no: NCCL 2.28.9 lacks" IST_CUDA_NCCL="$fake/bare/libnccl.so.2"
info "no VMM" "no: GPU 0 or its driver has no virtual memory management" FAKE_CUDA_NO_VMM=1
ep "no VMM" "no virtual memory management" 2 FAKE_CUDA_NO_VMM=1

if command -v mpirun >/dev/null; then
    run=("$isthmus" ep --backend cuda --tokens 4 --hidden 64 --experts 8 --top-k 2)
    job "shared GPU" "have the same GPU" 3 -n 3 -x FAKE_CUDA_DEVICES=2 "${run[@]}"
    job "a rank without device" "has no device, so the world cannot begin" 1 \
        -n 1 "${run[@]}" : -n 1 -x FAKE_CUDA_FAIL=1 "${run[@]}"
else
    echo "mpirun is not here: processes are not tested"
fi
exit $failed
