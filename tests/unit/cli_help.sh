#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Help texts are part of the interface: each must be the text in tests/golden, exit with 0 and fit 100
# columns. After a wanted change: IST_BIN_DIR=... tests/unit/cli_help.sh --update
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
golden=$here/../golden
isthmus=${IST_BIN_DIR:?}/isthmus
failed=0

check() {
    local name=$1 text status=0
    shift
    text=$("$isthmus" "$@") || status=$?
    if [[ ${update-} ]]; then
        printf '%s\n' "$text" >"$golden/help_$name.txt"
    fi
    if [[ $status != 0 ]]; then
        echo "isthmus $*: exit status $status"
        failed=1
    fi
    if ! diff -u "$golden/help_$name.txt" - <<<"$text"; then
        failed=1
    fi
    if grep -nE '^.{101}' <<<"$text"; then
        echo "isthmus $*: lines longer than 100 columns"
        failed=1
    fi
}

[[ ${1-} == --update ]] && update=1
check main --help
check ep ep --help
check replay replay --help
check info info --help
check bench bench --help
check bench_ep bench ep --help
check bench_coll bench coll --help
check bench_setup bench setup --help
check bench_soak bench soak --help
check probe probe --help
check whatif whatif --help
check fit fit --help
check explore explore --help
check topo topo --help
cmp <("$isthmus" ep -h) <("$isthmus" ep --help) || failed=1
[[ $("$isthmus" --version) =~ ^isthmus\ [0-9]+\.[0-9]+\.[0-9]+$ ]] || failed=1
exit $failed
