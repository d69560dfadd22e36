# What every package holds: the program and ONNX Runtime; read by the scripts that make packages, not run. Needs ROOT, OUT and common.sh.
# Sets: program, runtime (paths), version, machine (as Debian calls it).
# shellcheck shell=bash disable=SC2034

program=${BINARY:-$ROOT/target/release/symphony}
[[ -x $program ]] || stop 2 "$program is missing; run \`make build\`, or name another one with BINARY"
"$program" paper list >/dev/null || stop 2 "$program is not whole; run \`make build\`, or name another one with BINARY"
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

# Manual pages and completions, which the program writes itself, below SHARE. ZSH is the folder there that zsh looks at.
own_pages() { # SHARE ZSH
    "$program" man --dir "$1/man/man1" >/dev/null
    gzip -9 -n "$1"/man/man1/*.1
    mkdir -p "$1/bash-completion/completions" "$1/zsh/$2" "$1/fish/vendor_completions.d"
    "$program" completions bash >"$1/bash-completion/completions/symphony"
    "$program" completions zsh >"$1/zsh/$2/_symphony"
    "$program" completions fish >"$1/fish/vendor_completions.d/symphony.fish"
    find "$1/man" "$1/bash-completion" "$1/zsh" "$1/fish" -type f -exec chmod 644 {} +
}

# A folder beside the packages for one that is not finished, and the end of both it and WORK with the script. Sets: staging.
stage() { # WORK
    mkdir -p "$OUT"
    staging=$(mktemp -d "$OUT/.unfinished.XXXXXX")
    # shellcheck disable=SC2064 # the folders of this run, not of a later one
    trap "rm -rf '$1' '$staging'" EXIT
}
# Finished packages take their places, and SHA256SUMS is written anew, each in one step. One script at a time does so.
publish() { # FILE PLACE…
    exec 9<"$OUT"
    flock 9
    while (($# > 0)); do
        mv "$1" "$2"
        shift 2
    done
    (cd "$OUT" && find . -maxdepth 1 -type f ! -name SHA256SUMS -printf '%P\0' | sort -z | xargs -0 sha256sum --) >"$staging/SHA256SUMS"
    mv "$staging/SHA256SUMS" "$OUT/SHA256SUMS"
    exec 9<&-
}
