# SPDX-License-Identifier: Apache-2.0

"""Incidents as the API shows them."""

from __future__ import annotations

import datetime
from typing import Any

BEGUN = datetime.datetime(2026, 11, 23, 3, 0, 0, tzinfo=datetime.UTC)
PK = 'a' * 32
VICTIM = '11111111-1111-4111-8111-111111111111'
NOISY = '22222222-2222-4222-8222-222222222222'
PROJECT, OTHER = '1', 'project-other'
"""The project of Horizon's test user, and another."""


def at(seconds: float, begun: datetime.datetime = BEGUN) -> str:
    return (begun + datetime.timedelta(seconds=seconds)).isoformat(
        timespec='milliseconds').replace('+00:00', 'Z')


def listed(name: str = 'web', **fields: Any) -> dict[str, Any]:
    """One of a listing."""
    return {
        'id': PK, 'host': 'host-one', 'victim': VICTIM,
        'victim_instance': VICTIM, 'victim_name': name, 'project': PROJECT,
        'signal': 'run_delay', 'value': 0.9, 'threshold': 0.2,
        'cause': 'core', 'controller': 'attribution', 'antagonists': [{
            'workload': NOISY, 'instance': NOISY, 'name': 'batch',
            'project': OTHER, 'score': 0.91, 'foreground': False,
            'earlier': False}],
        'action': 'limit batch', 'outcome': 'confirmed',
        'evidence_kind': 'direct', 'begun_at': at(0), 'changed_at': at(300),
        'ended_at': at(300), **fields}


def limit(set_s: float, removed_s: float | None = None,
          *steps: tuple[float, float | None], name: str = 'batch',
          **fields: Any) -> dict[str, Any]:
    return {
        'id': '7', 'host': 'host-one', 'workload': NOISY, 'instance': NOISY,
        'name': name, 'project': OTHER, 'knob': 'cpu_cores',
        'value': steps[-1][1], 'original': None, 'owner': 'attribution',
        'reason': 'it ran during 61 % of the wait of web', 'why': '' if
        removed_s is None else 'web is well again', 'incidents': [PK],
        'set_at': at(set_s),
        'removed_at': None if removed_s is None else at(removed_s),
        'override': None, 'steps': [
            {'at': at(when), 'value': value} for when, value in steps],
        **fields}


def whole(name: str = 'web', noisy: str = 'batch', **fields: Any
          ) -> dict[str, Any]:
    """One with its evidence."""
    return {
        **listed(name), 'suspects': [
            {'workload': NOISY, 'instance': NOISY, 'name': noisy,
             'project': OTHER, 'score': 0.91, 'foreground': False,
             'earlier': False, 'antagonist': True},
            {'workload': '/batch/idle', 'instance': '', 'name': '',
             'project': '', 'score': None, 'foreground': False,
             'earlier': False, 'antagonist': False}],
        'grounds': [
            {'workload': NOISY, 'instance': NOISY, 'name': noisy,
             'project': OTHER, 'kind': 'direct', 'threads': [],
             'share': 0.61, 'waited_s': 1.9, 'window_s': 2.0,
             'chance': None, 'before': None, 'after': None},
            {'workload': NOISY, 'instance': NOISY, 'name': noisy,
             'project': OTHER, 'kind': 'timing', 'threads': [],
             'share': 0.93, 'waited_s': None, 'window_s': None,
             'chance': 0.0004, 'before': None, 'after': None}],
        'evidence': [
            {'workload': VICTIM, 'signal': 'run_delay', 'times_at': [
                at(10 * i) for i in range(30)], 'values': [
                    0.9 if i < 12 else 0.1 for i in range(30)]},
            {'workload': NOISY, 'signal': 'cpu_cores', 'times_at': [
                at(10 * i) for i in range(30)], 'values': [
                    3.0 if i < 12 else 0.5 for i in range(30)]}],
        'caps': [limit(120, 250, (120, 0.5), (180, 0.25), name=noisy)],
        'missing': ['disk: waits are not measured'], **fields}


def as_project(incident: dict[str, Any]) -> dict[str, Any]:
    """What the API shows a reader of the victim's project of it."""
    nothing = dict.fromkeys(('workload', 'instance', 'name', 'project'))
    other = {**nothing, 'score': 0.91, 'foreground': None, 'earlier': None}
    shown = {**incident, 'host': None, 'action': None,
             'antagonists': [other] if incident['antagonists'] else []}
    if 'suspects' in incident:
        shown |= {
            'suspects': [{**other, 'antagonist': True}], 'caps': [],
            'missing': [],
            'grounds': [{**incident['grounds'][0], **nothing,
                         'share': 0.6}],
            'evidence': incident['evidence'][:1]}
    return shown


def workload(name: str = 'nightly', *limits: tuple[Any, ...]
             ) -> dict[str, Any]:
    """A background instance of the project.

    :param limits: knob, seconds of 30 days, value and owner
    """
    return {'id': VICTIM, 'host': None, 'name': name, 'kind': 'instance',
            'instance': VICTIM, 'display_name': name, 'flavor': 'tiny',
            'project': PROJECT, 'application': '', 'source': 'flavor',
            'vcpus': 2.0, 'floor': {}, 'since_at': at(-900),
            'until_at': None, 'priority': 'background', 'limits': [
                {'knob': knob, 'limited_s': limited_s,
                 'in_force': value is not None, 'value': value,
                 'owner': owner, 'set_at': value and at(0)}
                for knob, limited_s, value, owner in limits]}


def eviction(**fields: Any) -> dict[str, Any]:
    """One of a minute ago, as its project sees it."""
    return {'id': 'e' * 32, 'instance': VICTIM, 'name': 'nightly',
            'host': None, 'project': PROJECT, 'how': 'stop', 'reason': None,
            'created_by': None, 'created_at': at(
                -60, datetime.datetime.now(datetime.UTC)), 'state': 'asked',
            'detail': None, 'changed_at': None, **fields}
