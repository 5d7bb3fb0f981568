# SPDX-License-Identifier: Apache-2.0

"""What gets which CPU time: worked by hand, and beside exact queues."""

from __future__ import annotations

import math

import testtools

from scavenger_openstack.simulator import cpu


def erlang_wait(load: float, cpus: int) -> float:
    """Mean wait over mean service of M/M/c, exactly."""
    busy = load / cpus
    tail = load ** cpus / math.factorial(cpus) / (1 - busy)
    queued = tail / (sum(load ** k / math.factorial(k)
                         for k in range(cpus)) + tail)
    return queued / (cpus * (1 - busy))


class Fill(testtools.TestCase):

    def shares(self, *args: object) -> list[float]:
        return [round(one, 6) for one in cpu.fill(*args)]  # type: ignore[arg-type]

    def test_by_weight_when_short(self) -> None:
        self.assertEqual([1.0, 3.0], self.shares(
            [4.0, 4.0], [1, 3], [0b1111, 0b1111]))

    def test_what_one_leaves_the_others_share_by_weight(self) -> None:
        # 4 CPUs; the first wants 0.4, 3.6 are shared 1 : 2.
        self.assertEqual([0.4, 1.2, 2.4], self.shares(
            [0.4, 4.0, 4.0], [1, 1, 2], [0b1111] * 3))

    def test_a_set_confines(self) -> None:
        # The second has CPU 0 only; the first gets the rest of both.
        self.assertEqual([1.5, 0.5], self.shares(
            [2.0, 0.5], [1, 1], [0b11, 0b01]))

    def test_sets_that_overlap(self) -> None:
        # 0-1 and 1-2, each wants 2 of the three CPUs.
        self.assertEqual([1.5, 1.5], self.shares(
            [2.0, 2.0], [1, 1], [0b011, 0b110]))

    def test_taken_comes_first(self) -> None:
        # 3 of 4 CPUs are taken, the last is shared.
        self.assertEqual([0.5, 0.5], self.shares(
            [2.0, 2.0], [1, 1], [0b1111] * 2, [(0b1111, 3.0)]))

    def test_never_more_than_there_is(self) -> None:
        shares = cpu.fill([3.0, 2.0, 5.0, 1.0], [1, 7, 2, 3],
                          [0b000111, 0b001100, 0b111111, 0b000001])
        self.assertLessEqual(sum(shares), 6 + 1e-9)
        self.assertLessEqual(shares[0] + shares[3], 3 + 1e-9)
        self.assertLessEqual(shares[1], 2 + 1e-9)


class Queueing(testtools.TestCase):

    def test_one_server_is_exact(self) -> None:
        for busy in (0.1, 0.5, 0.9):
            self.assertAlmostEqual(busy / (1 - busy),
                                   cpu.queueing(busy, 1, 1.0))

    def test_several_servers_are_close_to_mmc(self) -> None:
        """Within 0.04 service times, and 15 % from 80 % busy on."""
        for cpus in (2, 4, 8, 16):
            for busy in (0.5, 0.7, 0.8, 0.9, 0.95):
                exact = erlang_wait(busy * cpus, cpus)
                found = cpu.queueing(busy * cpus, cpus, 1.0)
                self.assertLess(abs(found - exact), max(
                    0.04, 0.15 * exact if busy >= 0.8 else 0.0),
                    (cpus, busy, found, exact))

    def test_overload_ends(self) -> None:
        self.assertLess(cpu.queueing(9.0, 2, 1.0), 100)


class Waking(testtools.TestCase):

    def test_an_idle_cpu_is_found(self) -> None:
        self.assertLess(cpu.wake_wait(4, 0.5, 0, 8), 1e-5)

    def test_hogs_everywhere(self) -> None:
        self.assertAlmostEqual(cpu.WAKE_NORMAL_S, cpu.wake_wait(2, 0, 0, 2))

    def test_the_idle_class_hardly_disturbs(self) -> None:
        self.assertAlmostEqual(cpu.WAKE_IDLE_S, cpu.wake_wait(0, 0, 2, 2))


class Siblings(testtools.TestCase):

    def test_whole_cores_first(self) -> None:
        self.assertEqual(0.0, cpu.sibling_busy(4, 8))

    def test_all_busy(self) -> None:
        self.assertEqual(1.0, cpu.sibling_busy(8, 8))

    def test_whole_cores(self) -> None:
        # Four cores: CPUs 0 and 4 are siblings.
        self.assertEqual(0b00010001, cpu.whole_cores(0b1, 4))
        self.assertEqual(0b00110011, cpu.whole_cores(0b00100001, 4))
        self.assertEqual(0b11111111, cpu.whole_cores(0b11110000, 4))
