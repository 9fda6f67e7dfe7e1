#!/bin/sh
# What `nft monitor trace` prints of rules that were added after its start.
#
# Guess: it prints each rule that a traced packet matches.
# Truth: it reads the rules once, when it starts. A packet at a rule that was added later is
#   `unknown rule handle` with a number, and the verdict. With `--json` it prints plain text.
# Version: nftables 1.0.6 of Debian 12 (bookworm), 1.1.3 of Debian 13 (trixie).
# Kernel: any with nftables; seen on Linux 6.18.
# Who meets it: people who trace packets on a node while a firewall or a service proxy replaces
#   rules. Start it again after each change.
#
# Fetches the packages into a temporary folder and runs them in a network namespace. Needs root.
# Exits with 1 if a version behaves otherwise.
set -eu
cd "$(dirname "$0")/.."

[ "${1:-}" = inside ] || exec sh findings/in-suites nftables nft "$0"
folder=$2
ip link set lo up

# FORMAT TEXT: sends datagrams until the trace in this format has a line of text with it.
until_traced() {
    tries=0
    until grep -q "^trace id.*$2" "$folder/$suite-$1"; do
        tries=$((tries + 1))
        [ "$tries" -lt 100 ] || { echo "no $2 in the trace as $1"; return 1; }
        bash -c 'echo >/dev/udp/127.0.0.1/9'
        sleep 0.1
    done
}

wrong=0
for suite in bookworm trixie; do
    nft=$folder/$suite/nft
    "$nft" 'add table ip t; add chain ip t c { type filter hook output priority 0; }'
    "$nft" 'add rule ip t c meta nftrace set 1'
    touch "$folder/$suite-text" "$folder/$suite-json"
    "$nft" monitor trace >"$folder/$suite-text" &
    text=$!
    "$nft" --json monitor trace >"$folder/$suite-json" &
    json=$!
    until_traced text 'rule meta nftrace set 1' || wrong=1
    until_traced json 'rule meta nftrace set 1' || wrong=1
    "$nft" add rule ip t c udp dport 9 accept
    until_traced text 'unknown rule handle' || wrong=1
    until_traced json 'unknown rule handle' || wrong=1
    kill "$text" "$json"
    echo "$("$nft" --version | cut -d' ' -f2):"
    grep -m1 'unknown rule handle' "$folder/$suite-text"
    ! grep -q 'rule udp dport 9 accept' "$folder/$suite-text" || wrong=1
    "$nft" delete table ip t
done
exit $wrong
