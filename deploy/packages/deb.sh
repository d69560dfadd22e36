#!/usr/bin/env bash
# Makes target/packages/symphony_VERSION_MACHINE.deb: the program, ONNX Runtime, systemd units, a user, a sample configuration,
# manual pages, completions.
#
# BINARY names another program than target/release/symphony.
# Exit status: 0 done; 1 a step failed; 2 something is missing.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
readonly ROOT OUT=$ROOT/target/packages
# shellcheck source=deploy/setup/common.sh
source "$ROOT/deploy/setup/common.sh"
# shellcheck source=deploy/setup/program.sh
source "$ROOT/deploy/setup/program.sh"
for tool in dpkg-deb dpkg-shlibdeps strip; do
    have "$tool" || stop 2 "$tool is missing; run deploy/setup/packages.sh"
done

work=$(mktemp -d "${TMPDIR:-/tmp}/symphony-deb.XXXXXX")
stage "$work"
tree=$work/tree
put() { install -D -m "$1" "$2" "$tree/$3"; }

put 755 "$program" usr/bin/symphony
strip_program "$tree/usr/bin/symphony"
put 644 "$runtime" "usr/lib/symphony/$(basename "$runtime")"
for unit in "$ROOT"/deploy/systemd/*.service; do
    put 644 "$unit" "lib/systemd/system/$(basename "$unit")"
done
put 640 "$ROOT/deploy/config/production.toml" etc/symphony/symphony.toml
install -d -m 750 "$tree/etc/symphony/pki"
own_pages "$tree/usr/share" vendor-completions
documents=usr/share/doc/symphony
put 644 "$ROOT/docs/operating/install.md" $documents/install.md
for file in prometheus/prometheus.yml prometheus/symphony-alerts.yml; do
    put 644 "$ROOT/deploy/$file" "$documents/examples/$(basename "$file")"
done
{
    printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\nFiles: *\nCopyright: the authors of Symphony\n'
    printf 'License: Apache-2.0\n On Debian systems: /usr/share/common-licenses/Apache-2.0\n\n'
    printf 'Files: usr/lib/symphony/*\nCopyright: Microsoft Corporation\nLicense: MIT\n'
    sed 's/^$/./; s/^/ /' "$(dirname "$runtime")/../LICENSE"
} >"$tree/$documents/copyright"
gzip -9 -n -c "$ROOT/CHANGELOG.md" >"$tree/$documents/changelog.gz"
find "$tree/$documents" -type f -exec chmod 644 {} +

# What the program and the library are linked against, as packages of this Debian.
mkdir -p "$work/debian" "$tree/DEBIAN"
printf 'Source: symphony\n\nPackage: symphony\nArchitecture: any\n' >"$work/debian/control"
depends=$(cd "$work" && dpkg-shlibdeps -O "$tree/usr/bin/symphony" "$tree/usr/lib/symphony/$(basename "$runtime")" 2>/dev/null |
    sed -n 's/^shlibs:Depends=//p')
[[ -n $depends ]] || stop 1 "dpkg-shlibdeps found nothing that the program needs"
cat >"$tree/DEBIAN/control" <<CONTROL
Package: symphony
Version: $version
Architecture: $machine
Maintainer: The Symphony team <symphony@localhost>
Installed-Size: $(du -sk --exclude=DEBIAN "$tree" | cut -f 1)
Depends: $depends, adduser
Section: net
Priority: optional
Description: serves many DNN models on GPU clusters under latency SLOs
 Schedulers, frontends and backends as systemd services, and the tools that operate them. Clients speak the Open
 Inference Protocol v2 over gRPC and REST. ONNX Runtime for CPUs is included.
CONTROL
echo /etc/symphony/symphony.toml >"$tree/DEBIAN/conffiles"
for script in postinst prerm postrm; do
    install -m 755 "$ROOT/deploy/packages/maintainer/$script" "$tree/DEBIAN/$script"
done
(cd "$tree" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | xargs -0 md5sum >DEBIAN/md5sums)
file=$OUT/symphony_${version}_$machine.deb
quietly dpkg-deb --root-owner-group -Zxz -z3 --build "$tree" "$staging/symphony.deb"
publish "$staging/symphony.deb" "$file"
say "${file#"$ROOT"/}: $(($(stat -c %s "$file") / 1000000)) MB; needs: $depends"
