# SPDX-License-Identifier: Apache-2.0



"""Counters of VMs, where libvirt really puts their QEMUs.

Events of the kernel's own play the hardware's, as in ``test_perf``; a real
PMU that counts guests of KVM is in ``test_guest_pmu``.
"""

from __future__ import annotations

from collections.abc import Iterator
import pathlib
import time
from typing import Any

import fixtures

from scavenger_openstack.algorithms.cpi2 import cpi2
from scavenger_openstack.algorithms.cpi2 import specs
from scavenger_openstack.decision import rates
from scavenger_openstack.drivers.kernel import perf_event
from scavenger_openstack.drivers.perf import grade as perf_grade
from scavenger_openstack.drivers.perf import perf
from scavenger_openstack.tests.functional import domain_guest
from scavenger_openstack.tests.functional import hypervisor
from scavenger_openstack.tests.functional import played_counters
from scavenger_openstack.tests.functional import virtual_host
from scavenger_openstack.tests import tiers
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Rates
from scavenger_openstack.types import WorkloadSample

TICK_S = 0.5


class CountersCase(virtual_host.VirtualHostTestCase):

    def bench(self, *, unified: bool = True, **options: Any
              ) -> hypervisor.Hypervisor:
        """A hypervisor with its domains in the hierarchy that perf counts
        by, or without."""
        if perf_event.find_mount() is None or 'perf_event' in (
                pathlib.Path('/proc/self/mounts').read_text()):
            self.skipTest('needs perf to count by a cgroup v2 tree')
        return self.hypervisor(unified=unified, **options)

    def counting(self) -> perf.Perf:
        found = perf.Perf(perf.Settings(), events=played_counters.PLAYED)
        self.addCleanup(found.close)
        return found

    def look(self, agent: virtual_host.Agent, counters: perf.Perf,
             cpu_model: str | None = None) -> HostSample:
        now_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        return HostSample(
            host='h', boot_id='1', time_s=now_s, wall_time_s=now_s,
            workloads=counters.add(agent.driver.sample(), now_s,
                                   agent.driver.tracked.place),
            cpu_model=cpu_model)

    def host(self, bench: hypervisor.Hypervisor) -> virtual_host.HostAgent:
        agent = virtual_host.HostAgent(bench, pathlib.Path(
            self.useFixture(fixtures.TempDir()).path))
        self.addCleanup(agent.close)
        return agent

    def busy(self, host: hypervisor.Hypervisor, **more: Any
             ) -> domain_guest.DomainGuest:
        guest = virtual_host.background('one', **more)
        host.define_and_start(guest).tell('cpu 1')
        return guest


class TestCounters(CountersCase):

    def pair(self, agent: virtual_host.Agent, counters: perf.Perf
             ) -> tuple[WorkloadSample, WorkloadSample, float | None]:
        """The only domain at two looks, and its cpi between them."""
        self.look(agent, counters)      # to open them
        first = self.look(agent, counters)
        time.sleep(TICK_S)
        last = self.look(agent, counters)
        return (first.workloads[0], last.workloads[0],
                rates.rates(first, last).workloads[0].cpi)

    def test_all_of_qemu_is_counted_and_a_new_start_again(self) -> None:
        host = self.bench()
        guest = self.busy(host)
        agent = self.agent(host)
        self.wait_for_domains(agent, guest.uuid)
        counters = self.counting()
        place = agent.driver.tracked.place(guest.uuid)
        assert place is not None
        pid = host.qemu_pid('one')
        self.assertIn(str(pid), pathlib.Path(
            place.path, 'cgroup.procs').read_text().split())
        self.assertFalse(place.guest_only)      # emulated
        before, after, cpi = self.pair(agent, counters)
        assert cpi is not None
        self.assertTrue(0.95 < cpi < 1.05, str(cpi))
        grown = [getattr(after, name) - getattr(before, name)
                 for name in ('cpu_s', 'counter_enabled_s')]
        self.assertTrue(0.5 < grown[1] / grown[0] < 2, str(grown))
        host.virsh('destroy one; start one')
        self.wait_for('another QEMU', lambda: [
            one.workload.created_s for one in agent.driver.sample()
        ] not in ([], [before.workload.created_s]))
        host.console('one').tell('cpu 1')
        started, later, cpi = self.pair(agent, counters)
        assert cpi is not None and started.cycles is not None
        self.assertTrue(0.95 < cpi < 1.05, str(cpi))
        self.assertIsNone(rates.rates(*(HostSample(
            host='h', boot_id='1', time_s=time_s, wall_time_s=time_s,
            workloads=(one,)) for time_s, one in (
                (1.0, after), (2.0, started)))).workloads[0].cpi)
        self.assertEqual(1, counters.measured)
        held = counters._measured[guest.uuid].counters
        place = agent.driver.tracked.place(guest.uuid)
        assert held is not None and place is not None
        self.assertEqual(place.path, held.path)
        self.assertNotIn('hardware counters:', self.log.output)

    def test_a_host_counts_vms_and_cgroups(self) -> None:
        host = self.bench()
        guest = self.busy(host)
        cgroup = host.tree.make('/batch/a')
        pathlib.Path(f'{perf_event.find_mount()}{cgroup}').mkdir(parents=True)
        driver = self.host(host).driver
        driver._perf.close()
        driver._perf = self.counting()
        self.wait_for('both', lambda: all(
            found := [one.cycles for one in driver.sample().workloads
                      if one.workload.id == guest.uuid]) and found)
        found = {one.workload.id: one for one in driver.sample().workloads}
        self.assertEqual({cgroup, guest.uuid}, found.keys())
        self.assertEqual(0, found[cgroup].cycles)
        grade = driver.facts().grade or {}
        self.assertEqual(2, grade['measured_workloads'])

    def test_in_no_cgroup_that_perf_counts_by(self) -> None:
        """It is said once, not of each, and the rest goes on."""
        host = self.bench(unified=False)
        guests = [virtual_host.tiny(name) for name in ('one', 'two')]
        host.start_all(guests)
        agent = self.agent(host)
        self.wait_for_domains(agent, *(one.uuid for one in guests))
        counters = self.counting()
        for _ in range(3):
            for one in self.look(agent, counters).workloads:
                self.assertIsNone(one.cycles)
                self.assertIsNotNone(one.cpu_s)
        self.assertEqual(1, self.said('libvirt put it into no cgroup'))
        self.assertEqual((0, 'B'), (counters.measured,
                                    counters.grade.letter))

    def test_no_pmu(self) -> None:
        """Of a whole host; it is said once, not of each VM."""
        if perf_grade.grade('/', cpu=0, max_counters=4).events:
            self.skipTest('this machine has a PMU')
        host = self.bench()
        host.start_all([virtual_host.tiny(name) for name in ('one', 'two')])
        driver = self.host(host).driver
        self.wait_for('both', lambda: len(driver.sample().workloads) == 2)
        for _ in range(3):
            self.assertEqual({None}, {
                one.cycles for one in driver.sample().workloads})
        grade = driver.facts().grade or {}
        self.assertEqual(('C', 2), (grade['letter'], grade['workloads']))
        self.assertEqual(1, self.said('grade C'))
        self.assertNotIn('hardware counters:', self.log.output)


