#!/bin/sh
# Which commands of nft read every element of every set of all tables.
#
# Guess: a command reads what it prints or changes. `-t` (terse) reads no elements.
# Truth: nft 1.0.6 reads all elements of all tables for `list tables`, also with `-t`, and for every
#   command with `-e` (echo). `-t list table` reads those of the table. nft 1.1.3 does so only for a
#   rule at an index (`add rule ... index 0`), with and without `-e`; 1.0.6 without `-e` does not.
#   `-t list ruleset` and `list chains` read none in both.
# Version: nftables 1.0.6 of Debian 12 (bookworm), 1.1.3 of Debian 13 (trixie).
# Kernel: any; seen on Linux 6.18. User space alone decides.
# Who meets it: firewalld, which uses echo for each command, and rules at an index. With 30,000
#   services of 5 endpoints in another program's tables its reload takes 20 s instead of 0.5 s, and
#   firewalld drops new connections meanwhile. Scripts that look for a table with `nft list tables`.
#
# Fetches the packages into a temporary folder and runs them in a network namespace. Needs root.
# Exits with 1 if a version behaves otherwise.
set -eu
cd "$(dirname "$0")/.."

[ "${1:-}" = inside ] || exec sh findings/in-suites nftables nft "$0"
folder=$2

# SUITE EXPECTED ARGUMENTS: the number of elements that nft reads for a command.
expect() {
    nft=$folder/$1/nft expected=$2
    shift 2
    # Lines such as "element 010200c0  flags 0x00000000", one for each element that is read.
    found=$("$nft" --debug=netlink "$@" 2>&1 | grep -c '^[[:space:]]*element ' || true)
    echo "$("$nft" --version | cut -d' ' -f2) $*: $found elements"
    [ "$found" = "$expected" ] || { echo "expected $expected" >&2; wrong=1; }
}

wrong=0
for suite in bookworm trixie; do
    "$folder/$suite/nft" -f - <<'END'
flush ruleset
table ip large { set s { type ipv4_addr; elements = { 192.0.2.1, 192.0.2.2, 192.0.2.3 }; }; }
table inet own { chain c { accept; }; }
END
    case $suite in bookworm) old=3 new=0 ;; *) old=0 new=3 ;; esac
    expect $suite $old list tables
    expect $suite $old -t list tables
    expect $suite $old -t list table ip large
    expect $suite 0 list chains
    expect $suite 0 -t list ruleset
    expect $suite 0 list table inet own
    expect $suite $old -e add table inet own
    expect $suite 3 -e insert rule inet own c index 0 accept
    expect $suite $new insert rule inet own c index 0 accept
done
exit $wrong
