# SPDX-License-Identifier: Apache-2.0


"""The study of c and w in ``benchmarks/``, on data small enough to check."""

from __future__ import annotations

import dataclasses
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

    def test_without_pyarrow(self) -> None:
        (self.where / 'pyarrow.py').write_text('raise ImportError')
        for name in ('alibaba2018_dcavg_10s', 'alibaba2026_genai_pod_mem',
                     'alibaba2018_machine_usage_16machines'):
            (self.where / f'{name}.parquet').touch()
        found = self.process('--only', 'memory', '--data', self.where,
                             path=str(self.where))
        self.assertEqual((0, ''), (found.returncode, found.stderr))
        self.assertIn('run: pip install pyarrow', found.stdout)

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
                     '| memory | c = 2, w = 4 s |',
                     '| network | c = 2, w = 3 s |',
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

    def refused(self, code: int, message: str, *words: object) -> None:
        found = self.study(*words)
        self.assertEqual(code, found.returncode, found.stderr)
        self.assertIn(message, found.stderr)
        self.assertNotIn('Traceback', found.stderr)
        if code == 1:
            self.assertEqual(1, found.stderr.count('\n'), found.stderr)

    def test_wrong_words(self) -> None:
        for words, message in (
                (('--only', 'disk'), 'memory,network,ipc are expected'),
                (('--c', '-1'), "'-1': numbers from 0 to 100"),
                (('--c', '1,two'), "'1,two': numbers from 0 to 100"),
                (('--c', '1,nan,2'), 'numbers from 0 to 100'),
                (('--c', ''), 'numbers from 0 to 100'),
                (('--windows', '0'), 'numbers from 2 to 86400'),
                (('--windows', '60,inf'), 'numbers from 2 to 86400'),
                (('--memory-violations', '-1'), 'a number from 0 to 86400'),
                (('--network-violations', 'nan'), 'a number from 0 to'),
                (('--hosts', '0'), 'a whole number from 1 to 1000'),
                (('--seconds', '1.5'), 'a whole number from 60 to'),
                (('--ipc-seconds', 'x'), 'a whole number from 60 to')):
            self.refused(2, message, *words)

    def test_what_is_no_recording(self) -> None:
        host = recordings.Host(self.where / 'damaged')
        host.ticks(10)
        host.recorder.close()
        lines = (self.where / 'damaged').read_text().splitlines()
        (self.where / 'damaged').write_text(
            '\n'.join([*lines[:4], '{"type": "tick"}', *lines[5:], '']))
        (self.where / 'nothing').touch()
        for path, message in (
                (self.where / 'none', 'No such file or directory'),
                (self.where, 'Is a directory'),
                (self.where / 'nothing', 'not a recording'),
                (self.where / 'damaged', 'damaged:5: '),
                (SCRIPT, 'sensitivity.py:1: ')):
            self.refused(1, message, '--recording', path)
        self.assertFalse((self.where / 'out').exists())

    def test_recording_of_almost_nothing(self) -> None:
        for ticks in (0, 1, 2):
            path = self.where / f'{ticks}.recording'
            host = recordings.Host(path)
            host.ticks(ticks)
            host.recorder.close()
            found = self.study('--recording', path, '--windows', '30')
            self.assertEqual((0, ''), (found.returncode, found.stderr))
            self.assertIn('Skipped: no foreground workload', self.report())
            self.assertIn('Nothing was studied' if not ticks else
                          'too short or too coarse', self.report())

    def test_output_that_cannot_be_written(self) -> None:
        (self.where / 'file').touch()
        (self.where / 'taken' / 'sensitivity.md').mkdir(parents=True)
        (self.where / 'pictures' / 'sensitivity-simulated-3.svg').mkdir(
            parents=True)
        network = '--only', 'network', '--seconds', 60, '--hosts', 1
        for words, message in (
                (('--output', self.where / 'file'), 'File exists'),
                (('--output', self.where / 'file' / 'x'), 'Not a directory'),
                (('--output', '/proc/nowhere'), 'No such file'),
                (('--output', self.where / 'taken'), 'Is a directory'),
                (('--pictures', self.where / 'file'), 'File exists'),
                (('--pictures', self.where / 'pictures', *network),
                 'Is a directory')):
            self.refused(1, message, *words)

    def test_traces_that_are_none(self) -> None:
        self.pyarrow()
        path = self.where / 'alibaba2018_dcavg_10s.parquet'
        path.write_text('not Parquet')
        found = self.study('--only', 'memory', '--data', self.where)
        self.assertEqual((0, ''), (found.returncode, found.stderr))
        self.assertIn(f'skipped: {path} is not a Parquet file', found.stdout)
        self.assertIn('Nothing was studied', self.report())

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
        found = self.study('--only', 'memory', '--data', self.where,
                           '--c', '1,2', '--windows', '60,600')
        self.assertEqual((0, ''), (found.returncode, found.stderr))
        self.assertEqual(3, found.stdout.count('skipped: no alibaba'))
        report = self.report()
        for part in ('2 days, 3000 samples',
                     'Is it the seconds or the samples of a window',
                     'Another least headroom instead of another c',
                     '## Beside figures 6 and 14 of the paper',
                     'How many violations a day are acceptable is a choice',
                     '| memory | c = 2, w = 60 s |', 'traces of others'):
            self.assertIn(part, report)


