# SPDX-License-Identifier: Apache-2.0

"""One report: into the database, and the answer.

All of it is one transaction, and an entry is applied once: by host, run and
sequence.  A report may come twice, late, or after a later one.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence

from oslo_log import log

from scavenger_openstack.conductor.admission import samples
from scavenger_openstack.conductor import caps
from scavenger_openstack.conductor import clocks
from scavenger_openstack.conductor import directives as host_directives
from scavenger_openstack.conductor import incidents
from scavenger_openstack.conductor.nova import elsewhere
from scavenger_openstack.conductor.profiles import measured
from scavenger_openstack.conductor import workloads
from scavenger_openstack.db import enrollment
from scavenger_openstack.db import newest
from scavenger_openstack.db import reports
from scavenger_openstack.db.resources import hours
from scavenger_openstack.db.resources import services
from scavenger_openstack.db import rows
from scavenger_openstack.db import tables
from scavenger_openstack import errors
from scavenger_openstack.wire import codec
from scavenger_openstack.wire.report import AgentEvent
from scavenger_openstack.wire.report import Answer
from scavenger_openstack.wire.report import AnyEntry
from scavenger_openstack.wire.report import Incident
from scavenger_openstack.wire.report import Kill
from scavenger_openstack.wire.report import Limit
from scavenger_openstack.wire.report import Profiling
from scavenger_openstack.wire.report import Report
from scavenger_openstack.wire.report import SCHEMA
from scavenger_openstack.wire.report import Statistics

LOG = log.getLogger(__name__)

LATE_S = 60.0
"""A report waits at most so long on its way: one that was sent that much
before the last is from a clock that was set back."""

MOST_AMOUNT = 2.0 ** 60
"""Larger numbers cannot be, and all hosts' together would overflow."""

TWINS_S = 3600.0
"""For how long it is known of a host that two machines spoke as it."""

STARTED = 'the agent started; its limits had been restored'


def check(report: Report, authenticated: str | None = None) -> None:
    """Refuse a report that may not be applied.

    :param authenticated: the host that the sender is, ``None`` where the
        transport does not tell
    :raises WireError: it may not, and why
    """
    if report.schema != SCHEMA:
        version = report.facts.version or 'unknown'
        raise errors.OtherRelease(
            f'{report.host} (version {version}) sent a report of schema '
            f'{report.schema}, this conductor takes {SCHEMA}: '
            'upgrade the older of the two')
    if authenticated is not None and report.host != authenticated:
        raise errors.ForeignReport(
            f'{authenticated} sent a report in the name of {report.host}: '
            'refused')


