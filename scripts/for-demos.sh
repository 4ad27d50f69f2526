# shellcheck shell=bash
# Functions of the demos. A demo sets `bin`, the folder of the programs in .venv, and sources this file.
say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
field() { "$bin/python" -c "import json, sys; print(json.load(sys.stdin)$1)"; }

# `found_in LOG PROCESS PATTERN` waits until a line of LOG matches PATTERN (sed's), and prints the pattern's
# group. If PROCESS ends first, it prints LOG and fails.
found_in() {
    local found runs=yes
    until found=$(sed -n "s/.*$3.*/\1/p;T;q" "$1") && [ -n "$found" ]; do
        [ "$runs" ] || { cat "$1" >&2 && return 1; }
        # PROCESS may have written the line and ended after the look at LOG, so LOG is read once more.
        kill -0 "$2" 2>/dev/null || runs=
        sleep 0.05
    done
    echo "$found"
}
