# SPDX-License-Identifier: Apache-2.0

"""Options and configuration of the demo."""

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
from scavenger_openstack.demo import product
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
                (['--seconds', '0'], '--seconds'),
                (['--seconds', 'x'], '--seconds'),
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
        self.assertIn('the hog begins', drawn.read_text())

    def test_picture_of_nothing(self) -> None:
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        for content in (None, '', '[]', '{"curves": 1}'):
            if content is not None:
                (directory / 'result.json').write_text(content)
            code, _, err = run('--output', str(directory), '--picture',
                               str(directory / 'x.svg'))
            self.assertEqual(1, code, repr(content))
            self.assertEqual(1, err.count('\n'), err)
            self.assertIn('run it first', err)


class ScriptTest(testtools.TestCase):

    def test_arguments(self) -> None:
        """The script of a clone hands them on."""
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
                ([], ''), (['--seed', '7', '--keep'], '--seed 7 --keep')):
            self.assertEqual(expected + '\n', subprocess.run(
                [str(root / 'tools/demo.sh'), *words], check=True, text=True,
                capture_output=True).stdout)


class ProductTest(testtools.TestCase):

    def test_configuration(self) -> None:
        parser = configparser.ConfigParser()
        parser.read_string(product.config(
            background='/x/background', foreground='/x/foreground',
            more='[attribution]\nmode = enforce\n'))
        self.assertEqual('/x/background',
                         parser['cgroups']['background_parents'])
        self.assertEqual('enforce', parser['attribution']['mode'])
        # All else is as shipped.
        self.assertEqual({'libvirt', 'cgroups', 'attribution'},
                         set(parser.sections()))

    def test_status(self) -> None:
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        status = product.Status(directory)
        self.assertFalse(status.refresh())
        (directory / 'state').mkdir()
        file = directory / 'state' / 'status.json'
        for broken in ('', '{', '[1]'):
            file.write_text(broken)
            self.assertFalse(status.refresh())
            self.assertEqual([], status.caps())
        fresh = file.with_suffix('.new')
        fresh.write_text(json.dumps({'caps': [{'knob': 'cpu_idle'}, 1]}))
        fresh.replace(file)
        self.assertTrue(status.refresh())
        self.assertFalse(status.refresh())
        self.assertEqual([{'knob': 'cpu_idle'}], status.caps())
