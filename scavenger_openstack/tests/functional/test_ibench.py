# SPDX-License-Identifier: Apache-2.0

"""``scavenger-ibench`` with its kernels, as an operator starts it."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
from typing import Any

import fixtures

from scavenger_openstack.tests.functional import base
from scavenger_openstack.tests.functional.kernel_processes import kernels_of
from scavenger_openstack.tests.functional.kernel_processes import traces
from scavenger_openstack.tests.functional import profiling
from scavenger_openstack.tests import tiers
from scavenger_openstack.tests.unit.ibench import kernels

END_S = 60.0
QUICK = ('--seconds', '0.1')


class IbenchTestCase(profiling.ProfileTests):
    """One class: a validation refuses to run beside other runs."""

    def start(self, *words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, '-m', 'scavenger_openstack.cmd.ibench', *words],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, start_new_session=True,
            env={**os.environ, 'XDG_CACHE_HOME': str(kernels.directory())})
        self.addCleanup(self.finish, process)
        return process

    def finish(self, process: subprocess.Popen[str]) -> None:
        if process.poll() is None:
            process.terminate()
            process.wait(END_S)
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        process.stderr.close()

    def end(self, process: subprocess.Popen[str]) -> tuple[int, str, str]:
        out, err = process.communicate(timeout=END_S * base.pace())
        self.assertEqual([], traces(process.pid))
        return process.returncode, out, err

    def ibench(self, *words: str) -> tuple[int, str, str]:
        return self.end(self.start(*words))

    def document(self, *words: str) -> dict[str, Any]:
        code, out, err = self.ibench(*words, '--json')
        self.assertEqual(0, code, err)
        document: dict[str, Any] = json.loads(out)
        return document

    def running(self, *words: str) -> tuple[subprocess.Popen[str], int]:
        """A run, and its kernel."""
        process = self.start(*words)
        self.wait_for('a kernel runs', lambda: process.poll() is not None
                      or kernels_of(process.pid), END_S)
        self.assertIsNone(process.poll())
        return process, kernels_of(process.pid)[-1]

    def is_gone(self, pid: int) -> bool:
        try:
            return ') Z ' in pathlib.Path(f'/proc/{pid}/stat').read_text()
        except (FileNotFoundError, ProcessLookupError):
            return True

    def test_run(self) -> None:
        cpu = min(os.sched_getaffinity(0))
        document = self.document(
            'run', 'l1d', '--intensity', '50', '--cpus', str(cpu), *QUICK)
        kernel, = document['sois']
        self.assertEqual(('9', str(cpu)), (kernel['number'],
                                           document['cpus']))
        level, = kernel['levels']
        self.assertEqual(50, level['percent'])
        self.assertGreater(kernel['calibrated']['operations_per_s'], 0)
        self.assertGreater(level['operations'], 0)

    def test_it_has_a_cgroup_of_its_own(self) -> None:
        tree = self.cgroups()
        process, kernel = self.running(
            'run', '11', '--intensity', '10', '--seconds', '600',
            '--cgroup', tree.name)
        text = pathlib.Path(f'/proc/{kernel}/cgroup').read_text()
        own = f':{tree.name}/scavenger-ibench-{process.pid}\n'
        self.assertEqual(len(set(tree.mounts.values())), text.count(own))
        self.assertNotIn(own, pathlib.Path(
            f'/proc/{process.pid}/cgroup').read_text())
        process.terminate()
        self.assertEqual(130, self.end(process)[0])
        self.assertFalse(list(tree.path('memory').glob('*/cgroup.procs')))

    def test_ramp(self) -> None:
        page = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'page')
        document = self.document('ramp', 'l1i', '--levels', '20,60,100',
                                 '--html', str(page))
        kernel, = document['sois']
        self.assertEqual([20, 60, 100], [
            level['percent'] for level in kernel['levels']])
        held = [level['held_bytes'] for level in kernel['levels']]
        self.assertEqual(sorted(set(held)), held)
        self.assertEqual(2, page.read_text().count('<svg'))

    def test_mix(self) -> None:
        document = self.document('mix', '12=40,11=20', '--seconds', '1')
        self.assertEqual(['12', '11'], [kernel['number'] for kernel
                                        in document['sois']])
        for kernel in document['sois']:
            self.assertGreater(kernel['levels'][0]['operations'], 0)
            self.assertGreater(kernel['calibrated']['chunk_s'], 0)

    def test_a_link_of_its_own(self) -> None:
        kernel, = self.document('run', '5', '--intensity', '50',
                                *QUICK)['sois']
        self.assertGreater(kernel['levels'][0]['bytes'], 0)

    def test_signals(self) -> None:
        """At any instant, once or again and again: nothing is left."""
        for number, times, soi in ((signal.SIGINT, 1, '5'),
                                   (signal.SIGINT, 20, '5'),
                                   (signal.SIGTERM, 2, '11'),
                                   (signal.SIGHUP, 1, '11')):
            process, kernel = self.running(
                'run', soi, '--intensity', '10', '--seconds', '600')
            for _ in range(times):
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(number)
            code, _, err = self.end(process)
            self.assertEqual((130, True), (code, self.is_gone(kernel)), err)

    def test_killed(self) -> None:
        """Kernels die with it, and the next run removes the rest."""
        process, kernel = self.running(
            'run', '5', '--intensity', '10', '--seconds', '600')
        process.kill()
        process.wait()
        self.wait_for('the kernel is gone', lambda: self.is_gone(kernel))
        self.assertNotEqual([], traces(process.pid))
        self.document('run', '11', '--intensity', '10', *QUICK)
        self.assertEqual([], traces(process.pid))

    def test_the_remote_end_goes(self) -> None:
        server = self.start('serve', '--address', '127.0.0.1:7006')
        assert server.stdout is not None
        self.assertIn('7006', server.stdout.readline())
        process, _ = self.running(
            'run', '5', '--address', '127.0.0.1:7006', '--intensity', '50',
            '--seconds', '600')
        server.terminate()
        code, _, err = self.end(process)
        self.assertEqual((2, 1), (code, err.count('\n')), err)

    def test_a_limit_below_the_footprint(self) -> None:
        tree = self.cgroups()
        tree.put('memory', '', str(64 << 20))
        code, _, err = self.ibench(
            'run', '1', '--size', '256M', '--intensity', '90', '--yes',
            '--cgroup', tree.name, *QUICK)
        self.assertEqual((2, 1), (code, err.count('\n')), err)
        self.assertIn(tree.name, err)
        kernel, = self.document('run', '1', '--intensity', '40', '--cgroup',
                                tree.name, *QUICK)['sois']
        self.assertIn('64 MiB', kernel['whole'])

    def test_what_cannot_be(self) -> None:
        for words, mention in (
                (('run', 'nothing', '--intensity', '1'), 'nothing'),
                (('run', '6', '--intensity', '101'), '101'),
                (('run', '6', '--intensity', 'x'), 'x'),
                (('run', '6'), '--intensity'),
                (('run', '11', '--intensity', '1', '--cpus', '4095'),
                 '4095'),
                (('run', '11', '--intensity', '1', '--cgroup', '/no/such'),
                 '/no/such'),
                (('run', '11', '--intensity', '1', '--seconds', '0'), '0'),
                (('run', '3', '--intensity', '1'), '--path'),
                (('run', '3', '--intensity', '1', '--path', '/proc'),
                 '/proc'),
                (('run', '4', '--intensity', '1', '--path', '/dev/nothing'),
                 '/dev/nothing'),
                (('run', '5', '--intensity', '1', '--address',
                  '127.0.0.1:1'), '127.0.0.1:1'),
                (('run', '10', '--intensity', '1', '--geometry',
                  'page=1G,tlb=99999'), 'huge'),
                (('run', '1', '--intensity', '100'), 'memory'),
                (('ramp', '11', '--levels', '10,,20'), "''"),
                (('mix', '11=1,11=2'), '11'),
                (('validate', '--only', '99'), '99'),
                (('serve', '--address', 'nowhere'), 'nowhere')):
            code, out, err = self.ibench(*words)
            self.assertEqual((2, '', 1), (code, out, err.count('\n')),
                             f'{words}: {err}')
            self.assertIn(mention, err)

    @tiers.only_in_all('it measures, beside nothing else')
    def test_validate(self) -> None:
        document = self.document(
            'validate', '--only', '1,3,4,5,9,13', '--repeats', '1',
            '--seconds', '0.2', '--size', '64M')
        rows = {row['number']: row for row in document['sois']}
        for number in ('1', '3'):
            self.assertTrue(rows[number]['independent'])
            self.assertTrue(rows[number]['monotone'], rows[number])
            self.assertGreater(rows[number]['r2'], 0.9)
        for number in ('4', '5'):
            row = rows[number]
            self.assertTrue(row['independent'])
            self.assertEqual(10, len(row['points']), row)
            self.assertGreater(row['points'][-1]['value'], 0, row)
        for number in ('9', '13'):
            row = rows[number]
            self.assertTrue(row['independent'] or row['reason'], row)
        self.assertEqual(15, len(document['pairs']))
        for pair in document['pairs']:
            self.assertGreater(pair['first_reached'], 0, pair)

    def test_two_validations(self) -> None:
        process, _ = self.running('validate', '--only', '11', '--no-pairs')
        for words in (('validate', '--only', '11'),
                      ('run', '11', '--intensity', '1')):
            code, _, err = self.ibench(*words)
            self.assertEqual((2, 1), (code, err.count('\n')), err)
        process.send_signal(signal.SIGINT)
        self.assertEqual(130, self.end(process)[0])
