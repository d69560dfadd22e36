# What every package holds: the program and ONNX Runtime; read by the scripts that make packages, not run. Needs ROOT and common.sh.
# Sets: program, runtime (paths), version, machine (as Debian calls it).
# shellcheck shell=bash disable=SC2034

program=${BINARY:-$ROOT/target/release/symphony}
[[ -x $program ]] || stop 2 "$program is missing; run \`make build\`, or name another one with BINARY"
version=$("$program" --version | awk '{ print $2 }')
case $(uname -m) in
x86_64) machine=amd64 ;;
aarch64) machine=arm64 ;;
*) stop 2 "there is no ONNX Runtime wheel for $(uname -m)" ;;
esac
runtime=$(find "$ROOT/.cache/onnxruntime" -name 'libonnxruntime.so.*' -type f 2>/dev/null | sort -V | tail -n 1)
[[ -n $runtime ]] || stop 2 "ONNX Runtime is missing in .cache/onnxruntime; run \`make setup\`"

# Symbols and line tables are for the checkout's own binary; a panic says file and line without them.
strip_program() { strip "$1"; }
