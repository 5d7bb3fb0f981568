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
import secrets
import socket
import threading
import time
from typing import NamedTuple

from oslo_log import log

from scavenger_openstack.conductor.admission import accounts
from scavenger_openstack.conductor.admission import keys
from scavenger_openstack.conductor.admission import refusals
from scavenger_openstack.conductor import directives
from scavenger_openstack.conductor import periodic
from scavenger_openstack.conductor.profiles import estimates
from scavenger_openstack.conductor import specs
from scavenger_openstack.conductor import sync as report_sync
from scavenger_openstack.conductor import upkeep
from scavenger_openstack.db import connect
from scavenger_openstack.db import flavor_tags
from scavenger_openstack.db import reports
from scavenger_openstack.db import rows
from scavenger_openstack.db import schema
from scavenger_openstack.db import tables
from scavenger_openstack import errors
from scavenger_openstack import host_names
from scavenger_openstack.types import printable
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import proof
from scavenger_openstack.wire import received
from scavenger_openstack.wire.report import Answer
from scavenger_openstack.wire.report import MAX_REPORT_BYTES
from scavenger_openstack.wire.report import Report
from scavenger_openstack.wire.report import ReportSender
from scavenger_openstack.wire.tag import InstanceTag
from scavenger_openstack.wire.tag import MAX_TAG_BYTES

LOG = log.getLogger(__name__)

PATIENCE_S = 5.0
"""So long a transaction is tried again; the agent waits 8 s."""

MOST_FAILED = 1000
"""Hosts whose failures are counted."""

TAG = 'tag'
"""What knows a sender of which only nova-compute tells."""

TRIES = 3
"""A report that fails for an unexpected reason is refused after so many tries,
so that its agent finds out which entry it is and goes on."""

RESULTS = STORED, REFUSED, PUT_OFF, FAILED = (
    'stored', 'refused', 'put_off', 'failed')
"""What comes of a report."""


class Cost(NamedTuple):
    """What a report costs once it is stored: rows by table, amounts by the
    names in :data:`.accounts.HOST`, and whether Nova has a service on each
    host that it was the first of."""

    rows: dict[str, int]
    amounts: dict[str, float]
    admitted: list[bool | None]


