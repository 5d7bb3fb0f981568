# SPDX-License-Identifier: Apache-2.0


from __future__ import annotations

import dataclasses

import fixtures
import testtools

from scavenger_openstack.drivers.libvirt.balloon import Balloons
from scavenger_openstack.drivers.libvirt.balloon import HIDES
from scavenger_openstack.drivers.libvirt.balloon import overhead
from scavenger_openstack.drivers.libvirt.balloon import SILENT_S
from scavenger_openstack.drivers.libvirt.balloon import STILL_S
from scavenger_openstack.tests.unit.drivers.libvirt.seen_domains import seen
from scavenger_openstack.tests.unit.drivers.libvirt.seen_domains import UUID

CAP = 256 * 1024


class Unmet(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        self.balloons = Balloons()
        self.now_s = 1000.0
        self.answer()

    def answer(self) -> None:
        """The balloon driver has moved the balloon in this run."""
        for kib in (1024, 1020):
            self.balloons.update(
                seen(more=f'<currentMemory>{kib}</currentMemory>'))

    def unmet(self, kib: int = 512, *, after_s: float = 1.0,
              cap: int = CAP, paused: bool = False,
              used: int | None = None) -> int | None:
        """What is missing after so many seconds more."""
        self.now_s += after_s
        one = seen(more=f'<currentMemory>{kib}</currentMemory>',
                   paused=paused)
        return self.balloons.unmet([(one, cap, used)],
                                   self.now_s).get(UUID)

    def test_who_does_not_move(self) -> None:
        self.assertIsNone(self.unmet())
        self.assertIsNone(self.unmet(after_s=STILL_S - 1))
        for _ in range(3):
            self.assertEqual(CAP, self.unmet())
        # A cap that follows the foreground makes no new beginning.
        self.assertEqual(CAP // 2, self.unmet(cap=CAP * 3 // 2))
        self.assertEqual(1, self.log.output.count('has not moved for 30 s'))
        self.assertIn('scavenger:floor_memory_mb', self.log.output)
        self.assertIsNone(self.unmet(cap=2 * CAP))
        self.assertIsNone(self.unmet())

    def test_who_is_on_his_way(self) -> None:
        for kib in (512, 500, 480, 256, 256):
            self.assertIsNone(self.unmet(kib, after_s=STILL_S - 1))
        self.assertEqual('', self.log.output)

    def test_one_warning_for_one_way(self) -> None:
        for kib in (512, 500, 480):
            self.unmet(kib)
            self.assertEqual((kib - 256) * 1024,
                             self.unmet(kib, after_s=STILL_S))
        self.assertEqual(1, self.log.output.count('has not moved'))

    def test_who_is_paused_gets_another_try(self) -> None:
        self.unmet()
        for _ in range(3):
            self.assertEqual(CAP, self.unmet(after_s=STILL_S))
            self.assertEqual(CAP, self.unmet(after_s=STILL_S - 1,
                                             paused=True))
            self.assertIsNone(self.unmet(paused=True))

    def test_a_guest_that_boots(self) -> None:
        """Its driver answers late: that is when the time begins."""
        self.balloons = Balloons()
        for _ in range(3):
            self.assertIsNone(self.unmet(after_s=STILL_S))
        self.assertIsNone(self.unmet(511))      # there it is
        self.assertIsNone(self.unmet(511, after_s=STILL_S - 1))
        self.assertEqual('', self.log.output)
        self.assertEqual(255 * 1024, self.unmet(511))

    def test_a_guest_that_boots_and_gives_back(self) -> None:
        self.balloons = Balloons()
        for kib in (512, 512, 512, 500, 256):
            self.assertIsNone(self.unmet(kib, after_s=STILL_S - 1))
        self.assertEqual('', self.log.output)

    def test_a_driver_that_never_answers(self) -> None:
        self.balloons = Balloons()
        self.assertIsNone(self.unmet())
        self.assertIsNone(self.unmet(after_s=SILENT_S - 1))
        self.assertEqual('', self.log.output)
        for _ in range(100):
            self.assertIsNone(self.unmet(after_s=STILL_S))
        self.assertEqual(1, self.log.output.count(
            'has not answered for 120 s'), self.log.output)
        self.assertIn('is not paused', self.log.output)

    def test_one_that_never_answers_is_not_relied_on(self) -> None:
        self.balloons = Balloons()
        self.unmet()
        self.unmet(after_s=SILENT_S - 1)
        self.assertEqual({}, self.balloons.kept)
        self.unmet()
        self.assertEqual({UUID}, set(self.balloons.kept))
        self.unmet(256)     # it has moved
        self.assertEqual({}, self.balloons.kept)

    def test_a_balloon_that_is_not_what_the_guest_reports(self) -> None:
        most = CAP + overhead(seen().domain)
        for used in (None, 0, most):
            for _ in range(3):
                self.assertIsNone(self.unmet(256, after_s=STILL_S, used=used))
            self.assertEqual({}, self.balloons.kept)
        lie = most + 100 * 2 ** 20
        self.assertIsNone(self.unmet(256, used=lie))
        self.assertIsNone(self.unmet(256, used=lie, after_s=STILL_S - 1))
        self.assertEqual({}, self.balloons.kept)
        for _ in range(3):      # it is not paused
            self.assertIsNone(self.unmet(256, used=lie))
            self.assertEqual([f'domain one: {HIDES}'],
                             list(self.balloons.kept.values()))
        self.assertEqual(1, self.log.output.count('has 100 MiB more'),
                         self.log.output)
        # QEMU gives memory back a while after the guest does.
        for used in range(lie - 10 * 2 ** 20, most, -10 * 2 ** 20):
            self.unmet(256, used=used, after_s=STILL_S - 1)
            self.assertEqual({}, self.balloons.kept)

    def test_what_qemu_needs_itself(self) -> None:
        domain = seen().domain
        kvm = overhead(domain)
        self.assertEqual(256 * 2 ** 20 + 1024 * 1024 // 16, kvm)
        self.assertEqual(kvm + 2 ** 30, overhead(
            dataclasses.replace(domain, virt_type='qemu')))

    def test_memory_that_cannot_be_given_back(self) -> None:
        """A device was plugged in while the limit was in force."""
        one = seen(more='<currentMemory>512</currentMemory>',
                   disks='<hostdev mode="subsystem" type="mdev"/>')
        for _ in range(10):
            self.now_s += STILL_S
            self.assertEqual({}, self.balloons.unmet(
                [(one, CAP, None)], self.now_s))
        self.assertEqual('', self.log.output)

    def test_a_new_run_has_not_answered(self) -> None:
        """As after a hard reboot."""
        one = seen(more='<currentMemory>512</currentMemory>')._replace(
            started=78)
        for _ in range(3):
            self.now_s += STILL_S
            self.assertEqual({}, self.balloons.unmet(
                [(one, CAP, None)], self.now_s))

    def test_another_run_begins_again(self) -> None:
        self.unmet()
        one = seen()._replace(started=78)
        self.assertEqual({}, self.balloons.unmet(
            [(one, CAP, None)], self.now_s + STILL_S))
