# SPDX-License-Identifier: Apache-2.0

"""``/v1/overview``: the cloud at a glance, for people."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections import Counter
import json
from typing import Any

from scavenger_openstack.amounts import DAY_S
from scavenger_openstack.amounts import HOUR_S
from scavenger_openstack.api import cached
from scavenger_openstack.api.call import Call
from scavenger_openstack.api import schemas
from scavenger_openstack.api.schemas import described
from scavenger_openstack.db.reports import hour
from scavenger_openstack.db.resources import caps
from scavenger_openstack.db.resources import hosts as db_hosts
from scavenger_openstack.db.resources import hours
from scavenger_openstack.db.resources import workloads
from scavenger_openstack.text import iso
from scavenger_openstack.types import Mode

SPANS_S = (DAY_S, 7 * DAY_S)
WORST = 5

MOST_NAMES = 20
OTHER = 'other'
"""What more names than these count as: hosts may invent some."""

COUNTS = schemas.mapping(schemas.COUNT)
SUMS = {**schemas.SUMS, **schemas.WORK}
VICTIM = {'host': schemas.TEXT, 'workload': schemas.TEXT,
          'instance': schemas.TEXT, 'name': schemas.TEXT,
          'project': schemas.TEXT, 'incidents': schemas.COUNT,
          'interference_s': schemas.NUMBER}

FIELDS = {
    'hosts': schemas.fields({
        'all': schemas.COUNT,
        'silent': described(schemas.COUNT, 'Without a report for long.'),
        'enforcing': described(schemas.COUNT, 'They may set limits.'),
        'observing': described(schemas.COUNT, 'They detect, and set none.'),
        'stopped': described(schemas.COUNT, 'They do neither.'),
        'grades': described(COUNTS, 'By what can be measured; the key is '
                                    'empty where that is not known.'),
        'modes': described(schemas.mapping(COUNTS), 'By controller.'),
        'versions': described(COUNTS, 'Of the agent.')}),
    'incidents_open': schemas.COUNT,
    'limits': described(COUNTS, 'In force, by what set them.'),
    'overrides': described(schemas.COUNT, 'Those that hold now.'),
    'background_cores': described(
        schemas.MAYBE_NUMBER, 'What background work uses now, where that is '
                              'known; null: nowhere.'),
    'precision': described(
        schemas.mapping(COUNTS),
        'How trials of limits ended, by controller, on all hosts.'),
    'spans': described(schemas.items(schemas.fields(
        {'span_s': schemas.COUNT, **SUMS})), 'Up to now.'),
    'hours': described(schemas.items(schemas.fields(
        {'begin_at': schemas.MAYBE_TIME, **SUMS})),
        'The last 24, and the one that is not over.'),
    'victims': described(schemas.items(schemas.fields(VICTIM)),
                         'Disturbed longest in 24 hours.')}


def show(call: Call, connection: Any) -> cached.Encoded:
    return call.overview.get(call.now_s, lambda: {
        'overview': _overview(call, connection)})


def _overview(call: Call, connection: Any) -> dict[str, Any]:
    hosts = db_hosts.all_with_load(connection)
    day, week = _sums(call, connection, hosts)
    return {
        'hosts': _states(hosts, call.now_s - call.silent_s),
        'incidents_open': sum(host['incidents'] for host in hosts),
        'limits': {name: counts.total() for name, counts in _most({
            owner: Counter(limits=count) for owner, count
            in caps.count_by_owner(connection).items()}).items()},
        'overrides': caps.count_overrides(connection, call.now_s),
        'background_cores': _used(hosts),
        'precision': _precision(hosts),
        'spans': [{'span_s': span_s, **_added(some)}
                  for span_s, some in zip(
                      SPANS_S, (day.values(), [*week, *day.values()]),
                      strict=True)],
        'hours': [{'begin_at': iso(hour_s), **row}
                  for hour_s, row in sorted(day.items())],
        'victims': _victims(connection, min(day))}


def _sums(call: Call, connection: Any, hosts: Iterable[Mapping[str, Any]]
          ) -> tuple[dict[int, dict[str, Any]], list[dict[str, Any]]]:
    """Return the sums of the last 24 hours by hour, and those of the days
    before, which hardly change and are many rows."""
    end_s = hour(call.now_s) + HOUR_S
    day_s, week_s = (end_s - span_s - HOUR_S for span_s in SPANS_S)
    day = {hour_s: _named(row) for hour_s, row in hours.sums(
        connection, day_s, end_s).items()}
    for host in hosts:
        now = host['background'] or {}
        if now.get('hour_s') in day:
            row = day[now['hour_s']]
            row['background_core_s'] += now['core_s']
            row['background_byte_s'] += now['byte_s']
    week = call.week.get(call.now_s, lambda: _added(map(
        _named, hours.sums(connection, week_s, day_s).values())))
    return day, [json.loads(week.body)]


def _named(row: Mapping[str, Any]) -> dict[str, Any]:
    return {'incidents': row['incidents'],
            'interference_s': row['interference_s'],
            'background_core_s': row['core_s'],
            'background_byte_s': row['byte_s']}


def _added(spans: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    rows = list(spans)
    return {name: sum(row[name] for row in rows) for name in SUMS}


def _states(hosts: Iterable[Mapping[str, Any]], before_s: float
            ) -> dict[str, Any]:
    """Return how many hosts are in each state; a silent one is in no other."""
    states: Counter[str] = Counter()
    grades: Counter[str] = Counter()
    versions: Counter[str] = Counter()
    modes: dict[str, Counter[str]] = {}
    for host in hosts:
        facts = host['facts'] or {}
        states['all'] += 1
        grades[facts.get('grade', '')] += 1
        versions[host['version']] += 1
        if host['last_seen_s'] < before_s:
            states['silent'] += 1
        elif facts.get('stopped'):
            states['stopped'] += 1
        elif host['enforcing']:
            states['enforcing'] += 1
        elif Mode.OBSERVE in facts.get('modes', {}).values():
            states['observing'] += 1
        else:
            states['stopped'] += 1
        for controller, mode in facts.get('modes', {}).items():
            modes.setdefault(controller, Counter())[mode] += 1
    return {**{name: states[name] for name in (
        'all', 'silent', 'enforcing', 'observing', 'stopped')},
        'grades': dict(grades),
        'versions': {name: counts.total() for name, counts in _most({
            version: Counter(hosts=count)
            for version, count in versions.most_common()}).items()},
        'modes': _most(dict(sorted(
            modes.items(), key=lambda item: -item[1].total())))}


def _most(counts: Mapping[str, Counter[str]]) -> dict[str, Counter[str]]:
    """The first names, and all others as one."""
    merged: dict[str, Counter[str]] = {}
    for i, (name, some) in enumerate(counts.items()):
        merged.setdefault(name if i < MOST_NAMES else OTHER,
                          Counter()).update(some)
    return merged


def _used(hosts: Iterable[Mapping[str, Any]]) -> float | None:
    cores = [used for host in hosts if (used := (host['facts'] or {}).get(
        'used', {}).get('cpu')) is not None]
    return sum(cores) if cores else None


def _precision(hosts: Iterable[Mapping[str, Any]]
               ) -> dict[str, Counter[str]]:
    precision: dict[str, Counter[str]] = {}
    reported: Counter[str] = Counter()
    for host in hosts:
        for name, counts in (host['facts'] or {}).get(
                'precision', {}).items():
            precision.setdefault(name, Counter()).update(counts)
            reported[name] += 1
    return _most({name: precision[name] for name, _ in reported.most_common()})


def _victims(connection: Any, since_s: int) -> list[dict[str, Any]]:
    victims = hours.worst_victims(connection, since_s, WORST)
    names = workloads.display_names(
        connection, [(row['host_id'], row['workload']) for row in victims])
    return [schemas.shape(VICTIM, row, incidents=int(row['incidents']),
                          name=names.get((row['host_id'], row['workload']),
                                         '')) for row in victims]
