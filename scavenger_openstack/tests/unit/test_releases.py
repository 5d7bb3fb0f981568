# SPDX-License-Identifier: Apache-2.0

"""Agents and conductors of releases that differ: each passes over fields that
it does not know, and goes without those that it does not get."""

from __future__ import annotations

import json
import pathlib
from typing import Any
from typing import get_args
from typing import get_origin
from typing import get_type_hints
from typing import Literal

import fixtures
from msgspec import structs

from scavenger_openstack.agent.control_plane import sync
from scavenger_openstack.agent.events import store
from scavenger_openstack.conductor import service
from scavenger_openstack.db import tables
from scavenger_openstack import errors
from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Mode
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import received
from scavenger_openstack.wire import report
from scavenger_openstack.wire import tag

NOW = cloud.NOW
VM = '66666666-7777-4888-8999-aaaaaaaaaaaa'
ENTRY: dict[str, Any] = {'time_s': NOW}

LEAST: dict[type[report.Wire], dict[str, Any]] = {
    report.Workload: {'id': VM, 'priority': 'background'},
    report.Suspect: {'workload': '/batch/a'},
    report.Series: {'workload': VM, 'signal': 'cpi', 'times_s': [NOW],
                    'values': [1.0]},
    report.Incident: {**ENTRY, 'sequence': 1, 'id': 'a' * 32, 'what': 'began',
                      'begun_s': NOW, 'victim': VM, 'signal': 'cpi'},
    report.Limit: {**ENTRY, 'sequence': 2, 'workload': '/batch/a',
                   'knob': 'cpu_cores', 'what': 'set', 'since_s': NOW,
                   'owner': 'scavenger'},
    report.Kill: {**ENTRY, 'sequence': 3, 'workload': '/batch/a',
                  'processes': 1, 'owner': 'memory'},
    report.AgentEvent: {**ENTRY, 'sequence': 4, 'what': 'state'},
    report.Statistics: {
        **ENTRY, 'sequence': 5, 'project': 'p', 'application': 'shop',
        'cpu_model': 'cpu', 'signal': 'cpi', 'hour_s': NOW, 'n': 1,
        'mean': 1.0, 'm2': 0.0, 'least': 1.0, 'most': 1.0},
    report.Report: {'host': 'node-1', 'boot_id': 'b', 'run_id': 'r',
                    'sent_s': NOW},
    report.Override: {'id': 'o', 'workload': '/batch/a', 'knob': 'cpu_cores',
                      'value': 0.5, 'reason': 'why', 'expires_s': NOW + 60},
    report.Tag: {'instance': VM, 'priority': 'foreground'},
    report.Spec: {'project': 'p', 'application': 'shop', 'cpu_model': 'cpu',
                  'signal': 'cpi', 'mean': 1.8, 'stddev': 0.1, 'n': 500},
    report.Budget: {'limits': 3, 'until_s': NOW + 60},
    report.Directives: {'issued_s': NOW, 'digest': 'd'},
    report.Answer: {'acknowledged': 5}}
"""The fields of each type that have to be there."""

ENTRIES = (report.Incident, report.Limit, report.Kill, report.AgentEvent,
           report.Statistics)


CLOSED = {
    (report.Workload, 'priority'): {'foreground', 'background'},
    (report.Tag, 'priority'): {'foreground', 'background'},
    (tag.InstanceTag, 'priority'): {'foreground', 'background'},
    (tag.InstanceTag, 'source'): {'default', 'flavor'},
    (report.Incident, 'what'): {'began', 'changed', 'ended'},
    (report.Limit, 'what'): {'set', 'changed', 'removed'},
    (report.AgentEvent, 'what'): {'started', 'state', 'ended'},
    (report.Profiling, 'what'): {'began', 'measured', 'ended'}}
"""The fields that have no other words, and these: what says something else is
a new type of entry, or a new field."""


def literals(kind: Any) -> set[str]:
    """The words that a type allows, also within others."""
    if get_origin(kind) is Literal:
        return set(get_args(kind))
    return {word for part in get_args(kind) for word in literals(part)
            if not isinstance(part, str)}


def message(later: bool, kind: type[report.Wire], **more: Any
            ) -> dict[str, Any]:
    """One with the least fields and some more.

    :param later: it has one that is not known yet
    """
    tag = kind.__struct_config__.tag
    return {**LEAST[kind], **more, **({'type': tag} if tag else {}),
            **({'later': {'one': [1, None]}} if later else {})}


def reported(later: bool) -> bytes:
    """A report with one of each kind."""
    entries = [message(later, kind) for kind in ENTRIES]
    if later:
        entries[0] |= {
            'suspects': [message(later, report.Suspect)],
            'evidence': [message(later, report.Series)]}
    return json.dumps(message(
        later, report.Report, entries=entries, workloads_digest='w',
        workloads=[message(later, report.Workload)], **(
            {'facts': {'later': 1}} if later else {}))).encode()


def answered(later: bool) -> bytes:
    """An answer with one of each kind."""
    return json.dumps(message(
        later, report.Answer, budget=message(later, report.Budget),
        directives=message(
            later, report.Directives, modes={'scavenger': 'observe'},
            tags=[message(later, report.Tag)],
            overrides=[message(later, report.Override)],
            specs=[message(later, report.Spec)]))).encode()


