# SPDX-License-Identifier: Apache-2.0

"""Work of one of all conductors that goes on failing."""

from __future__ import annotations

from collections.abc import Callable
import pathlib
import time

import fixtures
import testtools

from scavenger_openstack.conductor import leader
from scavenger_openstack.db import connect
from scavenger_openstack.db import schema
from scavenger_openstack import errors

WAIT_S = 30.0


class Failing(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger('scavenger_openstack'))
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'db')
        self.engine = connect.engine(f'sqlite:///{path}')
        self.addCleanup(self.engine.dispose)
        schema.upgrade(self.engine)
        self.now = 1e9
        self.tried = 0

    def turn(self, still: Callable[[], None]) -> None:
        self.tried += 1
        raise errors.DatabaseError('a statement took too long')

    def tries(self) -> None:
        """Some more of them, all at the same time by the clock."""
        last = self.tried + 3
        deadline = time.monotonic() + WAIT_S
        while self.tried < last:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.005)

    def test_it_is_logged_each_hour(self) -> None:
        """Not at each try, and not only once for ever."""
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.conductor.leader.MOST_PAUSE_S', 0.01))
        one = leader.Leader(self.engine, 'work', 'one', lambda: self.now,
                            self.turn, every_s=0.005, what='nothing is done')
        self.addCleanup(one.stop)
        one.start()
        for hours in (1, 2, 3):
            self.tries()
            self.assertEqual(hours, self.log.output.count(
                'nothing is done, tried again'))
            self.now += leader.REPEAT_S
