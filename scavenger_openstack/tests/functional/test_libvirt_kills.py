# SPDX-License-Identifier: Apache-2.0


"""A dead agent's limits on a domain are removed, whenever it died."""

from __future__ import annotations

import pathlib
import shutil
import signal

import fixtures
from testtools import content

from scavenger_openstack.tests.functional import domain_kills
from scavenger_openstack.tests.functional import kills
from scavenger_openstack.tests.functional import virtual_host
from scavenger_openstack.tests import tiers

STEPS = {'write': 149, 'pwrite64': 13, 'fsync': 5, 'renameat': 5,
         'unlinkat': 5}
"""Calls through which it changes a file, or libvirt, or a cgroup: of so
many of each, one is its last."""
COUNTS = {'write': 1000, 'pwrite64': 12, 'fsync': 7, 'renameat': 4,
          'unlinkat': 4}
"""How many of each it makes at least."""


class DomainKillsTest(virtual_host.VirtualHostTestCase):

    def setUp(self) -> None:
        super().setUp()
        if shutil.which('strace') is None:
            self.skipTest('needs strace: see bindep.txt')
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.stage = self.useFixture(domain_kills.DomainStage(
            self.hypervisor(), directory, self))

    def test_the_script_touches_every_knob_and_ends_clean(self) -> None:
        agent = self.stage.agent(0)
        touched: set[str] = set()

        def all_touched() -> bool:
            now = str(self.stage.look())
            touched.update(word for word in (
                '<quota>', 'vcpu0: CPUs 1', 'emulator: CPUs 0',
                'total_bytes_sec', 'total_iops_sec', 'paused',
                '/lease/1/') if word in now)
            return len(touched) == 7

        try:
            self.wait_for('every knob was set once', all_touched, 60)
        finally:
            self.addDetail('touched', content.text_content(str(touched)))
            agent.send_signal(signal.SIGKILL)
            _, errors = agent.communicate(timeout=60)
        self.assertNotIn('Traceback', errors)
        took, left = self.stage.back_within(kills.LEASE_S)
        self.assertEqual({}, left)
        agent = self.stage.agent(kills.TICKS)
        _, errors = agent.communicate(timeout=60)
        self.assertEqual(0, agent.returncode, errors)
        self.assertEqual({}, self.stage.changed())
        self.assertEqual([], self.stage.leases())

    def test_sigkill_at_calls(self) -> None:
        instants = []
        for call, number, took, left in kills.enumerate_kills(
                self.stage, calls=STEPS,            # type: ignore[arg-type]
                instants=lambda call: tiers.instants(
                    f'domain {call}', step=STEPS[call], sampled=4,
                    count=COUNTS[call])):
            instants.append(f'{call} {number}: {took:.2f} s')
            self.assertEqual({}, left, f'killed at {call} number {number}, '
                                       f'after {took:.2f} s')
        self.addDetail('instants', content.text_content(
            '\n'.join(instants)))
        self.assertNotEqual([], instants)
        if tiers.ALL:
            self.assertGreater(len(instants), 12)
            self.assertEqual(set(STEPS),
                             {instant.split()[0] for instant in instants})

    @tiers.only_in_all('it is killed at calls in the gate')
    def test_sigkill_at_random_instants(self) -> None:
        for lived, took, left in kills.random_kills(
                self.stage,         # type: ignore[arg-type]
                tiers.times(6), tiers.SEED):
            self.assertEqual({}, left, f'killed after {lived:.3f} s, looked '
                                       f'{took:.2f} s later')
