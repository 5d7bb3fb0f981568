# SPDX-License-Identifier: Apache-2.0


"""The controller over whole curves, and what it must never do."""

from __future__ import annotations

from collections.abc import Iterable
import dataclasses
import json
import math
import random
from typing import Any

import testtools

from scavenger_openstack.algorithms.scavenger.params import RESERVE_PAPER
from scavenger_openstack.algorithms.scavenger.scavenger import Controller
from scavenger_openstack.algorithms.scavenger.scavenger import Params
from scavenger_openstack.algorithms.scavenger.scavenger import samples
from scavenger_openstack.algorithms.scavenger.usage import foreground_memory
from scavenger_openstack.algorithms.scavenger.usage import foreground_rate
from scavenger_openstack.algorithms.scavenger.usage import memory_shares
from scavenger_openstack.types import Cpu
from scavenger_openstack.types import Decision
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates

MIB = 2 ** 20
TOTAL = 10000 * MIB
LINK = 1_000_000.0
MEMORY = Knob.MEMORY_BYTES
EGRESS = Knob.EGRESS_BYTES_PER_S

A = Workload('/batch/a', Priority.BACKGROUND, group='/batch',
             interfaces=('va',), floor={MEMORY: 64.0 * MIB, EGRESS: 1000.0})
B = Workload('/batch/b', Priority.BACKGROUND, group='/batch', vcpus=3.0,
             interfaces=('vb',), floor={MEMORY: 64.0 * MIB, EGRESS: 1000.0})
VM = Workload('vm', Priority.FOREGROUND, interfaces=('vf',),
              memory_allotment_bytes=2000.0 * MIB)
# Windows of 4 and 3 samples, so that a curve fits on a screen.
SMALL = Params(memory_window_s=4.0, network_window_s=3.0, ipc_window_s=3.0,
               memory_peak_s=8.0, network_peak_s=6.0, network_wait_s=0.0)
PAPER = dataclasses.replace(SMALL, reserve_rule=RESERVE_PAPER)


def rates(workloads: Iterable[WorkloadRates], *, foreground_mib: float = 0,
          sent: float | None = 0.0, **rest: Any) -> Rates:
    """A host whose foreground uses ``foreground_mib`` and sends ``sent``."""
    all_of_them = tuple(workloads)
    background = [one for one in all_of_them
                  if one.workload.priority is Priority.BACKGROUND]
    values: dict[str, Any] = {
        'memory_total_bytes': TOTAL,
        'memory_available_bytes': TOTAL - int(foreground_mib * MIB) - sum(
            one.memory_bytes or 0 for one in background),
        'links': {'eth0': LINK},
        'link_tx_bytes_per_s': {'eth0': None if sent is None else sent + sum(
            one.net_tx_bytes_per_s or 0 for one in background)},
        'link_of': {'va': 'eth0', 'vb': 'eth0', 'vf': 'eth0'}}
    values.update(rest)
    return Rates(0.0, 1.0, all_of_them, **values)


def use(workload: Workload, mib: float | None = 100, tx: float | None = 0.0,
        **rest: Any) -> WorkloadRates:
    return WorkloadRates(
        workload, 1.0, net_tx_bytes_per_s=tx,
        memory_bytes=None if mib is None else int(mib * MIB), **rest)


def value(decision: Decision, workload: str, knob: Knob) -> Any:
    found = [cap.value for cap in decision.caps
             if (cap.workload, cap.knob) == (workload, knob)]
    assert len(found) <= 1, found
    return found[0] if found else None


