# SPDX-License-Identifier: Apache-2.0


"""The console of a guest: commands for its workload, and what it reports.

The guest's only program obeys these lines, one workload at a time; ``N`` and
``key=N`` are numbers, in any order, and all of them may be left out:

* ``cpu [N]``: spin in N threads; ``done`` counts rounds
* ``disk [write | mixed] [seq] [kib=4] [threads=1] [bytes_per_s=N]
  [disks=1]``: direct I/O on /dev/vda, by default random reads as fast as they
  go; with two disks on /dev/vdb in turn; ``done`` counts requests
* ``lookup [per_s=50] [rounds=1] [kib=4] [threads=4]``: a service under open
  load: each request reads /dev/vda at random and computes some rounds; its
  latency counts from the moment it was due; ``done`` counts requests, and
  those that waited for more than a second are ``dropped``
* ``address 10.99.0.2/24``: set up eth0
* ``net 10.99.0.1 [tcp] [port=5001] [threads=1] [bytes_per_s=N]``: send, UDP
  unless told; ``done`` counts datagrams or writes
* ``memory [mib=16]``: touch this much again and again; ``done`` counts turns
* ``rest``: nothing, as after the boot
* ``off``, ``reboot``: without an answer
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import select
import socket
import time
from typing import Any

import fixtures

READY_TIMEOUT_S = 60
OBEY_TIMEOUT_S = 20
JUST_S = 0.1
CLOCK_S = 4
CLOCK_TOLERANCE = 0.1


class ConsoleError(Exception):
    """The guest did not do what it was told, or says nothing any more."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """What a workload did in some time, by its own measure.

    :param took_s: seconds that passed
    :param done: rounds, requests or datagrams; see the module
    :param mean_s, p99_s, max_s: latency of a request; None if there was none;
        of several reports: the mean of all requests, and the worst of the
        reports' p99
    """

    work: str
    took_s: float
    done: int
    bytes: int
    dropped: int
    failed: int
    mean_s: float | None = None
    p99_s: float | None = None
    max_s: float | None = None

    @property
    def per_s(self) -> float:
        """What it did per second."""
        return self.done / self.took_s

    @property
    def bytes_per_s(self) -> float:
        return self.bytes / self.took_s


def total(reports: list[dict[str, Any]]) -> Work:
    """Several reports of one workload as one."""
    timed = [one for one in reports if 'mean_s' in one]
    count = sum(one['done'] for one in timed)
    return Work(
        work=reports[-1]['work'],
        **{key: sum(one[key] for one in reports)
           for key in ('took_s', 'done', 'bytes', 'dropped', 'failed')},
        mean_s=sum(one['mean_s'] * one['done'] for one in timed) / count
        if count else None,
        p99_s=max((one['p99_s'] for one in timed), default=None),
        max_s=max((one['max_s'] for one in timed), default=None))


class Console(fixtures.Fixture):
    """The console of one guest; connects, and waits until it obeys.

    :param path: of the socket that QEMU listens on
    :param reset: let it rest first; otherwise it goes on with what it does,
        as after a migration
    :raises ConsoleError: it does not obey, or report, in time.
    """

    def __init__(self, path: pathlib.Path, *, reset: bool = True,
                 timeout_s: float = READY_TIMEOUT_S) -> None:
        super().__init__()
        self.path = path
        self._reset = reset
        self._timeout_s = timeout_s
        self._pending = b''
        self._second_began = 0.0
        self.said: list[str] = []

    def _setUp(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self.addCleanup(self._socket.close)
        self._socket.settimeout(self._timeout_s)
        self._socket.connect(str(self.path))
        self._socket.setblocking(False)
        if self._reset:
            self.wait_ready(self._timeout_s)
        else:
            self.reports(1, self._timeout_s)

    def close(self) -> None:
        """Listen no more; what the guest says then is lost."""
        self._socket.close()

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until the guest has booted; it rests then."""
        deadline = time.monotonic() + timeout_s
        while True:
            self._socket.send(b'rest\n')    # lost while it boots
            if self._until(lambda line: line.get('obeyed') == 'rest',
                           min(deadline, time.monotonic() + 0.5)):
                return
            if time.monotonic() > deadline:
                raise ConsoleError(
                    f'not ready within {timeout_s} s; it said: {self.tail()}')

    def tell(self, command: str, timeout_s: float = OBEY_TIMEOUT_S) -> None:
        """Give the guest a command and wait until it obeys.

        :raises ConsoleError: it refuses, or says nothing.
        """
        self._drain()
        self._socket.send(command.encode() + b'\n')
        if command in ('off', 'reboot'):
            return
        answer = self._until(
            lambda line: command in (line.get('obeyed'), line.get('refused')),
            time.monotonic() + timeout_s)
        if answer is None or 'refused' in answer:
            why = ('no answer' if answer is None else answer['why'])
            raise ConsoleError(f'{command}: {why}; it said: {self.tail()}')
        self._second_began = time.monotonic()

    def reports(self, count: int, timeout_s: float | None = None
                ) -> list[dict[str, Any]]:
        """The next ``count`` reports that begin from now on.

        :raises ConsoleError: they do not come, by default within
            ``3 * count + 10`` seconds.
        """
        limit_s = 3 * count + 10 if timeout_s is None else timeout_s
        deadline = time.monotonic() + limit_s
        # Right after a command, or a report, a new second has just begun.
        before = time.monotonic() - self._second_began > JUST_S
        if before:
            self._drain()
        found: list[dict[str, Any]] = []
        while len(found) < count + before:
            report = self._until(lambda line: 'work' in line, deadline)
            if report is None:
                raise ConsoleError(
                    f'{len(found)} reports within {limit_s} s; it said: '
                    f'{self.tail()}')
            found.append(report)
        self._second_began = time.monotonic()
        return found[before:]

    def measure(self, seconds: int = 3) -> Work:
        """What its workload does in the next seconds.

        :raises ConsoleError: as :meth:`reports`.
        """
        return total(self.reports(seconds))

    def keep_time(self, tries: int = 4) -> None:
        """See that a second of the guest is one, or boot it again.

        A kernel that hardly ran while it booted, since the machine was busy,
        has measured a wrong rate of its time stamp counter; all that is per
        second is wrong then, even by a factor of 20.

        :raises ConsoleError: its clock is never right.
        """
        for _ in range(tries):
            before_s, began_s = self.reports(1)[0]['at_s'], time.monotonic()
            guest_s = self.reports(CLOCK_S)[-1]['at_s'] - before_s
            rate = guest_s / (time.monotonic() - began_s)
            if abs(rate - 1) < CLOCK_TOLERANCE:
                return
            self.tell('reboot')
            self.wait_ready()
        raise ConsoleError(f'{self.path.name}: its clock is {rate:.2f} times '
                           f'as fast as ours, after {tries} boots')

    def tail(self) -> str:
        """The last lines that were read."""
        return '\n'.join(self.said[-20:])

    def _drain(self) -> None:
        """Read what has been said until now."""
        while self._until(lambda line: True, time.monotonic()):
            pass

    def _until(self, wanted: Any, deadline: float) -> dict[str, Any] | None:
        """The next line that is wanted, None at the deadline.

        :raises ConsoleError: QEMU has closed the console.
        """
        while True:
            while b'\n' in self._pending:
                line, self._pending = self._pending.split(b'\n', 1)
                self.said.append(line.decode(errors='replace').strip())
                try:
                    found = json.loads(line)
                except ValueError:
                    continue
                if isinstance(found, dict) and wanted(found):
                    return found
            left_s = max(0.0, deadline - time.monotonic())
            if not select.select([self._socket], [], [], left_s)[0]:
                return None
            read = self._socket.recv(65536)
            if not read:
                raise ConsoleError(f'{self.path.name}: its QEMU has ended; '
                                   f'it said: {self.tail()}')
            self._pending += read
