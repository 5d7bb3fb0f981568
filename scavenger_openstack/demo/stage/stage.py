# SPDX-License-Identifier: Apache-2.0

"""Where the demo plays, and how it leaves no trace.

A stage is a directory in /run (held by a lock while its demo lives), one
in /var/lib with its programs, since /run often is mounted noexec, one tree
of cgroups, four network namespaces, and the processes in them; for the
second act also a loop device on a file of its own, and the machine's switch
of delay accounting, kept in the directory as it was.  All carry the stage's
id, so that ``scavenger-demo --clean`` finds what a killed demo left.
"""

from __future__ import annotations

from collections.abc import Sequence
import contextlib
import fcntl
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
from typing import Any
import uuid

from scavenger_openstack.demo import others
from scavenger_openstack.demo.stage import accounting as accounting_
from scavenger_openstack.demo.stage import cgroup_place
from scavenger_openstack.demo.stage import cgroups
from scavenger_openstack.demo.stage import disk as disk_
from scavenger_openstack.demo.stage import keep
from scavenger_openstack.demo.stage import uplink
from scavenger_openstack import errors
from scavenger_openstack.restore import files

RUN = pathlib.Path('/run')
PREFIX = cgroup_place.PREFIX
NAME = re.compile('[0-9a-f]{6}')
SERVICE = '/foreground/service'
TRANSFER = '/foreground/transfer'
BATCH = '/background'
CPU = '/background/cpu'
MEMORY = '/background/memory'
NETWORK = '/background/network'
OUTSIDE = '/outside'
GROUPS = ('', '/foreground', SERVICE, TRANSFER,
          BATCH, CPU, NETWORK, MEMORY, OUTSIDE)
"""The memory user is the newest of the batch, so the first to be killed."""
BACKGROUND_WEIGHT = 3
"""CPU weight of the background against the foreground's: a bigger VM."""
OOM_SPARE, OOM_FIRST = -1000, 1000
AGENT_END_S = 30.0
KEPT_END_S = 120.0


