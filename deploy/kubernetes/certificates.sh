#!/usr/bin/env bash
# Makes the cluster's certificates with `symphony certs`, and prints the secrets that the manifests name; the authority's key stays
# where this runs.
#
#   deploy/kubernetes/certificates.sh DIR [SET=PODS…] | kubectl apply --server-side -f -
#
# SET=PODS: a stateful set without its prefix `symphony-`, and how many pods it may have (frontend=2, backend-h100=16); of schedulers
# their ids, with commas (scheduler=1,2,3). Nothing named: scheduler=1,2,3 frontend=2 backend-emulated=1.
#
# What lies in DIR already is kept, and is in the secrets whether named or not, so that later runs only add. Run it again in time: all
# certificates in DIR that are valid for fewer than RENEW_DAYS (60) days are issued anew. Keep DIR: operators' tools take it as --pki.
# All pods of a role can read the keys of that role; the component cert-manager gives each frontend and backend its own only.
# Exit status: 0 done; 1 a step failed; 2 wrong usage.
set -euo pipefail
shopt -s nullglob

readonly NAMESPACE=${NAMESPACE:-symphony} CLUSTER=${CLUSTER:-symphony} SYMPHONY=${SYMPHONY:-symphony} RENEW_DAYS=${RENEW_DAYS:-60}
usage() {
    echo "certificates: $1" >&2
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2
    exit 2
}
dir=${1-}
[[ -n $dir && $dir != *=* && $dir != -* ]] || usage "the first argument is the folder of the certificates"
shift
(($# > 0)) || set -- scheduler=1,2,3 frontend=2 backend-emulated=1
for set in "$@"; do
    [[ $set =~ ^(scheduler=[1-9][0-9]*(,[1-9][0-9]*)*|(frontend|backend-[a-z0-9-]+)=[0-9]+)$ ]] ||
        usage "\`$set\`: expected scheduler=IDS, frontend=PODS or backend-KIND=PODS"
done

lasts() { openssl x509 -in "$1" -noout -checkend $((RENEW_DAYS * 86400)) >/dev/null; }
issue() { # ROLE NAME
    local file=$dir/$1-$2.pem
    [[ ! -s $file ]] || ! lasts "$file" || return 0
    # The host by which KEDA dials a scheduler.
    local -a host=()
    [[ $1 != scheduler ]] || host=(--host "symphony-control.$NAMESPACE.svc")
    "$SYMPHONY" certs issue --dir "$dir" --cluster-name "$CLUSTER" --role "$1" --name "$2" "${host[@]}" >&2
}
secret() { # NAME CERTIFICATE.pem…
    local name=$1 file
    shift
    printf -- '---\napiVersion: v1\nkind: Secret\nmetadata: { name: %s, namespace: %s }\ndata:\n' "$name" "$NAMESPACE"
    for file in "$dir/ca.pem" "$@"; do
        printf '  %s: %s\n' "$(basename "$file")" "$(base64 -w 0 "$file")"
        [[ $file == "$dir/ca.pem" ]] || printf '  %s: %s\n' "$(basename "${file%.pem}.key")" "$(base64 -w 0 "${file%.pem}.key")"
    done
}

if [[ ! -e $dir/ca.pem && ! -e $dir/ca.key ]]; then
    "$SYMPHONY" certs authority --dir "$dir" --cluster-name "$CLUSTER" >&2
fi
lasts "$dir/ca.pem" ||
    echo "certificates: $dir/ca.pem ends within $RENEW_DAYS days; a new authority takes a new folder and new certificates for all" >&2

for file in "$dir"/{scheduler,frontend,backend,viewer,operator}-*.pem; do
    name=$(basename "$file" .pem)
    issue "${name%%-*}" "${name#*-}"
done
for set in "$@"; do
    if [[ $set == scheduler=* ]]; then
        for id in $(tr , ' ' <<<"${set#*=}"); do issue scheduler "$id"; done
    else
        for ((i = 0; i < ${set#*=}; i++)); do issue "${set%%[-=]*}" "symphony-${set%=*}-$i"; done
    fi
done
issue viewer keda
issue operator admin
secret symphony-pki-scheduler "$dir"/scheduler-*.pem
secret symphony-pki-frontend "$dir"/frontend-*.pem
secret symphony-pki-backend "$dir"/backend-*.pem
secret symphony-pki-keda "$dir"/viewer-keda.pem
