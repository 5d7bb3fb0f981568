# SPDX-License-Identifier: Apache-2.0

"""The stage of the demo, which leaves no trace.

A stage is a directory in /run (held by a lock while its demo lives), one
tree of cgroups with all load in it, and the machine's switch of delay
accounting, kept in the directory as it was.  Directory and tree carry the
stage's id, so that ``scavenger-demo --clean`` finds what a killed demo left.
"""

from __future__ import annotations

from collections.abc import Sequence
import contextlib
import ctypes
import fcntl
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
import uuid

from scavenger_openstack.demo.stage.accounting import Accounting
from scavenger_openstack.demo.stage import cgroup_place
from scavenger_openstack.demo.stage import cgroups
from scavenger_openstack.demo.stage import keep
from scavenger_openstack import errors
from scavenger_openstack.restore import files
from scavenger_openstack import types

RUN = pathlib.Path('/run')
PREFIX = cgroup_place.PREFIX
NAME = re.compile('[0-9a-f]{6}')
FOREGROUND, BACKGROUND = '/foreground', '/background'
TOP_WEIGHT = 16
"""CPU weight of the whole tree against that of other programs.  One that keeps
a CPU busy takes 6 %, which changes the demo little.  The highest weights that
cgroups take starve threads of the kernel, for which the agent has to wait: a
tick took 10 s."""
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)
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
    """Return the names of all demos on this host, alive or not.

    Directories and cgroups with other names may be another program's.
    """
    names = {path.name.removeprefix(PREFIX)
             for path in RUN.glob(PREFIX + '*')}
    return {name for name in names.union(cgroups.left_over())
            if NAME.fullmatch(name)}


def clean() -> tuple[list[str], list[str], list[str]]:
    """Remove the rest of killed demos; return the names of those removed and
    of those still running, and the problems."""
    removed: list[str] = []
    playing: list[str] = []
    problems: list[str] = []
    for name in sorted(left_over()):
        try:
            _clean(name, removed, playing)
        except (errors.DriverError, OSError) as exc:
            problems.append(f'demo {name}: {exc}')
    try:
        cgroup_place.move_back()
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
        cgroups.remove(cgroups.left_over().get(name, ()))
        Accounting(directory).restore()
        remove_directory(directory)
    finally:
        os.close(lock)
    removed.append(name)


def remove_directory(directory: pathlib.Path) -> None:
    """Remove a stage's directory, the lock last.

    While that is there, no other process takes the directory for that of a
    killed demo and removes it as well.

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
    """End a demo that was started with ``--keep``; return its lock, ``None``
    if the demo still has the lock or has removed it."""
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


class Stage:
    """The surroundings of one demo; :meth:`remove` works at any moment.

    :param groups: the cgroups below :data:`FOREGROUND`, :data:`BACKGROUND`
    :param cpus: on which all of it runs
    """

    def __init__(self, groups: Sequence[str], cpus: Sequence[int]) -> None:
        self.cpus = list(cpus)
        self.id = uuid.uuid4().hex[:6]
        self.directory = RUN / (PREFIX + self.id)
        self.tree = cgroups.Tree(self.id)
        self.accounting = Accounting(self.directory)
        self._groups = groups
        self._lock: int | None = None
        self._processes: list[subprocess.Popen[bytes]] = []

    def make(self) -> None:
        """Make the directory and the cgroups, and switch on accounting.

        :raises DriverError: the host cannot; :meth:`remove` afterwards.
        """
        self.accounting.take()
        self.directory.mkdir(mode=0o700)
        self._lock = take_lock(self.directory)
        self.tree.make(cpus=types.format_cpus(self.cpus))
        for group in (FOREGROUND, BACKGROUND, *self._groups):
            self.tree.make(group)
        self.tree.check_entry(self._groups[-1])
        self.tree.set_cpu_weight('', TOP_WEIGHT)
        self.accounting.switch_on()

    def launch(self, *argv: str, log: str, below: str | None = None,
               at_end: signal.Signals = signal.SIGKILL
               ) -> subprocess.Popen[bytes]:
        """Start a program.

        :param log: the name of its log
        :param below: the cgroup; ``None``: outside, as the agent, which a
            cgroup may keep from real-time priority
        :param at_end: the signal that it gets if we die
        :raises DriverError: it cannot be started.
        """
        files = [] if below is None else self.tree.procs_files(below)
        parent = os.getpid()

        def prepare() -> None:
            for file in files:
                pathlib.Path(file).write_text('0')
            LIBC.prctl(PR_SET_PDEATHSIG, int(at_end))
            if os.getppid() != parent:      # it died before that
                os._exit(1)

        try:
            with self.log(log).open('ab') as output:
                process = subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, stdout=output,
                    stderr=output, start_new_session=True,
                    preexec_fn=prepare)
        except (OSError, subprocess.SubprocessError) as exc:
            raise errors.DriverError(
                f'{argv[0]} cannot be started ({exc})') from exc
        self._processes.append(process)
        return process

    def log(self, name: str) -> pathlib.Path:
        """Return the file with the output of a program."""
        return self.directory / f'{name}.log'

    def last_line(self, name: str) -> str:
        """Return the last line that a program printed, '' for none."""
        try:
            text = self.log(name).read_text()
        except OSError:
            return ''
        return (text.strip().splitlines() or [''])[-1]

    def remove(self) -> list[str]:
        """Remove everything; return the problems, in plain words."""
        problems = []
        for remove in (self.tree.remove, self.accounting.restore):
            try:
                remove()
            except (errors.DriverError, OSError) as exc:
                problems.append(str(exc))
        for process in self._processes:
            if process.poll() is None:      # it was outside of the tree
                process.terminate()
            try:
                process.wait(cgroups.END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                problems.append(f'process {process.pid} of the demo did not '
                                f'end within {cgroups.END_S:g} s')
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
