# shellcheck shell=bash
# A control plane and a node on a plain Debian 12 machine, in a separate network namespace, built from
# Debian's source package. Sourced by `cluster`.

S=$TEST_CLUSTER_STATE/cluster # removed by `down`
RUN=$S/run                    # pid files, sockets
LOG=$TEST_CLUSTER_STATE/log   # kept until the next fresh `up`
BIN=$TEST_CLUSTER_CACHE/bin
PKI=$S/pki
NODE=node0
CONTROL_PLANE=(etcd apiserver controller-manager scheduler)
NODE_PARTS=(containerd kubelet proxy dns)

# shellcheck source=daemons.sh
. "$HERE/daemons.sh"
# shellcheck source=debian/certificates.sh
. "$HERE/debian/certificates.sh"
# shellcheck source=debian/network.sh
. "$HERE/debian/network.sh"
# shellcheck source=debian/parts.sh
. "$HERE/debian/parts.sh"

debian_missing() {
    grep -qs '^VERSION_CODENAME=bookworm' /etc/os-release || { echo 'this is not Debian 12' && return; }
    [ "$(uname -m)" = x86_64 ] || { echo 'this is not an amd64 machine' && return; }
    [ "$(id -u)" = 0 ] || { echo 'this needs root' && return; }
    [ -d $CGROUPS/pids ] && [ -d $CGROUPS/memory ] || echo "no cgroup v1 hierarchies are mounted under $CGROUPS"
}

debian_is_up() { [ -e "$S/up" ] && [ -n "$(cgroup_pids "$NAME/daemons")" ] && in_net true 2>/dev/null; }
debian_must_be_up() { debian_is_up || die 'the cluster is not up; run: cluster up'; }
debian_kubeconfig() { echo "$S/admin.kubeconfig"; }

debian_up() { # debian_up [--no-node]
    local without_node=${1-}
    lock "$TEST_CLUSTER_STATE.lock"
    need_debs etcd-server iproute2 curl openssl python3 procps util-linux \
        containerd runc containernetworking-plugins iptables conntrack
    "$HERE/debian/build-kubernetes"
    SECONDS=0
    if ! debian_is_up; then
        say 'starting'
        wipe
        rm -rf "$LOG"
        mkdir -p "$RUN" "$LOG"
        cgroup_make "$NAME"
        # By default, a whole cluster gets as much of the processors as a single session of processes outside
        # it. Beside two runs of all tests, a training of 65 s then took up to 545 s.
        [ ! -d "$CGROUPS/cpu" ] || echo 2048 >"$CGROUPS/cpu/$NAME/cpu.shares"
        make_network
        make_pki
        make_config
        touch "$S/up"
    fi
    network_addresses
    debian_end_faults
    start namespaces
    wait_for 'the mount namespace' test -e "$RUN/namespaces.ready"
    start etcd
    start apiserver
    [ -n "$without_node" ] || start containerd
    wait_for 'the API server' apiserver_ready
    start controller-manager
    start scheduler
    [ -n "$without_node" ] || debian_node_up
    wait_for 'the default service account' account_ready
    say "up in $SECONDS s; export KUBECONFIG=$S/admin.kubeconfig"
}

debian_node_up() {
    local part
    wait_for containerd containerd_ready
    [ -e "$RUN/pause-imported" ] ||
        { import_image "$TEST_CLUSTER_CACHE/pause.tar" >/dev/null && touch "$RUN/pause-imported"; }
    for part in kubelet proxy dns; do start $part; done
    wait_for 'the node to be Ready' node_ready
    wait_for 'the DNS server' test -e "$RUN/dns.ready"
}

debian_end_faults() { # of the running parts; the others are started later
    local f pid
    for f in "$CGROUPS/cpu/$NAME"/daemons/*/cpu.cfs_quota_us; do [ ! -e "$f" ] || echo -1 >"$f"; done
    for f in "$RUN"/*.pid; do
        [ ! -e "$f" ] || ! pid=$(pid_of "$NAME" "$(basename "$f" .pid)") || kill -CONT "$pid" || true
    done
}

debian_down() {
    lock "$TEST_CLUSTER_STATE.lock"
    wipe
}

wipe() {
    cgroup_kill "$NAME"
    cgroup_remove "$NAME"
    remove_network
    [ -d "$S" ] || return 0
    local f
    for f in "$S"/containerd/state/io.containerd.runtime.v2.task/k8s.io/*/address; do
        [ ! -e "$f" ] || rm -f "$(sed 's|^unix://||' "$f")" # the sockets of the shims are in /run
    done
    # Mounts below the folder were in the cluster's mount namespace, which ended with its last process.
    unmount_below "$S"
    rm -rf --one-file-system "$S"
}

