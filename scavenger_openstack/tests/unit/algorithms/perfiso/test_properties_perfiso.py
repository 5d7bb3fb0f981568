# SPDX-License-Identifier: Apache-2.0


"""What holds for the CPU set of the fast loop, on any host."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping
import math
from typing import Any
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st
import testtools

from scavenger_openstack.algorithms.perfiso.perfiso import buffer_cores
from scavenger_openstack.algorithms.perfiso.perfiso import choose_cpus
from scavenger_openstack.algorithms.perfiso.perfiso import Controller
from scavenger_openstack.algorithms.perfiso.perfiso import grow_or_shrink
from scavenger_openstack.algorithms.perfiso.perfiso import Params
from scavenger_openstack.tests.unit.algorithms import strategies
from scavenger_openstack.types import Cpu

TICK_S = 1 / 1024
GROW_TICKS = 8
GROW_MS = GROW_TICKS * TICK_S * 1000
"""Times without rounding errors."""

Topology = Mapping[int, Cpu]


class Look(NamedTuple):
    ticks: int
    idle: int
    allowed: frozenset[int] | None     # None: as before


@st.composite
def hosts(draw: st.DrawFn) -> tuple[dict[int, Cpu], list[Look]]:
    topology = draw(strategies.topologies())
    allowed = st.one_of(st.none(), st.none(),
                        strategies.subsets(topology, 1))
    return topology, draw(st.lists(st.builds(
        Look, st.sampled_from((0, 1, 3, 7, 8, 9, 30, -5)),
        st.integers(0, len(topology)), allowed), min_size=1, max_size=25))


@st.composite
def choices(draw: st.DrawFn) -> tuple[dict[int, Cpu], frozenset[int],
                                      frozenset[int], int]:
    topology = draw(strategies.topologies())
    return (topology, draw(st.one_of(
        st.just(frozenset(topology)), strategies.subsets(topology))),
        draw(st.one_of(st.just(frozenset()), strategies.subsets(topology))),
        draw(st.integers(0, len(topology) + 1)))


def controller(topology: Topology, buffer: int,
               current: Collection[int] = ()) -> Controller:
    return Controller(Params(buffer_cores=buffer, grow_interval_ms=GROW_MS),
                      topology=topology, current=current)


def cores(cpus: Collection[int], topology: Topology) -> dict[Cpu, set[int]]:
    """Core -> its CPUs that are among these."""
    found: dict[Cpu, set[int]] = {}
    for cpu in cpus:
        found.setdefault(topology[cpu], set()).add(cpu)
    return found


def broken(cpus: Collection[int], topology: Topology) -> set[Cpu]:
    """The cores of which these are a part only."""
    whole = cores(topology, topology)
    return {core for core, some in cores(cpus, topology).items()
            if some != whole[core]}


class EquationProperties(testtools.TestCase):

    @given(st.integers(-1, 200), st.integers(1, 200))
    def test_the_background_keeps_one_cpu(self, given_: int,
                                          cpus: int) -> None:
        found = buffer_cores(Params(buffer_cores=given_), cpus)
        self.assertTrue(0 <= found < cpus)
        if given_ >= 0:
            self.assertEqual(min(given_, cpus - 1), found)
        else:
            self.assertEqual(0 if cpus < 8 else math.ceil(cpus / 6), found)

    @given(st.integers(1, 99), st.integers(0, 99), st.integers(0, 99),
           st.integers(0, 99))
    def test_one_step(self, size: int, one: int, two: int,
                      buffer: int) -> None:
        less, more = (grow_or_shrink(size, idle, buffer)
                      for idle in sorted((one, two)))
        self.assertTrue(1 <= less <= more <= size + 1)
        found = grow_or_shrink(size, one, buffer)
        self.assertEqual(
            size + 1 if one > buffer else max(1, size + one - buffer), found)


class ChooseCpusProperties(testtools.TestCase):

    @given(choices())
    def test_as_many_as_wanted_of_those_allowed(self, choice: Any) -> None:
        topology, allowed, keep, count = choice
        found = choose_cpus(count, allowed, topology, keep)
        self.assertTrue(found <= allowed)
        self.assertEqual(min(count, len(allowed)), len(found))
        held = keep & allowed
        self.assertTrue(found <= held or held <= found)
        # One without a topology gets as many.
        self.assertEqual(len(found), len(choose_cpus(count, allowed, {},
                                                     keep)))

    @given(choices())
    def test_whole_cores(self, choice: Any) -> None:
        """Growing first fills the cores that are begun, shrinking first
        gives them up; neither breaks more than one that could be whole."""
        topology, allowed, keep, count = choice
        held = keep & allowed
        found = choose_cpus(count, allowed, topology, keep)
        whole = cores(topology, topology)
        could = {core for core, cpus in whole.items() if cpus <= allowed}
        begun = cores(held, topology).keys()
        if held < found:
            fresh = cores(found - held, topology).keys()
            left = {topology[cpu] for cpu in allowed - found}
            if fresh - begun:
                self.assertEqual(set(), left & begun)
            if fresh - begun - could:
                self.assertEqual(set(), left & could)
            self.assertLessEqual(len(
                (broken(found, topology) - begun) & could), 1)
        else:
            before = broken(held, topology)
            after = broken(found, topology)
            self.assertLessEqual(len(after - before), 1)
            if after - before:
                self.assertEqual(set(), after & before)

    @given(choices())
    def test_one_cache_after_the_other(self, choice: Any) -> None:
        """From nothing, no second cache is begun before the first is
        full: with cores that can be had whole."""
        topology, allowed, _, count = choice
        whole = cores(topology, topology)
        allowed = frozenset().union(*(
            cpus for cpus in whole.values() if cpus <= allowed))
        found = choose_cpus(count, allowed, topology)
        left = {topology[cpu].llc for cpu in allowed - found}
        begun = {topology[cpu].llc for cpu in found}
        self.assertLessEqual(len(left & begun), 1)

    @given(strategies.topologies(), st.integers(0, 30))
    def test_the_cpus_of_the_interrupts_last(self, topology: Any,
                                             count: int) -> None:
        found = choose_cpus(count, topology.keys(), topology)
        self.assertEqual(count >= len(topology), 0 in found)


class ControllerProperties(testtools.TestCase):

    @given(hosts(), st.integers(0, 30), st.data())
    def test_by_the_paper(self, host: Any, buffer: int,
                          data: st.DataObject) -> None:
        """At once what is missing, one more per interval, never below one
        CPU and always within what is allowed."""
        topology, curve = host
        current = data.draw(strategies.subsets(topology))
        rule = controller(topology, buffer, current)
        buffer = min(buffer, len(topology) - 1)
        self.assertEqual(buffer, rule.buffer_cores)
        allowed, before = frozenset(topology), current
        tick, changed = 0, -math.inf
        for look in curve:
            tick += look.ticks
            allowed = look.allowed or allowed
            before = (allowed if not buffer else
                      before & allowed or frozenset())
            size = max(1, len(before))
            wanted = size
            if look.idle < buffer:
                wanted = max(1, size - (buffer - look.idle))
            elif (look.idle > buffer and size < len(allowed)
                    and tick - changed >= GROW_TICKS):
                wanted = size + 1
            short = rule.short_steps
            found = rule.step(tick * TICK_S, look.idle, allowed)
            self.assertTrue(found and found <= allowed)
            self.assertEqual(wanted, len(found))
            self.assertTrue(found <= before or before <= found)
            self.assertEqual(short + (look.idle < buffer and size == 1),
                             rule.short_steps)
            if wanted != size:
                changed = tick
            before = found

    @given(hosts(), st.integers(1, 8))
    def test_nothing_is_written_when_nothing_changes(
            self, host: Any, buffer: int) -> None:
        topology, curve = host
        rule = controller(topology, buffer)
        allowed, before = frozenset(topology), frozenset[int]()
        for tick, look in enumerate(curve):
            allowed = look.allowed or allowed
            found = rule.step(tick * TICK_S, look.idle, allowed)
            if found == before:
                self.assertIs(before, found)
            before = found

    @given(strategies.topologies(), st.integers(1, 8), st.integers(0, 24),
           st.data())
    def test_a_constant_foreground_comes_to_rest(
            self, topology: Any, buffer: int, busy: int,
            data: st.DataObject) -> None:
        """The background uses all that it has.  It ends with what leaves B
        CPUs idle, or with one CPU, and then nothing moves at all."""
        count = len(topology)
        buffer, busy = min(buffer, count - 1), min(busy, count)
        allowed = data.draw(strategies.subsets(topology, 1))
        current = data.draw(strategies.subsets(topology))
        rule = controller(topology, buffer, current)
        found = current
        rest = frozenset[int]()
        for look in range(2 * count + 2):
            idle = max(0, count - busy - len(found & allowed))
            found = rule.step(look * GROW_TICKS * TICK_S, idle, allowed)
            if look == count + 1:
                rest = found
            elif look > count + 1:
                self.assertIs(rest, found)
        self.assertEqual(
            min(len(allowed), max(1, count - busy - buffer)), len(rest))

    @given(hosts(), st.integers(1, 8), st.data())
    def test_before_anything_is_allowed_nothing_changes(
            self, host: Any, buffer: int, data: st.DataObject) -> None:
        topology, curve = host
        current = data.draw(strategies.subsets(topology))
        rule = controller(topology, buffer, current)
        for tick, look in enumerate(curve):
            self.assertEqual(current, rule.step(
                tick * GROW_TICKS * TICK_S, look.idle, frozenset()))

    @given(hosts(), st.integers(1, 8))
    def test_when_nothing_is_allowed_the_last_one_holds(
            self, host: Any, buffer: int) -> None:
        topology, curve = host
        one, two = controller(topology, buffer), controller(topology, buffer)
        allowed = frozenset(topology)
        for tick, look in enumerate(curve):
            allowed = look.allowed or allowed
            now = tick * GROW_TICKS * TICK_S
            given_ = look.allowed or (frozenset() if tick else allowed)
            self.assertEqual(one.step(now, look.idle, allowed),
                             two.step(now, look.idle, given_))

    @given(hosts(), st.integers(1, 8))
    def test_the_same_with_idle_cpus_or_their_number(
            self, host: Any, buffer: int) -> None:
        topology, curve = host
        one, two = controller(topology, buffer), controller(topology, buffer)
        for tick, look in enumerate(curve):
            allowed = look.allowed or frozenset(topology)
            self.assertEqual(
                one.step(tick * TICK_S, look.idle, allowed),
                two.step(tick * TICK_S, range(look.idle), allowed))
