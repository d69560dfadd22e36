#!/usr/bin/env bash
# Makes the OCI image from Debian packages, the release binary and ONNX Runtime; no registry of images is asked.
#
#   deploy/image/build.sh            localhost/symphony:VERSION in the local store of podman, buildah or docker
#   deploy/image/build.sh --archive  target/packages/symphony-VERSION.oci.tar too, for machines that have none of them
#
# BINARY names another program than target/release/symphony; ENGINE another builder than the first of buildah, podman, docker;
# SUITE another Debian than this machine's. The program needs a glibc as new as the one it was built with.
# Exit status: 0 done; 1 a step failed; 2 something is missing: deploy/setup/packages.sh installs it.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
readonly ROOT OUT=$ROOT/target/packages
# shellcheck source=deploy/setup/common.sh
source "$ROOT/deploy/setup/common.sh"
# shellcheck source=deploy/setup/program.sh
source "$ROOT/deploy/setup/program.sh"

archive=0
case ${1-} in
'') ;;
--archive) archive=1 ;;
*) stop 2 "unknown argument \`$1\`; expected --archive or nothing" ;;
esac
have mmdebstrap || stop 2 "mmdebstrap is missing; run deploy/setup/packages.sh"
for candidate in buildah podman docker; do
    have "$candidate" && { engine=${ENGINE:-$candidate}; break; }
done
[[ -n ${engine:-} ]] || stop 2 "none of buildah, podman and docker is here; run deploy/setup/packages.sh"

context=$(mktemp -d "${TMPDIR:-/tmp}/symphony-image.XXXXXX")
stage "$context"
root=$context/root

say "unpacking Debian packages"
# `extract` runs no maintainer script, so that the folder holds files of packages and nothing else.
suite=${SUITE:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
quietly mmdebstrap --variant=extract --include=libc6,libgcc-s1,libstdc++6,netbase "$suite" "$context/debian.tar"
debian=$context/debian
mkdir -p "$debian/usr" "$root/usr/share/doc" "$root/etc"
tar -x -f "$context/debian.tar" -C "$debian" --exclude='./dev/*'
# One layout whatever the release: Debian 12's packages have /lib and /lib64, later ones /usr/lib and /usr/lib64. The loader is where
# programs have it: /lib64/ld-linux-x86-64.so.2, /lib/ld-linux-aarch64.so.1.
for lib in lib lib64; do
    [[ ! -d $debian/$lib || -L $debian/$lib ]] || { mkdir -p "$debian/usr/$lib" && cp -a "$debian/$lib/." "$debian/usr/$lib/"; }
    [[ ! -d $debian/usr/$lib ]] || ln -s "usr/$lib" "$root/$lib"
done
# What loads and runs programs, their licences, and nothing of packages that were only needed to install them.
(cd "$debian" && find usr/lib usr/lib64 -path '*-linux-gnu/*' -o -name 'ld-linux-*' 2>/dev/null | grep -Ev \
    '/(gconv|audit)(/|$)|/(libselinux|libcrypt\.|libnss_compat|libnss_hesiod)|/perl' |
    tar -c --no-recursion -T - etc/protocols etc/services etc/ld.so.conf* usr/share/doc/*/copyright) | tar -x -C "$root"
loader=$(readelf -l "$program" | sed -n 's/.*program interpreter: \(.*\)]/\1/p')
[[ -z $loader || -e $root/$loader ]] || stop 1 "Debian $suite's packages have no $loader, which loads the program"
rm -rf "$debian"
install -D -m 755 "$program" "$root/usr/bin/symphony"
strip_program "$root/usr/bin/symphony"
install -D -m 644 "$runtime" "$root/usr/lib/symphony/$(basename "$runtime")"
install -D -m 644 "$ROOT/LICENSE" "$root/usr/share/doc/symphony/LICENSE"
find "$(dirname "$runtime")/.." -maxdepth 1 -name 'LICENSE*' -exec install -D -m 644 {} "$root/usr/share/doc/symphony/LICENSE.onnxruntime" \;
mkdir -p "$root/etc/symphony" "$root/var/lib/symphony" "$root/tmp"
chmod 1777 "$root/tmp"
printf 'root:x:0:0:root:/:/nonexistent\nsymphony:x:10001:10001::/var/lib/symphony:/nonexistent\n' >"$root/etc/passwd"
printf 'root:x:0:\nsymphony:x:10001:\n' >"$root/etc/group"
printf 'hosts: files dns\n' >"$root/etc/nsswitch.conf"
# Of one time and in one order: the same inputs give the same bytes.
chown -R 10001:10001 "$root/var/lib/symphony" 2>/dev/null || true
tar -c -f "$context/root.tar" -C "$root" --sort=name --mtime="@${SOURCE_DATE_EPOCH:-$(git -C "$ROOT" log -1 --format=%ct)}" --numeric-owner \
    --owner=0 --group=0 --exclude=./var/lib/symphony .
tar -r -f "$context/root.tar" -C "$root" --mtime=@0 --numeric-owner --owner=10001 --group=10001 ./var/lib/symphony
rm -rf "$root" "$context/debian.tar"
cp "$ROOT/deploy/image/Containerfile" "$context/"

tag=localhost/symphony:$version
say "building $tag with $engine"
case $engine in
buildah) quietly buildah --log-level=error build --isolation=chroot --timestamp 0 -t "$tag" -f "$context/Containerfile" "$context" ;;
*) quietly "$engine" build -t "$tag" -f "$context/Containerfile" "$context" ;;
esac
say "$tag: $(($(stat -c %s "$context/root.tar") / 1000000)) MB unpacked"
if ((archive)); then
    file=$OUT/symphony-$version.oci.tar
    unfinished=$staging/image
    case $engine in
    buildah) quietly buildah --log-level=error push "$tag" "oci-archive:$unfinished:$tag" ;;
    podman) quietly podman --log-level=error push "$tag" "oci-archive:$unfinished:$tag" ;;
    docker) quietly docker save -o "$unfinished" "$tag" ;;
    esac
    publish "$unfinished" "$file"
    say "${file#"$ROOT"/}: $(($(stat -c %s "$file") / 1000000)) MB"
fi
