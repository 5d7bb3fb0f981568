#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Run commands in a stock Debian guest: its own kernel, its systemd as PID 1,
# cgroup version 2 only, on QEMU.  What is committed is cloned into it.
#
#     tools/guest.sh [--smp SPEC] [--memory MIB] [--disk IOPS]
#         [--copy DIRECTORY] [--keep] [COMMAND...]
#     tools/guest.sh --image
#
# COMMAND is for the guest's shell, in the checkout; default: tools/demo.sh.
# All of them run, one after the other, in one guest.
#
#   --smp SPEC     CPUs and topology as QEMU takes them (default 2), such as
#                  8,sockets=2,cores=2,threads=2
#   --memory MIB   of the guest (default 4096)
#   --disk IOPS    another disk, /dev/vdb, of so many operations a second
#   --copy DIRECTORY   to /opt/NAME in the guest, NAME being its last part
#   --keep         afterwards leave the guest on until Ctrl-C, and say how to
#                  log in
#   --image        print the directory of the image, and run nothing
#
# Environment: GUEST_SUITE (default bookworm), GUEST_ACCEL (what QEMU runs
# on, default tcg: emulation, works everywhere; kvm is much faster where it
# boots), GUEST_BOOT_S (seconds that a boot may take, default 600).
#
# Needs qemu-system-x86_64, ssh, git, ss, setpriv, as any user; root,
# debootstrap with the keyring of the archive (package
# debian-archive-keyring) and mkfs.ext4 where the image has to be made first.
# The image is kept in ~/.cache/scavenger-guest (or below $XDG_CACHE_HOME) and
# never written to: each guest has an overlay that ends with it.  Mirror,
# proxies, certificates and the Python index are those of this machine.

set -euo pipefail

# shellcheck source=tools/machine.sh
. "$(dirname "$0")/machine.sh"
suite=${GUEST_SUITE:-bookworm}

die() {
    echo "guest: $*" >&2
    exit 1
}

need() {
    for program in "$@"; do
        command -v "$program" >/dev/null || die "needs $program"
    done
}

# The image ----------------------------------------------------------------

# Make a root with a kernel in directory $1/root, and of it $1/disk,
# $1/vmlinuz, $1/initrd and $1/key, which may log in.
build() {
    local root=$1/root uri proxy
    uri=$(mirror "$suite")
    [ -n "$uri" ] || die "this machine's apt has no source for $suite"
    proxy=$(apt_proxy)
    [ -z "$proxy" ] || export http_proxy=$proxy
    debootstrap --force-check-gpg --variant=minbase \
        --include="linux-image-cloud-amd64,ca-certificates,\
dbus,iproute2,kmod,libpam-systemd,openssh-server,procps,\
systemd-sysv,udev" "$suite" "$root" "$uri" >"$1/log" 2>&1 \
        || { tail -n 20 "$1/log" >&2; die "debootstrap failed"; }
    rm -f "$root"/var/cache/apt/archives/*.deb
    cp "$root"/boot/vmlinuz-* "$1/vmlinuz"
    cp "$root"/boot/initrd.img-* "$1/initrd"

    echo guest >"$root/etc/hostname"
    printf '127.0.0.1 localhost guest\n' >"$root/etc/hosts"
    echo 'nameserver 10.0.2.3' >"$root/etc/resolv.conf"
    printf '[Match]\nName=en* eth*\n[Network]\nDHCP=ipv4\n' \
        >"$root/etc/systemd/network/guest.network"
    systemctl --root="$root" --quiet enable systemd-networkd
    ssh-keygen -q -t ed25519 -N '' -C guest -f "$1/key"
    install -D -m 600 "$1/key.pub" "$root/root/.ssh/authorized_keys"

    truncate -s 20G "$1/disk"
    mkfs.ext4 -q -d "$root" "$1/disk"
}

# Prints the directory of the image; makes it where there is none.
image() {
    local name directory
    name=$(declare -f build | sha256sum | cut -c -12)
    directory=${XDG_CACHE_HOME:-$HOME/.cache}/scavenger-guest/$suite-$name
    mkdir -p "${directory%/*}"
    (
        flock 9
        [ ! -e "$directory" ] || exit 0
        [ "$(id -u)" = 0 ] || die "needs root to make the guest's image"
        need debootstrap mkfs.ext4 ssh-keygen systemctl unshare
        echo "guest: making $directory" >&2
        rm -rf --one-file-system "$directory.new"
        mkdir -m 700 "$directory.new"
        # What debootstrap mounts goes away with the namespace.
        unshare --mount --propagation private \
            "$top/tools/guest.sh" --build "$directory.new"
        rm -rf --one-file-system "$directory.new/root"
        mv "$directory.new" "$directory"
    ) 9>"${directory%/*}/lock" || exit
    echo "$directory"
}

if [ "${1:-}" = --build ]; then
    build "$2"
    exit
fi
if [ "${1:-}" = --image ]; then
    cd "$(dirname "$0")/.."
    top=$PWD
    image
    exit
fi

# The guest ----------------------------------------------------------------

copies=() disk=() smp=2 memory=4096 keep=
while [ $# -gt 0 ]; do
    case $1 in
        --smp) smp=${2:?SPEC}; shift 2 ;;
        --memory) memory=${2:?MIB}; shift 2 ;;
        --disk)
            # Its address comes after the first one's, which is /dev/vda.
            disk=(-drive "driver=null-co,size=1G,read-zeroes=on,if=virtio,\
throttling.iops-total=${2:?IOPS}")
            shift 2
            ;;
        --copy) copies+=("$(realpath -- "${2:?DIRECTORY}")"); shift 2 ;;
        --keep) keep=yes; shift ;;
        --) shift; break ;;
        -*) die "unknown option $1; see the top of $0" ;;
        *) break ;;
    esac
done
[ $# -gt 0 ] || [ -n "$keep" ] || set -- tools/demo.sh
need qemu-system-x86_64 ssh git ss setpriv flock
cd "$(dirname "$0")/.."
top=$PWD
git -c safe.directory="$top" rev-parse --quiet --verify HEAD >/dev/null \
    || die "$top has no commit to clone"
if [ -n "$(git -c safe.directory="$top" status --porcelain)" ]; then
    echo "guest: what is not committed is not part of this"
fi
image=$(image)

scratch=$(mktemp -d "${TMPDIR:-/var/tmp}/guest.XXXXXX")
# shellcheck disable=SC2046,SC2317
stop() {
    kill $(jobs -p) 2>/dev/null || true
    wait
    rm -rf --one-file-system "$scratch"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# It ends with the guest's kernel and with this shell, however that ends.
# snapshot=on: the overlay is a file without a name.
setpriv --pdeathsig KILL qemu-system-x86_64 \
    -machine q35 -accel "${GUEST_ACCEL:-tcg,thread=multi}" -cpu max \
    -smp "$smp" -m "$memory" -nodefaults -no-reboot -display none \
    -kernel "$image/vmlinuz" -initrd "$image/initrd" \
    -append 'root=/dev/vda rw console=ttyS0 panic=-1' \
    -drive "file=$image/disk,format=raw,if=virtio,snapshot=on,\
cache=unsafe,discard=unmap" "${disk[@]}" \
    -netdev user,id=net,hostfwd=tcp:127.0.0.1:0-:22 \
    -device virtio-net-pci,netdev=net,romfile= -device virtio-rng-pci \
    -serial stdio </dev/null >"$scratch/console" 2>&1 &
qemu=$!

# The port that QEMU has chosen.
port() {
    ss -Hltnp | sed -n "s/.*127\.0\.0\.1:\([0-9]*\) .*pid=$qemu,.*/\1/p"
}

