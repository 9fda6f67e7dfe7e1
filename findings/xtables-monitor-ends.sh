#!/bin/sh
# What xtables-monitor of iptables does with rules that iptables cannot write.
#
# Guess: it prints rules of its own tables, or marks others as not compatible, and goes on.
# Truth: it prints the chains and rules of all tables as commands of iptables, without the parts that
#   it does not know: `ip daddr @s drop` is `-j DROP`, as if the rule matched all packets. At the first
#   expression that it cannot parse, here `meta priority set`, it prints an error and
#   ends with code 3.
# Version: iptables 1.8.9 of Debian 12 (bookworm), 1.8.11 of Debian 13 (trixie).
# Kernel: any; seen on Linux 6.18.
# Who meets it: everyone who watches iptables on a node where another program uses nftables.
#
# Fetches the packages into a temporary folder and runs them in a network namespace. Needs root.
# Exits with 1 if a version behaves otherwise.
set -eu
cd "$(dirname "$0")/.."

[ "${1:-}" = inside ] || exec sh findings/in-suites 'iptables nftables' nft "$0"
folder=$2
wrong=0
for suite in bookworm trixie; do
    root=$folder/$suite/root
    # The program does as its first argument says.
    libraries=$root/usr/lib/$(basename "$(dirname "$(find "$root" -name 'libxtables.so.12')")")
    loader=$(find "$root" -name 'ld-linux*.so.*' | head -1)
    XTABLES_LIBDIR=$(find "$root" -type d -name xtables) "$loader" --library-path "$libraries" \
        "$root/usr/sbin/xtables-nft-multi" xtables-monitor --event >"$folder/events" 2>&1 &
    monitor=$!
    # Until it ends, because the first changes may come before it listens.
    tries=0
    while kill -0 "$monitor" 2>/dev/null && [ "$tries" -lt 100 ]; do
        "$folder/$suite/nft" -f - <<'END'
table ip another
delete table ip another
table ip another {
    set s { type ipv4_addr; }
    chain sets { ip daddr @s drop; }
    chain other {
        meta priority set 1:1
    }
}
END
        sleep 0.1
        tries=$((tries + 1))
    done
    kill "$monitor" 2>/dev/null || true
    code=0
    wait "$monitor" || code=$?
    echo "$suite: ended with $code after:"
    cat "$folder/events"
    { [ "$code" = 3 ] && grep -q -- '-t another -[AD] sets -j DROP' "$folder/events"; } || wrong=1
done
exit $wrong
