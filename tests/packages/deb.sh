#!/usr/bin/env bash
# The Debian package in an empty Debian: installs with its dependencies, the program runs and finds ONNX Runtime, the units are good,
# removal and purge leave what they should. The Debian is a folder (mmdebstrap); services are run by three_machines.sh.
#
#   tests/packages/deb.sh [FILE.deb]       the newest in target/packages if none is named
#
# Exit status: 0 well; 1 not; 2 something is missing.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=deploy/setup/common.sh
source "$ROOT/deploy/setup/common.sh"
# shellcheck source=tests/packages/common.sh
source "$ROOT/tests/packages/common.sh"
for tool in mmdebstrap dpkg-deb systemd-analyze; do have "$tool" || stop 2 "$tool is missing; run deploy/setup/packages.sh --tests"; done
((EUID == 0)) || stop 2 "a folder with a Debian of its own takes root"
deb=${1:-$(ls -t "$ROOT"/target/packages/*.deb 2>/dev/null | head -n 1)}
[[ -s $deb ]] || stop 2 "there is no package; run deploy/packages/deb.sh"

work=$(mktemp -d /var/tmp/symphony-deb-test.XXXXXX)
trap 'umount "$work/root/proc" 2>/dev/null || true; rm -rf "$work"' EXIT
chmod 755 "$work"
cp "$deb" "$work/symphony.deb"
root=$work/root

phase "it installs in an empty Debian, with what it depends on and nothing else"
empty_debian "$root" "$work/symphony.deb"
mount -t proc proc "$root/proc"
inside() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }
inside dpkg -s symphony | grep -q '^Status: install ok installed$' || fail "$(inside dpkg -s symphony)"
say "it depends on $(dpkg-deb -f "$deb" Depends)"

phase "files, user, rights"
inside dpkg --verify symphony | (! grep .) || fail "files differ from the package"
inside getent passwd symphony | grep -q ':/var/lib/symphony:' || fail "there is no user symphony"
[[ $(inside stat -c '%U:%G %a' /etc/symphony/pki) == "root:symphony 750" ]] || fail "/etc/symphony/pki: $(inside stat -c '%U:%G %a' /etc/symphony/pki)"
[[ $(inside stat -c '%U:%G %a' /etc/symphony/symphony.toml) == "root:symphony 640" ]] || fail "$(inside stat -c '%U:%G %a' /etc/symphony/symphony.toml)"
[[ -z $(find "$root" -xdev -user "$(inside id -u symphony)" ! -path "$root/var/lib/symphony*") ]] || fail "the user owns more than its data"
symbols=$(objdump -h "$root/usr/bin/symphony" | grep -c debug_info || true)
((symbols == 0)) || fail "the program is not stripped"

phase "the program runs, and finds ONNX Runtime"
inside symphony --version
for file in man/man1/symphony-get.1.gz bash-completion/completions/symphony zsh/vendor-completions/_symphony fish/vendor_completions.d/symphony.fish; do
    [[ -s $root/usr/share/$file ]] || fail "/usr/share/$file is missing"
done
cp "$ROOT/deploy/models/digits/digits.onnx" "$root/tmp/"
inside symphony profile /tmp/digits.onnx --batch-max 2 --out /tmp/digits.toml | tail -n 3
for role in scheduler frontend backend; do
    # The sample is a configuration for every role as it is.
    inside symphony $role --config /etc/symphony/symphony.toml --dump-config >/dev/null
done

phase "the units"
for unit in "$root"/lib/systemd/system/symphony-*.service; do
    said=$(SYSTEMD_UNIT_PATH="$root/lib/systemd/system:/lib/systemd/system:" systemd-analyze --root="$root" --recursive-errors=no verify "$(basename "$unit")" 2>&1) || true
    [[ -z $said ]] || fail "$(basename "$unit"): $said"
    exposure=$(systemd-analyze security --offline=true "$unit" 2>/dev/null | tail -n 1 | grep -oE '[0-9]+\.[0-9]+ [A-Z]+' | head -n 1) || true
    say "$(basename "$unit"): verified; exposure ${exposure:-unknown}"
done

phase "an upgrade leaves what the administrator changed, and does without what he deleted"
upgrade() { inside env DEBIAN_FRONTEND=noninteractive dpkg --force-confold -i /tmp/symphony.deb >/dev/null || fail "$1"; }
rights() { inside stat -c '%U:%G %a' "$1"; }
cp "$work/symphony.deb" "$root/tmp/"
echo '# changed' >>"$root/etc/symphony/symphony.toml"
inside chown root:root /etc/symphony/symphony.toml
inside chown root:adm /etc/symphony/pki
upgrade "an upgrade fails over a changed configuration"
[[ $(tail -n 1 "$root/etc/symphony/symphony.toml") == '# changed' ]] || fail "an upgrade took a changed configuration away"
[[ $(rights /etc/symphony/symphony.toml) == 'root:root 640' && $(rights /etc/symphony/pki) == 'root:adm 750' ]] ||
    fail "an upgrade changed rights: $(rights /etc/symphony/symphony.toml), $(rights /etc/symphony/pki)"
rm "$root/etc/symphony/symphony.toml"
upgrade "an upgrade fails over a deleted configuration"
[[ ! -e $root/etc/symphony/symphony.toml ]] || fail "an upgrade brought a deleted configuration back"
inside /var/lib/dpkg/info/symphony.postinst configure "$(dpkg-deb -f "$deb" Version)" || fail "reconfiguration fails over a deleted configuration"
inside dpkg --force-confmiss -i /tmp/symphony.deb >/dev/null || fail "--force-confmiss does not bring the configuration back"
[[ -e $root/etc/symphony/symphony.toml ]] || fail "--force-confmiss brought no configuration"

phase "removal leaves configuration and data, purge nothing"
touch "$root/var/lib/symphony/models/kept"
inside dpkg --remove symphony >/dev/null
[[ ! -e $root/usr/bin/symphony && ! -e $root/usr/lib/symphony && -e $root/etc/symphony/symphony.toml && -e $root/var/lib/symphony/models/kept ]] ||
    fail "removal took too much or too little"
inside dpkg --purge symphony >/dev/null
[[ ! -e $root/etc/symphony && ! -e $root/var/lib/symphony ]] || fail "purge left something"
say "passed"
