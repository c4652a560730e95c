#!/bin/sh
# A Pod's container, in namespaces of its own: pod.sh TREE FOLDER NAME USER COMMAND... FOLDER has `etc`, what is
# mounted over files of /etc, and is where the root file system is put together. It says `ready`, and begins when
# it has a line to read: then it has a network.
set -eu
tree=$1 folder=$2 name=$3 user=$4
shift 4
cd "$folder"
mount -t tmpfs none writable
mkdir writable/changes writable/work
mount -t overlay -o "lowerdir=$tree,upperdir=writable/changes,workdir=writable/work" none root
mount -t proc proc root/proc
mount --rbind /dev root/dev
mount --rbind /sys root/sys
mount -t tmpfs none root/dev/shm
mount -t tmpfs -o mode=1777 none root/tmp
for path in etc/*; do
    [ -e "root/$path" ] || if [ -d "$path" ]; then mkdir "root/$path"; else touch "root/$path"; fi
    mount --bind "$path" "root/$path"
done
hostname "$name"
ip link set lo up
echo ready
read -r _
# Not by exec: a process that changes its user outlives the process that it is tied to.
status=0
chroot --userspec="$user:$user" root "$@" || status=$?
exit $status
