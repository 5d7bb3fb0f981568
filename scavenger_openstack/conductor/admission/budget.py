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
    """Which host speaks, and how it is known: ``proof`` is :data:`TRUSTED`
    where the transport knows the host, the hash of its token, or ''."""

    host: str
    proof: str = ''


TRUSTED = 'transport'

CPU, BYTES, REPORTS = 'cpu_s', 'bytes', 'reports'
ROWS, AUDIT, HOURS = 'rows', 'audit', 'hours'

HOST: Mapping[str, Rate] = {
    CPU: Rate(0.05, 30.0), BYTES: Rate(64 << 10, 64 << 20),
    REPORTS: Rate(2.0, 1000), ROWS: Rate(2.0, 50_000),
    AUDIT: Rate(0.1, 2000), HOURS: Rate(2 / 3600, 48)}
"""Of each sender.  ``hours`` are those that its statistics of one application
are of: an hour may come in two reports."""

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

POINTS_PER_ROW = 40
"""So many values of evidence take as much as a row."""

MOST_SENDERS = 40_000
"""Accounts that are kept; of more, those that were used last."""


def points(report: wire.Report) -> int:
    """How many values of evidence a report has."""
    return sum(len(series.times_s) for entry in report.entries
               if isinstance(entry, wire.Incident)
               for series in entry.evidence)


class Bucket:
    """How much is left."""

    __slots__ = ('_at_s', '_level', '_rate')

    def __init__(self, rate: Rate, now_s: float) -> None:
        self._rate = rate
        self._level, self._at_s = rate.most, now_s

    def level(self, now_s: float) -> float:
        """What is left, below 0 when it is overdrawn."""
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


class Budgets:
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
            if account is None and sender.proof == TRUSTED:
                account = self._open(sender, now_s)
            if account is None:
                at_work = any(one.host == sender.host
                              for one in self._at_work)
            else:
                at_work = sender in self._at_work
            if at_work:
                raise errors.Busy(f'{sender.host}: another report of this '
                                  'host is being stored')
            if account is None:
                self._newcomer(now_s)
            else:
                self._check(sender, account, (CPU, BYTES, REPORTS), now_s)
                account.take({BYTES: size_bytes, REPORTS: 1}, now_s)
            self._at_work.add(sender)

    def has_rows(self, sender: Sender, needed: bool) -> bool:
        """Whether a report of a sender may add rows.

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

    def take_hours(self, sender: Sender, hours: float) -> bool:
        """Whether a sender may report statistics of so many more hours."""
        with self._lock:
            account = self._accounts.get(sender)
            now_s = self._elapsed()
            if account is None:     # its first report here
                return True
            if account.overdrawn((HOURS,), now_s):
                return False
            account.take({HOURS: hours}, now_s)
            return True

    def end(self, sender: Sender, taken: bool, amounts: Mapping[str, float]
            ) -> None:
        """The work has ended.

        :param taken: the sender may speak as this host
        :param amounts: what it has cost, by the names in :data:`HOST`
        """
        with self._lock:
            now_s = self._elapsed()
            self._at_work.discard(sender)
            account = self._accounts.get(sender)
            if account is None and taken:
                account = self._open(sender, now_s)
            if account is not None:
                account.take(amounts, now_s)
            else:
                self._newcomers.take({CPU: amounts.get(CPU, 0.0)}, now_s)

    def look_up(self, sender: Sender) -> None:
        """Before the database is asked about a sender of which nothing has
        been taken.

        :raises Busy: it was asked too often
        """
        with self._lock:
            if sender not in self._accounts:
                self._newcomer(self._elapsed())

    def know(self, sender: Sender) -> None:
        """The database knows the sender."""
        with self._lock:
            if sender not in self._accounts:
                self._open(sender, self._elapsed())

    def forget(self, sender: Sender) -> None:
        """The database does not know the sender any more."""
        with self._lock:
            self._accounts.pop(sender, None)

    def admit(self, name: str, has_service: bool | None) -> None:
        """Whether a host of a name that is new may be stored.

        :param has_service: whether Nova has a compute service there,
            ``None`` where Nova is not read
        :raises Busy: too many were new
        """
        if has_service:
            return
        with self._lock:
            now_s = self._elapsed()
            bucket = (self._without_nova if has_service is None
                      else self._without_service)
            if bucket.level(now_s) < 1:
                raise errors.Busy(
                    f'{name}: too many hosts report for the first time'
                    + ('' if has_service is None else ', and Nova has no '
                       'compute service on this one')
                    + '; "scavenger-manage host enroll" lets it in')
            bucket.take(1, now_s)

    def _newcomer(self, now_s: float) -> None:
        if self._newcomers.overdrawn(NEWCOMERS, now_s):
            raise errors.Busy('too many senders that are not known')
        self._newcomers.take({REQUESTS: 1}, now_s)

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
            for old in sorted(self._accounts, key=lambda one: self._accounts[
                    one].used_s)[:MOST_SENDERS // 2]:
                del self._accounts[old]
        account = self._accounts[sender] = Account(HOST, now_s)
        return account
