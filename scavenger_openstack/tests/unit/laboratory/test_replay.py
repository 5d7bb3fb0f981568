# SPDX-License-Identifier: Apache-2.0



"""Replays: the same decisions again, other settings, two side by side."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
import json
import pathlib
from typing import Any

import fixtures
import testtools

from scavenger_openstack import errors
from scavenger_openstack.grounds import Ground
from scavenger_openstack.grounds import GroundKind
from scavenger_openstack.laboratory import replay
from scavenger_openstack.laboratory import replay_compare
from scavenger_openstack.laboratory import replay_output
from scavenger_openstack.laboratory import replay_settings
from scavenger_openstack.recording import order_format
from scavenger_openstack.recording import rates_table
from scavenger_openstack.recording import replay as recordings_
from scavenger_openstack.recording import table_files
from scavenger_openstack.tests.unit import recordings
from scavenger_openstack import text as text_
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Decision
from scavenger_openstack.types import Incident
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Mode
from scavenger_openstack.types import Rates

HEADER = ','.join(rates_table.REQUIRED) + ',host'

FAST = {Knob.CPU_CORES}
"""What the recorded fast loop asks for, whatever the slow one does."""


class Watcher:
    """A detector: whatever has a CPI above 2 is a victim, all else caps."""

    name, kind = 'watcher', 'detector'

    class params_type:
        pass

    def __init__(self, params: Any = None, *, interval_s: float = 1.0,
                 host: str = '', boot_id: str = '') -> None:
        self.host = host
        self.interval_s = interval_s
        self.seen = 0

    def step(self, now: float, rates: Rates) -> Decision:
        self.seen += 1
        victims = [one for one in rates.workloads if (one.cpi or 0) > 2]
        others = [one.workload.id for one in rates.workloads
                  if one not in victims]
        return Decision(
            tuple(Cap(name, Knob.CPU_CORES, 0.1, self.name, 'suspect')
                  for name in others if victims),
            tuple(Incident(f'i-{one.workload.id}', now, self.host,
                           one.workload.id, 'cpi', one.cpi, 2.0, 'cpu',
                           tuple((name, 0.75) for name in others),
                           tuple(others), grounds=tuple(
                               Ground(name, GroundKind.TIMING, 0.75)
                               for name in others)) for one in victims),
            {'seen': self.seen, 'worst': float('inf')})

    def compare(self, specs: object) -> None:
        """It has none."""

    def allow(self, budget: object) -> None:
        """It limits all the same."""

    def evidence(self, incident: object) -> tuple[()]:
        return ()

    def state(self) -> dict[str, Any]:
        return {}

    def load(self, state: Mapping[str, Any], now: float) -> None:
        pass


DETECTOR = replay_settings.Settings((replay_settings.Setting(
    'watcher', Watcher, Mode.ENFORCE, {}),))


class ReplayTestCase(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)
        self.path = self.directory / 'a.recording'

    def record(self, count: int, seed: int = 1, mode: Mode = Mode.ENFORCE,
               after: recordings.Host | None = None,
               protect: str = '', asked: bool = False) -> recordings.Host:
        self.path.unlink(missing_ok=True)
        host = recordings.Host(self.path, seed, mode, after, protect, asked)
        self.addCleanup(host.recorder.close)
        self.made = host.ticks(count)
        return host

    def opened(self, *changes: str
               ) -> tuple[replay.Recording, replay_settings.Settings]:
        recording = recordings_.read(self.path)
        self.addCleanup(recording.close)
        settings, notes = replay_settings.of_header(recording.header)
        self.assertEqual([], notes)
        return (replay.Recording(recording),
                replay_settings.changed(settings, changes))

    def steps(self, *changes: str) -> list[replay.Step]:
        return list(replay.run(*self.opened(*changes)))

    def played(self, *changes: str) -> Iterator[tuple[
            replay.Step, replay_settings.Settings]]:
        """Each step, and the settings that hold then."""
        source, settings = self.opened(*changes)
        player = replay.Player('node7', settings)
        for _, moment in source.moments():
            yield player.step(moment), player.settings

    def verify(self) -> tuple[int, int, replay.Difference | None]:
        recording = recordings_.read(self.path)
        self.addCleanup(recording.close)
        settings, _ = replay_settings.of_header(recording.header)
        return replay.verify(recording, settings)

    def table(self, *rows: str) -> rates_table.Table:
        path = self.directory / 'rates.csv'
        path.write_text('\n'.join((HEADER, *rows)))
        return table_files.read(path, {})


class VerifyTest(ReplayTestCase):

    def test_all_that_operators_ask_for_counts(self) -> None:
        for seed, mode in ((1, Mode.ENFORCE), (2, Mode.ENFORCE),
                           (3, Mode.OBSERVE), (4, Mode.OFF)):
            self.record(500, seed, mode, asked=True)
            ticks, _, difference = self.verify()
            self.assertIsNone(difference)
            self.assertEqual(500, ticks)

    def test_what_is_set_by_hand_stays(self) -> None:
        """Whatever operators asked for then."""
        self.record(300, asked=True)
        lines = self.path.read_text()
        for _, settings in self.played('cpi2.outlier_sigmas=1'):
            self.assertEqual(1.0, settings.params('cpi2').outlier_sigmas)
        self.assertIn('"params":{"cpi2":{"outlier_sigmas"', lines)

    def test_a_parameter_that_is_not_known(self) -> None:
        for params, word in (({'scavenger': {'color': 1}}, 'no such'),
                             ({'scavenger': {'memory_c': 'x'}}, 'memory_c'),
                             ({'perfiso': {'buffer_cores': 1}}, ''),
                             ({'another': {}}, '')):
            self.record(2)
            lines = self.path.read_text().splitlines()
            lines[2] = json.dumps({**json.loads(lines[2]), 'params': params})
            self.path.write_text('\n'.join(lines) + '\n')
            if word:
                self.assertIn(word, str(self.assertRaises(
                    errors.ConfigError, self.verify)))
            else:
                self.assertIsNone(self.verify()[2])

    def test_what_was_not_protected_is_not_limited_again(self) -> None:
        self.record(200, protect='memory')
        self.assertIsNone(self.verify()[2])
        lines = self.path.read_text().splitlines(keepends=True)
        header = json.loads(lines[0])
        self.assertEqual(['memory'], header.pop('protect'))
        self.path.write_text(json.dumps(header) + '\n' + ''.join(lines[1:]))
        self.assertIsNotNone(self.verify()[2])

    def test_what_was_learned_before_counts(self) -> None:
        before = self.record(50)
        self.record(50, seed=2, after=before)
        self.assertIsNone(self.verify()[2])
        lines = self.path.read_text().splitlines(keepends=True)
        header = json.loads(lines[0])
        self.assertTrue(header['controllers'][0].pop('state'))
        self.path.write_text(json.dumps(header) + '\n' + ''.join(lines[1:]))
        self.assertIsNotNone(self.verify()[2])

    def test_a_replay_wants_what_the_agent_wanted(self) -> None:
        self.record(300)
        for tick, step in zip(self.made, self.steps(), strict=True):
            if tick.decided and tick.sample:
                self.assertEqual((tick.sample.time_s, tick.decided.wanted,
                                  tick.decided.decisions),
                                 (step.time_s, step.wanted,
                                  step.decided and step.decided.decisions))

    def test_whatever_is_changed_is_found(self) -> None:
        """Each part of a line counts: leave it out, and it shows."""
        self.record(500, seed=2, asked=True)
        lines = [json.loads(line)
                 for line in self.path.read_text().splitlines()]
        for field in ('stopped', 'unwatched', 'reset', 'originals', 'fast',
                      'unmet', 'pending', 'wanted', 'would', 'sample',
                      'orders', 'params'):
            self.assertTrue(any(field in line for line in lines[2:]), field)
            changed = [line if number < 2 else {
                name: value for name, value in line.items() if name != field}
                for number, line in enumerate(lines)]
            self.path.write_text('\n'.join(map(json.dumps, changed)) + '\n')
            self.differs(field)

    def differs(self, field: str) -> None:
        _, _, difference = self.verify()
        assert difference is not None, field
        self.assertGreater(difference.line, 2, field)

    def test_whatever_operators_asked_for_is_found(self) -> None:
        """But for the budget, which no controller here asks for."""
        self.record(500, seed=2, asked=True)
        lines = self.path.read_text().splitlines()
        for part in {*order_format.PARTS} - {'budget'}:
            changed = list(map(json.loads, lines))
            for line in changed:
                line.get('orders', {}).pop(part, None)
            self.path.write_text('\n'.join(map(json.dumps, changed)) + '\n')
            self.differs(part)

    def test_a_changed_number_is_named_with_its_line(self) -> None:
        self.record(100)
        lines = self.path.read_text().splitlines()
        place, line = next(
            (place, json.loads(line)) for place, line in enumerate(lines)
            if place > 20 and '"wanted"' in line and '"memory_bytes"' in line)
        group = next(one for one in line['wanted']
                     if one['knob'] == 'memory_bytes')
        workload = next(iter(group['values']))
        group['values'][workload] = 12345678
        lines[place] = json.dumps(line)
        self.path.write_text('\n'.join(lines) + '\n')
        _, _, difference = self.verify()
        assert difference is not None
        self.assertEqual(place + 1, difference.line)
        for word in (workload, 'memory_bytes', '12345678', 'replayed'):
            self.assertIn(word, difference.what)

    def test_incidents_are_compared_too(self) -> None:
        told = replay.Changed(incidents=(replay.changes.IncidentChange(
            'w', Incident('i', 1.0, 'h', 'v', 's', 1.0, 0.5, 'c'), False),))
        self.assertEqual('', replay.difference(told, told))
        self.assertIn('incidents', replay.difference(told, replay.Changed()))
        self.assertIn('incidents', replay.difference(replay.Changed(), told))


class SettingsTest(ReplayTestCase):

    def test_from_observe_to_enforce(self) -> None:
        self.record(50, mode=Mode.OBSERVE)
        self.assertTrue(any(step.would for step in self.steps()))
        self.assertEqual(set(), self.knobs() - FAST)
        enforced = self.knobs('scavenger.mode=enforce')
        self.assertLess({Knob.MEMORY_BYTES, Knob.CPU_IDLE}, enforced)
        self.record(50)
        self.assertIn(Knob.PAUSED, self.knobs())
        self.assertEqual(set(), self.knobs('scavenger.mode=observe') - FAST)

    def knobs(self, *changes: str) -> set[Knob]:
        return {key[1] for step in self.steps(*changes)
                for key in step.wanted}

    def test_a_wrong_change_is_told(self) -> None:
        self.record(1)
        for change, *words in (
                ('memory_c=3', 'section.option=value'),
                ('scavenger.memory_c', 'section.option=value'),
                ('scavanger.memory_c=3', 'did you mean scavenger?'),
                ('scavenger.memry_c=3', 'did you mean memory_c?'),
                ('scavenger.memory_c=lots', 'memory_c', 'lots'),
                ('scavenger.memory_c=', 'memory_c'),
                ('scavenger.memory_c=-1', 'memory_c', '-1'),
                ('scavenger.memory_window_s=nan', 'finite'),
                ('scavenger.memory_c=nan', 'finite'),
                ('scavenger.mode=on', 'mode', 'on'),
                ('perfiso.buffer_cores=2', 'fast loop')):
            error = self.assertRaises(errors.ConfigError, self.opened, change)
            for word in ('--set', *words):
                self.assertIn(word, str(error))

    def test_a_header_of_another_version(self) -> None:
        self.record(1)
        first, *rest = self.path.read_text().splitlines()

        def read(change: Any) -> Any:
            header = json.loads(first)
            change(header['controllers'][0])
            self.path.write_text('\n'.join((json.dumps(header), *rest, '')))
            return replay_settings.of_header(
                recordings_.read(self.path).header)

        _, [note] = read(lambda one: one['params'].pop('memory_c'))
        self.assertIn('scavenger.memory_c is not in the recording: 2.0', note)
        for change, word in (
                (lambda one: one.update(name='psychic'), 'psychic'),
                (lambda one: one['params'].update(future=1), 'future'),
                (lambda one: one['params'].update(use_ipc=[1]), 'use_ipc'),
                (lambda one: one['params'].update(use_ipc=None), 'use_ipc'),
                (lambda one: one['params'].update(memory_c='x'), 'memory_c')):
            self.assertIn(word, str(self.assertRaises(
                errors.ConfigError, read, change)))


class TableTest(ReplayTestCase):

    def test_each_host_has_its_own_controllers(self) -> None:
        table = self.table(
            '10,v,foreground,,,1,3,,,,,,,one', '10,a,background' + ',' * 10
            + ',one', '12,v,,,,1,1,,,,,,,one', '5,v,,,,1,1,,,,,,,two',
            '6,v,,,,1,2.5,,,,,,,two')
        steps = list(replay.run(replay.Table(table, rates_table.Capacity()),
                                DETECTOR))
        self.assertEqual(
            [('one', 10.0, 1), ('one', 12.0, 2), ('two', 5.0, 1),
             ('two', 6.0, 2)],
            [(step.host, step.time_s, step.decided.decisions[
                'watcher'].facts['seen']) for step in steps if step.decided])
        documents = [json.loads(text_.json_line(one))
                     for step in steps for one in
                     replay_output.documents(step)]
        self.assertEqual(
            [('incident', 'one', 10.0, False), ('cap', 'one', 10.0, None),
             ('incident', 'one', 12.0, True), ('cap', 'one', 12.0, None),
             ('incident', 'two', 6.0, False)],
            [(one['type'], one['host'], one['time_s'], one.get('ended'))
             for one in documents])
        first, cap, _, removed, _ = documents
        self.assertEqual(
            {'type': 'incident', 'time_s': 10.0, 'host': 'one',
             'controller': 'watcher', 'id': 'i-v', 'victim': 'v',
             'signal': 'cpi', 'value': 3.0, 'threshold': 2.0, 'cause': 'cpu',
             'suspects': [{'workload': 'a', 'score': 0.75}],
             'antagonists': ['a'], 'grounds': [
                 {'workload': 'a', 'kind': 'timing', 'share': 0.75}],
             'action': '', 'outcome': 'open',
             'since_s': 10.0, 'ended': False,
             'facts': {'watcher': {'seen': 1, 'worst': None}}}, first)
        self.assertEqual(
            {'type': 'cap', 'time_s': 10.0, 'host': 'one',
             'controller': 'watcher', 'mode': 'enforce', 'workload': 'a',
             'knob': 'cpu_cores', 'value': 0.1, 'reason': 'suspect',
             'rates': {'interval_s': 2.0},
             'facts': {'watcher': {'seen': 1, 'worst': None}}}, cap)
        self.assertEqual((None, 'no longer wanted (was 0.1)'),
                         (removed['value'], removed['reason']))


class CompareTest(ReplayTestCase):

    def compare(self, *changes: str) -> replay_compare.Comparison:
        source, before = self.opened()
        return replay_compare.compare(
            source, before, replay_settings.changed(before, changes),
            ('recorded', ' '.join(changes)))

    def test_counts_and_the_first_difference(self) -> None:
        for mode in (Mode.ENFORCE, Mode.OBSERVE):
            self.record(100, mode=mode)
            found = self.compare('scavenger.use_cpu_idle=false')
            one, two = found.one, found.two
            key = ('node7', '/batch', Knob.CPU_IDLE)
            limited = one.knobs[key]
            steps = self.steps()
            self.assertEqual(
                sum(key[1:] in replay_compare.limits(step)
                    for step in steps), limited.ticks)
            self.assertEqual(1.0, limited.mean)
            self.assertNotIn(key, two.knobs)
            self.assertGreater(one.set, two.set)
            assert found.first is not None
            self.assertEqual(('cpu_idle', [1, None]),
                             (found.first['knob'], found.first['values']))
            text = '\n'.join(found.lines())
            for word in ('recorded', 'use_cpu_idle=false', 'caps set',
                         '/batch cpu_idle', 'first difference'):
                self.assertIn(word, text)
            document = json.loads(text_.json_line(found.as_json()))
            self.assertEqual('comparison', document['type'])
            self.assertEqual([one.ticks, two.ticks], [
                each['ticks'] for each in document['settings']])
