#!/usr/bin/env bash
# Makes the release tarball for systems without dpkg, its SBOM, and their checksums, in target/packages:
#
#   symphony-VERSION-linux-MACHINE.tar.xz   bin/symphony, lib/symphony (ONNX Runtime), lib/systemd/system, etc/symphony,
#                                           share: doc, manual pages, completions
#   symphony-VERSION.cdx.json               CycloneDX: every crate in the program, and ONNX Runtime
#   SHA256SUMS                              of all packages that lie there, written anew by whatever makes one of them
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
for tool in strip xz; do
    have "$tool" || stop 2 "$tool is missing; run deploy/setup/packages.sh"
done
name=symphony-$version-linux-$(uname -m)
work=$(mktemp -d "${TMPDIR:-/tmp}/symphony-tarball.XXXXXX")
stage "$work"
put() { install -D -m "$1" "$2" "$work/$name/$3"; }
put 755 "$program" bin/symphony
strip_program "$work/$name/bin/symphony"
put 644 "$runtime" "lib/symphony/$(basename "$runtime")"
put 644 "$(dirname "$runtime")/../LICENSE" share/doc/symphony/LICENSE.onnxruntime
for unit in "$ROOT"/deploy/systemd/*.service; do
    put 644 "$unit" "lib/systemd/system/$(basename "$unit")"
done
put 644 "$ROOT/deploy/config/production.toml" etc/symphony/symphony.toml
for file in LICENSE CHANGELOG.md docs/operating/install.md; do
    put 644 "$ROOT/$file" "share/doc/symphony/$(basename "$file")"
done
own_pages "$work/$name/share" site-functions
time=$(git -C "$ROOT" log -1 --format=%ct)
# Of one time, one owner and one order: the same inputs give the same bytes.
tar -c -C "$work" --sort=name --mtime="@$time" --owner=0 --group=0 --numeric-owner "$name" | xz -T 0 -3 >"$staging/tarball"

sbom=$OUT/symphony-$version.cdx.json
SOURCE_DATE_EPOCH=$time "$ROOT/deploy/packages/sbom.py" "${runtime##*.so.}" >"$staging/sbom"
publish "$staging/tarball" "$OUT/$name.tar.xz" "$staging/sbom" "$sbom"
say "target/packages/$name.tar.xz: $(($(stat -c %s "$OUT/$name.tar.xz") / 1000000)) MB; ${sbom#"$ROOT"/}: $(grep -c '"bom-ref"' "$sbom") components"
