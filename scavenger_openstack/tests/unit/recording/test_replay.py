# SPDX-License-Identifier: Apache-2.0



"""Reading recordings: each wrong line and field is named; the driver."""

from __future__ import annotations

from collections.abc import Callable
import copy
import json
import pathlib
import sys
from typing import Any

import fixtures
import testtools

from scavenger_openstack.agent import parts
from scavenger_openstack.decision import orders
from scavenger_openstack import errors
from scavenger_openstack.recording import line_format
from scavenger_openstack.recording import order_format
from scavenger_openstack.recording import replay
from scavenger_openstack.tests.unit import recordings
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority
from scavenger_openstack.wire.json_fields import as_json

HEADER = {
    'type': 'header', 'schema': 2, 'version': '1', 'host': 'h',
    'boot_id': 'b', 'time_s': 1.0, 'wall_time_s': 2.0, 'interval_s': 1.0,
    'loaded_s': 1.0, 'controllers': [
        {'name': 'scavenger', 'mode': 'enforce', 'params': {'memory_c': 2.0},
         'state': None}],
    'isolation': {'name': 'perfiso', 'mode': 'off', 'params': {}}}

TICK = {
    'type': 'tick', 'time_s': 2.0, 'sample': {
        'schema': 1, 'host': 'h', 'boot_id': 'b', 'cpu_model': None,
        'topology': {'0': {'core': 0, 'llc': 0, 'numa': 0}}, 'links': {},
        'link_of': {}, 'llc_ways': 11, 'memory_limit_ends': True,
        'time_s': 2.0, 'wall_time_s': 3.0,
        'cpu_busy_s': {'0': 1.5}, 'memory_total_bytes': 7,
        'workloads': [{'workload': {
            'id': '/a', 'priority': 'background', 'floor': {
                'cpu_cores': 0.1}, 'allowed_cpus': [1, 0]},
            'cpu_s': 1.0, 'memory_bytes': 0}]},
    'originals': {'cpu_set': {'/a': '0-1'}, 'cpu_cores': {'/a': 0.5}},
    'fast': {'sets': ['/a'], 'floors': [
        {'knob': 'cpu_cores', 'owner': 'perfiso', 'reason': 'r',
         'values': {'/a': 0.1}}]},
    'unmet': {'/a': 3}, 'pending': [['/a', 'memory_bytes']],
    'written': [['/a', 'cpu_cores', 0.5, None]],
    'removed': [['/a', 'paused']], 'problems': ['p'],
    'wanted': [{'knob': 'cpu_set', 'owner': 'o', 'reason': 'r',
                'values': {'/a': '0', '/b': None}}],
    'orders': {
        'modes': {'cpi2': 'off'}, 'exempt': ['p'],
        'overrides': [{'id': 'o', 'workload': '/a', 'instance': '',
                       'knob': 'cpu_cores', 'value': 0.5, 'reason': 'r',
                       'until_s': 9.0}],
        'budget': {'limits': 3, 'until_s': 9.0, 'lease': 1.0},
        'specs': [{'project': 'p', 'application': 'a', 'cpu_model': 'c',
                   'signal': 'cpi', 'mean': 1.0, 'stddev': 0.1,
                   'samples': 9.0, 'tasks': 0, 'source': 'directive',
                   'cpu_cores': None}]},
    'params': {'scavenger': {'memory_c': 3.0}},
    'incidents': [{'controller': 'c', 'incident': {
        'id': 'i', 'time_s': 1.0, 'host': 'h', 'victim': 'v',
        'signal': 's', 'cause': 'x', 'suspects': [['/a', 0.5]]}}]}

NEXT = {'type': 'tick', 'time_s': 3.0, 'sample': {
    'time_s': 3.0, 'wall_time_s': 4.0,
    'workloads': [{'id': '/a', 'cpu_s': 2.0}]}}

NAN = float('nan')


