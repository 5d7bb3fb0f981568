# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import sys
import threading

import testtools

from scavenger_openstack import log_once


class TestLogOnce(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.logged = log_once.LogOnce()

    def test_each_problem_once(self) -> None:
        due = self.logged.due
        self.assertEqual([True, False, True, False],
                         [due('a'), due('a'), due('b'), due('a')])
        # Another problem of the same thing, and the first again.
        self.assertEqual([True, False, True],
                         [due('a', 'full'), due('a', 'full'), due('a')])
        self.assertEqual([True, False], [self.logged.over('a'),
                                         self.logged.over('a')])
        self.assertTrue(due('a'))

    def due(self, *names: str) -> list[bool]:
        return [self.logged.due(name, f'{name} fails', 'no such option')
                for name in names]

    def test_a_cause_once_for_all_that_have_it(self) -> None:
        self.assertEqual([True, False, False], self.due(*'aba'))
        # A problem of its own is none of theirs.
        self.assertTrue(self.logged.due('b', 'b fails'))
        self.logged.over('b')
        self.assertEqual([False], self.due('b'))

    def test_a_cause_is_over_when_it_is_for_all(self) -> None:
        self.due(*'ab')
        self.logged.over('a')
        self.assertEqual([False], self.due('a'))
        for name in 'ab':
            self.assertTrue(self.logged.over(name))
        self.assertEqual([True], self.due('a'))

    def test_what_ends_leaves_the_cause(self) -> None:
        """Each container that comes has it again."""
        for name in 'abc':
            self.assertEqual([name == 'a'], self.due(name))
            self.logged.forget(name)

    def test_all_problems_that_there_are(self) -> None:
        self.assertEqual(['a', 'b'], self.logged.all_due({'a': 1, 'b': 1}))
        self.assertEqual(['a'], self.logged.all_due({'a': 2, 'b': 1}))
        self.assertEqual(['c'], self.logged.all_due({'b': 1, 'c': 1}))
        self.assertEqual(['a'], self.logged.all_due({'a': 2}))
        self.assertEqual([], self.logged.all_due({'a': 2}))

    def test_a_clock_that_is_set_back(self) -> None:
        self.assertEqual([True, False, True], [
            self.logged.due('a', now_s=now_s, every_s=60.0)
            for now_s in (500.0, 501.0, 1.0)])

    def test_a_bounded_rate(self) -> None:
        def due(now_s: float) -> bool:
            return self.logged.due('a', now_s=now_s, every_s=60.0)

        self.assertEqual([True, False, True, False], [
            due(5.0), due(64.0), due(65.0), due(124.0)])
        self.logged.over('a')
        self.assertTrue(due(124.0))

    def test_a_quota(self) -> None:
        """A flood leaves what was logged already."""
        quota = log_once.Quota(3, 60.0)
        self.assertEqual([2, None, 1, 0, None, None], [
            quota.take(about, 5.0) for about in 'aabcda'])
        self.assertEqual([None, None], [
            quota.take(about, 64.0) for about in 'ad'])
        self.assertEqual([2, 1], [
            quota.take(about, 65.0) for about in 'ad'])
        # A clock that is set back keeps nothing from the log.
        self.assertEqual(2, quota.take('a', 1.0))

    def test_a_quota_that_threads_share(self) -> None:
        quota = log_once.Quota(3, 0.001)
        faults: list[Exception] = []

        def take() -> None:
            try:
                for number in range(20_000):
                    quota.take(number, number / 1e4)
            except Exception as exc:
                faults.append(exc)

        self.addCleanup(sys.setswitchinterval, sys.getswitchinterval())
        sys.setswitchinterval(1e-6)
        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([], faults)

    def test_its_size_is_bounded(self) -> None:
        self.assertTrue(all(map(self.logged.due, range(log_once.MOST))))
        self.assertFalse(self.logged.due(0))
        self.assertTrue(self.logged.due(log_once.MOST))
        self.assertTrue(self.logged.due(0))
