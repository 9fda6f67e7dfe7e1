#!/bin/sh
# Who pays for the elements of nftables after the program that loaded them.
#
# Guess: a cgroup whose programs have ended, or that is removed, takes no memory.
# Truth: the kernel charges elements to the cgroup of the program that adds them, and they stay charged
#   when it ends. `rmdir` of the cgroup moves the charge to its parent. `memory.reclaim` frees nothing
#   of it. Only the deletion of the elements does, by whichever program.
# Version: nftables 1.0.6 of Debian 12 (bookworm).
# Kernel: 6.12.117 of Debian 13 (trixie), in qemu.
# Who meets it: pods that load nftables or ipset of the node, as CNI plugins and proxies for Services do.
#   The tables of each container that is started again count for the limit of the pod, up to the OOM
#   kill of a container that itself takes little; systemd starts a service again in the same cgroup.
#
# Fetches packages and the kernel into the folder `target` and runs them in a virtual machine (qemu).
# Exits with 1 if the version behaves otherwise.
set -eu
cd "$(dirname "$0")/.."

if [ "${1:-}" = inside ]; then
    mount -t cgroup2 none /sys/fs/cgroup
    cd /sys/fs/cgroup
    echo +memory >cgroup.subtree_control
    mkdir -p pod/container
    echo +memory >pod/cgroup.subtree_control
    {
        echo 'table ip t { set s { type ipv4_addr; elements = {'
        seq 0 29999 | awk '{ printf "10.%d.%d.%d,\n", $1 / 65536, $1 / 256 % 256, $1 % 256 }'
        echo '}; }; }'
    } >/tmp/rules
    # Prints whether a cgroup takes more than 1 MiB of kernel memory.
    takes() {
        awk '$1 == "kernel" { print ($2 > 1048576) ? "charged" : "free" }' "$1/memory.stat"
    }
    sh -c 'echo $$ >pod/container/cgroup.procs; exec "$@"' sh "$2/nft/nft" -f /tmp/rules
    found="ended: $(takes pod/container)"
    rmdir pod/container
    found="$found; removed: its parent is $(takes pod)"
    echo 100M >pod/memory.reclaim 2>/dev/null || true
    found="$found; after memory.reclaim: $(takes pod)"
    "$2/nft/nft" delete table ip t
    tries=0
    until [ "$(takes pod)" = free ] || [ "$tries" = 100 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    found="$found; table deleted: $(takes pod)"
    echo "Linux $(uname -r), $("$2/nft/nft" --version | cut -d' ' -f2): $found"
    expected='ended: charged; removed: its parent is charged; after memory.reclaim: charged; table deleted: free'
    [ "$found" = "$expected" ]
    exit
fi

mkdir -p target
folder=$(mktemp -d -p "$PWD/target")
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM
sh deploy/debian-programs bookworm "$folder/nft" nftables nft >&2
KERNEL=6.12 sh netlink-tests/in-kernel sh "findings/$(basename "$0")" inside "$folder"
