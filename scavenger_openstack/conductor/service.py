# SPDX-License-Identifier: Apache-2.0

"""The conductor: takes reports as bytes, whatever brought them.

Any number of threads, processes and hosts may do so on one database; what
has to be done once is claimed in it.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
import functools
import hmac
import os
import re
import secrets
import socket
import threading
import time

from oslo_log import log

from scavenger_openstack.conductor import advancing
from scavenger_openstack.conductor import directives
from scavenger_openstack.conductor.nova import flavor_tags
from scavenger_openstack.conductor import purging
from scavenger_openstack.conductor import specs
from scavenger_openstack.conductor import sync as sync_
from scavenger_openstack.db import connect
from scavenger_openstack.db import enrollment
from scavenger_openstack.db import reports
from scavenger_openstack.db import schema
from scavenger_openstack import errors
from scavenger_openstack.types import printable
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import proof
from scavenger_openstack.wire.report import Answer
from scavenger_openstack.wire.report import MAX_ANSWER_BYTES
from scavenger_openstack.wire.report import MAX_REPORT_BYTES
from scavenger_openstack.wire.report import Report
from scavenger_openstack.wire.tag import InstanceTag
from scavenger_openstack.wire.tag import MAX_TAG_BYTES

LOG = log.getLogger(__name__)

PATIENCE_S = 5.0
"""So long a transaction is tried again; the agent waits 8 s."""

EVERY_S = 60.0
"""How often it looks for what is due from time to time."""

REPEAT_S = 600.0
"""The same refusal is logged and audited once in so long."""

MOST_LOGGED = 1000

PROVED_S = 60.0
"""So long the token of a host counts without a look into the database."""

MOST_PROVED = 20_000
"""Hosts of which that is kept."""

MOST_REFUSED = 50
"""Refusals that are logged and audited in :data:`REPEAT_S`: a client may
invent names."""

TRIES = 3
"""A report that fails for an unexpected reason is refused after so many tries,
so that its agent finds out which entry it is and goes on."""

DISPENSABLE = ('specs', 'parameters', 'overrides', 'tags')
"""What is left out of directives that are too long, in this order; never the
kill switch."""

_HOST = re.compile(rb'"host":"([\w.-]{1,255})"')


class Conductor:
    """One conductor process, or its part in a larger one.

    :param engine: of a database with the tables
    :param clock: UNIX time in seconds
    :param require_token: see :func:`.sync.sync`
    :param keep_days: see :func:`.purging.make_periodic`; so are
        ``keep_audit_days``, ``keep_rows`` and ``elapsed``
    """

    def __init__(self, engine: connect.Engine,
                 clock: Callable[[], float] = time.time, *,
                 require_token: bool = False,
                 keep_days: int = 0, keep_audit_days: int = 0,
                 keep_rows: int = 0,
                 elapsed: Callable[[], float] = time.monotonic) -> None:
        self.name = f'{socket.gethostname()}:{os.getpid()}:' \
                    f'{secrets.token_hex(4)}'
        self._engine = engine
        self._clock = clock
        self._require_token = require_token
        self._wishes = directives.Wishes()
        self._proved: dict[str, tuple[str, float]] = {}
        self._logged: dict[str, float] = {}
        self._refusals = 0.0, 0
        self._failures: dict[str, tuple[int, float]] = {}
        self.fault = ''     # why the last report was not stored
        self._stop = threading.Event()
        self._keep_days = keep_days
        self._deletes = bool(keep_days or keep_audit_days or keep_rows)
        own = engine, self.name, clock, self._stop.is_set, elapsed
        self.advancing = advancing.make_periodic(*own)
        self.specs = specs.make_periodic(*own)
        self.purging = purging.make_periodic(
            *own, days=keep_days, audit_days=keep_audit_days, rows=keep_rows)
        self._thread: threading.Thread | None = None

    def answer(self, data: bytes, authenticated: str | None = None) -> bytes:
        """Store a report, and return the answer, both as JSON.

        :param authenticated: the host that the sender is, ``None`` where
            the transport does not tell
        :raises WireError: the report is refused, and why; it will be again
        :raises Unreachable: it could not be stored: send it again later
        """
        now = self._clock()
        try:
            return self._answer(data, authenticated, now)
        except errors.WireError as exc:
            self._refused(exc, authenticated, data, now)
            raise

    def tag(self, data: bytes) -> None:
        """Remember what nova-compute tells of an instance.

        :raises WireError: it is refused, and why
        :raises Unreachable: it could not be stored
        """
        tag = codec.decode(data, InstanceTag, MAX_TAG_BYTES)
        now = self._clock()
        try:
            known = connect.retried(
                self._engine, functools.partial(
                    flavor_tags.take, tag=tag, now_s=now),
                patience_s=PATIENCE_S, idempotent=True, on_duplicate=True)
        except errors.DatabaseError as exc:
            if self._first(str(exc), now):
                LOG.error('tags of instances are not stored: %s', exc)
            raise errors.Unreachable('the tag cannot be stored now') from exc
        if not known and self._first(f'tag {tag.host}', now):
            LOG.warning('%s runs instances, and no agent has reported from '
                        'it: what their flavors say is not kept', tag.host)

    def signed_answer(self, data: bytes, sender: proof.Sender
                      ) -> dict[str, str]:
        """The answer to a report that its host has signed, or why it is
        refused, signed in turn.

        :raises ForeignReport: the host has not signed it
        :raises ScavengerError: it may be taken later, as it is
        """
        key = self._key(sender.host,
                        lambda key: proof.is_of(sender, key, data))
        if not key:
            foreign = errors.ForeignReport(
                f'a report in the name of {printable(sender.host)} with a '
                'wrong token: refused; "scavenger-manage host enroll" makes '
                'one, and a host that was unenrolled needs no token_file')
            self._refused(foreign, None, data, self._clock())
            raise foreign
        try:
            kind, text = proof.ANSWER, self.answer(data, sender.host).decode()
        except errors.WireError as exc:
            if type(exc) is not errors.WireError:   # it is not the report's
                raise
            kind, text = proof.REFUSAL, str(exc)
        return proof.signed(key, sender, kind, text)

    def _key(self, host: str, fits: Callable[[str], bool]) -> str:
        """The hash of the host's token, of now or of less than
        :data:`PROVED_S` ago, if it fits; else ''.

        :raises Unreachable: that cannot be found out now
        """
        now = time.monotonic()
        key, until_s = self._proved.get(host, ('', 0.0))
        if now < until_s and fits(key):
            return key
        try:
            key = connect.read(self._engine, functools.partial(
                enrollment.key, name=host))
        except errors.DatabaseError as exc:
            raise self._unreachable(exc) from exc
        if not (key and fits(key)):
            return ''
        if len(self._proved) >= MOST_PROVED:
            self._proved.clear()
        self._proved[host] = key, now + PROVED_S
        return key

    def may_speak(self, host: str, token: str) -> bool:
        """Whether a token is that of the host.

        :raises Unreachable: that cannot be found out now
        """
        hashed = proof.key(token)
        if self._key(host, lambda key: hmac.compare_digest(hashed, key)):
            return True
        if self._first(f'token {host}', self._clock()):
            LOG.warning('refused a report in the name of %s: its token is '
                        'another; "scavenger-manage host enroll" makes one',
                        ascii(host))
        return False

    def _answer(self, data: bytes, authenticated: str | None, now: float
                ) -> bytes:
        report = codec.decode(data, Report, MAX_REPORT_BYTES)
        sync_.check(report, authenticated)
        try:
            answer = connect.retried(
                self._engine, functools.partial(
                    sync_.sync, report=report, now=now,
                    authenticated=authenticated,
                    require_token=self._require_token,
                    wishes=self._wishes),
                patience_s=PATIENCE_S, idempotent=True, on_duplicate=True)
        except errors.WireError:
            raise
        except errors.DatabaseError as exc:
            raise self._unreachable(exc) from exc
        except (OSError, MemoryError) as exc:
            raise self._unreachable(exc) from exc
        except Exception as exc:
            raise self._failed(report, exc, now) from exc
        self.fault = ''
        LOG.debug('%s: %d entries, stored to %d', report.host,
                  len(report.entries), answer.acknowledged)
        return self._encoded(report.host, answer, now)

    def _failed(self, report: Report, exc: Exception, now: float
                ) -> errors.ScavengerError:
        """What the agent gets for a report that failed for an unexpected
        reason; it leaves out an entry only if it is refused alone and a report
        without any is taken."""
        try:
            connect.read(self._engine, schema.check)
        except errors.DatabaseError as explanation:
            return self._unreachable(explanation)
        count, last_s = self._failures.get(report.host, (0, 0.0))
        count = count + 1 if 0 <= now - last_s < REPEAT_S else 1
        if len(self._failures) >= MOST_LOGGED:
            self._failures.clear()
        self._failures[report.host] = count, now
        which = _entries(report)
        if self._first(f'{report.host} {type(exc).__name__}', now):
            LOG.error('%s: its report with %s is not stored; please report '
                      'this', report.host, which, exc_info=exc)
        if count < TRIES or not report.entries:
            return errors.Unreachable(
                'the conductor failed at this report; its log has more')
        why = (f'{report.host}: the conductor cannot store {which} of run '
               f'{report.run_id}: {type(exc).__name__}')
        if len(report.entries) == 1 and self._first(f'audit {why}', now):
            self._audit(now, f'agent {report.host}', report.host, why)
        return errors.WireError(why)

    def _encoded(self, host: str, answer: Answer, now: float) -> bytes:
        """The answer, without what an agent would not take: entries that it
        does not see acknowledged come again for ever."""
        said = ''
        directives = answer.directives
        while directives is not None:
            try:
                return codec.checked(codec.replace(
                    answer, directives=directives), Answer, MAX_ANSWER_BYTES)
            except errors.WireError as exc:
                said = said or str(exc)
            name = next((name for name in DISPENSABLE
                         if getattr(directives, name)), None)
            directives = (codec.replace(directives, **{name: type(
                getattr(directives, name))()}) if name else None)
            if self._first(f'{host} {name}', now):
                LOG.error('%s: its directives are sent without %s, agents '
                          'would not take them: %s', host,
                          name or 'anything', said)
        return codec.encode(codec.replace(answer, directives=None))

    def start(self) -> None:
        """Do from now on, in a thread, what is due from time to time.  May
        be called again: after a fork the thread is gone."""
        if self._thread is not None and self._thread.is_alive():
            return
        if self._keep_days:
            LOG.info('what is over is deleted after %d days',
                     self._keep_days)
        else:
            LOG.warning('[database] keep_days is 0: nothing that is over is '
                        'deleted, the database grows without end; see '
                        '"scavenger-manage db purge"')
        self._thread = threading.Thread(target=self._run, daemon=True,
                                        name='conductor')
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether that goes on."""
        return self._thread is not None and self._thread.is_alive()

    def stop_soon(self) -> None:
        """Begin nothing else, and end what is at hand where it can."""
        self._stop.set()

    def stop(self, timeout_s: float | None = None) -> None:
        """Wait for that; what lasts longer is rolled back with the process.
        """
        self.stop_soon()
        if self._thread is not None:
            self._thread.join(timeout_s and max(0.0, timeout_s))

    @property
    def works(self) -> Sequence[tuple[str, Callable[[], int | None]]]:
        """What is due from time to time, after what the log says when it
        fails."""
        works = [('totals of antagonists are not advanced',
                  self.advancing.turn),
                 ('specs are not made', self.specs.turn)]
        return works + [('old rows are not deleted', self.purging.turn)
                        ] * self._deletes

    def _run(self) -> None:
        while not self._stop.wait(EVERY_S):
            for what, work in self.works:
                if self._stop.is_set():
                    return
                try:
                    work()
                except errors.DatabaseError as exc:
                    LOG.warning('%s, next try in 60 s: %s', what, exc)
                except Exception:
                    LOG.exception('%s, next try in 60 s', what)

    def _unreachable(self, exc: Exception) -> errors.Unreachable:
        why = self.fault = str(exc) or type(exc).__name__
        if self._first(why, self._clock()):
            LOG.error('reports are not stored, agents send them again: %s',
                      why)
        return errors.Unreachable('the conductor cannot store the report now')

    def _refused(self, exc: errors.WireError, authenticated: str | None,
                 data: bytes, now: float) -> None:
        if not self._first(str(exc), now):
            return
        begun_s, count = self._refusals
        if not 0 <= now - begun_s < REPEAT_S:
            begun_s, count = now, 0
        self._refusals = begun_s, count + 1
        if count >= MOST_REFUSED:
            if count == MOST_REFUSED:
                LOG.warning('more reports are refused than are logged and '
                            'audited, the next ones in %.0f s',
                            begun_s + REPEAT_S - now)
            return
        host = authenticated or _host(data)
        LOG.warning('refused a report of %s: %s', host, exc)
        if not isinstance(exc, errors.ForeignReport):
            return
        self._audit(now, f'agent {authenticated}' if authenticated
                    else 'unknown', host, str(exc))

    def _audit(self, now: float, actor: str, host: str, why: str) -> None:
        try:
            with connect.writing(self._engine) as connection:
                reports.add_audit(connection, by_agent=True, rows=[{
                    'time_s': now, 'action': 'report.refused',
                    'actor': actor, 'target': host, 'reason': why}])
        except errors.DatabaseError as failed:
            LOG.warning('not in the audit: %s', failed)

    def _first(self, text: str, now: float) -> bool:
        """Whether this has not been logged for a while."""
        if len(self._logged) >= MOST_LOGGED:
            self._logged.clear()
        if 0 <= now - self._logged.get(text, -REPEAT_S) < REPEAT_S:
            return False
        self._logged[text] = now
        return True


def _entries(report: Report) -> str:
    """The entries of a report, for people."""
    if not report.entries:
        return 'no entry'
    first, last = report.entries[0], report.entries[-1]
    if first is last:
        return f'entry {first.sequence} ({type(first).__name__})'
    return f'entries {first.sequence} to {last.sequence}'


def _host(data: bytes) -> str:
    """The host that a report which cannot be read says it is from."""
    found = _HOST.search(data[:4096])
    return found[1].decode() if found else 'an unknown host'
