#!/bin/sh
# What `nft reset` does to a table that another process owns.
#
# Guess: the flag `owner` keeps a table from all changes by others.
# Truth: it keeps it from transactions: those of others are refused with "Operation not permitted"
#   (EPERM). A reset is a kind of listing, and the kernel does not ask for the owner: another process
#   sets the counters of rules, elements and objects to 0, and the used bytes of a quota. So
#   `nft reset quotas`, which names no table, changes owned tables too.
# Version: nftables 1.0.6 of Debian 12 (bookworm), which can reset counters and quotas, 1.1.3 of
#   Debian 13 (trixie), which can reset rules and elements too.
# Kernel: seen on Linux 6.18.
# Who meets it: daemons that own their tables and read rates from counters, or limit by quotas: what a
#   quota has used is forgotten.
#
# Fetches the packages into a temporary folder and runs them in a network namespace. Needs root.
# Exits with 1 if a version behaves otherwise.
set -eu
cd "$(dirname "$0")/.."

[ "${1:-}" = inside ] || exec sh findings/in-suites nftables nft "$0"
folder=$2

# EXPECTED ARGUMENTS: the error of a command of another process, or what it leaves in the table that has
# counted something.
expect() {
    expected=$1
    shift
    if answer=$("$nft" "$@" 2>&1); then
        found="counted: $(counted)"
    else
        found=$(echo "$answer" | sed -n '1s/.*: //p')
    fi
    echo "  nft $*: $found"
    [ "$found" = "$expected" ] || { echo "expected $expected" >&2; wrong=1; }
}

# Which parts of the table have counted something.
counted() {
    "$nft" list table ip t | sed -n '
        s/.*packets 3 .*/element/p; s/.*packets 5 .*/object/p; s/.*packets 7 .*/rule/p; s/.*used 9 .*/quota/p
    ' | sort | paste -sd ' '
}

wrong=0
for suite in bookworm trixie; do
    nft=$folder/$suite/nft
    "$nft" --version
    # The owner: it waits for more commands.
    mkfifo "$folder/$suite/commands"
    "$nft" --interactive <"$folder/$suite/commands" >/dev/null &
    exec 3>"$folder/$suite/commands"
    {
        printf 'add table ip t { flags owner; counter n { packets 5 bytes 500; }; '
        printf 'quota q { over 10 mbytes used 9 bytes; }; '
        printf 'set s { type ipv4_addr; counter; elements = { 192.0.2.1 counter packets 3 bytes 300 }; }; '
        echo 'chain c { counter packets 7 bytes 700 accept; }; }'
    } >&3
    tries=0
    until "$nft" list table ip t >/dev/null 2>&1 || [ "$tries" = 100 ]; do
        tries=$((tries + 1))
        sleep 0.1
    done
    refused='Operation not permitted'
    expect 'counted: element object quota rule' list table ip t
    expect "$refused" flush chain ip t c
    expect "$refused" add element ip t s '{ 192.0.2.2 }'
    expect "$refused" delete table ip t
    expect 'counted: element quota rule' reset counters
    expect 'counted: element rule' reset quotas
    if [ $suite = trixie ]; then
        expect 'counted: element' reset rules
        expect 'counted: ' reset element ip t s '{ 192.0.2.1 }'
    fi
    exec 3>&-
    wait
done
exit $wrong
