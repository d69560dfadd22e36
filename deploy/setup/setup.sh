#!/usr/bin/env bash
# Installs what the build, the demo and the tests need beyond a Rust toolchain, and nothing that is already there.
#
#   deploy/setup/setup.sh            a C compiler, make, Python with pip, and ONNX Runtime in .cache/onnxruntime
#   deploy/setup/setup.sh --tests    also the Python packages of the tests, in .cache/venv, HiGHS, in .cache/highs,
#                                    Prometheus, in .cache/prometheus, and on Debian QEMU and a guest with RDMA, in .cache/rdma; where
#                                    kubectl or kustomize is, Helm, in .cache/helm; where Chromium is, playwright, which drives it, in
#                                    .cache/venv
#   deploy/setup/setup.sh --benches  also ONNX Runtime for Python, which benches/ort_overhead.py compares with, in .cache/venv
#
# Nothing outside .cache is touched but Debian packages, and those only as root or with a sudo that asks nothing.
# Exit status: 0 all is there; 1 a download failed; 2 wrong usage, or something must be installed by hand.
set -euo pipefail

# The executor accepts 1.23 and later; docs/adr/0003-onnx-runtime-loading.md says why this one.
readonly ONNXRUNTIME_VERSION=1.31.1
# The wheel is only unpacked for its library, so any Python it was built for will do, whatever runs here.
readonly ONNXRUNTIME_WHEEL_PYTHON=312
# It holds the schemas of the releases that deploy/kubernetes/check.py names.
readonly KUBERNETES_VALIDATE=1.37.0
readonly TEST_CLIENTS=('tritonclient[grpc,http]' numpy "kubernetes-validate==$KUBERNETES_VALIDATE")

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
readonly ROOT CACHE=$ROOT/.cache
readonly RUNTIME_DIR=$CACHE/onnxruntime VENV=$CACHE/venv
readonly RUNTIME_LIBRARY=$RUNTIME_DIR/onnxruntime/capi/libonnxruntime.so.$ONNXRUNTIME_VERSION

# shellcheck source=deploy/setup/common.sh
source "$ROOT/deploy/setup/common.sh"

# Debian splits pip and venv from Python, so that `python3` alone proves nothing.
have_pip() { have python3 && python3 -m pip --version >/dev/null 2>&1; }
have_venv() { have python3 && python3 -c 'import venv, ensurepip' >/dev/null 2>&1; }

missing_packages() {
    have cc || echo gcc libc6-dev
    have make || echo make
    have python3 || echo python3
    if [[ $1 != without_tests ]]; then
        have_venv || echo python3-venv
        [[ $1 != with_tests ]] || have pkg-config || echo pkg-config
    else
        have_pip || have_venv || echo python3-pip
    fi
}

