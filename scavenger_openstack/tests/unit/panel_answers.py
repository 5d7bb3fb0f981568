# SPDX-License-Identifier: Apache-2.0

"""Answers of the API for tests of its pages; that the API would give them is
tested in :mod:`scavenger_openstack.tests.unit.api.test_panel_answers`."""

from __future__ import annotations

from typing import Any

HOST = 'host-one'
INSTANCE = '22222222-2222-4222-8222-222222222222'
VICTIM = '11111111-1111-4111-8111-111111111111'
BATCH = '/batch/noisy'
INCIDENT = 'a' * 32
AT = '2026-11-29T03:00:00.000Z'
LATER = '2099-11-29T05:00:00.000Z'

SUMS = {'incidents': 6, 'interference_s': 12600.0,
        'background_core_s': 360000.0, 'background_byte_s': 2.0 ** 30 * 7200}

OVERVIEW: dict[str, Any] = {
    'hosts': {'all': 5, 'silent': 1, 'enforcing': 2, 'observing': 1,
              'stopped': 1, 'grades': {'A': 3, 'C': 1, '': 1},
              'missing': {'disk': 2}, 'undetecting': 1,
              'modes': {'attribution': {'observe': 1, 'enforce': 2}},
              'versions': {'1.0': 4, '0.9': 1}},
    'incidents_open': 17, 'limits': {'attribution': 3, 'operator': 1},
    'overrides': 2, 'background_cores': 12.5,
    'precision': {'attribution': {'confirmed': 9, 'refuted': 3,
                                  'unclear': 2}},
    'spans': [{'span_s': 86400, **SUMS}, {'span_s': 604800, **SUMS}],
    'hours': [{'begin_at': AT, **SUMS} for _ in range(25)],
    'victims': [{'host': HOST, 'workload': VICTIM, 'instance': VICTIM,
                 'name': 'web', 'project': 'p1', 'incidents': 4,
                 'interference_s': 600.0}]}

NOTHING: dict[str, Any] = {
    **OVERVIEW,
    'hosts': {'all': 0, 'silent': 0, 'enforcing': 0, 'observing': 0,
              'stopped': 0, 'grades': {}, 'missing': {}, 'modes': {},
              'versions': {}, 'undetecting': 0},
    'incidents_open': 0, 'limits': {}, 'overrides': 0,
    'background_cores': None, 'precision': {}, 'victims': [],
    'spans': [{'span_s': span_s, **dict.fromkeys(SUMS, 0)}
              for span_s in (86400, 604800)], 'hours': []}
"""The overview of a cloud without hosts."""


def switch(**fields: Any) -> dict[str, Any]:
    return {'scope': 'host', 'target': HOST, 'enabled': False,
            'reason': 'an upgrade', 'changed_by': 'ann', 'changed_at': AT,
            **fields}


def antagonist(**fields: Any) -> dict[str, Any]:
    return {'workload': INSTANCE, 'instance': INSTANCE, 'name': 'hog',
            'host': HOST, 'project': 'p2', 'application': '',
            'incidents': 3, 'victims': 2, 'interference_s': 157.5,
            'causes': ['core', 'disk'], 'confirmed': 3, 'refuted': 1,
            'limited': True, 'disturbs_now': True, 'foreground': False,
            'eviction_recommended_at': AT,
            'history': [0.0, 60.0, 97.5], **fields}


def limit(**fields: Any) -> dict[str, Any]:
    return {'id': '7', 'host': HOST, 'workload': BATCH, 'instance': '',
            'name': '', 'project': '', 'knob': 'memory_bytes',
            'value': 2.0 ** 29, 'original': None, 'owner': 'attribution',
            'reason': 'it disturbs web', 'why': '', 'incidents': [INCIDENT],
            'set_at': AT, 'removed_at': None, 'override': None, **fields}


def override(**fields: Any) -> dict[str, Any]:
    return {'id': 'c' * 32, 'host': HOST, 'workload': BATCH, 'instance': '',
            'name': '', 'knob': 'cpu_cores', 'value': 0.3,
            'reason': 'maintenance', 'created_by': 'ann', 'created_at': AT,
            'expires_at': LATER, 'followed': False,
            'why_not': 'the kill switch is on', **fields}


