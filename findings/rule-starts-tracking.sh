#!/bin/sh
# What a rule with `ct state` makes the kernel track.
#
# Guess: connections of IPv4 and IPv6, as soon as a chain with such a rule sees packets. Without the
#   rule the entries end with their connections.
# Truth: the rule counts, not its packets. It starts tracking of all connections of the namespace, also
#   in a chain that nothing calls and in a dormant table, and so does an object `ct helper` that no
#   rule names. It does so for the family of its table: with a rule in a table `ip`, `conntrack -L
#   -f ipv6` is empty. A table `inet` tracks both. An empty chain of type nat tracks nothing.
#   With the last such rule tracking ends, and the entries stay: a connection that is closed after it
#   is listed as ESTABLISHED for five days.
# Version: nftables 1.1.3-1 and conntrack 1:1.4.8-2 of Debian 13 (trixie): the kernel decides.
# Kernel: seen on Linux 6.18.
# Who meets it: programs that read conntrack on nodes where only IPv4 has rules; hosts on which the
#   table of connections is full though "no rule uses it"; who flushes the rules and counts entries.
#
# Fetches the packages into a temporary folder and runs them in a network namespace. Needs root.
# Exits with 1 if the kernel behaves otherwise.
set -eu

exec sh "$(dirname "$0")/in-debian" trixie conntrack <<'END'
# FAMILY: prints whether entries of this family are listed.
tracked() {
    conntrack -L -f "$1" 2>/dev/null | grep -q dport=7000 && echo tracked || echo none
}

# NAME RULES EXPECTED: connects by IPv4 and IPv6 under these rules.
wrong=0
trial() {
    nft "$2"
    socat -u TCP4:127.0.0.1:7000 /dev/null
    socat -u 'TCP6:[::1]:7000' /dev/null
    seen="$(tracked ipv4) $(tracked ipv6)"
    echo "$1: IPv4 and IPv6: $seen"
    [ "$seen" = "$3" ] || wrong=1
    nft flush ruleset
    conntrack -F 2>/dev/null
}

ip link set lo up
socat -u OPEN:/dev/null TCP6-LISTEN:7000,ipv6only=0,fork,reuseaddr &
until_true socat -u TCP4:127.0.0.1:7000 /dev/null
base='type filter hook output priority 0;'
trial 'no rule' 'table ip t' 'none none'
trial 'rule in a table ip' "table ip t { chain c { $base ct state new; }; }" 'tracked none'
trial 'rule in a table ip6' "table ip6 t { chain c { $base ct state new; }; }" 'none tracked'
trial 'rule in a table inet' "table inet t { chain c { $base ct state new; }; }" 'tracked tracked'
trial 'rule in a chain that nothing calls' 'table ip t { chain c { ct state new; }; }' 'tracked none'
trial 'rule in a dormant table' "table ip t { flags dormant; chain c { $base ct state new; }; }" 'tracked none'
trial 'object that no rule names' 'table ip t { ct helper h { type "ftp" protocol tcp; }; }' 'tracked none'
trial 'empty chain of type nat' 'table ip t { chain c { type nat hook output priority 0; }; }' 'none none'

# A connection that is open while its rule is deleted.
nft 'table ip t { chain c { ct state new; }; }'
socat TCP4-LISTEN:7001,reuseaddr EXEC:/usr/bin/cat &
server=$!
until_true grep -q ':1B59 00000000:0000 0A' /proc/net/tcp
mkfifo /tmp/in
socat - TCP4:127.0.0.1:7001 </tmp/in >/tmp/out &
client=$!
exec 3>/tmp/in
echo text >&3
until_true grep text /tmp/out
nft flush ruleset
exec 3>&-
wait "$client" "$server"
nft 'table ip t { chain c { ct state new; }; }'
open=$(ss --no-header -tn state established '( dport = :7001 )' | wc -l)
entry=$(conntrack -L -p tcp --orig-port-dst 7001 2>/dev/null | sed 's/^tcp *6 \([0-9]*\) \([A-Z_]*\) .*/\2 \1/')
echo "closed after the rule was deleted: $open open, and in conntrack (state, seconds left): $entry"
case "$open $entry" in
'0 ESTABLISHED 43'????) ;;
*) wrong=1 ;;
esac
exit $wrong
END