install_packages() {
    local -a packages as_root=()
    mapfile -t packages < <(missing_packages "$1" | tr ' ' '\n')
    ((${#packages[@]} > 0)) || return 0

    local by_hand="missing: ${packages[*]}; install them with: sudo apt-get install -y ${packages[*]}"
    have apt-get || stop 2 "missing: ${packages[*]} (names of Debian packages); install them with this system's package manager"
    if ((EUID != 0)); then
        { have sudo && sudo -n true 2>/dev/null; } || stop 2 "$by_hand"
        as_root=(sudo -n)
    fi
    say "installing Debian packages: ${packages[*]}"
    quietly "${as_root[@]}" apt-get update -q || say "the package lists could not be refreshed; trying with the old ones"
    quietly "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${packages[@]}" ||
        stop 2 "$by_hand"
}

make_venv() {
    [[ -x $VENV/bin/python ]] && "$VENV/bin/python" -m pip --version >/dev/null 2>&1 && return 0
    say "making a Python environment in ${VENV#"$ROOT"/}"
    rm -rf "$VENV"
    mkdir -p "$CACHE"
    quietly python3 -m venv "$VENV" || stop 1 "python3 -m venv $VENV failed"
}

# `pip download` installs nothing, so an externally managed Python (PEP 668) does not refuse it.
pip_download() {
    local -a pip=(python3 -m pip)
    if ! have_pip; then
        make_venv
        pip=("$VENV/bin/python" -m pip)
    fi
    quietly "${pip[@]}" download --quiet --disable-pip-version-check "$@"
}

install_runtime() {
    [[ -s $RUNTIME_LIBRARY ]] && return 0
    local machine staging
    machine=$(uname -m)
    case $machine in
    x86_64 | aarch64) ;;
    *) stop 2 "there is no ONNX Runtime wheel for $machine; build the library and set SYMPHONY_ONNXRUNTIME to its path" ;;
    esac

    say "downloading ONNX Runtime $ONNXRUNTIME_VERSION for $machine"
    mkdir -p "$CACHE"
    # Unpacked beside its place and then moved, so that an interrupted run leaves nothing half done.
    staging=$(mktemp -d "$CACHE/onnxruntime.XXXXXX")
    # shellcheck disable=SC2064 # the folder of this run, not of a later one
    trap "rm -rf '$staging'" EXIT
    pip_download --no-deps --only-binary=:all: --implementation cp \
        --python-version "$ONNXRUNTIME_WHEEL_PYTHON" --abi "cp$ONNXRUNTIME_WHEEL_PYTHON" \
        --platform "manylinux_2_28_$machine" --platform "manylinux_2_27_$machine" --platform "manylinux2014_$machine" \
        --dest "$staging" "onnxruntime==$ONNXRUNTIME_VERSION" ||
        stop 1 "could not download onnxruntime==$ONNXRUNTIME_VERSION; is a Python package index within reach?"
    quietly python3 - "$staging" <<'PYTHON' || stop 1 "the ONNX Runtime wheel could not be unpacked"
import glob, sys, zipfile

staging = sys.argv[1]
(wheel,) = glob.glob(f"{staging}/*.whl")
wanted = ("onnxruntime/capi/libonnxruntime.so.", "onnxruntime/LICENSE", "onnxruntime/ThirdPartyNotices")
with zipfile.ZipFile(wheel) as archive:
    archive.extractall(staging, [name for name in archive.namelist() if name.startswith(wanted)])
PYTHON
    [[ -s $staging/onnxruntime/capi/libonnxruntime.so.$ONNXRUNTIME_VERSION ]] ||
        stop 1 "the ONNX Runtime wheel holds no libonnxruntime.so.$ONNXRUNTIME_VERSION"
    rm -rf "$RUNTIME_DIR/onnxruntime"
    mkdir -p "$RUNTIME_DIR"
    mv "$staging/onnxruntime" "$RUNTIME_DIR/onnxruntime"
}

install_test_clients() {
    make_venv
    "$VENV/bin/python" -c "import importlib.metadata, numpy, sys, tritonclient.grpc, tritonclient.http
sys.exit(importlib.metadata.version('kubernetes-validate') != '$KUBERNETES_VALIDATE')" >/dev/null 2>&1 && return 0
    say "installing the clients of the integration tests: ${TEST_CLIENTS[*]}"
    quietly "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check "${TEST_CLIENTS[@]}" ||
        stop 1 "could not install ${TEST_CLIENTS[*]}; is a Python package index within reach?"
}

# The browser is the system's: playwright's own is a download of half a gigabyte.
install_browser_driver() {
    have chromium || have chromium-browser || have google-chrome || have google-chrome-stable || {
        say "there is no Chromium: the test of the console in a browser will be skipped"
        return 0
    }
    "$VENV/bin/python" -c 'import playwright' >/dev/null 2>&1 && return 0
    say "installing playwright, which drives Chromium in tests"
    quietly "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check playwright ||
        say "could not install playwright: the test of the console in a browser will be skipped"
}

# Where neither is, no manifest is checked, and so no chart.
install_helm() {
    have kubectl || have kustomize || return 0
    "$ROOT/deploy/setup/helm.sh" || say "Helm is not there: the check of the Helm chart will be skipped"
}

install_python_runtime() {
    make_venv
    "$VENV/bin/python" -c "import numpy, onnxruntime, sys; sys.exit(onnxruntime.__version__ != '$ONNXRUNTIME_VERSION')" >/dev/null 2>&1 &&
        return 0
    say "installing ONNX Runtime $ONNXRUNTIME_VERSION for Python"
    quietly "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check "onnxruntime==$ONNXRUNTIME_VERSION" numpy ||
        stop 1 "could not install onnxruntime==$ONNXRUNTIME_VERSION; is a Python package index within reach?"
}

main() {
    local mode=without_tests
    case ${1-} in
    '') ;;
    --tests) mode=with_tests ;;
    --benches) mode=with_benches ;;
    -h | --help)
        sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
        exit 0
        ;;
    *) stop 2 "unknown argument \`$1\`; expected --tests, --benches, --help or nothing" ;;
    esac
    (($# <= 1)) || stop 2 "got $# arguments; expected at most one"

    have cargo || stop 2 "cargo is missing; install a Rust toolchain with rustup, then run this again"
    install_packages "$mode"
    install_runtime
    [[ $mode != with_benches ]] || install_python_runtime
    [[ $mode != with_tests ]] || install_test_clients
    [[ $mode != with_tests ]] || install_browser_driver
    [[ $mode != with_tests ]] || "$ROOT/deploy/setup/highs.sh" >/dev/null ||
        say "HiGHS is not there: \`make test\` will fail; \`cargo xtask verify\` skips the tests of the exact solver"
    [[ $mode != with_tests ]] || "$ROOT/deploy/setup/prometheus.sh" ||
        say "Prometheus is not there: \`make test\` will fail; \`cargo xtask verify\` skips the tests of metrics and alerts by it"
    [[ $mode != with_tests ]] || install_helm
    [[ $mode != with_tests ]] || "$ROOT/deploy/setup/rdma.sh" --guest >/dev/null ||
        say "there is no guest with RDMA: its tests will be skipped"
}

main "$@"
