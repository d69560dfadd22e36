#!/usr/bin/env bash
# Runs the device tests and records the figures of docs/cuda.md on this machine's first GPU. Everything it needs lies beside it
# (deploy/cuda/kit.sh); no network, no compiler. It changes nothing on the GPU's settings, and ends within eight minutes.
#
#   figures.sh OUT_DIR
#
# ONNX Runtime with CUDA, if there is one: SYMPHONY_ONNXRUNTIME=/path/to/libonnxruntime.so.VERSION, with its
# libonnxruntime_providers_*.so beside it and the CUDA libraries that it was built for in LD_LIBRARY_PATH.
# Exit status: 0 all was run; 1 something failed (summary.txt says what); 3 skipped: no CUDA device.
set -uo pipefail

[[ $# == 1 ]] || { echo "usage: figures.sh OUT_DIR" >&2; exit 2; }
mkdir -p "$1"
OUT=$(cd "$1" && pwd)
KIT=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
WORK=$(mktemp -d)
readonly OUT KIT WORK KIND=lent
readonly SUMMARY=$OUT/summary.txt
# ResNet50 on a GTX 1080 Ti, as in the paper (seed 000, table 4): its SLO, and pictures of 224 x 224 x 3 bytes.
readonly ALPHA_MS=1.053 BETA_MS=5.072 SLO_MS=25 BATCH_MAX=32 ITEM_BYTES=150528
readonly RATES="300 400 450 500 550"
cluster=

ended() {
    if [[ -n $cluster ]]; then
        kill -INT "$cluster" 2>/dev/null && wait "$cluster" 2>/dev/null
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

# The question that everything else asks, asked once: a GPU opens or it does not.
"$KIT/symphony" profile gemm --alpha-ms 1 --beta-ms 5 --batch-max 1 --runs 1 --gpu-kind $KIND >"$OUT/probe.log" 2>&1
if grep -q "no CUDA device" "$OUT/probe.log"; then
    say "skipped: $(grep -m 1 "no CUDA device" "$OUT/probe.log")"
    exit 3
fi
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null | tee -a "$SUMMARY"

SYMPHONY_TEST_REQUIRE=cuda step device-tests 90 "$KIT/cuda_device" --nocapture --test-threads=1
grep -E "^test |skipped|test result" "$OUT/device-tests.log" >>"$SUMMARY"

step gemm 60 "$KIT/symphony" profile gemm --alpha-ms $ALPHA_MS --beta-ms $BETA_MS --batch-max $BATCH_MAX \
    --item-bytes $ITEM_BYTES --gpu-kind $KIND --out "$OUT/gemm.profile.toml" --timeline "$OUT/gemm.timeline.json"
tail -n 40 "$OUT/gemm.log" >>"$SUMMARY"

if [[ -n ${SYMPHONY_ONNXRUNTIME:-} ]]; then
    "$KIT/symphony" model generate resnet50 "$WORK/resnet50.onnx" >"$OUT/generate.log" 2>&1
    step onnx 80 "$KIT/symphony" profile "$WORK/resnet50.onnx" --device cuda:0 --gpu-kind $KIND --batch-max 16 \
        --out "$OUT/resnet50.profile.toml" --timeline "$OUT/resnet50.timeline.json"
    tail -n 20 "$OUT/onnx.log" >>"$SUMMARY"
else
    say "onnx: not run, SYMPHONY_ONNXRUNTIME names no ONNX Runtime with CUDA"
fi

# Goodput of one GPU: the highest rate at which the 99th percentile is within the SLO, deferred and at once.
if [[ -s $OUT/gemm.profile.toml ]]; then
    cd "$WORK" || exit 1
    "$KIT/symphony" up --config "$KIT/one-gpu.toml" --dir "$WORK/up" >"$OUT/up.log" 2>&1 &
    cluster=$!
    for policy in symphony eager; do
        step "load-model-$policy" 40 "$KIT/symphony" model load "$policy" --emulated --profile "$OUT/gemm.profile.toml" \
            --slo-ms $SLO_MS --policy "$policy" --wait-s 35 || continue
        for rate in $RATES; do
            report=$OUT/load-$policy-$rate.json
            timeout 12 "$KIT/symphony" load --model "$policy=$rate" --duration-s 5 --warmup-s 1 --protocol native -o json \
                >"$report" 2>"$OUT/load-$policy-$rate.log"
            say "goodput $policy $rate r/s: exit $?," "$(grep -oE '"(bad_rate|p99_ms|mean_batch|lost|foreign)": ?[0-9.]+' "$report" | sort -u | tr '\n' ' ')"
        done
        step "unload-model-$policy" 10 "$KIT/symphony" model unload "$policy"
    done
    cp "$WORK"/up/logs/*backend* "$OUT/" 2>/dev/null
fi
say "$([[ $failed == 0 ]] && echo done || echo "failed: see above") after $SECONDS s"
exit "$failed"
