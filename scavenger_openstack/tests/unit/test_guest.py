# SPDX-License-Identifier: Apache-2.0

"""What tells a guest that hangs from one that is slow, without a guest."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys
import textwrap

import fixtures
import testtools

from scavenger_openstack.tests.functional import guest
from scavenger_openstack.tests.functional import guest_archive
from scavenger_openstack.tests.functional import guest_init

HANGS = '''
import contextlib, time, unittest
class Test(unittest.TestCase):
    def test_1_hangs(self):
        with contextlib.suppress(OSError):
            time.sleep(60)
    def test_2_hangs_as_it_tidies_up(self):
        self.addCleanup(time.sleep, 60)
        time.sleep(60)
    def test_3_does_not(self):
        pass
'''


class AttendTest(testtools.TestCase):
    """A program plays QEMU: it writes to the report, and ends or not."""

    def setUp(self) -> None:
        super().setUp()
        self.report = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path) / 'report'
        self.report.touch()

    def play(self, code: str, *, deadline_s: float = 60.0,
             silent_s: float = 60.0) -> str:
        qemu = subprocess.Popen(
            [sys.executable, '-S', '-c', 'import sys, time\n'
             'report = open(sys.argv[1], "w")\n' + textwrap.dedent(code),
             str(self.report)], stderr=subprocess.PIPE, text=True)
        self.addCleanup(qemu.communicate)
        self.addCleanup(qemu.kill)
        return guest.attend(qemu, self.report, deadline_s, silent_s,
                            look_s=0.02)

    def test_one_that_ends(self) -> None:
        self.assertEqual('words', self.play('sys.stderr.write("words")'))

    def test_one_that_stands_still(self) -> None:
        found = self.assertRaises(guest.Stuck, self.play,
                                  'time.sleep(600)', silent_s=0.2)
        self.assertTrue(found.silent)
        self.assertIn('python', str(found))
        self.assertIn(' 0 ticks of CPU', str(found))

    def test_one_that_is_slow_and_says_so(self) -> None:
        found = self.assertRaises(guest.Stuck, self.play, '''
            while True:
                print(file=report, flush=True)
                time.sleep(0.01)
            ''', deadline_s=1.6, silent_s=1.5)
        self.assertFalse(found.silent)
        self.assertIn('not within', str(found))


class ArchiveTest(testtools.TestCase):

    def test_all_that_the_product_requires(self) -> None:
        """As the checkout says it, and not what was installed before."""
        described = {re.sub('[-_.]+', '-', name.split('/')[2]).lower()
                     for name in guest_archive.requirements(binaries=True)
                     if name.endswith('.dist-info/METADATA')}
        required = guest_archive.NAME.findall((
            guest_archive.PACKAGE.parent / 'requirements.txt').read_text())
        self.assertIn('msgspec', required)
        for name in required:
            prefix = re.sub('[-_.]+', '-', name).lower() + '-'
            self.assertTrue(any(known.startswith(prefix)
                                for known in described), name)


class OutcomeTest(testtools.TestCase):

    def test_what_a_guest_was_doing(self) -> None:
        outcome = guest.Outcome(
            json.dumps({'test': '', 'status': 'beat', 'uptime_s': 7.2})
            + '\n' + json.dumps({'test': 'one', 'status': 'running'}),
            'panic', guest.Stuck('silent', True), 1.0, 301.0)
        for part in ("in ['one']: silent", 'after 301 s', 'come to 7 s',
                     'panic'):
            self.assertIn(part, outcome.stuck())


class InitTest(testtools.TestCase):
    """What runs in a guest, here."""

    def run_inside(self, code: str) -> list[dict[str, object]]:
        """What it reports, line by line."""
        done = subprocess.run(
            [sys.executable, '-c', 'import os, sys, time\nfrom '
             f'{guest_init.__name__} import *\nimport {guest_init.__name__} '
             'as init\nout = os.fdopen(os.dup(1), "wb", buffering=0)\n'
             'os.dup2(2, 1)\n' + textwrap.dedent(code)], check=True,
            capture_output=True, timeout=60)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def test_it_says_that_it_lives_until_the_tests_end(self) -> None:
        said = self.run_inside('''
            init.BEAT_S = 0.01
            ready, write = os.pipe()
            tests = os.fork()
            if not tests:
                os.read(ready, 1)
                os._exit(0)
            class Out:
                beats = 0
                def write(self, line):
                    out.write(line)
                    self.beats += 1
                    if self.beats == 3:
                        os.write(write, b'!')
            attend(tests, Out())
            ''')
        self.assertGreaterEqual(len(said), 3)
        self.assertEqual({'beat'}, {str(one['status']) for one in said})

    def test_a_test_that_hangs_costs_itself_alone(self) -> None:
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (directory / 'hangs.py').write_text(HANGS)
        said = self.run_inside(f'''
            init.TEST_TIMEOUT_S = init.AGAIN_S = 2.0
            sys.path.insert(0, {str(directory)!r})
            test(['hangs'], out)
            ''')
        self.assertEqual(
            ['fail', 'fail', 'ok'],
            [one['status'] for one in said if 'took_s' in one])
        self.assertIn('Late', str(said))
