# SPDX-License-Identifier: Apache-2.0


from __future__ import annotations

import os
import signal
import time

import testtools

from scavenger_openstack import errors
from scavenger_openstack.laboratory import process_pool

DEADLINE_S = 20.0


def square(number: int) -> int:
    return number * number


def process(number: int) -> int:
    time.sleep(0.05)
    return os.getpid()


def refuse(number: int) -> int:
    raise errors.ConfigError(f'{number} cannot be')


def die(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def sleep(number: int) -> int:
    if number:
        time.sleep(10 * DEADLINE_S)
    return os.getpid()


def ignored(number: int) -> bool:
    return signal.getsignal(signal.SIGINT) is signal.SIG_IGN


class CrewTest(testtools.TestCase):

    def test_does_every_task_once(self) -> None:
        for jobs in (1, 3):
            self.assertEqual(
                [square(number) for number in range(40)],
                sorted(process_pool.work(square, range(40), jobs=jobs)))

    def test_in_several_processes(self) -> None:
        found = set(process_pool.work(process, range(12), jobs=2))
        self.assertEqual(2, len(found))
        self.assertNotIn(os.getpid(), found)

    def test_nothing_to_do(self) -> None:
        self.assertEqual([], list(process_pool.work(square, [], jobs=2)))

    def test_what_goes_wrong_arrives(self) -> None:
        exc = self.assertRaises(errors.ConfigError, list,
                                process_pool.work(refuse, [3], jobs=2))
        self.assertEqual('3 cannot be', str(exc))

    def test_worker_that_was_killed(self) -> None:
        exc = self.assertRaises(errors.ScavengerError, list,
                                process_pool.work(die, range(3), jobs=2))
        self.assertIn('--jobs', str(exc))

    def test_interrupts_are_for_the_parent(self) -> None:
        self.assertEqual([True], list(process_pool.work(ignored, [1], jobs=1)))

    def test_whatever_stops_stops_the_workers(self) -> None:
        began_s = time.monotonic()
        results = process_pool.work(sleep, [0, 1, 1, 1], jobs=1)
        pid = next(results)
        results.close()
        self.assertLess(time.monotonic() - began_s, DEADLINE_S)
        self.assertRaises(ProcessLookupError, os.kill, pid, 0)
