# SPDX-License-Identifier: Apache-2.0

"""A loop over real cgroups, and a controller that does what it is told."""

from __future__ import annotations

from collections.abc import Sequence
import pathlib
from typing import Any

import fixtures
from oslo_config import cfg

from scavenger_openstack.agent.apply.actuator import Actuator
from scavenger_openstack.agent.apply.actuator import READ_TICKS
from scavenger_openstack.agent.isolation import blind_isolation as isolation_
from scavenger_openstack.agent.lease import leases as leases_
from scavenger_openstack.agent import loop as loop_
from scavenger_openstack.agent import parts
from scavenger_openstack.algorithms.perfiso import perfiso
from scavenger_openstack import conf as conf_
from scavenger_openstack.decision.controller import Controller
from scavenger_openstack.drivers import base as drivers_base
from scavenger_openstack import errors
from scavenger_openstack.tests.functional import base
from scavenger_openstack.tests.unit.agent.loops import Wish as Wish
from scavenger_openstack.tests import watching
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Mode

HOLD = """
import sys, time
data = bytearray({mib} << 20)
for i in range(0, len(data), 4096): data[i] = 1
print('holding', flush=True)
time.sleep(600)
"""


class Unsteady:
    """A driver that cannot read the host when it is told so."""

    blind = False

    def __init__(self, driver: drivers_base.Driver) -> None:
        self._driver = driver

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def sample(self) -> HostSample:
        if self.blind:
            raise errors.DriverError('nothing can be read')
        return self._driver.sample()


class LoopTestCase(base.FunctionalTestCase):
    """A tree with two batch jobs and a service, and a loop over it."""

    def setUp(self) -> None:
        super().setUp()
        self.tree = self.cgroups()
        for below in ('/batch/a', '/batch/b', '/services/s'):
            self.tree.make(below)
        self.state_dir = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path) / 'state'
        self.now = 1000.0

    def configure(self, options: Sequence[str] = ()) -> cfg.ConfigOpts:
        """The configuration of an agent for the tree, with these lines."""
        path = self.state_dir.parent / 'agent.conf'
        path.write_text('\n'.join((
            '[cgroups]', f'background_parents = {self.tree.name}/batch',
            f'foreground_parents = {self.tree.name}/services', *options)))
        conf = cfg.ConfigOpts()
        conf_.register(conf)
        conf_.load(conf, ['--config-file', str(path), '--state-dir',
                          str(self.state_dir)], 'test')
        return conf

    def loop(self, *controllers: tuple[Controller, Mode],
             options: Sequence[str] = (), watched: bool = True,
             isolated: bool = False, **words: Any) -> loop_.Loop:
        conf = self.configure(options)
        self.driver: Any = Unsteady(parts.load_driver(conf))
        driver = self.driver
        self.addCleanup(driver.close)
        self.leases = leases_.Leases(self.state_dir, 600)
        self.leases.open()
        self.addCleanup(self.leases.close)
        if watched:
            self.useFixture(watching.Watching(self.state_dir))
        return loop_.Loop(
            driver, controllers, self.leases,
            Actuator(driver, self.leases, 2.0),
            self.state_dir / 'stop',
            isolation=isolation_.BlindIsolation(
                driver, self.leases, perfiso.Params(buffer_cores=1),
                Mode.ENFORCE) if isolated else None, **words)

    def look(self, loop: loop_.Loop) -> None:
        """Turn until every knob has been read back once."""
        for _ in range(READ_TICKS):
            loop.tick(self.now)

    def id(self, below: str = '') -> str:
        return self.tree.name + below if below else super().id()

    def hold_memory(self, below: str, mib: int) -> None:
        process = self.spawn(HOLD.format(mib=mib), self.tree, below)
        assert process.stdout is not None
        self.assertEqual('holding\n', process.stdout.readline())

    def limit(self, below: str) -> int:
        return int(self.tree.get('memory', below))

    def quota(self, below: str) -> str:
        return self.tree.get('quota', below)
