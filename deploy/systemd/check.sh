#!/usr/bin/env bash
# Has systemd read the units: unknown keys, values that it does not take, units that there are not. Exit status: 0 well, 1 not.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
status=0
for unit in *.service; do
    # The program need not be installed where this runs, and its page neither.
    said=$(systemd-analyze verify --man=no "./$unit" 2>&1 | grep -v 'Command /usr/bin/symphony is not executable') || true
    if [[ -n $said ]]; then
        printf '%s: %s\n' "$unit" "$said" >&2
        status=1
    fi
done
exit $status