@tiers.only_in_all('unit tests compare models of CPUs')
class TestSpecs(CountersCase):
    """The guest sees another CPU than the host has; that does not matter."""

    def test_by_the_cpu_of_the_host_that_it_runs_on(self) -> None:
        source, target = (self.bench(own_network=True) for _ in range(2))
        nova = domain_guest.Nova(
            extra_specs={'scavenger:application': 'web'})
        guest = self.busy(source, nova=nova)
        application = (nova.project_uuid, f'{nova.project_uuid}/web')
        # Cycles are instructions here: normal on one, far off on the other.
        given = {(application, model): specs.Spec(
            mean, 0.01, 1e4, 10, 'directive')
            for model, mean in (('one', 2.0), ('two', 0.1))}
        found = {}
        for host, model in ((source, 'one'), (target, 'two')):
            agent, counters = self.agent(host), self.counting()
            self.wait_for_domains(agent, guest.uuid)
            controller = cpi2.Controller(cpi2.Params(
                sample_s=TICK_S, period_s=TICK_S, min_own_samples=2),
                interval_s=TICK_S, specs_of=given)
            # A tick in which it had little of a CPU does not count.
            for one in self.ticks(agent, counters, model):
                decision = controller.step(one.time_s, one)
                histories = controller.state()['histories']
                if (histories and histories[0][2][0] >= 3
                        and bool(decision.incidents) == (model == 'two')):
                    break
            [[name, _, (_, mean, *_)]] = histories
            self.assertEqual(guest.uuid, name)
            found[model] = (controller.spec(guest.uuid, application), mean,
                            decision.incidents)
            if host is source:
                source.migrate('one', target)
                self.wait_for_domains(agent)
                self.look(agent, counters)
                self.assertEqual(0, counters.measured)
        self.assertEqual((given[application, 'one'], ()),
                         found['one'][::2])
        self.assertTrue(0.95 < found['one'][1] < 1.05, str(found))
        spec, _, [incident] = found['two']
        self.assertEqual(given[application, 'two'], spec)
        self.assertEqual((guest.uuid, 'cpi'),
                         (incident.victim, incident.signal))

    def ticks(self, agent: virtual_host.Agent, counters: perf.Perf,
              cpu_model: str) -> Iterator[Rates]:
        """Of the busy VM, as long as is waited for anything."""
        last = self.look(agent, counters, cpu_model)
        deadline_s = time.monotonic() + 60
        while time.monotonic() < deadline_s:
            time.sleep(TICK_S)
            before, last = last, self.look(agent, counters, cpu_model)
            yield rates.rates(before, last)
        self.fail('the controller counted too few ticks')