class EquationsTest(testtools.TestCase):

    def test_foreground_memory(self) -> None:
        self.assertEqual(50.0, foreground_memory(100, 30, 20.0))
        self.assertEqual(0.0, foreground_memory(100, 90, 20.0))
        self.assertIsNone(foreground_memory(None, 30, 20.0))
        self.assertIsNone(foreground_memory(100, None, 20.0))
        self.assertTrue(math.isnan(
            foreground_memory(100, math.nan, 0.0) or 0.0))
        self.assertEqual(-math.inf, foreground_memory(100, math.inf, 0.0))

    def test_memory_that_follows_no_limit_is_gone(self) -> None:
        kept = dataclasses.replace(
            VM, id='kept', priority=Priority.BACKGROUND, memory_kept='why')
        other = dataclasses.replace(kept, id='other', memory_kept='')

        def shares(first: Workload, used: float | None) -> list[float]:
            rated = [use(first, used), use(A, 100)]
            return memory_shares(1000.0, rated, [used, 100.0],
                                 [used or 0.0, 500.0], [50.0, 50.0])

        # One whose balloon answers gives back what the other can use.
        self.assertEqual([500.0, 500.0], shares(other, 900.0))
        # This one is asked for the same, and nothing is relied on.
        self.assertEqual([500.0, 100.0], shares(kept, 900.0))
        self.assertEqual([450.0, 550.0], shares(kept, 400.0))
        # It may use all of its RAM.
        self.assertEqual(50.0, shares(kept, None)[1])

    def test_foreground_rate(self) -> None:
        self.assertEqual(30.0, foreground_rate(50.0, 20.0))
        self.assertEqual(0.0, foreground_rate(10.0, 20.0))
        self.assertIsNone(foreground_rate(None, 20.0))
        self.assertEqual(-math.inf, foreground_rate(-math.inf, 20.0))
        # Of 20 that the background sent, 15 stayed on the host.
        self.assertEqual(30.0, foreground_rate(35.0, 20.0, 30.0))
        self.assertEqual(30.0, foreground_rate(30.0, 0.0, 40.0))
        self.assertEqual(30.0, foreground_rate(50.0, 20.0, 10.0))
        self.assertIsNone(foreground_rate(None, 20.0, 30.0))

    def test_samples(self) -> None:
        for window_s, interval_s, wanted in ((60, 1, 60), (60, 5, 12),
                                             (15, 0.1, 150), (2, 10, 2)):
            self.assertEqual(wanted, samples(window_s, interval_s))

    def test_defaults_of_section_6_1(self) -> None:
        found = Params()
        self.assertEqual(
            (2, 60, 2, 30, 1, 15, 0.1, 2),
            (found.memory_c, found.memory_window_s, found.network_c,
             found.network_window_s, found.ipc_c, found.ipc_window_s,
             found.ipc_quota_increase_cores,
             found.ipc_quota_decrease_factor))


class MemoryTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.controller = Controller(SMALL, host='h', boot_id='b')
        self.now = 0.0

    def step(self, *workloads: WorkloadRates, **rest: Any) -> Decision:
        self.now += 1
        return self.controller.step(self.now, rates(workloads, **rest))

    def learn(self) -> None:
        """mu 4000 MiB, sigma 0, headroom 2 % = 200 MiB: 5800 are left."""
        for _ in range(4):
            found = self.step(use(A, 1000), use(B, 1000), foreground_mib=4000)
        self.assertEqual('holding', found.facts['memory']['rule'])

    def mib(self, decision: Decision, *workloads: Workload) -> list[float]:
        return [(value(decision, one.id, MEMORY) or 0) / MIB
                for one in workloads]

    def test_what_the_background_has_too_much(self) -> None:
        """None is told in the initial window, in which nothing is killed."""
        for _ in range(3):
            found = self.step(use(A, 3500), use(B, 2500), foreground_mib=4000)
            self.assertEqual(0.0, found.shortage_bytes)
        self.learn()
        found = self.step(use(A, 3500), use(B, 2500), foreground_mib=4000)
        self.assertEqual(200 * MIB, found.shortage_bytes)
        bad: Any
        for bad in (None, math.nan, math.inf, -5 * MIB):
            found = self.step(use(A, 6000), use(B)._replace(memory_bytes=bad),
                              memory_available_bytes=0)
            self.assertTrue(found.shortage_bytes < 6000 * MIB)
        self.assertEqual(0.0, self.step(foreground_mib=4000).shortage_bytes)

    def test_growth_into_half_of_what_is_available(self) -> None:
        """10000 - 4000 - 200 leave 5800, of which 1000 are used."""
        found = self.step(use(A, 1000), foreground_mib=4000)
        self.assertEqual([3400], self.mib(found, A))
        # It does not grow into half of the rest again and again.
        found = self.step(use(A, 3000), foreground_mib=4000)
        self.assertEqual([3400], self.mib(found, A))
        # What the foreground takes meanwhile is not the background's.
        found = self.step(use(A, 1000), foreground_mib=6900)
        self.assertEqual([2900], self.mib(found, A))

    def test_one_that_uses_less_may_have_again_what_it_had(self) -> None:
        self.step(use(A, 1000), foreground_mib=9000)
        found = self.step(use(A, 500), foreground_mib=9000)
        self.assertAlmostEqual(800, self.mib(found, A)[0])

    def test_a_new_job_may_begin_whenever_it_comes(self) -> None:
        """With more than its floor of 64 MiB while gigabytes are idle."""
        self.step(use(A, 1000), foreground_mib=4000)
        found = self.step(use(A, 1000), use(B, 0), foreground_mib=4000)
        self.assertEqual([1584, 1816], self.mib(found, A, B))
        self.learn()
        new = dataclasses.replace(B, id='/batch/new')
        found = self.step(use(A, 1000), use(new, 0), foreground_mib=4000)
        self.assertGreater(self.mib(found, new)[0], 2000)

    def test_but_not_what_another_had_under_its_name(self) -> None:
        self.step(use(A, 5000), use(B, 500), foreground_mib=4000)
        new = dataclasses.replace(A, created_s=9.0)
        found = self.step(use(new, 0), use(B, 500), foreground_mib=4000)
        self.assertEqual([1335.5, 4314.5], self.mib(found, A, B))

    def test_a_limit_that_could_not_be_set(self) -> None:
        self.step(use(A, 1000), foreground_mib=8000)
        found = self.step(use(A, 1700), foreground_mib=8000)
        self.assertEqual([1700], self.mib(found, A))

    def test_learning_on_a_full_host(self) -> None:
        # 9000 + 200 are the foreground's: 800 for two that use 900.
        found = self.step(use(A, 450), use(B, 450), foreground_mib=9000)
        self.assertAlmostEqual(800, sum(self.mib(found, A, B)))

    def test_violation_is_answered_in_the_same_tick(self) -> None:
        self.learn()
        found = self.step(use(A, 1000), use(B, 1000), foreground_mib=7000)
        # 10000 - 7000 - 200 = 2800
        self.assertAlmostEqual(2800, sum(self.mib(found, A, B)))
        self.assertEqual(1, found.facts['memory']['violations'])
        found = self.step(use(A, 1000), use(B, 1000), foreground_mib=6900)
        self.assertAlmostEqual(2800, sum(self.mib(found, A, B)))
        self.assertEqual(1, found.facts['memory']['violations'])

    def test_when_the_reserve_returns(self) -> None:
        """After the last 8 s without high use; the paper's rule after w low
        samples."""
        for params, ticks in ((SMALL, 8), (PAPER, 3)):
            self.controller = Controller(params)
            self.learn()
            self.step(use(A, 1000), foreground_mib=7000)
            for wanted in [2800] * ticks + [4800]:
                found = self.step(use(A, 1000), foreground_mib=5000)
                self.assertAlmostEqual(wanted, self.mib(found, A)[0])

    def test_newcomer_and_departure(self) -> None:
        self.learn()
        for _ in range(3):
            found = self.step(use(A, 1000), use(VM, 500),
                              foreground_mib=4500)
            # 10000 - 4000 - 200 - 2000
            self.assertAlmostEqual(3800, self.mib(found, A)[0])
            self.assertEqual(2000 * MIB, found.facts['memory']['allotments'])
        found = self.step(use(A, 1000), use(VM, 500), foreground_mib=4500)
        self.assertAlmostEqual(5300, self.mib(found, A)[0])
        found = self.step(use(A, 1000), foreground_mib=4000)
        self.assertAlmostEqual(5800, self.mib(found, A)[0])
        self.assertEqual(0, found.facts['memory']['violations'])

    def test_overcommitted(self) -> None:
        self.learn()
        found = self.step(use(A, 60), use(B, 60), foreground_mib=9700)
        self.assertEqual([64, 64], self.mib(found, A, B))
        incident, = found.incidents
        # 10000 - 9700 - 200 = 100 for floors of 128.
        self.assertEqual(
            ('overcommitted', 'memory_bytes', 'foreground', 'h', self.now),
            (incident.cause, incident.signal, incident.victim,
             incident.host, incident.time_s))
        self.assertEqual(128 * MIB, incident.value)
        self.assertEqual(100 * MIB, incident.threshold)
        # The same incident for as long as it lasts, another one later.
        again, = self.step(use(A, 60), use(B, 60),
                           foreground_mib=9700).incidents
        self.assertEqual((incident.id, incident.time_s),
                         (again.id, again.time_s))
        # One that comes and goes is one incident.
        for fits_s in (299, 300):
            found = self.step(use(A, 60), use(B, 60), foreground_mib=9700)
            self.assertEqual([incident.id],
                             [one.id for one in found.incidents])
            for _ in range(fits_s):
                found = self.step(use(A, 60), foreground_mib=9700)
        self.assertEqual((), found.incidents)
        other, = self.step(use(A, 60), use(B, 60),
                           foreground_mib=9700).incidents
        self.assertNotEqual(incident.id, other.id)

    def test_no_limit_above_what_a_workload_may_have(self) -> None:
        """Of 128 MiB, on a host that leaves 5800 MiB."""
        self.learn()
        for instance, floor, used, wanted in (
                ('', 128, 100, 0), ('', 128, 190, 0), ('', 64, 100, 0),
                ('', 64, None, 5800), ('', 64, 129, 5800),
                ('vm', 64, None, 0), ('vm', 64, 190, 0)):
            one = dataclasses.replace(
                A, instance=instance, floor={MEMORY: floor * MIB},
                memory_allotment_bytes=128.0 * MIB)
            found = self.step(use(one, used), foreground_mib=4000)
            self.assertAlmostEqual(wanted, self.mib(found, one)[0])
            self.assertEqual('holding', found.facts['memory']['rule'])

    def test_a_limit_below_what_a_workload_may_have(self) -> None:
        self.learn()
        vm = dataclasses.replace(A, floor={MEMORY: 64 * MIB},
                                 memory_allotment_bytes=2000.0 * MIB)
        found = self.step(use(vm, 1500), foreground_mib=9000)
        self.assertAlmostEqual(800, self.mib(found, vm)[0])
        whole = dataclasses.replace(vm, floor={MEMORY: 2000.0 * MIB})
        found = self.step(use(whole, 1500), foreground_mib=9000)
        self.assertIsNone(value(found, whole.id, MEMORY))
        self.assertEqual(['overcommitted'],
                         [one.cause for one in found.incidents])

    def test_unknown_host_memory_is_off(self) -> None:
        for name in ('memory_total_bytes', 'memory_available_bytes'):
            self.controller = Controller(SMALL)
            for _ in range(9):
                found = self.step(use(A, 1000), **{name: None})
            self.assertIsNone(value(found, A.id, MEMORY))
            self.assertEqual({'rule': 'off', 'why': 'not measurable here'},
                             found.facts['memory'])

    def test_unknown_use_of_background(self) -> None:
        self.learn()
        found = self.step(use(A, None), use(B, 1000), foreground_mib=5000)
        self.assertEqual(0, found.facts['memory']['violations'])
        self.assertAlmostEqual(5800, sum(self.mib(found, A, B)))


    def test_an_interval_longer_than_the_window(self) -> None:
        self.controller = Controller(SMALL, interval_s=10.0)
        for _ in range(3):
            self.now += 9.5
            found = self.step(use(A), foreground_mib=4000)
        self.assertEqual('holding', found.facts['memory']['rule'])


class NetworkTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.controller = Controller(SMALL)
        self.now = 0.0

    def step(self, *workloads: WorkloadRates, **rest: Any) -> Decision:
        self.now += 1
        return self.controller.step(self.now, rates(workloads, **rest))

    def learn(self) -> None:
        """mu 300000, sigma 0, headroom 2 % = 20000: 680000 are left."""
        for _ in range(3):
            found = self.step(use(A, tx=1000.0), use(B, tx=1000.0),
                              sent=300_000.0)
        self.assertEqual('holding', found.facts['network']['eth0']['rule'])

    def test_floor_while_learning(self) -> None:
        for _ in range(2):
            found = self.step(use(A, tx=9e5), use(B, tx=9e5), sent=3e5)
            self.assertEqual([1000, 1000], [
                value(found, one.id, EGRESS) for one in (A, B)])

    def test_first_sample_has_no_rates(self) -> None:
        found = self.step(use(A, tx=None), sent=None, complete=False)
        self.assertEqual('off', found.facts['network']['eth0']['rule'])
        self.assertIsNone(value(found, A.id, EGRESS))

    def test_what_stays_on_the_host_gives_nothing_away(self) -> None:
        """What the background sends to itself leaves by no link."""
        caps = []
        for inside in (0.0, 5e6):
            controller = Controller(SMALL)
            for now in range(5):
                found = controller.step(float(now), rates(
                    (use(VM, tx=3e5), use(A, tx=1e5 + inside)),
                    link_tx_bytes_per_s={'eth0': 4e5}))
            self.assertAlmostEqual(
                3e5, found.facts['network']['eth0']['level'])
            caps.append(value(found, A.id, EGRESS))
        self.assertAlmostEqual(680_000, caps[0])
        self.assertEqual(caps[0], caps[1])

    def test_level_and_headroom(self) -> None:
        # The paper: mean 300000, squares 2 x 1e10 over 2: sigma 100000.
        for params, level, headroom in ((PAPER, 300_000, 200_000),
                                        (SMALL, 400_000, 20_000)):
            self.controller = Controller(params)
            for sent in (200_000.0, 400_000.0, 300_000.0):
                found = self.step(use(A), sent=sent)
            facts = found.facts['network']['eth0']
            self.assertAlmostEqual(level, facts['level'])
            self.assertAlmostEqual(headroom, facts['headroom'])
            self.assertAlmostEqual(level + headroom, facts['upper'])
            self.assertAlmostEqual(LINK - level - headroom,
                                   value(found, A.id, EGRESS))

    def test_a_link_that_vanishes(self) -> None:
        self.learn()
        for _ in range(4):
            found = self.step(use(A), links={}, link_tx_bytes_per_s={})
        self.assertEqual(1000, value(found, A.id, EGRESS))
        found = self.step(links={}, link_tx_bytes_per_s={}, link_of={})
        self.assertEqual({}, found.facts['network'])

    def test_only_who_has_an_interface(self) -> None:
        lonely = dataclasses.replace(A, id='/batch/c', interfaces=())
        other = dataclasses.replace(A, id='/batch/d', interfaces=('x',))
        self.learn()
        found = self.step(use(A), use(lonely), use(other))
        self.assertEqual({A.id}, {cap.workload for cap in found.caps
                                  if cap.knob is EGRESS})

    def test_links_are_on_their_own(self) -> None:
        two = {'links': {'eth0': LINK, 'eth1': 2 * LINK},
               'link_tx_bytes_per_s': {'eth0': 300_000.0, 'eth1': 0.0},
               'link_of': {'va': 'eth0', 'vb': 'eth1'}}
        for _ in range(3):
            found = self.step(use(A), use(B), **two)
        self.assertAlmostEqual(680_000, value(found, A.id, EGRESS))
        # 2000000 less 2 %
        self.assertAlmostEqual(1_960_000, value(found, B.id, EGRESS))


