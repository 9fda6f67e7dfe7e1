#!/bin/sh
# What the kernel's filter of conntrack dumps (CTA_FILTER) does with an IPv6 address.
#
# Guess: a dump that is filtered by an address has the entries with this address, as for IPv4.
# Truth: for IPv6 the comparison is inverted. The entries with the address are left out, and all others
#   come: an address that no entry has gives the whole table, one address and its port give nothing.
#   Ports and protocols are compared as they should be.
# Version: pyroute2 0.7.7 of Debian 13 (trixie), which passes the filter on: the kernel decides.
# Kernel: seen on Linux 6.18.
# Who meets it: programs that look for connections of an IPv6 address with pyroute2, or with a filter
#   of libnetfilter_conntrack. The program conntrack 1.4.8 does not: it compares addresses itself.
#
# Fetches the packages into a temporary folder and runs them in a network namespace. Needs root.
# Exits with 1 if the kernel behaves otherwise.
set -eu

exec sh "$(dirname "$0")/in-debian" trixie 'conntrack python3-pyroute2' <<'END'
set -eu
for entry in '192.0.2.1 198.51.100.1 1001' '192.0.2.2 198.51.100.2 1002' \
    '2001:db8:1::1 2001:db8:2::1 1001' '2001:db8:1::2 2001:db8:2::2 1002'; do
    # shellcheck disable=SC2086 # Several words on purpose.
    set -- $entry
    conntrack -I -p udp -s "$1" -d "$2" --sport "$3" --dport 53 -t 600 2>/dev/null
done
echo "conntrack -L -s 2001:db8:1::1 (compares itself):"
conntrack -L -f ipv6 -s 2001:db8:1::1 2>/dev/null
exec python3 - <<'PYTHON'
import socket
import sys
from pyroute2 import NFCTSocket
from pyroute2.netlink.nfnetlink.nfctsocket import NFCTAttrTuple

wrong = 0


def expect(expected, family, **fields):
    """The sources of the entries that a filtered dump has."""
    global wrong
    with NFCTSocket(nfgen_family=family) as conntrack:
        entries = list(conntrack.dump(tuple_orig=NFCTAttrTuple(family=family, **fields)))
    address = "CTA_IP_V4_SRC" if family == socket.AF_INET else "CTA_IP_V6_SRC"
    found = sorted(
        entry.get_attr("CTA_TUPLE_ORIG").get_attr("CTA_TUPLE_IP").get_attr(address)
        for entry in entries
    )
    print(f"filter {fields}: {found}")
    if found != expected:
        print(f"expected {expected}", file=sys.stderr)
        wrong = 1


first4, other4 = "192.0.2.1", "192.0.2.2"
first6, other6 = "2001:db8:1::1", "2001:db8:1::2"
udp = socket.IPPROTO_UDP
expect([first4], socket.AF_INET, saddr=first4)
expect([], socket.AF_INET, saddr="203.0.113.1")
expect([first4], socket.AF_INET, saddr=first4, proto=udp, sport=1001)
expect([other6], socket.AF_INET6, saddr=first6)
expect([other6], socket.AF_INET6, daddr="2001:db8:2::1")
expect([first6, other6], socket.AF_INET6, saddr="2001:db8:3::1")
expect([], socket.AF_INET6, saddr=first6, proto=udp, sport=1001)
expect([first6], socket.AF_INET6, proto=udp, sport=1001)
sys.exit(wrong)
PYTHON
END
