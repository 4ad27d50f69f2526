# shellcheck shell=bash
# The programs: their configuration, how they start, and when they are ready. Sourced by debian.sh.

# off in 1.20, on by default in every later version
GATES=BoundServiceAccountTokenVolume=true,TTLAfterFinished=true,SizeMemoryBackedVolumes=true

make_config() {
    mkdir -p "$S/var-log" "$S/hollow" "$S/cni/net.d"
    cat >"$S/containerd.toml" <<TOML
version = 2
root = "$S/containerd/root"
state = "$S/containerd/state"
[grpc]
  address = "$RUN/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "training-service.test/pause:1"
  restrict_oom_score_adj = true # lowering it needs CAP_SYS_RESOURCE
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$S/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        Root = "$S/runc"
TOML
    cat >"$S/cni/net.d/10-bridge.conflist" <<JSON
{"cniVersion": "0.4.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "dataDir": "$S/cni/ipam", "ranges": [[{"subnet": "$POD_CIDR"}]],
            "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
JSON
    echo "nameserver $NODE_IP" >"$S/resolv.conf"
    cat >"$S/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $NODE_IP
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $PKI/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: $PKI/kubelet-server.crt
tlsPrivateKeyFile: $PKI/kubelet-server.key
cgroupDriver: cgroupfs
cgroupRoot: /$NAME
clusterDNS: [$NODE_IP]
clusterDomain: cluster.local
resolvConf: $S/resolv.conf
volumePluginDir: $S/kubelet/volume-plugins
featureGates: {$(sed 's/=/: /g; s/,/, /g' <<<"$GATES"), DevicePlugins: false}
nodeStatusUpdateFrequency: 1s # the first report is never Ready, and the default for the next is 10 s
nodeStatusReportFrequency: 5s # of a status without changes, which cost all parts CPU each second
kubeAPIQPS: 50 # the defaults of later versions
kubeAPIBurst: 100
eventRecordQPS: 50
eventBurst: 100
serializeImagePulls: false
failSwapOn: false
oomScoreAdj: 0 # lowering it needs CAP_SYS_RESOURCE
maxOpenFiles: $(ulimit -Hn)
imageGCHighThresholdPercent: 100 # never, because loaded images cannot be pulled again
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
YAML
}

start() { # start PART, unless it runs
    ! pid_of "$NAME" "$1" >/dev/null || return 0
    local kubeconfig=$PKI/$1.kubeconfig command more=() ip enter=(nsenter --net="$NETNS")
    case $1 in
        namespaces)
            # Holds the mount namespace that all other parts share, so their mounts disappear with them. The
            # kubelet has /var/log/pods built in, so the cluster gets its own /var/log. Hollow nodes use /mnt,
            # because the path of a socket is limited to 107 characters.
            rm -f "$RUN/namespaces.ready"
            # shellcheck disable=SC2016 # the inner shell fills these in
            command=(unshare --mount --propagation slave -- sh -ec '
                mount --make-rshared /
                mount --bind "$1/var-log" /var/log
                mount --bind "$1/hollow" /mnt
                touch "$2"
                exec sleep infinity' - "$S" "$RUN/namespaces.ready")
            ;;
        etcd)
            command=(etcd --data-dir "$S/etcd" --listen-client-urls http://127.0.0.1:2379
                --advertise-client-urls http://127.0.0.1:2379 --listen-peer-urls http://127.0.0.1:2380
                --unsafe-no-fsync --log-level warn)
            ;;
        apiserver)
            command=("$BIN/kube-apiserver" --etcd-servers http://127.0.0.1:2379 --bind-address 0.0.0.0
                --secure-port 6443 --advertise-address "$NODE_IP" --service-cluster-ip-range "$SERVICE_CIDR"
                --cert-dir "$PKI" --tls-cert-file "$PKI/apiserver.crt" --tls-private-key-file "$PKI/apiserver.key"
                --client-ca-file "$PKI/ca.crt" --requestheader-client-ca-file "$PKI/ca.crt"
                --requestheader-allowed-names aggregator "--authorization-mode=Node,RBAC"
                --enable-admission-plugins NodeRestriction --allow-privileged=true
                --kubelet-certificate-authority "$PKI/ca.crt" --kubelet-client-certificate "$PKI/kubelet-client.crt"
                --kubelet-client-key "$PKI/kubelet-client.key" --kubelet-preferred-address-types InternalIP
                --service-account-issuer https://kubernetes.default.svc.cluster.local
                --service-account-signing-key-file "$PKI/sa.key" --service-account-key-file "$PKI/sa.pub"
                --enable-priority-and-fairness=false --feature-gates "$GATES") # a quarter of its CPU
            ;;
        controller-manager)
            # A node without a report for 20 s is lost, as on kind. Hollow nodes report every 10 s.
            command=("$BIN/kube-controller-manager" --kubeconfig "$kubeconfig" --leader-elect=false
                --authentication-kubeconfig "$kubeconfig" --authorization-kubeconfig "$kubeconfig"
                --bind-address 127.0.0.1 --port 0 --use-service-account-credentials=true
                --service-account-private-key-file "$PKI/sa.key" --root-ca-file "$PKI/ca.crt"
                --cluster-signing-cert-file "$PKI/ca.crt" --cluster-signing-key-file "$PKI/ca.key"
                --cluster-cidr "$POD_CIDR" --allocate-node-cidrs=false --node-monitor-grace-period 20s
                --kube-api-qps 100 --kube-api-burst 200 --feature-gates "$GATES")
            # shellcheck disable=SC2206 # several flags; the last one wins
            command+=(${TEST_CLUSTER_CONTROLLER_MANAGER_ARGS-})
            ;;
        scheduler)
            command=("$BIN/kube-scheduler" --kubeconfig "$kubeconfig" --leader-elect=false
                --authentication-kubeconfig "$kubeconfig" --authorization-kubeconfig "$kubeconfig"
                --bind-address 127.0.0.1 --port 0 --kube-api-qps 100 --kube-api-burst 200
                --feature-gates "$GATES")
            ;;
        containerd)
            command=(containerd -c "$S/containerd.toml")
            ;;
        kubelet)
            command=("$BIN/kubelet" --config "$S/kubelet.yaml" --kubeconfig "$kubeconfig"
                --hostname-override "$NODE" --node-ip "$NODE_IP" --root-dir "$S/kubelet" --cert-dir "$PKI"
                --container-runtime remote --container-runtime-endpoint "unix://$RUN/containerd.sock")
            ;;
        proxy)
            command=("$BIN/kube-proxy" --kubeconfig "$kubeconfig" --hostname-override "$NODE"
                --cluster-cidr "$POD_CIDR" --proxy-mode iptables
                --metrics-bind-address 127.0.0.1:10249 --healthz-bind-address 127.0.0.1:10256
                --conntrack-max-per-core 0 # these are settings of this machine, and not writable here
                --conntrack-tcp-timeout-established 0 --conntrack-tcp-timeout-close-wait 0)
            ;;
        dns)
            rm -f "$RUN/dns.ready"
            for ip in "$NODE_IP" $(nameservers); do more+=(--listen "$ip"); done
            command=("$PYTHON" "$HERE/debian/dns.py" --server "$SERVER" --ca "$PKI/ca.crt" --cert "$PKI/dns.crt"
                --key "$PKI/dns.key" --ready-file "$RUN/dns.ready" "${more[@]}")
            ;;
        hollow-*)
            rm -rf "$S/hollow/$1"
            mkdir -p "$S/hollow/$1"
            command=(env TMPDIR="/mnt/$1" "$BIN/kubemark" --morph=kubelet --name="$1"
                --kubeconfig="$PKI/hollow.kubeconfig" --node-labels=training-service.test/hollow=true
                --kubelet-port="$((20000 + ${1#hollow-}))" --kubelet-read-only-port=0)
            ;;
    esac
    [ "$1" = namespaces ] || enter+=(--mount="/proc/$(pid_of "$NAME" namespaces)/ns/mnt")
    spawn "$NAME" "$1" "$LOG/$1.log" "${enter[@]}" -- "${command[@]}"
}

