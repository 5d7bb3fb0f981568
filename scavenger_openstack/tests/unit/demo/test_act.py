# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""How many rounds the first act plays, with what takes root left out."""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import json
import pathlib
from typing import Any

import fixtures
import testtools

from scavenger_openstack.demo.filling import act
from scavenger_openstack.demo.filling import phases
from scavenger_openstack.demo.filling import play
from scavenger_openstack.demo.filling import turns
from scavenger_openstack.demo import interrupt
from scavenger_openstack.demo import progress
from scavenger_openstack.tests.unit.demo import records

NAMES = ('alone', 'unmanaged', 'static_half', 'scavenger')


class NoStage:
    """Stands in for namespaces and cgroups, which only root can make."""

    def __init__(self, **settings: Any) -> None:
        self.programs = pathlib.Path('/')

    def make(self) -> None:
        pass

    def remove(self) -> list[str]:
        return []


class RoundsTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.output = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.said = io.StringIO()
        # Signals stay as the tests have them.
        self.useFixture(fixtures.MonkeyPatch(
            f'{interrupt.__name__}.SIGNALS', ()))
        self.interrupt = interrupt.Interrupt()
        for where, value in (
                (f'{act.__name__}.stage_.Stage', NoStage),
                (f'{act.__name__}.acts.check', lambda options: [0, 1]),
                (f'{act.__name__}.load.build', lambda directory: None),
                (f'{act.__name__}.load.calibrate', lambda directory: 1.0),
                (f'{act.__name__}.progress_.Progress', functools.partial(
                    progress.Progress, stream=self.said)),
                (f'{turns.__name__}.Turns.play', self.turns)):
            self.useFixture(fixtures.MonkeyPatch(where, value))

    @staticmethod
    def turns(playing: turns.Turns, **limits: Any) -> None:
        playing.pairs = records.pairs()

    def play(self, works: list[float], rounds: int) -> dict[str, Any]:
        """What is stored of a demo of so many rounds, and more if it takes
        them.

        :param works: of the batch work in each round, beside the agent;
            unmanaged it is 1
        """
        def phase(playing: play.Play, one: phases.Phase, number: int
                  ) -> dict[str, Any]:
            work = {'alone': 0.0, 'unmanaged': 1.0, 'static_half': 0.6,
                    'scavenger': works[number]}[one.name]
            return {**records.record(
                one.name, number, work=work,
                p99_s=0.5 if one.name == 'unmanaged' else 0.01),
                'knobs_left': []}

        self.useFixture(fixtures.MonkeyPatch(
            f'{play.__name__}.Play.phase', phase))
        options = argparse.Namespace(
            quick=False, only=list(NAMES), rounds=rounds, phase_seconds=10.0,
            seed='1', turns=None, memory=2048, output=self.output, json=True)
        with contextlib.redirect_stdout(io.StringIO()), \
                contextlib.redirect_stderr(self.said):
            act.play(options, self.interrupt)
        found: dict[str, Any] = json.loads(
            (self.output / 'result.json').read_text())
        return found

    def test_rounds_that_differ_take_a_third(self) -> None:
        for works, verdict in (([0.9, 0.8, 0.9], 'passed'),
                               ([0.9, 0.8, 0.8], 'inconclusive')):
            found = self.play(works, 2)
            self.assertEqual(
                (verdict, 3, 2), (found['verdict'], *(
                    len(found['phases'][name]['rounds'])
                    for name in ('scavenger', 'static_half'))))
            self.assertEqual((2, 1), (found['settings']['rounds'],
                                      found['settings']['more_rounds']))
            self.assertIn('one more round tells', self.said.getvalue())

    def test_rounds_that_agree_take_no_more(self) -> None:
        found = self.play([0.9, 0.95], 2)
        self.assertEqual(('passed', 2, 0), (
            found['verdict'], found['settings']['rounds'],
            found['settings']['more_rounds']))
        self.assertNotIn('one more round tells', self.said.getvalue())

    def test_one_round_that_misses_takes_two_more(self) -> None:
        for works, verdict in (([0.8, 0.9, 0.9], 'passed'),
                               ([0.8, 0.8, 0.8], 'failed')):
            found = self.play(works, 1)
            self.assertEqual((verdict, 1, 2), (
                found['verdict'], found['settings']['rounds'],
                found['settings']['more_rounds']))
