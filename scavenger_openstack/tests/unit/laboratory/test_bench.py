# SPDX-License-Identifier: Apache-2.0

"""One host under one policy, with the agent's own loop."""

from __future__ import annotations

import pathlib
from typing import Any

import testtools

from scavenger_openstack.algorithms.perfiso import perfiso
from scavenger_openstack.algorithms.scavenger import scavenger
from scavenger_openstack import conf as conf_package
from scavenger_openstack.conf import agent as conf_agent
from scavenger_openstack import laboratory
from scavenger_openstack.laboratory import bench
from scavenger_openstack.laboratory import presets
from scavenger_openstack.laboratory import score
from scavenger_openstack.simulator.driver import GROUP
from scavenger_openstack.simulator.driver import Simulator
from scavenger_openstack.simulator import scenario
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority

SCENARIOS = pathlib.Path(laboratory.__file__).parent / 'scenarios'


def drawn(name: str, seed: int = 1, **changes: Any) -> scenario.Drawn:
    return scenario.read(SCENARIOS / f'{name}.yaml').draw(seed)._replace(
        **changes)


def means(outcome: bench.Outcome, one: scenario.Drawn) -> list[float]:
    found = []
    for tenant in one.tenants:
        if tenant.role == 'victim':
            mean = outcome.tenants[tenant.id].mean_s
            assert mean is not None
            found.append(mean)
    return found


class Policies(testtools.TestCase):

    def test_page_cache_of_the_foreground(self) -> None:
        """Background gets what is idle, and the foreground notices little."""
        host = drawn('memory-antagonist', seed=3, duration_s=400.0)
        alone, unmanaged = (bench.run(host, bench.POLICIES[name])
                            for name in ('alone', 'none'))
        with_rule, without = (score.score(
            host, bench.run(host, bench.Policy(
                preset=presets.DEFAULTS, only=('scavenger',), params={
                    'scavenger': scavenger.Params(use_page_cache=is_used)})),
            alone=alone, unmanaged=unmanaged) for is_used in (True, False))
        assert with_rule.p99_ratio and without.p99_ratio
        assert with_rule.work_ratio and without.work_ratio
        self.assertLess(with_rule.p99_ratio, 1.1)
        self.assertGreater(without.p99_ratio, 1.2)
        self.assertGreater(with_rule.work_ratio, 0.85 * without.work_ratio)

    def test_alone_has_no_background(self) -> None:
        one = drawn('disk-antagonist', duration_s=200.0)
        outcome = bench.run(one, bench.POLICIES['alone'])
        self.assertEqual({tenant.id for tenant in one.tenants
                          if tenant.priority is Priority.FOREGROUND},
                         set(outcome.tenants))
        self.assertEqual(0, outcome.writes)

    def test_the_unmanaged_background_disturbs(self) -> None:
        one = drawn('group')
        alone, none = (bench.run(one, bench.POLICIES[name])
                       for name in ('alone', 'none'))
        for before, after in zip(means(alone, one), means(none, one),
                                 strict=True):
            self.assertGreater(after, 1.2 * before)

    def test_each_of_a_group_alone_does_not(self) -> None:
        one = drawn('group')
        others = [tenant for tenant in one.tenants
                  if tenant.role != 'antagonist']
        group = [tenant for tenant in one.tenants
                 if tenant.role == 'antagonist']
        alone = means(bench.run(one, bench.POLICIES['alone']), one)
        for member in group[:2]:
            single = one._replace(tenants=(*others, member))
            found = means(bench.run(single, bench.POLICIES['none']), single)
            for before, after in zip(alone, found, strict=True):
                self.assertLess(after, 1.05 * before)

    def test_innocents_are(self) -> None:
        for name in ('diurnal-innocent', 'self-inflicted', 'own-quota'):
            one = drawn(name, duration_s=400.0)
            alone, none = (bench.run(one, bench.POLICIES[policy])
                           for policy in ('alone', 'none'))
            for before, after in zip(means(alone, one), means(none, one),
                                     strict=True):
                self.assertLess(after, 1.05 * before, name)

    def test_a_split_holds(self) -> None:
        one = drawn('network-antagonist')
        none, split = (bench.run(one, bench.Policy(allocation=allocation))
                       for allocation in (None, bench.Allocation(link=0.1)))
        self.assertLess(split.tenants['backup'].tx_bytes_per_s,
                        0.1 * one.machine.link_bytes_per_s)
        for before, after in zip(means(none, one), means(split, one),
                                 strict=True):
            self.assertLess(after, before)

    def test_a_split_is_of_whole_cores(self) -> None:
        one = drawn('bursts-many')      # CPUs 8 to 15 are siblings of 0 to 7
        simulator = Simulator(one.machine, one.tenants, seed=1)
        bench.allocate(simulator, bench.Allocation(cpus=0.5), one)
        self.assertEqual('4-7,12-15', simulator.read(GROUP, Knob.CPU_SET))

    def test_the_loop_writes(self) -> None:
        outcome = bench.run(drawn('cpu-antagonist', duration_s=150.0),
                            bench.POLICIES['scavenger'])
        self.assertGreater(outcome.writes, 0)
        self.assertEqual(0, outcome.kills)

    def test_ours_is_a_fresh_install(self) -> None:
        """A controller that becomes a default one takes part by itself."""
        conf = conf_package.of_preset()
        controllers, fast_loop = bench.POLICIES['ours'].parts()
        self.assertEqual(conf.agent.controllers, list(controllers))
        for params in controllers.values():
            self.assertEqual(type(params)(), params)
        self.assertEqual(perfiso.Params(), fast_loop)

    def test_each_controller_has_a_row(self) -> None:
        for name in conf_agent.CONTROLLERS:
            controllers, fast_loop = bench.POLICIES[name].parts()
            self.assertEqual([name], list(controllers))
            self.assertIsNone(fast_loop)

    def test_the_fast_loop_takes_cpus(self) -> None:
        one = drawn('bursts', duration_s=3.0, warmup_s=1.0)
        none, isolated = (bench.run(one, bench.POLICIES[name])
                          for name in ('none', 'perfiso'))
        self.assertLess(isolated.tenants['hog'].cpu_work,
                        none.tenants['hog'].cpu_work)
