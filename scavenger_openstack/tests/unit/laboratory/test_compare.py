# SPDX-License-Identifier: Apache-2.0


from __future__ import annotations

import logging
import pathlib
import threading

import fixtures
import testtools

from scavenger_openstack import errors
from scavenger_openstack.laboratory import bench
from scavenger_openstack.laboratory import catalogue
from scavenger_openstack.laboratory import compare
from scavenger_openstack.laboratory import output
from scavenger_openstack.simulator import scenario

COARSE = """
schema: 1
about: "one of each"
duration_s: 60
warmup_s: 10
machine: {cpus: 8}
tenants:
  - {id: web, vcpus: 4, cores: {uniform: [0.5, 1]}, cpu_s: 0.004}
  - {id: hog, priority: background, vcpus: 8, threads: 8, weight: 20}
"""

FINE = COARSE.replace('duration_s: 60', 'duration_s: 3\nstep_s: 0.001'
                      ).replace('warmup_s: 10',
                                'warmup_s: 1\nwarmup_step_s: 0.01')


def task(text: str, seed: int = 0,
         controllers: tuple[str, ...] = compare.CONTROLLERS,
         hours: float | None = None) -> compare.Task:
    return compare.Task(0, scenario.Scenario(text, 'small.yaml'), seed,
                        controllers, hours)


class RecordTest(testtools.TestCase):

    def setUp(self) -> None:
        """A comparison keeps the log quiet, which other tests read."""
        super().setUp()
        logger = logging.getLogger('scavenger_openstack')
        self.addCleanup(logger.setLevel, logger.level)

    def test_every_controller(self) -> None:
        found = compare.record(task(COARSE))
        self.assertEqual(('small', 0), (found['scenario'], found['seed']))
        self.assertEqual(list(compare.CONTROLLERS), list(found['scores']))
        none, oracle = found['scores']['none'], found['scores']['oracle']
        self.assertEqual(1.0, none['work_ratio'])
        self.assertGreater(none['p99_ratio'], 1.1)
        self.assertLess(oracle['p99_ratio'], 1.06)
        self.assertTrue(found['allocation']['idle'])
        self.assertGreater(found['scores']['ours']['writes'], 0)
        self.assertEqual(0, none['writes'])

    def test_fast_loop_acts_in_steps_of_any_length(self) -> None:
        for text in (COARSE, FINE):
            record = compare.record(task(text, controllers=('perfiso',)))
            self.assertTrue(record['fast'])
            self.assertLess(record['scores']['perfiso']['work_ratio'], 0.8)

    def test_fast_loop_needs_cpus_to_keep_idle(self) -> None:
        for text in (COARSE, FINE):
            record = compare.record(task(text.replace(
                'cpus: 8', 'cpus: 4'), controllers=('perfiso',)))
            self.assertFalse(record['fast'])
            self.assertAlmostEqual(
                1.0, record['scores']['perfiso']['work_ratio'])

    def test_the_loop_keeps_quiet(self) -> None:
        logging.getLogger('scavenger_openstack').setLevel(logging.NOTSET)
        log = self.useFixture(fixtures.FakeLogger(level=logging.DEBUG))
        loud = task(COARSE, controllers=('ours',))
        bench.run(loud.drawn(), bench.POLICIES['ours'])
        self.assertNotEqual('', log.output)
        before = log.output
        compare.record(loud)
        self.assertEqual(before, log.output)

    def test_no_thread_is_left(self) -> None:
        """Thousands of hosts are played in one process."""
        others = set(threading.enumerate())
        compare.record(task(COARSE.replace(
            'threads: 8', 'threads: 1, memory_bytes: 60e9, '
            'memory_growth_bytes_per_s: 4e9'), controllers=('ours',)))
        self.assertEqual(set(), {*threading.enumerate()} - others)

    def test_what_static_cannot_take_back(self) -> None:
        """Memory that was there before the limit is refused, not a fault."""
        found = compare.record(task(COARSE.replace(
            'threads: 8', 'threads: 1, memory_bytes: 40e9'),
            controllers=('static', 'ours')))
        self.assertIsNotNone(found['scores']['static'])


class CatalogueTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)
        self.path = self.directory / 'mine.yaml'
        self.path.write_text(COARSE)

    def test_all_that_is_shipped_can_be_read(self) -> None:
        found = catalogue.find([catalogue.ALL])
        self.assertEqual(catalogue.names(), [one.name for one in found])
        self.assertIn('cpu-antagonist', catalogue.names())
        for one in found:
            self.assertNotEqual('', one.about, one.name)

    def test_by_name_and_by_path(self) -> None:
        found = catalogue.find(['cpu-antagonist', str(self.path)])
        self.assertEqual(['cpu-antagonist', 'mine'],
                         [one.name for one in found])

    def test_unknown(self) -> None:
        exc = self.assertRaises(errors.ConfigError, catalogue.find,
                                ['cpu-antagonits'])
        self.assertIn('did you mean cpu-antagonist?', str(exc))
        exc = self.assertRaises(errors.ConfigError, catalogue.find,
                                [str(self.directory / 'other.yaml')])
        self.assertIn('cannot be read', str(exc))

    def test_two_of_one_name(self) -> None:
        exc = self.assertRaises(errors.ConfigError, catalogue.find,
                                [str(self.path), str(self.path)])
        self.assertIn('two scenarios of the name mine', str(exc))


class TargetTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)
        self.path = self.directory / 'out.json'

    def names(self) -> list[str]:
        return sorted(path.name for path in self.directory.iterdir())

    def test_what_was_there_stays_until_then(self) -> None:
        self.path.write_text('old')
        with testtools.ExpectedException(KeyboardInterrupt):
            with output.Target(str(self.path)):
                raise KeyboardInterrupt
        self.assertEqual('old', self.path.read_text())
        self.assertEqual(['out.json'], self.names())

    def test_shows_at_the_start_that_it_cannot_be_written(self) -> None:
        for name in (str(self.directory), str(self.directory / 'a' / 'b')):
            self.assertRaises(OSError, output.Target, name)
        self.path.write_text('a file')
        self.assertRaises(OSError, output.Target, str(self.path / 'b'))

    def test_no_file(self) -> None:
        for name in (None, '-'):
            with output.Target(name) as target:
                target.write('new')
        self.assertEqual([], self.names())
