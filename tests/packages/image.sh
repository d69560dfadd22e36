#!/usr/bin/env bash
# The image as its user meets it: a container of each role, one network, one request. With podman where that can run containers (any
# engine would do); else it says so and ends with 3.
#
#   tests/packages/image.sh [IMAGE]        localhost/symphony:VERSION of deploy/image/build.sh if none is named
#
# Exit status: 0 well; 1 not; 2 something is missing; 3 the engine runs no container on this machine, whatever is in it.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=deploy/setup/common.sh
source "$ROOT/deploy/setup/common.sh"
# shellcheck source=tests/packages/common.sh
source "$ROOT/tests/packages/common.sh"
for tool in podman curl; do have "$tool" || stop 2 "$tool is missing; run deploy/setup/packages.sh --tests"; done
image=${1:-localhost/symphony:$(sed -n 's/^version = "\(.*\)"/\1/p' "$ROOT/Cargo.toml" | head -n 1)}
podman --log-level=error image exists "$image" || stop 2 "there is no image $image; run deploy/image/build.sh"

# An engine's defaults ask for more open files than a sandbox may give.
options=(--ulimit "nofile=$(ulimit -Hn):$(ulimit -Hn)" --ulimit nproc=4096:4096 --read-only --cap-drop=all --security-opt=no-new-privileges
    --network=host)
