# SPDX-License-Identifier: Apache-2.0


"""Supervises a libvirtd of a test, and clears all of it away at the end.

It runs as a process of its own, above libvirtd and its QEMUs: their orphans
become its children (so libvirt sees at once that a QEMU has ended), and when
the process of the test is gone, however it went, this one is still there to
kill them, to remove their cgroups and to delete their files.

One JSON object per line: commands on standard input, one answer to each on
standard output.  The end of the input, the end of the test's process and
SIGTERM all mean: clear away and go.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

CLEAR_DEADLINE_S = 20
AT_END_TIMEOUT_S = 10
PREFIX = 'scv-hv-'

BOUND = {'run': '/run', 'lib': '/var/lib', 'log': '/var/log',
         'cache': '/var/cache', 'etc': '/etc/libvirt'}
"""Directory of ours -> where libvirtd and its QEMUs see it.

Whole trees of the system, because a directory ``libvirt`` in them may be
missing, and one made there to mount on would be left behind.
"""

ACCOUNTS = {'passwd': 'libvirt-qemu:x:64055:64055::/:/usr/sbin/nologin\n',
            'group': 'libvirt-qemu:x:64055:\n'}
"""Debian's libvirtd looks up this user even when its configuration names
another one.  Where there is none, it sees files in /etc that have it."""

CGROUP = '/sys/fs/cgroup'

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWNET = 0x40000000
MS_BIND = 0x1000
MS_MOVE = 0x2000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MNT_DETACH = 2

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> None:
    """:raises OSError: a call of the C library has failed."""
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()),
                      what)


def mount(source: str, target: str, kind: str = '', flags: int = 0) -> None:
    """:raises OSError: it cannot be mounted."""
    check(libc.mount(source.encode(), target.encode(), kind.encode(),
                     ctypes.c_ulong(flags), None), target)


def processes(cgroups: list[str]) -> set[int]:
    """All that run in these cgroups or below."""
    found: set[int] = set()
    for top in cgroups:
        for where, _, _ in os.walk(top):
            # Gone, or threaded: then its processes are those above.
            with contextlib.suppress(OSError):
                found.update(map(int, pathlib.Path(
                    where, 'cgroup.procs').read_text().split()))
    return found


def thaw(cgroups: list[str]) -> None:
    """Let everything run: what is frozen cannot end."""
    for top in cgroups:
        for where, _, files in os.walk(top):
            if 'freezer.state' in files:
                with contextlib.suppress(OSError):      # gone
                    pathlib.Path(where, 'freezer.state').write_text('THAWED')


def remove(cgroups: list[str]) -> str:
    """Remove the cgroups and all below; what could not be, or ''."""
    left = ''
    for top in cgroups:
        for where, _, _ in os.walk(top, topdown=False):
            try:
                os.rmdir(where)
            except FileNotFoundError:
                pass
            except OSError as exc:
                left = str(exc)
    return left


class Supervisor:
    """One libvirtd, or none, and all that it has ever started.

    ``cgroups`` maps the mount point of each hierarchy to our directory in
    it; all that is there belongs to us.
    """

    def __init__(self) -> None:
        self.directory = tempfile.mkdtemp(prefix=PREFIX)
        os.chmod(self.directory, 0o755)
        for name in BOUND:
            os.mkdir(f'{self.directory}/{name}')
        for name, line in ACCOUNTS.items():
            text = pathlib.Path('/etc', name).read_text()
            pathlib.Path(self.directory, name).write_text(
                text if '\nlibvirt-qemu:' in text else text + line)
        self.cgroups: dict[str, str] = {}
        self._libvirtd = 0
        self._at_end: list[list[str]] = []

    def adopt(self, cgroups: dict[str, str]) -> None:
        """From now on these are cleared away."""
        self.cgroups = cgroups

    def at_end(self, command: list[str]) -> None:
        """Run this when everything has ended, whatever it comes to; the
        last that was said comes first."""
        self._at_end.insert(0, command)

    def start(self, *, command: list[str], hostname: str,
              netns: str | None) -> int:
        """Start libvirtd in namespaces of its own; its pid."""
        pid = os.fork()
        if pid:
            self._libvirtd = pid
            return pid
        try:
            self._enter(hostname, netns)
            os.execv(command[0], command)
        except BaseException as exc:
            with open(f'{self.directory}/log/libvirtd.log', 'a') as log:
                log.write(f'libvirtd not started: {exc!r}\n')
        finally:
            os._exit(127)

    def _enter(self, hostname: str, netns: str | None) -> None:
        check(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL), 'prctl')
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM,
                       signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        log = os.open(f'{self.directory}/log/libvirtd.log',
                      os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        null = os.open('/dev/null', os.O_RDONLY)
        if netns:
            with open(f'/run/netns/{netns}') as file:
                check(libc.setns(file.fileno(), CLONE_NEWNET), netns)
        for path in self.cgroups.values():
            pathlib.Path(path, 'cgroup.procs').write_text('0')
        # The roots that libvirtd sees are the cgroups that it is in now.
        check(libc.unshare(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS),
              'unshare')
        for path in self.cgroups.values():
            pathlib.Path(path, 'libvirtd/cgroup.procs').write_text('0')
        mount('none', '/', flags=MS_REC | MS_PRIVATE)
        for name, target in BOUND.items():
            mount(f'{self.directory}/{name}', target, flags=MS_BIND)
        for name in ACCOUNTS:
            mount(f'{self.directory}/{name}', f'/etc/{name}', flags=MS_BIND)
        self._mount_cgroups(fresh=bool(netns))
        check(libc.sethostname(hostname.encode(), len(hostname)), hostname)
        for standard, fd in enumerate((null, log, log)):
            os.dup2(fd, standard)
        os.closerange(3, 256)
        os.environ.clear()
        os.environ.update(PATH='/usr/sbin:/usr/bin:/sbin:/bin', LC_ALL='C',
                          HOME=self.directory)
        os.chdir('/')

    def _mount_cgroups(self, fresh: bool) -> None:
        """Show only our cgroups; with ``fresh`` the devices of our network,
        too."""
        held = []
        for number, (where, path) in enumerate(self.cgroups.items()):
            held.append((f'{self.directory}/cgroup-{number}', where))
            os.makedirs(held[-1][0], exist_ok=True)
            mount(path, held[-1][0], flags=MS_BIND)
        # Not only hidden: libvirt takes every line of /proc/mounts as true.
        check(libc.umount2(CGROUP.encode(), MNT_DETACH), CGROUP)
        if fresh:
            mount('sysfs', '/sys', 'sysfs')
        mount('tmpfs', CGROUP, 'tmpfs')
        for path, where in held:
            os.makedirs(where, exist_ok=True)
            mount(path, where, flags=MS_MOVE)
            offered = pathlib.Path(where, 'cgroup.controllers')
            if offered.exists() and not offered.read_text().strip():
                # libvirt takes a v2 tree without any for no tree at all.
                shown = pathlib.Path(self.directory, 'controllers')
                shown.write_text('hugetlb\n')
                mount(str(shown), str(offered), flags=MS_BIND)

    def kill(self, number: int) -> None:
        """Send libvirtd a signal and wait for its end; its guests go on."""
        if self._libvirtd:
            os.kill(self._libvirtd, number)
            while self._libvirtd:
                self.reap(block=True)

    def reap(self, block: bool = False) -> None:
        """Wait for the children that have ended."""
        while True:
            try:
                pid, _ = os.waitpid(-1, 0 if block else os.WNOHANG)
            except ChildProcessError:
                return
            if pid == self._libvirtd:
                self._libvirtd = 0
            if block or not pid:
                return

    def clear(self) -> str:
        """End and remove everything; what is left after the deadline."""
        deadline = time.monotonic() + CLEAR_DEADLINE_S
        ours = list(self.cgroups.values())
        if self._libvirtd:      # first, or it would tell of each death
            os.kill(self._libvirtd, signal.SIGKILL)
        while True:
            self.reap()
            thaw(ours)
            running = processes(ours)
            for pid in running:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            left = f'processes {running}' if running else remove(ours)
            if not left or time.monotonic() > deadline:
                break
            time.sleep(0.01)
        self.reap()
        for command in self._at_end:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(command, timeout=AT_END_TIMEOUT_S,
                               stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
        shutil.rmtree(self.directory, ignore_errors=True)
        if os.path.exists(self.directory):
            left += f' {self.directory}'
        return left


def serve(supervisor: Supervisor, parent: int, wake: int,
          ended: list[int]) -> None:
    """Obey commands until there are none, or no test to give them.

    :param wake: can be read when a signal came
    :param ended: holds something when that was the one to end
    """
    try:
        watched = os.pidfd_open(parent)
    except ProcessLookupError:
        return
    if os.getppid() != parent:
        return
    say(directory=supervisor.directory)
    poll = select.poll()
    for fd in (0, watched, wake):
        poll.register(fd, select.POLLIN)
    pending = b''
    while not ended:
        ready = {fd for fd, _ in poll.poll()}
        if wake in ready:
            os.read(wake, 4096)
        supervisor.reap()
        if watched in ready:
            return
        if 0 in ready:
            read = os.read(0, 65536)
            if not read:
                return
            *lines, pending = (pending + read).split(b'\n')
            for line in lines:
                say(**obey(supervisor, json.loads(line)))


def obey(supervisor: Supervisor, command: dict[str, Any]) -> dict[str, Any]:
    """Do one command; the answer."""
    what = command.pop('do')
    try:
        return {'done': getattr(supervisor, what)(**command)}
    except OSError as exc:
        return {'error': f'{what}: {exc}'}


def say(**answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + '\n')
    sys.stdout.flush()


def main() -> None:
    ended: list[int] = []
    wake, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    check(libc.prctl(PR_SET_CHILD_SUBREAPER, 1), 'prctl')
    supervisor = Supervisor()
    try:
        serve(supervisor, int(sys.argv[1]), wake, ended)
    except BrokenPipeError:
        pass        # nothing listens any more
    finally:
        left = supervisor.clear()
    if left:
        sys.exit(f'left behind: {left}')


if __name__ == '__main__':
    main()
