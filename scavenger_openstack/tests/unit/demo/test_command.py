# SPDX-License-Identifier: Apache-2.0

"""Options, phases and configuration of the demo."""

from __future__ import annotations

import configparser
import contextlib
import io
import json
import os
import pathlib
import subprocess

import fixtures
import testtools

from scavenger_openstack.cmd import demo
from scavenger_openstack.demo.filling import phases
from scavenger_openstack.demo import product
from scavenger_openstack.demo import progress
from scavenger_openstack.tests.unit.demo.records import whole


def run(*argv: str) -> tuple[int, str, str]:
    """Exit code, stdout, stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = demo.main(list(argv))
        except SystemExit as exc:
            code = int(exc.code or 0)
    return code, out.getvalue(), err.getvalue()


class CommandTest(testtools.TestCase):

    def test_usage(self) -> None:
        for argv, words in (
                (['--bogus'], '--bogus'),
                (['--only', 'alone,nobody'], 'no phase nobody'),
                (['--only', ','], 'there are alone, unmanaged'),
                (['--rounds', '0'], '--rounds'),
                (['--phase-seconds', 'x'], '--phase-seconds'),
                (['--memory', '100'], '1280 MiB'),
                (['--who', '--quick'], '--quick is for the first act'),
                (['--who', '--rounds', '2'], '--rounds is for'),
                (['--turns', '0'], '--turns'),
                (['--who', '--turns', '2'], '--turns is for'),
                (['--who', '--only', 'alone'], '--only is for'),
                (['--watch-foreground', '/a'], 'go together')):
            code, _, err = run(*argv)
            self.assertEqual(2, code, ' '.join(argv))
            self.assertIn(words, err)

    def test_picture(self) -> None:
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (directory / 'result.json').write_text(json.dumps(whole()))
        drawn = directory / 'x.svg'
        code, _, _ = run('--output', str(directory), '--picture', str(drawn))
        self.assertEqual(0, code)
        self.assertIn('scavenger', drawn.read_text())

    def test_picture_of_nothing(self) -> None:
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        for content in (None, '', '[]', '{"phases": 1}'):
            if content is not None:
                (directory / 'result.json').write_text(content)
            code, _, err = run('--output', str(directory), '--picture',
                               str(directory / 'x.svg'))
            self.assertEqual(1, code, repr(content))
            self.assertEqual(1, err.count('\n'), err)
            self.assertIn('play it first', err)


class ScriptTest(testtools.TestCase):

    def test_arguments(self) -> None:
        """The script of a clone plays the quick form, of the first act."""
        script = pathlib.Path(__file__).parents[4] / 'tools' / 'demo.sh'
        if os.geteuid() != 0 or not script.exists():
            self.skipTest('needs root, and a clone of the repository')
        root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        for name, text in (('tools/demo.sh', script.read_text()),
                           ('tools/setup.sh', '#!/bin/sh\n'),
                           ('.venv/bin/scavenger-demo',
                            '#!/bin/sh\necho "$@"\n')):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
            (root / name).chmod(0o755)
        for words, expected in (
                ([], '--quick'), (['--seed', '7'], '--quick --seed 7'),
                (['--json', '--who'], '--json --who')):
            self.assertEqual(expected + '\n', subprocess.run(
                [str(root / 'tools/demo.sh'), *words], check=True, text=True,
                capture_output=True).stdout)


class PhasesTest(testtools.TestCase):

    def test_rotated_order(self) -> None:
        names = list(phases.PHASES)
        orders = [phases.order(names, number) for number in range(5)]
        self.assertEqual(names, orders[0])
        for one in orders:
            self.assertEqual(sorted(names), sorted(one))
        self.assertTrue(len({one[0] for one in orders}) >= 3)

    def test_short_lists(self) -> None:
        for names in (['alone'], ['alone', 'unmanaged']):
            for number in range(4):
                self.assertEqual(sorted(names),
                                 sorted(phases.order(names, number)))


class ProductTest(testtools.TestCase):

    def test_configuration(self) -> None:
        parser = configparser.ConfigParser()
        parser.read_string(product.config(
            background='/x/background', foreground='/x/foreground',
            mode='enforce', memory_root='/x', killable='/x/background',
            links='n:up0=25000000', interfaces='/x/background/net=m:eth0'))
        self.assertEqual('/x', parser['cgroups']['memory_root'])
        self.assertEqual('n:up0=25000000', parser['network']['links'])
        self.assertEqual('enforce', parser['scavenger']['mode'])

    def test_nothing_that_was_not_said(self) -> None:
        parser = configparser.ConfigParser()
        parser.read_string(product.config(
            background='/b', foreground='/f', mode='observe'))
        self.assertNotIn('memory_root', parser['cgroups'])
        self.assertIsNone(parser['network'].get('links'))

    def test_status(self) -> None:
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        status = product.Status(directory)
        self.assertFalse(status.look())
        (directory / 'state').mkdir()
        file = directory / 'state' / 'status.json'
        for broken in ('', '{', '[1]'):
            file.write_text(broken)
            self.assertFalse(status.look())
            self.assertEqual(({}, [], 0), (status.facts(), status.caps(),
                                           status.counter('kills')))
        fresh = file.with_suffix('.new')
        fresh.write_text(json.dumps({
            'caps': [{'knob': 'cpu_idle'}], 'counters': {'kills': 2},
            'controllers': {'scavenger': {'facts': {'memory': {}}}}}))
        fresh.replace(file)
        self.assertTrue(status.look())
        self.assertFalse(status.look())
        self.assertEqual(2, status.counter('kills'))
        self.assertEqual({'memory': {}}, status.facts())


class ProgressTest(testtools.TestCase):

    def test_plain_lines(self) -> None:
        stream = io.StringIO()
        names = list(phases.PHASES)
        shown = progress.Progress(names, 1, 12.0, stream, turns=12)
        self.assertTrue(shown.total_s < 240, shown.total_s)
        shown.begin(0, phases.PHASES['alone'], 12.0)
        shown.show(3.0)
        shown.end()
        self.assertEqual(1, stream.getvalue().count('\n'))
        self.assertIn('round 1/1  alone', stream.getvalue())

    def test_full_takes_less_than_twenty_minutes(self) -> None:
        shown = progress.Progress(list(phases.PHASES), 4, 30.0,
                                  io.StringIO(), turns=12)
        self.assertTrue(shown.total_s < 1200, shown.total_s)
