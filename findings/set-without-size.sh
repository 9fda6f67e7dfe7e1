#!/bin/sh
# What the size of a set costs or saves.
#
# Guess: the size is a limit. A set without one takes elements as fast, and is listed as fast.
# Truth: with a size the kernel makes the whole hash table at once. Without one the table begins
#   with a few buckets and grows behind the elements, which are inserted by a slow path
#   (`rhashtable_insert_slow` in a profile): 100,000 elements in one transaction take the kernel two
#   to three times as long (0.16 to 0.22 s instead of 0.05 to 0.09 s). A listing just afterwards
#   takes 1.5 times as long.
# Version: nftables 1.0.6 of Debian 12 (bookworm), 1.1.3 of Debian 13 (trixie): the kernel decides.
# Kernel: seen on Linux 6.18 with 2 processors.
# Who meets it: block lists and IP sets of 100,000 elements that are loaded by one `nft -f`.
#
# Fetches the packages into a temporary folder and runs them in a network namespace. Needs root.
# Exits with 1 if a set with a size is not loaded in two thirds of the time.
set -eu
cd "$(dirname "$0")/.."

[ "${1:-}" = inside ] || exec sh findings/in-suites nftables nft "$0"
folder=$2

# NFT LINE: the median times to load and to list a set of 100,000 elements with this line.
measure() {
    {
        printf 'table ip t {\nset s {\ntype ipv4_addr; %s\nelements = {\n' "$2"
        awk 'BEGIN { for (i = 0; i < 100000; i++) printf "10.%d.%d.%d,\n", i / 65536, i / 256 % 256, i % 256 }'
        printf '}\n}\n}\n'
    } >"$folder/table"
    for _ in 1 2 3 4 5; do
        echo "$(bash findings/kernel-time "$1" -f "$folder/table") $(bash findings/kernel-time "$1" list set ip t s)"
        "$1" delete table ip t
    done >"$folder/measured"
    for column in 1 2; do
        cut -d' ' -f$column "$folder/measured" | sort -n | sed -n 3p
    done | paste -sd' ' -
}

wrong=0
for suite in bookworm trixie; do
    nft=$folder/$suite/nft
    without=$(measure "$nft" '') with=$(measure "$nft" 'size 131072;')
    echo "$("$nft" --version | cut -d' ' -f2): ms to load and to list: $without, with a size $with"
    [ $((${with% *} * 3)) -le $((${without% *} * 2)) ] || wrong=1
done
exit $wrong
