#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Whether this host is known for what it is: the topology that is found beside what the driver says, the
# way that a communicator takes, and times that are predicted from half of the measurements. A line for
# each requirement; exit status 1 when one is missed, 77 without two GPUs.
#
#   IST_GROUND_OUT      folder for what was measured (one that is removed)
#   IST_GROUND_BACKEND  cuda; sim together with
#   IST_GROUND_SOURCE   live; a cluster line: this script by itself, with nvidia-smi of its own
#   IST_GROUND_MEDIAN   largest median error of a prediction, in percent (10)
#   IST_GROUND_BYTES    largest size of collectives (1G); IST_GROUND_ROUNDS of a timing (300)
set -u
isthmus=${IST_BIN_DIR:-${IST_BUILD_DIR:?}/bin}/isthmus
backend=${IST_GROUND_BACKEND:-cuda}
source=${IST_GROUND_SOURCE:-live}
median=${IST_GROUND_MEDIAN:-10}
rounds=${IST_GROUND_ROUNDS:-300}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
out=${IST_GROUND_OUT:-$work}
mkdir -p "$out"
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
[ "$gpus" -ge 2 ] || { echo "fewer than two GPUs"; exit 77; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 IST_LOG=warn
failed=0

# judge NAME FOUND WANTED
judge() {
    if [ "$2" = "$3" ]; then
        printf 'ok      %-44s %s\n' "$1" "$2"
    else
        printf 'MISSED  %-44s %s, wanted %s\n' "$1" "${2:-nothing}" "$3"
        failed=1
    fi
}

# says NAME FILE TEXT: the file has the text, whatever its line breaks
says() {
    if tr -s ' \n' '  ' <"$2" | grep -qF -- "$3"; then
        printf 'ok      %-44s "%s"\n' "$1" "$3"
    else
        printf 'MISSED  %-44s "%s" is not in:\n' "$1" "$3"
        sed 's/^/        /' "$2"
        failed=1
    fi
}

# run NAME FILE LIMIT COMMAND...: standard output into the file; its status is a requirement
run() {
    local name=$1 file=$2 limit=$3 status=0
    shift 3
    timeout -k 5 "$limit" "$@" >"$file" 2>"$work/errors" </dev/null || status=$?
    judge "$name" "status $status" "status 0"
    [ $status -eq 0 ] || sed 's/^/        /' "$work/errors" | tail -n 20
    return $status
}

# A process a GPU.
ranks=(env IST_LAUNCH=mpi mpirun -n "$gpus")
[ "$backend" = cuda ] || ranks=(env IST_LAUNCH=none)

# ---- discovery, beside the driver ----------------------------------------------------------------

# Pairs of GPUs as "0 1 NV18", from a matrix whose first column names the row.
pairs() { # PREFIX of a GPU's name
    sed 's/\x1b\[[0-9;]*m//g' | awk -v prefix="$1" '
        !columns && $1 == prefix "0" && $2 == prefix "1" { columns = 1; next }
        $1 ~ "^" prefix "[0-9]+$" {
            row = substr($1, length(prefix) + 1)
            for (i = 0; i < gpus; ++i) if (i != row) print row, i, $(i + 2)
        }' gpus="$gpus"
}

run "isthmus info" "$out/info.txt" 60 "$isthmus" info
run "topo show" "$out/show.txt" 60 "$isthmus" topo show "$source"
run "topo check" "$out/check.txt" 60 "$isthmus" topo check "$source"
run "topo show --matrix" "$out/matrix.txt" 60 "$isthmus" topo show "$source" --matrix
run "nvidia-smi topo -m" "$out/driver.txt" 60 nvidia-smi topo -m
run "nvidia-smi nvlink -s" "$out/nvlink.txt" 60 nvidia-smi nvlink -s
ours=$(pairs G <"$out/matrix.txt")
theirs=$(pairs GPU <"$out/driver.txt")
judge "pairs in the driver's matrix" "$(wc -l <<<"$theirs")" $((gpus * (gpus - 1)))
judge "matrix of GPUs, the driver's" "$(tr '\n' ';' <<<"$ours")" "$(tr '\n' ';' <<<"$theirs")"
links=$(awk '/^GPU 0/ { on = 1; next } /^GPU/ { on = 0 } on && /Link [0-9]+: [0-9.]+ GB/' \
    "$out/nvlink.txt" | wc -l)
judge "links of GPU 0, as the driver counts them" \
    "NV$(sed -nE 's/.*NVLink x([0-9]+) .*/\1/p' "$out/show.txt" | head -n 1)" "NV$links"
if grep -q 'H200' <(nvidia-smi -L); then
    judge "NVLinks between H200" "$(awk '{ print $3 }' <<<"$ours" | sort -u | tr '\n' ' ')" "NV18 "
fi
joined=$(awk '{ print substr($3, 1, 2) }' <<<"$theirs" | sort -u)
if [ "$joined" = NV ]; then
    judge "load/store team" "$(grep -oE 'LSA [0-9]+' "$out/check.txt")" "LSA $gpus"
fi

# ---- the reason that there is no GIN ---------------------------------------------------------------

run "topo explain" "$out/explain.txt" 60 "$isthmus" topo explain "$source"
adapters=$(ls /sys/class/infiniband 2>/dev/null | wc -l)
if [ "$adapters" -eq 0 ]; then
    says "no RDMA NIC, no GIN" "$out/explain.txt" "GIN not available: rank 0: "
    if tr -s ' \n' '  ' <"$out/explain.txt" |
        grep -qE 'GIN not available: rank 0: the (NIC is no RDMA NIC|machine has no NIC)'; then
        judge "its reason" "no RDMA NIC" "no RDMA NIC"
    else
        judge "its reason" "another" "no RDMA NIC"
    fi
else
    echo "note    $adapters RDMA adapters: that there is no GIN is not asked for"
fi

# ---- a communicator ----------------------------------------------------------------------------------

run "a pair of an open communicator" "$out/pair.txt" 120 \
    "${ranks[@]}" "$isthmus" topo explain "$source" 0 1 --backend "$backend"
run "an open communicator" "$out/comm.txt" 120 \
    "${ranks[@]}" "$isthmus" topo explain "$source" --backend "$backend"
if [ "$joined" = NV ]; then
    says "the way of a pair" "$out/pair.txt" "way load/store (LSA), teams of $gpus"
    says "teams as predicted" "$out/comm.txt" "load/store team: $gpus, predicted $gpus"
fi
if [ "$backend" = cuda ] && [ "$adapters" -eq 0 ] && [ -z "${NCCL_NET_PLUGIN:-}" ]; then
    IST_CUDA_LSA=1 timeout 180 "${ranks[@]}" \
        "$isthmus" topo explain "$source" 0 1 --backend "$backend" >"$out/apart.txt" 2>&1
    says "without teams, no GIN" "$out/apart.txt" "no GPU-initiated network: "
fi

# ---- measured, half of it predicted ------------------------------------------------------------------

# predict NAME FILE: every other size predicts those between
predict() {
    local status=0
    "$isthmus" fit "$2" --halves --max-median "$median" >"$work/fit" 2>&1 || status=$?
    judge "$1: median error at most $median %" "status $status" "status 0"
    sed 's/^/        /' "$work/fit"
}

run "probe" "$out/probe.txt" 300 \
    "${ranks[@]}" "$isthmus" probe --backend "$backend" -e 64M -J "$out/probe.json" --name ground
run "probe's profile is read" "$work/whatif" 60 \
    "$isthmus" whatif --cluster "1x$gpus" --profile "$out/probe.json" --op copy,bytes=1MiB
for call in all_reduce all_gather copy; do
    run "bench coll, $call" "$out/$call.csv" 300 \
        "${ranks[@]}" "$isthmus" bench coll --backend "$backend" --calls $call -b 1K \
        -e "${IST_GROUND_BYTES:-1G}" -f 2 -n "$rounds" -w 20 --csv &&
        predict "bench coll, $call" "$out/$call.csv"
done
for layout in em rm; do
    for op in dispatch combine; do
        run "bench ep, $layout, $op" "$out/ep_${layout}_$op.csv" 300 \
            "${ranks[@]}" "$isthmus" bench ep --backend "$backend" --layout $layout --op $op -b 1 -e 256 \
            -f 2 --windows -n "$rounds" -w 20 --csv &&
            predict "bench ep, $layout, $op" "$out/ep_${layout}_$op.csv"
    done
done
exit $failed
