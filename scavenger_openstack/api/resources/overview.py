# SPDX-License-Identifier: Apache-2.0

"""``/v1/overview``: the cloud at a glance, for people."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections import Counter
import json
from typing import Any

from scavenger_openstack.api import cached
from scavenger_openstack.api.call import Call
from scavenger_openstack.api import schemas
from scavenger_openstack.api.schemas import described
from scavenger_openstack.api import times
from scavenger_openstack.db import hours
from scavenger_openstack.db.reports import hour
from scavenger_openstack.db.reports import HOUR_S
from scavenger_openstack.db.resources import caps
from scavenger_openstack.db.resources import summary
from scavenger_openstack.db.resources import workloads
from scavenger_openstack.types import Mode

SPANS_S = (24 * HOUR_S, 7 * 24 * HOUR_S)
WORST = 5

COUNTS = schemas.mapping(schemas.COUNT)
SUMS = {
    'incidents': described(schemas.COUNT, 'Incidents that began then.'),
    'interference_s': described(
        schemas.NUMBER, 'How long workloads were disturbed by others.'),
    'background_core_s': described(
        schemas.NUMBER, 'CPU time that background work got.'),
    'background_byte_s': described(
        schemas.NUMBER, 'Memory that it had, times how long.')}
VICTIM = {'host': schemas.TEXT, 'workload': schemas.TEXT,
          'instance': schemas.TEXT, 'name': schemas.TEXT,
          'project': schemas.TEXT, 'incidents': schemas.COUNT,
          'interference_s': schemas.NUMBER}

ANSWER = schemas.fields({
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
                         'Disturbed longest in 24 hours.')})


def show(call: Call, connection: Any) -> cached.Encoded:
    return call.overview.get(call.now_s, lambda: _answer(call, connection))


def _answer(call: Call, connection: Any) -> dict[str, Any]:
    hosts = summary.hosts(connection)
    day, week = _sums(call, connection, hosts)
    return {
        'hosts': _states(hosts, call.now_s - call.silent_s),
        'incidents_open': sum(host['incidents'] for host in hosts),
        'limits': caps.count_by_owner(connection),
        'overrides': caps.count_overrides(connection, call.now_s),
        'background_cores': _used(hosts),
        'precision': _precision(hosts),
        'spans': [{'span_s': span_s, **_added(some)}
                  for span_s, some in zip(
                      SPANS_S, (day.values(), [*week, *day.values()]),
                      strict=True)],
        'hours': [{'begin_at': times.iso(hour_s), **row}
                  for hour_s, row in sorted(day.items())],
        'victims': _victims(connection, min(day))}


def _sums(call: Call, connection: Any, hosts: Iterable[Mapping[str, Any]]
          ) -> tuple[dict[int, dict[str, Any]], list[dict[str, Any]]]:
    """The sums of the last 24 hours by hour, and those of the days before,
    which hardly change and are many rows."""
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


def _added(found: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    listed = list(found)
    return {name: sum(row[name] for row in listed) for name in SUMS}


def _states(hosts: Iterable[Mapping[str, Any]], before_s: float
            ) -> dict[str, Any]:
    """How many hosts are in each state; one that is silent is in no other."""
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
        'grades': dict(grades), 'versions': dict(versions),
        'modes': {name: dict(counts) for name, counts in modes.items()}}


def _used(hosts: Iterable[Mapping[str, Any]]) -> float | None:
    known = [cores for host in hosts if (cores := (host['facts'] or {}).get(
        'used', {}).get('cpu')) is not None]
    return sum(known) if known else None


def _precision(hosts: Iterable[Mapping[str, Any]]
               ) -> dict[str, dict[str, int]]:
    found: dict[str, Counter[str]] = {}
    for host in hosts:
        for name, counts in (host['facts'] or {}).get(
                'precision', {}).items():
            found.setdefault(name, Counter()).update(counts)
    return {name: dict(counts) for name, counts in found.items()}


def _victims(connection: Any, since_s: int) -> list[dict[str, Any]]:
    found = hours.worst_victims(connection, since_s, WORST)
    names = workloads.display_names(
        connection, [(row['host_id'], row['workload']) for row in found])
    return [schemas.shape(VICTIM, row, incidents=int(row['incidents']),
                          name=names.get((row['host_id'], row['workload']),
                                         '')) for row in found]