class Parts(Benchmark):

    def setUp(self) -> None:
        super().setUp()
        self.sweep: Any = importlib.import_module('sweep')
        self.traces: Any = importlib.import_module('traces')
        self.traffic: Any = importlib.import_module('traffic')
        self.ipc_noise: Any = importlib.import_module('ipc_noise')
        self.report: Any = importlib.import_module('reserve_report')

    def run_on(self, values: list[float], *, times: list[float] | None = None,
               c: float = 2.0, size: int = 4, least: float = 0.02) -> Any:
        trace = self.traces.of_points(
            'x', 100.0, zip(times or map(float, range(len(values))), values,
                            strict=True),
            resource='memory', interval_s=1.0)
        tally, = self.sweep.run(trace, self.sweep.Setting(c, size, least))
        return tally

    def test_one_step(self) -> None:
        tally = self.run_on([40.0] * 10 + [50.0] * 10)
        # Samples 5 to 20 are judged; before and at the step 42 % were kept,
        # then 50 + 2 %.
        self.assertEqual((20, 16, 1), (tally.samples, tally.judged,
                                       tally.violations))
        self.assertAlmostEqual(0.08, tally.overshoot)
        self.assertAlmostEqual(7 * 0.58 + 9 * 0.48, tally.afforded)
        self.assertAlmostEqual(6 * 0.6 + 10 * 0.5, tally.possible)

    def test_sigma_is_kept(self) -> None:
        values = [40.0, 44.0] * 2
        # mu 42, sigma of the sample 2.309: 46.6 % are kept with c = 2.
        self.assertEqual(0, self.run_on([*values, 46.5], least=0.0)
                         .violations)
        self.assertEqual(1, self.run_on([*values, 46.7], least=0.0)
                         .violations)

    def test_learns_anew_after_a_gap(self) -> None:
        times = [*map(float, range(10)), *map(float, range(20, 30))]
        tally = self.run_on([40.0] * 10 + [50.0] * 10, times=times)
        self.assertEqual((12, 0), (tally.judged, tally.violations))
        self.assertEqual(12.0, tally.judged_s)

    def test_blocks_add_up(self) -> None:
        values = self.traffic.bursts(sources=5, seconds=300, seed=1)
        trace = self.traces.of_points('x', 125e6, values, resource='uplink',
                                      interval_s=1.0)
        setting = self.sweep.Setting(1.0, 15, 0.02)
        whole, = self.sweep.run(trace, setting)
        parts = self.sweep.run(trace, setting, block_s=100.0)
        self.assertEqual(3, len(parts))
        self.assertGreater(whole.violations, 0)
        self.assertEqual(whole.violations,
                         sum(part.violations for part in parts))
        self.assertEqual(whole.judged, sum(part.judged for part in parts))

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

    def test_choice(self) -> None:
        def choice(c: float, window_s: float, per_day: float,
                   of_oracle: float) -> Any:
            one = self.sweep.Range(per_day, per_day, per_day)
            return self.sweep.Choice(c, window_s, (self.sweep.Outcome(
                one, 0.0, 0.0, 0.0, 0.0, one, of_oracle, 1.0),))

        now = choice(2.0, 60.0, 100.0, 0.9)
        near, far = choice(2.0, 120.0, 20.0, 0.77), choice(0.5, 600.0, 20.0,
                                                           0.8)
        poor = choice(2.0, 61.0, 20.0, 0.5)
        found = [now, far, near, poor]
        self.assertIs(far, self.sweep.best(found, 24.0))
        self.assertIs(near, self.sweep.nearest(found, 24.0, now))
        self.assertIs(now, self.sweep.nearest(found, 200.0, now))
        self.assertIsNone(self.sweep.nearest(found, 1.0, now))

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
            self.assertEqual(['memory', 'c = 2, w = 60 s', what,
                              'traces of others'], row[:4])
        self.assertEqual('none', self.advice({(1.0, 60.0): (
            1.0, 1.0, 0.9)})[2])

    def test_thinned(self) -> None:
        trace = self.traces.of_points(
            'x', 100.0, [(10.0 * at, float(at)) for at in range(10)],
            resource='memory', interval_s=10.0)
        group = self.traces.thinned(
            self.traces.Group('x', 'X', 'day', '', [trace]), 4)
        self.assertEqual(40.0, group.interval_s)
        self.assertEqual([0.0, 40.0, 80.0],
                         [tick.time_s for tick in group.traces[0].ticks])

    def test_shape(self) -> None:
        sweep = self.sweep

        def outcome(per_day: float, afforded: float) -> Any:
            return sweep.Outcome(
                sweep.Range(per_day, 0.0, 0.0), 0.0, 0.0, 0.0, 0.0,
                sweep.Range(afforded, 0.0, 0.0), 0.0, 1.0)

        study = {sweep.Setting(1.0, 5, 0.0): outcome(9.0, 0.5),
                 sweep.Setting(2.0, 5, 0.0): outcome(8.0, 0.4),
                 sweep.Setting(1.0, 9, 0.0): outcome(7.0, 0.6),
                 sweep.Setting(2.0, 9, 0.0): outcome(7.5, 0.6),
                 sweep.Setting(3.0, 9, 0.02): outcome(70.0, 0.9)}
        self.assertEqual((2, 1, 2), sweep.shape(study, 'c', 0.0))
        self.assertEqual((2, 2, 0), sweep.shape(study, 'size', 0.0))

    def test_names_that_workloads_choose(self) -> None:
        charts = importlib.import_module('charts')
        self.assertIn('| a\\|b c | 1 |', charts.table(
            ('x', 'y'), [('a|b\nc', '1')]))
        ticks = [rates(None, recordings.Host(self.where / 'a.recording')
                       .sample())]
        ticks[0] = dataclasses.replace(
            ticks[0], links={'../../up': 1e6},
            link_tx_bytes_per_s={'../../up': 1.0})
        self.assertEqual(
            'link-.._.._up',
            self.traces.of_recording(ticks, 1.0)[-1].key)

    def test_noise_is_what_it_says(self) -> None:
        ipc_noise = self.ipc_noise
        case = ipc_noise.Case(1, 0.05, 0.9, 1.0, 15)
        series = [one for one, in ipc_noise.noise(random.Random(1), case,
                                                  20_000)]
        mean = sum(series) / len(series)
        power = sum((x - mean) ** 2 for x in series)
        self.assertAlmostEqual(1.0, mean, delta=0.01)
        self.assertAlmostEqual(0.05, (power / len(series)) ** 0.5,
                               delta=0.005)
        self.assertAlmostEqual(0.9, sum(
            (a - mean) * (b - mean) for a, b in zip(
                series, series[1:], strict=False)) / power, delta=0.02)
        paper = ipc_noise.quiet(case._replace(workloads=5, smoothing=0), 200)
        wide = ipc_noise.quiet(case._replace(workloads=5, c=4.0,
                                             window_s=60), 200)
        self.assertGreater(paper.at_minimum, 0.5)
        self.assertLess(wide.at_minimum, 0.2)
