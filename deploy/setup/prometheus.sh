#!/usr/bin/env bash
# Puts Prometheus and promtool, which tests of metrics and alerts run, into .cache/prometheus. They are taken out of Debian's
# package; nothing is installed, and no service starts.
#
#   deploy/setup/prometheus.sh
#
# Exit status: 0 both are there, or on the PATH; 1 a download failed; 2 something must be installed by hand.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
readonly ROOT DIR=$ROOT/.cache/prometheus

# shellcheck source=deploy/setup/common.sh
source "$ROOT/deploy/setup/common.sh"

[[ -x $DIR/prometheus ]] && exit 0
have prometheus && have promtool && exit 0
for tool in apt-get dpkg-deb; do
    have "$tool" || stop 2 "missing: prometheus, promtool; install Prometheus with this system's package manager"
done

say "downloading Prometheus"
mkdir -p "$ROOT/.cache"
# Made beside its place and then moved, so that an interrupted run leaves nothing half done.
staging=$(mktemp -d "$ROOT/.cache/prometheus.XXXXXX")
# shellcheck disable=SC2064 # the folder of this run, not of a later one
trap "rm -rf '$staging'" EXIT
(cd "$staging" && quietly apt-get download -q prometheus) ||
    stop 1 "could not download the package \`prometheus\`; are the package lists fresh (apt-get update)?"
quietly dpkg-deb -x "$staging"/prometheus_*.deb "$staging/package" || stop 1 "the package could not be unpacked"
rm -rf "$DIR"
mv "$staging/package/usr/bin" "$DIR"
