# SPDX-License-Identifier: Apache-2.0

"""Conductors and agents of schedules of faults, as processes to kill.

``python -m scavenger_openstack.tests.functional.fault_processes WORD...`` is
an agent, as :func:`keep` with its end of a socket in the place of its input.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import copy
import json
import math
import os
import pathlib
import random
import signal
import socket
import sys
import threading
from typing import Any

from scavenger_openstack.agent.events import segments
from scavenger_openstack.agent.events import store
from scavenger_openstack.conductor import periodic
from scavenger_openstack.conductor import service
from scavenger_openstack.db import connect
from scavenger_openstack import errors
from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor import schedules_cases
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import report as wire

KILL_WITHIN_S = 0.02
"""A kill in the middle comes within that: a report takes some 5 ms."""

KEEP_DAYS = 4
"""What has ended for longer is deleted by :func:`conduct`."""

STORED_BYTES = 64 << 20


class Process:
    """A process that answers over a socket, line by line.

    :param serve: what it does, with its end of the socket and ``words``
    :param fork: or else a new interpreter, which can only :func:`keep`: a
        fork of a process with threads may stand still
    """

    def __init__(self, serve: Callable[..., None], *words: Any,
                 fork: bool = True) -> None:
        self._socket, theirs = socket.socketpair()
        self._pid = os.fork() if fork else os.posix_spawn(
            sys.executable, [sys.executable, '-m', __name__, *words],
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, theirs.fileno(), 0)])
        if not self._pid:
            with contextlib.suppress(BaseException):
                self._socket.close()
                serve(theirs, *words)
            os._exit(1)
        theirs.close()
        self._file = self._socket.makefile('rb')

    def send(self, data: bytes = b'', kill: str = '', **words: Any) -> None:
        """
        :param kill: '' for not, ``answer`` before the answer, ``middle``
            at any moment
        """
        self._socket.sendall(json.dumps({
            'data': data.decode('latin-1'), 'kill': kill, **words}
            ).encode() + b'\n')

    def answer(self) -> bytes | None:
        """``None`` when it died before."""
        try:
            line = self._file.readline()
        except ConnectionError:
            line = b''
        return line[:-1] if line.endswith(b'\n') else None

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)
        self._file.close()
        self._socket.close()


def _asked(there: socket.socket) -> Iterator[dict[str, Any]]:
    """What is asked of a process, which may be killed meanwhile."""
    for line in there.makefile('rb'):
        asked = json.loads(line)
        asked['data'] = asked['data'].encode('latin-1')
        if asked['kill'] == 'middle':
            threading.Timer(random.random() * KILL_WITHIN_S, die).start()
        yield asked


def conduct(there: socket.socket, engine: connect.Engine) -> None:
    """What a conductor does, until it is killed: it answers a report, or with
    ``work`` does what is due from time to time and says what came of it.

    :param engine: without connections
    """
    now = [0.0]
    periodic.AHEAD_S = math.inf     # time passes in steps, no clock is wrong
    conductor = service.Conductor(engine, lambda: now[0],
                                  keep_days=KEEP_DAYS,
                                  keep_audit_days=KEEP_DAYS,
                                  elapsed=lambda: now[0],
                                  pace=lambda: now[0])
    for asked in _asked(there):
        now[0] = asked['now']
        try:
            found = (json.dumps([work() for _, work in conductor.works]
                                ).encode() if 'work' in asked
                     else conductor.answer(asked['data']))
        except errors.ScavengerError as exc:
            found = json.dumps({
                'refused' if isinstance(exc, errors.WireError)
                else 'unreachable': str(exc)}).encode()
        if asked['kill'] == 'answer':
            die()
        there.sendall(found.replace(b'\n', b' ') + b'\n')


def keep(there: socket.socket, directory: str, name: str, boot: str) -> None:
    """What an agent does, until it is killed: what comes with ``now`` happens,
    ``run`` is acknowledged; the answer is its next report."""
    kept = store.Store(pathlib.Path(directory), STORED_BYTES, STORED_BYTES)
    for asked in _asked(there):
        if asked['data']:
            kept.add(codec.decode(asked['data'], wire.Report,
                                  wire.MAX_REPORT_BYTES).entries)
        if 'run' in asked:
            kept.acknowledged(asked['run'], asked['sequence'])
        run, entries = kept.batch(6, wire.MAX_REPORT_BYTES // 2)
        there.sendall(codec.encode(codec.replace(cloud.report(
            *entries, host=name, run=run, sent_s=asked['now'],
            workloads=schedules_cases.WORKLOADS, digest='those'),
            boot_id=boot)) + b'\n')


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Agent:
    """An agent: what happened on its host, and the process that tells it.

    The first time that it starts again, and every other time, the host has
    booted.

    :param fork: see :class:`Process`
    """

    def __init__(self, name: str, seed: int, top: pathlib.Path,
                 fork: bool = True) -> None:
        self.host = schedules_cases.Host(name, seed)
        self.kills = 0
        self._directory = top / name
        self._fork = fork
        self._start()

    def _start(self) -> None:
        self._process = Process(
            keep, str(self._directory), self.host.name,
            f'boot-{(self.kills + 1) // 2}', fork=self._fork)

    def end(self) -> None:
        self._process.end()

    def happens(self, now: float, kill: bool = False) -> None:
        """Some entries more; with ``kill`` the agent dies meanwhile, and what
        is not on its disk then has never happened."""
        before = copy.deepcopy(self.host) if kill else self.host
        self.host.happens(now)
        entries, self.host.waiting = self.host.waiting, []
        there = self.waiting()
        self._ask(kill, codec.encode(cloud.report(*entries)), now=now)
        if kill and self.waiting() == there:
            self.host = before

    def waiting(self) -> int:
        """How many events are not acknowledged yet."""
        try:
            done = codec.decode((self._directory / store.POSITION).read_bytes(
                ), store.Position, 1024)
        except FileNotFoundError:
            return 0
        return sum(
            parsed is not None and (segment.run, parsed[0]) > (
                done.run, done.sequence)
            for segment in segments.segments(self._directory, 'events')
            for parsed in map(segments.parse, segment.path.read_bytes(
                ).splitlines(keepends=True)))

    def report(self, now: float) -> wire.Report:
        return codec.decode(self._ask(now=now) or b'', wire.Report,
                            wire.MAX_REPORT_BYTES)

    def answered(self, run: str, sequence: int, now: float,
                 kill: bool = False) -> None:
        self._ask(kill, now=now, run=run, sequence=sequence)

    def _ask(self, kill: bool = False, data: bytes = b'', **words: Any
             ) -> bytes | None:
        self._process.send(data, 'middle' if kill else '', **words)
        found = self._process.answer()
        if kill:
            self.kills += 1
            self.end()
            self._start()
        return found


if __name__ == '__main__':
    keep(socket.socket(fileno=0), *sys.argv[1:])
