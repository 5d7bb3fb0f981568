# SPDX-License-Identifier: Apache-2.0

# Become the first process of a Debian, whose root is of read-only layers and
# a tmpfs above them.  In mount, PID, network, UTS, IPC and cgroup namespaces
# of its own:
#
#     debian_host.sh NAME LAYERS UNIT...
#
# LAYERS: directories, the uppermost first, with a colon between them; the
# last may be a disk image.  UNIT: what does not start.

set -euo pipefail
name=$1 layers=$2 top=/mnt
shift 2

hostname "$name"
mount -t tmpfs -o size=2g,mode=755 tmpfs $top
mkdir $top/disk $top/upper $top/work $top/root
disk=${layers##*:}
if [ -f "$disk" ]; then
    mount -o loop,ro "$disk" $top/disk
    layers=${layers%"$disk"}$top/disk
fi
mount -t overlay overlay \
    -o "lowerdir=$layers,upperdir=$top/upper,workdir=$top/work" $top/root
cd $top/root
rm -f etc/resolv.conf
mkdir -p mnt/old
printf '%s\n' "$name" >etc/hostname
printf '127.0.0.1 localhost\n' >etc/hosts
for unit in "$@"; do
    ln -sf /dev/null "etc/systemd/system/$unit.service"
done

mount -t proc proc proc
# Neither switches nor devices of the machine.
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t tmpfs -o mode=755 tmpfs dev
for device in null zero full random urandom tty; do
    touch dev/$device
    mount --bind /dev/$device dev/$device
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
mount -t tmpfs -o mode=1777 tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
for number in 0:stdin 1:stdout 2:stderr; do
    ln -s "/proc/self/fd/${number%:*}" "dev/${number#*:}"
done
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp

# What of each tree this process is in is all that is there.
mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup
while IFS=: read -r _ controllers _; do
    if [ -n "$controllers" ]; then
        mkdir "sys/fs/cgroup/${controllers#name=}"
        mount -t cgroup -o "$controllers" cgroup \
            "sys/fs/cgroup/${controllers#name=}"
    fi
done </proc/self/cgroup
if [ -z "$(ls -A sys/fs/cgroup)" ]; then
    umount sys/fs/cgroup
    mount -t cgroup2 cgroup2 sys/fs/cgroup
fi
pivot_root . mnt/old
exec env -i container=namespaces PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    sh -c 'umount -l /mnt/old && exec /lib/systemd/systemd' </dev/null
