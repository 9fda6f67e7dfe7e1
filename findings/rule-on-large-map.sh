#!/bin/sh
# What a rule costs that looks up a large map.
#
# Guess: a rule costs the same whatever is in the map or set that it names, which exists already.
# Truth: for each rule that looks up a map, the kernel walks all of its elements and checks their
#   data for the register of the rule (`nf_tables_bind_set`): 0.1 us for each element, so 20 ms for a
#   map of 200,000. The data of an element were checked when it was added. The same rule about a set
#   costs nothing. Of 20 such rules, also in one chain and in one transaction, each costs a walk, and
#   no other program can commit meanwhile.
# Version: nftables 1.0.6 of Debian 12 (bookworm), 1.1.3 of Debian 13 (trixie): the kernel decides.
# Kernel: seen on Linux 6.18.
# Who meets it: programs that replace their rules and keep their maps, such as NAT or policy by
#   address with 100,000 elements. Rules that come before the elements cost nothing.
#
# Fetches the packages into a temporary folder and runs them in a network namespace. Needs root.
# Exits with 1 if 20 rules about a map take less than five times as long as about a set, or as long
# before the elements as after them.
set -eu
cd "$(dirname "$0")/.."

[ "${1:-}" = inside ] || exec sh findings/in-suites nftables nft "$0"
folder=$2

# KIND ELEMENT: a table with a chain, and a script of 200,000 elements of its map or set.
table() {
    printf 'table ip t {\nchain c { }\n%s\n}\n' "$1" >"$folder/table"
    awk -v value="$2" 'BEGIN {
        print "add element ip t m {"
        for (i = 0; i < 200000; i++) printf "10.%d.%d.%d%s,\n", i / 65536, i / 256 % 256, i % 256, value
        print "}"
    }' >"$folder/elements"
}

# RULE: a script that adds 20 of them.
rules() {
    awk -v rule="$1" 'BEGIN { for (i = 0; i < 20; i++) print "add rule ip t c " rule }' >"$folder/rules"
}

# NFT: the median time that the 20 rules take before the elements, and after them.
measure() {
    for _ in 1 2 3; do
        "$1" -f "$folder/table"
        before=$(bash findings/kernel-time "$1" -f "$folder/rules")
        "$1" -f "$folder/elements"
        "$1" flush chain ip t c
        echo "$before $(bash findings/kernel-time "$1" -f "$folder/rules")"
        "$1" delete table ip t
    done >"$folder/measured"
    for column in 1 2; do
        cut -d' ' -f$column "$folder/measured" | sort -n | sed -n 2p
    done | paste -sd' ' -
}

wrong=0
for suite in bookworm trixie; do
    nft=$folder/$suite/nft
    table 'set m { type ipv4_addr; size 262144; }' ''
    rules 'ip saddr @m accept'
    set=$(measure "$nft")
    table 'map m { type ipv4_addr : mark; size 262144; }' ' : 1'
    rules 'meta mark set ip saddr map @m'
    map=$(measure "$nft")
    echo "$("$nft" --version | cut -d' ' -f2): ms of 20 rules before and after 200,000 elements: $set with a set, $map with a map"
    [ "${map#* }" -ge $((${set#* } * 5 + 50)) ] || wrong=1
    [ "${map#* }" -ge $((${map% *} * 5 + 50)) ] || wrong=1
done
exit $wrong
