#!/bin/sh
# What a published port of Docker does after another program removed Docker's rules, and which policy
# Docker leaves.
#
# Guess: the port does not answer any more. Docker always sets the policy of chain FORWARD to DROP.
# Truth: docker-proxy listens on the port and answers, and the container sees the address of the bridge
#   instead of the client's: nothing tells of the loss. Docker sets the policy only if the host did not
#   forward before, and leaves it when it ends.
# Version: docker.io 26.1.5+dfsg1-9+deb13u1 of Debian 13 (trixie).
# Kernel: any with nftables and overlay; seen on Linux 6.18.
# Who meets it: hosts where nftables.service is reloaded; whoever limits clients by their address.
#
# Fetches the packages into a temporary folder and runs them in a network namespace. Needs root.
# Exits with 1 if the version behaves otherwise.
set -eu

exec sh "$(dirname "$0")/in-debian" trixie 'docker.io docker-cli' <<'END'
wrong=0
# A client in a network namespace of its own.
ip netns add client
ip link add uplink type veth peer name eth0 netns client
ip link set uplink up
ip address add 192.0.2.1/24 dev uplink
ip netns exec client ip link set eth0 up
ip netns exec client ip address add 192.0.2.9/24 dev eth0

# What the container sees of the client.
seen() {
    ip netns exec client socat -u TCP:192.0.2.1:18080,connect-timeout=5 - 2>/dev/null
}

# FORWARDING: the policy of FORWARD after a start on a host with this setting.
policy() {
    echo "$1" >/proc/sys/net/ipv4/ip_forward
    dockerd --cgroup-parent=deltaproxy-findings >/tmp/log 2>&1 &
    until_true docker version || { cat /tmp/log; exit 1; }
    iptables --list-rules FORWARD | head -1
}

policy 1 >/tmp/policy
grep -q ACCEPT /tmp/policy || wrong=1
echo "the host forwarded: $(cat /tmp/policy)"
tar -C / -c bin lib lib64 sbin | docker import - programs >/dev/null
docker run --detach --name web --publish 18080:8080 --volume /usr:/usr:ro programs \
    /usr/bin/socat -U TCP-LISTEN:8080,fork,reuseaddr 'SYSTEM:echo $SOCAT_PEERADDR' >/dev/null
until_true seen
with=$(seen)
nft flush ruleset
without=$(seen)
echo "seen by the container with rules: $with, without: $without"
[ "$with" = 192.0.2.9 ] && [ "$without" = 172.17.0.1 ] || wrong=1
docker rm --force web >/dev/null
kill -TERM $!
wait

policy 0 >/tmp/policy
grep -q DROP /tmp/policy || wrong=1
kill -TERM $!
wait
after=$(iptables --list-rules FORWARD | head -1)
echo "the host did not forward: $(cat /tmp/policy); after the end of Docker: $after"
[ "$after" = "-P FORWARD DROP" ] || wrong=1
rmdir /sys/fs/cgroup/deltaproxy-findings 2>/dev/null
exit $wrong
END
