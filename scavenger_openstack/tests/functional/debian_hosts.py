# SPDX-License-Identifier: Apache-2.0

"""Debian hosts in namespaces: systemd, a network between them, SSH.

Their root is the image of ``tools/guest.sh``, with packages above it that are
installed once and kept beside that image; what a host changes is in memory and
ends with it.  Their kernel and its cgroups are the machine's: each host has a
cgroup in each tree, which it takes for the root.
"""

from __future__ import annotations

from collections.abc import Sequence
import contextlib
import fcntl
import hashlib
import os
import pathlib
import shutil
import signal
import subprocess
import time
import uuid

import fixtures

from scavenger_openstack.tests.functional import guest_image
from scavenger_openstack.tests.functional import namespaces

TOP = pathlib.Path(__file__).parents[3]
SCRIPT = pathlib.Path(__file__).with_name('debian_host.sh')

NETWORK = '192.0.2'
GATEWAY = f'{NETWORK}.1'

BOOT_S = 120.0

NEEDED = ('unshare', 'nsenter', 'ip', 'debootstrap', 'ssh')

MASKED = ('systemd-networkd', 'systemd-networkd-wait-online',
          'systemd-modules-load', 'systemd-udevd', 'systemd-timesyncd')
"""Units that would be at work on what is the machine's."""

PACKAGES = '''
set -eu
mkdir -p lower upper work root
mount -o loop,ro "$1" lower
mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work root
. "$2/tools/machine.sh"
carry_settings root
carry_environment root
for file in /etc/resolv.conf /etc/hosts; do cp -L $file root$file; done
printf '#!/bin/sh\\nexit 101\\n' >root/usr/sbin/policy-rc.d
chmod +x root/usr/sbin/policy-rc.d
mount --rbind /proc root/proc
mount --rbind /dev root/dev
shift 2
DEBIAN_FRONTEND=noninteractive chroot root sh -c '
    . /opt/machine/environment
    apt-get update -q && apt-get install -qy --no-install-recommends "$@" &&
        apt-get clean' sh "$@"
rm -r root/usr/sbin/policy-rc.d root/opt/machine
'''


def cache() -> pathlib.Path:
    """The directory of what is kept between runs."""
    return image().parent


def image() -> pathlib.Path:
    """The directory of the image of ``tools/guest.sh``."""
    return pathlib.Path(subprocess.run(
        [TOP / 'tools/guest.sh', '--image'], check=True, text=True,
        stdout=subprocess.PIPE, timeout=900).stdout.strip())


