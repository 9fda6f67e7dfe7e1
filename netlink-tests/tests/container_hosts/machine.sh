#!/bin/sh
# Makes the files of Debian's packages the root of what runs here: sh machine.sh ROOT FOLDER [SCRIPT],
# in new namespaces of mounts, processes, names and control groups. What is written stays in memory.
# Without a script it prints its process number and waits.
set -e
root=$1 folder=$2 script=${3:-'echo "machine $1"; exec sleep infinity'}
# The shell itself opens it, before it sees the processes of its own namespace alone.
read -r pid _ </proc/self/stat
mount --make-rprivate /
mount -t tmpfs tmpfs "$folder"
cd "$folder"
mkdir upper work root
mount -t overlay overlay -o "lowerdir=$root,upperdir=upper,workdir=work" root
cd root
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount --rbind /dev dev
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
# Container engines lay file systems over these, which an overlay does not allow.
for engine in containers docker containerd; do
    mkdir -p "var/lib/$engine"
    mount -t tmpfs tmpfs "var/lib/$engine"
done
# What the packages' installation would do.
rm -rf var/run
ln -s /run var/run
mkdir -p run/lock
for program in iptables ip6tables; do
    for form in '' -save -restore; do
        [ -e "usr/sbin/$program$form" ] || ln -s xtables-nft-multi "usr/sbin/$program$form"
    done
done
for file in passwd group; do
    [ -e "etc/$file" ] || cp "usr/share/base-passwd/$file.master" "etc/$file"
done
hostname machine
exec chroot . sh -c "$script" machine "$pid"
