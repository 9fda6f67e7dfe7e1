#!/bin/sh
# How long `nft` takes to delete an element, and to add one.
#
# Guess: both take the same, because each is one small transaction.
# Truth: a command that deletes takes several times as long: the close of its socket waits until the
#   kernel has freed what was deleted, which takes a grace period of RCU (the stack of the waiting
#   process: `netlink_release`, `nft_rcv_nl_event`, `__flush_work`), also if no table has an owner.
#   One program with the same commands waits once, at its end.
# Version: nftables 1.0.6 of Debian 12 (bookworm), 1.1.3 of Debian 13 (trixie): the kernel decides.
# Kernel: seen on Linux 6.18: 3 ms and 11 to 31 ms.
# Who meets it: programs that run `nft` for each change, such as container engines and fail2ban, and
#   all that open a connection for each.
#
# Fetches the packages into a temporary folder and runs them in a network namespace. Needs root.
# Exits with 1 if a deletion takes less than twice as long as an addition, or if 20 of each by one
# process take as long as 10 deletions by 10.
set -eu
cd "$(dirname "$0")/.."

[ "${1:-}" = inside ] || exec sh findings/in-suites nftables nft "$0"
folder=$2

# COMMAND...: the milliseconds that it takes. Its output is dropped.
took() {
    start=$(date +%s%N)
    "$@" >/dev/null
    echo $((($(date +%s%N) - start) / 1000000))
}

median() {
    sort -n | sed -n 6p
}

wrong=0
for suite in bookworm trixie; do
    nft=$folder/$suite/nft
    "$nft" 'table ip t { set s { type ipv4_addr; }; }'
    for number in 1 2 3 4 5 6 7 8 9 10 11; do
        element="element ip t s { 10.0.0.$number }"
        took "$nft" add "$element" >>"$folder/$suite.add"
        took "$nft" delete "$element" >>"$folder/$suite.delete"
    done
    for number in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        echo "add element ip t s { 10.0.1.$number }"
        echo "delete element ip t s { 10.0.1.$number }"
    done >"$folder/commands"
    # shellcheck disable=SC2016 # the inner shell expands them
    together=$(took sh -c '"$1" -i <"$2"' sh "$nft" "$folder/commands")
    "$nft" delete table ip t
    add=$(median <"$folder/$suite.add")
    delete=$(median <"$folder/$suite.delete")
    echo "$("$nft" --version | cut -d' ' -f2): $add ms to add an element, $delete ms to delete it, $together ms for 20 of each by one process"
    [ "$delete" -ge $((add * 2)) ] || wrong=1
    [ "$together" -lt $((delete * 10)) ] || wrong=1
done
exit $wrong