def put(where: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Sets what ``where`` names, such as ``sample/workloads/0/cpu_s``."""
    *path, last = where.split('/')

    def change(line: dict[str, Any]) -> None:
        at: Any = line
        for part in path:
            at = at[int(part) if isinstance(at, list) else part]
        place: Any = int(last) if isinstance(at, list) else last
        if value is NotImplemented:
            del at[place]
        else:
            at[place] = value
    return change


class RecordingTestCase(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.path = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path) / 'a.recording'

    def write(self, *lines: Any) -> None:
        self.path.write_bytes(b''.join(
            line if isinstance(line, bytes) else
            json.dumps(line).encode() + b'\n' for line in lines))

    def read(self) -> list[line_format.RecordedTick]:
        return list(replay.read(self.path))

    def fails(self, line: int, *words: str) -> None:
        """Reading fails with one line that names the place."""
        error = self.assertRaises(errors.DriverError, self.read)
        said = str(error)
        self.assertTrue(said.startswith(f'{self.path}:{line}: '), said)
        self.assertNotIn('\n', said)
        for word in words:
            self.assertIn(word, said)


class ReadTest(RecordingTestCase):

    def test_every_field(self) -> None:
        self.write(HEADER, TICK, NEXT)
        first, second = self.read()
        assert first.sample is not None and second.sample is not None
        found = as_json(first.sample)
        expected = copy.deepcopy(TICK['sample'])
        del expected['cpu_model']               # type: ignore[attr-defined]
        del expected['links'], expected['link_of']  # type: ignore
        workload = expected['workloads'][0]['workload']  # type: ignore
        workload.update(source='default', vcpus=1.0, killable=False,
                        protected=True, created_s=0.0, allowed_cpus=[0, 1])
        self.assertEqual(expected, found)
        self.assertIs(first.sample.workloads[0].workload,
                      second.sample.workloads[0].workload)
        self.assertIs(Priority.BACKGROUND,
                      second.sample.workloads[0].workload.priority)
        self.assertEqual(first.sample.topology, second.sample.topology)
        self.assertEqual(first.originals, second.originals)
        self.assertEqual({('/a', Knob.CPU_SET): '0-1',
                          ('/a', Knob.CPU_CORES): 0.5}, first.originals)
        self.assertEqual(frozenset(['/a']), first.fast_sets)
        self.assertEqual(('/a', 'cpu_cores', 0.1, 'perfiso', 'r'),
                         first.floors[0])
        self.assertEqual({('/a', 'cpu_set'): ('/a', 'cpu_set', '0', 'o', 'r'),
                          ('/b', 'cpu_set'): None}, first.decided.wanted)
        [told] = first.decided.incidents
        self.assertEqual(('c', 'open', None, (('/a', 0.5),)), (
            told.controller, told.incident.outcome, told.incident.value,
            told.incident.suspects))
        self.assertEqual(({}, ()), (second.unmet, second.removed))
        self.assertEqual(({'scavenger': {'memory_c': 3.0}}, {}),
                         (first.params, second.params))
        self.assertEqual(TICK['orders'], order_format.changed(
            first.orders, orders.NO_ORDERS))
        self.assertEqual(first.orders, second.orders)

    def test_a_wrong_field_is_named(self) -> None:
        for where, value, *words in (
                ('type', 'tock', 'type: ', "'tock'"),
                ('type', 'header', 'type: ', 'second header'),
                ('time_s', NotImplemented, 'time_s: missing'),
                ('time_s', '2', 'time_s: ', "'2' is not a number"),
                ('time_s', True, 'time_s: '),
                ('time_s', NAN, 'time_s: '),
                ('time_s', 0.5, 'time_s: ', 'before'),
                ('stopped', 1, 'stopped: ', 'true or false'),
                ('surprise', 1, 'surprise: no such field'),
                ('sample', [], 'sample: '),
                ('sample/schema', 2, 'sample: schema: 2'),
                ('sample/host', NotImplemented, 'sample: host: missing'),
                ('sample/boot_id', None, 'sample: boot_id: None'),
                ('sample/color', 1, 'sample: color: no such field'),
                ('sample/time_s', NotImplemented, 'sample: time_s: missing'),
                ('sample/topology/x', {}, 'topology: ', "'x'"),
                ('sample/topology/0/core', -1, 'topology: 0: core: -1'),
                ('sample/cpu_busy_s/0', -1, 'cpu_busy_s: 0: -1'),
                ('sample/cpu_busy_s/65536', 1, 'cpu_busy_s: ', '65536'),
                ('sample/memory_total_bytes', -1, 'memory_total_bytes: -1'),
                ('sample/memory_total_bytes', 10 ** 30,
                 'memory_total_bytes: 1000'),
                ('sample/memory_total_bytes', 1e30,
                 'memory_total_bytes: 1e+30'),
                ('sample/time_s', -1e300, 'time_s: -1e+300'),
                ('sample/workloads', {}, 'workloads: ', 'a list'),
                ('sample/workloads/0', 3, 'workloads[0]: 3'),
                ('sample/workloads/0/cpu_s', 'x', 'workloads[0]: cpu_s: '),
                ('sample/workloads/0/cpu_s', -0.1, 'cpu_s: -0.1'),
                ('sample/workloads/0/cpus', 1, 'cpus: no such field'),
                ('sample/workloads/0/workload', NotImplemented,
                 'workloads[0]: id: missing'),
                ('sample/workloads/0/workload/id', NotImplemented,
                 'workload: id: missing'),
                ('sample/workloads/0/workload/priority', 'mine',
                 "workload: priority: 'mine' is not foreground or "
                 'background'),
                ('sample/workloads/0/workload/floor/cpu', 1,
                 "floor: 'cpu' is not a knob"),
                ('sample/workloads/0/workload/allowed_cpus', ['0'],
                 "allowed_cpus: '0'"),
                ('sample/workloads', TICK['sample']['workloads']  # type: ignore
                 * 2, "workloads[1]: '/a' is there twice"),
                ('originals/cpu', {}, "originals: 'cpu' is not a knob"),
                ('originals/cpu_set', {'/a': 'x'}, 'originals: cpu_set: /a: ',
                 'CPU list'),
                ('fast/set', [], 'fast: set: no such field'),
                ('unmet', {'/a': '1'}, "unmet: /a: '1'"),
                ('pending/0', ['/a'], 'pending: '),
                ('written/0', ['/a', 'cpu_cores', -1, None], 'written: -1'),
                ('removed', 'all', "removed: 'all'"),
                ('lifted', [], 'lifted: no such field'),
                ('anew', True, 'anew: no such field'),
                ('problems', [1], 'problems: 1'),
                ('wanted/0/values', [], 'wanted[0]: values: '),
                ('wanted/0/values', {'/a': 3}, 'wanted[0]: values: /a: 3'),
                ('wanted/0/owner', NotImplemented,
                 'wanted[0]: owner: missing'),
                ('orders/mode', {}, 'orders: mode: no such field'),
                ('orders/modes/cpi2', 'on', "orders: modes: cpi2: 'on'"),
                ('orders/exempt', 'p', 'orders: exempt: '),
                ('orders/overrides/0/value', -1, 'overrides[0]: value: -1'),
                ('orders/overrides/0/knob', 'x', 'overrides[0]: knob: '),
                ('orders/overrides/0/id', NotImplemented,
                 'overrides[0]: id: missing'),
                ('orders/budget', 3, 'orders: budget: 3'),
                ('orders/budget/limits', 1.5, 'budget: limits: 1.5'),
                ('orders/specs/0/mean', NAN, 'specs[0]: mean: '),
                ('orders/specs/0/cpu_cores', -1, 'specs[0]: cpu_cores: '),
                ('orders/specs/0/signal', NotImplemented,
                 'specs[0]: signal: missing'),
                ('params', [], 'params: '),
                ('params/scavenger', 3, 'params: scavenger: 3'),
                ('incidents/0/incident/id', 1, 'incidents[0]: incident: id:'),
                ('incidents/0/incident/suspects', [['/a']], 'suspects: '),
        ):
            line = copy.deepcopy(TICK)
            put(where, value)(line)
            self.write(HEADER, line)
            self.fails(2, *words)

    def test_a_wrong_header_is_named(self) -> None:
        for where, value, *words in (
                ('type', 'tick', 'type: ', 'not a recording'),
                ('type', NotImplemented, 'type: None'),
                ('schema', 1, 'schema: 1 is not 2', 'release that recorded'),
                ('schema', 3, 'schema: 3 is not 2'),
                ('schema', True, 'schema: '),
                ('host', NotImplemented, 'host: missing'),
                ('interval_s', 0, 'interval_s: 0 is not from 0.001'),
                ('interval_s', 5e-324, 'interval_s: 5e-324 is not from'),
                ('interval_s', 1e300, 'interval_s: 1e+300 is not'),
                ('extra', 0, 'extra: no such field'),
                ('controllers', {}, 'controllers: {} is not a list'),
                ('controllers', HEADER['controllers'] * 2,  # type: ignore
                 'controllers: ', 'different'),
                ('controllers/0/mode', 'on', 'controllers[0]: mode: ', "'on'"),
                ('controllers/0/params', [], 'controllers[0]: params: '),
                ('controllers/0/state', {'window': [1e308]},
                 'controllers[0]: state: 1e+308'),
                ('controllers/0/state', [10 ** 400], 'controllers[0]: state'),
                ('isolation', None, 'isolation: None'),
                ('protect', ['disc'], "protect: ['disc'] is not some of cpu"),
        ):
            header = copy.deepcopy(HEADER)
            put(where, value)(header)
            self.write(header, TICK)
            self.fails(1, *words)

    def test_what_is_no_line_of_json(self) -> None:
        for data in (b'\n', b'{"type":\n', b'\xff\xfe\n', b'[]\n', b'null\n',
                     b'7' * 5000 + b'\n', b'[' * 99999 + b'\n',
                     b'{"a":1}{"b":2}\n'):
            self.write(HEADER, TICK, data)
            self.fails(3)
            self.write(data)
            self.fails(1)

    def test_what_can_just_be_parsed_but_not_be_shown(self) -> None:
        limit = sys.getrecursionlimit()
        for depth in range(limit - 200, limit):
            nested = b'[' * depth + b']' * depth
            self.write(HEADER, b'{"type":"tick","time_s":2,"fast":'
                       b'{"sets":%b}}\n' % nested)
            self.fails(2)

    def test_an_empty_file(self) -> None:
        self.write()
        self.fails(1, 'no header')

    def test_a_workload_that_no_line_has_introduced(self) -> None:
        self.write(HEADER, NEXT)
        self.fails(2, 'sample: schema: missing')
        line = copy.deepcopy(NEXT)
        line['sample']['workloads'][0]['id'] = '/b'     # type: ignore
        self.write(HEADER, TICK, line)
        self.fails(3, "workloads[0]: id: '/b' is not known")

    def test_a_last_line_that_was_never_finished(self) -> None:
        whole = json.dumps(NEXT).encode()
        for data in (whole, whole[:20], b'{'):
            self.write(HEADER, TICK, data)
            recording = replay.read(self.path)
            self.assertEqual(1, len(list(recording)))
            self.assertEqual(3, recording.cut_off)
        self.write(HEADER, TICK)
        recording = replay.read(self.path)
        self.assertEqual((1, None), (len(list(recording)),
                                     recording.cut_off))


class DriverTest(RecordingTestCase):

    def driver(self) -> replay.Replay:
        driver = parts.load_driver(recordings.options(
            'agent.driver=replay', f'replay.file={self.path}'))
        self.addCleanup(driver.close)
        assert isinstance(driver, replay.Replay)
        return driver

    def test_it_plays_what_was_seen_and_then_it_ends(self) -> None:
        self.write(HEADER, TICK, {'type': 'tick', 'time_s': 2.5}, NEXT)
        driver = self.driver()
        self.assertIsNone(driver.read('/a', Knob.CPU_SET))
        self.assertEqual(2.0, driver.sample().time_s)
        self.assertEqual(('0-1', None), (
            driver.read('/a', Knob.CPU_SET), driver.read('/b', Knob.PAUSED)))
        self.assertIn(':3: the host could not be read', str(
            self.assertRaises(errors.DriverError, driver.sample)))
        self.assertEqual(3.0, driver.sample().time_s)
        self.assertFalse(driver.over)
        for _ in range(2):
            self.assertIn('has ended', str(self.assertRaises(
                errors.DriverError, driver.sample)))
            self.assertTrue(driver.over)

    def test_nothing_can_be_changed(self) -> None:
        self.write(HEADER, TICK)
        driver = self.driver()
        driver.sample()
        for change in (
                lambda: driver.write('/a', Knob.CPU_CORES, 1),
                lambda: driver.restore_actions('/a', Knob.CPU_CORES),
                lambda: driver.kill('/a'), lambda: driver.fast_cpu_set('/a')):
            error = self.assertRaises(errors.Unsupported, change)
            self.assertIn('observe', str(error))

    def test_a_file_that_cannot_be_played(self) -> None:
        for content, word in ((None, 'No such file'), (b'x\n', 'JSON'),
                              (b'{"schema": 1}\n', 'type')):
            if content is not None:
                self.path.write_bytes(content)
            error = self.assertRaises(errors.ConfigError, self.driver)
            self.assertIn('[replay] file', str(error))
            self.assertIn(word, str(error))
        error = self.assertRaises(
            errors.ConfigError, parts.load_driver,
            recordings.options('agent.driver=replay'))
        self.assertIn('not set', str(error))
