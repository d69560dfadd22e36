# Words and checks that the set-up scripts share; read by them, not run.
# shellcheck shell=bash

say() { printf 'setup: %s\n' "$*" >&2; }
stop() {
    local status=$1
    shift
    say "$*"
    exit "$status"
}
have() { command -v "$1" >/dev/null 2>&1; }

# Runs a command whose words only matter when it fails.
quietly() {
    local log
    log=$(mktemp)
    if ! "$@" >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        rm -f "$log"
        return 1
    fi
    rm -f "$log"
}
