#!/bin/sh
# What it costs to raise the size of a set.
#
# Guess: `add set` with a larger size than that of the set makes it as if it had been created so.
# Truth: only the limit is raised. The kernel chose the buckets of the hash table for the first size,
#   and such a table never grows: with 50,000 elements and a first size of 16, each lookup walks a
#   chain of 1,500. To load them takes the kernel 8 to 16 times as long (0.65 to 1.0 instead of 0.05
#   to 0.10 s), and each further element and each packet that is looked up pays too. `list` shows
#   the raised size alone. A set without a size grows.
# Version: nftables 1.0.6 of Debian 12 (bookworm), 1.1.3 of Debian 13 (trixie): the kernel decides.
# Kernel: seen on Linux 6.18.
# Who meets it: block lists whose size was raised after "Too many open files in system" (ENFILE).
#   To delete and create the set helps.
#
# Fetches the packages into a temporary folder and runs them in a network namespace. Needs root.
# Exits with 1 if the set with the raised size is loaded in less than three times the time, or if
# the two are listed otherwise.
set -eu
cd "$(dirname "$0")/.."

[ "${1:-}" = inside ] || exec sh findings/in-suites nftables nft "$0"
folder=$2

# NFT SIZE: the median time to load 50,000 elements into a set with this size, raised to 60,000.
# Leaves its list in a file named by the size.
measure() {
    for _ in 1 2 3; do
        "$1" "add table ip t; add set ip t s { type ipv4_addr; size $2; }"
        "$1" 'add set ip t s { type ipv4_addr; size 60000; }'
        "$1" list set ip t s >"$folder/listed-$2"
        bash findings/kernel-time "$1" -f "$folder/elements"
        "$1" delete table ip t
    done | sort -n | sed -n 2p
}

awk 'BEGIN {
    print "add element ip t s {"
    for (i = 0; i < 50000; i++) printf "10.0.%d.%d,\n", i / 256, i % 256
    print "}"
}' >"$folder/elements"
wrong=0
for suite in bookworm trixie; do
    nft=$folder/$suite/nft
    fresh=$(measure "$nft" 60000)
    raised=$(measure "$nft" 16)
    echo "$("$nft" --version | cut -d' ' -f2): ms to load 50,000 elements: $fresh with size 60000, $raised with size 16 raised to 60000"
    [ "$raised" -ge $((fresh * 3)) ] || wrong=1
    cmp "$folder/listed-60000" "$folder/listed-16" || wrong=1
done
exit $wrong