def sync(connection: reports.Connection, report: Report, now: float,
         authenticated: str | None = None,
         require_token: bool = False,
         wishes: host_directives.Wishes | None = None,
         admit: Callable[[str, bool | None], None] = lambda name, has: None,
         take_hours: Callable[[float], bool] = lambda hours: True) -> Answer:
    """Apply a report and answer it, in the caller's transaction.

    :param now: UNIX time in seconds
    :param authenticated: as for :func:`check`; a host that has been enrolled
        has to be
    :param require_token: every host has to be enrolled
    :param wishes: what is remembered of the operators' wishes from one
        report to the next, by the caller
    :param admit: see :meth:`.accounts.Accounts.check_newcomer`
    :param take_hours: see :func:`.samples.usable`
    :raises WireError: as :func:`check`
    """
    check(report, authenticated)
    host = reports.host(connection, report.host)
    if authenticated is None:
        _check_token(host, report.host, require_token, now)
    elif host is not None and host.token_from_s is not None:
        enrollment.proved(connection, host.id)
    if host is None:
        admit(report.host, services.has(connection, report.host))
        host = reports.add_host(connection, report.host, now)
    # What all hosts share goes by the time of this conductor.
    here_s, now = now, clocks.agreed_s(now, host.last_seen_s, report.sent_s)
    sequence, last_s, generation, tags = reports.progress(
        connection, host.id, report.host, report.run_id)
    # Also what is left out below has been received: an agent sends it again
    # until it is acknowledged, and nothing after it.
    received = max((entry.sequence for entry in report.entries), default=0)
    refused = elsewhere.refused(connection, host.id, report, now)
    listed = report.workloads_digest
    if refused:
        report, listed = elsewhere.without(report, refused), ''
    late = 0 < host.facts.get('sent_s', 0.0) - report.sent_s < LATE_S
    digest = host.workloads_digest
    if not late and report.workloads is not None and (
            not digest or listed != digest):
        workloads.apply(connection, host.id, report.workloads, now)
        digest = listed
    if last_s is None and any(isinstance(entry, AgentEvent)
                              for entry in report.entries):
        last_s = reports.last_entry_s(connection, host.id)
    entries = clocks.timed(_new(report.entries, sequence or 0),
                           last_s or 0.0, now, report.sent_s)
    if entries:
        _apply(connection, host.id, report, entries, now,
               first=sequence is None, take_hours=take_hours)
    acknowledged = max(received, sequence or 0)
    if acknowledged > (sequence or 0):
        reports.set_progress(
            connection, host.id, report.run_id, acknowledged,
            entries[-1].time_s if entries else last_s or 0.0, now,
            new=sequence is None)
    directives, budget = (wishes or host_directives.Wishes()).directives(
        connection, host_directives.Asker(
            host.id, report.host, digest, host.settings,
            report.directives_digest, report.facts.cpu_model, tags),
        generation, here_s)
    if late:
        reports.update_host(connection, host.id, {
            'last_seen_s': now, 'removed_s': None})
    else:
        facts = _facts(report, host, now, holds=(
            generation if directives is None else None))
        reports.update_host(connection, host.id, {
            'boot_id': report.boot_id, 'version': report.facts.version,
            'enforcing': report.facts.enforcing, 'facts': facts,
            'background': hours.background(
                connection, host, now, report.sent_s, facts.get('used', {})),
            'workloads_digest': digest,
            'last_seen_s': now, 'removed_s': None})
    return Answer(acknowledged=acknowledged, workloads_digest=digest,
                  time_s=now, directives=directives, budget=budget)


def _check_token(host: reports.Host | None, name: str, required: bool,
                 now: float) -> None:
    """Refuse a report that needs a token and has none.

    :raises ForeignReport: this host may not report without a proof
    """
    if host is None or host.token_hash is None:
        if required:
            raise errors.ForeignReport(
                f'a report in the name of {name}, which has no token: '
                'refused by [conductor] require_token; '
                '"scavenger-manage host enroll" makes one')
    elif now >= (host.token_from_s or 0.0):     # else it is enrolled by then
        raise errors.ForeignReport(
            f'a report in the name of {name} without its token: refused')


def _new(entries: Iterable[AnyEntry], done: int) -> Iterator[AnyEntry]:
    """Generate the entries after the sequence ``done``, in order."""
    for entry in sorted(entries, key=lambda entry: entry.sequence):
        if entry.sequence > done:
            done = entry.sequence
            yield entry


def _facts(report: Report, host: reports.Host, now: float, holds: int | None
           ) -> reports.Row:
    """Return what is kept of a host's facts; logs once that its clock is off.

    :param holds: the generation that its directives are of, ``None`` where it
        gets others with this answer
    """
    facts = codec.plain(report.facts)
    facts['followed'], facts['followed_s'] = (
        (holds, now) if holds is not None else
        (host.facts.get('followed', -1), host.facts.get('followed_s', 0.0)))
    for name in facts.keys() & {'capacity', 'headroom', 'used'}:
        facts[name] = {resource: min(MOST_AMOUNT, value)
                       for resource, value in facts[name].items()}
    facts['sent_s'] = report.sent_s
    offset_s = clocks.offset_s(report.sent_s, now)
    if offset_s:
        facts['clock_offset_s'] = round(offset_s, 1)
    was_s = host.facts.get('clock_offset_s')
    if offset_s and not was_s:
        LOG.warning(
            '%s: its clock is %.0f s %s; times that cannot be are recorded '
            'as the time at which they are reported. Set its clock',
            report.host, abs(offset_s),
            'ahead' if offset_s > 0 else 'behind')
    elif was_s and not offset_s:
        LOG.info('%s: its clock is right again', report.host)
    return facts | _boots(report, host, now)