class CpuTest(testtools.TestCase):

    topology = {cpu: Cpu(cpu, 0, 0) for cpu in range(4)}

    def setUp(self) -> None:
        super().setUp()
        self.controller = Controller(SMALL)
        self.now = 0.0

    def step(self, *workloads: WorkloadRates, **rest: Any) -> Decision:
        self.now += 1
        return self.controller.step(self.now, rates(
            workloads, topology=self.topology, **rest))

    def pinned(self, name: str, *cpus: int) -> WorkloadRates:
        return use(Workload(name, Priority.FOREGROUND,
                            allowed_cpus=frozenset(cpus)))

    def test_cpu_set_only_when_it_is_smaller(self) -> None:
        found = self.step(use(A), use(VM))
        self.assertIsNone(value(found, '/batch', Knob.CPU_SET))
        self.assertEqual('0-3', found.facts['cpu_set']['allowed'])
        found = self.step(use(A), self.pinned('f', 0), self.pinned('g', 2))
        self.assertEqual('1,3', value(found, '/batch', Knob.CPU_SET))

    def test_isolated_cpus_are_left_alone(self) -> None:
        """Without a limit the scheduler puts nothing there; one that had
        them in it would."""
        self.topology = {cpu: Cpu(cpu, 0, 0, cpu > 1 or None)
                         for cpu in range(4)}
        found = self.step(use(A), self.pinned('f', 3))
        self.assertIsNone(value(found, '/batch', Knob.CPU_SET))
        found = self.step(use(A), self.pinned('f', 0))
        self.assertEqual('1', value(found, '/batch', Knob.CPU_SET))

    def test_unknown_topology(self) -> None:
        self.topology = {}
        found = self.step(use(A), self.pinned('f', 0))
        self.assertIsNone(value(found, '/batch', Knob.CPU_SET))

    def test_quota_by_ipc(self) -> None:
        seen = []
        # Two until the quota was in force for a whole interval, three
        # samples to learn from, then IPC 2, 2, 2, 1.43 and 0.5.
        for cpi in (*[0.5] * 8, 0.7, 2.0):
            found = self.step(use(A, cpu_cores=1.0), use(B, cpu_cores=0.0),
                              use(VM, cpu_cores=1.0, cpi=cpi))
            seen.append((value(found, A.id, Knob.CPU_CORES),
                         value(found, B.id, Knob.CPU_CORES)))
        # Floors of 0.1 each while learning; then 0.3, 0.4, 0.5 in all, of
        # which B wants nothing; the mean of four 7 % lower: halved; that
        # of five 21 % lower: floors.
        for (a, b), wanted in zip(seen, (
                *[0.1] * 5, 0.2, 0.3, 0.4, 0.15, 0.1), strict=True):
            self.assertAlmostEqual(wanted, a)
            self.assertAlmostEqual(0.1, b)

    def test_no_ipc(self) -> None:
        """Then it is not worked out either which of the background disturb
        others; from the first IPC on it is, whatever follows."""
        job = use(A, cpu_cores=1.0, llc_misses_per_s=1e9)
        for cpi, known, verdict in ((None, 0, None), (0.5, 1, 'minimum'),
                                    (None, 1, 'hold')):
            found = self.step(job, use(VM, cpu_cores=1.0, cpi=cpi))
            self.assertEqual(known, len(
                self.controller.state()['contenders']))
            self.assertEqual(verdict, found.facts['ipc'].get('verdict'))

    def test_ipc_is_learnt_again_when_it_was_off(self) -> None:
        rated = use(A, cpu_cores=1.0), use(VM, cpu_cores=1.0, cpi=0.5)
        for _ in range(8):
            decision = self.step(*rated)
        self.assertEqual('holding', decision.facts['ipc']['rule'])
        params = self.controller.params
        self.controller.tune(dataclasses.replace(params, use_ipc=False))
        self.controller.tune(params)
        self.assertEqual('learning', self.step(*rated).facts['ipc']['rule'])

    def test_ways_of_the_cache_by_ipc(self) -> None:
        """One limit for all background work, while it is tighter than none."""
        self.controller = Controller(dataclasses.replace(
            SMALL, ipc_smoothing=1))
        seen = []
        for cpi in (*[0.5] * 9, 0.7):
            seen.append(value(self.step(
                use(A, cpu_cores=1.0), use(B), use(VM, cpu_cores=1.0, cpi=cpi),
                llc_ways=4), 'background', Knob.LLC_WAYS))
        self.assertEqual([*[1] * 5, 2, 3, None, None, 1], seen)

    def test_no_ways_without_background_or_division(self) -> None:
        for params, ways, workloads in (
                (SMALL, 4, ()), (SMALL, None, (use(A),)),
                (dataclasses.replace(SMALL, use_llc_ways=False), 4,
                 (use(A),)),
                (dataclasses.replace(SMALL, use_ipc=False), 4, (use(A),))):
            self.controller = Controller(params)
            found = self.step(*workloads, use(VM, cpu_cores=1.0, cpi=0.5),
                              llc_ways=ways)
            self.assertIsNone(value(found, 'background', Knob.LLC_WAYS))

    def test_quota_ends_at_the_size_of_the_host(self) -> None:
        for _ in range(50):
            found = self.step(use(A, cpu_cores=1.0),
                              use(VM, cpu_cores=1.0, cpi=0.5))
        self.assertIsNone(value(found, A.id, Knob.CPU_CORES))
        self.assertEqual(4, found.facts['ipc']['quota_cores'])

    def test_more_floors_than_cpus(self) -> None:
        many = [use(dataclasses.replace(A, id=f'/batch/{n}'), cpu_cores=0.1)
                for n in range(50)]
        for _ in range(5):
            found = self.step(*many, use(VM, cpu_cores=1.0, cpi=0.5))
            self.assertAlmostEqual(0.1, value(found, '/batch/7',
                                              Knob.CPU_CORES))
        found = self.step(*many, use(VM, cpu_cores=1.0, cpi=0.5))
        self.assertIsNone(value(found, '/batch/7', Knob.CPU_CORES))

    def test_switches(self) -> None:
        workloads = (use(A), self.pinned('f', 0),
                     use(VM, cpu_cores=1.0, cpi=0.5))
        knobs = {'use_memory': MEMORY, 'use_network': EGRESS,
                 'use_ipc': Knob.CPU_CORES, 'use_cpu_idle': Knob.CPU_IDLE,
                 'use_cpu_set': Knob.CPU_SET}
        self.assertEqual(set(knobs.values()),
                         {cap.knob for cap in self.step(*workloads).caps})
        for name, knob in knobs.items():
            switch: Any = {name: False}
            self.controller = Controller(
                dataclasses.replace(SMALL, **switch))
            self.assertEqual(
                set(knobs.values()) - {knob},
                {cap.knob for cap in self.step(*workloads).caps})


