# SPDX-License-Identifier: Apache-2.0

"""What one host may cost a conductor, over time.

Each sender has an account of token buckets: CPU of the thread that works on
its reports, bytes, rows that its reports add, and rows of the audit.  A bucket
may be overdrawn by one report; until it is refilled the sender gets
:class:`~scavenger_openstack.errors.Busy`.  Senders of which no report has been
taken share one account, and names that are new have a bucket of their own: a
client may invent names.  A process counts what it takes itself.

The buckets hold what an agent sends after a day without a conductor.  Its
spool has 16 MiB then (``[conductor] spool_mib``), some 33,000 entries, and
they cost some 10 s of CPU.  An hour without incidents takes 0.2 s of CPU,
270 kB and up to 100 rows of statistics.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
import threading
import time
from typing import NamedTuple

from scavenger_openstack import errors
from scavenger_openstack.wire import report as wire


class Rate(NamedTuple):
    """A token bucket holds ``most`` and is refilled by ``per_s``."""

    per_s: float
    most: float


class Sender(NamedTuple):
    """Which host sends, and what knows it: :data:`TRUSTED` is the transport,
    '' nothing."""

    host: str
    known_by: str = ''


TRUSTED = 'transport'

CPU, BURST, BYTES, REPORTS = 'cpu_s', 'cpu_burst_s', 'bytes', 'reports'
ROWS, AUDIT, HOURS, LARGE = 'rows', 'audit', 'hours', 'large_reports'

HOST: Mapping[str, Rate] = {
    CPU: Rate(0.05, 30.0), BURST: Rate(0.25, 1.0),
    BYTES: Rate(64 << 10, 64 << 20),
    REPORTS: Rate(2.0, 1000), ROWS: Rate(2.0, 50_000),
    AUDIT: Rate(0.1, 2000), HOURS: Rate(2 / 3600, 48),
    LARGE: Rate(1 / 60, 1)}
"""Of each sender.  ``cpu_burst_s`` is the same CPU time as ``cpu_s``: what
takes it at once, others wait behind.  ``hours`` are those that its statistics
of one application are of: an hour may come in two reports."""

REQUESTS = 'requests'

NEWCOMERS: Mapping[str, Rate] = {
    REQUESTS: Rate(300.0, 3000), CPU: Rate(0.2, 20.0)}
"""Of all senders of which no report has been taken, together: 10,000 hosts
that report to a conductor which has just started are through within a minute.
CPU is that of reports which were not taken."""

WITHOUT_SERVICE = Rate(1 / 3600, 20)
"""Names that are new and not those of a compute service of Nova."""

WITHOUT_NOVA = Rate(12_000 / 86_400, 12_000)
"""Names that are new where Nova is not read: 10,000 hosts may start at once.
"""

GROUND_POINTS = 8
"""Values and names of a ground."""

POINTS_PER_ROW = 40
"""So many values of evidence take as much as a row."""

LIGHT_BYTES = 128 << 10
"""What is larger keeps others waiting while it is decoded.  Of a host that
has no rows left one in a while is looked at, since directives come with the
answer."""

MOST_SENDERS = 40_000
"""Accounts that are kept; of more, those that were used last."""


def points(report: wire.Report) -> int:
    """Return how many values of evidence a report has, grounds included."""
    return sum(GROUND_POINTS * len(entry.grounds) + sum(
        len(series.times_s) for series in entry.evidence)
        for entry in report.entries if isinstance(entry, wire.Incident))


class Bucket:
    """How much is left."""

    __slots__ = ('_at_s', '_level', '_rate')

    def __init__(self, rate: Rate, now_s: float) -> None:
        self._rate = rate
        self._level, self._at_s = rate.most, now_s

    def level(self, now_s: float) -> float:
        """Return what is left, below 0 when it is overdrawn."""
        passed_s = max(0.0, now_s - self._at_s)
        return min(self._rate.most, self._level + passed_s * self._rate.per_s)

    def take(self, amount: float, now_s: float) -> None:
        self._level, self._at_s = self.level(now_s) - amount, now_s


class Account:
    """Buckets by name."""

    __slots__ = ('_buckets', 'used_s')

    def __init__(self, rates: Mapping[str, Rate], now_s: float) -> None:
        self._buckets = {name: Bucket(rate, now_s)
                         for name, rate in rates.items()}
        self.used_s = now_s

    def overdrawn(self, names: Collection[str], now_s: float) -> str:
        """The first of these buckets that is empty, '' if none is."""
        return next((name for name in names if self._buckets[name].level(
            now_s) <= 0), '')

    def take(self, amounts: Mapping[str, float], now_s: float) -> None:
        self.used_s = now_s
        for name, amount in amounts.items():
            self._buckets[name].take(amount, now_s)


class Accounts:
    """The accounts of all senders of one process; threads share them.

    :param elapsed: seconds that only grow
    """

    def __init__(self, elapsed: Callable[[], float] = time.monotonic) -> None:
        self._elapsed = elapsed
        self._lock = threading.Lock()
        self._accounts: dict[Sender, Account] = {}
        self._at_work: set[Sender] = set()
        now_s = elapsed()
        self._newcomers = Account(NEWCOMERS, now_s)
        self._look_ups = Account(NEWCOMERS, now_s)
        self._tags = Account(NEWCOMERS, now_s)
        self._without_service = Bucket(WITHOUT_SERVICE, now_s)
        self._without_nova = Bucket(WITHOUT_NOVA, now_s)

    def begin(self, sender: Sender, size_bytes: int) -> None:
        """Begin to work on a report; :meth:`end` has to follow.

        :raises Busy: the sender has no budget left, or another report of it
            is being worked on
        """
        with self._lock:
            now_s = self._elapsed()
            account = self._accounts.get(sender)
            if account is None and sender.known_by == TRUSTED:
                account = self._open(sender, now_s)
            if account is None:
                at_work = any(other.host == sender.host
                              for other in self._at_work)
            else:
                at_work = sender in self._at_work
            if at_work:
                raise errors.Busy(f'{sender.host}: another report of this '
                                  'host is being stored')
            if account is None:
                self._newcomer(self._newcomers, now_s)
            else:
                self._check(sender, account, (CPU, BURST, BYTES, REPORTS),
                            now_s)
                if (size_bytes > LIGHT_BYTES
                        and account.overdrawn((ROWS, AUDIT), now_s)):
                    self._check(sender, account, (LARGE,), now_s)
                    account.take({LARGE: 1}, now_s)
                account.take({BYTES: size_bytes, REPORTS: 1}, now_s)
            self._at_work.add(sender)

    def has_rows(self, sender: Sender, needed: bool) -> bool:
        """Return whether a report of a sender may add rows.

        :param needed: it has entries
        :raises Busy: they are needed, and the sender has added too many
        """
        with self._lock:
            account = self._accounts.get(sender)
            now_s = self._elapsed()
            if account is not None and needed:
                self._check(sender, account, (ROWS, AUDIT), now_s)
            return account is None or not account.overdrawn(
                (ROWS, AUDIT), now_s)

    def has_hours(self, sender: Sender) -> bool:
        """Return whether a sender may report statistics of more hours."""
        with self._lock:
            account = self._accounts.get(sender)    # none: its first report
            return account is None or not account.overdrawn(
                (HOURS,), self._elapsed())

    def end(self, sender: Sender, taken: bool, amounts: Mapping[str, float],
            admitted: Collection[bool | None] = ()) -> None:
        """The work has ended.

        :param taken: the sender is this host, and what it sent is
            stored
        :param amounts: what it has cost, by the names in :data:`HOST`
        :param admitted: as ``has_service`` of :meth:`check_newcomer`, of
            hosts that were stored for the first time
        """
        with self._lock:
            now_s = self._elapsed()
            self._at_work.discard(sender)
            if taken:
                for has_service in admitted:
                    bucket = self._newcomers_bucket(has_service)
                    if bucket is not None:
                        bucket.take(1, now_s)
            else:
                amounts = {name: amount for name, amount in amounts.items()
                           if name != HOURS}
            account = self._accounts.get(sender)
            if account is None and taken:
                account = self._open(sender, now_s)
            if account is not None:
                account.take(amounts, now_s)
            else:
                self._newcomers.take({CPU: amounts.get(CPU, 0.0)}, now_s)

    def take_look_up(self) -> None:
        """Before the database is asked for the token of a sender that does
        not fit what is known of its host.

        :raises Busy: it was asked too often
        """
        with self._lock:
            self._newcomer(self._look_ups, self._elapsed())

    def know(self, sender: Sender) -> None:
        """The database knows the sender."""
        with self._lock:
            if sender not in self._accounts:
                self._open(sender, self._elapsed())

    def take_tag(self, sender: Sender, size_bytes: int) -> None:
        """Before what nova-compute tells of an instance is stored.

        :raises Busy: too many are of this host, or of hosts that are not
            known
        """
        with self._lock:
            now_s = self._elapsed()
            account = self._accounts.get(sender)
            if account is None:
                self._newcomer(self._tags, now_s)
            else:
                self._check(sender, account, (BYTES, REPORTS, ROWS), now_s)
                account.take({BYTES: size_bytes, REPORTS: 1, ROWS: 1}, now_s)

    def check_newcomer(self, name: str, has_service: bool | None) -> None:
        """Refuse a host of a new name when too many were new.

        :param has_service: whether Nova has a compute service there,
            ``None`` where Nova is not read
        :raises Busy: too many were new
        """
        with self._lock:
            bucket = self._newcomers_bucket(has_service)
            if bucket is not None and bucket.level(self._elapsed()) < 1:
                raise errors.Busy(
                    f'{name}: too many hosts report for the first time'
                    + ('' if has_service is None else ', and Nova has no '
                       'compute service on this one')
                    + '; "scavenger-manage host enroll" lets it in')

    def _newcomers_bucket(self, has_service: bool | None) -> Bucket | None:
        """Return what bounds such names, ``None`` for nothing."""
        if has_service:
            return None
        return (self._without_nova if has_service is None
                else self._without_service)

    def _newcomer(self, account: Account, now_s: float) -> None:
        if account.overdrawn(NEWCOMERS, now_s):
            raise errors.Busy('too many senders that are not known')
        account.take({REQUESTS: 1}, now_s)

    def _check(self, sender: Sender, account: Account,
               names: Collection[str], now_s: float) -> None:
        name = account.overdrawn(names, now_s)
        if name:
            rate = HOST[name]
            raise errors.Busy(
                f'{sender.host}: more {name} than a host may cost '
                f'({rate.most:.0f}, and {rate.per_s:g} a second)')

    def _open(self, sender: Sender, now_s: float) -> Account:
        if len(self._accounts) >= MOST_SENDERS:
            for old in sorted(self._accounts, key=lambda old: self._accounts[
                    old].used_s)[:MOST_SENDERS // 2]:
                del self._accounts[old]
        account = self._accounts[sender] = Account(HOST, now_s)
        return account