# ---- readiness

api() { # api METHOD PATH [CURL ARGUMENT...]
    curl -sSf --noproxy '*' --max-time 10 --cacert "$PKI/ca.crt" --cert "$PKI/admin.crt" --key "$PKI/admin.key" \
        -X "$1" "$SERVER$2" "${@:3}"
}

apiserver_ready() { [ "$(api GET /readyz)" = ok ]; }

ready_nodes() { # ready_nodes SELECTOR: counts the nodes that are Ready, also for the scheduler
    api GET "/api/v1/nodes?$1" | "$PYTHON" -c '
import json, sys
def ready(node):
    return (any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", ()))
            and not any(t["key"] == "node.kubernetes.io/not-ready" for t in node["spec"].get("taints", ())))
print(sum(map(ready, json.load(sys.stdin)["items"])))'
}

node_ready() { [ "$(ready_nodes "fieldSelector=metadata.name%3D$NODE")" = 1 ]; }
hollow_ready() { [ "$(ready_nodes labelSelector=training-service.test%2Fhollow)" = "$1" ]; }
containerd_ready() { ctr -a "$RUN/containerd.sock" version; }
account_ready() { # pods are refused until both exist
    api GET /api/v1/namespaces/default/serviceaccounts/default &&
        api GET /api/v1/namespaces/default/configmaps/kube-root-ca.crt
}
