# SPDX-License-Identifier: Apache-2.0

"""The loop with its driver, leases and actuator, on a host of plain files,
and a controller that wants what the test tells it."""

from __future__ import annotations

from collections.abc import Sequence
import json
import pathlib
from typing import Any

import fixtures
from oslo_config import cfg
import testtools

from scavenger_openstack.agent.apply.actuator import Actuator
from scavenger_openstack.agent.lease import leases as leases_
from scavenger_openstack.agent import loop as loop_
from scavenger_openstack.agent import parts
from scavenger_openstack import conf as conf_
from scavenger_openstack.decision.controller import Controller
from scavenger_openstack.tests.unit import host_tree
from scavenger_openstack.tests import watching
from scavenger_openstack.types import Ask
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Decision
from scavenger_openstack.types import Knob
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import Mode
from scavenger_openstack.types import Rates

A, B, SERVICE = '/batch/a', '/batch/b', '/services/s'


class Wish:
    """A controller that wants what the test tells it, and at once no more
    what it does not."""

    name = 'wish'
    kind = 'regulator'
    params_type = None
    at_start: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.caps: tuple[Cap, ...] = ()
        self.removal_reasons: dict[KnobKey, str] = {}
        self.asks: tuple[Ask, ...] = ()
        self.seen: list[str] = []
        self.llc_ways: int | None = None
        self.shortage_bytes = 0.0

    def want(self, *caps: tuple[str, Knob, float | str]) -> None:
        self.removal_reasons |= {cap[:2]: 'a test' for cap in self.caps}
        self.caps = tuple(Cap(*cap, self.name, 'a test') for cap in caps)

    def tune(self, params: object) -> None:
        """It has none."""

    def step(self, now: float, rates: Rates) -> Decision:
        self.llc_ways = rates.llc_ways
        self.seen = [one.workload.id for one in rates.workloads]
        return Decision(self.caps, shortage_bytes=self.shortage_bytes,
                        removal_reasons=self.removal_reasons, asks=self.asks)

    def state(self) -> dict[str, object]:
        return {}

    def load(self, state: object, now: float) -> None:
        pass


class LoopTestCase(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        self.host = self.useFixture(host_tree.Host())
        for path in ('/batch', A, B, '/services', SERVICE):
            self.host.cgroup(path)
        self.state_dir = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path) / 'state'
        self.wish = Wish()
        self.now = 1000.0

    def loop(self, mode: Mode = Mode.ENFORCE, *, lease_s: float = 600.0,
             watched: bool = True, options: Sequence[str] = (),
             controller: Controller | None = None) -> loop_.Loop:
        file = self.state_dir.parent / 'agent.conf'
        file.write_text('\n'.join((
            '[libvirt]', 'uri =', '[cgroups]', 'background_parents = /batch',
            'foreground_parents = /services', *options)))
        conf = cfg.ConfigOpts()
        conf_.register(conf)
        conf_.load(conf, ['--config-file', str(file), '--root-dir',
                          str(self.host.root), '--state-dir',
                          str(self.state_dir)], 'test')
        driver = self.driver = parts.load_driver(conf)
        self.addCleanup(driver.close)
        self.leases = leases_.Leases(self.state_dir, lease_s)
        self.leases.open()
        self.addCleanup(self.leases.close)
        if watched:
            self.watching = self.useFixture(
                watching.Watching(self.state_dir))
        self.actuator = Actuator(driver, self.leases, 2.0)
        return loop_.Loop(
            driver, [(controller or self.wish, mode)], self.leases,
            self.actuator, self.state_dir / 'stop')

    def turn(self, loop: loop_.Loop, *caps: tuple[str, Knob, float | str],
             ticks: int = 1) -> loop_.Tick:
        self.wish.want(*caps)
        for _ in range(ticks):
            self.now += 1.0
            tick = loop.tick(self.now)
        return tick

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_bytes().partition(b'\n')[0])
                for path in sorted((self.state_dir / 'leases').iterdir())]
