# SPDX-License-Identifier: Apache-2.0

"""What the control plane wants of a host.

Directives are worked out when something that they are made of has changed,
and sent when the agent holds others.  The budget of new limits is for one
minute of the clock, and comes with each answer.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import hashlib
import threading
from typing import Any
from typing import NamedTuple

from oslo_log import log

from scavenger_openstack.algorithms import classify
from scavenger_openstack.algorithms.cpi2.specs import MIN_SAMPLES
from scavenger_openstack.algorithms.cpi2.specs import MIN_TASKS
from scavenger_openstack.amounts import DAY_S
from scavenger_openstack.conductor import governor
from scavenger_openstack.db import directives as rows
from scavenger_openstack.db import flavor_tags
from scavenger_openstack.db import reports
from scavenger_openstack import errors
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import report

LOG = log.getLogger(__name__)

RELOAD_S = 10.0
"""All is read again after so long, though nothing has changed: which overrides
have expired goes by the clock, and that may be set."""

SEEN_S = DAY_S
"""The governor shares among the hosts that have reported within that."""

REMEMBERED = 20000
"""Hosts whose directives are remembered."""

MOST = {'tags': 2000, 'exempt': 2000, 'overrides': 2000, 'specs': 10000}
"""The longest lists that agents take."""

DISPENSABLE = ('specs', 'parameters', 'overrides', 'tags')
"""What is left out of directives that are too long, in this order; never the
kill switch."""

LEAST_SAMPLES = MIN_TASKS * MIN_SAMPLES
"""A spec of fewer samples is not handed out, nor one of an application of
fewer than ``MIN_TASKS`` workloads.  How many samples are of which of them is
not known.  Source: CPI2, section 3.1."""


class Asker(NamedTuple):
    """The host that directives are for.

    ``holds``: the digest of those it has.  ``tags``: as of
    :class:`~scavenger_openstack.db.reports.Progress`.
    """

    host_id: int
    name: str
    workloads_digest: str
    settings: dict[str, Any]
    holds: str
    cpu_model: str = ''
    tags: int = 0


class Wishes:
    """Remembers what operators want, and what that means for each host.

    May be used by several threads, with connections to one database.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted = rows.Wanted()
        self._governed: governor.Scopes = frozenset()
        self._shares: tuple[int, dict[str, int]] = -1, {}
        self._serial = 0
        self._generation = -1
        self._read_s = 0.0
        self._known: dict[int, tuple[tuple[Any, ...], str]] = {}

    def directives(self, connection: reports.Connection, asker: Asker,
                   generation: int, now: float
                   ) -> tuple[report.Directives | None, report.Budget | None]:
        """The directives of a host, ``None`` when it has them, and its
        budget, ``None`` where there is no governor.

        :param generation: as of :class:`~scavenger_openstack.db.reports\
.Progress`
        """
        wanted, governed, serial = self._current(connection, generation, now)
        overrides = tuple(
            override for override in wanted.overrides.get(asker.host_id, ())
            if override.expires_s > now)
        budget = None
        if governed:
            budget = self._budget(
                connection, asker.name,
                not governed.isdisjoint(wanted.scopes(asker.name)), now)
        key = (serial, asker.workloads_digest, asker.settings, overrides,
               budget is not None, asker.cpu_model, asker.tags)
        with self._lock:
            sent = self._known.get(asker.host_id)
        if sent is not None and sent == (key, asker.holds):
            return None, budget
        content = _cut(_content(connection, wanted, asker, overrides,
                                budget is not None))
        content['schema'] = report.SCHEMA
        digest = hashlib.sha256(codec.encode(report.Directives(
            issued_s=0.0, digest='-', **content))).hexdigest()[:32]
        with self._lock:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[asker.host_id] = key, digest
        return (None if digest == asker.holds else report.Directives(
            issued_s=now, digest=digest, **content)), budget

    def _current(self, connection: reports.Connection, generation: int,
                 now: float) -> tuple[rows.Wanted, governor.Scopes, int]:
        """Return what is wanted, where there is a governor, and a number that
        changes with what is wanted."""
        with self._lock:
            if (generation == self._generation
                    and 0 <= now - self._read_s < RELOAD_S):
                return self._wanted, self._governed, self._serial
        wanted = rows.wanted(connection, now)
        with self._lock:
            if wanted != self._wanted or self._generation < 0:
                self._wanted = wanted
                self._governed = governor.governed(wanted)
                self._serial += 1
            self._generation, self._read_s = generation, now
            return self._wanted, self._governed, self._serial

    def _budget(self, connection: reports.Connection, host: str,
                governed: bool, now: float) -> report.Budget | None:
        """Return what a host may set in this minute: what it was given when
        the minute was divided, also if it is governed no more.

        :raises IntegrityError: another conductor has just divided it.
        """
        minute = governor.minute_of(now)
        with self._lock:
            shares_minute, shares = self._shares
        if shares_minute != minute:
            stored = rows.shares(connection, minute)
            if stored is not None:
                with self._lock:
                    self._shares = minute, stored
            else:
                # Not remembered before it is stored.
                stored = governor.divide(
                    rows.wanted(connection, now), rows.hosts(
                        connection, now, now - SEEN_S, host), minute)
                rows.add_shares(connection, minute, stored)
            shares = stored
        if host in shares or governed:
            return governor.budget(shares.get(host, 0), minute)
        return None


