#!/usr/bin/env bash
# Runs the device tests and records the figures of docs/operating/cuda.md on this machine's first GPU. Everything it needs lies beside it
# (deploy/cuda/kit.sh); no network, no compiler. It changes nothing on the GPU's settings, and ends within nine minutes:
# the limits of its steps add up to less.
#
#   figures.sh OUT_DIR
#   SYMPHONY=target/debug/symphony figures.sh --dry-run OUT_DIR    only the goodput part, on an emulated GPU, to try the script itself
#
# ONNX Runtime with CUDA, if there is one: SYMPHONY_ONNXRUNTIME=/path/to/libonnxruntime.so.VERSION, with its
# libonnxruntime_providers_*.so beside it and the CUDA libraries that it was built for in LD_LIBRARY_PATH.
# Exit status: 0 all was run; 1 something failed (summary.txt says what); 2 bad usage, or a program is missing; 3 skipped: no CUDA device.
set -uo pipefail

dry_run=
[[ ${1:-} != --dry-run ]] || { dry_run=1; shift; }
[[ $# == 1 ]] || { echo "usage: figures.sh [--dry-run] OUT_DIR" >&2; exit 2; }
mkdir -p "$1"
OUT=$(cd "$1" && pwd)
KIT=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
WORK=$(mktemp -d)
# As an absolute path: the cluster is started from another folder.
SYMPHONY=$(realpath "${SYMPHONY:-$KIT/symphony}") || exit 2
readonly OUT KIT WORK SYMPHONY KIND=lent UP_WITHIN_S=30
readonly SUMMARY=$OUT/summary.txt
# ResNet50 on a GTX 1080 Ti, as in Table 4 of the Symphony paper: its SLO, and pictures of 224 x 224 x 3 bytes.
readonly ALPHA_MS=1.053 BETA_MS=5.072 SLO_MS=25 BATCH_MAX=32 ITEM_BYTES=150528
readonly RATES="300 400 450 500 550"
# Every step would fail as "command not found", one after the other.
needed=("$SYMPHONY")
[[ -n $dry_run ]] || needed+=("$KIT/cuda_device")
for program in "${needed[@]}"; do
    [[ -f $program && -x $program ]] || { echo "figures.sh: $program is not a program: make the kit (deploy/cuda/kit.sh), or name one with SYMPHONY" >&2; exit 2; }
done
cluster=

ended() {
    if [[ -n $cluster ]]; then
        # A GPU that hangs does not keep the script.
        { sleep 10; kill -KILL "$cluster"; } >/dev/null 2>&1 &
        kill -INT "$cluster" 2>/dev/null && wait "$cluster" 2>/dev/null
        kill $! 2>/dev/null
    fi
    rm -rf "$WORK"
}
trap ended EXIT

failed=0
say() { echo "$*" | tee -a "$SUMMARY"; }
# step NAME SECONDS COMMAND...: its output is NAME.log; whether it passed is in the summary.
step() {
    local name=$1 seconds=$2 begin=$SECONDS status=0
    shift 2
    timeout --kill-after=5 "$seconds" "$@" >"$OUT/$name.log" 2>&1 || status=$?
    say "$name: exit $status after $((SECONDS - begin)) s"
    [[ $status == 0 ]] || failed=1
    return "$status"
}

: >"$SUMMARY"
say "$(date -u +%Y-%m-%dT%H:%M:%SZ) $(uname -sr) $(nproc) cores"
# The toolkit's own places, and those of NVIDIA's Python packages: cuBLASLt is in one of them.
for lib in /usr/local/cuda/lib64 $(python3 -c 'import glob, sysconfig
print(*glob.glob(sysconfig.get_path("purelib") + "/nvidia/*/lib"))' 2>/dev/null); do
    [[ -d $lib ]] && LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$lib
done
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}

if [[ -z $dry_run ]]; then
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null | tee -a "$SUMMARY"
    # The question that everything else asks, asked once: a GPU opens, multiplies and copies, or it does not.
    if ! step probe 20 "$SYMPHONY" profile gemm --alpha-ms 1 --beta-ms 5 --batch-max 1 --runs 1 --gpu-kind $KIND; then
        if grep -q "no CUDA device" "$OUT/probe.log"; then
            say "skipped: $(grep -m 1 "no CUDA device" "$OUT/probe.log")"
            exit 3
        fi
        # A library that is missing, say: what follows shows what goes without.
        say "    $(tail -n 1 "$OUT/probe.log")"
    fi

    SYMPHONY_TEST_REQUIRE=cuda step device-tests 100 "$KIT/cuda_device" --nocapture --test-threads=1
    grep -E "^test |skipped|test result" "$OUT/device-tests.log" >>"$SUMMARY"

    step gemm 50 "$SYMPHONY" profile gemm --alpha-ms $ALPHA_MS --beta-ms $BETA_MS --batch-max $BATCH_MAX \
        --item-bytes $ITEM_BYTES --gpu-kind $KIND --out "$OUT/gemm.profile.toml" --timeline "$OUT/gemm.timeline.json"
    tail -n 40 "$OUT/gemm.log" >>"$SUMMARY"

    if [[ -n ${SYMPHONY_ONNXRUNTIME:-} ]]; then
        "$SYMPHONY" model generate resnet50 "$WORK/resnet50.onnx" >"$OUT/generate.log" 2>&1
        # Loading runs each batch size once, for which ONNX Runtime tries all kernels; it is loaded twice.
        step onnx 120 "$SYMPHONY" profile "$WORK/resnet50.onnx" --device cuda:0 --gpu-kind $KIND --batch-max 8 \
            --out "$OUT/resnet50.profile.toml" --timeline "$OUT/resnet50.timeline.json"
        tail -n 20 "$OUT/onnx.log" >>"$SUMMARY"
    else
        say "onnx: not run, SYMPHONY_ONNXRUNTIME names no ONNX Runtime with CUDA"
    fi
fi

# What a report says of all models together. Its own lag has a p99 as well, so only what follows "total" is looked at.
total() {
    tr -d ' \n' <"$1" | sed 's/.*"total"://' | grep -oE '"(bad_rate|p99_ms|mean_batch|lost|foreign)":[0-9.]+' | tr '\n' ' '
}

# Waits until the backend and the frontend are members; their certificates are there then, too.
is_up() {
    local until=$((SECONDS + UP_WITHIN_S)) members
    while ((SECONDS < until)) && kill -0 "$cluster" 2>/dev/null; do
        members=$("$SYMPHONY" get members 2>>"$OUT/members.log")
        grep -qw backend-1 <<<"$members" && grep -qw frontend-1 <<<"$members" && return 0
        sleep 0.2
    done
    return 1
}

# Goodput of one GPU: the highest rate at which the 99th percentile is within the SLO, deferred and at once.
goodput() {
    local policy rate report status executor=cuda-gemm profile=(--profile "$OUT/gemm.profile.toml")
    if [[ -n $dry_run ]]; then
        executor=emulated
        profile=(--gpu-kind $KIND --alpha-ms $ALPHA_MS --beta-ms $BETA_MS --batch-max $BATCH_MAX)
    fi
    cd "$WORK" || return 1
    export SYMPHONY_PKI=$WORK/up/pki
    "$SYMPHONY" up --config "$KIT/one-gpu.toml" --set "backend.executor=$executor" --dir "$WORK/up" >"$OUT/up.log" 2>&1 &
    cluster=$!
    if ! is_up; then
        say "goodput: the cluster did not come up within $UP_WITHIN_S s: $(tail -n 1 "$OUT/up.log")"
        failed=1
        return 1
    fi
    for policy in symphony eager; do
        step "load-model-$policy" 35 "$SYMPHONY" model load "$policy" --emulated "${profile[@]}" \
            --slo-ms $SLO_MS --policy "$policy" --wait-s 32 || continue
        for rate in $RATES; do
            report=$OUT/load-$policy-$rate.json status=0
            timeout 12 "$SYMPHONY" load --model "$policy=$rate" --duration-s 5 --warmup-s 1 --protocol native \
                --identity frontend-load -o json >"$report" 2>"$OUT/load-$policy-$rate.log" || status=$?
            say "goodput $policy $rate r/s: exit $status, $(total "$report")"
            # A generator that lagged has measured itself.
            [[ $status == 0 ]] || say "    $(tail -n 1 "$OUT/load-$policy-$rate.log")"
            # Beyond what one GPU can do requests are bad, which is a figure; no report is a failure.
            [[ -s $report ]] || failed=1
        done
        step "unload-model-$policy" 8 "$SYMPHONY" model unload "$policy"
    done
    cp "$WORK"/up/logs/*backend* "$OUT/" 2>/dev/null
}
if [[ -n $dry_run || -s $OUT/gemm.profile.toml ]]; then
    goodput
fi
say "$([[ $failed == 0 ]] && echo done || echo "failed: see above") after $SECONDS s"
exit "$failed"
