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


"""What the disks of domains have done: libvirt alone knows.

It has to ask each QEMU, so this is done by a thread of its own, for all
domains in one call, when the tick says so.  A QEMU that does not answer
keeps that call for ever: then the thread is left behind with its connection,
and the next one asks without waiting for domains that are held by a job,
such as the call that hangs.  So only the domain itself has no numbers, and
it has some again when it answers.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping
import logging
import math
import threading
import time
from typing import Any

from scavenger_openstack.drivers import domain_contact
from scavenger_openstack.drivers import libvirt
from scavenger_openstack.drivers.libvirt import Blocks
from scavenger_openstack import errors

LOG = logging.getLogger(__name__)

MAX_LEFT = 4
"""So many calls may hang; more would take libvirtd's threads from Nova."""

MISSING_ANSWERS = 3
"""Who is missing from so many answers is told of; short jobs are usual."""


WAIT_STEP_S = 2.0 ** -24
"""What an operation waited is handed out in steps of this, 60 ns.  Floats
add such up without any error, for 17 years of waiting in all: so the time
per operation is the very same number in each tick of one answer, and whoever
judges it knows that it is no news."""


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

    def __init__(self, connection: libvirt.Libvirt,
                 contact: domain_contact.Contact, *, ticks: int,
                 timeout_s: float) -> None:
        self._libvirt = connection
        self._contact = contact
        self._ticks = ticks
        self._timeout_s = timeout_s
        self._asker: _Asker | None = None
        self._left: list[_Asker] = []
        self._tick = 0
        self._known: dict[str, tuple[Blocks | None, Blocks]] = {}
        self._answered = 0
        self._since = 0
        self._missing: dict[str, int] = {}
        self._hangs = False

    def tick(self, running: Collection[str]) -> None:
        """One tick: take an answer, ask again; never waits.

        :param running: the domains that there are
        """
        asker = self._asker
        if asker is not None:
            if asker.answered != self._answered:
                self._answered, answer = asker.answered, asker.answer
                self._take(answer, running)
                self._since = 0
            elif time.monotonic() - asker.asked_s > self._timeout_s and \
                    asker.asked != asker.answered:
                self._leave(asker)
        self._since += 1
        if self._since > 2 * self._ticks:
            self._known = {}    # no answer: unknown
        if self._tick % self._ticks == 0:
            self._ask()
        self._tick += 1

    def of(self, uuid: str) -> Blocks | None:
        """``io_wait_s``, ``io_ops``, ``io_bytes`` of a domain, if known."""
        before, now = self._known.get(uuid, (None, None))
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
        """End the thread, unless it hangs."""
        if self._asker is not None:
            self._asker.end()

    def _take(self, answer: Mapping[str, Blocks] | None,
              running: Collection[str]) -> None:
        if answer is None:
            self._known = {}
            return
        known: dict[str, tuple[Blocks | None, Blocks]] = {}
        for uuid, now in answer.items():
            told = self.of(uuid)
            if told is None and uuid in self._known:
                wait_s, ops, size = self._known[uuid][1]
                told = _stepped(wait_s), ops, size
            known[uuid] = (told if told is not None and all(
                a <= b for a, b in zip(told, now, strict=True)) else None,
                now)
        self._tell_missing(known, running)
        self._known = known

    def _tell_missing(self, known: Collection[str],
                      running: Collection[str]) -> None:
        """Count the answers that lack a domain which was in one."""
        before = self._missing
        self._missing = {
            uuid: 0 if uuid in known else before[uuid] + 1
            for uuid in (*before, *known) if uuid in running}
        for uuid, count in self._missing.items():
            if count >= MISSING_ANSWERS:    # it is said once
                self._contact.domain_silent(uuid, 'disks')
            elif not count and before.get(uuid, 0) >= MISSING_ANSWERS:
                self._contact.domain_heard(uuid, 'disks')
        for uuid in before.keys() - self._missing.keys():
            self._contact.gone(uuid)

    def forget(self, uuid: str) -> None:
        """This run of the domain has ended: the next one counts anew."""
        self._known.pop(uuid, None)
        if uuid in self._missing:
            self._missing[uuid] = 0

    def _leave(self, asker: _Asker) -> None:
        LOG.debug('block statistics: no answer within %s s', self._timeout_s)
        asker.end()
        self._left.append(asker)
        self._asker = None
        self._contact.suspect()

    def _ask(self) -> None:
        self._left = [one for one in self._left if one.alive()]
        if self._contact.down:
            return
        if len(self._left) > MAX_LEFT:
            if not self._hangs:
                LOG.warning('block statistics: %d calls to libvirt hang; no '
                            'more are made until one ends; see which QEMU '
                            'does not answer', len(self._left))
            self._hangs = True
            return
        self._hangs = False
        if self._asker is None:
            self._answered = 0
            self._asker = _Asker(self._libvirt)
        self._asker.ask()


class _Asker:
    """A thread with a connection, which asks when it is told to."""

    def __init__(self, connection: libvirt.Libvirt) -> None:
        self._libvirt = connection
        self._turn = threading.Event()
        self._ended = False
        self.asked = self.answered = 0
        self.asked_s = 0.0
        self.answer: Mapping[str, Blocks] | None = None
        self._thread = threading.Thread(target=self._run, daemon=True,
                                        name='block-statistics')
        self._thread.start()

    def ask(self) -> None:
        """Ask, unless there is no answer to the last question yet."""
        if self.asked == self.answered:
            self.asked_s = time.monotonic()
            self.asked += 1
            self._turn.set()

    def alive(self) -> bool:
        return self._thread.is_alive()

    def end(self) -> None:
        """End as soon as no call hangs."""
        self._ended = True
        self._turn.set()

    def _run(self) -> None:
        connection: Any = None
        while True:
            self._turn.wait()
            self._turn.clear()
            if self._ended:
                break
            answer: Mapping[str, Blocks] | None = None
            try:
                if connection is None:
                    connection = self._libvirt.open()
                answer = self._libvirt.blocks(connection)
            except errors.DriverError as exc:
                LOG.debug('%s', exc)    # who keeps the domains says it
                if connection is not None:
                    self._libvirt.end(connection)
                connection = None
            except Exception:
                LOG.exception('block statistics: unexpected failure')
            self.answer = answer
            self.answered = self.asked
            if self._ended:
                break
        if connection is not None:
            self._libvirt.end(connection)