debian_status() {
    local part pid ok=0 parts=("${CONTROL_PLANE[@]}")
    if ! debian_is_up; then
        echo down
        exit 3
    fi
    [ ! -e "$RUN/kubelet.pid" ] || parts+=("${NODE_PARTS[@]}") # not with --no-node
    for part in "$RUN"/hollow-*.pid; do [ ! -e "$part" ] || parts+=("$(basename "$part" .pid)"); done
    for part in "${parts[@]}"; do
        if ! pid=$(pid_of "$NAME" "$part"); then
            printf '%-20s NOT RUNNING\n' "$part"
            ok=1
        elif grep -q '^State:[[:space:]]T' "/proc/$pid/status"; then
            printf '%-20s PAUSED (pid %s)\n' "$part" "$pid"
            ok=1
        else
            printf '%-20s running (pid %s)\n' "$part" "$pid"
        fi
    done
    [ $ok != 0 ] || kubectl_here get nodes --request-timeout=10s || ok=1
    exit $ok
}

debian_exec() {
    debian_must_be_up
    exec nsenter --net="$NETNS" -- env -u http_proxy -u https_proxy -u all_proxy -u HTTP_PROXY -u HTTPS_PROXY \
        -u ALL_PROXY KUBECONFIG="$S/admin.kubeconfig" "$@"
}

import_image() { ctr -a "$RUN/containerd.sock" -n k8s.io images import "$1"; }

debian_load() {
    debian_must_be_up
    import_image "$1"
}

debian_program_image() { # loads it only if it changed, under the same name
    debian_must_be_up
    local archive mark
    archive=$("$HERE/images/program-image" "$1")
    mark=$RUN/loaded-$(basename "$archive" .tar)
    [ -e "$mark" ] || { import_image "$archive" >&2 && rm -f "$RUN"/loaded-* && touch "$mark"; }
}

debian_hollow() {
    [[ $1 =~ ^[0-9]+$ ]] || usage
    debian_must_be_up
    lock "$TEST_CLUSTER_STATE.lock"
    SECONDS=0
    network_addresses
    local i part pid_file TEST_CLUSTER_TIMEOUT=$((TEST_CLUSTER_TIMEOUT + $1)) # applies to wait_for
    if [ "$(sysctl -n fs.inotify.max_user_instances)" -lt 8192 ]; then # each node needs a few
        sysctl -qw fs.inotify.max_user_instances=8192 || say 'could not raise fs.inotify.max_user_instances'
    fi
    for ((i = 1; i <= $1; i++)); do start "hollow-$i"; done
    for pid_file in "$RUN"/hollow-*.pid; do
        [ -e "$pid_file" ] || continue
        part=$(basename "$pid_file" .pid)
        [ "${part#hollow-}" -gt "$1" ] || continue
        stop_daemon "$NAME" "$part" 0
        api DELETE "/api/v1/nodes/$part" -o /dev/null || true
        rm -rf "$pid_file" "${S:?}/hollow/$part"
    done
    wait_for "$1 hollow nodes to be Ready" hollow_ready "$1"
    say "$1 hollow nodes, in $SECONDS s"
}

debian_fault() { # debian_fault ACTION PART [PERCENT|off]
    local pid cpu=$CGROUPS/cpu/$NAME/daemons/$2/cpu.cfs
    debian_must_be_up
    [ -e "$RUN/$2.pid" ] || die "$2 was never started"
    lock "$TEST_CLUSTER_STATE.lock"
    network_addresses
    case $1 in
        start)
            start "$2"
            [ "$2" != apiserver ] || wait_for 'the API server' apiserver_ready
            ;;
        stop) stop_daemon "$NAME" "$2" 3 ;;
        kill) stop_daemon "$NAME" "$2" 0 ;;
        pause)
            pid=$(pid_of "$NAME" "$2") || die "$2 is not running"
            kill -STOP "$pid"
            # Until the thread that gets the signal runs, the other threads go on, and may still answer.
            while grep -qsv ') [TtZX] ' "/proc/$pid/task/"*/stat; do sleep 0.01; done
            ;;
        cont)
            pid=$(pid_of "$NAME" "$2") || die "$2 is not running"
            kill -CONT "$pid"
            ;;
        slow)
            if [ "$3" = off ]; then
                echo -1 >"${cpu}_quota_us"
            else
                echo 1000000 >"${cpu}_period_us" # longest period: the part stands still for up to 1 s
                awk -v p="$3" 'BEGIN { print p * 10000 }' >"${cpu}_quota_us"
            fi
            ;;
    esac
}
