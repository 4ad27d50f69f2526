# shellcheck shell=bash
# The cluster's CA, certificates and kubeconfigs. Sourced by debian.sh.

certificate() { # certificate NAME SUBJECT [SUBJECT ALTERNATIVE NAMES]
    local use=clientAuth
    [ $# -lt 3 ] || use=serverAuth
    {
        printf 'basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\nextendedKeyUsage=%s\n' $use
        printf 'subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n'
        [ $# -lt 3 ] || echo "subjectAltName=$3"
    } >"$PKI/$1.ext"
    openssl req -config "$PKI/openssl.cnf" -new "${NEW_KEY[@]}" -keyout "$PKI/$1.key" -subj "$2" 2>/dev/null |
        openssl x509 -req -CA "$PKI/ca.crt" -CAkey "$PKI/ca.key" -set_serial "$((++SERIAL))" -days 3650 \
            -extfile "$PKI/$1.ext" -out "$PKI/$1.crt" 2>/dev/null
}

make_kubeconfig() { # make_kubeconfig NAME: with the certificate NAME
    cat <<YAML
apiVersion: v1
kind: Config
clusters:
- name: $NAME
  cluster: {server: "$SERVER", certificate-authority-data: $(base64 -w0 "$PKI/ca.crt")}
users:
- name: $1
  user: {client-certificate-data: $(base64 -w0 "$PKI/$1.crt"), client-key-data: $(base64 -w0 "$PKI/$1.key")}
contexts:
- name: $NAME
  context: {cluster: $NAME, user: $1}
current-context: $NAME
YAML
}

make_pki() {
    local name=kubernetes.default.svc c
    NEW_KEY=(-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes)
    SERIAL=1
    mkdir -m 700 "$PKI"
    cat >"$PKI/openssl.cnf" <<'CNF'
[req]
distinguished_name = dn
[dn]
[ca]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign, digitalSignature
subjectKeyIdentifier = hash
CNF
    openssl req -config "$PKI/openssl.cnf" -extensions ca -x509 "${NEW_KEY[@]}" -keyout "$PKI/ca.key" \
        -out "$PKI/ca.crt" -days 3650 -subj /CN=test-cluster-ca 2>/dev/null
    openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$PKI/sa.key" 2>/dev/null
    openssl pkey -in "$PKI/sa.key" -pubout -out "$PKI/sa.pub"
    certificate apiserver /CN=kube-apiserver "DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,\
DNS:$name,DNS:$name.cluster.local,IP:127.0.0.1,IP:$NODE_IP,IP:$SERVICE_API"
    certificate kubelet-server "/CN=$NODE" "DNS:$NODE,IP:$NODE_IP"
    certificate admin /O=system:masters/CN=admin
    certificate kubelet-client /O=system:masters/CN=kube-apiserver-kubelet-client
    certificate controller-manager /CN=system:kube-controller-manager
    certificate scheduler /CN=system:kube-scheduler
    certificate kubelet "/O=system:nodes/CN=system:node:$NODE"
    certificate proxy /CN=system:kube-proxy
    certificate hollow /O=system:masters/CN=hollow
    certificate dns /CN=system:serviceaccount:kube-system:kube-dns # has a role for just that
    for c in controller-manager scheduler kubelet proxy hollow; do make_kubeconfig $c >"$PKI/$c.kubeconfig"; done
    make_kubeconfig admin >"$S/admin.kubeconfig"
    chmod 600 "$S/admin.kubeconfig"
}
