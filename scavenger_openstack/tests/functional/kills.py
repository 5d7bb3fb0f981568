# SPDX-License-Identifier: Apache-2.0

"""Kill or stop the agent at every system call that matters, and look.

A stage is a set of real cgroups and a network namespace with a veth, all
with originals of their own; the agent is :mod:`.scripted`; the watcher is
the real ``scavenger-restore --watch``.  strace ends (or stops) the agent at
the N-th call of one kind; then every knob has to be back at its original
when the lease time is over.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from typing import Any
import uuid

import fixtures

from scavenger_openstack.tests.functional import base

CALLS = {'write': 36, 'pwrite64': 38, 'fsync': 35, 'rename': 0,
         'renameat': 11, 'unlink': 2, 'unlinkat': 23, 'sendto': 88,
         'sendmsg': 0}
"""Calls through which the agent changes anything on the host, and how many of
each it makes at least."""

TICKS = 4
INTERVAL_S = 0.1
LEASE_S = 2.0 * base.pace()
BUSY_S = 20.0
"""What a watcher may take longer where other programs use the CPUs and the
disk; what is lost never comes back."""
WATCHED = {
    1: ('cpu.cfs_quota_us', 'cpu.cfs_period_us', 'cpu.shares', 'cpu.idle',
        'cpuset.cpus', 'memory.limit_in_bytes', 'freezer.state',
        *(f'blkio.throttle.{way}_{unit}_device'
          for way in ('read', 'write') for unit in ('bps', 'iops'))),
    2: ('cpu.max', 'cpu.weight', 'cpu.idle', 'cpuset.cpus', 'memory.max',
        'memory.high', 'cgroup.freeze', 'io.max')}
"""The files of all limits, by version of cgroups."""

TOUCHED = {
    1: {'cpu.cfs_quota_us', 'cpu.idle', 'cpuset.cpus',
        'memory.limit_in_bytes', 'freezer.state', 'tc', 'ingress',
        'blkio.throttle.read_bps_device'},
    2: {'cpu.max', 'cpu.idle', 'cpuset.cpus', 'memory.max', 'memory.high',
        'cgroup.freeze', 'io.max', 'tc', 'ingress'}}
"""What the script of :mod:`.scripted` must have changed once."""


def traced(code: str, words: Sequence[str], inject: Sequence[str], *,
           follow: bool = True, output: str = os.devnull, **options: Any
           ) -> tuple[subprocess.Popen[str], subprocess.Popen[bytes]]:
    """Run a module of ours under strace, but not its imports: under strace
    these take much longer than what it does then, and change nothing.

    :param code: imports what it needs, and has a function ``main``
    :param words: of the command line, from ``sys.argv[1]`` on
    :param inject: of strace, such as ``fsync:signal=KILL:when=3``
    :param follow: trace its other threads and its children, too, each with
        a count of its own
    :param output: file of what strace writes
    :param options: of the process
    :returns: the process itself, and strace, which ends with it
    """
    process = subprocess.Popen(
        [sys.executable, '-c', f'import os, signal, sys\n{code}\n'
         'os.kill(os.getpid(), signal.SIGSTOP)\nsys.exit(main())', *words],
        stdin=subprocess.DEVNULL, text=True, **options)
    os.waitid(os.P_PID, process.pid,
              os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    calls = ','.join(sorted({one.partition(':')[0] for one in inject}))
    tracer = subprocess.Popen(
        ['strace', *(['-f'] if follow else []), '-qqq', '-p',
         str(process.pid), '-o', output, '-e', f'trace={calls}',
         *(word for one in inject for word in ('-e', f'inject={one}'))],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    status = pathlib.Path(f'/proc/{process.pid}/status')
    while 'TracerPid:\t0' in status.read_text() and tracer.poll() is None:
        time.sleep(0.001)
    if tracer.poll() is not None:
        process.kill()
        raise AssertionError('strace could not attach: it ended with '
                             f'{tracer.returncode}')
    # Nothing need wait for it.
    threading.Thread(target=tracer.wait, daemon=True).start()
    process.send_signal(signal.SIGCONT)
    return process, tracer


def scripted(config: pathlib.Path, ticks: int, inject: Sequence[str],
             **options: Any) -> tuple[subprocess.Popen[str],
                                      subprocess.Popen[bytes] | None]:
    """Start :mod:`.scripted`; its process and, if there is something to
    inject, its strace."""
    options |= {'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE}
    module = 'scavenger_openstack.tests.functional.scripted'
    words = [str(config), str(ticks)]
    if inject:
        return traced(
            f'from {module} import main as run\n'
            'def main():\n    return run(sys.argv[1], int(sys.argv[2]))',
            words, inject, **options)
    return subprocess.Popen(
        [sys.executable, '-m', module, *words], stdin=subprocess.DEVNULL,
        text=True, **options), None


class Stage(fixtures.Fixture):
    """Cgroups with odd originals, a veth, a watcher and a state directory.

    :param package: directory to import the agent from (default: this one)
    """

    def __init__(self, tree: base.CgroupTree, directory: pathlib.Path,
                 package: pathlib.Path | None = None) -> None:
        super().__init__()
        self.tree = tree
        self.directory = directory
        self.state_dir = directory / 'state'
        where = package or pathlib.Path(base.__file__).parents[3]
        self._environment = {**os.environ, 'PYTHONPATH': str(where)}

    def _setUp(self) -> None:
        for below in ('/background/a', '/background/b/child',
                      '/foreground/f'):
            self.tree.make(below)
        self.tree.put('weight', '/background', '3072')
        self.tree.put('quota', '/background/a', '150000')
        self.tree.put('memory', '/background/a', str(512 * 2**20))
        self.netns = f'scv-{uuid.uuid4().hex[:6]}'
        self._run('ip', 'netns', 'add', self.netns)
        self.addCleanup(self._run, 'ip', 'netns', 'del', self.netns)
        self._run('ip', '-n', self.netns, 'link', 'add', 'v0', 'type', 'veth',
                  'peer', 'name', 'v1')
        self._run('ip', '-n', self.netns, 'link', 'set', 'v0', 'up')
        self.config = self.directory / 'agent.conf'
        name = self.tree.name
        self.config.write_text(f'''
[DEFAULT]
state_dir = {self.state_dir}
[agent]
interval_s = {INTERVAL_S}
lease_s = {LEASE_S}
write_deadline_s = 10
[cgroups]
background_parents = {name}/background
foreground_parents = {name}/foreground
[network]
links = {self.netns}:v1=125000000
interfaces = {name}/background/a={self.netns}:v0
''')
        self.addCleanup(self.end_watcher)
        self.watch()
        self.originals = self.look()

    def watch(self, *inject: str) -> None:
        """Start the watcher; ``inject`` as for :meth:`agent`."""
        options: dict[str, Any] = {
            'cwd': self.directory, 'env': self._environment,
            'stderr': subprocess.DEVNULL}
        words = ['--watch', '--state-dir', str(self.state_dir),
                 '--stop-file', str(self.state_dir / 'stop')]
        module = 'scavenger_openstack.restore.program'
        if inject:
            # Not its children: an `ip` that is stopped is never continued.
            self.watcher, _ = traced(f'from {module} import main', words,
                                     inject, follow=False, **options)
        else:
            self.watcher = subprocess.Popen(
                [sys.executable, '-m', module, *words], text=True,
                stdin=subprocess.DEVNULL, **options)

    def look(self) -> dict[str, str]:
        """Every limit of the stage as text."""
        found = {}
        assert self.tree.version
        for top in {self.tree.path(one) for one in self.tree.mounts}:
            for directory, _, files in os.walk(top):
                for file in files:
                    if file in WATCHED[self.tree.version]:
                        path = pathlib.Path(directory, file)
                        found[str(path)] = path.read_text().strip()
        found['tc'] = re.sub(r'refcnt \d+', '', subprocess.run(
            ['tc', '-n', self.netns, 'qdisc', 'show'], check=True,
            stdout=subprocess.PIPE, text=True).stdout)
        found['ingress'] = str(found['tc'].count('qdisc ingress'))
        return found

    def all_touched(self) -> Callable[[], bool]:
        """A condition: each kind of limit was changed since it was made."""
        touched: set[str] = set()
        assert self.tree.version
        wanted = TOUCHED[self.tree.version]

        def found() -> bool:
            touched.update(pathlib.Path(path).name for path in self.changed())
            return touched >= wanted

        return found

    def changed(self) -> dict[str, tuple[str, str]]:
        """What is not at its original: path -> (original, now)."""
        now = self.look()
        return {path: (text, now.get(path, 'gone'))
                for path, text in self.originals.items()
                if now.get(path) != text}

    def agent(self, ticks: int, *inject: str) -> subprocess.Popen[str]:
        """Start the agent, under strace when there is something to inject.

        ``inject`` are strace expressions such as ``fsync:signal=KILL:when=3``.
        """
        return scripted(self.config, ticks, inject, cwd=self.directory,
                        env=self._environment)[0]

    def back_within(self, seconds: float) -> tuple[float, dict[str, object]]:
        """Wait until all is back; how long it took, and what is not."""
        began = time.monotonic()
        while changed := self.changed():
            if time.monotonic() - began > seconds:
                return time.monotonic() - began, dict(changed)
            time.sleep(0.05)
        return time.monotonic() - began, {}

    def leases(self) -> list[pathlib.Path]:
        return list((self.state_dir / 'leases').glob('*.json'))

    def wait_no_leases(self, seconds: float) -> bool:
        """Whether the watcher has put away every record in time."""
        deadline = time.monotonic() + seconds
        while self.leases():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    @staticmethod
    def _run(*command: str) -> None:
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)

    def end_watcher(self) -> None:
        self.watcher.kill()
        self.watcher.wait(60)


def every(call: str) -> range:
    """Each instant of a kind of call; the last one ends a campaign."""
    return range(1, 10_000)


def enumerate_kills(stage: Stage, signal_name: str = 'KILL',
                    calls: Iterable[str] = CALLS,
                    instants: Callable[[str], range] = every
                    ) -> Iterator[tuple[str, int, float, dict[str, object]]]:
    """Run the agent until the N-th call, for each N until none is left.

    :param instants: the Ns of a kind of call
    :returns: (call, N, seconds until all was back, what was not back) for
        each N
    """
    for call in calls:
        for number in instants(call):
            agent = stage.agent(
                TICKS, f'{call}:signal={signal_name}:when={number}')
            said = agent.communicate(timeout=60 * base.pace())
            killed = agent.returncode == -signal.Signals[f'SIG{signal_name}']
            if not killed and 'end [' not in said[0]:
                raise AssertionError(f'{call} {number}: the agent ended with '
                                     f'{agent.returncode}: {said[1]}')
            if agent.returncode == 0:
                break
            # On a busy machine it may leave something to the watcher, too.
            took, left = stage.back_within(LEASE_S + BUSY_S)
            yield call, number, took, left
            if left:
                return
            if not killed:
                break


def random_kills(stage: Stage, kills: int, seed: int = 1
                 ) -> Iterator[tuple[float, float, dict[str, object]]]:
    """SIGKILL at random instants of an agent that never ends.

    Yields (seconds it lived, seconds until all was back, what was not).
    """
    dice = random.Random(seed)
    for _ in range(kills):
        agent = stage.agent(0)
        assert agent.stdout and agent.stdout.readline() == 'turning\n'
        lived = dice.uniform(0, 2 * TICKS * INTERVAL_S)
        time.sleep(lived)
        agent.send_signal(signal.SIGKILL)
        agent.communicate(timeout=60 * base.pace())
        took, left = stage.back_within(LEASE_S + BUSY_S)
        yield lived, took, left
        if left:
            return


def random_stops(stage: Stage, stops: int, seed: int = 1
                 ) -> Iterator[tuple[float, float, dict[str, object]]]:
    """SIGSTOP past the lease, SIGCONT, SIGTERM; as :func:`random_kills`.

    Looks twice: while the agent stands still, and after it went on and was
    killed at once.
    """
    dice = random.Random(seed)
    for _ in range(stops):
        agent = stage.agent(0)
        assert agent.stdout and agent.stdout.readline() == 'turning\n'
        lived = dice.uniform(0, 2 * TICKS * INTERVAL_S)
        time.sleep(lived)
        agent.send_signal(signal.SIGSTOP)
        took, left = stage.back_within(LEASE_S + BUSY_S)
        if not left:
            time.sleep(max(0.0, LEASE_S - took))
            agent.send_signal(signal.SIGCONT)
            time.sleep(dice.uniform(0, 3 * INTERVAL_S))
        agent.send_signal(signal.SIGKILL)
        agent.communicate(timeout=60 * base.pace())
        if not left:
            took, left = stage.back_within(LEASE_S + BUSY_S)
        yield lived, took, left
        if left:
            return


def swapped_package(directory: pathlib.Path) -> pathlib.Path:
    """A copy of the product that writes first and leases after."""
    lease = ('        if knob in OF_GROUPS or state is None or '
             'state.ours is None:\n'
             '            state = self._lease(key)\n')
    write = ('            with self._leases.writing(*key):\n'
             '                written = self._driver.write(*key, value, '
             'state)\n')
    return broken_package(
        directory, 'agent/apply/actuator.py', (lease, ''),
        (write, '            written = self._driver.write('
                '*key, value, state)\n'
         + textwrap.indent(lease, '    ')))


def broken_package(directory: pathlib.Path, file: str,
                   *changes: tuple[str, str]) -> pathlib.Path:
    """A copy of the product with something in one file replaced.

    :returns: the directory to import it from
    :raises AssertionError: the place to break was not found.
    """
    source = pathlib.Path(base.__file__).parents[2]
    # With what is compiled, which many of its processes import.
    shutil.copytree(source, directory / source.name)
    path = directory / source.name / file
    text = path.read_text()
    for before, after in changes:
        assert before in text, f'{file} has changed'
        text = text.replace(before, after, 1)
    path.write_text(text)
    return directory