class StateTest(testtools.TestCase):

    def run_some(self, controller: Controller, first: int, last: int,
                 noise: float = 0.1) -> list[Decision]:
        found = []
        for tick in range(first, last):
            dice = random.Random(tick)
            found.append(controller.step(float(tick), rates(
                [use(A, dice.random() * 100, dice.random() * 1e4),
                 use(B, dice.random() * 100, dice.random() * 1e4),
                 use(VM, 500, 100.0, cpu_cores=1.0,
                     cpi=0.5 + dice.random() * noise)],
                foreground_mib=3000 + dice.random() * 1000,
                sent=dice.random() * 1e5, topology=CpuTest.topology)))
        return found

    def test_goes_on_where_it_was(self) -> None:
        one = Controller(SMALL)
        self.run_some(one, 1, 20)
        two = Controller(SMALL)
        two.load(json.loads(json.dumps(one.state())), 19.5)
        self.assertEqual(self.run_some(one, 20, 21)[0].facts,
                         self.run_some(two, 20, 21)[0].facts)
        self.assertEqual([found.caps for found in self.run_some(one, 21, 40)],
                         [found.caps for found in self.run_some(two, 21, 40)])

    def rules(self, controller: Controller, now: float) -> tuple[str, ...]:
        found = controller.step(now, rates(
            [use(A), use(VM, cpu_cores=1.0, cpi=0.5)],
            topology=CpuTest.topology)).facts
        return (found['memory']['rule'], found['network']['eth0']['rule'],
                found['ipc']['rule'])

    def test_older_than_the_window_is_learnt_again(self) -> None:
        # Saved at 19; windows of 4, 3 and 3 s, peaks of 8 and 6 s.
        for params, now, learning in (
                (PAPER, 21.0, ''), (PAPER, 22.5, 'network ipc'),
                (PAPER, 24.0, 'memory network ipc'),
                (PAPER, 18.0, 'memory network ipc'),
                (SMALL, 21.0, ''), (SMALL, 24.5, 'ipc'),
                (SMALL, 26.0, 'network ipc'),
                (SMALL, 28.0, 'memory network ipc'),
                (SMALL, 18.0, 'memory network ipc')):
            one, two = Controller(params), Controller(params)
            self.run_some(one, 1, 20, noise=0.0)
            two.load(one.state(), now)
            self.assertEqual(tuple(
                'learning' if name in learning else 'holding'
                for name in ('memory', 'network', 'ipc')),
                self.rules(two, now + 0.1), str((params, now)))

    def test_peaks_grow_old_while_no_agent_runs(self) -> None:
        """8 s after the high use it does not count any more."""
        one = Controller(SMALL)
        for tick in range(6):
            one.step(float(tick), rates([use(A)], foreground_mib=3000))
        one.step(6.0, rates([use(A)], foreground_mib=7000))
        one.step(7.0, rates([use(A)], foreground_mib=3000))
        for now, level in ((13.0, 7000), (15.0, 3000)):
            two = Controller(SMALL)
            two.load(one.state(), now)
            found = two.step(now, rates([use(A)], foreground_mib=3000))
            self.assertAlmostEqual(
                level, found.facts['memory']['level'] / MIB)

    def test_garbage(self) -> None:
        one = Controller(SMALL)
        self.run_some(one, 1, 20)
        good = json.dumps(one.state())
        states: list[Any] = [
            {}, {'saved_s': 'x'}, {'saved_s': math.nan}, {'saved_s': None},
            {'saved_s': 19.0, 'memory': 7}, {'saved_s': 19.0, 'links': 7},
            {'saved_s': 19.0, 'links': {'eth0': 7}},
            {'saved_s': 19.0, 'quota': {'cores': 1}},
            {'saved_s': -10 ** 400},
            {'saved_s': 19.0, 'memory': {'x': 10 ** 400, 'capacity': 1}}]
        for name in ('memory', 'links', 'quota'):
            state = json.loads(good)
            state[name] = ['x']
            states.append(state)
        for state in states:
            two = Controller(SMALL)
            two.load(state, 20.0)
            self.assertEqual(('learning',) * 3, self.rules(two, 20.1),
                             str(state))
