# SPDX-License-Identifier: Apache-2.0

"""What the benchmarks of iBench compute, and their client on a real server."""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import random
import shutil
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import fixtures
import testtools

from scavenger_openstack.ibench import build
from scavenger_openstack.tests.unit.benchmarks import scripts

TOP = pathlib.Path(__file__).parents[4]
WHERE = TOP / 'benchmarks/ibench'


class IbenchTestCase(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        scripts.use(self, WHERE)

    def load(self, name: str) -> Any:
        return importlib.import_module(name)


def point(goodput: float, p99_s: float) -> dict[str, Any]:
    return {'points': [{'goodput': 1.0, 'p99_s': 9.0},
                       {'goodput': goodput, 'p99_s': p99_s}]}


class Figures(IbenchTestCase):

    def test_which_hurts_most(self) -> None:
        rank = self.load('services').rank
        self.assertGreater(rank(point(0.5, 0.01)), rank(point(0.9, 0.5)))
        # As good as the same goodput: the latency decides.
        self.assertGreater(rank(point(0.999, 0.02)), rank(point(0.998, 0.01)))

    def test_the_spread_of_profiles(self) -> None:
        repeated = self.load('repeated')

        def profile(tolerated: float, **caused: float) -> dict[str, Any]:
            return {'tolerated': {'integer': {'value': tolerated}},
                    'caused': {name: {'value': value}
                               for name, value in caused.items()}}
        entries = repeated.spread([profile(0.4, tlb=1.0), profile(0.6),
                                   profile(0.8, tlb=1.0)])
        entry, = entries        # tlb is not in all of them
        self.assertEqual(('tolerated', 'integer', False),
                         (entry['part'], entry['soi'], entry['reached']))
        self.assertAlmostEqual(0.6, entry['mean'])
        self.assertAlmostEqual(0.2, entry['furthest'])
        other = repeated.spread([profile(0.1), profile(0.1)])
        self.assertTrue(other[0]['reached'])
        self.assertAlmostEqual(0.5, repeated.apart(entries, other))

    def test_the_miss_ratio_by_time(self) -> None:
        miss_ratio = self.load('single_program').miss_ratio
        self.assertEqual(0.0, miss_ratio(120e6, 100e6, 10e6))
        self.assertEqual(1.0, miss_ratio(5e6, 100e6, 10e6))
        # 10 ns and 100 ns: 55 ns is in the middle.
        self.assertAlmostEqual(0.5, miss_ratio(1e9 / 55, 100e6, 10e6))

    def test_what_cannot_be(self) -> None:
        """A sentence, and status 2."""
        for words, sentence in (
                (['--services', 'oracle'], 'no service oracle'),
                (['--sois', 'lcc'], 'no source of interference'),
                (['--levels', '0,101'], '101'),
                (['--seconds', 'long'], 'no duration')):
            done = subprocess.run(
                [sys.executable, str(WHERE / 'services.py'), *words],
                capture_output=True, text=True, check=False,
                env={**os.environ, 'PYTHONPATH': str(TOP)})
            self.assertEqual((2, ''), (done.returncode, done.stdout))
            self.assertIn(sentence, done.stderr)


class Cores(IbenchTestCase):

    def setUp(self) -> None:
        super().setUp()
        scripts.use(self, TOP / 'benchmarks/simulated')

    def test_programs_go_where_they_lose_least(self) -> None:
        """What needs a fast core gets one, and what is hurt by the other's
        cache use is not put where it is hurt most."""
        cores = self.load('ibench_cores')
        fit = cores.Fit
        steady = [fit(1.0, (1.0, 1.0), (0.0, 0.0)),
                  fit(0.9, (1.0, 1.0), (0.0, 0.0))]
        eager = [fit(1.0, (1.0, 1.0), (0.0, 0.0)),
                 fit(0.2, (1.0, 1.0), (0.0, 0.0))]
        self.assertEqual((1, 0), cores.choose([steady, eager], (0, 1)))
        # At what it tolerates it has lost 5 %.
        hurt = [fit(1.0, (0.5, 1.0), (0.0, 0.0))] * 2
        noisy = [fit(1.0, (1.0, 1.0), (0.5, 0.0))] * 2
        self.assertAlmostEqual((0.95 + 1) / 2,
                               cores.predicted([hurt, noisy], (0, 1)))

    def test_mixes_in_the_model(self) -> None:
        """In single ones chance does better."""
        cores = self.load('ibench_cores')
        drawn = random.Random(1)
        rows = [cores.mix(number, cores.FOUR, drawn) for number in range(35)]
        for row in rows:
            self.assertLessEqual(row['profiles']['mean'],
                                 row['best']['mean'])
        chosen, chance = (sum(row[name]['mean'] for row in rows)
                          for name in ('profiles', 'random'))
        self.assertGreater(chosen, 1.01 * chance)


class Client(IbenchTestCase):
    """The client asks a server of the test's own."""

    def setUp(self) -> None:
        super().setUp()
        if not shutil.which('cc'):
            self.skipTest('needs a C compiler')
        top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.client = top / 'client'
        build.compile_c([WHERE / 'client.c'], self.client)
        self.server = socket.create_server(('127.0.0.1', 0))
        self.addCleanup(self.server.close)
        self.requests: list[bytes] = []
        self.pause_s = 0.0
        self.longer_at = 0
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            threading.Thread(target=self.talk, args=(connection,),
                             daemon=True).start()

    def talk(self, connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(4096):
                self.requests.append(data)
                if len(self.requests) == 30:
                    time.sleep(self.pause_s)
                connection.sendall(
                    b'12345678' + b'longer' * (
                        len(self.requests) == self.longer_at))

    def ask(self, **words: object) -> dict[str, Any]:
        options = {'rate': 100, 'seconds': 1, 'connections': 1,
                   'target_s': 0.25, 'request': b'get 000'.hex(), 'at': 4,
                   'digits': 3, 'keys': 50} | words
        process = subprocess.Popen(
            [str(self.client), '127.0.0.1',
             str(self.server.getsockname()[1]),
             *(f'{key}={value}' for key, value in options.items())],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None and process.stderr is not None
        try:
            first, second = (process.stdout.readline() for _ in range(2))
            if not second:
                return {'error': process.stderr.read()}
            self.assertEqual('begin', json.loads(first)['event'])
            return dict(json.loads(second))
        finally:
            process.terminate()
            process.communicate(timeout=60)

    def test_a_pause_delays_all_that_was_due_in_it(self) -> None:
        """Of 100 requests those of .4 s wait, and not only the one that was
        asked."""
        self.pause_s = 0.4
        answers = self.ask(target_s=0.1)
        self.assertEqual(100, answers['requests'])
        self.assertLess(answers['within'], 100 - 25)
        self.assertGreater(answers['p99_s'], 0.3)
        self.assertEqual(8, answers['answer_bytes'])

    def test_what_has_no_answer_counts(self) -> None:
        self.pause_s = 60.0
        answers = self.ask()
        self.assertLess(answers['answered'], 40)
        self.assertEqual(100, answers['requests'])
        self.assertGreater(answers['p99_s'], 0.5)

    def test_numbers_are_written_into_requests(self) -> None:
        self.ask(hello=b'hi'.hex())
        self.assertEqual(b'hi', self.requests[0])
        numbers = {int(request[4:]) for request in self.requests[1:]}
        self.assertLess(5, len(numbers))
        self.assertLess(max(numbers), 50)
        self.assertEqual({7}, {len(request)
                               for request in self.requests[1:]})

    def test_an_answer_of_another_length(self) -> None:
        self.longer_at = 40
        self.assertIn('6 bytes longer', self.ask()['error'])
