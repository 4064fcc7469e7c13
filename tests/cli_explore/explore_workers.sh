#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Goal: results do not depend on who worked: on the number of workers, on workers that die, on processes
# of a launcher, on an interruption. Method: one range of seeds, some of which fail, in all these ways;
# the answers are equal but for the part that is about the run itself.
set -euo pipefail

broken=${IST_BROKEN:?}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
# Most seeds of broken-bytes are right, some are not.
job=(broken-bytes --faults 'none,stall,kill' --scheduler pct:2 --schedules 6000 --keep-going --shrink 0 --json)
failed=0

# same NAME: the answer is that of one worker.
same() {
    python3 - "$1" <<'PYTHON' || failed=1
import json, sys
one, other = (json.load(open(name)) for name in ("one", sys.argv[1]))
run = other["run"]
for answer in (one, other):
    del answer["run"]
    for failure in answer["failures"]:  # files lie where the process that led was told
        failure.pop("replay_file", None), failure.pop("report_file", None)
        failure["shrunk_text"] = failure["shrunk_text"].replace("--replay meet/", "--replay ./")
assert one == other, (sys.argv[1], one, other)
print(sys.argv[1], run)
PYTHON
}

work() {
    local name=$1 status=0
    shift
    "$@" >"$name" 2>"$name.err" || status=$?
    if [[ $status != 1 ]]; then
        echo "$name: exit status $status, expected 1"
        cat "$name.err"
        exit 1
    fi
}

work one "$broken" "${job[@]}" --jobs 1
python3 -c 'import json; a = json.load(open("one"))
assert 0 < a["failed"] < 6000 and a["schedules"] == 6000, a'
work five "$broken" "${job[@]}" --jobs 5
same five

# A worker is killed in the middle of its seeds.
"$broken" "${job[@]}" --jobs 2 >killed 2>killed.err &
leader=$!
for ((i = 0; i < 500; ++i)); do
    worker=$(pgrep -P $leader | head -1 || true)
    if [[ $worker ]] && kill -9 "$worker" 2>/dev/null; then
        break
    fi
done
wait $leader || [[ $? == 1 ]]
same killed
python3 -c 'import json; print(json.load(open("killed"))["run"]["worker_deaths"], "workers were killed")'

# Under a launcher: each process brings its workers.
if command -v mpirun >/dev/null; then
    mkdir -p meet
    work hosts mpirun -n 3 "$broken" "${job[@]}" --jobs 1 --out meet
    same hosts
    python3 -c 'import json; assert json.load(open("hosts"))["run"]["workers"] >= 2'
    compgen -G 'meet/.explore*' && failed=1
    # The same with an address that all were told.
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])')
    work address mpirun -n 3 "$broken" "${job[@]}" --jobs 1 --meet "localhost:$port"
    same address
fi

# Interrupted, and gone on with: what was done is not done again.
"$broken" "${job[@]}" --jobs 2 --resume journal >part 2>part.err &
leader=$!
while [[ $(wc -l <journal 2>/dev/null || echo 0) -lt 5 ]] && kill -0 $leader 2>/dev/null; do :; done
kill -INT $leader 2>/dev/null || true
wait $leader || [[ $? == 1 ]]
lines=$(wc -l <journal)
echo "interrupted after $lines lines of the journal"
printf '{"place":%s,"cou' 5 >>journal # and torn
work resumed "$broken" "${job[@]}" --jobs 2 --resume journal
same resumed
[[ $(wc -l <journal) -ge $lines ]] || failed=1
python3 - <<'PYTHON' || failed=1
import json
answer = json.load(open("resumed"))
assert answer["run"]["resumed_schedules"] > 0, answer["run"]
lines = [json.loads(line) for line in open("journal")]
assert sum(line.get("done", 0) for line in lines) == 6000
PYTHON
# The journal of one run is no other's.
status=0
"$broken" broken-bytes --resume journal >other 2>&1 || status=$?
[[ $status == 2 ]] || failed=1
exit $failed