def _content(connection: reports.Connection, wanted: rows.Wanted,
             asker: Asker, overrides: Sequence[rows.Override],
             governed: bool) -> dict[str, Any]:
    """Return the fields of the directives, but for time and digest."""
    present = rows.present(connection, asker.host_id)
    aggregates = wanted.aggregates.of(asker.name)
    protection, reason = wanted.protection(asker.name)
    return {
        'protection': protection, 'protection_reason': reason,
        **{kind: wanted.setting(asker.name, kind,
                                asker.settings.get(kind, {}))
           for kind in ('modes', 'parameters')},
        'tags': tags(wanted, aggregates, present, flavor_tags.of_host(
            connection, asker.name)),
        'exempt': exempt(wanted, aggregates, present),
        'overrides': [report.Override(
            id=override.uuid, workload=override.workload, knob=override.knob,
            value=override.value, reason=override.reason,
            expires_s=override.expires_s, instance=override.instance)
            for override in overrides],
        'specs': specs(connection, asker.cpu_model, present)
        if wanted.specs else [],
        'governed': governed, 'notice': notice(wanted, asker.name),
        'profiling': profiling(wanted, asker)}


def profiling(wanted: rows.Wanted, asker: Asker
              ) -> report.ProfilingOrder | None:
    """Return the profile that is to be measured on a host, as long as its
    aggregate allows that."""
    row = wanted.profilings.get(asker.host_id)
    if row is None or not wanted.allows_profiling(asker.name):
        return None
    return report.ProfilingOrder(id=row['uuid'], **{
        name: row[name] for name in ('workload', 'instance', 'form',
                                     'seconds', 'until_s')})


def _cut(content: dict[str, Any]) -> dict[str, Any]:
    """Directives with lists that agents take."""
    return content | {
        'left_out': [name for name, most in MOST.items()
                     if len(content[name]) > most],
        **{name: content[name][:most] for name, most in MOST.items()}}


def notice(wanted: rows.Wanted, host: str) -> str:
    """Return what the operator of a host has to know, '' for nothing."""
    if wanted.services is None or wanted.services.find_all(host):
        return ''
    return (f'Nova has no compute service on a host {host}: its aggregates, '
            'what flavors say and the scheduler do not reach this host. Set '
            '[agent] host to the name that "openstack compute service list" '
            'shows, unless no nova-compute runs here')


def specs(connection: reports.Connection, cpu_model: str,
          present: Iterable[tuple[str, str, str]]) -> list[report.Spec]:
    """Return what the applications of a host usually are on its CPUs."""
    applications = {(project, application)
                    for _, project, application in present if application}
    if not cpu_model or not applications:
        return []
    return [report.Spec(**row) for row in rows.specs(
        connection, cpu_model, applications, LEAST_SAMPLES, MIN_TASKS)]


def tags(wanted: rows.Wanted, aggregates: Sequence[str],
         present: Iterable[tuple[str, str, str]],
         flavors: Iterable[flavor_tags.FlavorTag] = ()) -> list[report.Tag]:
    """Return the priorities of the instances that are present, as
    :mod:`.classify` orders what operators gave and what the flavor says; of
    the aggregates of the host the first that has one counts.

    The application is that of the rule, else that of the flavor; the rest is
    the flavor's.
    """
    of_aggregate = next((rule for name in aggregates if (
        rule := wanted.rules.get(('priority', 'aggregate', name)))), None)
    by_instance = {flavor.instance: flavor for flavor in flavors}
    by_id: dict[str, report.Tag] = {}
    for instance, project, _ in present:
        if not instance:
            continue
        flavor = by_instance.get(instance)
        rest: dict[str, Any] = {} if flavor is None else {
            'floor': dict(flavor.floor), 'protect': flavor.protect}
        rules = {
            'instance': wanted.rules.get(('priority', 'instance', instance)),
            'project': wanted.rules.get(('priority', 'project', project)),
            'aggregate': of_aggregate}
        priority, source, _ = classify.classify(
            flavor=flavor.priority if flavor is not None
            and flavor.source == 'flavor' else None,
            **{scope: rule.value for scope, rule in rules.items() if rule})
        rule = rules.get(source)
        application = (rule.application if rule else '') or (
            flavor.application if flavor else '')
        if source != 'default' or application or not rest.get('protect', True):
            by_id[instance] = report.Tag(
                instance=instance, priority=priority.value, source=source,
                application=application, **rest)
    return [tag for _, tag in sorted(by_id.items())]


def exempt(wanted: rows.Wanted, aggregates: Sequence[str],
           present: Iterable[tuple[str, str, str]]) -> list[str]:
    """Return the instances and projects on a host that are exempt."""
    everything = any(('exemption', 'aggregate', name) in wanted.rules
                     for name in aggregates)
    ids = set()
    for instance, project, _ in present:
        if instance and (everything or ('exemption', 'instance', instance)
                         in wanted.rules):
            ids.add(instance)
        if project and ('exemption', 'project', project) in wanted.rules:
            ids.add(project)
    return sorted(ids)


def encoded(answer: report.Answer, host: str,
            is_due: Callable[[str], bool]) -> bytes:
    """The answer, without what no agent takes: entries that it does
    not see acknowledged come again for ever.

    :param is_due: whether to log that something is left out
    """
    why = ''
    directives = answer.directives
    while directives is not None:
        try:
            return codec.checked(
                codec.replace(answer, directives=directives), report.Answer,
                report.MAX_ANSWER_BYTES)
        except errors.WireError as exc:
            why = why or str(exc)
        name = next((name for name in DISPENSABLE
                     if getattr(directives, name)), '')
        directives = codec.replace(directives, **{
            name: type(getattr(directives, name))(),
            'left_out': sorted({*directives.left_out, name}),
            }) if name else None
        if is_due(name):
            LOG.error('%s: its directives are sent without %s, agents would '
                      'not take them: %s', host, name or 'anything', why)
    return codec.encode(codec.replace(answer, directives=None))
