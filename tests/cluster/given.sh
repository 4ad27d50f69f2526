# shellcheck shell=bash
# A cluster that is managed elsewhere, found by KUBECONFIG. Sourced by `cluster`.
# The tests create and delete namespaces in it, and change nothing else.

given_missing() {
    [ -n "${KUBECONFIG-}" ] || { echo 'KUBECONFIG is not set' && return; }
    # After `export KUBECONFIG=$(cluster kubeconfig)` it is our own cluster.
    case $KUBECONFIG in
        "$(debian_kubeconfig)" | "$(kind_kubeconfig)") echo 'KUBECONFIG belongs to the cluster of these tests' ;;
    esac
}

given_refuse() { refuse "$1 is not possible in a given cluster (KUBECONFIG)"; }

given_kubeconfig() { echo "$KUBECONFIG"; }
given_up() {
    [ $# = 0 ] || given_refuse 'a control plane without its nodes'
    command -v kubectl >/dev/null || die 'KUBECONFIG is set, but kubectl is not installed'
    kubectl version --request-timeout=10s >/dev/null || die "the cluster of KUBECONFIG=$KUBECONFIG does not answer"
    say "using the cluster of KUBECONFIG=$KUBECONFIG"
}
given_down() { say 'leaving the given cluster running'; }
given_status() { kubectl get nodes --request-timeout=10s; }
given_exec() { exec "$@"; }
given_load() { given_refuse 'loading an image'; }
given_program_image() {
    # It must have been pushed to a registry that the cluster uses.
    [ "${TEST_CLUSTER_PROGRAM_IMAGE-}" = "$1" ] ||
        given_refuse 'loading an image (push one, and name it in TEST_CLUSTER_PROGRAM_IMAGE)'
}
given_hollow() { given_refuse 'adding nodes'; }
given_fault() { given_refuse 'stopping parts'; }
