#!/bin/sh
# Which addresses a socket can be bound to in a new network namespace.
#
# Guess: none, because the namespace has no address: its loopback interface is down.
# Truth: any IPv4 address, also one of another network, and no IPv6 address. The kernel refuses IPv4
#   addresses that are not local only once the namespace has a table of local addresses, which the
#   first address makes. It stays when the loopback interface is set down again, with 127.0.0.1 in it.
# Version: socat 1.8.0.3 of Debian 13 (trixie): the kernel decides.
# Kernel: seen on Linux 6.18.
# Who meets it: tests and services in namespaces. A socket on a wrong address is no error before the
#   first address is set. A program that binds to 127.0.0.1 before the loopback interface is up works,
#   but not in the moment in which another one sets it up: the table is there and the address is not.
#
# Fetches the packages into a temporary folder and runs them in a network namespace. Needs root.
# Exits with 1 if the kernel behaves otherwise.
set -eu

exec sh "$(dirname "$0")/in-debian" trixie '' <<'END'
set -eu
ip netns add new
wrong=0
# EXPECTED: which of four addresses a socket of UDP can be bound to, and so waits for packets.
expect() {
    found=
    for address in 127.0.0.1 192.0.2.1 ::1 2001:db8::1; do
        case $address in
        *:*) socket="UDP6-RECV:9,bind=[$address]" ;;
        *) socket="UDP4-RECV:9,bind=$address" ;;
        esac
        ended=0
        error=$(ip netns exec new timeout 1 socat -d0 -u "$socket" - 2>&1) || ended=$?
        case $ended:$error in
        124:) found="$found $address" ;;
        *"Cannot assign requested address"*) ;;
        *) echo "$address: $error" >&2; wrong=1 ;;
        esac
    done
    echo "$2:$found"
    [ "$found" = "$1" ] || { echo "expected$1" >&2; wrong=1; }
}

expect ' 127.0.0.1 192.0.2.1' 'new namespace'
ip -n new link set lo up
expect ' 127.0.0.1 ::1' 'loopback up'
ip -n new link set lo down
expect ' 127.0.0.1' 'loopback down again'
exit $wrong
END
