# shellcheck shell=bash
# A cluster that somebody else runs: KUBECONFIG says where. Sourced by `cluster`.
# The tests make namespaces in it and delete them; nothing else of it is touched.

given_missing() {
    [ -n "${KUBECONFIG-}" ] || { echo 'KUBECONFIG is not set' && return; }
    # What `export KUBECONFIG=$(cluster kubeconfig)` set is not somebody else's.
    case $KUBECONFIG in
        "$(debian_kubeconfig)" | "$(kind_kubeconfig)") echo 'KUBECONFIG is the one of the cluster made here' ;;
    esac
}

given_refuse() { refuse "$1 is not possible in a cluster that was handed in (KUBECONFIG)"; }

given_kubeconfig() { echo "$KUBECONFIG"; }
given_up() {
    [ $# = 0 ] || given_refuse 'a control plane without its nodes'
    command -v kubectl >/dev/null || die 'KUBECONFIG is set, but there is no kubectl'
    kubectl version --request-timeout=10s >/dev/null || die "the cluster of KUBECONFIG=$KUBECONFIG does not answer"
    say "using the cluster of KUBECONFIG=$KUBECONFIG"
}
given_down() { say 'leaving the cluster that was handed in as it is'; }
given_status() { kubectl get nodes --request-timeout=10s; }
given_exec() { exec "$@"; }
given_load() { given_refuse 'loading an image'; }
given_program_image() {
    # It was pushed by hand to where that cluster finds it.
    [ "${TEST_CLUSTER_PROGRAM_IMAGE-}" = "$1" ] ||
        given_refuse 'loading an image (push one, and name it in TEST_CLUSTER_PROGRAM_IMAGE)'
}
given_hollow() { given_refuse 'adding nodes'; }
given_fault() { given_refuse 'stopping parts'; }
