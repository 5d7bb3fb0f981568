# SPDX-License-Identifier: Apache-2.0


"""What holds for the rates between any two samples."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import testtools

from scavenger_openstack.decision.rates import grown
from scavenger_openstack.decision.rates import MIN_RUNNING_SHARE
from scavenger_openstack.decision.rates import MOST_THROTTLED
from scavenger_openstack.decision.rates import rates
from scavenger_openstack.decision.rates import run_delay
from scavenger_openstack.tests.unit.algorithms import strategies
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates
from scavenger_openstack.types import WorkloadSample

ONE = Workload('/one', Priority.FOREGROUND, created_s=5.0)
COUNT = st.one_of(st.integers(0, 20), st.integers(0, 2 ** 64))
WEIRD = strategies.weird(COUNT)
INTERVALS = st.floats(1e-6, 1e6)
RATES = WorkloadRates._fields[2:-2]
NEEDS = {
    'cpu_cores': ('cpu_s',),
    'cpi': ('ref_cycles', 'instructions', 'counter_enabled_s',
            'counter_running_s'),
    'run_delay': ('run_delay_s', 'throttled_s', 'cpu_s'),
    'throttled_share': ('throttled_s',),
    'llc_misses_per_s': ('llc_misses', 'counter_enabled_s',
                         'counter_running_s'),
    'io_wait_s_per_op': ('io_wait_s', 'io_ops'),
    'io_bytes_per_s': ('io_bytes',), 'io_ops_per_s': ('io_ops',),
    'net_tx_bytes_per_s': ('net_tx_bytes',),
    'net_rx_bytes_per_s': ('net_rx_bytes',),
    'refault_bytes_per_s': ('refault_bytes',)}
"""Rate -> the counters that it is made of."""


def host(time_s: float, *seen: WorkloadSample, **rest: Any) -> HostSample:
    return HostSample('h', rest.pop('boot_id', 'b'), time_s, time_s, seen,
                      **rest)


def growing(sample: WorkloadSample, more: list[int]) -> WorkloadSample:
    """The same workload later: no counter went back."""
    return sample._replace(**{
        name: getattr(sample, name) + growth
        for name, growth in zip(strategies.COUNTERS, more, strict=True)
        if getattr(sample, name) is not None})


def but(sample: WorkloadSample, name: str, value: Any) -> WorkloadSample:
    return sample._replace(**{name: value})


def between(before: WorkloadSample, after: WorkloadSample,
            seconds: float = 2.0) -> WorkloadRates:
    return rates(host(10.0, before), host(10.0 + seconds, after)
                 ).workloads[0]


KNOWN = strategies.samples(ONE, COUNT)
ANY = strategies.samples(ONE, WEIRD)
MORE = st.lists(st.one_of(st.integers(0, 3), COUNT),
                min_size=len(strategies.COUNTERS),
                max_size=len(strategies.COUNTERS))


class RatesProperties(testtools.TestCase):

    def assertNoRates(self, found: Rates) -> None:
        self.assertFalse(found.complete)
        self.assertEqual(0.0, found.interval_s)
        for one in found.workloads:
            self.assertEqual([None] * len(RATES), list(one[2:-2]))
        self.assertEqual(set(), set(found.link_tx_bytes_per_s.values())
                         - {None})

    @given(ANY, ANY, INTERVALS)
    def test_a_number_from_0_up_or_unknown(
            self, before: WorkloadSample, after: WorkloadSample,
            seconds: float) -> None:
        found = between(before, after, seconds)
        for name in RATES:
            value = getattr(found, name)
            self.assertTrue(value is None or 0 <= value < math.inf,
                            f'{name} {value}')

    @given(KNOWN, MORE, st.sampled_from(strategies.COUNTERS),
           st.sampled_from((None, math.nan, math.inf, -math.inf, -1)))
    def test_a_bad_counter_spoils_only_what_is_made_of_it(
            self, before: WorkloadSample, more: list[int], bad: str,
            value: Any) -> None:
        """Gone back, missing or no number, before or now."""
        after = growing(before, more)
        good = between(before, after)
        for found in (
                between(before, but(after, bad, value)),
                between(but(before, bad, math.nan), after),
                between(but(before, bad, getattr(after, bad) + 1), after)):
            for name in RATES:
                if bad not in NEEDS[name]:
                    self.assertEqual(getattr(good, name),
                                     getattr(found, name), name)
                elif bad == 'counter_running_s' and value is None:
                    continue    # then nothing is said about multiplexing
                elif bad == 'ref_cycles' and value is None:
                    continue    # then core cycles count
                else:
                    self.assertIsNone(getattr(found, name), name)

    @given(KNOWN, MORE, INTERVALS)
    def test_by_the_equations(self, before: WorkloadSample, more: list[int],
                              seconds: float) -> None:
        after = growing(before, more)
        # The interval as it comes out of the two times.
        prev, cur = host(10.0, before), host(10.0 + seconds, after)
        interval_s = cur.time_s - prev.time_s
        found = rates(prev, cur).workloads[0]
        grew = dict(zip(strategies.COUNTERS, more, strict=True))
        for name in ('io_bytes', 'io_ops', 'net_tx_bytes', 'net_rx_bytes'):
            self.assertEqual(grew[name] / interval_s,
                             getattr(found, f'{name}_per_s'))
        self.assertEqual(grew['cpu_s'] / interval_s, found.cpu_cores)
        self.assertEqual(grew['throttled_s'] / interval_s,
                         found.throttled_share)
        self.assertEqual(
            max(0.0, grew['run_delay_s'] - grew['throttled_s'])
            / grew['cpu_s'] if grew['cpu_s']
            and grew['throttled_s'] <= MOST_THROTTLED * interval_s else None,
            found.run_delay)
        self.assertEqual(grew['io_wait_s'] / grew['io_ops']
                         if grew['io_ops'] else None, found.io_wait_s_per_op)
        enabled, running = (grew['counter_enabled_s'],
                            grew['counter_running_s'])
        if not running or not enabled or (
                running < MIN_RUNNING_SHARE * enabled):
            self.assertIsNone(found.cpi)
            self.assertIsNone(found.llc_misses_per_s)
            return
        both = grew['ref_cycles'] and grew['instructions']
        self.assertEqual(grew['ref_cycles'] / grew['instructions']
                         if both else None, found.cpi)
        assert found.llc_misses_per_s is not None
        self.assertTrue(math.isclose(
            grew['llc_misses'] * max(1.0, enabled / running) / interval_s,
            found.llc_misses_per_s))

    @given(KNOWN, MORE, st.one_of(
        st.just(10.0), st.floats(max_value=10.0),
        st.sampled_from((math.nan, math.inf, -math.inf))))
    def test_time_that_does_not_go_on_has_no_rates(
            self, before: WorkloadSample, more: list[int],
            time_s: float) -> None:
        self.assertNoRates(rates(
            host(10.0, before, link_tx_bytes={'eth0': 5}),
            host(time_s, growing(before, more), link_tx_bytes={'eth0': 9})))

    @given(KNOWN, MORE)
    def test_another_boot_or_the_first_sample_has_no_rates(
            self, before: WorkloadSample, more: list[int]) -> None:
        cur = host(11.0, growing(before, more), link_tx_bytes={'eth0': 9})
        self.assertNoRates(rates(None, cur))
        self.assertNoRates(rates(host(
            10.0, before, link_tx_bytes={'eth0': 5}, boot_id='x'), cur))

    @given(KNOWN, MORE, st.floats(0.0, 100.0), st.integers(0, 2 ** 50))
    def test_made_again_under_its_id(
            self, before: WorkloadSample, more: list[int], created_s: float,
            memory: int) -> None:
        again = growing(before, more)._replace(
            workload=dataclasses.replace(ONE, created_s=created_s),
            memory_bytes=memory)
        found = between(before, again)
        self.assertEqual(memory, found.memory_bytes)
        if created_s != ONE.created_s:
            self.assertEqual([None] * len(RATES), list(found[2:-2]))

    @given(st.dictionaries(st.sampled_from('abc'), WEIRD),
           st.dictionaries(st.sampled_from('abc'), WEIRD), INTERVALS)
    def test_links(self, before: Any, after: Any, seconds: float) -> None:
        for way in 'tx', 'rx':
            found = rates(
                host(10.0, **{f'link_{way}_bytes': before}),
                host(10.0 + seconds, **{f'link_{way}_bytes': after}))
            by_link = getattr(found, f'link_{way}_bytes_per_s')
            self.assertEqual(after.keys(), by_link.keys())
            for link, rate in by_link.items():
                growth = grown(before.get(link), after[link])
                self.assertEqual(growth is None, rate is None)
                if growth is not None:
                    self.assertEqual(growth / found.interval_s, rate)

    @given(KNOWN, MORE, INTERVALS, st.integers(1, 9))
    def test_in_pieces_it_is_the_same(
            self, before: WorkloadSample, more: list[int], seconds: float,
            eighths: int) -> None:
        """What was done in an interval is what was done in its parts."""
        after = growing(before, more)
        middle = growing(before, [one * eighths // 9 for one in more])
        whole = between(before, after, seconds)
        first = between(before, middle, seconds / 2)
        second = between(middle, after, seconds / 2)
        for name in ('cpu_cores', 'throttled_share', 'io_bytes_per_s',
                     'io_ops_per_s', 'net_tx_bytes_per_s',
                     'net_rx_bytes_per_s'):
            self.assertTrue(math.isclose(
                2 * getattr(whole, name),
                getattr(first, name) + getattr(second, name),
                rel_tol=1e-6), name)

    @given(WEIRD, WEIRD)
    def test_grown(self, before: Any, after: Any) -> None:
        found = grown(before, after)
        known = all(one is not None and math.isfinite(one)
                    for one in (before, after))
        self.assertEqual(known and after >= before, found is not None)
        if found is not None:
            self.assertEqual(after - before, found)

    @given(st.one_of(st.none(), strategies.amounts(1e9)),
           st.one_of(st.none(), strategies.amounts(1e9)),
           st.one_of(st.none(), st.just(0.0), st.floats(1e-9, 1e9)))
    def test_own_throttling_never_counts_as_delay(
            self, delay_s: float | None, throttled_s: float | None,
            cpu_s: float | None) -> None:
        found = run_delay(delay_s, throttled_s, cpu_s, 1e9)
        if (delay_s is None or throttled_s is None or not cpu_s
                or throttled_s > MOST_THROTTLED * 1e9):
            self.assertIsNone(found)
        else:
            assert found is not None
            self.assertTrue(0 <= found <= delay_s / cpu_s)
            self.assertEqual(found == 0, delay_s <= throttled_s
                             or (delay_s - throttled_s) / cpu_s == 0)
