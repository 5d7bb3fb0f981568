# SPDX-License-Identifier: Apache-2.0

"""Schedules: reproducible, independent of the warm-up, of the right size."""

from __future__ import annotations

import collections
import os
import pathlib
import shutil
import subprocess

import fixtures
import testtools

from scavenger_openstack.demo.load import load
from scavenger_openstack.demo.stage import disk
from scavenger_openstack import errors
from scavenger_openstack.ibench import build


class ArrivalsTest(testtools.TestCase):

    def arrivals(self, *, seed: str = '1', seconds: float = 40.0,
                 warm_up_s: float = 4.0,
                 cpus: int = 2) -> list[tuple[float, float]]:
        return load.arrivals(seed=seed, seconds=seconds,
                             warm_up_s=warm_up_s, cpus=cpus)

    def test_rate_and_work(self) -> None:
        found = [one for one in self.arrivals() if one[0] >= 0]
        expected = 40 * 2 * load.REQUESTS_PER_S_AND_CPU
        self.assertTrue(0.9 < len(found) / expected < 1.1, len(found))
        for at_s, work_ms in found:
            self.assertTrue(0 <= at_s < 40)
            self.assertTrue(load.WORK_MS[0] <= work_ms <= load.WORK_MS[1])

    def test_in_order(self) -> None:
        found = self.arrivals()
        self.assertEqual(sorted(found), found)

    def test_warm_up_changes_nothing(self) -> None:
        short, long = self.arrivals(), self.arrivals(warm_up_s=13.0)
        self.assertEqual([one for one in short if one[0] >= 0],
                         [one for one in long if one[0] >= 0])
        self.assertTrue(-13 <= long[0][0] < -10)

    def test_seed(self) -> None:
        self.assertEqual(self.arrivals(), self.arrivals())
        self.assertNotEqual(self.arrivals(), self.arrivals(seed='2'))

    def test_bursts_of_one_per_thread(self) -> None:
        sizes = collections.Counter(at_s for at_s, _ in self.arrivals())
        self.assertEqual({1, 8}, set(sizes.values()))

    def test_grows_with_the_host(self) -> None:
        ratio = len(self.arrivals(cpus=8)) / len(self.arrivals())
        self.assertTrue(3.6 < ratio < 4.4, ratio)


class MemoryStepsTest(testtools.TestCase):

    def test_stairs(self) -> None:
        found = load.memory_steps(seed='1', seconds=30.0, warm_up_s=4.0)
        self.assertEqual((-4.0, load.BASE_MIB), found[0])
        changes = [after[1] - before[1] for before, after
                   in zip(found, found[1:], strict=False)]
        up = [change for change in changes if change > 0]
        self.assertTrue(all(90 <= change <= 110 for change in up), up)
        self.assertEqual(load.STEPS_UP, len(up))
        self.assertTrue(all(0 < moment < 30 for moment, _ in found[1:]))
        self.assertEqual(sorted(found), found)

    def test_half_of_a_short_phase_is_quiet(self) -> None:
        found = load.memory_steps(seed='1', seconds=12.0, warm_up_s=4.0)
        self.assertEqual(4, len(found))
        self.assertTrue(found[-1][0] - found[1][0] <= 6, found)

    def test_a_short_phase_has_a_step(self) -> None:
        found = load.memory_steps(seed='1', seconds=2.0, warm_up_s=1.0)
        self.assertEqual(2, len(found))


class FilesTest(testtools.TestCase):

    def test_starts(self) -> None:
        found = load.file_starts(seed='1', seconds=12.0, warm_up_s=4.0)
        self.assertEqual(sorted(found), found)
        self.assertTrue(found[0] <= -2)
        self.assertTrue(10 <= found[-1] <= 10.2)
        gaps = [b - a for a, b in zip(found, found[1:], strict=False)]
        alone_s = load.FILE_BYTES / load.FILE_BYTES_PER_S
        self.assertTrue(min(gaps) >= alone_s, gaps)

    def test_warm_up_changes_nothing(self) -> None:
        long = load.file_starts(seed='1', seconds=12.0, warm_up_s=13.0)
        short = load.file_starts(seed='1', seconds=12.0, warm_up_s=4.0)
        self.assertEqual(short[-6:], long[-6:])


class RecordsTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.file = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path) / 'record'

    def test_doubles(self) -> None:
        load.write_doubles(self.file, [1.5, -2.0])
        self.assertEqual([1.5, -2.0], load.read_doubles(self.file))

    def test_missing_is_empty(self) -> None:
        self.assertEqual([], load.read_doubles(self.file))
        self.assertEqual([], load.read_integers(self.file))
        self.assertEqual([], load.read_steps(self.file))
        self.assertEqual([], load.read_files(self.file))

    def test_steps_to_come_are_left_out(self) -> None:
        load.write_doubles(self.file, [2, 2.1, 0.5, 100, 0, 0,
                                       4, 4.1, 0.0, 100, 0, 0,
                                       0, 0, 0, 0, 0, 0])
        found = load.read_steps(self.file, 3.0)
        self.assertEqual([0.5, 0.0], [step.took_s for step in found])
        self.assertEqual([0, 3], [step.refused_after for step in found])

    def test_files_to_come_are_left_out(self) -> None:
        load.write_doubles(self.file, [2, 2.1, 1.75, 0, 0, 0])
        self.assertEqual([load.File(2, 2.1, 1.75)],
                         load.read_files(self.file))


class LaunchTest(testtools.TestCase):

    def test_not_for_a_parent_that_is_dead(self) -> None:
        if not shutil.which('cc'):
            self.skipTest('needs a C compiler')
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        with fixtures.MonkeyPatch(
                'scavenger_openstack.demo.load.load.PROGRAMS', ('launch',)):
            load.build(directory)
        for parent, code in ((os.getpid(), 0), (1, 1)):
            done = subprocess.run(
                [str(directory / 'launch'), '-p', str(parent), '-d', '15',
                 'true'], check=False)
            self.assertEqual(code, done.returncode, str(parent))


class Programs(testtools.TestCase):
    """Those that end badly, or not at all, are named in one line."""

    def setUp(self) -> None:
        super().setUp()
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)

    def program(self, name: str, script: str) -> None:
        path = self.directory / name
        path.write_text(f'#!/bin/sh\n{script}\n')
        path.chmod(0o700)

    def test_a_calibration_without_a_number(self) -> None:
        for script in ('exit 3', 'echo many'):
            self.program('service', script)
            exc = self.assertRaises(errors.DriverError, load.calibrate,
                                    self.directory)
            self.assertIn('service calibrate: ', str(exc))

    def test_losetup_hangs(self) -> None:
        self.program('losetup', 'exec sleep 60')
        self.useFixture(fixtures.EnvironmentVariable(
            'PATH', f'{self.directory}:{os.environ["PATH"]}'))
        self.useFixture(fixtures.MonkeyPatch(f'{disk.__name__}.LOSETUP_S',
                                             0.2))
        exc = self.assertRaises(errors.DriverError, disk.losetup, '--all')
        self.assertIn('losetup --all: no answer', str(exc))

    def test_a_compiler_that_hangs(self) -> None:
        self.program('cc', 'exec sleep 60')
        self.useFixture(fixtures.EnvironmentVariable(
            'CC', str(self.directory / 'cc')))
        self.useFixture(fixtures.MonkeyPatch(f'{build.__name__}.COMPILE_S',
                                             0.2))
        exc = self.assertRaises(errors.DriverError, load.build,
                                self.directory)
        self.assertIn('did not end in 0 s', str(exc))
