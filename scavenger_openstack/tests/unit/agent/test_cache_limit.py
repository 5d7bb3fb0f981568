# SPDX-License-Identifier: Apache-2.0

"""The part of last-level caches that background work may fill, from the wish
to the files of resctrl and back."""

from __future__ import annotations

import os
from typing import Any

from scavenger_openstack.agent.apply.actuator import READ_TICKS
from scavenger_openstack.agent.events import tick_events
from scavenger_openstack.agent.isolation import blind_isolation
from scavenger_openstack.agent import loop as loop_
from scavenger_openstack.algorithms.perfiso import perfiso
from scavenger_openstack.drivers.resctrl import control
from scavenger_openstack.restore import abilities
from scavenger_openstack.restore import messages
from scavenger_openstack.restore import restoration
from scavenger_openstack.tests.unit.agent.loops import A
from scavenger_openstack.tests.unit.agent.loops import B
from scavenger_openstack.tests.unit.agent.loops import LoopTestCase
from scavenger_openstack.tests.unit.agent.loops import SERVICE
from scavenger_openstack.tests.unit.drivers.resctrl import files
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Mode
from scavenger_openstack.wire import report

KEY = ('background', Knob.LLC_WAYS)
THREADS = {A: '11\n12', B: '21', SERVICE: '31'}
CHANGES = ('mkdir', 'schemata', 'tasks', 'tasks', 'tasks', 'rmdir')
BACKGROUND, EVERY = {11, 12, 21}, {1, 11, 12, 21, 31}


class Killed(BaseException):
    """The agent is no more."""


