# SPDX-License-Identifier: Apache-2.0

"""Which workloads a disk served while one waited, told by this machine's
kernel."""

from __future__ import annotations

import subprocess
import time

from scavenger_openstack.drivers import base as drivers_base
from scavenger_openstack.drivers.direct import disk
from scavenger_openstack.tests.functional import delays
from scavenger_openstack.tests.functional import evidence
from scavenger_openstack.tests.functional import loop_device
from scavenger_openstack.types import DirectEvidence
from scavenger_openstack.types import Resource
from scavenger_openstack.types import THE_HOST

WINDOW_S = 1.5

MOST, LITTLE = 0.6, 0.2
"""Shares of the wait that a hog has at least, and an innocent at most, also
where other tests use the disk."""


class DiskCase(evidence.EvidenceCase, loop_device.LoopDeviceTestCase):

    resource = Resource.DISK

    def setUp(self) -> None:
        super().setUp()
        # What else this machine does takes no CPU from what reads.
        self.tree.put('weight', '',
                      '262144' if self.tree.version == 1 else '10000')

    def run_in(self, below: str, pause_s: float) -> subprocess.Popen[str]:
        return self.reader(pause_s=pause_s, tree=self.tree, below=below)

    def disturbs(self) -> subprocess.Popen[str]:
        process = self.spawn(self.deep(), self.tree, '/batch/a')
        assert process.stdout is not None
        self.assertEqual('\n', process.stdout.readline())
        return process

    def suffers(self) -> subprocess.Popen[str]:
        return self.run_in('/services/s', 0.005)

    def goes_on(self, host: drivers_base.Driver, *resources: Resource
                ) -> None:
        """Tick for as long as a window is."""
        until_s = time.monotonic() + WINDOW_S

        def ticked() -> bool:
            host.sample()
            host.ask([(self.victim, resource)
                      for resource in resources or (self.resource,)])
            return time.monotonic() > until_s

        self.wait_for('the end of the window', ticked)

    def share(self, answer: DirectEvidence, workload: str) -> float:
        return answer.holders.get(workload, 0.0) / answer.waited_s


class TestEvidence(DiskCase):

    def test_what_was_there_first(self) -> None:
        self.disturbs()
        self.run_in('/batch/b', 0.02)
        self.suffers()
        host = self.host()
        for _ in range(2):      # no window knows of another
            self.open(host)
            self.goes_on(host)
            answer = self.answer(host)
            self.assertGreater(self.share(answer, self.hog), MOST, answer)
            self.assertLess(self.share(answer, self.innocent), LITTLE, answer)
            self.assertGreater(self.share(answer, self.victim), 0.0, answer)
            self.assertLess(0.05, answer.waited_s)
            self.assertLess(answer.waited_s, 1.1 * answer.window_s)

    def test_both_resources_at_once(self) -> None:
        self.disturbs()
        self.suffers()
        host, both = self.host(), (Resource.CPU, Resource.DISK)
        self.assertEqual((), host.sample().direct)
        self.goes_on(host, *both)
        answers = {one.resource: one for one in self.answers(host)}
        self.assertEqual(set(both), set(answers))
        for answer in answers.values():
            self.assertEqual((self.victim, False),
                             (answer.workload, answer.shared))
        self.assertGreater(self.share(answers[Resource.DISK], self.hog), MOST)
        # One window ends, the other goes on.
        self.goes_on(host, *both)
        self.goes_on(host, Resource.CPU)
        self.assertEqual({Resource.CPU}, {
            one.resource for one in self.answers(host)})
        grade = host.facts().grade
        assert grade is not None
        self.assertEqual(dict.fromkeys(('cpu', 'disk'), {
            'on': True, 'why': ''}), grade['direct'])

    def test_buffered_writes_are_the_hosts(self) -> None:
        self.writes(self.tree, '/batch/a')
        self.suffers()
        host = self.host()
        self.open(host)
        self.goes_on(host)
        answer = self.answer(host)
        self.assertGreater(self.share(answer, THE_HOST),
                           self.share(answer, self.hog), answer)
        self.assertTrue(any(name.startswith('kworker')
                            for name in answer.threads), answer)

    def test_a_victim_that_begins_in_the_window(self) -> None:
        self.disturbs()
        host = self.host()
        self.open(host)
        self.suffers()
        self.goes_on(host)
        answer = self.answer(host)
        self.assertGreater(self.share(answer, self.hog), MOST, answer)

    def test_processes_that_ended(self) -> None:
        """Whose they were cannot be told."""
        hog = self.disturbs()
        self.suffers()
        host = self.host()
        self.open(host)
        self.goes_on(host)
        self.end(hog)
        answer = self.answer(host)
        self.assertNotIn(self.hog, answer.holders)
        self.assertGreater(answer.waited_s, 0.05)
        self.assertLess(sum(answer.holders.values()), 0.5 * answer.waited_s)

    def test_an_id_that_another_process_has_now(self) -> None:
        """The disk served it not, and it waited not."""
        for taken in 'hog', 'victim':
            hog, victim, host = self.disturbs(), self.suffers(), self.host()
            self.open(host)
            self.goes_on(host)
            ended = hog if taken == 'hog' else victim
            self.end(ended)
            self.take_id(ended.pid,
                         '/batch/b' if taken == 'hog' else '/services/s')
            answer = self.answer(host)
            self.assertGreater(answer.waited_s, 0.05)
            if taken == 'hog':
                self.assertNotIn(self.innocent, answer.holders)
                self.assertNotIn(self.hog, answer.holders)
            else:
                self.assertGreater(self.share(answer, self.hog), LITTLE)
            self.end(hog, victim)


class TestVersion2(DiskCase):
    """There the kernel knows the cgroup of a process that ended."""

    def test_processes_that_ended(self) -> None:
        disks, top = self.version_2(disk.DiskEvidence)
        hog, victim = self.disturbs(), self.suffers()
        for process, below in ((hog, 'hog/inner'), (victim, 'victim')):
            (top / below / 'cgroup.procs').write_text(str(process.pid))
        disks.ask([self.victim], 1.0)
        until_s = time.monotonic() + WINDOW_S
        self.wait_for('a while', lambda: time.monotonic() > until_s)
        self.end(hog)
        disks.ask((), 2.0)
        answer, = disks.answers(2.0)
        self.assertGreater(self.share(answer, self.hog), MOST, answer)
        self.assertIn(self.victim, answer.holders)


class TestElsewhere(DiskCase, evidence.ElsewhereCase):
    """In a process of its own."""

    def test_without_the_right_to(self) -> None:
        """Shares of the use have to do."""
        self.useFixture(delays.DelayAccounting()).set('1')
        self.disturbs()
        self.run_in('/batch/b', 0.05)
        self.suffers()
        answer = self.refused()
        self.assertGreater(answer.waited_s, 0.0)
        self.assertGreater(answer.holders[self.hog], 0.8 * answer.waited_s)
        self.assertIn(self.innocent, answer.holders)
