# SPDX-License-Identifier: Apache-2.0

"""The same rule for what is sent over a link and what is received."""

from __future__ import annotations

import dataclasses
from typing import Any

import testtools

from scavenger_openstack.algorithms.scavenger.params import Params
from scavenger_openstack.algorithms.scavenger.scavenger import Controller
from scavenger_openstack.types import Decision
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates

EGRESS, INGRESS = Knob.EGRESS_BYTES_PER_S, Knob.INGRESS_BYTES_PER_S
GBIT = 125e6
SERVICE = Workload('service', Priority.FOREGROUND, interfaces=('vs',))
JOB = Workload('job', Priority.BACKGROUND, interfaces=('vj',))
PARAMS = Params(network_window_s=4.0, network_peak_s=8.0, use_ipc=False,
                use_memory=False, use_page_cache=False, use_cpu_set=False,
                use_cpu_idle=False)


class ReceivedTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.controller = Controller(PARAMS)
        self.now = 0.0

    def step(self, sent: float, received: float | None, *,
             counted: bool = True, job: float = 2e6, **rest: Any) -> Decision:
        """One second of a service, in which the job sends 1 MB and receives 2.

        :param counted: whether what the link carries is known
        """
        self.now += 1
        values: dict[str, Any] = {
            'links': {'eth0': GBIT}, 'link_of': {'vs': 'eth0', 'vj': 'eth0'},
            'link_tx_bytes_per_s': {'eth0': sent + 1e6},
            'link_rx_bytes_per_s': {} if received is None or not counted else {
                'eth0': received + job}, **rest}
        return self.controller.step(self.now, Rates(
            self.now, 1.0, (
                WorkloadRates(SERVICE, 1.0, net_tx_bytes_per_s=sent,
                              net_rx_bytes_per_s=received),
                WorkloadRates(JOB, 1.0, net_tx_bytes_per_s=1e6,
                              net_rx_bytes_per_s=job)), **values))

    @staticmethod
    def limits(decision: Decision) -> dict[Knob, float]:
        return {cap.knob: float(cap.value) for cap in decision.caps}

    def test_each_way_has_its_own_reserve(self) -> None:
        for _ in range(5):
            decision = self.step(0.1 * GBIT, 0.3 * GBIT)
        limits = self.limits(decision)
        self.assertEqual({EGRESS, INGRESS}, limits.keys())
        self.assertAlmostEqual(0.2 * GBIT, limits[EGRESS] - limits[INGRESS],
                               delta=2)
        for name, level in (('network', 0.1), ('network_received', 0.3)):
            facts = decision.facts[name]['eth0']
            self.assertEqual('holding', facts['rule'])
            self.assertAlmostEqual(level * GBIT, facts['level'])
        self.assertIn('receiving over eth0', next(
            cap.reason for cap in decision.caps if cap.knob is INGRESS))

    def test_turned_round_it_is_the_same(self) -> None:
        """What is sent in one run is received in the other."""
        values = []
        for sent, received in ((0.1, 0.4), (0.4, 0.1)):
            self.controller = Controller(PARAMS)
            for _ in range(5):
                limits = self.limits(self.step(sent * GBIT, received * GBIT,
                                               job=1e6))
            values.append((limits[EGRESS], limits[INGRESS]))
        self.assertEqual(values[0], values[1][::-1])

    def test_what_is_not_counted_is_not_limited(self) -> None:
        for _ in range(5):
            decision = self.step(0.1 * GBIT, None)
        self.assertEqual({EGRESS}, self.limits(decision).keys())
        self.assertEqual(
            'off', decision.facts['network_received']['eth0']['rule'])

    def test_a_link_that_goes_down_under_a_limit(self) -> None:
        for _ in range(5):
            before = self.limits(self.step(0.1 * GBIT, 0.3 * GBIT))
        values = [self.limits(self.step(0.1 * GBIT, 0.3 * GBIT, counted=False))
                  [INGRESS] for _ in range(6)]
        self.assertEqual([before[INGRESS]] * 3 + [125_000] * 3, values)
        self.assertEqual(before, self.limits(
            self.step(0.1 * GBIT, 0.3 * GBIT)))

    def test_a_link_that_is_removed(self) -> None:
        for _ in range(5):
            self.step(0.1 * GBIT, 0.3 * GBIT)
        nothing: dict[str, Any] = {
            'links': {}, 'link_of': {}, 'link_tx_bytes_per_s': {},
            'link_rx_bytes_per_s': {}}
        decision = self.step(0.1 * GBIT, 0.3 * GBIT, **nothing)
        self.assertEqual((), decision.caps)
        self.assertEqual({}, decision.facts['network_received'])

    def test_floors_that_need_more_than_is_left(self) -> None:
        for _ in range(5):
            decision = self.step(0.1 * GBIT, 0.999 * GBIT)
        self.assertEqual(125_000, self.limits(decision)[INGRESS])
        incident, = decision.incidents
        self.assertEqual('ingress_bytes_per_s eth0', incident.signal)

    def test_off(self) -> None:
        self.controller = Controller(dataclasses.replace(
            PARAMS, use_network_received=False))
        for _ in range(5):
            decision = self.step(0.1 * GBIT, 0.3 * GBIT)
        self.assertEqual({EGRESS}, self.limits(decision).keys())
        self.assertNotIn('network_received', decision.facts)

    def test_turned_off_for_a_while(self) -> None:
        """What was learnt before is not what the foreground needs now."""
        for off, again in (
                (dataclasses.replace(PARAMS, use_network_received=False),
                 {INGRESS}),
                (dataclasses.replace(PARAMS, use_network=False),
                 {EGRESS, INGRESS})):
            self.controller = Controller(PARAMS)
            for _ in range(5):
                self.step(0.1 * GBIT, 0.1 * GBIT)
            self.controller.tune(off)
            for _ in range(3):
                self.step(0.1 * GBIT, 0.1 * GBIT)
            self.controller.tune(PARAMS)
            decision = self.step(0.1 * GBIT, 0.1 * GBIT)
            rules = {cap.knob: decision.facts[name]['eth0']['rule']
                     for cap in decision.caps for name in (
                         {EGRESS: 'network', INGRESS: 'network_received'}[
                             cap.knob],)}
            self.assertEqual({knob: 'learning' if knob in again
                              else 'holding' for knob in (EGRESS, INGRESS)},
                             rules)

    def test_memory_that_is_turned_off_for_a_while(self) -> None:
        memory = dataclasses.replace(
            PARAMS, use_memory=True, use_page_cache=True, use_network=False,
            memory_window_s=4.0, memory_peak_s=8.0)
        sizes: dict[str, Any] = {
            'memory_total_bytes': 2 ** 34, 'memory_available_bytes': 2 ** 33,
            'memory_free_bytes': 2 ** 33, 'refault_bytes_per_s': 2.0 ** 30}
        self.controller = Controller(memory)
        for _ in range(8):
            decision = self.step(0.0, 0.0, **sizes)
        self.assertEqual('holding', decision.facts['memory']['rule'])
        self.assertLess(0, decision.facts['page_cache'][
            'refault_bytes_per_s'])
        self.controller.tune(dataclasses.replace(
            memory, use_memory=False, use_page_cache=False))
        self.step(0.0, 0.0, **sizes)
        self.controller.tune(memory)
        decision = self.step(0.0, 0.0, **{**sizes, 'refault_bytes_per_s': 0})
        self.assertEqual('learning', decision.facts['memory']['rule'])
        self.assertEqual(0, decision.facts['page_cache'][
            'refault_bytes_per_s'])

    def test_kept_over_a_restart(self) -> None:
        for _ in range(5):
            before = self.step(0.1 * GBIT, 0.3 * GBIT)
        state = self.controller.state()
        self.controller = Controller(PARAMS)
        self.controller.load(state, self.now)
        after = self.step(0.1 * GBIT, 0.3 * GBIT)
        self.assertEqual(self.limits(before), self.limits(after))

    def test_a_floor_of_its_own(self) -> None:
        """While the use of the foreground is learnt."""
        job = dataclasses.replace(JOB, floor={INGRESS: 5e5})
        decision = self.controller.step(1.0, Rates(
            1.0, 1.0, (WorkloadRates(job, 1.0, net_rx_bytes_per_s=0.0),),
            links={'eth0': GBIT}, link_of={'vj': 'eth0'},
            link_rx_bytes_per_s={'eth0': 0.0}))
        self.assertEqual({INGRESS: 5e5}, self.limits(decision))
