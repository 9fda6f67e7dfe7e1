#!/bin/sh
# Which commands of `nft reset` set something to 0.
#
# Guess: each, wherever it is in a list of commands, and none with --check, which nft(8) describes as
#   "without actually applying the changes".
# Truth: with nft 1.1.3 the last command decides. A reset of counters, quotas, rules or a set before any
#   other kind of command ends with code 0 and keeps the counts: `reset counters; list tables` prints
#   the counters as without a reset. `reset counters; reset quotas` resets the quotas alone, and prints
#   no counter. A reset of an element is done anywhere. If the text behind a reset has a syntax error,
#   the reset is done and its counts are printed nowhere.
#   nft 1.0.6 resets in any place, also if the kernel refuses a later command, so that nothing else of
#   the list is done. With a syntax error nothing is reset.
#   Both reset with --check as they do without.
# Version: nftables 1.0.6 of Debian 12 (bookworm), 1.1.3 of Debian 13 (trixie).
# Kernel: any; seen on Linux 6.18. User space alone decides.
# Who meets it: programs that read and clear rates with several commands in one call, as text or JSON:
#   the next call counts the same packets again. Who tries such a file with --check loses the counts.
#
# Fetches the packages into a temporary folder and runs them in a network namespace. Needs root.
# Exits with 1 if a version behaves otherwise.
set -eu
cd "$(dirname "$0")/.."

[ "${1:-}" = inside ] || exec sh findings/in-suites nftables nft "$0"
folder=$2

# What has kept its counts: element (3 packets), object (5), rule (7), quota (9 bytes).
kept() {
    "$nft" list table ip t | sed -n '
        s/.*packets 3 .*/element/p; s/.*packets 5 .*/object/p; s/.*packets 7 .*/rule/p; s/.*used 9 .*/quota/p
    ' | sort | paste -sd ' '
}

# EXPECTED ARGUMENTS: what a call of nft leaves in a new table.
expect() {
    expected=$1
    shift
    "$nft" -f - <<'END'
table ip t
delete table ip t
table ip t {
    counter n { packets 5 bytes 500; }
    quota q { over 10 mbytes used 9 bytes; }
    set s { type ipv4_addr; counter; elements = { 192.0.2.1 counter packets 3 bytes 300 }; }
    chain c { counter packets 7 bytes 700 accept; }
}
END
    code=0
    "$nft" "$@" >"$folder/answer" 2>&1 || code=$?
    found="code $code, kept: $(kept)"
    echo "  nft $*: $found"
    [ "$found" = "$expected" ] || { echo "expected $expected" >&2; wrong=1; }
}

# TEXT: fails if the last answer has it not.
has() {
    grep -q "$1" "$folder/answer" || { echo "expected $1 in the answer" >&2; wrong=1; }
}

echo '{ "nftables": [ { "reset": { "counters": { "family": "ip" } } }, { "list": { "tables": null } } ] }' \
    >"$folder/json"
wrong=0
for suite in bookworm trixie; do
    nft=$folder/$suite/nft
    "$nft" --version
    all='code 0, kept: element object quota rule'
    counters='code 0, kept: element quota rule'
    quotas='code 0, kept: element object rule'
    none='code 1, kept: element object quota rule'
    error='code 1, kept: element quota rule'
    case $suite in
    bookworm) first=$counters both='code 0, kept: element rule' refused=$error syntax=$none ;;
    trixie) first=$all both=$quotas refused=$none syntax=$error ;;
    esac
    expect "$counters" reset counters
    expect "$counters" 'list tables; reset counters'
    expect "$first" 'reset counters; list tables'
    has 'packets 5 bytes 500'
    expect "$first" 'reset counters; add table ip t'
    expect "$first" 'reset counter ip t n; add element ip t s { 192.0.2.2 }'
    expect "$first" --json --file "$folder/json"
    expect "$both" 'reset counters; reset quotas'
    expect "$refused" 'reset counters; add rule ip t other accept'
    has 'No such file or directory'
    expect "$syntax" 'reset counters; list everything'
    has 'syntax error'
    ! grep -q packets "$folder/answer" || { echo 'expected no counts in the answer' >&2; wrong=1; }
    expect "$counters" --check reset counters
    expect "$quotas" --check reset quotas
    if [ $suite = trixie ]; then
        expect 'code 0, kept: element object quota' reset rules
        expect "$all" 'reset rules; list tables'
        expect "$all" 'reset set ip t s; list tables'
        expect 'code 0, kept: object quota rule' 'reset element ip t s { 192.0.2.1 }; list tables'
        expect 'code 0, kept: element object quota' --check reset rules
        expect 'code 0, kept: object quota rule' --check reset set ip t s
        expect 'code 0, kept: object quota rule' --check reset element ip t s '{ 192.0.2.1 }'
    fi
done
exit $wrong
