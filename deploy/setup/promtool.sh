#!/usr/bin/env bash
# Puts promtool, which checks metrics and alert rules, into .cache/promtool. It is taken out of Debian's package of Prometheus;
# nothing is installed, and no service starts.
#
#   deploy/setup/promtool.sh
#
# Exit status: 0 it is there, or on the PATH; 1 a download failed; 2 something must be installed by hand.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
readonly ROOT DIR=$ROOT/.cache/promtool

# shellcheck source=deploy/setup/common.sh
source "$ROOT/deploy/setup/common.sh"

[[ -x $DIR/promtool ]] && exit 0
have promtool && exit 0
for tool in apt-get dpkg-deb; do
    have "$tool" || stop 2 "missing: promtool; install Prometheus with this system's package manager"
done

say "downloading promtool"
mkdir -p "$ROOT/.cache"
# Made beside its place and then moved, so that an interrupted run leaves nothing half done.
staging=$(mktemp -d "$ROOT/.cache/promtool.XXXXXX")
# shellcheck disable=SC2064 # the folder of this run, not of a later one
trap "rm -rf '$staging'" EXIT
(cd "$staging" && quietly apt-get download -q prometheus) ||
    stop 1 "could not download the package \`prometheus\`; are the package lists fresh (apt-get update)?"
quietly dpkg-deb -x "$staging"/prometheus_*.deb "$staging/package" || stop 1 "the package could not be unpacked"
mkdir -p "$DIR"
mv "$staging/package/usr/bin/promtool" "$DIR/promtool"
