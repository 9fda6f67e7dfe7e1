#!/bin/sh
# What `nft monitor` prints after a rule that uses a set was deleted.
#
# Guess: a monitor that runs prints each later rule and element, as `list` does.
# Truth: it forgets a named set or map with the first deleted rule that uses it, although the set
#   stays. From then on it prints rules without their match, such as `drop` for `ip saddr @s drop`,
#   and no element of the set. It goes on running, with warnings on its standard error alone.
# Version: nftables 1.0.6 of Debian 12 (bookworm), 1.1.3 of Debian 13 (trixie).
# Kernel: any with nftables; seen on Linux 6.18.
# Who meets it: people who record or audit changes of rules by `nft monitor`, beside a program that
#   replaces rules and keeps its sets. A monitor that starts later is right again.
#
# Fetches the packages into a temporary folder and runs them in a network namespace. Needs root.
# Exits with 1 if a version behaves otherwise.
set -eu
cd "$(dirname "$0")/.."

[ "${1:-}" = inside ] || exec sh findings/in-suites nftables nft "$0"
folder=$2

# TEXT: waits until the monitor has printed it.
until_printed() {
    tries=0
    until grep -q "$1" "$printed"; do
        tries=$((tries + 1))
        [ "$tries" -lt 200 ] || { cat "$printed"; return 1; }
        sleep 0.1
    done
}

wrong=0
for suite in bookworm trixie; do
    nft=$folder/$suite/nft
    printed=$folder/printed-$suite
    : >"$printed"
    "$nft" 'add table ip t; add set ip t s { type ipv4_addr; }; add chain ip t c'
    "$nft" 'add rule ip t c ip saddr @s drop'
    "$nft" monitor >"$printed" 2>"$folder/warnings" &
    monitor=$!
    # Its socket is open once it prints a change.
    tries=0
    until grep -q 'chain ip t open' "$printed" || [ "$tries" = 100 ]; do
        tries=$((tries + 1))
        "$nft" 'add chain ip t open; delete chain ip t open'
        sleep 0.1
    done
    "$nft" 'add element ip t s { 192.0.2.1 }'
    "$nft" flush chain ip t c
    "$nft" 'add rule ip t c ip saddr @s drop'
    "$nft" 'add element ip t s { 192.0.2.2 }'
    "$nft" 'add chain ip t last'
    until_printed 'chain ip t last'
    kill "$monitor"
    echo "$("$nft" --version | cut -d' ' -f2):"
    grep -E '^(add|delete) (rule|element)' "$printed" | tee "$folder/seen"
    listed=$("$nft" list table ip t)
    "$nft" delete table ip t
    echo "$listed" | grep -q 'ip saddr @s drop' || wrong=1
    echo "$listed" | grep -q '192.0.2.1, 192.0.2.2' || wrong=1
    grep -q '192.0.2.1' "$folder/seen" || wrong=1
    ! grep -q '192.0.2.2' "$folder/seen" || wrong=1
    grep -Eq '^add rule ip t c drop' "$folder/seen" || wrong=1
done
exit $wrong
