# shellcheck shell=bash
# The cluster's network: a namespace, and a cable (veth) between it and this machine. Sourced by debian.sh.
#
# Each cluster has its own 10.NUMBER.0.0/16, which this machine reaches through the cable: node, pods, Services
# and node ports have the same addresses inside and outside. The cluster reaches nothing beyond this machine.
#
#   10.NUMBER.0.1      the node; the API server is its port 6443
#   10.NUMBER.0.254    this machine, for pods
#   10.NUMBER.64.0/18  Services
#   10.NUMBER.128.0/17 pods

NETNS=/run/netns/$NAME
FIRST_NUMBER=123
CLUSTERS=20 # maximum on one machine

in_net() { nsenter --net="$NETNS" -- "$@"; }

network_addresses() {
    local number
    number=$(<"$S/number")
    NODE_IP=10.$number.0.1
    HOST_IP=10.$number.0.254
    SERVICE_CIDR=10.$number.64.0/18
    SERVICE_API=10.$number.64.1
    POD_CIDR=10.$number.128.0/17
    CABLE=k8s-test$number
    SERVER=https://$NODE_IP:6443
}

# free_number: prints the first number whose addresses are unused on this machine
free_number() {
    local n
    for ((n = FIRST_NUMBER; n < FIRST_NUMBER + CLUSTERS; n++)); do
        [ -z "$(ip -4 route show root "10.$n.0.0/16")" ] || continue
        [ -z "$(ip -4 route show match "10.$n.0.0/16" | grep -v ^default)" ] || continue
        echo "$n" && return
    done
    die 'found no free addresses; stop another cluster'
}

# The name servers in /etc/resolv.conf, which processes in the namespace share with this machine. The cluster's
# DNS server gets their addresses.
nameservers() { awk '$1 == "nameserver" && $2 ~ /^[0-9.]+$/ { print $2 }' /etc/resolv.conf; }

make_network() {
    local ip
    {
        flock 8 # clusters that start at the same time choose one after the other
        free_number >"$S/number"
        network_addresses
        ip netns add "$NAME"
        ip link add "$CABLE" type veth peer name "$NODE" netns "$NAME"
        ip addr add "$HOST_IP/24" dev "$CABLE"
        ip link set "$CABLE" up
    } 8>/run/lock/training-service-cluster.addresses
    ip -n "$NAME" link set lo up
    ip -n "$NAME" addr add "$NODE_IP/24" dev "$NODE"
    ip -n "$NAME" link set "$NODE" up
    ip -n "$NAME" route add "$SERVICE_CIDR" dev "$NODE" # kube-proxy translates Service addresses, which need a route
    ip -n "$NAME" route add unreachable default         # an error at once instead of a time-out
    for ip in $(nameservers); do
        case $ip in 127.*) ;; *) ip -n "$NAME" addr add "$ip/32" dev lo ;; esac
    done
    in_net sysctl -qw net.ipv4.ip_forward=1 net.bridge.bridge-nf-call-iptables=1
    ip route add "10.$(<"$S/number").0.0/16" via "$NODE_IP" dev "$CABLE"
}

remove_network() { # this removes the cable, too
    [ ! -e "$NETNS" ] || ip netns del "$NAME" 2>/dev/null || rm -f "$NETNS"
    [ ! -e "$S/number" ] || ip link del "k8s-test$(<"$S/number")" 2>/dev/null || true
}
