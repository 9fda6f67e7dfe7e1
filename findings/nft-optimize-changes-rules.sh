#!/bin/sh
# What `nft --optimize` makes of a valid file.
#
# Guess: rules that have the effect of the file's.
# Truth: it merges rules that are next to each other. Some merged rules do something else, and nft ends
#   with code 0:
#   - `ct state established,related accept` and `ct state new accept` become a set whose one element is
#     two states at once, which no packet has: answers do not match. The text that nft prints would be
#     right as a rule. If one of the two is a `drop`, the map is right.
#   - `ct status` and `tcp flags` match packets that have other bits too. They become sets of exact
#     values: `ct status dnat` does not match, nor `tcp flags rst` a reset with ACK.
#   - `dnat to :8080` for two addresses becomes a map to the address 0.0.31.144, the number 8080.
#   - `redirect to` two ports, for an address, becomes a redirect of all TCP without a port. Without an
#     address the map is right.
#   If a range and a value in it have different verdicts, the whole file is refused. Without the option
#   the first rule that matches wins.
# Version: nftables 1.1.3 of Debian 13 (trixie).
# Kernel: any; seen on Linux 6.18. User space alone decides.
# Who meets it: everyone who loads rules with -o, and writers of firewalls that offer it.
#
# Fetches the packages into a temporary folder and runs them in a network namespace. Needs root.
# Exits with 1 if the version behaves otherwise.
set -eu

exec sh "$(dirname "$0")/in-debian" trixie nftables <<'END'
# Prints what answers at an address and port.
answer() {
    socat -u "TCP4:$1,connect-timeout=1" - 2>/dev/null || echo nothing
}

# NAME BEFORE AFTER COMMAND: loads the file of the standard input without and with -o. Expects what the
# command prints.
wrong=0
trial() {
    cat >/tmp/rules
    echo "$1:"
    for options in '' --optimize; do
        nft flush ruleset
        # shellcheck disable=SC2086 # None or one.
        nft $options -f /tmp/rules >/tmp/printed 2>&1
        code=$?
        found="code $code, $($4)"
        echo "  nft ${options:+$options }-f: $found"
        [ -z "$options" ] && expected="code 0, $2" || expected=$3
        [ "$found" = "$expected" ] || { echo "expected $expected" >&2; wrong=1; }
    done
    sed -n '/^into:/{n;s/^\t/  merged: /p;}' /tmp/printed
}

ip link set lo up
ip address add 192.0.2.1/32 dev lo
ip address add 192.0.2.2/32 dev lo
for port in 7000 8080 8081; do
    echo "server $port" >/tmp/$port
    socat -U TCP4-LISTEN:$port,fork,reuseaddr OPEN:/tmp/$port,rdonly &
    until_true socat -u TCP4:127.0.0.1:$port /dev/null
done

trial 'states' 'server 7000' 'code 0, nothing' 'answer 127.0.0.1:7000' <<'RULES'
table ip t {
    chain c {
        type filter hook input priority 0; policy drop;
        ct state established,related accept
        ct state new accept
    }
}
RULES
nft list table ip t | grep 'ct state { established | related, new } accept' || wrong=1
nft "flush chain ip t c; add rule ip t c $(sed -n '/^into:/{n;p;}' /tmp/printed)"
echo "  the printed text as a rule: $(answer 127.0.0.1:7000)"
[ "$(answer 127.0.0.1:7000)" = 'server 7000' ] || wrong=1

trial 'states with a drop' 'server 7000' 'code 0, server 7000' 'answer 127.0.0.1:7000' <<'RULES'
table ip t {
    chain c {
        type filter hook input priority 0; policy drop;
        ct state established,related,new accept
        ct state invalid drop
    }
}
RULES
nft list table ip t | grep 'established : accept' || wrong=1

# Whether a rule with a counter has seen a packet.
counted() {
    [ "$(answer 192.0.2.1:"$1")" = "$2" ] || echo "$1 does not answer: $2"
    nft list chain ip t c | grep -q 'packets [1-9]' && echo counted || echo 'not counted'
}
dnat() { counted 80 'server 8080'; }
trial 'status' counted 'code 0, not counted' dnat <<'RULES'
table ip t {
    chain nat {
        type nat hook output priority -100;
        ip daddr 192.0.2.1 tcp dport 80 dnat to 192.0.2.1:8080
    }
    chain c {
        type filter hook input priority 0;
        ct status dnat counter
        ct status snat counter
    }
}
RULES
reset() { counted 81 nothing; }
trial 'flags' counted 'code 0, not counted' reset <<'RULES'
table ip t {
    chain c {
        type filter hook input priority 0;
        tcp flags rst counter
        tcp flags fin counter
    }
}
RULES

trial 'dnat to a port' 'server 8080' 'code 0, nothing' 'answer 192.0.2.2:80' <<'RULES'
table ip t {
    chain c {
        type nat hook output priority -100;
        ip daddr 192.0.2.1 tcp dport 80 dnat to :8080
        ip daddr 192.0.2.2 tcp dport 80 dnat to :8080
    }
}
RULES
nft list table ip t | grep '192.0.2.2 . 80 : 0.0.31.144' || wrong=1

trial 'redirect' 'server 8081' 'code 0, nothing' 'answer 192.0.2.1:81' <<'RULES'
table ip t {
    chain c {
        type nat hook output priority -100;
        ip daddr 192.0.2.1 tcp dport 80 redirect to :8080
        ip daddr 192.0.2.1 tcp dport 81 redirect to :8081
    }
}
RULES
nft list table ip t | grep 'meta l4proto tcp redirect$' || wrong=1
trial 'redirect without an address' 'server 8081' 'code 0, server 8081' 'answer 192.0.2.1:81' <<'RULES'
table ip t {
    chain c {
        type nat hook output priority -100;
        tcp dport 80 redirect to :8080
        tcp dport 81 redirect to :8081
    }
}
RULES
nft list table ip t | grep 'redirect to :tcp dport map { 80 : 8080, 81 : 8081 }' || wrong=1

# What a port answers, and another in its range, or the error.
ports() {
    grep -q Error /tmp/printed || echo "$(answer 127.0.0.1:8080), $(answer 127.0.0.1:8081)"
    sed -n 's/.*Error: //p' /tmp/printed
}
trial 'a port in a range' 'server 8080, nothing' 'code 1, conflicting intervals specified' ports <<'RULES'
table ip t {
    chain c {
        type filter hook input priority 0;
        tcp dport 8080 accept
        tcp dport 8080-8090 drop
    }
}
RULES
exit $wrong
END
