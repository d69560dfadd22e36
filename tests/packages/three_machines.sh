#!/usr/bin/env bash
# docs/operating/install.md, walked: three machines with the Debian package, certificates, three schedulers, a frontend, a backend, one
# request; then what a service manager does to them. A machine is a network namespace with a Debian of its own; as_systemd.py stands for
# systemd. All namespaces, mounts and processes are this script's own, and end with it.
#
#   tests/packages/three_machines.sh [FILE.deb]       the newest in target/packages if none is named
#
# Exit status: 0 well; 1 not; 2 something is missing; 3 this machine cannot make network namespaces.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=deploy/setup/common.sh
source "$ROOT/deploy/setup/common.sh"
# shellcheck source=tests/packages/common.sh
source "$ROOT/tests/packages/common.sh"
for tool in mmdebstrap ip curl python3 jq pgrep; do have "$tool" || stop 2 "$tool is missing; run deploy/setup/packages.sh --tests"; done
((EUID == 0)) || stop 2 "network namespaces take root"
deb=${1:-$(ls -t "$ROOT"/target/packages/*.deb 2>/dev/null | head -n 1)}
[[ -s $deb ]] || stop 2 "there is no package; run deploy/packages/deb.sh"

# By namespace, so that tests of two checkouts do not meet.
readonly NET=sym$$
work=$(mktemp -d /var/tmp/symphony-machines.XXXXXX)
chmod 755 "$work"
services=()
hung=0
not_run=0
clean_up() {
    local status=$? pid n
    if ((status != 0)); then
        for file in "$work"/*.log "$work"/*.told; do [[ -s $file ]] && { echo "--- $file"; tail -n 15 "$file"; } >&2; done
    fi
    for pid in "${services[@]}"; do kill "$pid" 2>/dev/null || true; done
    # What was stopped takes no signal but this.
    ((!hung)) || kill -CONT "$hung" 2>/dev/null || true
    ((!hung)) || kill -KILL "$hung" 2>/dev/null || true
    for pid in "${services[@]}"; do wait "$pid" 2>/dev/null || true; done
    for n in 1 2 3; do
        umount "$work/machine$n/proc" 2>/dev/null || true
        umount "$work/machine$n" 2>/dev/null || true
        ip netns del "$NET-$n" 2>/dev/null || true
    done
    ip netns del "$NET-hub" 2>/dev/null || true
    rm -rf "$work"
    # A command's own 3 is not this script's.
    ((status != 3 || not_run)) || status=1
    exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

phase "three machines on one network: 10.0.1.1, 10.0.1.2, 10.0.1.3"
ip netns add "$NET-hub" 2>/dev/null || { say "NOT RUN: this machine makes no network namespaces"; not_run=1; exit 3; }
ip -n "$NET-hub" link add br0 type bridge
ip -n "$NET-hub" link set br0 up
for n in 1 2 3; do
    ip netns add "$NET-$n"
    ip -n "$NET-$n" link set lo up
    ip -n "$NET-$n" link add eth0 type veth peer name "port$n" netns "$NET-hub"
    ip -n "$NET-$n" addr add "10.0.1.$n/24" dev eth0
    ip -n "$NET-$n" link set eth0 up
    ip -n "$NET-hub" link set "port$n" master br0 up
done

phase "step 1: the package on each"
cp "$deb" "$work/symphony.deb"
empty_debian "$work/base" "$work/symphony.deb"
for n in 1 2 3; do
    mkdir -p "$work/upper$n" "$work/work$n" "$work/machine$n"
    mount -t overlay overlay -o "lowerdir=$work/base,upperdir=$work/upper$n,workdir=$work/work$n" "$work/machine$n" 2>/dev/null ||
        cp -a "$work/base/." "$work/machine$n/"
    mount -t proc proc "$work/machine$n/proc"
done
on() { # MACHINE COMMAND…
    local n=$1
    shift
    ip netns exec "$NET-$n" chroot "$work/machine$n" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"
}
to() { # FILE MACHINE PATH: what scp does
    install -o root -g "$(on "$2" id -g symphony)" -m 640 "$1" "$work/machine$2$3"
}

phase "step 2: certificates, made on machine 1, the operator's"
pki=$work/machine1/root/pki
on 1 symphony certs authority --dir /root/pki --cluster-name production
for who in 'scheduler 1' 'scheduler 2' 'scheduler 3' 'frontend frontend-1' 'backend backend-1' 'operator admin'; do
    on 1 symphony certs issue --dir /root/pki --cluster-name production --role ${who% *} --name ${who#* } >/dev/null
done
for n in 1 2 3; do
    to "$pki/ca.pem" $n /etc/symphony/pki/ca.pem
    for kind in pem key; do to "$pki/scheduler-$n.$kind" $n /etc/symphony/pki/scheduler.$kind; done
done
for kind in pem key; do
    to "$pki/frontend-frontend-1.$kind" 2 /etc/symphony/pki/frontend.$kind
    to "$pki/backend-backend-1.$kind" 3 /etc/symphony/pki/backend.$kind
done

phase "step 3: configuration: the sample, and what differs"
for n in 1 2 3; do
    # Three virtual machines on one real one: the step of the page that names shared machines.
    on $n sed -i 's/^timing = .*/timing = "relaxed"/; s/^reply_us = .*/reply_us = 50000/' /etc/symphony/symphony.toml
    echo "SYMPHONY__SCHEDULER__ID=$n" >"$work/machine$n/etc/symphony/scheduler.env"
done
printf '%s\n' SYMPHONY__FRONTEND__DATA=10.0.1.2:7201 SYMPHONY__FRONTEND__METRICS=10.0.1.2:8002 >"$work/machine2/etc/symphony/frontend.env"
# The first line is the key, the others are for the file.
on 1 symphony keys make --tenant demo >"$work/key"
key=$(sed -n 's/^key: //p' "$work/key")
sed 1d "$work/key" >"$work/tenants.toml"
to "$work/tenants.toml" 2 /etc/symphony/tenants.toml
printf 'SYMPHONY__BACKEND__EXEC=10.0.1.3:7101\nSYMPHONY__BACKEND__GPUS=[{ kind = "cpu", count = 1, memory_mb = 2048 }]\n' >"$work/machine3/etc/symphony/backend.env"

phase "step 4: the services"
declare -A service
begin() { # MACHINE ROLE [OPTION…]
    local n=$1 role=$2
    shift 2
    ip netns exec "$NET-$n" python3 "$ROOT/tests/packages/as_systemd.py" "$work/machine$n/lib/systemd/system/symphony-$role.service" "$work/machine$n" \
        "$work/$role-$n.log" "$@" >"$work/$role-$n.told" &
    service[$role-$n]=$!
    services+=($!)
}
told() { grep -qx "$2" "$work/$1.told"; }
for n in 1 2 3; do begin $n scheduler; done
for n in 1 2 3; do eventually 60 "scheduler $n to be ready (READY=1)" told scheduler-$n ready; done
begin 2 frontend --watchdog-s 3
begin 3 backend
eventually 60 "the frontend to be ready (READY=1)" told frontend-2 ready
eventually 60 "the backend to be ready (READY=1)" told backend-3 ready

phase "step 5: look"
operator=(on 1 env SYMPHONY_PKI=/root/pki "SYMPHONY_CLUSTER=10.0.1.1:7001,10.0.1.2:7001,10.0.1.3:7001" symphony)
all_up() { "${operator[@]}" get members -o json | jq -e 'length == 5 and all(.up)'; }
eventually 60 "five members that are up" all_up
"${operator[@]}" get members
for n in 1 2 3; do on $n symphony health scheduler --config /etc/symphony/symphony.toml --set scheduler.id=$n >/dev/null; done

phase "step 6: a model, and a request from another machine"
mkdir -p "$work/machine3/var/lib/symphony/models" "$work/machine1/var/lib/symphony/models"
for n in 1 3; do install -m 644 "$ROOT/deploy/models/digits/digits.onnx" "$work/machine$n/var/lib/symphony/models/"; done
on 3 symphony profile /var/lib/symphony/models/digits.onnx --batch-max 4 --out /tmp/digits.toml | tail -n 2
cp "$work/machine3/tmp/digits.toml" "$work/machine1/root/"
"${operator[@]}" model load digits --onnx /var/lib/symphony/models/digits.onnx --profile /root/digits.toml --slo-ms 300 --subcluster default --wait-s 60
answer_of_digits http://10.0.1.2:8000 ip netns exec "$NET-1"

phase "reload, watchdog, a process that hangs"
kill -HUP "${service[frontend-2]}"
eventually 20 "the frontend to say that it reloaded" told frontend-2 'STATUS=the configuration was reloaded: nothing has changed'
eventually 20 "signs of life" told frontend-2 alive
hung=$(pgrep -P "${service[frontend-2]}" | head -n 1)
kill -STOP "$hung"
eventually 20 "the watchdog to notice a process that hangs" told frontend-2 'watchdog: no sign of life'
hung=0

phase "told to stop, each says so, drains and ends with success"
for name in backend-3 scheduler-3 scheduler-2 scheduler-1; do
    kill -TERM "${service[$name]}"
    eventually 20 "$name to end" told "$name" 'ended 0'
    told "$name" 'STOPPING=1' || fail "$name did not say that it stops"
done
say "passed"