class Releases(cloud.Sqlite, cloud.Mixin):

    def test_what_has_to_be_there(self) -> None:
        """No field is added to these, but with a new schema."""
        self.assertEqual(1, report.SCHEMA)
        for kind, fields in LEAST.items():
            self.assertEqual(fields.keys(), {
                field.name for field in structs.fields(kind)
                if field.required}, kind.__name__)

    def test_a_report(self) -> None:
        for later in (False, True):
            conductor = service.Conductor(self.engine, lambda: NOW)
            data = reported(later).replace(
                b'"node-1"', b'"node-2"' if later else b'"node-1"').replace(
                    b'a' * 32, b'b' * 32 if later else b'a' * 32)
            answer = codec.decode(conductor.answer(data), report.Answer,
                                  report.MAX_ANSWER_BYTES)
            self.assertEqual((5, 'w'), (answer.acknowledged,
                                        answer.workloads_digest))
            assert answer.directives is not None
        for table in (tables.hosts, tables.workloads, tables.incidents,
                      tables.caps):
            self.assertEqual(2, len(self.rows(table)), table.name)

    def test_closed_sets(self) -> None:
        """Every other field takes each word, so that a conductor stores what
        agents of the next release report."""
        kinds = {kind for kind in (*vars(report).values(), tag.InstanceTag)
                 if isinstance(kind, type) and issubclass(kind, report.Wire)}
        self.assertEqual(CLOSED, {
            (kind, name): words for kind in kinds for name, hint in
            get_type_hints(kind, include_extras=True).items()
            if not name.startswith('__') and (words := literals(hint))})

    def later_report(self, *entries: dict[str, Any], **more: Any) -> bytes:
        return json.dumps(message(False, report.Report, entries=entries,
                                  **more)).encode()

    def test_types_of_entries_that_are_not_known(self) -> None:
        """They are acknowledged, and the rest is stored."""
        log = self.useFixture(fixtures.FakeLogger())
        conductor = service.Conductor(self.engine, lambda: NOW)
        lost = {**ENTRY, 'sequence': 3, 'type': 'steal', 'cores': [1, None]}
        data = self.later_report(
            {**lost, 'sequence': 1}, message(False, report.Limit), lost,
            facts={'version': '9.0'})
        for _ in range(2):
            self.assertEqual(3, codec.decode(
                conductor.answer(data), report.Answer,
                report.MAX_ANSWER_BYTES).acknowledged)
        self.assertEqual(['cpu_cores'], self.rows(tables.caps, 'knob'))
        self.assertEqual(1, log.output.count(
            'node-1 (version 9.0): entries of types'), log.output)
        self.assertIn(': steal;', log.output)

    def test_only_these_are_left_out(self) -> None:
        """What is wrong otherwise is refused, as its agent then finds it."""
        other = {**ENTRY, 'sequence': 1, 'type': 'steal'}
        for wrong in ({**other, 'sequence': 0}, {**other, 'time_s': -1},
                      {'type': 'steal'}, {**other, 'type': 'Steal\x1b'},
                      {**other, 'type': 'x' * 33}, {**other, 'type': None},
                      {**message(False, report.Limit), 'what': 'steal'}):
            self.assertRaises(errors.WireError, received.report,
                              self.later_report(other, wrong))
        self.assertRaises(errors.WireError, received.report,
                          self.later_report(*[other] * 501))
        for data in (b'', b'[]', b'{"entries": 1}', b'{"entries": [1]}'):
            self.assertRaises(errors.WireError, received.report, data)

    def test_words_that_are_not_known(self) -> None:
        """They are stored as they are."""
        conductor = service.Conductor(self.engine, lambda: NOW)
        data = self.later_report(
            message(False, report.Incident, outcome='forgiven', grounds=[
                {'kind': 'rumour', 'workload': '/batch/a', 'weight': 1}]),
            message(False, report.Limit, knob='bus_bytes_per_s', value=5e8),
            workloads=[{**message(False, report.Workload), 'kind': 'pod',
                        'floor': {'bus_bytes_per_s': 1e6}}],
            workloads_digest='w',
            facts={'grade': 'D', 'modes': {'bus': 'advise'},
                   'own_modes': {'bus': 'advise'},
                   'limited': ['bus_bytes_per_s'],
                   'capacity': {'bus': 1e9}})
        conductor.answer(data)
        self.assertEqual(['bus_bytes_per_s'], self.rows(tables.caps, 'knob'))
        self.assertEqual(['forgiven'], self.rows(tables.incidents, 'outcome'))
        self.assertEqual(['pod'], self.rows(tables.workloads, 'kind'))
        for odd in ('Enforce', 'a b', 'x' * 33, '', '\x1b'):
            self.assertRaises(
                errors.WireError, conductor.answer, self.later_report(
                    facts={'modes': {'bus': odd}}))
        self.assertRaises(
            errors.WireError, conductor.answer, self.later_report(
                facts={'used': {f'r{number}': 1.0 for number in range(51)}}))

    def test_an_answer(self) -> None:
        for later in (False, True):
            directory = pathlib.Path(self.useFixture(
                fixtures.TempDir()).path)
            data = answered(later)
            agent = sync.make(
                lambda report_, data=data: data,    # type: ignore[misc]
                directory / 'sync', store.Store(
                    directory / 'history', 2 ** 20, 2 ** 20), host='node-1',
                boot_id='b', version='1', sync_s=10.0)
            self.assertTrue(agent.turn())
            self.assertEqual({}, agent.directives.refused)
            orders = agent.orders
            self.assertEqual(
                ({'scavenger': Mode.OBSERVE}, frozenset({VM}),
                 [('/batch/a', Knob.CPU_CORES, 0.5)], 1),
                (orders.modes, orders.foreground,
                 [(one.workload, one.knob, one.value)
                  for one in orders.overrides], len(orders.specs)))
            assert orders.budget is not None
            self.assertEqual(3, orders.budget.limits)
