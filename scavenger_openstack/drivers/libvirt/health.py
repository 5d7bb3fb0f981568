# SPDX-License-Identifier: Apache-2.0


"""Whether libvirt answers, and the QEMU of each domain: one line per cause.

Many calls fail or hang of one cause.  What waits in vain for one is told
here; here the cause is found, and logged once when it begins and once when it
is over.  A call that does not come back may hang in libvirtd or in a QEMU:
libvirtd is asked for a connection, and then for the state of that domain.

While libvirtd gives no connection the circuit is open: :meth:`Health.domain`
fails at once, so that no more calls pile up.  The one that asks for the
connection closes it.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import logging
import threading
import time
from typing import Any

from scavenger_openstack.drivers import calls
from scavenger_openstack.drivers.libvirt import client
from scavenger_openstack.drivers.libvirt.faults import BUSY
from scavenger_openstack.drivers.libvirt.faults import DomainState
from scavenger_openstack.drivers.libvirt.faults import Fault
from scavenger_openstack.drivers.libvirt.faults import HANGS
from scavenger_openstack.drivers.libvirt.faults import LOST
from scavenger_openstack.drivers.libvirt.faults import Message
from scavenger_openstack.drivers.libvirt.faults import PendingFault
from scavenger_openstack.drivers.libvirt.faults import SILENT
from scavenger_openstack.drivers.libvirt.faults import SILENT_IDLE
from scavenger_openstack.drivers.libvirt.faults import SLOWLY
from scavenger_openstack.drivers.libvirt import handle as domain_handle
from scavenger_openstack.drivers.libvirt import versions
from scavenger_openstack import errors
from scavenger_openstack.types import KnobKey

LOG = logging.getLogger(__name__)

LIBVIRT, SLOW = 'libvirt', 'slow'
"""What may have a fault, beside domains, which go by their UUIDs."""

OURS = 'health'
"""The reason of what was found out here."""

LOOK_S = 1.0
"""From one look at what has a fault to the next."""

QUIET_S = 60.0
"""A fault that begins again within so long, and is over within so long, is
logged at level DEBUG: a QEMU may be late with each answer."""


class Health:
    """Knows whether libvirt, and each QEMU, answers.

    :param timeout_s: how long an answer may take
    :param idle: whether a domain is idle for the scheduler
    """

    def __init__(self, connection: client.Libvirt, timeout_s: float,
                 idle: Callable[[str], bool]) -> None:
        self._libvirt = connection
        self._timeout_s = timeout_s
        self._idle = idle
        self._turn = threading.Condition(threading.RLock())
        self._faults: dict[str, Fault] = {}
        self._pending: list[PendingFault] = []
        self._calls = calls.Executor('libvirt-health-call', timeout_s)
        self._open = self._closed = False
        self._suspected = self._unsure = False
        self._answered_s = 0.0
        self._over_s: dict[str, float] = {}
        self._thread: threading.Thread | None = None

    def close(self) -> None:
        """Log nothing more."""
        with self._turn:
            self._closed = True
            self._turn.notify()

    # --- libvirt

    @property
    def down(self) -> bool:
        """Whether nothing can be had of libvirt, which was logged."""
        return LIBVIRT in self._faults

    def lost(self, why: str, reason: str = 'events') -> None:
        """It cannot be reached in one way, until that works again."""
        self._begin(LIBVIRT, reason, LOST, why)

    def silent(self, reason: str = 'events') -> None:
        """The same, and it is there."""
        self._begin(LIBVIRT, reason, HANGS, self._libvirt.uri)
        self.suspect()

    def back(self, reason: str = 'events') -> None:
        """That way works."""
        self._end(LIBVIRT, reason)

    def suspect(self) -> None:
        """Some call hangs: see whether libvirt does."""
        with self._turn:
            self._suspected = True
            self._wake()

    # --- domains

    def domain_silent(self, uuid: str, reason: object) -> None:
        """A QEMU does not answer, as is seen by something."""
        self._begin(uuid, reason, self._silent(uuid), uuid)

    def domain_heard(self, uuid: str, reason: object) -> None:
        """What was seen by that is over."""
        self._end(uuid, reason)

    @contextlib.contextmanager
    def domain(self, uuid: str) -> Iterator[domain_handle.Handle]:
        """One that can be written to now.

        A job would keep us waiting, and make it seem to be paused.

        :raises Unreachable: there is no connection, or the circuit is open:
            what we ask for would be carried out at any time later.
        :raises WorkloadGone: there is no such domain.
        :raises Busy: it has a job.
        """
        if self._open:
            raise client.Unreachable(f'{self._libvirt.uri}: libvirt does '
                                     'not answer')
        with self._libvirt.domain(uuid) as handle:
            try:
                handle.check_idle()
            except domain_handle.Busy:
                self._note(uuid, DomainState.HAS_JOB)
                self._wake()
                raise
            yield handle

    def gone(self, uuid: str) -> None:
        """This run of a domain has ended."""
        with self._turn:
            self._faults.pop(uuid, None)
            self._over_s.pop(uuid, None)

    # --- what does not work

    def timed_out(self, keys: Sequence[KnobKey], done: threading.Event
                  ) -> None:
        """See :class:`scavenger_openstack.drivers.base.TimedOut`."""
        self._add(PendingFault(keys, done=done))

    def failed(self, key: KnobKey, message: str, reset: Callable[[], object]
               ) -> None:
        """See :class:`scavenger_openstack.drivers.base.Failed`.

        :param message: '' when another part logs it
        """
        with self._turn:
            known = self._faults.get(LIBVIRT) or self._faults.get(key[0])
            if known is not None:
                known.keys.add(key)
            if message and known is None:
                self._pending = [one for one in self._pending
                                 if one.done is not None
                                 or key not in one.keys]
                self._add(PendingFault([key], message, reset=reset))
            else:
                LOG.debug('%s', message)
                reset()

    def facts(self) -> dict[str, Any]:
        """For the status: the state of libvirt, why it cannot be reached
        ('' if it can), and for how many seconds; domains that do not answer
        and for how many; what waits; the versions."""
        now_s = time.monotonic()
        with self._turn:
            since = {what: round(now_s - fault.since_s)
                     for what, fault in self._faults.items()}
            one = self._faults.get(LIBVIRT) or self._faults.get(SLOW)
            message = one.message if one is not None else None
            why = str(one.args[0]) if one and message is LOST else ''
            waits = sorted({' '.join(key) for fault in self._pending
                            if fault.hangs for key in fault.keys})
        slow_s, down_s = since.pop(SLOW, None), since.pop(LIBVIRT, None)
        return {'state': message.state if message else 'answers',
                'why': why,
                'since_s': slow_s if down_s is None else down_s,
                'domains': since, 'waits': waits,
                'versions': versions.texts(self._libvirt.versions)}

    # --- inside

    def _wake(self) -> None:
        with self._turn:
            self._turn.notify()
            if self._thread is None and not self._closed:
                thread = threading.Thread(target=self._run, daemon=True,
                                          name='libvirt-health')
                with contextlib.suppress(calls.NoThread):
                    calls.start(thread)
                    self._thread = thread

    def _add(self, fault: PendingFault) -> None:
        with self._turn:
            self._pending.append(fault)
            for what in (LIBVIRT, fault.uuid):
                if what in self._faults:
                    self._faults[what].keys.update(fault.keys)
            self.suspect()

    def _drop(self, faults: Collection[PendingFault]) -> None:
        for fault in faults:
            self._pending.remove(fault)
            fault.reset()

    def _begin(self, what: str, reason: object, message: Message,
               *args: object, keys: Collection[KnobKey] = ()) -> None:
        with self._turn:
            if self._closed or (what != LIBVIRT and self.down):
                return
            one = self._faults.setdefault(what, Fault(
                time.monotonic() - self._over_s.get(what, -QUIET_S)
                < QUIET_S))
            one.reasons.add(reason)
            one.keys.update(keys)
            if what == LIBVIRT:
                for fault in self._pending:
                    one.keys.update(fault.keys)
                # What failed did so for this, and is old when it is over.
                self._drop([fault for fault in self._pending
                            if fault.done is None])
            if one.message is message:
                one.args = args     # why, by now
            if one.message is None or message.level > one.message.level:
                one.message, one.args = message, args
                LOG.log(logging.DEBUG if one.quiet else message.level,
                        message.text, *args)
                if one.quiet:
                    self._wake()

    def _end(self, what: str, reason: object) -> None:
        with self._turn:
            fault = self._faults.get(what)
            if fault is None:
                return
            fault.reasons.discard(reason)
            if fault.reasons:
                return
            del self._faults[what]
            now_s = time.monotonic()
            if what == LIBVIRT:
                self._answered_s = now_s
            if fault.message is not None \
                    and fault.message.level == logging.WARNING:
                if what != LIBVIRT:
                    self._over_s[what] = now_s
                LOG.log(logging.DEBUG if fault.quiet else logging.INFO,
                        '%s again after %.1f s; limits that were late: %d', {
                            LIBVIRT: 'libvirt answers',
                            SLOW: 'libvirt answers in time'}.get(
                                what, f'domain {what}: its QEMU answers'),
                        now_s - fault.since_s, len(fault.keys))

    def _run(self) -> None:
        while not self._closed:
            try:
                with self._turn:
                    unsure = self._suspected or self._unsure
                    self._suspected = self._unsure = False
                if unsure:
                    self._reach()
                self._examine()
            except Exception:
                LOG.exception('libvirt: unexpected failure')
                self._unsure = True
            with self._turn:
                if not (self._suspected or self._unsure or self._pending
                        or any(OURS in fault.reasons or fault.quiet
                               for fault in self._faults.values())):
                    self._thread = None
                    return
                self._turn.wait_for(
                    lambda: self._closed or self._suspected, LOOK_S)

    def _reach(self) -> bool:
        """Come back when libvirt gives us a connection; whether it did so
        at once."""
        at_once = True
        while not self._closed:
            call = self._calls.submit(LIBVIRT, lambda: self._libvirt.end(
                self._libvirt.open()))
            if not call.done.wait(self._timeout_s):
                at_once = False
                self._calls.give_up(call)
                self._open = True
                self._begin(LIBVIRT, OURS, HANGS, self._libvirt.uri)
                call.done.wait()
                self._open = False
            if call.error is None:
                break
            at_once = False
            if not isinstance(call.error, calls.NoThread):
                self.lost(str(call.error), OURS)
            time.sleep(LOOK_S)
        self._end(LIBVIRT, OURS)
        return at_once

    def _examine(self) -> None:
        """Libvirt answers: find out the cause of each pending fault."""
        with self._turn:
            if self.down:
                return      # in another way, still
            for one in self._faults.values():
                if one.quiet and one.message is not None \
                        and time.monotonic() - one.since_s > QUIET_S:
                    one.quiet = False
                    LOG.log(one.message.level, one.message.text, *one.args)
            pending = list(self._pending)
            held_up = [what for what, fault in self._faults.items()
                       if OURS in fault.reasons and what != LIBVIRT]
            known = set[object]().union(
                *(fault.reasons for fault in self._faults.values()))
        for fault in pending:
            waited_s = time.monotonic() - max(fault.since_s, self._answered_s)
            if fault.hangs and (fault in known
                                or waited_s < self._timeout_s):
                continue
            if fault.done is None or fault.hangs or fault in known:
                self._find_out(fault)
            else:
                with self._turn:
                    self._pending.remove(fault)     # late by a little
        for uuid in held_up:
            self._note(uuid, self._state(uuid))

    def _find_out(self, fault: PendingFault) -> None:
        state = self._state(fault.uuid)
        with self._turn:
            if fault not in self._pending:
                return      # meanwhile it became known why
            hangs = fault.hangs
            self._note(fault.uuid, state, fault if hangs else OURS,
                       fault.keys)
            if hangs and state is DomainState.ANSWERS:
                self._begin(SLOW, fault, SLOWLY, self._libvirt.uri,
                            self._timeout_s, keys=fault.keys)
            if hangs or state is DomainState.UNKNOWN:
                return
            self._end(fault.uuid, fault)
            self._end(SLOW, fault)
            if fault.done is None and state is DomainState.ANSWERS:
                self._log(fault)
            else:
                self._drop([fault])

    def _log(self, fault: PendingFault) -> None:
        """Log a failure: one line for all limits of a domain that failed."""
        others = [one for one in self._pending if one is not fault
                  and one.done is None and one.uuid == fault.uuid]
        LOG.warning('%s%s', fault.message, f'; {len(others)} more of its '
                    'limits failed' if others else '')
        self._pending.remove(fault)
        self._drop(others)

    def _note(self, uuid: str, state: DomainState, reason: object = OURS,
              keys: Collection[KnobKey] = ()) -> None:
        if state is DomainState.ANSWERS:
            self._end(uuid, OURS)
        elif state is DomainState.GONE:
            self.gone(uuid)
        elif state is DomainState.UNKNOWN:
            self._unsure = True
        else:
            self._begin(uuid, reason, self._silent(uuid)
                        if state is DomainState.HELD_UP else BUSY,
                        uuid, keys=keys)

    def _silent(self, uuid: str) -> Message:
        return SILENT_IDLE if self._idle(uuid) else SILENT

    def _state(self, uuid: str) -> DomainState:
        """What libvirt says of a domain; of one that a call hangs on, no
        other is made."""
        hanging = self._calls.busy - {LIBVIRT}
        if uuid in hanging:
            return DomainState.HELD_UP
        if len(hanging) >= calls.MOST:
            return DomainState.UNKNOWN
        call = self._calls.submit(uuid, lambda: self._ask(uuid))
        if not call.done.wait(self._timeout_s):
            self._calls.give_up(call)
            # Does it alone keep us waiting?
            return (DomainState.HELD_UP if self._reach()
                    else DomainState.UNKNOWN)
        match call.error:
            case domain_handle.Busy():
                return DomainState.HAS_JOB
            case errors.WorkloadGone():
                return DomainState.GONE
            case client.Unreachable() | calls.NoThread():
                return DomainState.UNKNOWN
        # Whatever else it says: it answers.
        return call.result or DomainState.ANSWERS

    def _ask(self, uuid: str) -> DomainState:
        with self._libvirt.domain(uuid) as handle:
            if handle.occupied():
                return DomainState.HELD_UP
            handle.check_idle()
        return DomainState.ANSWERS
