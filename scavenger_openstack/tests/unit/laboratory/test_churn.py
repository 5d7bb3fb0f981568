# SPDX-License-Identifier: Apache-2.0

"""What an agent remembers of workloads and disks that are gone: over months
it would add up."""

from __future__ import annotations

import collections
import dataclasses

import testtools

from scavenger_openstack.laboratory import bench
from scavenger_openstack.simulator.driver import Simulator
from scavenger_openstack.simulator.machine import Machine
from scavenger_openstack.simulator.machine import Tenant
from scavenger_openstack.tests import memories
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Priority

GENERATIONS, EACH_S = 100, 14.0
"""Of workloads with other names, on another disk."""
INTERVAL_S = 2.0

LEAVE = ('Disks', 'SimulatedLeases', 'SimulatedIsolation',
         'BestWaits._hours')
"""Not the agent, or with a bound of its own."""


def tenants() -> list[Tenant]:
    every = [
        Tenant(id='web', requests_per_s=300, cpu_s=0.004, io_ops=0.2, vcpus=4,
               file_ops=0.1, file_bytes=2e9, tx_bytes=2000),
        Tenant(id='hog', priority=Priority.BACKGROUND, threads=3, vcpus=4,
               accesses=0.03, footprint_bytes=1e8)]
    for number in range(GENERATIONS):
        begin_s, odd = number * EACH_S, number % 2
        every += [
            Tenant(id=f'shop{number}', application=f'shop{number}',
                   arrives_s=begin_s, leaves_s=begin_s + 2 * EACH_S,
                   requests_per_s=100, cpu_s=0.004, io_ops=0.5,
                   tx_bytes=1000),
            Tenant(id=f'job{number}', priority=Priority.BACKGROUND,
                   arrives_s=begin_s, leaves_s=begin_s + 2 * EACH_S,
                   threads=number % 3, queue_depth=4 * odd,
                   tx_bytes_per_s=5e7 * odd, file_bytes=3e9 * odd,
                   accesses=0.02, footprint_bytes=8e7)]
    return every


class Disks(Simulator):
    """A host of which one of two disks is another one in each generation."""

    def sample(self) -> HostSample:
        sample = super().sample()
        disks = '8:0', f'9:{int(sample.time_s // EACH_S)}'
        return dataclasses.replace(sample, workloads=tuple(
            measured._replace(workload=dataclasses.replace(
                measured.workload, disks=disks))
            for measured in sample.workloads))


class ChurnTest(testtools.TestCase):

    def test_nothing_adds_up(self) -> None:
        for name in 'ours', 'cpi2', 'perfcloud':
            host = Disks(Machine(memory_bytes=16e9), tenants(), seed=1000,
                         floors=bench.FLOORS, step_s=0.5)
            loop, each = bench.agent(host, bench.POLICIES[name], INTERVAL_S)
            assert loop is not None
            half_s = GENERATIONS * EACH_S / 2
            most: tuple[collections.Counter[str], ...] = (
                collections.Counter(), collections.Counter())
            while host.now < 2 * half_s - EACH_S:
                host.advance(INTERVAL_S, each)
                loop.tick(host.now)
                # CPI2 adds up 10 s of each minute.
                if host.now % half_s >= half_s - 6 * EACH_S:
                    half = int(host.now // half_s)
                    most[half].update(
                        memories.sizes(loop, LEAVE) - most[half])
            before, after = most
            self.assertEqual({}, {
                place: (before[place], count)
                for place, count in after.items()
                if count > 1.1 * before[place] + 0.4 * GENERATIONS}, name)
