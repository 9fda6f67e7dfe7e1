#!/bin/sh
# Whether a later kernel takes what an earlier nft sends.
#
# Guess: a rule that nft could write can be written after an update of the kernel.
# Truth: nft 1.0.6 sends a conversion of byte order for the protocol in a key of a set with ranges, of
#   1 byte in units of 2 (`byteorder reg 9 = hton(reg 9, 2, 1)`). Linux 6.1.0-50 of Debian 12 and
#   6.18.44 take it. 7.2.13, and 6.12.117, which is an update of a stable kernel, refuse the rule with
#   "Operation not supported". nft 1.1.3 sends no such conversion.
# Version: nftables 1.0.6 of Debian 12 (bookworm), 1.1.3 of Debian 13 (trixie).
# Kernel: 6.1.0-50 of Debian 12, 6.12.117 of Debian 13 and 7.2.13 of Debian unstable (sid), in qemu.
# Who meets it: containers with the nft of Debian 12 on a newer host, whose rules have a set of address,
#   protocol and port with `flags interval`.
#
# Fetches packages and kernels into the folder `target` and runs them in virtual machines (qemu). Exits
# with 1 if a version behaves otherwise.
set -eu
cd "$(dirname "$0")/.."

if [ "${1:-}" = inside ]; then
    wrong=0
    for suite in bookworm trixie; do
        nft=$2/$suite/nft
        "$nft" 'add table ip t; add chain ip t c'
        "$nft" 'add set ip t s { type ipv4_addr . inet_proto . inet_service; flags interval; }'
        found=$("$nft" 'add rule ip t c ip saddr . meta l4proto . th dport @s accept' 2>&1 |
            sed -n '1s/.*: //p')
        "$nft" delete table ip t
        echo "Linux $(uname -r), $("$nft" --version | cut -d' ' -f2): ${found:-taken}"
        case "$(uname -r) $suite" in
        [!6]*bookworm | 6.12*bookworm) expected='Operation not supported' ;;
        *) expected='' ;;
        esac
        [ "$found" = "$expected" ] || wrong=1
    done
    exit $wrong
fi

mkdir -p target
folder=$(mktemp -d -p "$PWD/target")
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM
for suite in bookworm trixie; do
    sh deploy/debian-programs "$suite" "$folder/$suite" nftables nft >&2
done
for kernel in 6.1 6.12 sid; do
    KERNEL=$kernel sh netlink-tests/in-kernel sh "findings/$(basename "$0")" inside "$folder"
done
