# SPDX-License-Identifier: Apache-2.0


"""Other load: what is found, what is the demo's own, what it is called."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time

import fixtures
import testtools

from scavenger_openstack.demo import others

LOOP = ('import time\nend = time.monotonic() + 60\n'
        'while time.monotonic() < end: pass')


def process(pid: int, parent: int, cpu_s: float,
            started: int = 1) -> others.Process:
    return others.Process(pid, f'p{pid}', parent, started, cpu_s)


def look(at_s: float, busy_s: float, *found: others.Process,
         demo_s: float = 0.0, stolen_s: float = 0.0,
         members: tuple[int, ...] = ()) -> others.Look:
    return others.Look(at_s, busy_s, stolen_s, demo_s, frozenset(members),
                       {one.pid: one for one in found})


class BetweenTest(testtools.TestCase):
    """10 s on 2 CPUs; the demo is process 5."""

    def between(self, before: others.Look,
                after: others.Look) -> dict[str, object]:
        return others.between(before, after, cpus=2, demo=5)

    def test_other_program(self) -> None:
        found = self.between(
            look(0, 0, process(5, 1, 0), process(9, 1, 3.0)),
            look(10, 5, process(5, 1, 0), process(9, 1, 8.0)))
        self.assertEqual(0.5, found['other_cpus'])
        self.assertTrue(found['disturbed'])
        self.assertEqual([{'name': 'p9', 'pid': 9, 'cpus': 0.5}],
                         found['busy'])
        self.assertIn('0.50 CPUs: p9 (pid 9) 0.50', others.said([found]))

    def test_on_a_large_machine(self) -> None:
        """A busy CPU of 16 disturbs, the desktop of a developer does not."""
        for cpus, busy, disturbed in ((2, 0.16, True), (8, 0.35, False),
                                      (8, 0.5, True), (16, 1.0, True),
                                      (64, 1.0, False)):
            found = others.between(look(0, 0), look(10, 10 * busy),
                                   cpus=cpus, demo=5)
            self.assertEqual(disturbed, found['disturbed'],
                             f'{busy} of {cpus} CPUs')

    def test_our_own(self) -> None:
        """The demo, the agent below it and the loads in the cgroups."""
        before = look(0, 0, process(5, 1, 0), process(6, 5, 0),
                      process(7, 6, 0), process(8, 5, 0), members=(8,))
        after = look(10, 20, process(5, 1, 1.0), process(6, 5, 2.0),
                     process(7, 6, 3.0), process(8, 5, 14.0), demo_s=14.0,
                     members=(8,))
        found = self.between(before, after)
        self.assertEqual((0.0, False, []),
                         (found['other_cpus'], found['disturbed'],
                          found['busy']))

    def test_a_number_that_is_used_again(self) -> None:
        found = self.between(
            look(0, 0, process(9, 1, 500.0, started=1)),
            look(10, 4, process(9, 1, 4.0, started=2)))
        self.assertEqual([{'name': 'p9', 'pid': 9, 'cpus': 0.4}],
                         found['busy'])

    def test_short_lived(self) -> None:
        found = self.between(look(0, 0), look(10, 8))
        self.assertIn('ended too soon', others.said([found]))

    def test_stolen(self) -> None:
        found = self.between(look(0, 0), look(10, 0, stolen_s=2.0))
        self.assertTrue(found['disturbed'])
        self.assertIn('hypervisor took up to 0.20', others.said([found]))
        self.assertFalse(self.between(
            look(0, 0), look(10, 0, stolen_s=0.9))['disturbed'])


class ProcessesTest(testtools.TestCase):

    def test_a_name_that_is_not_text(self) -> None:
        """A process calls itself what it likes."""
        proc = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (proc / '9').mkdir()
        (proc / '9' / 'stat').write_bytes(
            b'9 (\xff\x1b[2J\n) x) R 1 ' + b'0 ' * 9 + b'200 100 '
            + b'0 ' * 6 + b'77 0\n')
        found, = others.processes(proc).values()
        self.assertEqual(
            (9, '\ufffd\\x1b[2J\\n) x', 1, 77, 300 / others.TICKS_PER_S),
            found)

    def test_a_busy_process(self) -> None:
        loop = subprocess.Popen([sys.executable, '-c', LOOP])
        self.addCleanup(loop.wait)
        self.addCleanup(loop.kill)
        first = others.look(time.monotonic(), 0.0, ())
        deadline_s = time.monotonic() + 60
        last = first
        while (loop.pid not in last.processes
               or last.processes[loop.pid].cpu_s < 0.5):
            self.assertLess(time.monotonic(), deadline_s)
            time.sleep(0.1)
            last = others.look(time.monotonic(), 0.0, ())
        self.assertEqual(os.getpid(), last.processes[loop.pid].parent)
        ours = others.between(first, last, cpus=2, demo=os.getpid())['busy']
        self.assertNotIn(loop.pid, [one['pid'] for one in ours])
