#!/bin/sh
# Whether nft loads what it lists in JSON.
#
# Guess: `nft --json list table` prints what `nft --json -f` of the same version loads.
# Truth: nft 1.0.6 refuses its own JSON of common maps, and 1.0.6 and 1.1.3 that of a hash of several
#   fields in a key of several fields. The listing ends with code 0:
#   - 1.0.6 prints a map of verdicts before the chains to which its elements jump: the kernel answers
#     "No such file or directory".
#   - 1.0.6 prints the type of `type inet_service : ipv4_addr . inet_service` as one string, and reads
#     it as the name of a type.
#   - 1.0.6 prints a statement that updates a map as a string of nft's language, and warns of it.
#   - Both print `ip daddr . jhash ip saddr . tcp sport mod 2` and allow no such hash in a list of
#     fields.
#   All four load from the listing without --json.
# Version: nftables 1.0.6 of Debian 12 (bookworm), 1.1.3 of Debian 13 (trixie).
# Kernel: any; seen on Linux 6.18. User space alone decides.
# Who meets it: programs that keep a copy of a table in JSON to load it again. kube-proxy's tables have
#   maps of the first kind.
#
# Fetches the packages into a temporary folder and runs them in a network namespace. Needs root.
# Exits with 1 if a version behaves otherwise.
set -eu
cd "$(dirname "$0")/.."

[ "${1:-}" = inside ] || exec sh findings/in-suites nftables nft "$0"
folder=$2

# EXPECTED NAME: loads the table of the standard input, and again from both kinds of listing. Expects
# that the first error about the one in JSON ends so, or that there is none.
expect() {
    "$nft" -f -
    "$nft" list table ip t >"$folder/listing"
    "$nft" --json list table ip t >"$folder/json" 2>"$folder/warnings"
    "$nft" delete table ip t
    "$nft" -f "$folder/listing"
    "$nft" list table ip t | cmp - "$folder/listing" || wrong=1
    "$nft" delete table ip t
    found=$("$nft" --json -f "$folder/json" 2>&1 | sed -n '1s/^internal:0:0-0: Error: //p')
    echo "  $2: ${found:-loaded}"
    [ "$found" = "$1" ] || { echo "expected: $1" >&2; wrong=1; }
    [ -n "$found" ] || "$nft" delete table ip t
}

wrong=0
for suite in bookworm trixie; do
    nft=$folder/$suite/nft
    "$nft" --version
    before='' type='' update=''
    if [ $suite = bookworm ]; then
        before='Could not process rule: No such file or directory'
        type="Invalid map type 'ipv4_addr . inet_service'."
        update='Unexpected expr array element of type string, expected object.'
    fi
    expect "$before" 'map of verdicts' <<'END'
table ip t {
    chain other { accept; }
    map m { type ipv4_addr : verdict; elements = { 192.0.2.1 : jump other }; }
    chain c { ip saddr vmap @m; }
}
END
    expect "$type" 'map to address and port' <<'END'
table ip t {
    map m { type inet_service : ipv4_addr . inet_service; elements = { 80 : 192.0.2.1 . 8080 }; }
}
END
    expect "$update" 'update of a map' <<'END'
table ip t {
    map m { type ipv4_addr : mark; size 100; flags dynamic; }
    chain c { update @m { ip saddr : 1 }; }
}
END
    expect 'Expression type concat not allowed in context ().' 'hash in a key' <<'END'
table ip t {
    chain c { ip daddr . jhash ip saddr . tcp sport mod 2 vmap { 192.0.2.1 . 0 : accept, 192.0.2.1 . 1 : drop }; }
}
END
done
exit $wrong
