# SPDX-License-Identifier: Apache-2.0

"""Profiles of applications and flavors, estimated each hour from what
incidents of all hosts showed.

A measured profile is never replaced; it is marked as stale when a victim of
its application or flavor had an incident after it was stored.  Source: iBench,
section V-A, measures a profile again when a workload is not what it was.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Generator
from collections.abc import Mapping
import functools
import time

from oslo_log import log

from scavenger_openstack.algorithms import profile_estimate
from scavenger_openstack.algorithms.profile_estimate import Estimated
from scavenger_openstack.algorithms.profile_estimate import Target
from scavenger_openstack.amounts import DAY_S
from scavenger_openstack.conductor import periodic
from scavenger_openstack.db import connect
from scavenger_openstack.db import newest
from scavenger_openstack.db import reports
from scavenger_openstack.db.resources import incidents
from scavenger_openstack.db.resources import profiles as rows
from scavenger_openstack.db.rows import Row
from scavenger_openstack import errors
from scavenger_openstack.grounds import Ground
from scavenger_openstack.grounds import GroundKind
from scavenger_openstack.outcomes import Outcome
from scavenger_openstack.types import printable
from scavenger_openstack.wire import profile

LOG = log.getLogger(__name__)

ACTOR = 'conductor'

CLAIM = 'profile-estimates'
EVERY_S = 3600.0

DAYS = 30
"""What began earlier says little of what workloads are now."""

BATCH = 100
"""Incidents of one transaction: each may have 100 KiB of evidence."""

MOST_INCIDENTS = 5000
"""The newest incidents of all that are read at a time."""

MOST_PROFILES = 5000
"""Where so many profiles are stored, of whatever source, no estimate of
another target is added: Nova's scheduler reads all of them, up to twice as
many, and agents may report any number of applications."""

KINDS = (GroundKind.DIRECT, GroundKind.SHARE, GroundKind.EXPERIMENT)
"""Evidence that says how much an antagonist did."""


def make_periodic(engine: connect.Engine, holder: str,
                  clock: Callable[[], float], stopped: Callable[[], bool],
                  elapsed: Callable[[], float] = time.monotonic
                  ) -> periodic.Periodic:
    """Return what estimates them, in one of all conductors."""
    return periodic.Periodic(
        engine, CLAIM, holder, clock, stopped,
        functools.partial(refresh, engine), lambda now: now + EVERY_S,
        elapsed=elapsed)


def refresh(engine: connect.Engine, now: float
            ) -> Generator[int, None, None]:
    """Estimate all profiles again, and store those that have changed.

    Yields after each transaction how many it stored.

    :raises DatabaseError: the database cannot be used.
    """
    read: list[profile_estimate.Incident] = []
    ended: dict[Target, tuple[float, float]] = {}
    after: tuple[float, int] | None = None
    while len(read) < MOST_INCIDENTS:
        some, times, after = connect.read(engine, functools.partial(
            _read, since_s=now - DAYS * DAY_S, after=after))
        read += some
        ended = times | ended       # the newest come first
        if after is None:
            break
        yield 0
    for target, (begun_s, ended_s) in sorted(ended.items()):
        if connect.retried(engine, functools.partial(
                rows.mark_stale, begun_s=begun_s, ended_s=ended_s,
                **target._asdict()), idempotent=True):
            LOG.info('the profile of the %s %s is stale: an incident of '
                     'it began after it was stored', target.kind,
                     printable(target.target))
        yield 0
    stored, there = 0, len(connect.read(engine, rows.ids))
    for target, estimated in sorted(
            profile_estimate.estimate(read).items(),
            key=lambda item: item[0]):
        changed = connect.retried(engine, functools.partial(
            store, target=target, estimated=estimated, now=now,
            # Those that replace another one are counted, too.
            only_again=there + stored >= MOST_PROFILES), on_duplicate=True)
        stored += changed
        yield int(changed)
    if stored:
        with connect.writing(engine) as connection:
            reports.add_audit(connection, [{
                'time_s': now, 'actor': ACTOR, 'action': 'profiles.estimate',
                'target': '', 'reason': 'profiles estimated from incidents: '
                f'{stored}'}])
        LOG.info('profiles estimated from incidents: %d', stored)
    if there + stored >= MOST_PROFILES:
        LOG.warning('profiles of applications and flavors: %d; no estimate '
                    'of another one is added, delete those that are not '
                    'needed', there)


def _read(connection: connect.Connection, since_s: float,
          after: tuple[float, int] | None
          ) -> tuple[list[profile_estimate.Incident],
                     dict[Target, tuple[float, float]],
                     tuple[float, int] | None]:
    """Return the incidents of a batch; when the newest of each victim's
    target began that has ended, and when it ended; and the last of the
    batch, ``None`` when no more may follow."""
    batch = incidents.with_evidence(
        connection, causes=profile_estimate.SOIS_OF, kinds=KINDS,
        without=Outcome.REFUTED, since_s=since_s, after=after, limit=BATCH)
    targets = {
        (row.host_id, row.name): targets_of(row.application, row.flavor,
                                            row.project)
        for row in newest.workloads(connection, {
            (row['host_id'], name) for row in batch for name in _named(row)})}
    times: dict[Target, tuple[float, float]] = {}
    for row in batch:
        if row['ended_s'] is not None:
            for target in targets.get((row['host_id'], row['victim']), ()):
                times.setdefault(target, (row['begun_s'], row['ended_s']))
    return [_incident(row, {
        name: targets.get((row['host_id'], name), [])
        for name in _named(row)}) for row in batch], times, (
            (batch[-1]['begun_s'], batch[-1]['id'])
            if len(batch) == BATCH else None)


def targets_of(application: str, flavor: str, project: str) -> list[Target]:
    """Return what a workload's profile may be of; an application is of its
    project, a flavor of every one."""
    return [target for target in (
        Target('application', application, project),
        Target('flavor', flavor, '')) if target.target]


def _named(row: Row) -> set[str]:
    return {row['victim'], *(ground.get('workload', '')
                             for ground in row['grounds'] or ())}


def _incident(row: Row, targets: Mapping[str, list[Target]]
              ) -> profile_estimate.Incident:
    return profile_estimate.Incident(
        cause=row['cause'], victim=row['victim'], signal=row['signal'],
        value=row['value'], threshold=row['threshold'],
        grounds=[Ground(**{
            'workload': '', **{name: ground[name] for name in Ground._fields
                               if name in ground},
            'kind': GroundKind(ground['kind']),
            'threads': tuple(ground.get('threads', ()))})
            for ground in row['grounds'] or ()
            if ground['kind'] in set(GroundKind)],  # or of a later release
        evidence=[profile_estimate.Series(
            series['workload'], series['signal'], series['values'])
            for series in row['evidence']],
        capacity=row['facts'].get('capacity', {}), targets=targets,
        host=row['host_id'])


def document(target: Target, estimated: Estimated, now: float
             ) -> profile.Document:
    """Return an estimated profile as it is stored.

    :raises WireError: a name is none that a profile may have.
    """
    return profile.of_json({
        **target._asdict(), 'source': profile.ESTIMATED, 'measured_s': now,
        **{part: profile.estimates_as_json(estimates) for part, estimates
           in estimated.profile._asdict().items()},
        'missing': dict(estimated.missing)})


def store(connection: connect.Connection, target: Target,
          estimated: Estimated, now: float, only_again: bool = False) -> bool:
    """Store a profile, unless a measured one or the same one is there;
    whether it is stored.

    :param only_again: only in place of another one
    """
    try:
        after = document(target, estimated, now)
    except errors.WireError as exc:
        LOG.debug('no profile of %s is estimated: %s', target, exc)
        return False
    before = rows.of_target(connection, *target)
    if only_again and before is None:
        return False
    if before is not None and profile.as_json(after) == {
            **before['document'], 'measured_s': now}:
        return False
    return rows.set_profile(connection, after, created_by=ACTOR,
                            now_s=now) is not None
