#!/bin/sh
# What a reload of libvirt's daemon does after another program removed its rules.
#
# Guess: SIGHUP writes the rules of all networks again, as libvirt documents it for firewalls. Debian's
#   libvirt writes them with nft.
# Truth: the daemon makes its chains once. After `nft flush ruleset` a reload fails at the first rule,
#   with both backends, and guests have no NAT until the daemon starts again. Without a setting Debian's
#   libvirt uses iptables where it is installed.
# Version: libvirt 11.3.0-3+deb13u3 of Debian 13 (trixie).
# Kernel: any with nftables; seen on Linux 6.18. The script replaces tc, because the backend nftables
#   needs its action csum.
# Who meets it: hosts with guests where nftables.service is reloaded.
#
# Fetches the packages into a temporary folder and runs them in a network namespace. Needs root.
# Exits with 1 if the version behaves otherwise.
set -eu

exec sh "$(dirname "$0")/in-debian" trixie 'libvirt-daemon-driver-network libvirt-clients' <<'END'
ln -sf /usr/bin/true /usr/sbin/tc
echo '<network><name>guests</name><forward mode="nat"/><bridge name="virbr0" stp="off" delay="0"/>
    <dns enable="no"/><ip address="192.168.122.1" netmask="255.255.255.0"/></network>' >/tmp/guests.xml
virsh="virsh --connect network:///system"
wrong=0

# BACKEND: runs the daemon with this setting, or with none.
check() {
    mkdir -p /etc/libvirt
    if [ "$1" = default ]; then : >/etc/libvirt/network.conf
    else echo "firewall_backend = \"$1\"" >/etc/libvirt/network.conf; fi
    libvirtd >/tmp/log 2>&1 &
    until_true $virsh net-list
    $virsh net-create /tmp/guests.xml >/dev/null
    rules=$(nft list ruleset 2>/dev/null)
    backend=iptables
    case $rules in *libvirt_network*) backend=nftables ;; esac
    nft flush ruleset
    kill -HUP $!
    until_true grep -q 'Failed to' /tmp/log || wrong=1
    after_reload=$(nft list ruleset 2>/dev/null | grep -c masquerade)
    kill -TERM $!
    wait
    libvirtd >/tmp/log 2>&1 &
    until_true $virsh net-list
    after_start=$(nft list ruleset 2>/dev/null | grep -c masquerade)
    echo "setting $1: rules by $backend; masquerade rules after a reload: $after_reload, a start: $after_start"
    [ "$after_reload" = 0 ] && [ "$after_start" -gt 0 ] || wrong=1
    $virsh net-destroy guests >/dev/null
    kill -TERM $!
    wait
    nft flush ruleset
}

check default
[ "$backend" = iptables ] || wrong=1
check nftables
[ "$backend" = nftables ] || wrong=1
exit $wrong
END
