# SPDX-License-Identifier: Apache-2.0



"""``scavenger-replay`` as an operator types it."""

from __future__ import annotations

import configparser
import fcntl
import io
import json
import os
import pathlib
import signal
import subprocess
import sys

import fixtures
import testtools

from scavenger_openstack.cmd import replay
from scavenger_openstack.recording import rates_table
from scavenger_openstack.tests.unit import recordings

HEADER = ','.join(rates_table.REQUIRED)
CAPACITIES = ('--cpus', '2', '--memory-bytes', '1e9', '--link-bytes-per-s',
              '1e8')


class ReplayTestCase(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.path = directory / 'a.recording'
        self.csv = directory / 'rates.csv'
        self.config = directory / 'scavenger.conf'
        self.config.write_text('[scavenger]\nmemory_window_s = 2\n')

    def record(self, count: int = 60) -> None:
        host = recordings.Host(self.path)
        host.ticks(count)
        host.recorder.close()

    def table(self, *rows: str) -> None:
        self.csv.write_text('\n'.join((HEADER, *rows, '')))

    def rows(self) -> None:
        self.table(*(
            f'{time_s},{name},,,,1,,,,,,1000,{time_s * 1e6:.0f}'
            for time_s in range(1, 9) for name in ('web', 'db')), *(
            f'{time_s},batch,background,,,1,,,,,,1000,1e8'
            for time_s in range(1, 9)))

    def run_(self, *words: object, code: int = 0) -> list[str]:
        """Lines of standard output; ``self.err`` is the other one."""
        out, err = io.StringIO(), io.StringIO()
        with fixtures.MonkeyPatch('sys.stdout', out), \
                fixtures.MonkeyPatch('sys.stderr', err):
            found = replay.main([str(word) for word in words] + [
                '--config-file', str(self.config)])
        self.err = err.getvalue()
        self.assertEqual(code, found, out.getvalue() + self.err)
        self.assertNotIn('Traceback', self.err)
        return out.getvalue().splitlines()

    def refused(self, code: int, words: tuple[object, ...],
                *said: str) -> None:
        """One line for the operator that says all of ``said``."""
        self.assertEqual([], self.run_(*words, code=code))
        self.assertEqual(1, len(self.err.splitlines()), self.err)
        for word in ('scavenger-replay: ', *said):
            self.assertIn(word, self.err)


class RecordingTest(ReplayTestCase):

    def test_both_formats_tell_the_same(self) -> None:
        self.record()
        lines = self.run_(self.path)
        documents = [json.loads(line) for line in
                     self.run_(self.path, '--format', 'json')]
        self.assertGreater(len(documents), 50)
        self.assertEqual(f'60 ticks, {len(documents)} decisions', lines[-1])
        self.assertEqual(len(documents), len(lines) - 2)
        self.assertEqual('', self.err)
        for one in documents:
            for field in ('type', 'time_s', 'controller', 'host'):
                self.assertIn(field, one)

    def test_verify(self) -> None:
        self.record()
        [line] = self.run_(self.path, '--verify')
        self.assertIn('60 ticks', line)
        lines = self.path.read_text().splitlines(keepends=True)
        place = next(place for place, line in enumerate(lines)
                     if place > 9 and '"wanted"' in line)
        document = json.loads(lines[place])
        del document['wanted']
        lines[place] = json.dumps(document) + '\n'
        self.path.write_text(''.join(lines))
        [line] = self.run_(self.path, '--verify', code=1)
        self.assertTrue(line.startswith(f'{self.path}:{place + 1}: '), line)
        self.path.write_text(lines[0])
        [line] = self.run_(self.path, '--verify', code=1)
        self.assertIn('no tick', line)

    def test_compare(self) -> None:
        self.record()
        words = (self.path, '--compare', '--set',
                 'scavenger.use_cpu_idle=false', '--set',
                 'scavenger.memory_c=7')
        text = '\n'.join(self.run_(*words))
        for word in ('recorded', 'memory_c=7', 'first difference'):
            self.assertIn(word, text)
        [line] = self.run_(*words, '--format', 'json')
        self.assertEqual('comparison', json.loads(line)['type'])

    def test_thresholds_of_a_signal_that_is_not_there(self) -> None:
        self.record()
        [line] = self.run_(self.path, '--thresholds', '--format', 'json')
        self.assertEqual({'type': 'thresholds', 'cpi_threshold': None,
                          'io_wait_threshold_s': None}, json.loads(line))

    def test_what_does_not_go_together(self) -> None:
        self.record(1)
        change = ('--set', 'scavenger.memory_c=3')
        for words, *said in (
                ((self.path, '--verify', *change), '--verify'),
                ((self.path, '--verify', '--compare', *change), '--verify'),
                ((self.path, '--compare'), '--set'),
                ((self.path, '--thresholds', '--verify'), '--thresholds'),
                ((self.path, '--thresholds', '--compare', *change),
                 '--thresholds'),
                ((self.path, '--cpus', '2'), '--cpus', 'table'),
                ((self.path, '--memory-bytes', '2'), '--memory-bytes'),
                ((self.path, '--set', 'scavenger.memry_c=3'), 'memory_c?')):
            self.refused(2, words, *said)

    def test_wrong_words(self) -> None:
        for words, word in (((self.path, '--cpus', '0'), 'cpus'),
                            ((self.path, '--format', 'xml'), 'format'),
                            ((), 'FILE')):
            self.assertEqual([], self.run_(*words, code=2))
            self.assertIn(word, self.err)

    def test_files_that_are_not_there_or_wrong(self) -> None:
        self.refused(1, (self.path,), str(self.path), 'No such file')
        self.refused(1, (self.path.parent,), str(self.path.parent))
        self.path.write_text('{"type": "tick"}\n')
        self.refused(1, (self.path,), f'{self.path}:1: type: ')
        self.path.unlink()
        self.record()
        with self.path.open('a') as file:
            file.write('{"type": "tick", "time_s": 9e9, "stopped": 7}\n')
        self.run_(self.path, code=1)
        self.assertIn(f'{self.path}:62: stopped: 7', self.err)
        self.assertEqual(1, len(self.err.splitlines()))

    def test_a_file_that_can_be_read_only_once(self) -> None:
        os.mkfifo(self.path)
        self.refused(1, (self.path,), str(self.path), 'not a regular file')

    def test_whatever_a_stranger_wrote_is_one_harmless_line(self) -> None:
        self.record()
        first, *rest = self.path.read_text().splitlines()
        header = json.loads(first)
        header['version'] = '1\x1b[2J\nall is well'
        line = json.loads(rest[9])
        line['wanted'] = [{'knob': 'cpu_cores', 'owner': '\x1b[2J',
                           'reason': '\x9b1m\nx', 'values': {'\x07\n': 1}}]
        self.path.write_text('\n'.join((
            json.dumps(header), *rest[:9], json.dumps(line), '')))
        [said] = self.run_(self.path, '--verify', code=1)
        for text in (said, self.err):
            self.assertTrue(text.rstrip('\n').isprintable(), text)

    def test_what_an_operator_should_know_is_told_once(self) -> None:
        self.record()
        first, *rest = self.path.read_text().splitlines(keepends=True)
        header = json.loads(first)
        header['version'] = '0.0.0'
        del header['controllers'][0]['params']['memory_c']
        self.path.write_text(''.join((json.dumps(header), '\n', *rest,
                                      '{"type"')))
        self.run_(self.path, '--verify')
        for word in ('version 0.0.0', 'memory_c is not in the recording',
                     ':62: the last line was never finished'):
            self.assertEqual(1, self.err.count(word), self.err)


class TableTest(ReplayTestCase):

    def test_without_capacities_regulators_do_not_run(self) -> None:
        self.rows()
        self.assertEqual(['8 ticks, 0 decisions'], self.run_(self.csv))
        self.assertEqual(1, len(self.err.splitlines()), self.err)
        for word in ('only detectors run', '--cpus', '--memory-bytes',
                     '--link-bytes-per-s'):
            self.assertIn(word, self.err)

    def test_with_capacities_they_do(self) -> None:
        self.rows()
        found = [json.loads(line) for line in self.run_(
            self.csv, *CAPACITIES, '--format', 'json')]
        self.assertEqual('', self.err)
        self.assertEqual({'memory_bytes', 'egress_bytes_per_s', 'cpu_idle'},
                         {one['knob'] for one in found})
        self.assertEqual({('local', 'batch', 'enforce')},
                         {(one['host'], one['workload'], one['mode'])
                          for one in found})
        self.run_(self.csv, '--memory-bytes', '1e9')
        self.assertIn('rules for CPU, network are off', self.err)

    def test_configuration_and_what_if(self) -> None:
        self.rows()
        text = '\n'.join(self.run_(
            self.csv, *CAPACITIES, '--compare', '--set',
            'scavenger.use_memory=false'))
        self.assertIn('configured', text)
        self.assertIn('first difference', text)
        self.config.write_text('[scavenger]\nmode = off\n')
        self.assertEqual(['8 ticks, 0 decisions'],
                         self.run_(self.csv, *CAPACITIES))

    def test_names_in_lines_for_people_are_harmless(self) -> None:
        self.rows()
        self.csv.write_text(self.csv.read_text().replace(
            'batch', '"\x1b[2J\n9.000  local"'))
        change = ('--compare', '--set', 'scavenger.use_memory=false')
        for words in ((), change):
            lines = self.run_(self.csv, *CAPACITIES, *words)
            for line in lines:
                self.assertTrue(line.isprintable(), line)
                self.assertFalse(line.startswith('9.000'), line)
            self.assertIn('\\x1b[2J\\n9.000  local', '\n'.join(lines))

    def test_capacities_are_numbers(self) -> None:
        self.rows()
        for option in ('--memory-bytes', '--link-bytes-per-s'):
            for value in ('nan', 'inf', '1e308'):
                self.refused(2, (self.csv, option, value), option, 'finite')

    def test_thresholds_of_several_hosts(self) -> None:
        """The largest of all, as a section of the configuration."""
        self.csv.write_text('\n'.join((f'{HEADER},host', *(
            f'{time_s},vm{vm},,spark,,1,,,{0.001 + vm * wait:.3f},,,,,{host}'
            for time_s in range(1, 16)
            for host, wait in (('a', 0.002), ('b', 0.006 * (time_s > 5)))
            for vm in range(2)), '')))
        self.config.write_text('[agent]\ncontrollers = perfcloud\n')
        lines = self.run_(self.csv, '--thresholds', '--set',
                          'perfcloud.ewma_alpha=1')
        self.config.write_text('\n'.join(lines))
        found = configparser.ConfigParser()
        found.read(self.config)
        self.assertEqual(['io_wait_threshold_s'], list(found['perfcloud']))
        self.assertAlmostEqual(
            0.003, float(found['perfcloud']['io_wait_threshold_s']), 9)

    def test_bad_tables(self) -> None:
        self.table('1,web,mine' + ',' * 10)
        self.refused(1, (self.csv,), f"{self.csv}:2: priority: 'mine'")
        self.csv.write_text('')
        self.refused(1, (self.csv,), f'{self.csv}:1: empty')
        self.rows()
        self.refused(2, (self.csv, '--verify'), '--verify', 'table')

    def test_unknown_columns_are_told_once(self) -> None:
        self.rows()
        self.csv.write_text(''.join(
            line + (',color\n' if line.startswith('time') else ',red\n')
            for line in self.csv.read_text().splitlines()))
        self.run_(self.csv, *CAPACITIES)
        self.assertEqual(1, len(self.err.splitlines()), self.err)
        self.assertIn("unknown columns are passed over: 'color'", self.err)


class ProcessTest(ReplayTestCase):

    def start(self, *words: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, '-m', 'scavenger_openstack.cmd.replay',
             *map(str, words), '--config-file', str(self.config)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.end, process)
        assert process.stdout is not None
        # So that it has to wait for us after a few lines.
        fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 4096)
        return process

    @staticmethod
    def end(process: subprocess.Popen[str]) -> None:
        process.kill()
        process.communicate()

    def test_a_reader_that_goes_away(self) -> None:
        self.record(400)
        for words in ((), ('--format', 'json')):
            process = self.start(self.path, *words)
            assert process.stdout is not None
            process.stdout.readline()
            process.stdout.close()
            process.stdout = None
            _, err = process.communicate(timeout=60)
            self.assertEqual((0, ''), (process.returncode, err))

    def test_wrong_words(self) -> None:
        process = self.start(self.path, '--fast')
        _, err = process.communicate(timeout=60)
        self.assertEqual(2, process.returncode, err)
        self.assertIn('--fast', err)
        self.assertNotIn('Traceback', err)

    def test_ctrl_c(self) -> None:
        self.record(400)
        process = self.start(self.path, '--format', 'json')
        assert process.stdout is not None
        process.stdout.readline()       # it is at work, and soon waits for us
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        self.assertEqual((130, ''), (process.returncode, err))
