# SPDX-License-Identifier: Apache-2.0

"""The cluster on which schedulers with and without profiles are compared."""

from __future__ import annotations

import dataclasses
import importlib
import pathlib
import random
from typing import Any

import fixtures
import testtools

from scavenger_openstack.tests.unit.benchmarks import scripts

TOP = pathlib.Path(__file__).parents[4]
FOLDER = TOP / 'benchmarks/simulated'


class Cluster(testtools.TestCase):

    cluster: Any
    scheduling: Any

    def setUp(self) -> None:
        super().setUp()
        scripts.use(self, FOLDER)
        self.cluster = importlib.import_module('ibench_cluster')
        self.scheduling = importlib.import_module('ibench_scheduling')
        self.machine = self.cluster.REFERENCE
        self.plain = self.cluster.App(name='plain', vcpus=2.0)
        self.stream = dataclasses.replace(
            self.plain, name='stream', accesses=0.03, miss_least=0.9,
            miss_most=0.9, footprint_bytes=2.0 ** 30, overlap=0.5)
        self.disk = dataclasses.replace(self.plain, name='disk', io_ops=200.0)

    def performance(self, *apps: Any) -> list[float]:
        return [self.cluster.performance(
            app, self.machine, rate, *self.cluster.rates(self.machine, [app]))
            for app, rate in zip(apps, self.cluster.rates(
                self.machine, apps), strict=True)]

    def test_what_shares_a_resource_is_slower(self) -> None:
        several = [dataclasses.replace(self.stream) for _ in range(4)]
        alone, beside = self.performance(self.stream), self.performance(
            *several)
        self.assertEqual([1.0], alone)
        self.assertLess(max(beside), 0.9)
        self.assertLess(max(self.performance(
            self.disk, dataclasses.replace(self.disk))), 0.95)

    def test_what_shares_nothing_is_not(self) -> None:
        for each in self.performance(self.stream, self.disk, self.plain):
            self.assertAlmostEqual(1.0, each, 2)

    def test_profiles_are_those_of_what_is_used(self) -> None:
        found = self.cluster.measured([self.plain, self.stream, self.disk], 1)
        for soi, sensitive in (('memory_bandwidth', 'stream'),
                               ('storage_bandwidth', 'disk')):
            for name, profile in found.items():
                tolerated = profile.tolerated[soi].value
                caused = profile.caused[soi].value
                if name == sensitive:
                    self.assertLess(tolerated, 0.9, (soi, name))
                    self.assertGreater(caused, 0.05, (soi, name))
                else:
                    self.assertEqual(1.0, tolerated, f'{soi} of {name}')
                    self.assertLess(caused, 0.05, (soi, name))

    def test_a_service_answers_later(self) -> None:
        """Its own queue adds to what the machine does to it."""
        service = self.cluster.primary('memcached', self.machine)
        (alone,) = self.cluster.rates(self.machine, [service])
        lost = self.cluster.performance(service, self.machine, 0.8 * alone,
                                        alone)
        self.assertLess(lost, 0.8)
        self.assertEqual(1.0, self.cluster.performance(
            service, self.machine, alone, alone))

    def test_each_scheduler_places_all(self) -> None:
        self.useFixture(fixtures.MonkeyPatch(
            'ibench_scheduling.APPLICATIONS', 24))
        self.useFixture(fixtures.MonkeyPatch(
            'ibench_scheduling.MACHINES', 5))
        seed, found = self.scheduling.run(3, 2)
        again = self.scheduling.run(3, 2)
        self.assertEqual((3, found), again)
        self.assertEqual({'cloud', 'hadoop', 'memcached'}, set(found))
        for scenario, results in found.items():
            for name, result in results.items():
                self.assertEqual(24, len(result.performance), name)
                self.assertTrue(0 < result.performance[0]
                                and result.performance[-1] <= 1 + 1e-9, name)
                self.assertTrue(0 < result.machines
                                <= result.machines_most <= 5, name)
                self.assertTrue(0 < result.utilisation <= 1)
                self.assertEqual(scenario == 'cloud', result.primary is None)
        best = found['cloud']['the model itself'].mean
        self.assertGreater(best, found['cloud']['random'].mean)

    def test_harm_keeps_two_streams_apart(self) -> None:
        """By profiles; the least loaded machine is where the other is."""
        known = self.cluster.measured([self.stream, self.plain], 1)
        nodes = [self.scheduling.Node(self.machine) for _ in range(2)]
        for node, app, count in ((nodes[0], self.stream, 1),
                                 (nodes[1], self.plain, 3)):
            for _ in range(count):
                node.running.append(self.scheduling.Running(
                    app, 0.0, 100.0, self.scheduling.alone_rate(
                        app, self.machine)))
            node.settle()
        view = self.scheduling.View(known, random.Random(1))
        choose = self.scheduling.SCHEDULERS
        wide = dataclasses.replace(self.stream, vcpus=8.0)
        known[wide.name] = self.cluster.measured([wide], 1)[wide.name]
        self.assertIs(nodes[0], choose['least-loaded'](wide, nodes, view))
        self.assertIs(nodes[1], choose['profiles'](wide, nodes, view))
