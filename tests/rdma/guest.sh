#!/usr/bin/env bash
# Runs programs of this machine in a small virtual one that has an RDMA device in software (Soft-RoCE, `rxe0`).
#
#   tests/rdma/guest.sh SCRIPT PROGRAM...    SCRIPT is run there by sh, with the programs in /usr/bin
#
# `deploy/setup/rdma.sh --guest` has to be run before. GUEST_SECONDS bounds the whole run (default 240), GUEST_CPUS and
# GUEST_MB are the guest's processors and memory. Output is the guest's; the exit status is that of SCRIPT, 98 if the guest
# does not come up, 99 if it does not end in time.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CACHE=$(cd "$HERE/../.." && pwd)/.cache/rdma
readonly HERE CACHE
# A guest that says nothing for so long after its start does not boot: with KVM on some machines it never does.
readonly UP_SECONDS_KVM=20 UP_SECONDS_TCG=120

say() { printf 'guest.sh: %s\n' "$*" >&2; }

(($# >= 1)) || { say "expected a script and programs"; exit 2; }
[[ -s $CACHE/vmlinuz && -s $CACHE/base.cpio ]] || { say "run deploy/setup/rdma.sh --guest first"; exit 2; }
script=$1
shift

work=$(mktemp -d)
qemu=
end() {
    [[ -z $qemu ]] || kill -KILL "$qemu" 2>/dev/null || true
    rm -rf "$work"
}
trap end EXIT

# What is the same each time is in base.cpio; the kernel unpacks one archive after the other.
root=$work/root
mkdir -p "$root/usr/bin" "$root/etc/libibverbs.d"
add() {
    local library
    install -m 755 "$1" "$root/usr/bin/$(basename "$1")"
    for library in $(ldd "$1" 2>/dev/null | grep -o '/[^ ]*'); do
        mkdir -p "$root$(dirname "$library")"
        cp -nL "$library" "$root$library"
    done
}
for program in "$(command -v ip)" "$(command -v rdma)" "$@"; do add "$program"; done
# Debug information is most of a program, and all of it is unpacked into memory.
for program in "$@"; do strip --strip-debug "$root/usr/bin/$(basename "$program")"; done
# It is opened by name when the library starts, so ldd does not show it.
provider=$(find /usr/lib -path '*/libibverbs/librxe-*.so' | head -n 1)
[[ -n $provider ]] || { say "libibverbs has no provider for rxe; install ibverbs-providers"; exit 2; }
mkdir -p "$root$(dirname "$provider")"
cp "$provider" "$root$provider"
cp /etc/libibverbs.d/rxe.driver "$root/etc/libibverbs.d/"
cp "$HERE/init" "$root/init"
cp "$script" "$root/run.sh"
chmod 755 "$root/init"
(cd "$root" && find . | cpio --quiet -o -H newc) >"$work/own.cpio"
cat "$CACHE/base.cpio" "$work/own.cpio" >"$work/initrd"

boot() {
    local accelerator=$1 cpu=$2 up_seconds=$3 began=$SECONDS
    : >"$work/log"
    qemu-system-x86_64 -M q35 -accel "$accelerator" -cpu "$cpu" -smp "${GUEST_CPUS:-2}" -m "${GUEST_MB:-768}" \
        -nodefaults -no-user-config -display none -serial "file:$work/log" -nic none -no-reboot \
        -kernel "$CACHE/vmlinuz" -initrd "$work/initrd" \
        -append "console=ttyS0 panic=-1 quiet mitigations=off tsc=reliable" </dev/null 2>"$work/qemu" &
    qemu=$!
    tail -c +1 -f "$work/log" --pid=$qemu 2>/dev/null | sed -u -n '/guest: up/,$p' | tr -d '\r' &
    local shown=$!
    while kill -0 "$qemu" 2>/dev/null; do
        sleep 0.2
        if ! grep -q 'guest: up' "$work/log" && ((SECONDS - began > up_seconds)); then
            kill -KILL "$qemu" && wait "$qemu" 2>/dev/null || true
            qemu=
            return 98
        fi
        if ((SECONDS - began > ${GUEST_SECONDS:-240})); then
            say "not done after ${GUEST_SECONDS:-240} s"
            kill -KILL "$qemu" && wait "$qemu" 2>/dev/null || true
            qemu=
            return 99
        fi
    done
    wait "$qemu" 2>/dev/null || true
    qemu=
    wait "$shown" 2>/dev/null || true
    local status
    status=$(tr -d '\r' <"$work/log" | sed -n 's/^guest: status \([0-9]*\)$/\1/p' | tail -n 1)
    if [[ -z $status ]]; then
        say "the guest ended without a word; the end of what it said, and QEMU:"
        tail -n 20 "$work/log" "$work/qemu" >&2
        return 98
    fi
    return "$status"
}

status=98
if [[ ! -e $CACHE/no-kvm ]] && (: <>/dev/kvm) 2>/dev/null; then
    status=0
    say "with KVM"
    boot kvm host "$UP_SECONDS_KVM" || status=$?
    if ((status == 98)); then
        say "no guest comes up with this machine's KVM; remembered in ${CACHE##*/}/no-kvm"
        touch "$CACHE/no-kvm"
    fi
fi
if ((status == 98)); then
    status=0
    say "with QEMU's own processor (TCG)"
    boot tcg,thread=multi qemu64 "$UP_SECONDS_TCG" || status=$?
fi
exit "$status"
