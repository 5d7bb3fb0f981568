# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Conductors and agents of :mod:`fault_schedules`, as processes to kill."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import copy
import json
import os
import pathlib
import random
import signal
import socket
import sqlite3
import threading
from typing import Any

from scavenger_openstack.agent.control_plane import spool
from scavenger_openstack.conductor import service
from scavenger_openstack.db import connect
from scavenger_openstack import errors
from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor import schedules_cases
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import report as wire

KILL_WITHIN_S = 0.02
"""A kill in the middle comes within that: a report takes some 5 ms."""

SPOOL_BYTES = 64 << 20


class Process:
    """A process that answers over a socket, line by line.

    :param serve: what it does, with its end of the socket and ``words``
    """

    def __init__(self, serve: Callable[..., None], *words: Any) -> None:
        self._socket, theirs = socket.socketpair()
        self._pid = os.fork()
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


def conduct(there: socket.socket, url: str) -> None:
    """What a conductor does, until it is killed."""
    now = [0.0]
    conductor = service.Conductor(connect.engine(url), lambda: now[0])
    for asked in _asked(there):
        now[0] = asked['now']
        try:
            found = conductor.answer(asked['data'])
        except errors.ScavengerError as exc:
            found = json.dumps({'refused': str(exc)}).encode()
        if asked['kill'] == 'answer':
            die()
        there.sendall(found.replace(b'\n', b' ') + b'\n')


def keep(there: socket.socket, directory: pathlib.Path, name: str) -> None:
    """What an agent does, until it is killed: what comes with ``now`` happens,
    ``run`` is acknowledged; the answer is its next report."""
    kept = spool.Spool(directory, SPOOL_BYTES)
    for asked in _asked(there):
        if asked['data']:
            kept.add(codec.decode(asked['data'], wire.Report,
                                  wire.MAX_REPORT_BYTES).entries)
        if 'run' in asked:
            kept.acknowledged(asked['run'], asked['sequence'])
        run, entries = kept.batch(6, wire.MAX_REPORT_BYTES // 2)
        there.sendall(codec.encode(cloud.report(
            *entries, host=name, run=run, sent_s=asked['now'])) + b'\n')


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Agent:
    """An agent: what happened on its host, and the process that tells it."""

    def __init__(self, name: str, seed: int, top: pathlib.Path) -> None:
        self.host = schedules_cases.Host(name, seed)
        self._directory = top / name
        self.start()

    def start(self) -> None:
        self._process = Process(keep, self._directory, self.host.name)

    def end(self) -> None:
        self._process.end()

    def happens(self, now: float, kill: bool) -> None:
        """Some entries more; with ``kill`` the agent dies meanwhile, and what
        its spool does not have then has never happened."""
        before = copy.deepcopy(self.host)
        self.host.happens(now)
        entries, self.host.waiting = self.host.waiting, []
        if not entries:
            return
        there = self.waiting()
        self._process.send(codec.encode(cloud.report(*entries)), now=now,
                           kill='middle' if kill else '')
        self._process.answer()
        if kill:
            self.end()
            if self.waiting() == there:
                self.host = before
            self.start()

    def waiting(self) -> int:
        """How many entries are in the spool."""
        path = self._directory / spool.FILE
        if not path.exists():
            return 0
        with contextlib.closing(sqlite3.connect(path)) as db:
            return db.execute('SELECT count(*) FROM entries').fetchone()[0]

    def report(self, now: float) -> wire.Report:
        self._process.send(now=now)
        return codec.decode(self._process.answer() or b'', wire.Report,
                            wire.MAX_REPORT_BYTES)

    def answered(self, run: str, sequence: int, now: float) -> None:
        self._process.send(now=now, run=run, sequence=sequence)
        self._process.answer()