def _boots(report: Report, host: reports.Host, now: float) -> reports.Row:
    """Return what is kept of a host's boots; logs once an hour that two
    machines speak as one host: no machine comes back to the boot before its
    last."""
    kept: reports.Row = {name: host.facts[name] for name in (
        'boot_before', 'two_machines_s') if name in host.facts}
    if report.boot_id != host.boot_id:
        kept['boot_before'] = host.boot_id
        if report.boot_id == host.facts.get('boot_before'):
            if 'two_machines_s' not in kept:
                LOG.warning(
                    '%s: two machines report by this name, of boots %s and '
                    '%s; what is listed of the host changes from one to the '
                    'other. Give each a name of its own, [agent] host in '
                    'its scavenger.conf', report.host,
                    host.boot_id, report.boot_id)
                kept['two_machines_s'] = now
    if now - kept.get('two_machines_s', now) > TWINS_S:
        del kept['two_machines_s']
    return kept


def _apply(connection: reports.Connection, host_id: int, report: Report,
           entries: Sequence[clocks.Timed], now: float, first: bool,
           take_hours: Callable[[float], bool]) -> None:
    """Apply entries, each of which is new.

    :param first: they are the first of their run: what is known of limits
        and incidents is of earlier ones, whatever their clock was
    """
    named = set(_named(entry for entry, *_ in entries))
    identities = (newest.identities(connection, host_id, named)
                  if named else {})
    audit: list[reports.Row] = []
    started = False
    for entry, time_s, _ in entries:
        if isinstance(entry, Kill):
            audit.append({
                'time_s': time_s, 'actor': f'agent {report.host}',
                'project': identities.get(
                    entry.workload, reports.Identity()).project,
                'action': 'kill', 'target': entry.workload,
                'after': {'host': report.host, 'owner': entry.owner,
                          'processes': entry.processes},
                'reason': entry.reason})
        elif isinstance(entry, AgentEvent):
            audit.append({
                'time_s': time_s, 'actor': f'agent {report.host}',
                'action': f'agent.{entry.what}', 'target': report.host,
                'reason': entry.detail})
            if entry.what == 'started':
                reports.end_caps(connection, host_id, time_s, STARTED,
                                 ever=first)
                reports.end_incidents(connection, host_id, time_s, first)
                started = True
    foreign = incidents.apply(
        connection, host_id,
        [entry for entry in entries if isinstance(entry.entry, Incident)],
        identities, now)
    for uuid in foreign:
        LOG.warning('%s reported about the incident %s of another host: '
                    'refused', report.host, uuid)
        audit.append({
            'time_s': now, 'actor': f'agent {report.host}',
            'action': 'report.refused', 'target': uuid,
            'reason': 'the incident is of another host'})
    limits = [entry for entry in entries if isinstance(entry.entry, Limit)]
    caps.apply(connection, host_id, limits, identities, now, newest=bool(
        limits) and (started if first else report.run_id ==
                     reports.newest_run(connection, host_id)))
    audit += measured.apply(connection, host_id, report.host, [
        entry.entry for entry in entries
        if isinstance(entry.entry, Profiling | AgentEvent)], now)
    rows.insert_rows(connection, tables.statistics, [
        {'host_id': host_id, 'hour_s': reports.hour(
            entry.hour_s + clocks.moved_s(entry.hour_s, now,
                                          report.sent_s)),
         'project': entry.project, 'application': entry.application,
         'cpu_model': entry.cpu_model,
         'signal': entry.signal,
         'n': entry.n, 'mean': entry.mean, 'm2': entry.m2,
         'least': entry.least, 'most': entry.most,
         'cpu_cores': entry.cpu_cores}
        for entry in samples.usable(
            connection, host_id, report.host, [
                entry.entry for entry in entries
                if isinstance(entry.entry, Statistics)], take_hours)])
    reports.add_audit(connection, audit, by_agent=True)


def _named(entries: Iterable[AnyEntry]) -> Iterator[str]:
    """The workloads that entries name."""
    for entry in entries:
        if isinstance(entry, Incident):
            yield entry.victim
            yield from (suspect.workload for suspect in entry.suspects)
        elif isinstance(entry, Limit | Kill):
            yield entry.workload


def described_entries(report: Report) -> str:
    """Return the entries of a report, for people."""
    if not report.entries:
        return 'no entry'
    first, last = report.entries[0], report.entries[-1]
    if first is last:
        return f'entry {first.sequence} ({type(first).__name__})'
    return f'entries {first.sequence} to {last.sequence}'
