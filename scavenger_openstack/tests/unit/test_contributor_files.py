# SPDX-License-Identifier: Apache-2.0

"""What a contributor is told to type is there."""

from __future__ import annotations

import configparser
import pathlib
import re
import runpy

import testtools
import yaml

from scavenger_openstack.decision import controller
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates

TOP = pathlib.Path(__file__).parents[3]
TEXTS = (TOP / 'README.rst', TOP / 'CONTRIBUTING.rst',
         *sorted((TOP / 'doc/source').rglob('*.rst')))


FOLDERS = ('scavenger_openstack', 'benchmarks', 'tools', 'doc/source', 'etc',
           'devstack', 'playbooks', 'releasenotes')
MADE_UP = re.compile(r'/tests/|/migrations/')
"""Where files that are named are made up, or of another time."""


def readable() -> list[pathlib.Path]:
    """What engineers read of the repository."""
    return [path for path in (
        *TEXTS[:2], TOP / 'setup.cfg',
        *(path for folder in FOLDERS for path in (TOP / folder).rglob('*')))
        if path.suffix in ('.rst', '.md', '.py', '.sh', '.yaml', '.c',
                           '.service', '.example', '.sample', '.cfg')
        and not MADE_UP.search(str(path.relative_to(TOP)))]


class Commands(testtools.TestCase):

    def test_each_tox_environment_that_is_named(self) -> None:
        tox = configparser.ConfigParser(interpolation=None)
        tox.read(TOP / 'tox.ini')
        for path in TEXTS:
            for name in re.findall(r'tox -e ([\w-]+)', path.read_text()):
                self.assertIn(f'testenv:{name}', tox.sections(), str(path))

    def test_each_file_that_is_named(self) -> None:
        """Those of the source, in any text: pages, help, docstrings."""
        named = re.compile(
            r'(?<![\w./~-])((?:tools|etc|benchmarks|doc/source|devstack|'
            r'scavenger_openstack)/[\w./-]+\.\w+)')
        missing = [f'{path.relative_to(TOP)}: {name}' for path in readable()
                   for name in named.findall(path.read_text())
                   if not (TOP / name).exists()]
        self.assertEqual([], missing)


class Example(testtools.TestCase):
    """The controller on the page of the code."""

    def test_controller(self) -> None:
        module = runpy.run_path(str(
            TOP / 'doc/source/contributor/nap.py'))
        nap: controller.Controller = module['Controller'](
            module['Params'](), interval_s=1.0, host='h', boot_id='b')
        workloads = tuple(
            WorkloadRates(Workload(f'/{priority}', priority), 1.0)
            for priority in (Priority.FOREGROUND, Priority.BACKGROUND))
        for free_bytes, paused in (
                (None, []), (2 ** 30, []),
                (2 ** 30 - 1, [('/background', Knob.PAUSED, 1)])):
            decision = nap.step(1.0, Rates(
                1.0, 1.0, workloads, memory_available_bytes=free_bytes))
            self.assertEqual(paused, [cap[:3] for cap in decision.caps])
        nap.load(nap.state(), 2.0)
        nap.tune(module['Params'](min_free_bytes=0))
        self.assertEqual((), nap.step(2.0, Rates(
            2.0, 1.0, workloads, memory_available_bytes=0)).caps)


class Zuul(testtools.TestCase):

    def test_playbooks(self) -> None:
        jobs = [item['job'] for item in yaml.safe_load(
            (TOP / '.zuul.yaml').read_text()) if 'job' in item]
        self.assertNotEqual([], jobs)
        for job in jobs:
            for name in (job['run'], job['post-run']):
                plays = yaml.safe_load((TOP / name).read_text())
                self.assertTrue(all(play['tasks'] for play in plays), name)
