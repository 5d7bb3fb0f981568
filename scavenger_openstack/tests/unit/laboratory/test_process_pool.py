# SPDX-License-Identifier: Apache-2.0


from __future__ import annotations

import os
import time

import testtools

from scavenger_openstack import errors
from scavenger_openstack.laboratory import process_pool

DEADLINE_S = 20.0


def square(number: int) -> int:
    return number * number


def refuse(number: int) -> int:
    raise errors.ConfigError(f'{number} cannot be')


def sleep(number: int) -> int:
    if number:
        time.sleep(10 * DEADLINE_S)
    return os.getpid()


class CrewTest(testtools.TestCase):

    def test_does_every_task_once(self) -> None:
        for jobs in (1, 3):
            self.assertEqual(
                [square(number) for number in range(40)],
                sorted(process_pool.work(square, range(40), jobs=jobs)))

    def test_what_goes_wrong_arrives(self) -> None:
        exc = self.assertRaises(errors.ConfigError, list,
                                process_pool.work(refuse, [3], jobs=2))
        self.assertEqual('3 cannot be', str(exc))
