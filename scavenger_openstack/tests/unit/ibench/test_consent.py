# SPDX-License-Identifier: Apache-2.0

"""Asking before much of memory or disk is taken, and the lock."""

from __future__ import annotations

import io
import os
import pathlib
import shutil
from typing import TextIO

import fixtures
import testtools

from scavenger_openstack import errors
from scavenger_openstack.ibench import arguments
from scavenger_openstack.ibench import catalogue
from scavenger_openstack.ibench import consent
from scavenger_openstack.ibench import geometry
from scavenger_openstack.ibench.host import lock

MIB = 1 << 20


class Consent(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.path = self.useFixture(fixtures.TempDir()).path
        self.chosen = arguments.Surroundings(
            geometry.Geometry(0, {}, 64, 4096, 64),
            geometry.Memory(1000 * MIB, 600 * MIB, 'memory'), (0,),
            path=self.path)
        self.questions = io.StringIO()

    def check(self, name: str, percent: float, *, yes: bool = False,
              answers: TextIO | None = None, size: int | None = None
              ) -> None:
        start = arguments.plan_start(
            catalogue.find_soi(name), self.chosen._replace(size_bytes=size))
        consent.check_room([(start, percent)], self.chosen, yes=yes,
                           questions=self.questions,
                           answers=answers or io.StringIO())

    def terminal(self, answer: str) -> TextIO:
        """A real one, which has been typed at."""
        main, side = os.openpty()
        self.addCleanup(os.close, main)
        os.write(main, answer.encode())
        answers = os.fdopen(side, 'r')
        self.addCleanup(answers.close)
        questions = os.fdopen(os.dup(side), 'w')
        self.addCleanup(questions.close)
        self.questions = questions      # type: ignore[assignment]
        return answers

    def test_up_to_a_share_of_what_is_free(self) -> None:
        self.check('memory_capacity', 30)       # 300 of 600
        exc = self.assertRaises(errors.ConfigError, self.check,
                                'memory_capacity', 31)
        self.assertIn('--yes', str(exc))
        self.check('memory_capacity', 31, yes=True)

    def test_what_does_not_fit_is_refused_always(self) -> None:
        exc = self.assertRaises(errors.ConfigError, self.check,
                                'memory_capacity', 61, yes=True)
        self.assertNotIn('--yes', str(exc))

    def test_answers(self) -> None:
        self.check('memory_capacity', 40, answers=self.terminal('y\n'))
        for answer in ('n\n', '\n', 'x\n'):
            self.assertRaises(
                errors.ConfigError, self.check, 'memory_capacity', 40,
                answers=self.terminal(answer))

    def test_disk(self) -> None:
        free = shutil.disk_usage(self.path).free
        self.check('storage_capacity', 100, size=free // 4)
        self.assertRaises(errors.ConfigError, self.check,
                          'storage_capacity', 100, size=free // 4 * 3)
        self.check('storage_capacity', 50, size=free // 4 * 3)
        # the file of the bandwidth is whole at each intensity
        self.assertRaises(errors.ConfigError, self.check,
                          'storage_bandwidth', 1, size=free // 4 * 3)

    def test_paths_that_cannot_be(self) -> None:
        file = pathlib.Path(self.path, 'file')
        file.write_text('')
        for path in (None, f'{self.path}/nowhere', str(file), '/dev/null',
                     '/proc'):
            self.chosen = self.chosen._replace(path=path)
            self.assertRaises(errors.ConfigError, self.check,
                              'storage_capacity', 1)
        self.assertEqual('', file.read_text())


class Lock(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.path = self.useFixture(fixtures.TempDir()).path + '/lock'

    def hold(self, alone: bool) -> None:
        with lock.locked(alone=alone, path=self.path):
            pass

    def test_a_validation_is_alone(self) -> None:
        for held in (False, True):
            with lock.locked(alone=held, path=self.path):
                self.assertRaises(errors.ConfigError, self.hold, True)
        self.hold(True)

    def test_runs_share_a_host(self) -> None:
        with lock.locked(alone=False, path=self.path):
            self.hold(False)
        with lock.locked(alone=True, path=self.path):
            self.assertRaises(errors.ConfigError, self.hold, False)

    def test_a_link_in_its_place(self) -> None:
        os.symlink('/etc/passwd', self.path)
        self.assertRaises(errors.ConfigError, self.hold, True)
