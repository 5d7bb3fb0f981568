# SPDX-License-Identifier: Apache-2.0


"""The study of c and w in ``benchmarks/``, on data small enough to check."""

from __future__ import annotations

import importlib
import io
import os
import pathlib
import random
import subprocess
import sys
from typing import Any

import fixtures
import testtools

from scavenger_openstack.algorithms.scavenger import scavenger
from scavenger_openstack.decision.rates import rates
from scavenger_openstack.tests.unit import recordings

TOP = pathlib.Path(__file__).parents[4]
SCRIPT = TOP / 'benchmarks' / 'parameters' / 'sensitivity.py'


class Benchmark(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        if not SCRIPT.exists():
            self.skipTest('no benchmarks/ beside the package: run the tests '
                          'from a checkout')
        self.where = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.useFixture(fixtures.PythonPathEntry(str(SCRIPT.parent)))
        self.addCleanup(self.forget)

    def forget(self) -> None:
        for name, module in list(sys.modules.items()):
            path = getattr(module, '__file__', None)
            if path and pathlib.Path(path).parent == SCRIPT.parent:
                del sys.modules[name]


class Command(Benchmark):

    def words(self, *words: object) -> list[str]:
        return [str(SCRIPT), '--output', str(self.where / 'out'),
                *map(str, words)]

    def study(self, *words: object) -> subprocess.CompletedProcess[str]:
        """The command, in this process: to start it takes most time."""
        out, err = io.StringIO(), io.StringIO()
        argv = self.words(*words)
        with fixtures.MonkeyPatch('sys.stdout', out), \
                fixtures.MonkeyPatch('sys.stderr', err), \
                fixtures.MonkeyPatch('sys.argv', argv):
            try:
                code = importlib.import_module('sensitivity').main()
            except SystemExit as exc:
                code = exc.code
        return subprocess.CompletedProcess(argv, code, out.getvalue(),
                                           err.getvalue())

    def process(self, *words: object, path: str = '',
                ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *self.words(*words)],
            env={**os.environ, 'PYTHONPATH': f'{path}:{TOP}',
                 'LC_ALL': 'C.UTF-8'},
            capture_output=True, text=True, timeout=120)

    def report(self) -> str:
        return (self.where / 'out' / 'sensitivity.md').read_text()

    def test_without_traces(self) -> None:
        found = self.process('--only', 'memory', '--data', self.where)
        self.assertEqual((0, ''), (found.returncode, found.stderr))
        self.assertIn('skipped: no alibaba2018_dcavg_10s.parquet in '
                      f'{self.where}; say where the traces are with --data',
                      found.stdout)
        self.assertIn('Nothing was studied', self.report())

    def test_recording(self) -> None:
        host = recordings.Host(self.where / 'it.recording')
        host.ticks(400)
        host.recorder.close()
        found = self.study('--recording', self.where / 'it.recording',
                           '--c', '0,2', '--windows', '3,15')
        self.assertEqual((0, ''), (found.returncode, found.stderr))
        report = self.report()
        for part in ('## Memory: the recorded host',
                     '## Network: eth0 of the recorded host',
                     '![Memory: the recorded host](sensitivity-memory.svg)',
                     '| memory | peak, 30 min | none |',
                     '| memory, rule of the paper | c = 2, w = 4 s |',
                     '| network, rule of the paper | c = 2, w = 3 s |',
                     'hours: too short for advice |',
                     'hardware counters are needed'):
            self.assertIn(part, report)
        self.assertIn('<svg', (self.where / 'out' / 'sensitivity-memory.svg'
                               ).read_text())

    def test_simulated_hosts(self) -> None:
        found = self.study('--only', 'network', '--seconds', 200, '--hosts',
                           2, '--c', '1,2', '--windows', '15,30')
        self.assertEqual((0, ''), (found.returncode, found.stderr))
        self.assertIn('## Network: 2 simulated hosts with 20 senders',
                      self.report())

    def pyarrow(self) -> Any:
        try:
            return importlib.import_module('pyarrow')
        except ImportError:
            self.skipTest('pyarrow is not installed; run: pip install '
                          'pyarrow')

    def test_traces(self) -> None:
        pyarrow = self.pyarrow()
        dice = random.Random(1)
        rows = range(7000, 10_000)
        table = pyarrow.table({
            'day': [1 + row // 8640 for row in rows],
            'row': [row % 8640 for row in rows],
            'mem_util_percent': [80 + dice.gauss(0, 1) for _ in rows]})
        importlib.import_module('pyarrow.parquet').write_table(
            table, self.where / 'alibaba2018_dcavg_10s.parquet')
        found = self.study('--only', 'rules,memory', '--data', self.where,
                           '--c', '1,2', '--windows', '60,600',
                           '--seconds', 60, '--hosts', 1)
        self.assertEqual((0, ''), (found.returncode, found.stderr))
        self.assertEqual(3, found.stdout.count('skipped: no alibaba'))
        report = self.report()
        for part in ('2 days, 3000 samples',
                     'Is it the seconds or the samples of a window',
                     'Another least headroom instead of another c',
                     '## Beside figures 6 and 14 of the paper',
                     'How many violations a day are acceptable is a choice',
                     '| memory | peak, 30 min | keep |',
                     '| memory, rule of the paper | c = 2, w = 60 s |',
                     'traces of others'):
            self.assertIn(part, report)


class Parts(Benchmark):

    def setUp(self) -> None:
        super().setUp()
        self.sweep: Any = importlib.import_module('sweep')
        self.traces: Any = importlib.import_module('traces')
        self.traffic: Any = importlib.import_module('traffic')
        self.ipc_noise: Any = importlib.import_module('ipc_noise')
        self.report: Any = importlib.import_module('reserve_report')
        self.rules: Any = importlib.import_module('rules')

    def test_taking_the_background_off_changes_nothing(self) -> None:
        host = recordings.Host(self.where / 'it.recording')
        before, ticks = None, []
        for tick in host.ticks(300):
            if tick.sample is not None:
                ticks.append(rates(before, tick.sample))
                before = tick.sample
        off = [self.traces.without_background(tick) for tick in ticks]
        self.assertLess(sum(len(tick.workloads) for tick in off),
                        sum(len(tick.workloads) for tick in ticks))
        for resource in ('memory', 'eth0'):
            found = [self.sweep.run(
                self.traces.Trace('x', resource, 1.0, series),
                self.sweep.Setting(2.0, 4, 0.02)) for series in (ticks, off)]
            self.assertEqual(*found)
            self.assertGreater(found[0][0].judged, 50)

    def test_maxima_before_and_after(self) -> None:
        dice = random.Random(3)
        points = [self.rules.Kept(float(time_s), dice.random(), None)
                  for time_s in sorted(dice.sample(range(2000), 300))]
        for kept, period_s in zip(points, self.rules.last_maximum(
                points, 100.0), strict=True):
            self.assertEqual(max(
                other.x for other in points
                if -100 <= other.time_s - kept.time_s <= 0), period_s.upper)
        for kept, coming in zip(points, self.rules.next_maximum(
                points, 100.0), strict=True):
            self.assertEqual(max((
                other.x for other in points
                if 0 < other.time_s - kept.time_s <= 100), default=None),
                coming.upper)

    def test_a_rule_that_locks_up(self) -> None:
        """Ten hours after bursts, the paper's rule leaves nothing of an idle
        link and its model is ten hours old."""
        uses = ([0.8] * 5 + [0.0] * 10) * 8 + [0.0] * 36000
        group = self.traces.Group('x', 'X', 'link', '', [
            self.traces.of_points('x', 1.0, enumerate(uses), resource='x',
                                  interval_s=1.0)])
        totals = self.rules.compare(group, scavenger.Params())
        paper, recent, peak, oracle = (totals[name] for name in (
            'paper', 'paper_recent_sigma', 'peak, 60 min',
            "next hour's oracle"))
        self.assertLess(paper.of_oracle, 0.1)
        self.assertGreater(paper.oldest_s, 35900)
        self.assertGreater(recent.of_oracle, 0.95)
        self.assertGreater(peak.of_oracle, 0.85)
        self.assertLess(peak.oldest_s, 3800)
        self.assertEqual((1.0, 0.0), (oracle.of_oracle, oracle.per_day))
        row = self.rules.advice('network', [(group, totals)], 24.0,
                                scavenger.Params())
        self.assertEqual(('network', 'peak, 60 min', 'keep',
                          'traces of others'), row[:4])

    def advice(self, found: dict[tuple[float, float], tuple[
            float, float, float]], target: float = 24.0) -> list[str]:
        """The row of the recommendation; c, w -> violations a day, the low
        end of their interval, share of the oracle."""
        sweep = self.sweep
        group = self.traces.Group('x', 'X', 'day', '', [
            self.traces.Trace('x', 'memory', 1.0, ())])
        study = {sweep.Setting(c, int(window_s), 0.02): sweep.Outcome(
            sweep.Range(per_day, low, per_day + 1), 0.0, 0.0, 0.0, 0.0,
            sweep.Range(0.1, 0.1, 0.1), of_oracle, 1.0)
            for (c, window_s), (per_day, low, of_oracle) in found.items()}
        _, row = self.report.recommendation(
            'memory', [(group, study)], sorted({c for c, _ in found}),
            sorted({window_s for _, window_s in found}), target,
            scavenger.Params())
        return list(row)

    def test_what_is_recommended(self) -> None:
        other = {(3.0, 60.0): (5.0, 4.0, 0.7), (2.0, 120.0): (9.0, 8.0, 0.8)}
        kept = 'keep c = 2, w = 60 s'
        for now, after, what in (
                ((20.0, 19.0, 0.8), other, kept),
                # Perhaps too many, but not clearly; clearly; no way out.
                ((30.0, 23.0, 0.8), other, kept),
                ((30.0, 25.0, 0.8), other, 'change: c = 2, w = 120 s'),
                ((30.0, 25.0, 0.8), {}, 'none'),
                # Fewer violations are wanted, or more background possible.
                ((20.0, 19.0, 0.8), {(1.0, 60.0): (23.0, 22.0, 0.84)}, kept),
                ((20.0, 19.0, 0.8), {(1.0, 60.0): (23.0, 22.0, 0.9)},
                 'change: c = 1, w = 60 s')):
            row = self.advice({(2.0, 60.0): now, **after})
            self.assertEqual([
                'memory, rule of the paper', 'c = 2, w = 60 s', what,
                'traces of others'], row[:4])
        self.assertEqual('none', self.advice({(1.0, 60.0): (
            1.0, 1.0, 0.9)})[2])
