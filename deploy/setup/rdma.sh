#!/usr/bin/env bash
# Installs what the cargo feature `rdma` needs to build, and what `make test-rdma` boots: Debian packages, and a kernel with
# Soft-RoCE in .cache/rdma, unpacked and never installed.
#
#   deploy/setup/rdma.sh            to build: cmake, libclang, libnl and libibverbs
#   deploy/setup/rdma.sh --guest    also QEMU, busybox, and the kernel
#
# Standard output is what a build needs in its environment:  eval "$(deploy/setup/rdma.sh)"
# Exit status: 0 all is there; 1 a download failed; 2 wrong usage, or something must be installed by hand;
# 3 this system has no such packages.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
readonly ROOT DIR=$ROOT/.cache/rdma
# Modules of the guest; what they need comes with them.
readonly MODULES=(rdma_rxe ib_uverbs veth crc32_generic crc32c_generic)

# shellcheck source=deploy/setup/common.sh
source "$ROOT/deploy/setup/common.sh"

installed() { dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q '^install ok installed'; }

# The newest libclang that the generator of the bindings (bindgen 0.71) understands: with clang 20 and later it gets structures
# wrong.
libclang_package() {
    local version
    for version in 19 18 17 16 15 14; do
        apt-cache show "libclang1-$version" >/dev/null 2>&1 && echo "libclang1-$version" && return
    done
    echo libclang1-14
}

missing() {
    local name
    for name in "$@"; do installed "$name" || echo "$name"; done
}

install_packages() {
    local -a packages as_root=()
    mapfile -t packages < <(missing "$@")
    ((${#packages[@]} > 0)) || return 0
    local by_hand="missing: ${packages[*]}; install them with: sudo apt-get install -y ${packages[*]}"
    if ((EUID != 0)); then
        { have sudo && sudo -n true 2>/dev/null; } || stop 2 "$by_hand"
        as_root=(sudo -n)
    fi
    say "installing Debian packages: ${packages[*]}"
    quietly "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${packages[@]}" ||
        { say "$by_hand"; return 1; }
}

refresh() {
    ((EUID == 0)) && { quietly apt-get update -q || say "the package lists could not be refreshed; trying with the old ones"; return; }
    { have sudo && sudo -n true 2>/dev/null && quietly sudo -n apt-get update -q; } || say "the package lists are not refreshed"
}

# The kernel's image, and an archive with the modules, busybox and the RDMA library's provider of Soft-RoCE.
prepare_guest() {
    [[ -s $DIR/vmlinuz && -s $DIR/base.cpio ]] && return 0
    local kernel staging root release modules module file
    kernel=$(apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
    [[ -n $kernel ]] || stop 3 "this system has no package linux-image-amd64, whose kernel has Soft-RoCE"
    mkdir -p "$ROOT/.cache"
    staging=$(mktemp -d "$ROOT/.cache/rdma.XXXXXX")
    # shellcheck disable=SC2064 # the folder of this run, not of a later one
    trap "rm -rf '$staging'" EXIT
    # apt drops its rights for the download, and needs to get at the place.
    chmod 755 "$staging"
    say "downloading $kernel (70 MB), which is unpacked and not installed"
    (cd "$staging" && quietly apt-get download -q "$kernel") || stop 1 "could not download $kernel"
    dpkg-deb --fsys-tarfile "$staging"/linux-image-*.deb |
        tar -x -C "$staging" --wildcards './boot/vmlinuz-*' './lib/modules/*/modules.*' './lib/modules/*/kernel/arch/*' \
            './lib/modules/*/kernel/crypto/*' './lib/modules/*/kernel/lib/*' './lib/modules/*/kernel/net/ipv*' \
            './lib/modules/*/kernel/drivers/infiniband/*' './lib/modules/*/kernel/drivers/net/veth.ko'
    rm -f "$staging"/linux-image-*.deb
    release=$(basename "$staging"/lib/modules/*)
    modules=$staging/lib/modules/$release
    root=$staging/root
    mkdir -p "$root"/{bin,dev,proc,sys,tmp,etc,usr/bin} "$root/lib/modules/$release"
    cp "$(command -v busybox)" "$root/bin/busybox"
    cp "$modules"/modules.{builtin,order} "$root/lib/modules/$release/"
    local -A seen=()
    local -a open=("${MODULES[@]}")
    while ((${#open[@]} > 0)); do
        module=${open[0]//-/_}
        open=("${open[@]:1}")
        [[ -n $module && -z ${seen[$module]:-} ]] || continue
        seen[$module]=1
        file=$(find "$modules/kernel" \( -name "$module.ko" -o -name "${module//_/-}.ko" \) | head -n 1)
        # What is not there is built in.
        [[ -n $file ]] || continue
        file=${file#"$modules"/}
        mkdir -p "$root/lib/modules/$release/$(dirname "$file")"
        cp "$modules/$file" "$root/lib/modules/$release/$file"
        mapfile -t -O "${#open[@]}" open < <(modinfo -F depends "$modules/$file" | tr ',' '\n')
    done
    [[ -n $(find "$root" -name 'rdma_rxe.ko') ]] || stop 3 "$kernel has no module rdma_rxe"
    depmod -b "$root" "$release"
    (cd "$root" && find . | cpio --quiet -o -H newc) >"$staging/base.cpio"
    mkdir -p "$DIR"
    mv "$staging/base.cpio" "$DIR/base.cpio"
    mv "$staging/boot/vmlinuz-$release" "$DIR/vmlinuz"
}

environment() {
    local library
    library=$(dpkg -L "$1" | grep -E '/libclang-[0-9.]*\.so[0-9.]*$' | head -n 1)
    [[ -n $library ]] || stop 1 "package $1 has no libclang"
    # By its file, since a newer one may be there too. It brings no headers of its own; the compiler's will do.
    printf "export LIBCLANG_PATH='%s'\n" "$library"
    printf "export BINDGEN_EXTRA_CLANG_ARGS='-isystem %s'\n" "$(gcc -print-file-name=include)"
}

main() {
    local -a build guest=()
    case ${1-} in
    '') ;;
    --guest) guest=(qemu-system-x86 busybox-static kmod cpio iproute2 ibverbs-providers) ;;
    -h | --help)
        sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
        exit 0
        ;;
    *) stop 2 "unknown argument \`$1\`; expected --guest, --help or nothing" ;;
    esac
    have apt-get || stop 3 "this system has no apt-get; install cmake, libclang, libnl and libibverbs with its own tools"
    [[ -z ${guest[*]} || $(uname -m) == x86_64 ]] || stop 3 "the guest is made for x86_64 only"
    build=(gcc libc6-dev make pkg-config cmake libnl-3-dev libnl-route-3-dev libibverbs-dev "$(libclang_package)")
    if [[ -n $(missing "${build[@]}" "${guest[@]}") ]]; then
        refresh
        build[-1]=$(libclang_package)
        install_packages "${build[@]}" "${guest[@]}" || exit 3
    fi
    [[ -z ${guest[*]} ]] || prepare_guest
    environment "${build[-1]}"
}

main "$@"
