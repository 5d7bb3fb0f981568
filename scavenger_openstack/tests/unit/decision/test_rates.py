# SPDX-License-Identifier: Apache-2.0


"""What happens per second, and what is unknown."""

from __future__ import annotations

import dataclasses
from typing import Any

import testtools

from scavenger_openstack.decision.rates import rates
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates
from scavenger_openstack.types import WorkloadSample

A = Workload('/a', Priority.FOREGROUND, created_s=5.0)


def host(time_s: float, *samples: WorkloadSample, **rest: Any) -> HostSample:
    return HostSample('h', rest.pop('boot_id', 'b'), time_s, time_s, samples,
                      **rest)


def between(before: dict[str, Any], after: dict[str, Any],
            seconds: float = 2.0) -> WorkloadRates:
    found = rates(host(10.0, WorkloadSample(A, **before)),
                  host(10.0 + seconds, WorkloadSample(A, **after)))
    return found.workloads[0]


class RatesTest(testtools.TestCase):

    def test_every_rate(self) -> None:
        one = between(
            {'cpu_s': 100.0, 'run_delay_s': 7.0, 'throttled_s': 4.92,
             'ref_cycles': 1000, 'instructions': 4000, 'llc_misses': 10,
             'counter_enabled_s': 1.0, 'counter_running_s': 1.0,
             'io_wait_s': 1.0, 'io_ops': 10, 'io_bytes': 1000,
             'net_tx_bytes': 50, 'memory_bytes': 1},
            {'cpu_s': 103.0, 'run_delay_s': 12.0, 'throttled_s': 5.0,
             'ref_cycles': 7000, 'instructions': 8000, 'llc_misses': 30,
             'counter_enabled_s': 3.0, 'counter_running_s': 2.0,
             'io_wait_s': 1.5, 'io_ops': 30, 'io_bytes': 5000,
             'net_tx_bytes': 250, 'memory_bytes': 77})
        self.assertEqual(2.0, one.interval_s)
        self.assertEqual(1.5, one.cpu_cores)            # 3 s in 2 s
        self.assertEqual(1.5, one.cpi)                  # 6000 / 4000
        self.assertEqual(1.64, round(one.run_delay or 0, 6))  # (5 - 0.08) / 3
        self.assertEqual(0.04, round(one.throttled_share or 0, 6))  # 0.08 / 2
        self.assertEqual(20.0, one.llc_misses_per_s)    # 20 x 2/1 in 2 s
        self.assertEqual(0.025, one.io_wait_s_per_op)   # 0.5 / 20
        self.assertEqual(2000.0, one.io_bytes_per_s)
        self.assertEqual(10.0, one.io_ops_per_s)
        self.assertEqual(100.0, one.net_tx_bytes_per_s)
        self.assertEqual(77, one.memory_bytes)
        self.assertIs(A, one.workload)

    def test_what_a_memory_limit_does_is_passed_on(self) -> None:
        for ends in True, False:
            self.assertEqual(ends, rates(None, host(
                1.0, memory_limit_ends=ends)).memory_limit_ends)

    def test_idle_is_zero(self) -> None:
        same = {'cpu_s': 1.0, 'run_delay_s': 1.0, 'throttled_s': 0.0,
                'io_wait_s': 1.0, 'io_ops': 3, 'net_tx_bytes': 4,
                'ref_cycles': 3, 'instructions': 3}
        one = between(same, same)
        self.assertEqual(
            (0, 0, 0, 0), (one.cpu_cores, one.io_ops_per_s,
                           one.net_tx_bytes_per_s, one.throttled_share))
        # Ratios of nothing are not 0.
        self.assertEqual((None, None, None),
                         (one.run_delay, one.io_wait_s_per_op, one.cpi))

    def test_waited_without_having_run(self) -> None:
        one = between({'cpu_s': 1.0, 'run_delay_s': 1.0, 'throttled_s': 0.0},
                      {'cpu_s': 1.0, 'run_delay_s': 9.0, 'throttled_s': 0.0})
        self.assertIsNone(one.run_delay)

    def test_much_own_throttling_hides_what_others_do(self) -> None:
        # With eight threads, 24 s of delay for 4 s of throttled time.
        one = between({'cpu_s': 1.0, 'run_delay_s': 1.0, 'throttled_s': 0.0},
                      {'cpu_s': 2.0, 'run_delay_s': 3.0,
                       'throttled_s': 0.11})
        self.assertIsNone(one.run_delay)
        one = between({'cpu_s': 1.0, 'run_delay_s': 1.0, 'throttled_s': 0.0},
                      {'cpu_s': 2.0, 'run_delay_s': 3.0, 'throttled_s': 5.0})
        self.assertIsNone(one.run_delay)

    def test_without_throttled_time_there_is_no_delay(self) -> None:
        one = between({'cpu_s': 1.0, 'run_delay_s': 1.0},
                      {'cpu_s': 2.0, 'run_delay_s': 3.0})
        self.assertIsNone(one.run_delay)

    def test_counters_that_did_not_run(self) -> None:
        before = {'ref_cycles': 1, 'instructions': 1, 'llc_misses': 1,
                  'counter_enabled_s': 1.0, 'counter_running_s': 1.0}
        after = {'ref_cycles': 5, 'instructions': 3, 'llc_misses': 2,
                 'counter_enabled_s': 2.0}
        for running, cpi in ((1.0, None), (1.01, None), (1.5, 2.0)):
            one = between(before, {**after, 'counter_running_s': running})
            self.assertEqual(cpi, one.cpi)
            self.assertEqual(cpi is None, one.llc_misses_per_s is None)

    def test_a_pmu_without_reference_cycles(self) -> None:
        one = between({'cycles': 100, 'instructions': 10},
                      {'cycles': 400, 'instructions': 110})
        self.assertEqual(3.0, one.cpi)
        # Both are there: the reference counts.
        one = between(
            {'cycles': 100, 'ref_cycles': 100, 'instructions': 10},
            {'cycles': 400, 'ref_cycles': 300, 'instructions': 110})
        self.assertEqual(2.0, one.cpi)

    def test_other_description_of_the_same_workload(self) -> None:
        other = dataclasses.replace(A, vcpus=2.0)
        found = rates(host(10.0, WorkloadSample(A, cpu_s=1.0)),
                      host(12.0, WorkloadSample(other, cpu_s=2.0)))
        self.assertEqual(0.5, found.workloads[0].cpu_cores)
        self.assertIs(other, found.workloads[0].workload)
