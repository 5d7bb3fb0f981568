# SPDX-License-Identifier: Apache-2.0


"""What the disks of domains have done: libvirt alone knows.

It has to ask each QEMU, so this is done in a thread, for all domains in one
call, when the tick says so.  A QEMU that does not answer keeps that call for
ever: then a second connection is used, without waiting for domains that are
held by a job, such as the call that hangs.  So only the domain itself has no
numbers, and it has some again when it answers; while two calls hang no domain
has any.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping
import logging
import math
import time
from typing import Any

from scavenger_openstack.drivers import calls
from scavenger_openstack.drivers.libvirt import client
from scavenger_openstack.drivers.libvirt.client import Blocks
from scavenger_openstack.drivers.libvirt import health as domain_health
from scavenger_openstack import errors

LOG = logging.getLogger(__name__)

WAIT_STEP_S = 2.0 ** -24
"""What an operation waited is handed out in steps of this, 60 ns.  Floats
add such up without any error, for 17 years of waiting in all: so the time
per operation is the very same number in each tick of one answer, and can
be known to be no news."""


def _stepped(wait_s: float) -> float:
    return math.floor(wait_s / WAIT_STEP_S) * WAIT_STEP_S


class Statistics:
    """The totals of each domain, handed out tick by tick.

    What happened between two answers is handed out in equal parts, one in
    each of the ticks until the next answer: otherwise all domains would seem
    to work in the same tick.  What an answer left over comes with the next.

    :param ticks: how many from one question to the next
    :param timeout_s: how long an answer may take
    """

    def __init__(self, connection: client.Libvirt,
                 health: domain_health.Health, executor: calls.Executor, *,
                 ticks: int, timeout_s: float) -> None:
        self._connections = [_Connection(connection, executor, target)
                             for target in domain_health.DISKS]
        self._health = health
        self._ticks = ticks
        self._timeout_s = timeout_s
        self._current: _Connection | None = None
        self._tick = 0
        self._blocks: dict[str, tuple[Blocks | None, Blocks]] = {}
        self._since = 0
        self._with_disks: set[str] = set()
        self._missing: set[str] = set()

    def tick(self, running: Collection[str]) -> None:
        """One tick: take an answer, ask again; never waits.

        :param running: the domains that there are
        """
        connection = self._current
        if connection is not None and connection.call is not None:
            if connection.call.done.is_set():
                self._take(connection.call.result, running)
                connection.call = None
                self._since = 0
            elif connection.is_late(self._timeout_s):
                self._leave(connection)
        self._since += 1
        if self._since > 2 * self._ticks:
            self._blocks = {}    # no answer: unknown
        if self._tick % self._ticks == 0:
            self._query()
        self._tick += 1

    def of(self, uuid: str) -> Blocks | None:
        """``io_wait_s``, ``io_ops``, ``io_bytes`` of a domain, if known."""
        before, now = self._blocks.get(uuid, (None, None))
        if before is None or now is None:
            return None     # how it grows takes two answers
        (wait_0, ops_0, bytes_0), (wait_1, ops_1, bytes_1) = before, now
        part = min(1.0, self._since / self._ticks)
        ops = int((ops_1 - ops_0) * part)
        wait_s = (ops * _stepped((wait_1 - wait_0) / (ops_1 - ops_0))
                  if ops else 0.0)
        return (wait_0 + wait_s, ops_0 + ops,
                bytes_0 + int((bytes_1 - bytes_0) * part))

    def close(self) -> None:
        """Close the connections, but those on which a call hangs."""
        for connection in self._connections:
            connection.end()

    def _take(self, answer: Mapping[str, Blocks] | None,
              running: Collection[str]) -> None:
        if answer is None:
            self._blocks = {}
            return
        answered: dict[str, tuple[Blocks | None, Blocks]] = {}
        for uuid, now in answer.items():
            before = self.of(uuid)
            if before is None and uuid in self._blocks:
                wait_s, ops, size = self._blocks[uuid][1]
                before = _stepped(wait_s), ops, size
            answered[uuid] = (before if before is not None and all(
                a <= b for a, b in zip(before, now, strict=True)) else None,
                now)
        self._check_missing(answered, running)
        self._blocks = answered

    def _check_missing(self, answered: Collection[str],
                       running: Collection[str]) -> None:
        """Have domains checked that two answers in a row lack, while others
        that were in one are there."""
        self._with_disks = {uuid for uuid in (*self._with_disks, *answered)
                            if uuid in running}
        before, self._missing = self._missing, (
            self._with_disks.difference(answered))
        if both := before & self._missing:
            self._health.check(both)

    def forget(self, uuid: str) -> None:
        """Forget a run of a domain that ended: the next one counts from 0."""
        self._blocks.pop(uuid, None)
        self._missing.discard(uuid)

    def _leave(self, connection: _Connection) -> None:
        LOG.debug('block statistics: no answer within %s s', self._timeout_s)
        connection.call = self._current = None
        self._health.suspect()

    def _query(self) -> None:
        if self._health.down:
            return
        if self._current is None:
            if not self._health.is_sure:
                self._health.suspect()
                return
            self._current = next((
                connection for connection in self._connections
                if not connection.hangs()), None)
        if self._current is not None:
            self._current.query()


class _Connection:
    """A connection over which libvirt is asked, one question at a time.

    :param target: of its calls
    """

    def __init__(self, connection: client.Libvirt, executor: calls.Executor,
                 target: str) -> None:
        self._libvirt = connection
        self._executor = executor
        self._target = target
        self._connection: Any = None
        self.queried_s = 0.0
        self.call: calls.Call | None = None
        """The question, until its answer was taken."""

    def query(self) -> None:
        """Ask, unless there is no answer to the last question yet."""
        if self.call is None:
            self.queried_s = time.monotonic()
            self.call = self._executor.submit(self._target, self._query)

    def is_late(self, timeout_s: float) -> bool:
        """Return whether there is no answer in time; a question that has no
        slot by then is not asked."""
        return self.call is not None and (
            time.monotonic() - self.queried_s > timeout_s
            and not self._executor.wait(self.call, 0.0))

    def hangs(self) -> bool:
        """Return whether its connection is in use."""
        return self._target in self._executor.busy

    def end(self) -> None:
        """Close the connection, unless a call hangs."""
        if not self.hangs():
            self._executor.submit(self._target, self._close)

    def _query(self) -> Mapping[str, Blocks] | None:
        try:
            if self._connection is None:
                self._connection = self._libvirt.open()
            return self._libvirt.blocks(self._connection)
        except errors.DriverError as exc:
            LOG.debug('%s', exc)    # what keeps the domains logs it
            self._close()
            return None

    def _close(self) -> None:
        if self._connection is not None:
            self._libvirt.end(self._connection)
        self._connection = None
