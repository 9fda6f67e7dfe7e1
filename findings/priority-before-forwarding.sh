#!/bin/sh
# What forwarding does with the priority of a packet that a rule has set.
#
# Guess: the priority that `meta priority set` stores in a chain at hook prerouting is still there at
#   the hooks forward and postrouting, and classes of `tc` see it.
# Truth: it is for IPv6. For IPv4 forwarding replaces it, before hook forward, by one that follows
#   from the TOS field (DSCP): 0 for most packets, 6 for TOS 0x10. nft takes such a rule without a
#   warning, and it does set the priority. A rule at hook forward or postrouting works for both.
# Version: nftables 1.1.3 of Debian 13 (trixie): the kernel decides.
# Kernel: seen on Linux 6.18.
# Who meets it: routers that choose classes of `tc` (HTB, PRIO) by rules at hook prerouting: IPv6 is
#   shaped and IPv4 is not.
#
# Fetches the packages into a temporary folder and runs them in a network namespace. Needs root.
# Exits with 1 if the kernel behaves otherwise.
set -eu

exec sh "$(dirname "$0")/in-debian" trixie '' <<'END'
set -eu
for side in client server; do
    ip netns add $side
    ip link add $side type veth peer name eth0 netns $side
    ip link set $side up
    ip -n $side link set eth0 up
done
ip address add 192.0.2.1/24 dev client
ip address add 2001:db8:1::1/64 dev client nodad
ip address add 198.51.100.1/24 dev server
ip address add 2001:db8:2::1/64 dev server nodad
ip -n client address add 192.0.2.2/24 dev eth0
ip -n client address add 2001:db8:1::2/64 dev eth0 nodad
ip -n server address add 198.51.100.2/24 dev eth0
ip -n server address add 2001:db8:2::2/64 dev eth0 nodad
ip -n client route add default via 192.0.2.1
ip -n client route add default via 2001:db8:1::1
sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1

wrong=0
# HOOK DESTINATION OPTIONS EXPECTED: the priority at hook postrouting of three packets of UDP, if a rule
# sets 1:2 at a hook.
expect() {
    nft -f - <<RULES
table inet t
delete table inet t
table inet t {
    chain before {
        type filter hook $1 priority 0
        udp dport 9 meta priority set 1:2
    }
    chain after {
        type filter hook postrouting priority 1
        udp dport 9 meta priority 1:2 counter comment "1:2"
        udp dport 9 meta priority none counter comment "none"
        udp dport 9 meta priority 0:6 counter comment "0:6"
    }
}
RULES
    for _ in 1 2 3; do
        echo x | ip netns exec client socat -u - "$2:9$3"
    done
    tries=0
    until found=$(nft list table inet t | sed -n 's/.*packets 3 .*comment "\(.*\)"/\1/p') && [ -n "$found" ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 50 ] || break
        sleep 0.1
    done
    echo "priority 1:2 set at hook $1, $2$3: ${found:-another} at postrouting"
    [ "$found" = "$4" ] || { echo "expected $4" >&2; wrong=1; }
}

expect prerouting 'UDP6:[2001:db8:2::2]' '' 1:2
expect prerouting UDP4:198.51.100.2 '' none
expect prerouting UDP4:198.51.100.2 ,tos=16 0:6
for hook in forward postrouting; do
    expect $hook 'UDP6:[2001:db8:2::2]' '' 1:2
    expect $hook UDP4:198.51.100.2 '' 1:2
done
exit $wrong
END
