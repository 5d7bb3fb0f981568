# SPDX-License-Identifier: Apache-2.0

"""From pairs of threads to what each workload waited, and for which."""

from __future__ import annotations

import testtools

from scavenger_openstack.drivers.direct import cpu_pairs
from scavenger_openstack.drivers.kernel.cpu_waits import Waits
from scavenger_openstack.types import DirectEvidence
from scavenger_openstack.types import Resource
from scavenger_openstack.types import THE_HOST


class TestEvidence(testtools.TestCase):

    def one(self, waits: Waits, *asked: str, victims: dict[int, str],
            owners: dict[int, str], names: dict[int, str] | None = None
            ) -> DirectEvidence:
        answers = cpu_pairs.evidence(asked, waits, 2.0, victims=victims,
                                     owners=owners, names=names or {})
        self.assertEqual(list(asked), [each.workload for each in answers])
        for each in answers:
            self.assertEqual((Resource.CPU, 2.0, False),
                             (each.resource, each.window_s, each.shared))
            self.assertLessEqual(sum(each.holders.values()),
                                 each.waited_s + 1e-9)
            self.assertLessEqual(sum(each.threads.values()),
                                 each.holders.get(THE_HOST, 0.0) + 1e-9)
        return answers[0]

    def test_which_workloads_held_the_cpus(self) -> None:
        waits = Waits({(1, 20): 4.0, (2, 20): 1.0, (2, 21): 2.0, (1, 2): 0.5,
                       (30, 20): 9.0, (30, 1): 9.0}, {}, 0.0)
        answer = self.one(
            waits, 'v', 'w', victims={1: 'v', 2: 'v'},
            owners={20: 'hog', 21: 'b', 2: 'v', 1: 'v'})
        self.assertEqual(7.5, answer.waited_s)
        self.assertEqual({'hog': 5.0, 'b': 2.0, 'v': 0.5}, answer.holders)

    def test_what_is_nobodys(self) -> None:
        """Waking up an idle CPU, and threads that cannot be told."""
        answer = self.one(
            Waits({(1, 0): 1.0, (1, 20): 2.0, (1, 21): 4.0}, {}, 0.0), 'v',
            victims={1: 'v'}, owners={20: 'hog'})
        self.assertEqual((7.0, {'hog': 2.0}),
                         (answer.waited_s, answer.holders))

    def test_what_waits_still(self) -> None:
        answer = self.one(
            Waits({(1, 20): 1.0}, {1: 0.5, 2: 0.25, 3: 9.0}, 0.0), 'v',
            victims={1: 'v', 2: 'v'}, owners={20: 'hog'})
        self.assertEqual((1.75, {'hog': 1.0}),
                         (answer.waited_s, answer.holders))

    def test_what_had_no_room(self) -> None:
        """Not known whose: in parts as of what had room."""
        answer = self.one(
            Waits({(1, 20): 1.0, (5, 20): 3.0}, {}, 2.0), 'v',
            victims={1: 'v'}, owners={20: 'hog'})
        self.assertEqual((1.5, {'hog': 1.0}),
                         (answer.waited_s, answer.holders))

    def test_threads_of_the_host_by_name(self) -> None:
        """The largest few, and those of one name together."""
        waits = Waits({(1, tid): float(tid) for tid in range(20, 28)}
                      | {(1, 30): 100.0}, {}, 0.0)
        names = {tid: f't{tid}' for tid in range(20, 28)} | {21: 't20'}
        answer = self.one(
            waits, 'v', victims={1: 'v'}, names=names,
            owners=dict.fromkeys(range(20, 28), THE_HOST) | {30: 'hog'})
        self.assertEqual({'t20': 41.0, 't27': 27.0, 't26': 26.0, 't25': 25.0,
                          't24': 24.0}, answer.threads)
        self.assertEqual({THE_HOST: 188.0, 'hog': 100.0}, answer.holders)

    def test_which_ran_meanwhile(self) -> None:
        waits = Waits({(1, 20): 1.0, (2, 20): 2.0, (1, 0): 5.0, (3, 21): 7.0},
                      {}, 0.0)
        self.assertEqual({20: 3.0}, cpu_pairs.runners(waits, {1, 2}))
