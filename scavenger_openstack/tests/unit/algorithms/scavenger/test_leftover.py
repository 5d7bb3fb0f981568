# SPDX-License-Identifier: Apache-2.0

"""The quota that follows what is left over, on a host of simple work."""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import testtools

from scavenger_openstack.algorithms.max_min import split
from scavenger_openstack.algorithms.scavenger import leftover
from scavenger_openstack.algorithms.scavenger.scavenger import Controller
from scavenger_openstack.algorithms.scavenger.scavenger import Params
from scavenger_openstack.tests.unit.algorithms import strategies
from scavenger_openstack.types import Cpu
from scavenger_openstack.types import Decision
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates

SHARE, FLOOR = 0.97, 0.1
ONLY = Params(use_memory=False, use_network=False, use_ipc=False)
CORES = strategies.weird(strategies.amounts(5.0))
GROUP, A, B, VM = '/pods/batch', '/pods/batch/a', '/pods/batch/b', 'vm'


def made(name: str, vcpus: float) -> Workload:
    """A container if its name is a path, else a VM."""
    path = name.startswith('/')
    return Workload(name, Priority.BACKGROUND, vcpus=vcpus,
                    group=name.rpartition('/')[0],
                    instance='' if path else name)


class Host:
    """Background work that runs where the others leave room, each group at
    most its quota; one step is one second."""

    def __init__(self, cpus: int = 4, params: Params = ONLY,
                 vcpus: float = 4.0) -> None:
        self.controller = Controller(params)
        self.vcpus = vcpus
        self.topology = {cpu: Cpu(cpu, 0, 0) for cpu in range(cpus)}
        self.busy_s = dict.fromkeys(self.topology, 100.0)
        self.now = 0.0
        self.quotas: dict[str, float] = {}
        self.used: dict[str, float] = {}
        self.seen: set[str] = set()
        self.changes = 0
        self.idle: set[str] = set()

    def step(self, others: float, wanted: Mapping[str, float],
             **rest: Any) -> Decision:
        """``others`` use so many cores, the background wants these."""
        groups: dict[str, dict[str, float]] = {}
        for name, want in wanted.items():
            groups.setdefault(name.rpartition('/')[0] or name, {})[name] = (
                min(want, self.vcpus))
        limits = [min(self.quotas.get(group, math.inf), sum(inside.values()))
                  for group, inside in groups.items()]
        cpus = len(self.topology)
        got = shared(max(0.0, cpus - others), limits)
        self.used = {
            name: part for total, inside in zip(got, groups.values(),
                                                strict=True)
            for name, part in zip(inside, shared(total, [*inside.values()]),
                                  strict=True)}
        busy = min(cpus, others + sum(self.used.values())) / cpus
        self.busy_s = {cpu: was + busy for cpu, was in self.busy_s.items()}
        self.now += 1
        values: dict[str, Any] = {
            'cpu_busy_s': self.busy_s, 'topology': self.topology,
            'complete': self.now > 1, **rest}
        found = self.controller.step(self.now, Rates(
            self.now, 1.0, tuple(
                WorkloadRates(made(name, self.vcpus), 1.0, cpu_cores=(
                    self.used[name] if name in self.seen else None))
                for name in wanted), **values))
        self.seen = set(wanted)
        quotas = {cap.workload: float(cap.value) for cap in found.caps
                  if cap.owner == leftover.OWNER}
        self.changes += sum(quotas[name] != self.quotas.get(name)
                            for name in quotas)
        self.quotas = quotas
        self.idle = {cap.workload for cap in found.caps
                     if cap.knob is Knob.CPU_IDLE}
        return found


def shared(budget: float, wants: list[float]) -> list[float]:
    """As the kernel does it."""
    return [min(share, want) for share, want in zip(split(
        budget, wants, [1.0] * len(wants), [0.0] * len(wants)), wants,
        strict=True)]


