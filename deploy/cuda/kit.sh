#!/usr/bin/env bash
# Builds what a machine with a GPU, and without a network or a Rust toolchain, needs to run the device tests and record the figures of
# docs/operating/cuda.md: .cache/cuda-kit, whose size is printed last. It needs no CUDA here.
#
#   deploy/cuda/kit.sh [TARGET_DIR]     TARGET_DIR is cargo's, target/ if not given
#
# There, from the folder that has .cache/cuda-kit:   bash .cache/cuda-kit/figures.sh OUT_DIR
# Exit status: 0 the kit is there; 1 something failed.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
readonly ROOT KIT=$ROOT/.cache/cuda-kit TARGET=${1:-$ROOT/target}
cd "$ROOT"

cargo build --release --locked --package symphony --target-dir "$TARGET"
# Cargo says where it has put the test's program: its name ends in a hash.
tests=$(cargo test --release --locked --package symphony-executor-gpu --test cuda_device --no-run --target-dir "$TARGET" \
    --message-format json | sed -n 's/.*"executable":"\([^"]*cuda_device[^"]*\)".*/\1/p' | tail -n 1)
[[ -x $tests ]] || { echo "kit: cargo did not say where the device tests are" >&2; exit 1; }

rm -rf "$KIT"
mkdir -p "$KIT"
cp "$TARGET/release/symphony" "$KIT/symphony"
cp "$tests" "$KIT/cuda_device"
cp deploy/cuda/figures.sh deploy/cuda/one-gpu.toml "$KIT/"
strip "$KIT/symphony" "$KIT/cuda_device"
du -sh "$KIT"
