#!/bin/sh
# Which nft takes a `gc-interval` in a map.
#
# Guess: a map takes what a set takes, and nft loads what it lists.
# Truth: nft 1.0.6 takes `gc-interval` in a set, and in a map ends with a syntax error. It does write
#   that of a map from JSON and lists it as text, so it cannot load that listing again. 1.1.3 takes
#   both.
# Version: nftables 1.0.6 of Debian 12 (bookworm), 1.1.3 of Debian 13 (trixie).
# Kernel: any; seen on Linux 6.18. User space alone decides.
# Who meets it: programs that write maps with timeouts by JSON or netlink, and then hosts that save
#   `nft list ruleset` as /etc/nftables.conf: the whole file is refused.
#
# Fetches the packages into a temporary folder and runs them in a network namespace. Needs root.
# Exits with 1 if a version behaves otherwise.
set -eu
cd "$(dirname "$0")/.."

[ "${1:-}" = inside ] || exec sh findings/in-suites nftables nft "$0"
folder=$2

# EXPECTED NAME FILE: whether nft can load a file, or its error.
expect() {
    found=$("$nft" --check -f "$3" 2>&1 | sed -n '1s/.*Error: //p')
    echo "  $2: ${found:-loads}"
    [ "${found:-loads}" = "$1" ] || { echo "expected: $1" >&2; wrong=1; }
}

for kind in 'set s { type ipv4_addr' 'map m { type ipv4_addr : mark'; do
    echo "table ip t { $kind; timeout 1m; gc-interval 5s; }; }" >"$folder/${kind%% *}"
done
cat >"$folder/json" <<'END'
{ "nftables": [
    { "add": { "table": { "family": "ip", "name": "t" } } },
    { "add": { "map": { "family": "ip", "table": "t", "name": "m",
        "type": "ipv4_addr", "map": "mark", "timeout": 60, "gc-interval": 5 } } }
] }
END
wrong=0
for suite in bookworm trixie; do
    nft=$folder/$suite/nft
    "$nft" --version
    "$nft" --json -f "$folder/json"
    "$nft" list table ip t >"$folder/listing"
    "$nft" delete table ip t
    grep -q 'gc-interval 5s' "$folder/listing" || wrong=1
    case $suite in bookworm) map='syntax error, unexpected gc-interval' ;; *) map=loads ;; esac
    expect loads 'a set' "$folder/set"
    expect "$map" 'a map' "$folder/map"
    expect "$map" 'the listing of a map from JSON' "$folder/listing"
done
exit $wrong
