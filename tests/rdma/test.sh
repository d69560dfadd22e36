#!/usr/bin/env bash
# Runs RDMA over Soft-RoCE in a small virtual machine: two processes, the contracts of all transports of payloads and of all links, a whole
# cluster whose backend and frontend are killed, and how long pulls and frames take. Does its own set-up.
#
#   tests/rdma/test.sh [PULLS]    PULLS of 8 × 150 KB are measured (default 200; the last per mille needs 10000 and more). With 0 none
#                                 are, and the program that measures, half of what is to be built, is left out: as CI runs it
#
# Exit status: 0 all is well; 1 something failed; 3 skipped, since this machine cannot have QEMU or what the build needs.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
readonly HERE ROOT PULLS=${1:-200}

say() { printf 'test-rdma: %s\n' "$*" >&2; }

[[ $PULLS =~ ^[0-9]+$ ]] || { say "got \`$PULLS\`; expected a number of pulls"; exit 2; }
began=$SECONDS
environment=$("$ROOT/deploy/setup/rdma.sh" --guest) || { say "skipped: see above for what is missing"; exit 3; }
eval "$environment"
say "set up after $((SECONDS - began)) s"

cd "$ROOT"
# Of the whole workspace, so that features are those of other builds of it, and little is built again.
cargo_says() { "${CARGO:-cargo}" "$@" --workspace --locked --message-format=json-render-diagnostics; }
readonly FEATURES=symphony-rdma/verbs,symphony-transport/rdma,symphony/rdma
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cargo_says test --no-run --features "$FEATURES" --test peers --test contract --test links --test over_rdma >"$work/says"
if ((PULLS > 0)); then
    cargo_says build --features "$FEATURES,symphony-benches/rdma" --bin payload-pull --bin frame-rate >>"$work/says"
fi
# The program that was made of that folder's target.
made() { sed -n "s,.*\"manifest_path\":\"[^\"]*/$1/Cargo.toml\".*\"name\":\"$2\".*\"executable\":\"\([^\"]*\)\".*,\1,p" "$work/says" | tail -n 1; }
peers=$(made crates/edges/rdma peers)
contract=$(made crates/edges/transport contract)
links=$(made crates/edges/transport links)
cluster=$(made crates/programs/symphony over_rdma)
# Cargo adds a number to the names of tests.
ln -s "$peers" "$work/peers"
ln -s "$contract" "$work/contract"
ln -s "$links" "$work/links"
ln -s "$cluster" "$work/over_rdma"
programs=("$work/peers" "$work/contract" "$work/links" "$work/over_rdma" "$(made crates/programs/symphony symphony)" "$(command -v setpriv)")
if ((PULLS > 0)); then
    for program in payload-pull frame-rate; do
        ln -s "$(made benches "$program")" "$work/$program"
        programs+=("$work/$program")
    done
fi
say "built after $((SECONDS - began)) s"

{ echo "PULLS=$PULLS"; cat "$HERE/run.sh"; } >"$work/run.sh"
status=0
GUEST_SECONDS=${GUEST_SECONDS:-600} GUEST_MB=2048 "$HERE/guest.sh" "$work/run.sh" "${programs[@]}" \
    >"$work/output" 2>&1 || status=$?
cat "$work/output"
passed=$(sed -n 's/^test result: ok\. \([0-9]*\) passed.*/\1/p' "$work/output" | awk '{ sum += $1 } END { print sum + 0 }')
# A guest that says that all is well and ran nothing is not believed.
measured() { ((PULLS == 0)) || { grep -q '^RDMA ' "$work/output" && grep -q '^link, RDMA ' "$work/output"; }; }
if ((status == 0)) && ! { (($(grep -c '^test result: ok\.' "$work/output") == 5)) && ((passed >= 56)) && measured; }; then
    say "the guest reports no failure, but not everything ran"
    status=1
fi
if ((status != 0)); then
    say "FAILED (status $status) after $((SECONDS - began)) s"
    exit 1
fi
say "passed in $((SECONDS - began)) s; $passed tests in the guest"