# Run a command in the guest.  Not in the foreground, so that a signal to
# this shell is not put off until it ends.
login=(ssh -q -i "$image/key" -o StrictHostKeyChecking=no
    -o UserKnownHostsFile=/dev/null -o IdentitiesOnly=yes -o BatchMode=yes)
guest() {
    "${login[@]}" -o ConnectTimeout=10 root@127.0.0.1 "$1" <&0 &
    wait $!
}

started=$SECONDS
until port=$(port) && [ -n "$port" ] && login+=(-p "$port") \
        && guest true </dev/null; do
    [ -z "$port" ] || unset 'login[-1]' 'login[-1]'
    if ! kill -0 $qemu 2>/dev/null \
            || [ $((SECONDS - started)) -gt "${GUEST_BOOT_S:-600}" ]; then
        tail -n 40 "$scratch/console" >&2
        die "did not come up in $((SECONDS - started)) s; its console is above"
    fi
    sleep 1
done
booted=$((SECONDS - started))
state=$(guest 'systemctl is-system-running --wait' </dev/null) || true

root=$scratch/root
mkdir "$root"
carry_settings "$root"
carry_environment "$root"
git -c safe.directory="$top" -c safe.directory="$top/.git" clone \
    --quiet --no-hardlinks "file://$top" "$root/opt/checkout"
[ "${#copies[@]}" = 0 ] || cp -r "${copies[@]}" "$root/opt/"
tar -C "$root" --owner=0 --group=0 -c . >"$scratch/tar"
guest 'tar -C / -x --no-overwrite-dir' <"$scratch/tar"
rm -rf --one-file-system "$scratch"
echo "guest: $suite, $(guest 'uname -r; nproc' </dev/null | paste -sd ' ')" \
    "CPUs, login after $booted s; systemd is $state" \
    "after $((SECONDS - started)) s"

times=() failed=0
for command in "$@"; do
    echo "guest: $command"
    began=$SECONDS code=0
    guest ". /opt/machine/environment && cd /opt/checkout && exec env $(
        printf '%q ' TERM=dumb CI=true LANG=C.UTF-8 /bin/sh -c "$command")" \
        </dev/null || code=$?
    times+=("$command: $((SECONDS - began)) s, exit $code")
    [ $code = 0 ] || failed=1
done
echo
[ $# = 0 ] || printf 'guest: %s\n' "${times[@]}"
if [ -n "$keep" ]; then
    echo "guest: on until Ctrl-C; log in with"
    echo "    ${login[*]} root@127.0.0.1"
    wait $qemu || true
fi
exit $failed
