# shellcheck shell=bash
# kind: a node in a container. Sourced by `cluster`.

KIND_CONFIG=$HERE/../../deploy/kind/cluster.yaml
KIND_NODE=$NAME-control-plane
MANIFESTS=/etc/kubernetes/manifests # in the node: the pods that the kubelet keeps running
PARKED=/etc/kubernetes/parked       # and those that a fault has stopped

kind_missing() {
    command -v kind >/dev/null || { echo 'kind is not installed' && return; }
    command -v kubectl >/dev/null || { echo 'kubectl is not installed' && return; }
    timeout 10 docker info >/dev/null 2>&1 || echo 'no Docker engine responds'
}

kind_kubeconfig() { echo "$TEST_CLUSTER_STATE/kind.kubeconfig"; }
kind_exists() { kind get clusters 2>/dev/null | grep -qx "$NAME"; }
kind_in_node() { docker exec -i "$KIND_NODE" "$@"; }

kind_up() {
    [ $# = 0 ] || refuse 'kind has no control plane without a node; use the debian cluster'
    lock "$TEST_CLUSTER_STATE.lock"
    mkdir -p "$TEST_CLUSTER_STATE"
    if kind_exists; then
        docker start "$KIND_NODE" >/dev/null # needed after a reboot
        kind get kubeconfig --name "$NAME" >"$(kind_kubeconfig)"
        kind_end_faults
    else
        kind create cluster --name "$NAME" --config "$KIND_CONFIG" --kubeconfig "$(kind_kubeconfig)" 9>&- >&2
    fi
    SECONDS=0
    wait_for 'the API server' kubectl_here get --raw /readyz --request-timeout=5s
    wait_for 'the node to be Ready' kubectl_here wait --for=condition=Ready --timeout=5s nodes --all
    wait_for 'the default service account' kubectl_here get serviceaccount default
    say "up (kind); export KUBECONFIG=$(kind_kubeconfig)"
}

kind_down() {
    lock "$TEST_CLUSTER_STATE.lock"
    kind delete cluster --name "$NAME" --kubeconfig "$(kind_kubeconfig)" >&2
    rm -f "$(kind_kubeconfig)"
}

kind_status() {
    kind_exists || { echo down && exit 3; }
    kubectl_here get nodes --request-timeout=10s
}

kind_exec() { exec env KUBECONFIG="$(kind_kubeconfig)" "$@"; }

kind_load() {
    local archive=$1
    if [ "$archive" = - ]; then
        archive=$(mktemp --suffix .tar)
        # shellcheck disable=SC2064 # this file, now
        trap "rm -f '$archive'" EXIT
        cat >"$archive"
    fi
    kind load image-archive "$archive" --name "$NAME" >&2
}

kind_program_image() {
    docker build -q -t "$1" -f "$HERE/images/Dockerfile" "$HERE/../support" >/dev/null
    kind load docker-image "$1" --name "$NAME" >&2
}

kind_hollow() { refuse 'kind has no simulated nodes; use the debian cluster'; }

# ---- faults. In the node, kubelet and containerd are system services. The others are pods that the kubelet keeps
# ---- running while their manifest is in its folder, so a killed one restarts by itself.

kind_pid() { # kind_pid PROGRAM: prints its pid in the node; the kernel keeps 15 characters of a name
    # shellcheck disable=SC2016 # the node's shell fills these in
    kind_in_node sh -c '
        for d in /proc/[0-9]*; do
            [ "$(cat "$d/comm" 2>/dev/null)" != "$1" ] || { echo "${d#/proc/}" && exit; }
        done
        exit 1' - "${1:0:15}"
}

kind_end_faults() {
    kind_in_node sh -c "
        for d in /proc/[0-9]*; do
            case \$(cat \$d/comm 2>/dev/null) in
                etcd | kube-apiserver | kube-scheduler | kube-controller | kubelet | containerd)
                    kill -CONT \${d#/proc/}
                    echo max >/sys/fs/cgroup\$(sed -n 's/^0:://p' \$d/cgroup)/cpu.max
                    ;;
            esac
        done
        ! ls $PARKED/*.yaml || mv $PARKED/*.yaml $MANIFESTS/
        systemctl start containerd kubelet" >/dev/null 2>&1
}

kind_gone() { ! kind_pid "$1"; }

kind_fault() { # kind_fault ACTION PART [PERCENT|off]
    local program pid quota=max
    case $2 in
        kubelet | containerd | etcd) program=$2 ;;
        *) program=kube-$2 ;;
    esac
    case $1-$2 in
        start-kubelet | stop-kubelet | start-containerd | stop-containerd) kind_in_node systemctl "$1" "$2" ;;
        start-*)
            kind_in_node sh -c "[ ! -e $PARKED/$program.yaml ] || mv $PARKED/$program.yaml $MANIFESTS/"
            wait_for "$2" kind_pid "$program"
            [ "$2" != apiserver ] || wait_for 'the API server' kubectl_here get --raw /readyz --request-timeout=5s
            ;;
        stop-*)
            kind_in_node mkdir -p $PARKED
            kind_in_node sh -c "[ ! -e $MANIFESTS/$program.yaml ] || mv $MANIFESTS/$program.yaml $PARKED/"
            wait_for "$2 to end" kind_gone "$program"
            ;;
        *)
            pid=$(kind_pid "$program") || die "$2 is not running"
            case $1 in
                kill) kind_in_node sh -c "kill -KILL $pid" ;;
                pause) kind_in_node sh -c "kill -STOP $pid" ;;
                cont) kind_in_node sh -c "kill -CONT $pid" ;;
                slow)
                    [ "$3" = off ] || quota=$(awk -v p="$3" 'BEGIN { print p * 10000 }')
                    kind_in_node sh -c "
                        echo $quota 1000000 >/sys/fs/cgroup\$(sed -n 's/^0:://p' /proc/$pid/cgroup)/cpu.max"
                    ;;
            esac
            ;;
    esac
}