class Conductor:
    """One conductor process, or its part in a larger one.

    :param engine: of a database with the tables
    :param clock: UNIX time in seconds
    :param require_token: see :func:`.sync.sync`
    :param keep_days: see :func:`.upkeep.make_purging`; so are
        ``keep_audit_days``, ``keep_rows`` and ``elapsed``
    :param pace: see :class:`.accounts.Accounts`
    :param reported: gets what came of each report (:data:`RESULTS`), and
        after how many seconds
    """

    def __init__(self, engine: connect.Engine,
                 clock: Callable[[], float] = time.time, *,
                 require_token: bool = False,
                 keep_days: int = 0, keep_audit_days: int = 0,
                 keep_rows: int = 0,
                 elapsed: Callable[[], float] = time.monotonic,
                 pace: Callable[[], float] = time.monotonic,
                 reported: Callable[[str, float], None]
                 = lambda result, lasted_s: None) -> None:
        self._engine = engine
        self._clock = clock
        self._require_token = require_token
        self._wishes = directives.Wishes()
        self._accounts = accounts.Accounts(pace)
        self._keys = keys.Keys(engine, self._accounts)
        self._log = refusals.Refusals(engine)
        self._failures: dict[str, tuple[int, float]] = {}
        self.fault = ''     # why the last report was not stored
        self._stop = threading.Event()
        self._keep_days = keep_days
        self._deletes = bool(keep_days or keep_audit_days or keep_rows)
        self._elapsed = elapsed
        self._make_purging = functools.partial(
            upkeep.make_purging, days=keep_days, audit_days=keep_audit_days,
            rows=keep_rows)
        self._thread: threading.Thread | None = None
        self._reported = reported
        self._begin_process()

    def _begin_process(self) -> None:
        """Give this process a name of its own, and parts in the work that
        one of all conductors does."""
        self._process = os.getpid()
        self.name = (f'{socket.gethostname()}:{self._process}:'
                     f'{secrets.token_hex(4)}')
        own = (self._engine, self.name, self._clock, self._stop.is_set,
               self._elapsed)
        self.advancing = upkeep.make_advancing(*own)
        self.specs = specs.make_periodic(*own)
        self.estimates = estimates.make_periodic(*own)
        self.purging = self._make_purging(*own)

    def answer(self, data: bytes, authenticated: str | None = None,
               address: str = '') -> bytes:
        """Store a report, and return the answer, both as JSON.

        :param authenticated: the host that the sender is, ``None`` where
            the transport does not tell
        :param address: where it comes from, '' where that is not known
        :raises WireError: the report is refused, and why; it will be again
        :raises Busy: the sender has no budget left
        :raises Unreachable: it could not be stored: send it again later
        """
        now, began_s, result = self._clock(), time.monotonic(), FAILED
        sender = (accounts.Sender(authenticated, accounts.TRUSTED)
                  if authenticated is not None
                  else accounts.Sender(_host(data)))
        try:
            self._accounts.begin(sender, len(data))
            answer = self._paid(sender, data, authenticated, now)
            result = STORED
            return answer
        except errors.Busy as exc:
            result = PUT_OFF
            self._log.put_off(exc, sender.host, address, now)
            raise
        except errors.WireError as exc:
            result = REFUSED
            self._log.refused(exc, authenticated, sender.host, address, now)
            raise
        finally:
            self._reported(result, time.monotonic() - began_s)

    def _paid(self, sender: accounts.Sender, data: bytes,
              authenticated: str | None, now: float) -> bytes:
        """The answer, on the account of the sender."""
        began_s, taken, points = time.thread_time(), False, 0
        cost = Cost({}, {}, [])
        try:
            report = received.report(data)
            report_sync.check(report, authenticated)
            points = accounts.points(report)
            if not self._accounts.has_rows(sender, bool(report.entries)):
                # Its workloads are sent again: directives come all the same.
                report = codec.replace(report, workloads=None)
            answer = self._stored(sender, report, authenticated, now, cost)
            taken = True
            self._log.left_out(report, now)
            return directives.encoded(
                answer, report.host,
                lambda what: self._log.is_due(f'{report.host} {what}', now))
        finally:
            audit = cost.rows.pop(tables.audit.name, 0)
            self._accounts.end(sender, taken, {
                **cost.amounts, **dict.fromkeys(
                    (accounts.CPU, accounts.BURST),
                    time.thread_time() - began_s),
                accounts.ROWS: sum(cost.rows.values()) + points
                // accounts.POINTS_PER_ROW, accounts.AUDIT: audit},
                cost.admitted)

    def tag(self, data: bytes) -> None:
        """Remember what nova-compute tells of an instance.

        :raises WireError: it is refused, and why
        :raises Busy: too many tags are of hosts that are not known
        :raises Unreachable: it could not be stored
        """
        tag = codec.decode(data, InstanceTag, MAX_TAG_BYTES)
        now = self._clock()
        sender = accounts.Sender(host_names.short(tag.host), TAG)
        self._accounts.take_tag(sender, len(data))
        try:
            is_known = connect.retried(
                self._engine, functools.partial(
                    flavor_tags.take, tag=tag, now_s=now),
                patience_s=PATIENCE_S, idempotent=True, on_duplicate=True)
        except errors.DatabaseError as exc:
            if self._log.is_due(str(exc), now):
                LOG.error('tags of instances are not stored: %s', exc)
            raise errors.Unreachable('the tag cannot be stored now') from exc
        if is_known:
            self._accounts.know(sender)
        else:
            self._log.tag(tag.host, now)

    def signed_answer(self, data: bytes, given: proof.Proof
                      ) -> dict[str, str]:
        """The answer to a report that its host has signed, or why it is
        refused, signed in turn.

        :raises ForeignReport: the host has not signed it
        :raises ScavengerError: it may be taken later, as it is
        """
        key = self._key(given.host,
                        lambda key: proof.is_of(given, key, data))
        if not key:
            foreign = errors.ForeignReport(
                f'a report in the name of {printable(given.host)} with a '
                'wrong token: refused; "scavenger-manage host enroll" makes '
                'one, and a host that was unenrolled needs no token_file')
            self._log.refused(foreign, None, given.host, '', self._clock())
            raise foreign
        self._keys.check_new(given)
        try:
            kind, text = proof.ANSWER, self.answer(data, given.host).decode()
        except errors.WireError as exc:
            if type(exc) is not errors.WireError:   # it is not the report's
                raise
            kind, text = proof.REFUSAL, str(exc)
        return proof.signed(key, given, kind, text)

    def may_send(self, host: str, token: str, address: str = '') -> bool:
        """Return whether a token is that of the host.

        :param address: see :meth:`answer`
        :raises Busy: too many tokens were wrong
        :raises Unreachable: that cannot be found out now
        """
        hashed = proof.key(token)
        if self._key(host, lambda key: hmac.compare_digest(hashed, key),
                     address):
            return True
        self._log.token(host, address, self._clock())
        return False

    def _key(self, host: str, fits: Callable[[str], bool], address: str = ''
             ) -> str:
        """As :meth:`.keys.Keys.fitting`.

        :raises Unreachable: that cannot be found out now
        """
        try:
            return self._keys.fitting(host, fits)
        except errors.Busy as exc:
            self._log.put_off(exc, host, address, self._clock())
            raise
        except errors.DatabaseError as exc:
            raise self._unreachable(exc) from exc

    def _stored(self, sender: accounts.Sender, report: Report,
                authenticated: str | None, now: float, cost: Cost) -> Answer:
        """Store a report; what agents get, and what it has cost."""
        def work(connection: reports.Connection) -> Answer:
            rows.added_rows(connection)   # of a transaction that failed
            cost.admitted.clear()
            answer = report_sync.sync(
                connection, report, now, authenticated=authenticated,
                require_token=self._require_token, wishes=self._wishes,
                admit=admit, take_hours=take_hours)
            cost.rows.update(rows.added_rows(connection))
            return answer

        def admit(name: str, has_service: bool | None) -> None:
            self._accounts.check_newcomer(name, has_service)
            cost.admitted.append(has_service)

        def take_hours(hours: float) -> bool:
            cost.amounts[accounts.HOURS] = hours
            return self._accounts.has_hours(sender)

        try:
            answer = connect.retried(
                self._engine, work, patience_s=PATIENCE_S, idempotent=True,
                on_duplicate=True)
        except (errors.WireError, errors.Busy):
            raise
        except (errors.DatabaseError, OSError, MemoryError) as exc:
            raise self._unreachable(exc) from exc
        except Exception as exc:
            raise self._failed(report, exc, now) from exc
        self.fault = ''
        LOG.debug('%s: %d entries, stored to %d', report.host,
                  len(report.entries), answer.acknowledged)
        return answer

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
        count = count + 1 if 0 <= now - last_s < refusals.REPEAT_S else 1
        if len(self._failures) >= MOST_FAILED:
            self._failures.clear()
        self._failures[report.host] = count, now
        which = report_sync.described_entries(report)
        if self._log.is_due(f'{report.host} {type(exc).__name__}', now):
            LOG.error('%s: its report with %s is not stored; please report '
                      'this', report.host, which, exc_info=exc)
        if count < TRIES or not report.entries:
            return errors.Unreachable(
                'the conductor failed at this report; its log has more')
        why = (f'{report.host}: the conductor cannot store {which} of run '
               f'{report.run_id}: {type(exc).__name__}')
        if len(report.entries) == 1 and self._log.is_due(f'audit {why}', now):
            self._log.audit(now, f'agent {report.host}', report.host, why)
        return errors.WireError(why)

    def start(self) -> None:
        """Do from now on, in a thread, what is due from time to time.  May
        be called again: after a fork the thread is gone."""
        if self._thread is not None and self._thread.is_alive():
            return
        if self._process != os.getpid():
            self._begin_process()
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
        """Whether the thread of periodic work runs."""
        return self._thread is not None and self._thread.is_alive()

    def stop_soon(self) -> None:
        """Begin nothing else, and end what is at hand where it can."""
        self._stop.set()

    def stop(self, timeout_s: float | None = None) -> None:
        """Wait for the periodic work to end; the end of the process rolls back
        the rest."""
        self.stop_soon()
        if self._thread is not None:
            self._thread.join(timeout_s and max(0.0, timeout_s))

    @property
    def works(self) -> Sequence[tuple[str, Callable[[], int | None]]]:
        """The work that is due from time to time, after what the log says
        when it fails."""
        works = [('totals of antagonists are not advanced',
                  self.advancing.turn),
                 ('specs are not made', self.specs.turn),
                 ('profiles are not estimated', self.estimates.turn)]
        return works + self._deletes * [
            ('old rows are not deleted', self.purging.turn)]

    def _run(self) -> None:
        while not self._stop.wait(periodic.EVERY_S):
            for what, work in self.works:
                if self._stop.is_set():
                    break
                try:
                    work()
                except errors.DatabaseError as exc:
                    LOG.warning('%s, next try in 60 s: %s', what, exc)
                except Exception:
                    LOG.exception('%s, next try in 60 s', what)
        for periodic_work in (self.advancing, self.specs, self.estimates,
                              self.purging):
            periodic_work.release()

    def _unreachable(self, exc: Exception) -> errors.Unreachable:
        why = self.fault = str(exc) or type(exc).__name__
        if self._log.is_due(why, self._clock()):
            LOG.error('reports are not stored, agents send them again: %s',
                      why)
        return errors.Unreachable('the conductor cannot store the report now')


def _host(data: bytes) -> str:
    """The host that a report says it is from, '' where that cannot be read.
    """
    try:
        return codec.decode(data, ReportSender, MAX_REPORT_BYTES).host
    except errors.WireError:
        return ''