def take_lock(directory: pathlib.Path) -> int | None:
    """Lock a stage's directory, our process id in the lock; None when the
    demo that made it still lives."""
    descriptor = os.open(directory / 'lock',
                         os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    os.ftruncate(descriptor, 0)
    files.write_all(descriptor, f'{os.getpid()}\n'.encode())
    return descriptor


def left_over() -> set[str]:
    """Names of demos that are here, alive or not.

    What else is called like our own may be another program's: it stays.
    """
    found = {path.name.removeprefix(PREFIX)
             for path in RUN.glob(PREFIX + '*')}
    return {name for name in found.union(
        cgroups.left_over(), disk_.left_over(), uplink.left_over())
        if NAME.fullmatch(name)}


def clean() -> tuple[list[str], list[str], list[str]]:
    """Remove what killed demos left: removed, still playing, and what went
    wrong."""
    removed: list[str] = []
    playing: list[str] = []
    problems: list[str] = []
    for name in sorted(left_over()):
        try:
            _clean(name, removed, playing)
        except (errors.DriverError, OSError) as exc:
            problems.append(f'demo {name}: {exc}')
    try:
        cgroup_place.stand_up()
    except errors.DriverError as exc:
        problems.append(str(exc))
    return removed, playing, problems


def _clean(name: str, removed: list[str], playing: list[str]) -> None:
    directory = RUN / (PREFIX + name)
    directory.mkdir(mode=0o700, exist_ok=True)
    lock = take_lock(directory)
    if lock is None and keep.kept(directory):
        lock = _end_kept(directory)
        if not directory.exists():      # it has removed everything itself
            if lock is not None:
                os.close(lock)
            removed.append(name)
            return
    if lock is None:
        pid = (directory / 'lock').read_text().strip()
        playing.append(f'{name} (process {pid})')
        return
    try:
        end_agent(directory)
        cgroups.remove(cgroups.left_over().get(name, ()))
        for netns in uplink.left_over().get(name, ()):
            uplink.delete(netns)
        disk_.Disk(name).remove()
        accounting_.Accounting(directory).restore()
        remove_directory(directory)
    finally:
        os.close(lock)
    removed.append(name)


def remove_directory(directory: pathlib.Path) -> None:
    """The lock goes last: while it is there, no other process may take the
    directory for that of a demo that was killed, and remove it as well.

    :raises OSError: something stays.
    """
    for path in directory.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != 'lock':
            path.unlink()
    (directory / 'lock').unlink(missing_ok=True)
    directory.rmdir()


def _end_kept(directory: pathlib.Path) -> int | None:
    """Ask a demo that plays on until it is ended to end; its lock, None
    when it still has that, or has removed it."""
    with contextlib.suppress(OSError, ValueError, OverflowError):
        if (pid := int((directory / 'lock').read_text())) > 1:
            os.kill(pid, signal.SIGTERM)
    deadline_s = time.monotonic() + KEPT_END_S
    lock = None
    while lock is None and directory.exists() \
            and time.monotonic() < deadline_s:
        time.sleep(0.1)
        with contextlib.suppress(FileNotFoundError):
            lock = take_lock(directory)
    return lock


def end_agent(directory: pathlib.Path) -> None:
    """End the agent of a demo that was killed, if it still runs."""
    try:
        pid = int((directory / 'agent.pid').read_text())
        command = pathlib.Path(f'/proc/{pid}/cmdline').read_bytes()
    except (OSError, ValueError):
        return
    if os.fsencode(directory) not in command:
        return   # the number belongs to another process by now
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
        deadline_s = time.monotonic() + AGENT_END_S
        while time.monotonic() < deadline_s:
            os.kill(pid, 0)
            time.sleep(0.05)
        os.kill(pid, signal.SIGKILL)


class Stage:
    """One demo's surroundings; :meth:`remove` works at any moment."""

    def __init__(self, *, memory_bytes: int, link_bytes_per_s: float,
                 cpus: Sequence[int], groups: Sequence[str] = GROUPS
                 ) -> None:
        self._groups = groups
        self.name = uuid.uuid4().hex[:6]
        self.memory_bytes = memory_bytes
        self.cpus = list(cpus)
        self.directory = RUN / (PREFIX + self.name)
        self.tree = cgroups.Tree(self.name)
        self.uplink = uplink.Uplink(self.name, link_bytes_per_s)
        self.disk = disk_.Disk(self.name)
        self.programs = self.disk.directory
        self.accounting = accounting_.Accounting(self.directory)
        self._lock: int | None = None
        self._processes: list[subprocess.Popen[bytes]] = []

    def make(self) -> None:
        """Build it all.

        :raises DriverError: the host cannot; :meth:`remove` afterwards.
        """
        self.directory.mkdir(mode=0o700)
        self._lock = take_lock(self.directory)
        self.disk.make_directory()
        for group in self._groups:
            self.tree.make(group)
        self.tree.check_entry(self._groups[-1])
        self.tree.set_memory_limit('', self.memory_bytes)
        self.tree.set_cpu_weight(BATCH, BACKGROUND_WEIGHT)
        self.uplink.make()

    def launch(self, *argv: str, below: str, role: str | None = None,
               out_of_memory: int = 0) -> subprocess.Popen[bytes]:
        """Start one of the programs inside a cgroup and a namespace.

        :param argv: the program's name in our directory, its arguments
        :param role: ``fg``, ``bg`` or ``sink``; None stays in the host's
        """
        command = [*self._launch(signal.SIGKILL), '-o', str(out_of_memory)]
        for path in self.tree.procs_files(below):
            command += ['-g', path]
        if role:
            command += ['-n', str(uplink.NETNS / self.uplink.netns[role])]
        return self._start([*command, str(self.programs / argv[0]),
                            *argv[1:]], argv[0])

    def launch_outside(self, *argv: str,
                       log: str) -> subprocess.Popen[bytes]:
        """Start a program outside our cgroups; it gets SIGTERM if we die."""
        return self._start([*self._launch(signal.SIGTERM), *argv], log)

    def _launch(self, at_end: signal.Signals) -> list[str]:
        return [str(self.programs / 'launch'), '-p', str(os.getpid()),
                '-d', str(int(at_end))]

    def _start(self, command: list[str],
               log: str) -> subprocess.Popen[bytes]:
        with (self.directory / f'{log}.log').open('ab') as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output,
                stderr=output, start_new_session=True)
        self._processes.append(process)
        return process

    def end(self, *groups: str) -> None:
        """End what runs in these groups (all when none is named).

        :raises DriverError: a process does not end.
        """
        self.tree.end(groups or self._groups)
        self._processes = [process for process in self._processes
                           if process.poll() is None]

    def look(self) -> others.Look:
        """At all that uses CPUs."""
        return others.look(time.monotonic(), self.tree.cpu_s(''),
                           self.tree.members())

    def between(self, first: others.Look, last: others.Look
                ) -> dict[str, Any]:
        """Other load between two looks; see :func:`others.between`."""
        return others.between(first, last, cpus=len(self.cpus),
                              demo=os.getpid())

    def file(self, name: str) -> str:
        """Path of a file in the stage's directory."""
        return str(self.directory / name)

    def said(self, log: str) -> str:
        """The last line that a program wrote, for an error message."""
        try:
            text = (self.directory / f'{log}.log').read_text()
        except OSError:
            return ''
        return (text.strip().splitlines() or [''])[-1]

    def remove(self) -> list[str]:
        """Remove everything; return what went wrong, in plain words."""
        problems = []
        for remove in (self.tree.remove, self.uplink.remove,
                       self.disk.remove, self.accounting.restore):
            try:
                remove()
            except (errors.DriverError, OSError) as exc:
                problems.append(str(exc))
        for process in self._processes:
            try:
                process.wait(1 if process.poll() is None else 0)
            except subprocess.TimeoutExpired:
                process.kill()
                try:
                    process.wait(cgroups.END_S)
                except subprocess.TimeoutExpired:
                    problems.append(
                        f'process {process.pid} of the demo did not end '
                        f'within {cgroups.END_S:g} s of SIGKILL')
        # Where something is left --clean finds it by the directory.
        if not problems and self.directory.exists():
            try:
                remove_directory(self.directory)
            except OSError as exc:
                problems.append(f'{exc.filename or self.directory} cannot be '
                                f'removed: {exc.strerror}')
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        return problems
