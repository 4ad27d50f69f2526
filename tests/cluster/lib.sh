# shellcheck shell=bash disable=SC2034
# Shared by all scripts here: settings, messages, packages, locks. Sourced, never run.

TEST_CLUSTER_CACHE=${TEST_CLUSTER_CACHE:-${HOME:-/root}/.cache/training-service/cluster}
TEST_CLUSTER_STATE=${TEST_CLUSTER_STATE:-/var/tmp/training-service-cluster}
TEST_CLUSTER_TIMEOUT=${TEST_CLUSTER_TIMEOUT:-90}
NAME=$(basename -- "$TEST_CLUSTER_STATE") # name of the kind cluster, the network namespace and the cgroups
PYTHON=/usr/bin/python3                   # Debian's, because a virtual environment may have another version

say() { printf 'cluster: %s\n' "$*" >&2; }
die() {
    say "$*"
    exit 1
}

refuse() { # for features that this kind of cluster does not have
    say "$*"
    exit 4
}

case $TEST_CLUSTER_CACHE$TEST_CLUSTER_STATE in
    *[[:space:]]*) die 'no spaces in TEST_CLUSTER_CACHE or TEST_CLUSTER_STATE' ;;
esac
case $TEST_CLUSTER_STATE in
    /*/*) ;;
    *) die 'TEST_CLUSTER_STATE must be an absolute path, at least two levels deep' ;;
esac

# wait_for NAME COMMAND...: repeats the command until it succeeds
wait_for() {
    local end=$((SECONDS + TEST_CLUSTER_TIMEOUT))
    until "${@:2}" >/dev/null 2>&1; do
        ((SECONDS < end)) || die "$1: not ready after $TEST_CLUSTER_TIMEOUT s${LOG:+; see the logs in $LOG}"
        sleep 0.1
    done
}

# lock FILE: excludes other scripts until this one ends; spawn closes fd 9 in its processes
lock() {
    mkdir -p "$(dirname -- "$1")"
    exec 9>"$1"
    flock -n 9 || { say "waiting for another run ($1)" && flock -w 1800 9; } || die "another run still holds $1; stop it"
}

# need_debs PACKAGE...: installs the missing ones
need_debs() {
    local p missing=()
    for p in "$@"; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing+=("$p")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    say "installing Debian packages: ${missing[*]}"
    mkdir -p "$TEST_CLUSTER_CACHE"
    local log=$TEST_CLUSTER_CACHE/apt.log i
    for i in 1 2; do
        if DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y \
            --no-install-recommends "${missing[@]}" >"$log" 2>&1 </dev/null; then return 0; fi
        [ "$i" = 2 ] || apt-get -o DPkg::Lock::Timeout=300 update >>"$log" 2>&1 || true
    done
    tail -n 20 "$log" >&2
    die "could not install ${missing[*]}"
}

# apt_repos: prints "URI SUITE COMPONENT" of each Debian archive that this machine uses
apt_repos() {
    local i
    for i in 1 2; do
        # shellcheck disable=SC2016 # apt fills these in
        apt-get indextargets --format '$(ORIGIN) $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
            sed -n 's/^Debian //p' | sort -u | grep . && return 0
        apt-get -q -o DPkg::Lock::Timeout=300 update >&2 # only downloaded lists are printed
    done
    die 'found no Debian archive among the package sources of this machine'
}
