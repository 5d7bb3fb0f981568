# SPDX-License-Identifier: Apache-2.0

"""The two models of a service's queue are one queue."""

from __future__ import annotations

import random
import statistics

import testtools

from scavenger_openstack.simulator.machine import Machine
from scavenger_openstack.simulator.machine import Tenant
from scavenger_openstack.simulator.plant import Plant
from scavenger_openstack.simulator.requests import Fluid
from scavenger_openstack.simulator.requests import Followed
from scavenger_openstack.simulator.requests import PATIENCE_S


def mean_s(step_s: float, seconds: float, *, requests_per_s: float,
           cpus: int, arrivals: float = 1.0) -> float:
    """Mean latency of one service alone on a machine."""
    tenant = Tenant(id='one', vcpus=cpus, requests_per_s=requests_per_s,
                    cpu_s=0.02, arrivals=arrivals, load_noise=0.0,
                    cpi_noise=0.0, accesses=0.0)
    found = []
    for seed in range(2):
        plant = Plant(Machine(cpus=cpus), [tenant], seed=seed,
                      step_s=step_s)
        for _ in range(int(seconds / step_s)):
            plant.step()
        result = plant.guests[0].truth.result()
        assert result.mean_s is not None
        found.append(result.mean_s)
    return statistics.fmean(found)


class SameQueue(testtools.TestCase):
    """Steps of a second and of a millisecond; cpu_s is 20 ms."""

    def same(self, within: float, **kwargs: float) -> None:
        fluid = mean_s(1.0, 1000, **kwargs)  # type: ignore[arg-type]
        followed = mean_s(0.001, 20, **kwargs)  # type: ignore[arg-type]
        self.assertLess(abs(fluid / followed - 1), within,
                        (fluid, followed))

    def test_some_wait(self) -> None:
        self.same(0.15, requests_per_s=100, cpus=4)

    def test_bursts(self) -> None:
        self.same(0.35, requests_per_s=60, cpus=4, arrivals=5)


class Arrivals(testtools.TestCase):

    def counts(self, queue: Fluid | Followed) -> list[float]:
        return [queue.arrive(0.0, 50.0, 0.001) for _ in range(4000)]

    def test_mean_and_burstiness(self) -> None:
        for kind in (Fluid, Followed):
            for arrivals in (1.0, 7.0):
                found = self.counts(kind(arrivals, random.Random(1)))
                mean = statistics.fmean(found)
                self.assertLess(abs(mean / 50 - 1), 0.03, (kind, arrivals))
                ratio = statistics.pvariance(found) / mean
                self.assertLess(abs(ratio / arrivals - 1), 0.1,
                                (kind, arrivals, ratio))

    def test_mean_of_few(self) -> None:
        """Where most steps have nothing, the others do not have too many."""
        for kind in (Fluid, Followed):
            for mean, arrivals in ((0.2, 1.0), (20.0, 16.0)):
                queue = kind(arrivals, random.Random(1))
                found = [queue.arrive(0.0, mean, 0.001)
                         for _ in range(20000)]
                self.assertLess(abs(statistics.fmean(found) / mean - 1),
                                0.03, (kind, mean))


class Service(testtools.TestCase):

    def test_who_waits_too_long_is_gone(self) -> None:
        queue = Fluid(1.0, random.Random(1))
        queue.backlog_s = 50.0
        # One core has done 5 s of it at half speed; the last in line who
        # stays waits for 10 s.
        self.assertEqual((1.0, PATIENCE_S),
                         queue.serve(0.0, 1.0, 4, 10.0, 0.5))
        self.assertEqual(PATIENCE_S * 0.5, queue.backlog_s)

    def test_what_one_leaves_of_a_step_the_next_gets(self) -> None:
        queue = Followed(1.0, random.Random(1))
        queue.backlog.extend([[0.0, 0.0004], [0.0, 0.0005], [0.0, 1.0]])
        queue.serve(0.0, 1.0, 1, 0.001, 1.0)
        self.assertEqual(2, len(queue.done))
        self.assertAlmostEqual(0.9999, queue.backlog[0][1])

    def test_no_faster_than_its_cores(self) -> None:
        queue = Followed(1.0, random.Random(1))
        queue.backlog.extend([[0.0, 0.01] for _ in range(8)])
        queue.serve(0.0, 2.0, 4, 0.001, 1.0)
        self.assertAlmostEqual(0.08 - 0.002, queue.backlog_s)
