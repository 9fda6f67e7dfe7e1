#!/bin/sh
# What `podman network reload` does to a running container.
#
# Guess: it writes the rules of published ports again, and changes nothing else.
# Truth: netavark removes the container's interface and the bridge and makes them again, with other
#   numbers and the same addresses. Open connections go on. Routes of the container that others added
#   are gone.
# Version: podman 5.4.2+ds1-2 and netavark 1.14.0-2 of Debian 13 (trixie).
# Kernel: any with nftables; seen on Linux 6.18.
# Who meets it: hosts that reload after a firewall did, as podman advises, with programs that watch
#   interfaces of containers or add routes to them.
#
# Fetches the packages into a temporary folder and runs them in a network namespace. Needs root.
# Exits with 1 if the version behaves otherwise.
set -eu

exec sh "$(dirname "$0")/in-debian" trixie 'podman netavark crun conmon' <<'END'
podman="podman --cgroup-manager=cgroupfs --events-backend=file"
mkdir -p /srv/container
mount --bind / /srv/container
$podman network create --disable-dns --subnet 10.89.7.0/24 hosts >/dev/null
$podman run --detach --name web --cgroups=disabled --network hosts --publish 18080:8080 \
    --rootfs /srv/container /usr/bin/socat TCP-LISTEN:8080,fork,reuseaddr EXEC:/usr/bin/cat >/dev/null 2>&1
inside() {
    nsenter --target "$($podman inspect --format '{{.State.Pid}}' web)" --net "$@"
}
inside ip route add 198.51.100.0/24 via 10.89.7.1
state() {
    cat /sys/class/net/podman1/ifindex
    inside ip -oneline link show eth0 | sed 's/.*ether \([^ ]*\).*/\1/'
    inside ip route show 198.51.100.0/24 | wc -l
}

ip link set lo up
until_true socat -u /dev/null TCP:127.0.0.1:18080
# A connection that is open during the reload.
mkfifo /tmp/in
socat - TCP:127.0.0.1:18080 </tmp/in >/tmp/out 2>&1 &
exec 3>/tmp/in
echo before >&3
until_true grep before /tmp/out
before=$(state)
$podman network reload --all >/dev/null
after=$(state)
echo after >&3
until_true grep after /tmp/out
echo "bridge, address, routes before:" $before
echo "bridge, address, routes after:" $after
echo "the open connection echoed:" $(cat /tmp/out)
set -- $before $after
[ "$1" != "$4" ] && [ "$2" = "$5" ] && [ "$3 $6" = "1 0" ] && [ "$(cat /tmp/out)" = "before
after" ]
END
