#!/usr/bin/env bash
# Has systemd read the units: unknown keys, values that it does not take, commands that there are not. Exit status: 0 well, 1 not.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
copies=$(mktemp -d)
trap 'rm -rf "$copies"' EXIT
status=0
for unit in *.service; do
    # The program need not be installed where this runs, and its page neither.
    sed 's#^ExecStart=/usr/bin/symphony #ExecStart=/bin/true #' "$unit" >"$copies/$unit"
    # Only what is wrong in this unit, not in those of the machine that it names; the status is of that.
    systemd-analyze --recursive-errors=no --man=no verify "$copies/$unit" >&2 || status=1
done
exit $status
