# SPDX-License-Identifier: Apache-2.0

"""Windows of what is asked, where the kernel does not count for us."""

from __future__ import annotations

import fixtures
import testtools

from scavenger_openstack.drivers import base
from scavenger_openstack.drivers.direct.cpu import CpuEvidence
from scavenger_openstack.drivers.direct.disk import DiskEvidence
from scavenger_openstack.drivers.direct import windows
from scavenger_openstack.drivers.qemu import cgroup_overlap
from scavenger_openstack.types import DirectEvidence
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Resource
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadSample


class TestCpus(testtools.TestCase):

    kind: type[CpuEvidence | DiskEvidence] = CpuEvidence
    resource = Resource.CPU

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        # No hierarchy of cgroups tells whose a thread is.
        self.evidence = self.kind({}, cgroup_overlap.DomainCgroups({}))
        self.now = 100.0

    def tick(self, *victims: str, after_s: float = 1.0
             ) -> tuple[DirectEvidence, ...]:
        """One turn of the loop."""
        self.now += after_s
        answers = self.evidence.answers(self.now)
        self.evidence.follow(HostSample(
            'h', 'b', self.now, self.now, tuple(WorkloadSample(
                Workload(name, Priority.FOREGROUND), cpu_s=self.now,
                run_delay_s=self.now, io_wait_s=self.now)
                for name in ('v', 'w', *map(str, range(9))))))
        self.evidence.ask(victims, self.now)
        return answers

    def answered(self, *victims: str) -> dict[str, float]:
        """By victim, how long the window was."""
        answers = self.tick(*victims)
        for answer in answers:
            self.assertEqual((self.resource, True),
                             (answer.resource, answer.shared))
        return {answer.workload: answer.window_s for answer in answers}

    def test_one_window_after_another(self) -> None:
        for _ in range(2):
            self.assertEqual({}, self.answered('v'))
            self.assertEqual({}, self.answered('v'))
            self.assertEqual({}, self.answered())
            self.assertEqual({'v': 2.0}, self.answered())
            self.assertEqual({}, self.answered())

    def test_all_victims_of_a_window(self) -> None:
        self.tick('v', 'w')
        self.tick('w')
        self.tick()
        self.assertEqual({'v': 2.0, 'w': 2.0}, self.answered())

    def test_others_have_the_next_window(self) -> None:
        self.tick('v')
        self.tick('v', 'w')
        self.tick('w')
        self.assertEqual({'v': 2.0}, self.answered('w'))
        self.tick()
        self.assertEqual({'w': 2.0}, self.answered())

    def test_more_than_one_window_has_room_for(self) -> None:
        names = [str(number) for number in range(9)]
        self.tick(*names)
        self.tick('8', after_s=2.0)
        self.assertEqual(dict.fromkeys(names[:8], 2.0), self.answered('8'))
        self.tick()
        self.assertEqual({'8': 2.0}, self.answered())

    def test_a_window_ends_by_itself(self) -> None:
        self.tick('v')
        seen = [self.answered('v') for _ in range(30)]
        self.assertEqual([{'v': windows.LONGEST_S}], list(filter(None, seen)))
        # It is not asked any more, and then again.
        self.assertEqual({}, self.answered())
        self.tick('v')
        self.tick()
        self.assertEqual({'v': 1.0}, self.answered())

    def test_another_is_asked_about_after_that(self) -> None:
        self.tick('v')
        self.tick('v', after_s=60.0)
        self.assertEqual({'v': 60.0}, self.answered('v', 'w'))
        self.tick('v')
        self.assertEqual({'w': 1.0}, self.answered('v'))

    def test_an_answer_that_nothing_took_is_dropped(self) -> None:
        self.tick('v')
        self.tick()
        self.now += windows.TOO_OLD_S
        self.assertEqual({}, self.answered())

    def test_what_is_no_workload(self) -> None:
        self.tick('/gone', 'no-such-uuid')
        self.tick()
        self.assertEqual({}, self.answered())
        self.assertEqual(1, self.log.output.count('\n'))

    def test_closed_in_a_window(self) -> None:
        self.tick('v')
        self.evidence.close()
        self.tick()
        self.assertEqual({}, self.answered())

    def test_a_refusal_is_logged_once_and_tried_again_later(self) -> None:
        self.assertEqual((None, ''), tuple(self.evidence.facts().values()))
        for _ in range(3 * base.LOOK_TICKS):
            self.tick('v')
            self.tick()
        self.assertEqual(1, self.log.output.count('no direct evidence'))
        self.assertIs(False, self.evidence.facts()['on'])
        self.assertIn('no cgroup controller', self.evidence.why)


class TestDisks(TestCpus):

    kind = DiskEvidence
    resource = Resource.DISK
