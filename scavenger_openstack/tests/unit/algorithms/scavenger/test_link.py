# SPDX-License-Identifier: Apache-2.0

"""How busy a shared link may be, and what the background may send."""

from __future__ import annotations

from typing import Any

import testtools

from scavenger_openstack.algorithms.scavenger import link
from scavenger_openstack.algorithms.scavenger.scavenger import Controller
from scavenger_openstack.algorithms.scavenger.scavenger import Params
from scavenger_openstack.laboratory import bench
from scavenger_openstack.simulator.machine import Machine
from scavenger_openstack.simulator.machine import Tenant
from scavenger_openstack.simulator.scenario import Drawn
from scavenger_openstack.types import Decision
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates

GBIT = 125e6
MS = 0.001
EGRESS = Knob.EGRESS_BYTES_PER_S
SERVICE = Workload('service', Priority.FOREGROUND, interfaces=('vs',))
BACKUP = Workload('backup', Priority.BACKGROUND, interfaces=('vb',))
PARAMS = Params(network_window_s=3.0, use_memory=False, use_ipc=False,
                use_cpu_idle=False, use_cpu_set=False)


class EquationsTest(testtools.TestCase):

    def test_a_packet_waits_no_longer(self) -> None:
        """W = B / C * rho / (1 - rho), whatever the capacity."""
        for capacity in (1e5, 1e6, 12.5e6, GBIT, 10 * GBIT, 100 * GBIT):
            for wait_s in (0.1 * MS, 0.5 * MS, 5 * MS):
                rho = link.busy_share(capacity, wait_s)
                burst = min(65536, capacity * MS)
                self.assertAlmostEqual(
                    wait_s, burst / capacity * rho / (1 - rho))

    def test_the_faster_a_link_the_busier_it_may_be(self) -> None:
        self.assertEqual(
            ['0.333', '0.333', '0.488', '0.905', '0.960'],
            [f'{link.busy_share(mbit * 125e3, 0.5 * MS):.3f}'
             for mbit in (10, 100, 1000, 10_000, 25_000)])

    def test_budget(self) -> None:
        rho = link.busy_share(GBIT, 0.5 * MS)
        for reserved, wait_s, wanted in (
                (0.0, 0.5 * MS, rho * GBIT),
                (0.2 * GBIT, 0.5 * MS, (rho - 0.2) * GBIT),
                # A tenth of the rest, where the foreground fills it itself.
                (0.6 * GBIT, 0.5 * MS, 0.04 * GBIT),
                (GBIT, 0.5 * MS, 0.0), (1.5 * GBIT, 0.5 * MS, 0.0),
                (0.6 * GBIT, 0.0, 0.4 * GBIT), (1.5 * GBIT, 0.0, 0.0)):
            self.assertAlmostEqual(
                wanted, link.budget(GBIT, reserved, wait_s))


class LinkTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.controller = Controller(PARAMS)
        self.now = 0.0

    def step(self, sent: float | None, **rest: Any) -> Decision:
        """One second, in which the background sends 1 MB."""
        self.now += 1
        values: dict[str, Any] = {
            'links': {'eth0': GBIT}, 'link_of': {'vs': 'eth0', 'vb': 'eth0'},
            'link_tx_bytes_per_s': (
                {} if sent is None else {'eth0': sent + 1e6}), **rest}
        return self.controller.step(self.now, Rates(
            self.now, 1.0, (WorkloadRates(SERVICE, 1.0,
                                          net_tx_bytes_per_s=sent),
                            WorkloadRates(BACKUP, 1.0,
                                          net_tx_bytes_per_s=1e6)), **values))

    def limit(self, decision: Decision) -> float:
        cap, = decision.caps
        self.assertEqual((BACKUP.id, EGRESS), (cap.workload, cap.knob))
        return float(cap.value)

    def test_the_link_stays_below_the_busy_share(self) -> None:
        for _ in range(5):
            decision = self.step(0.2 * GBIT)
        facts = decision.facts['network']['eth0']
        self.assertAlmostEqual(
            link.busy_share(GBIT, 0.5 * MS) * GBIT - facts['upper'],
            self.limit(decision), delta=1)
        self.assertAlmostEqual(facts['budget'], self.limit(decision), delta=1)
        self.assertIn('0.5 ms', decision.caps[0].reason)
        self.assertEqual((), decision.incidents)
        self.controller.tune(Params(network_wait_s=0.0, use_ipc=False,
                                    use_memory=False, use_cpu_idle=False))
        self.assertAlmostEqual(GBIT - facts['upper'],
                               self.limit(self.step(0.2 * GBIT)), delta=1)

    def test_a_foreground_that_fills_the_link_leaves_a_part(self) -> None:
        for _ in range(5):
            decision = self.step(0.7 * GBIT)
        self.assertAlmostEqual(0.1 * (1 - 0.7 - 0.02) * GBIT,
                               self.limit(decision), delta=1)
        self.assertEqual((), decision.incidents)

    def test_a_foreground_that_sends_nothing(self) -> None:
        for _ in range(5):
            decision = self.step(0.0)
        self.assertGreater(self.limit(decision), 0.45 * GBIT)

    def test_a_link_that_goes_down_under_a_limit(self) -> None:
        for _ in range(5):
            before = self.limit(self.step(0.2 * GBIT))
        rules = []
        for _ in range(60):     # two windows
            decision = self.step(None)
            rules.append((self.limit(decision),
                          decision.facts['network']['eth0']['rule']))
        self.assertEqual([(before, 'holding')] * 3
                         + [(125_000, 'blind')] * 57, rules)
        # What was learnt before holds at once.
        self.assertEqual(before, self.limit(self.step(0.2 * GBIT)))

    def test_a_link_that_comes_back_slower(self) -> None:
        for _ in range(5):
            self.step(0.2 * GBIT)
        decision = self.step(0.02 * GBIT, links={'eth0': GBIT / 10})
        self.assertLess(self.limit(decision), 0.1 * GBIT / 10)


class SimulatedTest(testtools.TestCase):
    """A service whose answers leave by the link on which a backup sends."""

    def p99_s(self, params: Params | None) -> float:
        """Return that under the rules; without any, it is alone."""
        tenants = (
            Tenant(id='web', vcpus=4, requests_per_s=200, cpu_s=0.002,
                   tx_bytes=60e3),
            Tenant(id='backup', priority=Priority.BACKGROUND, threads=0.2,
                   tx_bytes_per_s=120e6))
        outcome = bench.run(
            Drawn('link', 1, Machine(cpus=4), tenants, duration_s=200.0,
                  warmup_s=60.0, interval_s=1.0, step_s=1.0,
                  warmup_step_s=1.0),
            bench.Policy(background=False) if params is None else
            bench.Policy(preset='', only=('scavenger',),
                         params={'scavenger': params}))
        if params is not None:
            self.sent = outcome.tenants['backup'].tx_bytes_per_s
        return outcome.tenants['web'].p99_s or 0.0

    def test_answers_are_hardly_slower(self) -> None:
        alone_s = self.p99_s(None)
        self.assertGreater(self.p99_s(Params(network_wait_s=0.0)),
                           1.8 * alone_s)
        self.assertLess(self.p99_s(Params()), 1.25 * alone_s)
        self.assertGreater(self.sent, 0.3 * GBIT)
