# SPDX-License-Identifier: Apache-2.0

"""Nothing that the agent set survives it, wherever it dies."""

from __future__ import annotations

from concurrent import futures
import pathlib
import shutil
import signal

import fixtures

from scavenger_openstack.tests.functional import base
from scavenger_openstack.tests.functional import kills
from scavenger_openstack.tests.functional import watcher_kills
from scavenger_openstack.tests import tiers

WORKERS = 3


class KillsTest(base.FunctionalTestCase):

    def setUp(self) -> None:
        super().setUp()
        for tool in ('strace', 'ip', 'tc'):
            if shutil.which(tool) is None:
                self.skipTest(f'needs {tool}: see bindep.txt')
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)

    def stage(self, package: pathlib.Path | None = None,
              name: str = 'stage') -> kills.Stage:
        directory = self.directory / name
        directory.mkdir()
        return self.useFixture(kills.Stage(self.cgroups(), directory,
                                           package))

    def test_the_script_touches_every_knob_and_ends_clean(self) -> None:
        stage = self.stage()
        agent = stage.agent(0)
        self.wait_for('every knob was set once', stage.all_touched())
        agent.send_signal(signal.SIGKILL)
        _, errors = agent.communicate(timeout=60 * base.pace())
        self.assertEqual('', errors)
        self.assertTrue(stage.wait_no_leases(kills.LEASE_S + kills.BUSY_S))
        agent = stage.agent(kills.TICKS)
        out, errors = agent.communicate(timeout=60 * base.pace())
        self.assertEqual((0, ''), (agent.returncode, errors))
        self.assertEqual({}, stage.changed())
        self.assertEqual([], stage.leases())

    def test_sigkill_at_every_call(self) -> None:
        # Most of it is waiting: side by side it takes a third of the time.
        workers = WORKERS if tiers.ALL else 1
        stages = [self.stage(name=f'stage{number}')
                  for number in range(workers)]

        def kill(worker: int) -> int:
            instants = 0
            for call, number, took, left in kills.enumerate_kills(
                    stages[worker], instants=lambda call: tiers.instants(
                        f'agent {call}', worker + 1, workers,
                        count=kills.CALLS[call])):
                instants += 1
                self.assertEqual(
                    {}, left, f'killed at {call} number {number}, after '
                              f'{took:.2f} s')
            return instants

        with futures.ThreadPoolExecutor(workers) as pool:
            self.assertGreater(sum(pool.map(kill, range(workers))),
                               50 if tiers.ALL else 1)
        for stage in stages:
            self.assertTrue(stage.wait_no_leases(
                kills.LEASE_S + kills.BUSY_S))

    @tiers.only_in_all('it breaks the product to see a campaign fail')
    def test_a_write_before_its_lease_is_noticed(self) -> None:
        broken = kills.swapped_package(self.directory / 'broken')
        stage = self.stage(broken)
        found = [left for *_, left in kills.enumerate_kills(
            stage, calls=('fsync', 'rename'))]
        self.assertNotEqual({}, found[-1])

    def test_sigkill_at_random_instants(self) -> None:
        stage = self.stage()
        for lived, took, left in kills.random_kills(
                stage, tiers.times(10, 2), tiers.SEED):
            self.assertEqual({}, left, f'killed after {lived:.3f} s, looked '
                                       f'{took:.2f} s later')

    def test_sigstop_past_the_lease(self) -> None:
        stage = self.stage()
        for lived, took, left in kills.random_stops(
                stage, tiers.times(3), tiers.SEED):
            self.assertEqual({}, left, f'stopped after {lived:.3f} s, looked '
                                       f'{took:.2f} s later')

    def test_watcher_killed_or_stopped_at_its_calls(self) -> None:
        # Every third call: each lease takes a few, and there are some 80.
        lots = [('KILL', 1, 6), ('KILL', 4, 6), ('STOP', 3, 6)]
        stages = [self.stage(name=f'{name}{first}')
                  for name, first, _ in lots]

        def down(stage: kills.Stage, lot: tuple[str, int, int]) -> int:
            instants = 0
            for call, number, took, left in watcher_kills.enumerated(
                    stage, lot[0], lambda call: tiers.instants(
                        f'watcher {lot} {call}', *lot[1:], sampled=8,
                        count=watcher_kills.CALLS[call])):
                instants += 1
                self.assertEqual(
                    {}, left, f'watcher: {lot[0]} at {call} number {number}; '
                              f'looked {took:.2f} s after its return')
            return instants

        with futures.ThreadPoolExecutor(WORKERS) as pool:
            self.assertGreater(sum(pool.map(down, stages, lots)),
                               15 if tiers.ALL else 0)

    def test_watcher_and_agent_at_random_instants(self) -> None:
        for name in ('KILL', 'STOP'):
            stage = self.stage(name=name)
            for down_s, took, left in watcher_kills.at_random(
                    stage, name, tiers.times(6), tiers.SEED):
                self.assertEqual(
                    {}, left, f'watcher: {name}, down for {down_s:.3f} s; '
                              f'looked {took:.2f} s after its return')

    @tiers.only_in_all('it breaks the product to see a campaign fail')
    def test_a_watcher_that_forgets_is_noticed(self) -> None:
        """The record goes before the limit: what was between is lost."""
        broken = watcher_kills.forgetful_package(self.directory / 'broken')
        stage = self.stage(broken)
        found = [left for *_, left in watcher_kills.enumerated(
            stage, 'KILL', back_s=2 * kills.LEASE_S)]
        self.assertNotEqual({}, found[-1])
