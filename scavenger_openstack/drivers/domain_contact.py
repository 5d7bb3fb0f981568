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

"""Who says whether libvirt answers, and the QEMU of each domain.

Many calls fail or hang of one cause.  Whoever waits in vain tells it here;
here the cause is found, and said once when it begins and once when it is
over.  A call that does not come back may hang in libvirtd or in a QEMU:
libvirtd is asked for a connection, and then how that domain stands.
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

from scavenger_openstack.drivers.domain_faults import Amiss
from scavenger_openstack.drivers.domain_faults import BUSY
from scavenger_openstack.drivers.domain_faults import Doubt
from scavenger_openstack.drivers.domain_faults import HANGS
from scavenger_openstack.drivers.domain_faults import Key
from scavenger_openstack.drivers.domain_faults import LOST
from scavenger_openstack.drivers.domain_faults import Saying
from scavenger_openstack.drivers.domain_faults import SILENT
from scavenger_openstack.drivers.domain_faults import SLOWLY
from scavenger_openstack.drivers import domain_handle
from scavenger_openstack.drivers import domain_probe
from scavenger_openstack.drivers.domain_probe import How
from scavenger_openstack.drivers import domain_versions
from scavenger_openstack.drivers import libvirt

LOG = logging.getLogger(__name__)

LIBVIRT, SLOW = 'libvirt', 'slow'
"""What may be amiss, beside domains, which go by their UUIDs."""

OURS = 'contact'
"""The reason of what was found out here."""

LOOK_S = 1.0
"""From one look at what is amiss to the next."""

QUIET_S = 60.0
"""What begins again within so long, and is over within so long, is told at
level DEBUG: a QEMU may be late with each answer."""


class Contact:
    """Knows whether libvirt, and each QEMU, answers.

    :param timeout_s: how long an answer may take
    """

    def __init__(self, connection: libvirt.Libvirt, timeout_s: float) -> None:
        self._libvirt = connection
        self._timeout_s = timeout_s
        self._turn = threading.Condition(threading.RLock())
        self._amiss: dict[str, Amiss] = {}
        self._doubts: list[Doubt] = []
        self._probe = domain_probe.Probe(connection, timeout_s, self._reach)
        self._hangs = self._closed = False
        self._suspected = self._unsure = False
        self._answered_s = 0.0
        self._over_s: dict[str, float] = {}
        self._thread: threading.Thread | None = None

    def close(self) -> None:
        """Say nothing more."""
        with self._turn:
            self._closed = True
            self._turn.notify()

    # --- libvirt

    @property
    def down(self) -> bool:
        """Whether nothing can be had of libvirt, which was said."""
        return LIBVIRT in self._amiss

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
        """Something hangs: see whether libvirt does."""
        with self._turn:
            self._suspected = True
            self._wake()

    # --- domains

    def domain_silent(self, uuid: str, reason: object) -> None:
        """A QEMU does not answer, as is seen by something."""
        self._begin(uuid, reason, SILENT, uuid)

    def domain_heard(self, uuid: str, reason: object) -> None:
        """What was seen by that is over."""
        self._end(uuid, reason)

    @contextlib.contextmanager
    def domain(self, uuid: str) -> Iterator[domain_handle.Handle]:
        """One that can be written to now.

        A job would keep us waiting, and make it seem to be paused.

        :raises Unreachable: there is no connection, or what we ask for
            would be carried out who knows when.
        :raises WorkloadGone: there is no such domain.
        :raises Busy: it has a job.
        """
        if self._hangs:
            raise libvirt.Unreachable(f'{self._libvirt.uri}: libvirt does '
                                      'not answer')
        with self._libvirt.domain(uuid) as handle:
            try:
                handle.check_idle()
            except domain_handle.Busy:
                self._stands(uuid, How.HAS_JOB)
                self._wake()
                raise
            yield handle

    def gone(self, uuid: str) -> None:
        """This run of a domain has ended."""
        with self._turn:
            self._amiss.pop(uuid, None)
            self._over_s.pop(uuid, None)

    # --- what does not work

    def late(self, keys: Sequence[Key], done: threading.Event) -> None:
        """See :class:`scavenger_openstack.drivers.base.Late`."""
        self._doubt(Doubt(keys, done=done))

    def failed(self, key: Key, message: str, unsaid: Callable[[], object]
               ) -> None:
        """See :class:`scavenger_openstack.drivers.base.Failed`.

        :param message: '' when somebody else says it
        """
        with self._turn:
            known = self._amiss.get(LIBVIRT) or self._amiss.get(key[0])
            if known is not None:
                known.keys.add(key)
            if message and known is None:
                self._doubts = [doubt for doubt in self._doubts
                                if doubt.done is not None
                                or key not in doubt.keys]
                self._doubt(Doubt([key], message, unsaid=unsaid))
            else:
                LOG.debug('%s', message)
                unsaid()

    def facts(self) -> dict[str, Any]:
        """For the status: the state of libvirt, why it cannot be reached
        ('' if it can), and for how many seconds; domains that do not answer
        and for how many; what waits; the versions."""
        now_s = time.monotonic()
        with self._turn:
            since = {who: round(now_s - one.since_s)
                     for who, one in self._amiss.items()}
            one = self._amiss.get(LIBVIRT) or self._amiss.get(SLOW)
            waits = sorted({' '.join(key) for doubt in self._doubts
                            if doubt.hangs for key in doubt.keys})
            why = (str(one.args[0]) if one is not None and one.said is LOST
                   else '')
        slow_s, down_s = since.pop(SLOW, None), since.pop(LIBVIRT, None)
        return {'state': one.said.state if one and one.said else 'answers',
                'why': why,
                'since_s': slow_s if down_s is None else down_s,
                'domains': since, 'waits': waits,
                'versions': domain_versions.texts(self._libvirt.versions)}

    # --- inside

    def _wake(self) -> None:
        with self._turn:
            self._turn.notify()
            if self._thread is None and not self._closed:
                thread = threading.Thread(target=self._run, daemon=True,
                                          name='libvirt-contact')
                thread.start()
                self._thread = thread

    def _doubt(self, doubt: Doubt) -> None:
        with self._turn:
            self._doubts.append(doubt)
            for who in (LIBVIRT, doubt.uuid):
                if who in self._amiss:
                    self._amiss[who].keys.update(doubt.keys)
            self.suspect()

    def _drop(self, doubts: Collection[Doubt]) -> None:
        for doubt in doubts:
            self._doubts.remove(doubt)
            doubt.unsaid()

    def _begin(self, who: str, reason: object, saying: Saying, *args: object,
               keys: Collection[Key] = ()) -> None:
        with self._turn:
            if self._closed or (who != LIBVIRT and self.down):
                return
            one = self._amiss.setdefault(who, Amiss(
                time.monotonic() - self._over_s.get(who, -QUIET_S) < QUIET_S))
            one.reasons.add(reason)
            one.keys.update(keys)
            if who == LIBVIRT:
                for doubt in self._doubts:
                    one.keys.update(doubt.keys)
                # What failed did so for this, and is old when it is over.
                self._drop([doubt for doubt in self._doubts
                            if doubt.done is None])
            if one.said is saying:
                one.args = args     # why, by now
            if one.said is None or saying.level > one.said.level:
                one.said, one.args = saying, args
                LOG.log(logging.DEBUG if one.quiet else saying.level,
                        saying.text, *args)
                if one.quiet:
                    self._wake()

    def _end(self, who: str, reason: object) -> None:
        with self._turn:
            one = self._amiss.get(who)
            if one is None:
                return
            one.reasons.discard(reason)
            if one.reasons:
                return
            del self._amiss[who]
            took_s = time.monotonic() - one.since_s
            if who == LIBVIRT:
                self._answered_s = time.monotonic()
            if one.said is not None and one.said.level == logging.WARNING:
                if who != LIBVIRT:
                    self._over_s[who] = time.monotonic()
                LOG.log(logging.DEBUG if one.quiet else logging.INFO,
                        '%s again after %.1f s; %d limits were late', {
                            LIBVIRT: 'libvirt answers',
                            SLOW: 'libvirt answers in time'}.get(
                                who, f'domain {who}: its QEMU answers'),
                        took_s, len(one.keys))

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
                if not (self._suspected or self._unsure or self._doubts
                        or any(OURS in one.reasons or one.quiet
                               for one in self._amiss.values())):
                    self._thread = None
                    return
                self._turn.wait_for(
                    lambda: self._closed or self._suspected, LOOK_S)

    def _reach(self) -> bool:
        """Come back when libvirt gives us a connection; whether it did so
        at once."""
        at_once = True
        while not self._closed:
            call = domain_probe.Call(
                lambda: self._libvirt.end(self._libvirt.open()))
            if not call.done.wait(self._timeout_s):
                at_once = False
                self._hangs = True
                self._begin(LIBVIRT, OURS, HANGS, self._libvirt.uri)
                call.done.wait()
                self._hangs = False
            if call.error is None:
                break
            at_once = False
            self.lost(str(call.error), OURS)
            time.sleep(LOOK_S)
        self._end(LIBVIRT, OURS)
        return at_once

    def _examine(self) -> None:
        """Libvirt answers: find out how each domain in doubt stands."""
        with self._turn:
            if self.down:
                return      # in another way, still
            for one in self._amiss.values():
                if one.quiet and one.said is not None \
                        and time.monotonic() - one.since_s > QUIET_S:
                    one.quiet = False
                    LOG.log(one.said.level, one.said.text, *one.args)
            doubts = list(self._doubts)
            held = [who for who, one in self._amiss.items()
                    if OURS in one.reasons and who != LIBVIRT]
            known = set[object]().union(
                *(one.reasons for one in self._amiss.values()))
        for doubt in doubts:
            waited_s = time.monotonic() - max(doubt.since_s, self._answered_s)
            if doubt.hangs and (doubt in known
                                or waited_s < self._timeout_s):
                continue
            if doubt.done is None or doubt.hangs or doubt in known:
                self._find_out(doubt)
            else:
                with self._turn:
                    self._doubts.remove(doubt)      # late by a little
        for uuid in held:
            self._stands(uuid, self._probe.how(uuid))

    def _find_out(self, doubt: Doubt) -> None:
        how = self._probe.how(doubt.uuid)
        with self._turn:
            if doubt not in self._doubts:
                return      # meanwhile it became known why
            hangs = doubt.hangs
            self._stands(doubt.uuid, how, doubt if hangs else OURS,
                         doubt.keys)
            if hangs and how is How.FINE:
                self._begin(SLOW, doubt, SLOWLY, self._libvirt.uri,
                            self._timeout_s, keys=doubt.keys)
            if hangs or how is How.UNKNOWN:
                return
            self._end(doubt.uuid, doubt)
            self._end(SLOW, doubt)
            if doubt.done is None and how is How.FINE:
                self._tell(doubt)
            else:
                self._drop([doubt])

    def _tell(self, doubt: Doubt) -> None:
        """Log a failure: one line for all limits of a domain that failed."""
        others = [one for one in self._doubts if one is not doubt
                  and one.done is None and one.uuid == doubt.uuid]
        LOG.warning('%s%s', doubt.message, f'; {len(others)} more of its '
                    'limits failed' if others else '')
        self._doubts.remove(doubt)
        self._drop(others)

    def _stands(self, uuid: str, how: How, reason: object = OURS,
                keys: Collection[Key] = ()) -> None:
        if how is How.FINE:
            self._end(uuid, OURS)
        elif how is How.GONE:
            self.gone(uuid)
        elif how is How.UNKNOWN:
            self._unsure = True
        else:
            self._begin(uuid, reason, SILENT if how is How.HELD_UP else BUSY,
                        uuid, keys=keys)