work=$(mktemp -d "${TMPDIR:-/tmp}/symphony-image-test.XXXXXX")
containers=()
clean_up() {
    local status=$?
    ((status == 0)) || for name in "${containers[@]}"; do echo "--- $name"; "${engine[@]}" logs "$name" 2>&1 | tail -n 20; done >&2
    ((${#containers[@]} == 0)) || "${engine[@]}" rm -f -t 15 "${containers[@]}" >/dev/null 2>&1 || true
    rm -rf "$work"
    # A command's own 3 is not this script's.
    ((status != 3 || not_run)) || exit 1
}
not_run=0
trap clean_up EXIT

# The engine by itself: this machine's own `true`, so that an image that cannot start is not taken for an engine that cannot.
true=$(type -P true)
for file in "$true" $(ldd "$true" | grep -o '/[^ ]*'); do install -D -m 755 "$(readlink -f "$file")" "$work/engine$file"; done
chmod 755 "$work"
engine=()
for runtime in '' crun runc; do
    [[ -z $runtime ]] || have "$runtime" || continue
    engine=(podman --log-level=error ${runtime:+--runtime "$runtime"})
    "${engine[@]}" run --rm "${options[@]}" --rootfs "$work/engine" "$true" >"$work/engine.log" 2>&1 && break
    engine=()
done
((${#engine[@]})) || { say "NOT RUN: podman is here, but runs no container on this machine: $(tail -n 1 "$work/engine.log")"; not_run=1; exit 3; }
"${engine[@]}" run --rm "${options[@]}" "$image" --version || fail "the program does not start in its image"

phase "what is in it"
inspected() { podman --log-level=error inspect "$image" --format "$1"; }
[[ $(inspected '{{.Config.User}}') == 10001:10001 ]] || fail "it runs as $(inspected '{{.Config.User}}')"
[[ $(inspected '{{.Config.Entrypoint}}') == '[/usr/bin/symphony]' ]] || fail "entry point: $(inspected '{{.Config.Entrypoint}}')"
root=$(podman --log-level=error image mount "$image")
found=$(cd "$root" && find . -type f \( -path './bin/*' -o -path './usr/bin/*' -o -path './sbin/*' -o -path './usr/sbin/*' \) | sort | tr '\n' ' ')
bytes=$(du -sb "$root" | cut -f 1)
[[ $found == './usr/bin/symphony ' ]] || fail "programs besides symphony: $found"
[[ -z $(find "$root" -perm /6000 -type f) ]] || fail "programs that give rights: $(find "$root" -perm /6000 -type f)"
podman --log-level=error image unmount "$image" >/dev/null
((bytes < 100000000)) || fail "$bytes bytes"
say "$image: $((bytes / 1000000)) MB unpacked; one program"

phase "certificates and a configuration"
host=127.0.0.77
tool() { "${engine[@]}" run --rm "${options[@]}" --user 0:0 -v "$work:/work" -w /work "$image" "$@"; }
tool certs authority --dir pki --cluster-name box >/dev/null
for who in 'scheduler 1' 'scheduler 2' 'scheduler 3' 'frontend frontend-1' 'backend backend-1' 'operator admin'; do
    tool certs issue --dir pki --cluster-name box --role ${who% *} --name ${who#* } >/dev/null
done
chmod -R a+rX "$work"
{
    printf '[cluster]\nname = "box"\ntiming = "relaxed"\n'
    for id in 1 2 3; do
        printf '[[cluster.scheduler]]\nid = %s\ncontrol = "%s:70%s1"\ndispatch = "%s:70%s2"\nbeat = "%s:70%s3"\n' $id $host $id $host $id $host $id
    done
    printf '[scheduler]\nid = 1\ndata_dir = "/var/lib/symphony/scheduler"\n[scheduler.delays]\nreply_us = 50000\n'
    printf '[frontend]\nname = "frontend-1"\ngrpc = "%s:8001"\nrest = "%s:8000"\nmetrics = "%s:8002"\ndata = "%s:7201"\n' $host $host $host $host
    printf '[backend]\nname = "backend-1"\nsubcluster = "cpu"\nexec = "%s:7101"\nmetrics = "%s:7104"\nexecutor = "ort-cpu"\n' $host $host
    printf 'model_dir = "/models"\ngpus = [{ kind = "cpu", count = 1, memory_mb = 2048 }]\n[security]\nca = "/pki/ca.pem"\n'
} >"$work/symphony.toml"
start() { # NAME ROLE CERTIFICATE OPTION…
    local name=box-$1-$$ role=$2 certificate=$3
    shift 3
    "${engine[@]}" run -d --name "$name" "${options[@]}" -v "$work/symphony.toml:/etc/symphony/symphony.toml:ro" -v "$work/pki:/pki:ro" \
        -v "$ROOT/deploy/models/repository:/models:ro" -v "$ROOT/deploy/models/digits:/digits:ro" \
        -e "SYMPHONY__SECURITY__CERT=/pki/$certificate.pem" -e "SYMPHONY__SECURITY__KEY=/pki/$certificate.key" "$@" \
        "$image" "$role" --config /etc/symphony/symphony.toml >/dev/null
    containers+=("$name")
}
# Keys are their owner's; the containers' user is another one.
chown -R 10001:10001 "$work/pki"

phase "a container of each role"
for id in 1 2 3; do
    start "scheduler-$id" scheduler "scheduler-$id" -e "SYMPHONY__SCHEDULER__ID=$id" -e "SYMPHONY__SCHEDULER__METRICS=$host:70${id}4"
done
start backend backend backend-backend-1
start frontend frontend frontend-frontend-1
for name in "${containers[@]}"; do
    role=$(sed -E 's/^box-([a-z]+).*/\1/' <<<"$name")
    # As a health check of the engine would: the same program, in the container.
    eventually 90 "$name to be healthy" "${engine[@]}" exec "$name" symphony health "$role" --config /etc/symphony/symphony.toml
done

phase "a model is measured and loaded, and answers"
# The operator's tools, from the same image; ONNX Runtime is the image's own.
mkdir -m 777 "$work/out"
operator() {
    "${engine[@]}" run --rm "${options[@]}" -v "$work/pki:/pki:ro" -v "$ROOT/deploy/models/digits:/digits:ro" -v "$work/out:/out" -w /out \
        -e SYMPHONY_PKI=/pki -e "SYMPHONY_CLUSTER=$host:7011,$host:7021,$host:7031" "$image" "$@"
}
operator profile /digits/digits.onnx --batch-max 4 --out /out/digits.toml >/dev/null
operator model load digits --onnx /digits/digits.onnx --profile /out/digits.toml --slo-ms 500 --subcluster cpu --wait-s 60
operator get members
answer_of_digits "http://$host:8000"

phase "told to stop, each drains and ends with success"
"${engine[@]}" stop -t 20 "${containers[@]}" >/dev/null
for name in "${containers[@]}"; do
    code=$("${engine[@]}" inspect "$name" --format '{{.State.ExitCode}}')
    [[ $code == 0 ]] || fail "$name ended with $code"
done
say "passed"