class EquationsTest(testtools.TestCase):

    def test_left_over(self) -> None:
        before = {0: 10.0, 1: 20.0, 2: 30.0}
        now = {0: 12.0, 1: 20.5, 2: 30.0}
        for cpus, used, wanted in (
                ((0, 1, 2), 0.25, 0.75 + 1 + 0.25), ((0,), 1.0, 1.0),
                ((0,), 3.0, 1.0), ((1,), 0.0, 0.75), ((0, 7), 0.0, 0.0)):
            self.assertAlmostEqual(wanted, leftover.left_over(
                before, now, cpus, used, 2.0) or 0.0)
        # A clock tick too much on one CPU is one too few on another.
        self.assertAlmostEqual(0.5, leftover.left_over(
            {0: 0.0, 1: 0.0}, {0: 1.01, 1: 0.99}, (0, 1), 0.5, 1.0) or 0.0)
        for unknown in ((before, now, (7,), 1.0, 2.0),
                        ({}, now, (0,), 1.0, 2.0),
                        (now, before, (0, 1), 1.0, 2.0),
                        ({0: math.nan}, now, (0,), 1.0, 2.0),
                        (before, {0: math.inf}, (0,), 1.0, 2.0),
                        (before, now, (), 1.0, 2.0),
                        (before, now, (0,), 1.0, 0.0),
                        (before, now, (0,), 1.0, math.nan)):
            self.assertIsNone(leftover.left_over(*unknown))

    def test_nested(self) -> None:
        for one, wanted in (
                (Workload('/batch/a', Priority.BACKGROUND, group='/batch'),
                 False),
                (Workload('/batch', Priority.BACKGROUND), False),
                (Workload('/kubepods/besteffort/a', Priority.BACKGROUND,
                          group='/kubepods/besteffort'), True),
                (Workload('/kubepods/a', Priority.BACKGROUND,
                          group='/kubepods'), True),
                (Workload('/kubepods.slice/a', Priority.BACKGROUND,
                          group='/kubepods.slice'), True),
                (Workload('/batch/a', Priority.BACKGROUND), True),
                (Workload('d-1', Priority.BACKGROUND, instance='u'), True)):
            self.assertIs(wanted, leftover.nested(WorkloadRates(one, 1.0)))

    def test_units(self) -> None:
        def use(name: str, cores: float | None) -> WorkloadRates:
            return WorkloadRates(made(name, 2.0), 1.0, cpu_cores=cores)

        group, vm = leftover.units(
            (use(A, 0.4), use(VM, 1.0), use(B, 0.04)), {})
        self.assertEqual((GROUP, 4.0, None, 0.0),
                         (group.name, group.most, group.quota, group.slack))
        self.assertAlmostEqual(0.55, group.need)
        self.assertAlmostEqual(0.1 + 0.05, group.floor)
        self.assertEqual((VM, 2.0, 1.25, FLOOR), vm[:4])
        # What stands still makes no floor; all of it together has one.
        for number, least in ((1, FLOOR), (50, FLOOR)):
            one, = leftover.units([use(f'{GROUP}/{i}', 0.0)
                                   for i in range(number)], {})
            self.assertAlmostEqual(least, one.floor)
        # Its own floor, if it has one.
        for least in (0.7, 0.02):
            own = dataclasses.replace(
                made(B, 2.0), floor={Knob.CPU_CORES: least})
            one, = leftover.units([WorkloadRates(own, 1.0, cpu_cores=0.0)],
                                  {})
            self.assertAlmostEqual(least, one.floor)
        # Held back, or not known: it may want all that it can use.
        for cores, quota, need in ((0.9, 1.0, 2.0), (0.8, 1.0, 1.0),
                                   (None, None, 2.0), (math.nan, 1.0, 2.0)):
            one, = leftover.units((use(VM, cores),),
                                  {} if quota is None else {VM: quota})
            self.assertAlmostEqual(need, one.need)
        # Sizes that have no sum.
        one, = leftover.units([
            WorkloadRates(made(name, vcpus), 1.0)
            for name, vcpus in ((A, math.inf), (B, -math.inf))], {})
        self.assertEqual((0.0, 0.0), (one.most, one.need))

    def test_quotas(self) -> None:
        def unit(need: float, quota: float | None = None,
                 most: float = 4.0, slack: float = 0.1) -> leftover.Unit:
            return leftover.Unit('u', most, need, FLOOR, quota, slack)

        for budget, every, wanted in (
                # What nothing needs goes to all, in equal parts, as far as
                # they can use it.
                (4.0, (unit(1.5, most=6), unit(0.5, most=4)), (2.0, 2.0)),
                (10.0, (unit(3.0, most=16), unit(0.5, most=1)), (9.0, 1.0)),
                # A small VM gets as much as a big one, if it can use that.
                (2.0, (unit(2.0, most=2), unit(1.0, most=1)), (1.0, 1.0)),
                # Less than is needed: the small one has all of it.
                (2.0, (unit(4.0), unit(0.5)), (1.5, 0.5)),
                # What stands still keeps its floor and costs nothing.
                (2.0, (unit(4.0), unit(0.0)), (2.0, 0.1)),
                (0.0, (unit(4.0), unit(4.0)), (0.1, 0.1)),
                # A gain that is not worth a call, and one that is.
                (2.1, (unit(4.0, 2.0),), (2.0,)),
                (2.3, (unit(4.0, 2.0),), (2.3,)),
                (2.1, (unit(4.0, 2.0, slack=0.0),), (2.1,)),
                # All fall as soon as they exceed the budget together.
                (1.9, (unit(4.0, 1.0), unit(4.0, 1.0)), (0.95, 0.95)),
                (2.0, (unit(4.0, 1.5), unit(4.0, 0.1)), (1.0, 1.0)),
                # One that may rise by much takes from those above their
                # part; otherwise none falls.
                (4.0, (unit(0.5, 2.5), unit(4.0, 1.5)), (0.5, 3.5)),
                (4.0, (unit(0.5, 2.0), unit(0.6, 2.0)), (2.0, 2.0))):
            found = leftover.quotas(budget, every)
            for one, expected in zip(found, wanted, strict=True):
                self.assertAlmostEqual(expected, one, msg=str(every))


