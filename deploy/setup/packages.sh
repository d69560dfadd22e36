#!/usr/bin/env bash
# Installs what makes and tries the packages: Debian packages.
#
#   deploy/setup/packages.sh           to make image, .deb and tarball: mmdebstrap, buildah, binutils, dpkg-dev, xz-utils
#   deploy/setup/packages.sh --tests   also what `make test-packages` runs them with: podman, runc, iproute2, procps and others
#
# Exit status: 0 all is there; 2 wrong usage, or something must be installed by hand.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
readonly ROOT
# shellcheck source=deploy/setup/common.sh
source "$ROOT/deploy/setup/common.sh"

declare -A package_of=([mmdebstrap]=mmdebstrap [buildah]=buildah [strip]=binutils [dpkg-shlibdeps]=dpkg-dev [xz]=xz-utils)
case ${1-} in
'') ;;
--tests) package_of+=([podman]=podman [runc]=runc [ip]=iproute2 [curl]=curl [jq]=jq [systemd-analyze]=systemd
    [pgrep]=procps) ;;
*) stop 2 "unknown argument \`$1\`; expected --tests or nothing" ;;
esac
missing=()
for program in "${!package_of[@]}"; do
    have "$program" || missing+=("${package_of[$program]}")
done
if ((${#missing[@]} > 0)); then
    by_hand="missing: ${missing[*]}; install them with: sudo apt-get install -y --no-install-recommends ${missing[*]}"
    have apt-get || stop 2 "$by_hand"
    as_root=()
    if ((EUID != 0)); then
        { have sudo && sudo -n true 2>/dev/null; } || stop 2 "$by_hand"
        as_root=(sudo -n)
    fi
    say "installing Debian packages: ${missing[*]}"
    quietly "${as_root[@]}" apt-get update -q || say "the package lists could not be refreshed; trying with the old ones"
    quietly "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" ||
        stop 2 "$by_hand"
fi
