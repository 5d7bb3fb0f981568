# SPDX-License-Identifier: Apache-2.0

"""The service: its requests, and its program on this machine."""

from __future__ import annotations

import collections
import pathlib
import shutil
import subprocess
import time

import fixtures
import testtools

from scavenger_openstack.demo import service
from scavenger_openstack import errors
from scavenger_openstack.ibench import build


class RequestsTest(testtools.TestCase):

    def test_rate_and_work(self) -> None:
        planned = service.requests('1', 40.0, 2)
        expected = 40 * 2 * service.REQUESTS_PER_S_AND_CPU
        self.assertTrue(0.9 < len(planned) / expected < 1.1, len(planned))
        self.assertEqual(sorted(planned), planned)
        for at_s, cpu_ms in planned:
            self.assertTrue(0 <= at_s < 40)
            self.assertTrue(service.CPU_MS[0] <= cpu_ms <= service.CPU_MS[1])

    def test_seed(self) -> None:
        self.assertEqual(service.requests('1', 40.0, 2),
                         service.requests('1', 40.0, 2))
        self.assertNotEqual(service.requests('1', 40.0, 2),
                            service.requests('2', 40.0, 2))

    def test_bursts_of_one_per_thread(self) -> None:
        sizes = collections.Counter(
            at_s for at_s, _ in service.requests('1', 40.0, 2))
        self.assertEqual({1, 2 * service.THREADS_PER_CPU},
                         set(sizes.values()))

    def test_percentile(self) -> None:
        values = list(map(float, range(1, 101)))
        self.assertEqual(99.0, service.percentile(values[::-1], 0.99))
        self.assertEqual(1.0, service.percentile([1.0], 0.99))
        self.assertIsNone(service.percentile([], 0.99))


class ProgramTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)

    def start(self, planned: list[service.Request]) -> service.Service:
        if not shutil.which('cc'):
            self.skipTest('needs a C compiler')
        served = service.Service(self.directory, planned, 1,
                                 time.monotonic())
        process = subprocess.Popen(served.command(service.compile_program()))
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return served

    def test_latencies(self) -> None:
        """Of what is served, of what waits, and none of what is to come."""
        served = self.start([(0.0, 2.0), (0.01, 2.0), (0.02, 60_000.0),
                             (500.0, 1.0)])
        deadline_s = time.monotonic() + 60
        latencies: list[tuple[float, float]] = []
        while time.monotonic() < deadline_s:
            latencies = served.latencies(time.monotonic())
            if len(latencies) == 3 and (self.directory / 'latencies'
                                        ).read_bytes()[:16].count(0) < 8:
                break
            time.sleep(0.01)
        self.assertEqual([0.0, 0.01, 0.02], [at_s for at_s, _ in latencies])
        self.assertTrue(all(latency_s >= 0.002 for _, latency_s in latencies))
        now_s = time.monotonic() + 30
        self.assertGreater(served.latencies(now_s)[2][1], 29)

    def test_none_before_it_runs(self) -> None:
        served = service.Service(self.directory, [(0.0, 1.0)], 1, 0.0)
        self.assertEqual([], served.latencies(1.0))

    def test_a_compiler_that_hangs(self) -> None:
        compiler = self.directory / 'cc'
        compiler.write_text('#!/bin/sh\n[ "$1" = --version ] || '
                            'exec sleep 60\n')
        compiler.chmod(0o700)
        for name, value in (('CC', str(compiler)),
                            ('XDG_CACHE_HOME', str(self.directory))):
            self.useFixture(fixtures.EnvironmentVariable(name, value))
        self.useFixture(fixtures.MonkeyPatch(f'{build.__name__}.COMPILE_S',
                                             0.2))
        exc = self.assertRaises(errors.DriverError, service.compile_program)
        self.assertIn('did not end in 0 s', str(exc))
