# Words that the tests of packages share; read by them, not run. Needs deploy/setup/common.sh.
# shellcheck shell=bash

phase() { printf '== %s\n' "$*" >&2; }
fail() {
    printf 'FAILED: %s\n' "$*" >&2
    exit 1
}
# Runs a command until it succeeds.
eventually() { # SECONDS WHAT COMMAND…
    local until=$((SECONDS + $1)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        if ((SECONDS >= until)); then
            "$@" >&2 || true
            fail "waited in vain for $what"
        fi
        sleep 0.3
    done
}
# An image of nothing but zeros has a label, and every frontend of a whole cluster says which.
answer_of_digits() { # URL [COMMAND PREFIX…]; with the key in $key, if there is one
    local url=$1 body answer
    shift
    body='{"inputs":[{"name":"pixels","shape":[1,64],"datatype":"FP32","data":['$(printf '0,%.0s' {1..63})'0]}]}'
    answer=$("$@" curl -sS --fail-with-body --max-time 20 ${key:+-H "x-api-key: $key"} "$url/v2/models/digits/infer" -d "$body") || fail "no answer: $answer"
    grep -q '"name":"label","datatype":"INT64","shape":\[1\],"data":\[[0-9]\]' <<<"$answer" || fail "a strange answer: $answer"
    say "answered: $answer"
}
# A folder with an empty Debian, what this package depends on, and the package.
empty_debian() { # FOLDER FILE.deb
    local suite depends
    suite=${SUITE:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
    depends=$(dpkg-deb -f "$2" Depends | sed 's/ *([^)]*)//g; s/, */,/g')
    quietly mmdebstrap --variant=essential --mode=root --include="$depends" "$suite" "$1" || fail "no Debian could be made"
    cp "$2" "$1/tmp/symphony.deb"
    # It refuses if a dependency is missing, or too old.
    quietly chroot "$1" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive dpkg -i /tmp/symphony.deb ||
        fail "the package does not install"
    rm "$1/tmp/symphony.deb"
}
