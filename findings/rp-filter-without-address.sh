#!/bin/sh
# What a loose reverse path filter does on a device that has no address.
#
# Guess: with `rp_filter` 2 the kernel drops IPv4 packets whose source has no route. A packet whose
#   source is routed to any other device passes.
# Truth: on a device without an IPv4 address it drops them, as with `rp_filter` 1: the source must be
#   routed to this device. Any address helps, also one of the link (169.254.0.0/16) that no packet has.
#   That is so for VXLAN and for veth, for packets to the host and for packets that it forwards.
# Version: iproute2 6.15.0 of Debian 13 (trixie): the kernel decides.
# Kernel: seen on Linux 6.18.
# Who meets it: tunnels without addresses that carry one direction only, such as VXLAN, GRE and
#   WireGuard beside a default route to another device. Only the counter TcpExtIPReversePathFilter
#   tells of it.
#
# Fetches the packages into a temporary folder and runs them in a network namespace. Needs root.
# Exits with 1 if the kernel behaves otherwise.
set -eu

exec sh "$(dirname "$0")/in-debian" trixie '' <<'END'
set -eu
# The host has two devices to the sender: eth0, to which its default route leads, and the one that is
# tried. Only packets from the sender go through the second one.
ip netns add sender
ip link add uplink type veth peer name uplink netns sender
ip link set uplink up
ip address add 192.0.2.1/24 dev uplink
ip address add 203.0.113.1/32 dev uplink
ip -n sender link set lo up
ip -n sender link set uplink up
ip -n sender address add 192.0.2.2/24 dev uplink
ip -n sender address add 198.51.100.9/32 dev lo
ip route add default via 192.0.2.2
ip link add vxlan type vxlan id 7 local 192.0.2.1 remote 192.0.2.2 dstport 4789
ip -n sender link add vxlan type vxlan id 7 local 192.0.2.2 remote 192.0.2.1 dstport 4789
ip link add veth type veth peer name veth netns sender
for device in vxlan veth; do
    ip link set "$device" up
    ip -n sender link set "$device" up
done
sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.uplink.rp_filter=0
nft -f - <<'RULES'
table ip t {
    counter arrived { }
    counter delivered { }
    counter forwarded { }
    chain prerouting { type filter hook prerouting priority 0; udp dport 9 counter name arrived; }
    chain input { type filter hook input priority 0; udp dport 9 counter name delivered drop
    }
    chain forward { type filter hook forward priority 0; udp dport 9 counter name forwarded drop
    }
}
RULES

packets() {
    nft list counter ip t "$1" | sed -n 's/.*packets \([0-9]*\) .*/\1/p'
}

wrong=0
# EXPECTED DEVICE RP_FILTER ADDRESS [routed]: how many of three packets to the host are delivered, and
# of three to another host forwarded. The source is routed to the device, or by the default route.
expect() {
    sysctl -qw "net.ipv4.conf.$2.rp_filter=$3"
    ip address flush dev "$2"
    [ "$4" = none ] || ip address add "$4" dev "$2" scope link
    [ -z "${5:-}" ] || ip route replace 198.51.100.9 dev "$2"
    nft reset counters >/dev/null
    hardware_address=$(cat "/sys/class/net/$2/address")
    for destination in 203.0.113.1 203.0.113.9; do
        ip -n sender route replace "$destination" dev "$2" src 198.51.100.9
        ip -n sender neighbour replace "$destination" lladdr "$hardware_address" dev "$2"
        for _ in 1 2 3; do
            echo x | ip netns exec sender socat -u - "UDP4:$destination:9,bind=198.51.100.9"
        done
        ip -n sender route delete "$destination" dev "$2"
    done
    tries=0
    until [ "$(packets arrived)" = 6 ] || [ "$tries" = 50 ]; do
        tries=$((tries + 1))
        sleep 0.1
    done
    sleep 0.1
    found="$(packets arrived) arrived, $(packets delivered) delivered, $(packets forwarded) forwarded"
    echo "$2, rp_filter $3, address $4${5:+, source routed to it}: $found"
    [ "$found" = "6 arrived, $1 delivered, $1 forwarded" ] || { echo "expected $1" >&2; wrong=1; }
}

for device in vxlan veth; do
    expect 3 "$device" 0 none
    expect 0 "$device" 1 169.254.1.1/32
    expect 0 "$device" 2 none
    expect 3 "$device" 2 169.254.1.1/32
    expect 3 "$device" 2 none routed
    ip route delete 198.51.100.9
done
exit $wrong
END
