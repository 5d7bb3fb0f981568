# SPDX-License-Identifier: Apache-2.0

"""How work of one conductor ends."""

from __future__ import annotations

from collections.abc import Callable
import pathlib
import threading
import time

import fixtures
import testtools

from scavenger_openstack.conductor import leader
from scavenger_openstack.conductor import service
from scavenger_openstack.db import connect
from scavenger_openstack.db import schema


class Stop(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger('scavenger_openstack'))
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'db')
        self.engine = connect.engine(f'sqlite:///{path}')
        self.addCleanup(self.engine.dispose)
        schema.upgrade(self.engine)
        self.begun, self.release = threading.Event(), threading.Event()
        self.addCleanup(self.release.set)

    def leader(self, holder: str, turn: Callable[[Callable[[], None]], object]
               ) -> leader.Leader:
        return leader.Leader(self.engine, 'work', holder, time.time, turn,
                             every_s=0.01, what='no work is done')

    def test_a_turn_that_looks(self) -> None:
        """It ends there, and another conductor has the work at once."""
        def turn(still: Callable[[], None]) -> None:
            self.begun.set()
            while not self.release.wait(0.01):
                still()

        one = self.leader('one', turn)
        one.start()
        self.assertTrue(self.begun.wait(30))
        self.assertTrue(one.is_alive)
        self.assertFalse(self.leader('other', lambda still: None).step())
        one.stop(30.0)
        self.assertFalse(one.is_alive)
        self.assertTrue(self.leader('other', lambda still: None).step())

    def test_a_turn_that_hangs(self) -> None:
        """It is waited for no longer than asked, and keeps its claim: what it
        does may still happen."""
        def turn(still: Callable[[], None]) -> None:
            self.begun.set()
            self.release.wait(60)

        one = self.leader('one', turn)
        one.start()
        self.assertTrue(self.begun.wait(30))
        for timeout_s in (0.05, -1.0):
            one.stop(timeout_s)
        self.assertTrue(one.is_alive)
        self.assertIn('no work is done', self.log.output)
        self.assertFalse(self.leader('other', lambda still: None).step())

    def test_work_of_a_conductor_that_hangs(self) -> None:
        conductor = service.Conductor(self.engine)

        def hang() -> int:
            self.begun.set()
            self.release.wait(60)
            return 0

        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.conductor.service.AGAIN_S', 0.01))
        conductor.make_specs = hang     # type: ignore[method-assign]
        conductor.start()
        self.assertTrue(self.begun.wait(30))
        conductor.stop(0.05)
        self.assertTrue(conductor.is_alive)
