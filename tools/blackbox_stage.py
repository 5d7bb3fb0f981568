# SPDX-License-Identifier: Apache-2.0

"""Where :mod:`blackbox` is played: cgroups and programs of its own."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import uuid

ROOT = pathlib.Path('/sys/fs/cgroup')
V1 = ('cpu', 'cpuset', 'memory', 'blkio', 'freezer')
V2 = ('cpu', 'cpuset', 'memory', 'io')
KNOBS = ('cpu.shares', 'cpu.cfs_quota_us', 'cpu.weight', 'cpu.max',
         'cpu.idle', 'cpuset.cpus', 'memory.limit_in_bytes', 'memory.high',
         'memory.max', 'freezer.state', 'cgroup.freeze')
LEASE_S = 3.0
SLACK_S = 5.0
"""Beyond the lease: two CPUs may be busy with something else."""
START_S = 60.0
GROUPS = ('background', 'background/a', 'background/b', 'foreground',
          'foreground/f')
LEAVES = ('background/a', 'background/b', 'foreground/f')


class Failure(Exception):
    """A case found something that must not be."""


class Tree:
    """Cgroups of our own, each leaf with one process that sleeps."""

    def __init__(self) -> None:
        self.name = f'scv-box-{uuid.uuid4().hex[:8]}'
        self.v2 = (ROOT / 'cgroup.controllers').exists()
        self.tops = [ROOT] if self.v2 else [ROOT / kind for kind in V1]
        self.processes: list[subprocess.Popen[bytes]] = []

    def make(self) -> None:
        if self.v2:
            enable(ROOT)
        for top in self.tops:
            for group in ('', *GROUPS):
                path = top / self.name / group
                path.mkdir()
                for file in ('cpuset.mems', 'cpuset.cpus'):
                    if not self.v2 and (path / file).exists():
                        (path / file).write_text(
                            (path.parent / file).read_text())
                if self.v2 and group not in LEAVES:
                    enable(path)
        for leaf in LEAVES:
            process = subprocess.Popen(['sleep', '3600'])
            self.processes.append(process)
            for top in self.tops:
                (top / self.name / leaf / 'cgroup.procs').write_text(
                    str(process.pid))

    def knobs(self) -> dict[str, str]:
        """Every knob below the background, as the kernel shows it."""
        found = {}
        for top in self.tops:
            for group in GROUPS[:3]:
                for file in KNOBS:
                    path = top / self.name / group / file
                    if path.exists():
                        found[str(path)] = path.read_text().strip()
        return found

    def remove(self) -> None:
        for top in self.tops:
            for group in reversed(('', *GROUPS)):
                for file, text in (('freezer.state', 'THAWED'),
                                   ('cgroup.freeze', '0')):
                    path = top / self.name / group / file
                    with contextlib.suppress(OSError):
                        if path.exists():
                            path.write_text(text)
        for process in self.processes:
            process.kill()
            process.wait()
        for top in self.tops:
            for group in reversed(('', *GROUPS)):
                deadline_s = time.monotonic() + 10
                path = top / self.name / group
                while path.exists() and time.monotonic() < deadline_s:
                    with contextlib.suppress(OSError):
                        path.rmdir()
                    time.sleep(0.01)


def enable(path: pathlib.Path) -> None:
    """Have the children of a v2 cgroup get all controllers that it has."""
    has = (path / 'cgroup.controllers').read_text().split()
    (path / 'cgroup.subtree_control').write_text(
        ' '.join(f'+{kind}' for kind in V2 if kind in has))


class Case:
    """One host to play on: cgroups, directories, programs."""

    def __init__(self, programs: pathlib.Path) -> None:
        self.programs = programs
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix='scv-box-'))
        self.tree = Tree()
        self.running: list[subprocess.Popen[bytes]] = []
        self.logs: dict[int, pathlib.Path] = {}
        self.tree.make()
        self.originals = self.tree.knobs()
        self.state = self.directory / 'state'
        self.good = self.configuration('good.conf', self.state)

    def configuration(self, name: str, state: pathlib.Path,
                      parents: str = 'background_parents') -> pathlib.Path:
        path = self.directory / name
        path.write_text(f'''\
[DEFAULT]
state_dir = {state}
[agent]
stop_file = {self.directory}/stop
interval_s = 0.25
lease_s = {LEASE_S}
controllers = scavenger
[libvirt]
uri =
[cgroups]
{parents} = /{self.tree.name}/background
foreground_parents = /{self.tree.name}/foreground
[scavenger]
mode = enforce
memory_window_s = 2
''')
        return path

    def start(self, program: str, *arguments: object,
              before: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        log = self.directory / f'{program}.{len(self.running)}.log'
        with log.open('wb') as output:
            process = subprocess.Popen(
                [*before, str(self.programs / program),
                 *map(str, arguments)], stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, start_new_session=True)
        self.running.append(process)
        self.logs[process.pid] = log
        return process

    def run(self, program: str, *arguments: object,
            before: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*before, str(self.programs / program), *map(str, arguments)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=120)
        text = (done.stdout + done.stderr).strip()
        print(f'    {program} {arguments[0] if arguments else ""} -> '
              f'{done.returncode}: ' + text.replace('\n', '\n        '))
        if 'Traceback' in text:
            raise Failure(f'{program} ended with a traceback')
        return done

    def said(self, process: subprocess.Popen[bytes]) -> str:
        """All that a program wrote."""
        return self.logs[process.pid].read_text()

    def watcher(self, before: Sequence[str] = ()
                ) -> subprocess.Popen[bytes]:
        return self.start('scavenger-restore', '--watch', '--state-dir',
                          self.state, '--stop-file', self.directory / 'stop',
                          before=before)

    def agent(self, configuration: pathlib.Path | None = None,
              before: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        return self.start('scavenger-agent', 'run', '--config-file',
                          configuration or self.good, before=before)

    def limited(self) -> None:
        """Start watcher and agent, and wait for limits of two kinds."""
        self.state.mkdir(mode=0o700, exist_ok=True)
        self.watch = self.watcher()
        self.acting = self.agent()
        self.wait_for_limits()

    def changed(self) -> dict[str, str]:
        return {path: text for path, text in self.tree.knobs().items()
                if self.originals[path] != text}

    def wait_for_limits(self) -> None:
        wait('limits of two kinds', START_S, lambda: len(
            {path.rpartition('/')[2] for path in self.changed()}) >= 2)

    def wait_for_originals(self, within_s: float = LEASE_S + SLACK_S) -> None:
        began_s = time.monotonic()
        try:
            wait('originals', within_s, lambda: not self.changed())
        except Failure:
            raise Failure(f'after {within_s:g} s still limited: '
                          f'{self.changed()}') from None
        print(f'    originals back after {time.monotonic() - began_s:.1f} s')

    def remove(self) -> None:
        for process in self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)
            if process.poll() is None:
                process.terminate()
        for process in self.running:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.tree.remove()
        shutil.rmtree(self.directory, ignore_errors=True)


def wait(what: str, within_s: float, condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise Failure(f'{what}: not within {within_s:g} s')
        time.sleep(0.02)
