# SPDX-License-Identifier: Apache-2.0


"""Cycles per instruction are what the guest was made with."""

from __future__ import annotations

from oslo_config import cfg

from scavenger_openstack import conf as conf_
from scavenger_openstack.decision import rates
from scavenger_openstack.drivers.host import Host
from scavenger_openstack.tests.functional.guest_pmu import counted
from scavenger_openstack.tests.functional.guest_pmu.counted import grown
from scavenger_openstack.tests.functional.guest_v2 import tree


class Cpi(counted.PmuTestCase):

    def test_cycles_per_instruction(self) -> None:
        self.tree.run('/batch/a', tree.spin)
        counters = self.counting()
        self.look(counters)     # to open them takes a while
        first, last = self.looks(counters)
        before, after = self.sample_of(first), self.sample_of(last)
        self.assertNear(counted.cpi(),
                        rates.rates(first, last).workloads[0].cpi)
        cycles = grown(before, after, 'cycles')
        self.assertNear(counted.cpi(),
                        cycles / grown(before, after, 'instructions'))
        # At 1 GHz there are as many cycles as ns that the workload ran.
        enabled_s = grown(before, after, 'counter_enabled_s')
        self.assertNear(1e9 * enabled_s, cycles)
        self.assertNear(enabled_s,
                        grown(before, after, 'counter_running_s'))
        # Both are read one after the other: on a busy machine the guest's
        # clock may run 0.2 s between them.
        first, last = self.looks(counters, 3)
        before, after = self.sample_of(first), self.sample_of(last)
        self.assertNear(grown(before, after, 'cpu_s'),
                        grown(before, after, 'counter_enabled_s'), 0.2)

    def test_the_host_driver_shows_them(self) -> None:
        """With the events that this PMU has, the grade says what not."""
        conf = cfg.ConfigOpts()
        conf_.register(conf)
        conf([])
        conf.set_override('background_parents', [self.parent], 'cgroups')
        host = Host(conf)
        self.addCleanup(host.close)
        self.tree.run('/batch/a', tree.spin)
        self.wait_for('time passes', lambda: host.sample().time_s, 1)
        first = host.sample()
        self.wait_for('it has run', lambda: (
            self.sample_of(host.sample()).cycles or 0) > 1e8)
        before, after = self.sample_of(first), self.sample_of(host.sample())
        self.assertNear(counted.cpi(), grown(before, after, 'cycles')
                        / grown(before, after, 'instructions'))
        self.assertEqual((None, None), (after.ref_cycles, after.llc_misses))
        grade = host.facts().grade or {}
        self.assertEqual(('B', 1, 1), (
            grade['letter'], grade['measured_workloads'],
            grade['workloads']))
        text = str(grade['text'])
        for part in ('cpi of core cycles', 'no ref_cycles', 'no llc_misses'):
            self.assertIn(part, text)
        self.assertIn(f'grade {text}', self.logs.output)