class FollowTest(testtools.TestCase):

    def test_falls_at_once_and_rises_in_three_ticks(self) -> None:
        host, seen = Host(2), []
        for others in (0.5, 0.5, 1.5, 0.5, 0.5, 0.5, 2.0, 1.0, 0.5, 0.5):
            host.step(others, {A: 9, B: 9})
            seen.append(round(host.quotas.get(GROUP, -1), 3))
        # Nothing is known at first; at last it rises to the least of three.
        # On a full host it is one floor, then what is made use of of both.
        self.assertEqual([-1, 1.455, 0.485, 0.485, 0.485, 1.455, FLOOR,
                          0.125, 0.156, 0.97], seen)

    def test_a_group_has_one_quota_with_all_that_is_born_in_it(self) -> None:
        host = Host(4)
        for number in range(1, 12):
            host.step(1.0, {f'{GROUP}/{i}': 1.0 for i in range(number)})
            self.assertLessEqual(host.quotas.keys(), {GROUP})
        # Of the last of them it is not known what it uses.
        self.assertGreater(host.quotas[GROUP], 0.9 * 3 * SHARE)

    def test_births_do_not_look_like_foreground(self) -> None:
        host = Host(4)
        for _ in range(5):
            host.step(1.0, {A: 9})
        for number in range(1, ONLY.blind_ticks + 1):
            host.step(1.0, {A: 9, f'{GROUP}/{number}': 9})
            self.assertAlmostEqual(3 * SHARE, host.quotas[GROUP])

    def test_only_with_cpu_idle_and_where_it_is_wanted(self) -> None:
        for params in (Params(use_cpu_idle=False),
                       Params(use_cpu_leftover=False)):
            host = Host(2, params)
            for _ in range(3):
                self.assertNotIn('leftover', host.step(0.5, {A: 9}).facts)
                self.assertEqual({}, host.quotas)

    def test_what_it_did_before_it_was_off_tells_nothing(self) -> None:
        """Else all that ran meanwhile would have run in one tick."""
        for off in (dataclasses.replace(ONLY, use_cpu_leftover=False),
                    dataclasses.replace(ONLY, use_cpu_idle=False)):
            host, seen = Host(4), []
            for params in (ONLY, off, ONLY):
                host.controller.tune(params)
                for _ in range(5):
                    host.step(1.0, {A: 9, VM: 0.0})
                seen.append(({name: round(quota, 3) for name, quota
                              in host.quotas.items()}, host.idle))
            self.assertEqual(({}, seen[0]), (seen[1][0], seen[2]))

    def test_a_vm_that_may_have_all_it_can_use_has_none(self) -> None:
        host = Host(16, vcpus=2.0)
        for _ in range(5):
            host.step(2.0, {VM: 2.0, 'vm-2': 0.0})
        self.assertEqual({}, host.quotas)
        for _ in range(5):
            host.step(15.0, {VM: 2.0, 'vm-2': 0.0})
        self.assertEqual({VM, 'vm-2'}, host.quotas.keys())

    def test_small_moves_of_the_load_change_no_vm(self) -> None:
        host = Host(8)
        for number in range(60):
            host.step(4 + 0.1 * (number % 3), dict.fromkeys(
                ('a', 'b', 'c', 'd'), 9.0))
        self.assertLessEqual(host.changes, 8)

    def test_pinned_foreground_leaves_fewer_cpus(self) -> None:
        host = Host(4)
        pinned = WorkloadRates(Workload(
            'front', Priority.FOREGROUND, allowed_cpus=frozenset((0, 1)),
            dedicated_cpus=frozenset((0, 1))), 1.0)
        before = host.controller.step

        def step(now: float, rates: Rates) -> Decision:
            return before(now, Rates(
                rates.time_s, 1.0, (*rates.workloads, pinned),
                topology=rates.topology, cpu_busy_s=rates.cpu_busy_s))

        host.controller.step = step  # type: ignore[method-assign]
        for _ in range(3):
            host.step(0.0, {A: 0.0})
        self.assertAlmostEqual(2 * SHARE, host.quotas[GROUP])

    def test_isolated_cpus_are_not_left_over(self) -> None:
        for params in (ONLY, Params(use_cpu_set=False)):
            host = Host(4, params)
            host.topology[3] = Cpu(3, 0, 0, isolated=True)
            for _ in range(3):
                host.step(0.0, {A: 0.0})
            self.assertAlmostEqual(3 * SHARE, host.quotas[GROUP])

    def test_off_when_the_cpus_cannot_be_read_any_more(self) -> None:
        host = Host(2)
        for _ in range(5):
            host.step(0.5, {A: 9})
        seen = []
        for _ in range(ONLY.blind_ticks + 1):
            facts = host.step(0.5, {A: 9}, cpu_busy_s={}).facts['leftover']
            seen.append((facts['rule'], GROUP in host.quotas))
        self.assertEqual([('holding', True)] * ONLY.blind_ticks
                         + [('off', False)], seen)


