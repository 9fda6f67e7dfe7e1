#!/bin/sh
# What a reload of keepalived does after another program removed its rules.
#
# Guess: SIGHUP writes the rules again that drop packets to the addresses of a strict VRRP instance.
# Truth: it writes none and logs nothing. The address accepts packets until keepalived starts again.
# Version: keepalived 2.3.3-1 of Debian 13 (trixie).
# Kernel: any with nftables; seen on Linux 6.18.
# Who meets it: hosts with vrrp_strict or no_accept where nftables.service is reloaded.
#
# Fetches the packages into a temporary folder and runs them in a network namespace. Needs root.
# Exits with 1 if the version behaves otherwise.
set -eu

exec sh "$(dirname "$0")/in-debian" trixie keepalived <<'END'
ip link add uplink type veth peer name other
ip link set uplink up
ip link set other up
ip address add 192.0.2.1/24 dev uplink
cat >/etc/keepalived.conf <<'CONFIGURATION'
global_defs {
    vrrp_strict
    nftables keepalived
}
vrrp_instance address {
    interface uplink
    virtual_router_id 51
    priority 150
    advert_int 1
    virtual_ipaddress { 198.51.100.2/32 }
}
CONFIGURATION

keepalived --dont-fork --log-console --use-file /etc/keepalived.conf >/tmp/log 2>&1 &
until_true nft list table ip keepalived || { cat /tmp/log; exit 1; }
nft flush ruleset
kill -HUP $!
until_true grep 'Reload complete' /tmp/log || { cat /tmp/log; exit 1; }
sleep 3
tables=$(nft list tables | grep -c keepalived)
address=$(ip address show uplink | grep -c 198.51.100.2)
echo "after a reload: $tables tables, $address address"
[ "$tables" = 0 ] && [ "$address" = 1 ]
END