class CacheLimitTest(LoopTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.resctrl = self.useFixture(files.Resctrl(
            closids=4, root=self.host.root, tasks=EVERY))
        for path, threads in THREADS.items():
            self.host.write(path, 'cgroup.threads', threads)

    def loop_on_host(self) -> loop_.Loop:
        loop = self.loop()
        self.watching.kinds = {**self.watching.kinds, abilities.of_mount(
            str(self.resctrl.top), 'resctrl'): ''}
        return loop

    def groups(self) -> list[str]:
        return sorted(path.name for path in self.resctrl.top.iterdir()
                      if path.is_dir() and path.name not in files.NO_GROUPS)

    def part(self) -> dict[str, dict[str, str]]:
        return files.parse(self.resctrl.read('scavenger/schemata'))

    def restored(self) -> None:
        self.assertEqual(([], EVERY), (self.groups(), self.resctrl.tasks()))

    def test_controllers_know_how_many_ways_there_are(self) -> None:
        self.turn(self.loop_on_host(), ticks=2)
        self.assertEqual(11, self.wish.llc_ways)

    def test_set_changed_and_removed(self) -> None:
        loop = self.loop_on_host()
        self.assertEqual([], self.turn(loop, (*KEY, 4)).outcome.problems)
        self.assertEqual(BACKGROUND, self.resctrl.tasks('scavenger'))
        self.assertEqual(EVERY - BACKGROUND, self.resctrl.tasks())
        self.assertEqual({'L3': {'0': 'f', '1': 'f'},
                          'MB': {'0': '30', '1': '30'}}, self.part())
        self.turn(loop, (*KEY, 2))
        self.assertEqual({'0': '3', '1': '3'}, self.part()['L3'])
        self.assertEqual(1, self.turn(loop).outcome.removed)
        self.restored()
        self.assertEqual([], self.records())

    def test_the_history_says_why_it_was_removed(self) -> None:
        loop = self.loop_on_host()
        events: list[Any] = []
        recorder = tick_events.TickEvents(
            self.leases, self.actuator, blind_isolation.BlindIsolation(
                self.driver, self.leases, perfiso.Params(), Mode.OFF),
            self.driver.ended, events.extend)
        for caps in ((*KEY, 4),), ():
            recorder.tick(self.turn(loop, *caps), tick_events.RUNNING, {},
                          ())
        self.assertEqual(
            [('background', 'set', ''), ('background', 'removed', 'a test')],
            [(event.workload, event.what, event.why) for event in events
             if isinstance(event, report.Limit)])

    def test_the_lease_is_there_before_the_group(self) -> None:
        loop = self.loop_on_host()
        changes: list[tuple[str, list[str]]] = []
        self.resctrl.before = lambda change: changes.append(
            (change, [record['knob'] for record in self.records()]))
        self.turn(loop, (*KEY, 4))
        self.turn(loop)
        self.assertEqual([(change, ['llc_ways']) for change in CHANGES],
                         changes)

    def test_killed_before_each_change(self) -> None:
        """What restores has the lease alone."""
        for step, change in enumerate(CHANGES):
            self.state_dir = self.state_dir.parent / f'state-{step}'
            self.assertEqual(change, self.killed(self.loop_on_host(), step))
            self.assertEqual(['llc_ways'],
                             [record['knob'] for record in self.records()])
            directory = os.open(self.state_dir, os.O_RDONLY)
            self.addCleanup(os.close, directory)
            self.assertEqual([], restoration.restore_all(
                directory, messages.Say(str), delete=True))
            self.restored()
            self.assertEqual([], self.records())

    def killed(self, loop: loop_.Loop, step: int) -> str:
        """Set the limit and remove it; end before the change of this number
        and return that."""
        changes: list[str] = []

        def kill(change: str) -> None:
            changes.append(change)
            if len(changes) > step:
                raise Killed

        self.resctrl.before = kill
        try:
            self.turn(loop, (*KEY, 4))
            self.turn(loop)
        except Killed:
            pass
        self.resctrl.before = bool
        self.driver.close()
        self.leases.close_files()
        return changes[-1]

    def test_what_a_killed_agent_left_is_no_original(self) -> None:
        """Its lease is lost, too."""
        self.resctrl.control('scavenger', 'L3:0=1;1=1\nMB:0=10;1=10\n', 11)
        loop = self.loop_on_host()
        self.turn(loop, (*KEY, 4))
        self.assertIsNone(self.leases.held()[KEY].original.value)
        self.assertEqual(('f', BACKGROUND), (
            self.part()['L3']['0'], self.resctrl.tasks('scavenger')))
        self.turn(loop)
        self.restored()

    def test_nothing_is_done_without_a_watcher_that_can_restore_it(self
                                                                  ) -> None:
        loop = self.loop()
        problem, = self.turn(loop, (*KEY, 4)).outcome.problems
        self.assertIn('last-level caches', problem)
        self.restored()

    def test_in_observe(self) -> None:
        self.turn(self.loop(Mode.OBSERVE), (*KEY, 4))
        self.restored()

    def test_another_program_changes_the_group(self) -> None:
        loop = self.loop_on_host()
        for change in (
                lambda: self.resctrl.put('scavenger/schemata', 'L3:0=7ff;'
                                         '1=7ff\nMB:0=100;1=100'),
                lambda: os.rmdir(self.resctrl.top / 'scavenger')):
            self.turn(loop, (*KEY, 4))
            change()
            self.turn(loop, (*KEY, 4), ticks=READ_TICKS)
            self.assertEqual({'0': 'f', '1': 'f'}, self.part()['L3'])
            self.assertEqual(BACKGROUND, self.resctrl.tasks('scavenger'))
        self.turn(loop)
        self.restored()

    def test_threads_that_come_and_go(self) -> None:
        """And a workload that goes: the others stay limited."""
        loop = self.loop_on_host()
        self.turn(loop, (*KEY, 4))
        self.resctrl.put('tasks', '\n'.join(map(str, (
            *self.resctrl.tasks(), 13))))
        self.host.write(A, 'cgroup.threads', '11\n13')
        self.turn(loop, (*KEY, 4), ticks=control.MEMBER_TICKS)
        self.assertEqual(({11, 13, 21}, {1, 12, 31}), (
            self.resctrl.tasks('scavenger'), self.resctrl.tasks()))
        self.host.delete(B)
        self.turn(loop, (*KEY, 4), ticks=2)
        self.assertEqual({11, 13}, self.resctrl.tasks('scavenger'))
