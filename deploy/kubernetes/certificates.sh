#!/usr/bin/env bash
# Makes the cluster's certificates with `symphony certs`, and prints the secrets that the manifests name; the authority's key stays
# where this runs. Names that already have a certificate in DIR keep it, so that more names can be added later.
#
#   deploy/kubernetes/certificates.sh DIR [FRONTENDS [BACKENDS…]] | kubectl apply -f -
#
# FRONTENDS: how many frontends (2). BACKENDS: stateful sets and how many pods each may have (backend-emulated=1), for example
# backend-h100=16. Keep DIR: operators' tools take it as --pki. All pods of a role can read the keys of that role; the component
# cert-manager gives each pod its own only.
set -euo pipefail

readonly NAMESPACE=${NAMESPACE:-symphony} CLUSTER=${CLUSTER:-symphony} SYMPHONY=${SYMPHONY:-symphony}
dir=${1:?the folder of the certificates, see the head of this script}
frontends=${2:-2}
shift $(($# < 2 ? $# : 2))
(($# > 0)) || set -- backend-emulated=1

issue() { # ROLE NAME [HOST]
    [[ -s $dir/$1-$2.pem ]] ||
        "$SYMPHONY" certs issue --dir "$dir" --cluster-name "$CLUSTER" --role "$1" --name "$2" ${3:+--host "$3"} >&2
}
secret() { # NAME FILE…
    local name=$1 file
    shift
    printf -- '---\napiVersion: v1\nkind: Secret\nmetadata: { name: %s, namespace: %s }\ndata:\n' "$name" "$NAMESPACE"
    for file in ca.pem "$@"; do
        printf '  %s: %s\n' "$file" "$(base64 -w 0 "$dir/$file")"
    done
}

[[ -s $dir/ca.key ]] || "$SYMPHONY" certs authority --dir "$dir" --cluster-name "$CLUSTER" >&2
files=()
for id in 1 2 3; do
    issue scheduler "$id" "symphony-control.$NAMESPACE.svc"
    files+=("scheduler-$id.pem" "scheduler-$id.key")
done
secret symphony-pki-scheduler "${files[@]}"
files=()
for ((i = 0; i < frontends; i++)); do
    issue frontend "symphony-frontend-$i"
    files+=("frontend-symphony-frontend-$i.pem" "frontend-symphony-frontend-$i.key")
done
secret symphony-pki-frontend "${files[@]}"
files=()
for set in "$@"; do
    for ((i = 0; i < ${set#*=}; i++)); do
        issue backend "symphony-${set%=*}-$i"
        files+=("backend-symphony-${set%=*}-$i.pem" "backend-symphony-${set%=*}-$i.key")
    done
done
secret symphony-pki-backend "${files[@]}"
issue viewer keda
secret symphony-pki-keda viewer-keda.pem viewer-keda.key
issue operator admin
