# SPDX-License-Identifier: Apache-2.0

"""The tests in ``tests/unit/dashboard``, in the environment that has Horizon.
"""

from __future__ import annotations

import pathlib
import re
import subprocess

import fixtures
import testtools

from scavenger_openstack.tests.functional.openstack import packages

TESTS = 'scavenger_openstack.tests.unit.dashboard'
TIMEOUT_S = 300


class Horizon(testtools.TestCase):

    def test_units(self) -> None:
        try:
            environment = packages.environment()
        except packages.Unavailable as exc:
            self.skipTest(str(exc))
        top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        plugins = packages.plugins(top / 'plugins')
        modules = sorted(
            f'{TESTS}.{path.stem}' for path in pathlib.Path(
                plugins, *TESTS.split('.')).glob('test_*.py'))
        done = subprocess.run(
            [str(environment / 'bin/python'), '-P', '-W', 'ignore', '-m',
             'unittest', *modules], cwd=top, capture_output=True, text=True,
            timeout=TIMEOUT_S, stdin=subprocess.DEVNULL,
            env={'PATH': '/usr/sbin:/usr/bin:/sbin:/bin', 'HOME': str(top),
                 'TMPDIR': str(top), 'PYTHONPATH': str(plugins),
                 'LC_ALL': 'C.UTF-8', 'PYTHONDONTWRITEBYTECODE': '1'})
        self.assertEqual(0, done.returncode, done.stderr[-8000:])
        self.assertIsNotNone(re.search(r'^Ran [1-9]\d+ tests', done.stderr,
                                       re.M), done.stderr)
