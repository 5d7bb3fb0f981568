#!/bin/bash
# SPDX-License-Identifier: Apache-2.0


# Proof that the README is true: run its two commands, twice each, in a
# fresh Debian root in which nothing was installed by hand.
#
#     tools/fresh.sh [COMMAND...]     default: tools/demo.sh tools/test.sh
#
# As root, with debootstrap, the keyring of the archive (package
# debian-archive-keyring) and git.  What is committed is cloned.  Mirror,
# proxies, certificates and the Python index are those that this machine is
# configured with.  All mounts are in a mount namespace of their own, so
# they go away with it, and the root is removed where nothing is mounted.

set -euo pipefail

# shellcheck source=tools/machine.sh
. "$(dirname "$0")/machine.sh"
suite=${FRESH_SUITE:-bookworm}

die() {
    echo "fresh: $*" >&2
    exit 1
}

# Inside the mount namespace -----------------------------------------------

inside() {
    root=$1
    local top=$2 proxy command round code started failed=0
    shift 2
    proxy=$(apt_proxy)
    [ -z "$proxy" ] || export http_proxy=$proxy

    # A real root is a mount, and "ip -n" relies on that.
    mount --bind "$root" "$root"
    started=$SECONDS
    uri=$(mirror "$suite")
    [ -n "$uri" ] || die "this machine's apt has no source for $suite"
    debootstrap --force-check-gpg --variant=minbase "$suite" "$root" "$uri" \
        >"$root.log" 2>&1 \
        || { tail -n 20 "$root.log" >&2; die "debootstrap failed"; }
    carry_settings "$root"
    for file in /etc/resolv.conf /etc/hosts; do
        [ ! -e "$file" ] || cp -L "$file" "$root$file"
    done
    # No service starts in here, as in a container.
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
    chmod +x "$root/usr/sbin/policy-rc.d"
    git -c safe.directory="$top" -c safe.directory="$top/.git" clone \
        --quiet --no-hardlinks "file://$top" "$root/opt/checkout"
    carry_environment "$root"
    for directory in proc sys dev; do
        mount --rbind "/$directory" "$root/$directory"
        mount --make-rslave "$root/$directory"
    done
    mount -t tmpfs -o mode=755 tmpfs "$root/run"
    mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
    echo "fresh: $suite root in $((SECONDS - started)) s"

    local times=()
    for command in "$@"; do
        for round in first second; do
            echo "fresh: $command, $round time"
            started=$SECONDS code=0
            env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
                LANG=C.UTF-8 TERM=dumb CI=true unshare --mount \
                --propagation private "$top/tools/fresh.sh" --at-root "$root" \
                ". /opt/machine/environment && cd /opt/checkout && $command" \
                </dev/null || code=$?
            times+=("$command, $round: $((SECONDS - started)) s, exit $code")
            [ $code = 0 ] || failed=1
        done
    done
    echo
    printf 'fresh: %s\n' "${times[@]}"
    return $failed
}

# Become the shell command with the directory as root.  A chroot would not do:
# what enters its mount namespace would be back on the machine's own root.
at_root() {
    cd "$1"
    mkdir -p outside
    pivot_root . outside
    cd /
    exec /bin/sh -c "umount -l /outside && rmdir /outside && $2"
}

if [ "${1:-}" = --at-root ]; then
    shift
    at_root "$@"
fi
if [ "${1:-}" = --inside ]; then
    shift
    inside "$@"
    exit
fi

# Outside ------------------------------------------------------------------

[ "$(id -u)" = 0 ] || die "needs root: sudo tools/fresh.sh"
for program in debootstrap git unshare; do
    command -v "$program" >/dev/null || die "needs $program"
done
cd "$(dirname "$0")/.."
top=$PWD
[ $# -gt 0 ] || set -- tools/demo.sh tools/test.sh
git -c safe.directory="$top" rev-parse --quiet --verify HEAD >/dev/null \
    || die "$top has no commit to clone"
if [ -n "$(git -c safe.directory="$top" status --porcelain)" ]; then
    echo "fresh: what is not committed is not part of this"
fi

scratch=$(mktemp -d "${TMPDIR:-/var/tmp}/fresh.XXXXXX")
remove() {
    # Nothing is mounted below it here; when in doubt, leave it.
    if grep -qF " $scratch" /proc/self/mountinfo; then
        echo "fresh: something is mounted below $scratch, left there" >&2
    else
        rm -rf --one-file-system "$scratch"
    fi
}
trap remove EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

mkdir "$scratch/root"
unshare --mount --propagation private \
    "$top/tools/fresh.sh" --inside "$scratch/root" "$top" "$@"