class IdleTest(testtools.TestCase):

    def test_of_vms_only_while_something_is_left(self) -> None:
        host, seen = Host(2), []
        for others, seconds in (
                (1.0, 1), (1.0, 1), (2.0, 1), (1.85, 70), (1.5, 1), (1.5, 61),
                (1.5, 1), (1.85, 1), (1.92, 1)):
            for _ in range(seconds):
                found = host.step(others, {VM: 9})
            self.assertLessEqual(host.idle, {VM})
            self.assertEqual(not host.idle, (VM, Knob.CPU_IDLE)
                             in found.removal_reasons)
            seen.append(len(host.idle))
        # Not known yet; left; full, also while it is not twice the floor, and
        # for a minute after that; left, which holds while it is above the
        # floor.
        self.assertEqual([1, 1, 0, 0, 0, 0, 1, 1, 0], seen)

    def test_a_host_that_is_full_now_and_then(self) -> None:
        """In half an hour of ten seconds in 64."""
        host, idle = Host(2), [False]
        for second in range(1800):
            host.step(2.0 if second % 64 < 10 else 1.0, {VM: 9})
            idle.append(bool(host.idle))
        self.assertLessEqual(sum(
            now and not before for before, now in zip(
                idle, idle[1:], strict=False)), 4)

    def test_of_containers_always(self) -> None:
        host = Host(2)
        for others in (2.0, 2.0, 0.0, 2.0):
            host.step(others, {A: 9, VM: 9})
            self.assertIn(GROUP, host.idle)
        self.assertNotIn(VM, host.idle)


