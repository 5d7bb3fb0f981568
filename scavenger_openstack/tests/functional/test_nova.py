# SPDX-License-Identifier: Apache-2.0

"""The tests in ``tests/unit/nova``, in the environment that has Nova."""

from __future__ import annotations

import pathlib
import re
import subprocess

import fixtures
import testtools

from scavenger_openstack.tests.functional.openstack import packages

TESTS = 'scavenger_openstack.tests.unit.nova'
TIMEOUT_S = 200

AS_SCHEDULER = '''
import nova.cmd.scheduler   # decides about eventlet, before all else
import unittest
unittest.main(module=None)
'''
"""With the threads, or green threads, that a scheduler has."""


class Nova(testtools.TestCase):

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
            [str(environment / 'bin/python'), '-P', '-W', 'ignore', '-c',
             AS_SCHEDULER, *modules], cwd=top, capture_output=True, text=True,
            timeout=TIMEOUT_S, stdin=subprocess.DEVNULL,
            env={'PATH': '/usr/sbin:/usr/bin:/sbin:/bin', 'HOME': str(top),
                 'PYTHONPATH': str(plugins), 'LC_ALL': 'C.UTF-8',
                 'PYTHONDONTWRITEBYTECODE': '1'})
        self.assertEqual(0, done.returncode, done.stderr[-8000:])
        self.assertIsNotNone(re.search(r'^Ran [1-9]\d+ tests', done.stderr,
                                       re.M), done.stderr)
