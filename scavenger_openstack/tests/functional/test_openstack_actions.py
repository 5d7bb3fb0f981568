# SPDX-License-Identifier: Apache-2.0

"""What Nova can do to a server with limits on it, in a real OpenStack."""

from __future__ import annotations

import functools
import os
import signal
from typing import Any

from scavenger_openstack.tests.functional.openstack.case import BACKGROUND
from scavenger_openstack.tests.functional.openstack.case import SOON_S
from scavenger_openstack.tests.functional.openstack import cloud
from scavenger_openstack.tests.functional.openstack import limited
from scavenger_openstack.tests import tiers

RUNNING_AFTERWARDS = '2.94'
"""From the next microversion on an evacuated server is left stopped."""


@tiers.only_in_all('one test goes through a real Nova in the gate')
class Actions(limited.LimitedCase):

    def test_where_it_is(self) -> None:
        """Started again, stopped for a while, or with another disk."""
        hog = self.hog()
        for kind in ('SOFT', 'HARD'):
            self.act(hog, 'reboot', {'type': kind})
        for action, status, back in (
                ('os-stop', 'SHUTOFF', 'os-start'),
                ('suspend', 'SUSPENDED', 'resume')):
            self.cloud.act(hog, action)
            self.cloud.state(hog, status)
            self.at_rest(hog, action)
            self.act(hog, back)
        self.cloud.act(hog, 'pause')
        self.cloud.state(hog, 'PAUSED')
        self.act(hog, 'unpause')
        self.cloud.act(hog, 'rescue')
        self.cloud.state(hog, 'RESCUE')
        self.settle(hog, 'rescue')
        self.act(hog, 'unrescue')
        self.act(hog, 'rebuild', {'imageRef': self.cloud.image()})
        self.nothing_stays(hog)
        self.no_errors()

    def test_as_another_flavor(self) -> None:
        """The tag follows: another application, and the foreground."""
        hog = self.hog()
        for application in ('encode', ''):
            flavor = self.flavor({**BACKGROUND, 'scavenger:application':
                                  application} if application else None)
            what = f'resize to {application or "the foreground"}'
            before = self.host(hog)
            self.cloud.act(hog, 'resize', {'flavorRef': flavor.id})
            self.cloud.state(hog, 'VERIFY_RESIZE')
            self.assertNotEqual(before, self.host(hog))
            self.settle(hog, what, application)
            self.cloud.act(hog, 'confirmResize')
            self.cloud.state(hog, 'ACTIVE')
            self.settle(hog, f'{what}, confirmed', application)
        self.nothing_stays(hog)
        self.no_errors()

    def test_elsewhere(self) -> None:
        hog = self.hog()
        self.cloud.act(hog, 'shelve')
        self.cloud.state(hog, 'SHELVED_OFFLOADED')
        self.at_rest(hog, 'shelve')
        self.act(hog, 'unshelve')
        before = self.host(hog)
        self.cloud.act(hog, 'migrate')
        self.cloud.state(hog, 'VERIFY_RESIZE')
        self.settle(hog, 'cold migration')
        self.act(hog, 'confirmResize')
        self.assertNotEqual(before, self.host(hog))
        self.act(hog, 'os-migrateLive', {'host': None,
                                         'block_migration': 'auto'})
        self.assertEqual(before, self.host(hog))
        self.nothing_stays(hog)
        self.settle(hog, 'limits were switched on')
        name = self.domain(hog)
        self.cloud.delete(hog)
        self.cloud.wait('no tag', lambda: not self.tags(hog), SOON_S)
        self.cloud.wait('no limit', lambda: not self.caps(hog), SOON_S)
        for host in self.stack.hypervisors:
            self.cloud.wait('no lease', functools.partial(
                lambda host: not self.leased(host, hog), host), SOON_S)
            self.assertNotIn(name, host.virsh('list', '--all', '--name'))
        self.no_errors()

    def test_evacuated(self) -> None:
        """From a host whose nova-compute and guest have died; what it kept
        of the guest goes when it is back."""
        hog = self.hog()
        host, name = self.host(hog), self.domain(hog)
        source = self.stack.host(host)
        self.addCleanup(self.back, host)
        self.stack.services[host].stop(signal.SIGKILL)
        os.kill(source.qemu_pid(name), signal.SIGKILL)
        self.force_down(host, True)
        self.cloud.compute('POST', f'/servers/{hog}/action', {'evacuate': {}},
                           version=RUNNING_AFTERWARDS)
        self.cloud.active(hog)
        self.assertNotEqual(host, self.host(hog))
        self.settle(hog, 'evacuate')
        self.back(host)
        self.assertNotIn(name, source.virsh('list', '--all', '--name'))
        self.settle(hog, 'evacuate, and its old host came back')
        self.nothing_stays(hog)
        self.no_errors()

    def act(self, server: str, action: str, argument: Any = None) -> None:
        """Do what lets a server run again, and wait for all to know it."""
        self.cloud.act(server, action, argument)
        self.cloud.active(server)
        self.settle(server, action)

    def host(self, server: str) -> str:
        host: str = self.cloud.server(server)['OS-EXT-SRV-ATTR:host']
        return host

    def force_down(self, host: str, down: bool) -> None:
        self.cloud.compute(
            'PUT', f'/os-services/{self.cloud.compute_service(host)["id"]}',
            {'forced_down': down})

    def back(self, host: str) -> None:
        """Start the nova-compute of a host, if it does not run, and have Nova
        use it again."""
        if not self.stack.services[host].running:
            self.stack.begin_compute(host)

        def up() -> bool:
            try:
                self.force_down(host, False)
            except cloud.Refused:       # it still clears away what went
                return False
            return self.cloud.compute_service(host)['state'] == 'up'

        self.cloud.wait(f'Nova uses {host}', up)