@st.composite
def seen(draw: st.DrawFn) -> list[WorkloadRates]:
    """Background, of which anything may be said."""
    return [WorkloadRates(one, 1.0, cpu_cores=draw(CORES))
            for one in strategies.workloads(draw, Priority.BACKGROUND, 4)]


class LeftoverProperties(testtools.TestCase):

    @given(st.data())
    def test_budget_floors_and_facts(self, data: st.DataObject) -> None:
        """Whatever is measured: no quota is below its floor or more than
        can be used, and all is plain JSON."""
        controller = Controller(data.draw(strategies.params))
        for tick in range(1, data.draw(st.integers(2, 8))):
            background = data.draw(seen())
            found = controller.step(float(tick), Rates(
                tick, data.draw(st.sampled_from((1.0, 1.0, 0.5, 0.0))),
                tuple(background), strategies.FLAT,
                cpu_busy_s=data.draw(st.dictionaries(
                    st.integers(0, 5), st.floats(0, 8) | st.sampled_from(
                        (math.nan, math.inf, 1e300)), max_size=6))))
            facts = found.facts.get('leftover', {'rule': 'off'})
            self.assertEqual(facts, json.loads(json.dumps(
                facts, allow_nan=False)))
            limits = [cap for cap in found.caps
                      if cap.owner == leftover.OWNER]
            if facts['rule'] == 'off':
                self.assertEqual([], limits)
                continue
            every = {one.name: one for one in leftover.units(
                (one._replace(cpu_cores=0.0) for one in background), {})}
            for cap in limits:
                quota = float(cap.value)
                self.assertGreaterEqual(quota, every[cap.workload].floor)
                self.assertLess(quota, every[cap.workload].most)

    @given(st.lists(st.tuples(strategies.amounts(8.0), st.booleans()),
                    min_size=1, max_size=5),
           strategies.amounts(7.5))
    def test_none_that_wants_more_is_starved(
            self, wants: list[tuple[float, bool]], others: float) -> None:
        """Soon each has what it wants, or a fair part of the budget."""
        host = Host(8, vcpus=8.0)
        workloads = {f'w{i}' if vm else f'{GROUP}{i}/w': want
                     for i, (want, vm) in enumerate(wants)}
        for busy in (3.0, 7.0):      # another mix before
            host.step(busy, dict.fromkeys(workloads, busy))
        for _ in range(15):
            host.step(others, workloads)
        budget = SHARE * (8 - others)
        for one, want in workloads.items():
            self.assertGreaterEqual(
                host.used[one] * (1 + leftover.VM_SLACK) + 1e-9,
                min(want, max(FLOOR, budget / len(workloads)),
                    (8 - others) / len(workloads)))
