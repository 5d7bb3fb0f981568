# SPDX-License-Identifier: Apache-2.0

"""From victims and processes to what each workload waited, and for which."""

from __future__ import annotations

from collections.abc import Mapping

import testtools

from scavenger_openstack.drivers.direct import cpu
from scavenger_openstack.drivers.kernel.cpu_waits import IDLE
from scavenger_openstack.drivers.kernel.cpu_waits import Runner
from scavenger_openstack.drivers.kernel.cpu_waits import Waits
from scavenger_openstack.types import DirectEvidence
from scavenger_openstack.types import Resource
from scavenger_openstack.types import THE_HOST

HOG, OTHER, B, V = (Runner(pid, 7) for pid in (10, 11, 12, 13))
OWNERS: dict[tuple[int, int], str] = {
    HOG: 'hog', OTHER: 'hog', B: 'b', V: 'v',
    **{Runner(pid, 1): THE_HOST for pid in range(20, 28)}}


class TestEvidence(testtools.TestCase):

    def answers(self, waits: Waits, *asked: str,
                names: Mapping[int, str] | None = None
                ) -> list[DirectEvidence]:
        answers = cpu.evidence(asked, waits, 2.0, owners=OWNERS,
                                     names=names or {})
        self.assertEqual(list(asked), [each.workload for each in answers])
        for each in answers:
            self.assertEqual((Resource.CPU, 2.0, False),
                             (each.resource, each.window_s, each.shared))
            self.assertLessEqual(sum(each.holders.values()),
                                 each.waited_s + 1e-9)
            self.assertLessEqual(sum(each.threads.values()),
                                 each.holders.get(THE_HOST, 0.0) + 1e-9)
        return list(answers)

    def test_which_workloads_held_the_cpus(self) -> None:
        first, second, third = self.answers(Waits({
            ('v', HOG): 4.0, ('v', OTHER): 1.0, ('v', B): 2.0,
            ('v', V): 0.5, ('w', HOG): 9.0, ('x', HOG): 9.0}, {}, {}),
            'v', 'w', 'y')
        self.assertEqual((7.5, {'hog': 5.0, 'b': 2.0, 'v': 0.5}),
                         (first.waited_s, first.holders))
        self.assertEqual((9.0, {'hog': 9.0}),
                         (second.waited_s, second.holders))
        self.assertEqual((0.0, {}), (third.waited_s, third.holders))

    def test_what_is_not_known(self) -> None:
        """Waking up an idle CPU, processes that cannot be told, what waits
        still, and what the kernel does not know."""
        answer, = self.answers(Waits(
            {('v', IDLE): 1.0, ('v', HOG): 2.0, ('v', Runner(99, 1)): 4.0},
            {'v': 0.5, 'w': 8.0}, {1: ('v', 0.25), 3: ('x', 9.0)}), 'v')
        self.assertEqual((7.75, {'hog': 2.0}, 1.0), (
            answer.waited_s, answer.holders, answer.idle_s))

    def test_processes_of_the_host_by_name(self) -> None:
        """The largest few, and those of one name together."""
        answer, = self.answers(
            Waits({('v', Runner(pid, 1)): float(pid) for pid in range(20, 28)}
                  | {('v', HOG): 100.0}, {}, {}), 'v',
            names={pid: f't{pid}' for pid in range(20, 28)} | {21: 't20'})
        self.assertEqual({'t20': 41.0, 't27': 27.0, 't26': 26.0, 't25': 25.0,
                          't24': 24.0}, answer.threads)
        self.assertEqual({THE_HOST: 188.0, 'hog': 100.0}, answer.holders)
