# SPDX-License-Identifier: Apache-2.0

"""What is logged and audited of reports and tags that are not taken.

Clients may invent names and send as often as they like: of each kind there
are so many lines in ten minutes, and none of one kind for another.
"""

from __future__ import annotations

from oslo_log import log

from scavenger_openstack.db import connect
from scavenger_openstack.db import reports
from scavenger_openstack import errors
from scavenger_openstack import log_once
from scavenger_openstack.types import printable
from scavenger_openstack.wire.report import OtherEntry
from scavenger_openstack.wire.report import Report

LOG = log.getLogger(__name__)

REPEAT_S = 600.0
"""The same refusal is logged and audited once in so long."""

MOST = 50
"""Lines of each kind in :data:`REPEAT_S`."""

MOST_HOSTS = 20_000
"""Lines about hosts that report, and about this conductor."""


class Refusals:
    """What was logged already; threads may share it.

    :param engine: of the database with the audit
    """

    def __init__(self, engine: connect.Engine) -> None:
        self._engine = engine
        self._hosts = log_once.Quota(MOST_HOSTS, REPEAT_S)
        (self._reports, self._foreign, self._tokens, self._tags,
         self._busy) = (log_once.Quota(MOST, REPEAT_S) for _ in range(5))

    def is_due(self, text: str, now: float) -> bool:
        """Return whether to log a line about a host or about this
        conductor."""
        return self._hosts.take(text, now) is not None

    def refused(self, exc: errors.WireError, authenticated: str | None,
                host: str, address: str, now: float) -> None:
        """A report is refused.

        :param authenticated: the host that the sender is, ``None`` where
            that is not known
        :param host: which the report says it is of
        :param address: of the sender, '' where that is not known
        """
        is_foreign = isinstance(exc, errors.ForeignReport)
        if not _is_due(self._foreign if is_foreign else self._reports,
                       str(exc), 'reports are refused', now):
            return
        LOG.warning('refused a report of %s%s: %s', printable(host)
                    or 'an unknown host', _from(address), exc)
        if is_foreign:
            self.audit(now, f'agent {authenticated}' if authenticated
                       else 'unknown', host, str(exc))

    def left_out(self, report: Report, now: float) -> None:
        """Entries of a report are left out, whose types are not known here.
        """
        types = {entry.entry_type for entry in report.entries
                 if isinstance(entry, OtherEntry)}
        if types and self.is_due(f'{report.host} left out', now):
            LOG.warning(
                '%s (version %s): entries of types that this conductor does '
                'not know are left out: %s; upgrade the conductors before '
                'the agents', report.host, report.facts.version or 'unknown',
                ', '.join(sorted(types)))

    def put_off(self, exc: errors.Busy, host: str, address: str, now: float
                ) -> None:
        """A report is put off."""
        if _is_due(self._busy, host, 'reports are put off', now):
            LOG.warning('a report%s is put off: %s', _from(address), exc)

    def token(self, host: str, address: str, now: float) -> None:
        """A token is not that of a host."""
        if _is_due(self._tokens, host, 'tokens are wrong', now):
            LOG.warning('refused a report in the name of %s%s: its token is '
                        'another; "scavenger-manage host enroll" makes one',
                        ascii(host), _from(address))

    def tag(self, host: str, now: float) -> None:
        """A tag is of a host that has not reported."""
        if _is_due(self._tags, host, 'hosts run instances without an agent',
                   now):
            LOG.warning('%s runs instances, and no agent has reported from '
                        'it: what their flavors say is not kept',
                        printable(host))

    def audit(self, now: float, actor: str, host: str, why: str) -> None:
        """Note in the audit that a report was refused."""
        try:
            with connect.writing(self._engine) as connection:
                reports.add_audit(connection, by_agent=True, rows=[{
                    'time_s': now, 'action': 'report.refused',
                    'actor': actor, 'target': host, 'reason': why}])
        except errors.DatabaseError as failed:
            LOG.warning('not in the audit: %s', failed)


def _is_due(quota: log_once.Quota, about: str, what: str, now: float) -> bool:
    left = quota.take(about, now)
    if left == 0:
        LOG.warning('if more %s, that is not logged nor audited for up to '
                    '%.0f s', what, REPEAT_S)
    return left is not None


def _from(address: str) -> str:
    return f' from {printable(address)}' if address else ''