def host(**fields: Any) -> dict[str, Any]:
    return {
        'name': HOST, 'version': '1.0', 'enforcing': True, 'stopped': '',
        'grade': 'B', 'modes': {'attribution': 'enforce'},
        'last_seen_at': AT, 'silent': False,
        'headroom': {'cpu_cores': 3.5, 'memory_bytes': 2.0 ** 30},
        'used': {'cpu_cores': 0.5}, 'capacity': {'cpu_cores': 8.0,
                                                 'memory_bytes': 2.0 ** 34},
        'precision': {}, 'missing': [
            'disk: waits are not measured; type sysctl '
            'kernel.task_delayacct=1'],
        'suffering': [{'workload': VICTIM, 'name': 'web',
                       'why': 'nothing is named'}], 'remembered': [],
        **fields}


def shown_host(**fields: Any) -> dict[str, Any]:
    """The same by its name, with what only that answer has."""
    return {**host(**fields), 'settings': {'modes': {}, 'parameters': {}},
            'not_followed': {}, 'followed_at': AT, 'facts': {}}


def workload(**fields: Any) -> dict[str, Any]:
    return {'id': BATCH, 'host': HOST, 'name': BATCH, 'kind': 'container',
            'instance': '', 'display_name': '', 'flavor': '', 'project': '',
            'application': '', 'priority': 'background', 'source': 'parent',
            'vcpus': 1.0, 'floor': {'cpu_cores': 0.1,
                                    'memory_bytes': 2.0 ** 26},
            'since_at': AT, 'until_at': None, 'limits': None, **fields}


PROFILE = 'b' * 32


def estimate(value: float, low: float | None = None,
             high: float | None = None) -> dict[str, float]:
    return {'value': value, 'low': value if low is None else low,
            'high': value if high is None else high}


def profile(**fields: Any) -> dict[str, Any]:
    return {'id': PROFILE, 'kind': 'application', 'target': 'shop',
            'project': '1', 'source': 'measured', 'form': 'long',
            'measured_s': 1795921200.0, 'host': HOST,
            'qos': {'signal': 'p99_s', 'alone': 0.0011, 'bound': 0.0012},
            'tolerated': {'memory_capacity': estimate(0.4, 0.35, 0.45),
                          'tlb': estimate(1.0)},
            'caused': {'memory_capacity': estimate(0.0),
                       'integer': estimate(0.63, 0.6, 0.7)},
            'missing': {'llc_capacity': 'this host has one CPU'},
            'created_by': 'ann', 'created_at': AT, 'stale_at': None,
            **fields}


def listing(noun: str, *rows: dict[str, Any], next: str | None = None
            ) -> dict[str, Any]:
    return {noun: list(rows), 'next': next}


ANSWERS: dict[tuple[str, str], Any] = {
    ('GET', '/v1/overview'): {'overview': OVERVIEW},
    ('GET', '/v1/protection'): listing('protection'),
    ('GET', '/v1/antagonists'): listing('antagonists', antagonist()),
    ('GET', '/v1/caps'): listing('caps', limit()),
    ('GET', '/v1/caps/overrides'): listing('overrides', override()),
    ('GET', '/v1/hosts'): listing('hosts', host()),
    ('GET', f'/v1/hosts/{HOST}'): {'host': shown_host()},
    ('GET', '/v1/workloads'): listing('workloads', workload()),
    ('GET', '/v1/incidents'): listing('incidents'),
    ('GET', '/v1/profiles'): listing('profiles', profile()),
    ('GET', f'/v1/profiles/{PROFILE}'): {'profile': profile()},
    ('PUT', '/v1/protection'): {'protection': {
        **switch(), 'hosts': 5, 'silent': 1, 'last_seen_at': AT}},
    ('PUT', f'/v1/caps/{HOST}/cpu_cores/%2Fbatch%2Fnoisy'): {
        'override': override()}}