def made_once(kind: str, program: Sequence[str | os.PathLike[str]],
              key: Sequence[str]) -> pathlib.Path:
    """Return a directory of the cache in which a program has been run.

    :param key: what its result depends on; those of a kind that were not used
        for two months are removed
    """
    name = f'{kind}-' + hashlib.sha256(
        '\0'.join(key).encode()).hexdigest()[:12]
    directory = cache() / name
    with open(cache() / f'{kind}.lock', 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not directory.exists():
            for old in cache().glob(f'{kind}-*'):
                if old.stat().st_mtime < time.time() - guest_image.KEEP_S:
                    shutil.rmtree(old)
            new = directory.with_suffix('.new')
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir()
            done = subprocess.run(
                program, cwd=new, text=True, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                timeout=1800)
            if done.returncode:
                raise RuntimeError(f'{name}: {done.stdout[-4000:]}')
            new.rename(directory)
        os.utime(directory)
    return directory


def layers(packages: Sequence[str]) -> str:
    """Return the layers of a root with these packages."""
    disk = image() / 'disk'
    above = made_once('packages', [
        'unshare', '--mount', '--propagation', 'private', 'bash', '-c',
        PACKAGES, 'bash', disk, TOP, *packages],
        [str(disk), PACKAGES, *packages])
    return f'{above}/upper:{disk}'


class Network(fixtures.Fixture):
    """A network namespace with a bridge, to which hosts are connected."""

    def _setUp(self) -> None:
        self.name = f'scv-{uuid.uuid4().hex[:8]}'
        namespaces.run('ip', 'netns', 'add', self.name)
        self.addCleanup(namespaces.run, 'ip', 'netns', 'delete', self.name)
        for words in ('link set lo up', 'link add lan type bridge',
                      f'address add {GATEWAY}/24 dev lan',
                      'link set lan up'):
            namespaces.run('ip', '-n', self.name, *words.split())

    def command(self, *words: str) -> list[str]:
        """Return the command that runs a command in there."""
        return ['ip', 'netns', 'exec', self.name, *words]


class Host(fixtures.Fixture):
    """A Debian with systemd and SSH, of which the network has an address.

    :param masked: units that do not start
    """

    def __init__(self, network: Network, name: str, number: int,
                 layers: str, *, masked: Sequence[str] = ()) -> None:
        self.network, self.name, self.layers = network, name, layers
        self.address = f'{NETWORK}.{number}'
        self.masked = (*MASKED, *masked)
        self.pid = 0

    def _setUp(self) -> None:
        self.cgroups = [path / f'scv-{uuid.uuid4().hex[:8]}-{self.name}'
                        for path in _trees()]
        self.addCleanup(self._remove_cgroups)
        for path in self.cgroups:
            path.mkdir()
            for file in ('cpuset.cpus', 'cpuset.mems'):
                if (path / file).exists():
                    (path / file).write_text(
                        (path.parent / file).read_text())
        self.log = open(f'{self.useFixture(fixtures.TempDir()).path}/log',
                        'w+')
        self.addCleanup(self.log.close)
        self.process = subprocess.Popen(
            ['sh', '-c', 'for path in "$@"; do echo $$ >"$path/cgroup.procs";'
             ' done; exec unshare --mount --propagation private --pid --net '
             '--uts --ipc --cgroup --fork bash '
             f'{SCRIPT} {self.name} {self.layers} {" ".join(self.masked)}',
             'sh',
             *map(str, self.cgroups)],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        self.addCleanup(self._end)
        until = time.monotonic() + BOOT_S
        while not self._has_booted():
            if time.monotonic() > until:
                raise RuntimeError(f'{self.name} did not boot in {BOOT_S} s')
            time.sleep(0.1)
        self._connect()

    def _has_booted(self) -> bool:
        if self.process.poll() is not None:
            self.log.seek(0)
            raise RuntimeError(f'{self.name}: {self.log.read()[-2000:]}')
        if not self.pid:
            with contextlib.suppress(OSError, ValueError):
                pid = int(pathlib.Path(
                    f'/proc/{self.process.pid}/task/{self.process.pid}/'
                    'children').read_text())
                if pathlib.Path(
                        f'/proc/{pid}/comm').read_text() == 'systemd\n':
                    self.pid = pid
        return bool(self.pid) and self.run(
            'systemctl', 'is-active', '--quiet', 'ssh', fail=False
        ).returncode == 0

    def _connect(self) -> None:
        outside = self.name[:15]
        namespaces.run(
            'ip', '-n', self.network.name, 'link', 'add', outside, 'type',
            'veth', 'peer', 'name', 'eth0', 'netns', str(self.pid))
        namespaces.run('ip', '-n', self.network.name, 'link', 'set', outside,
                       'master', 'lan', 'up')
        for words in ('link set lo up', f'address add {self.address}/24 '
                      'dev eth0', 'link set eth0 up'):
            namespaces.run('nsenter', '--net', '-t', str(self.pid), 'ip',
                           *words.split())

    def run(self, *words: str, stdin: str = '', fail: bool = True
            ) -> subprocess.CompletedProcess[str]:
        """Run a command in there, as root."""
        done = subprocess.run(
            ['nsenter', '-a', '-t', str(self.pid), 'env', '-i',
             'PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:'
             '/bin', 'LANG=C.UTF-8', 'HOME=/tmp', *words],
            input=stdin, text=True, capture_output=True, timeout=300)
        if fail and done.returncode:
            raise RuntimeError(f'{self.name}: {words}: {done.returncode}: '
                               f'{done.stdout}{done.stderr}')
        return done

    def write(self, path: str, text: str) -> None:
        """Write a file in there."""
        self.run('sh', '-c', 'mkdir -p "${1%/*}" && cat >"$1"', 'sh', path,
                 stdin=text)

    def copy(self, directory: pathlib.Path, to: str) -> None:
        """Copy a directory in there."""
        with subprocess.Popen(['tar', '-C', directory, '-c', '.'],
                              stdout=subprocess.PIPE) as tar:
            subprocess.run(
                ['nsenter', '-a', '-t', str(self.pid), 'sh', '-c',
                 f'mkdir -p {to} && tar -C {to} -x'], check=True,
                stdin=tar.stdout, timeout=300)

    def _end(self) -> None:
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        else:
            self.process.kill()
        self.process.wait(60)

    def _remove_cgroups(self) -> None:
        deadline = time.monotonic() + 30
        for top in self.cgroups:
            while top.exists():
                for path, _, _ in os.walk(top, topdown=False):
                    with contextlib.suppress(OSError):
                        os.rmdir(path)
                if time.monotonic() > deadline:
                    raise RuntimeError(f'{top} cannot be removed')
                if top.exists():
                    time.sleep(0.1)


def _trees() -> list[pathlib.Path]:
    """The mount point of each tree of cgroups that this process is in."""
    points: dict[str, pathlib.Path] = {}
    for line in pathlib.Path('/proc/self/mounts').read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        if kind == 'cgroup':
            points.setdefault(options, pathlib.Path(where))
        elif kind == 'cgroup2' and where == '/sys/fs/cgroup':
            points.setdefault(kind, pathlib.Path(where))
    return list(points.values())
