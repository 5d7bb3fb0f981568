# SPDX-License-Identifier: Apache-2.0

"""Egress limits of many VMs with a backlog each, removed at once."""

from __future__ import annotations

import os
import pathlib
import re
import threading

import fixtures

from scavenger_openstack.agent.apply import actuator
from scavenger_openstack.agent.lease import leases
from scavenger_openstack.drivers.network import limits
from scavenger_openstack.drivers.network import tap
from scavenger_openstack.restore import messages
from scavenger_openstack.restore import restoration
from scavenger_openstack.tests.functional import base
from scavenger_openstack.tests.functional import namespaces
from scavenger_openstack.types import Knob

VMS = 4
RATE = 34_000
"""Bytes per second: two frames."""


class ManyTest(base.FunctionalTestCase):
    """What waits goes on its way behind all of them at once."""

    def setUp(self) -> None:
        super().setUp()
        self.wires = self.useFixture(namespaces.Wires(VMS))
        self.driver = limits.Network({}, {
            str(vm): tap.Tap(self.wires.device(vm)) for vm in range(VMS)})
        self.addCleanup(self.driver.close)
        self.leases = leases.Leases(pathlib.Path(
            self.useFixture(fixtures.TempDir()).path, 'state'))
        self.leases.open()
        self.addCleanup(self.leases.close)
        for vm in range(VMS):
            key = (str(vm), Knob.EGRESS_BYTES_PER_S)
            self.leases.hold(*key, self.driver.restore_actions(*key), None)
            self.driver.write(*key, RATE)
        self.wires.send(12)
        self.assertEqual((VMS, VMS), self.limited())

    def limited(self) -> tuple[int, int]:
        """How many VMs have a bucket, and how many one that holds back."""
        shown = namespaces.run('tc', '-n', self.wires.near, 'qdisc', 'show')
        return (shown.count('tbf 5ca0: '),
                len(re.findall('tbf 5ca0: .* rate 272Kbit ', shown)))

    def all_are_open(self, removing: threading.Thread) -> None:
        """When the first of them is gone."""
        removing.start()
        self.addCleanup(removing.join)
        self.wait_for('the first is gone', lambda: self.limited()[0] < VMS)
        self.assertEqual(0, self.limited()[1])

    def test_by_the_agent_as_it_ends(self) -> None:
        self.all_are_open(threading.Thread(
            target=self.leases.remove_all))

    def test_in_a_tick(self) -> None:
        acts = actuator.Actuator(self.driver, self.leases, 1.0)
        self.all_are_open(threading.Thread(
            target=lambda: acts.reconcile({}, acts.read([]))))
        self.wait_for('all are removed', lambda: not self.leases.held())
        self.assertEqual((0, 0), self.limited())

    def test_by_the_restorer(self) -> None:
        directory = os.open(self.leases.state_dir, os.O_RDONLY)
        self.addCleanup(os.close, directory)
        say = messages.Say(lambda line: None)
        self.all_are_open(threading.Thread(
            target=restoration.restore_all, args=(directory, say),
            kwargs={'delete': False}))
