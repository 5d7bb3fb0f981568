# SPDX-License-Identifier: Apache-2.0

"""What tests on the one OpenStack of their process have in common."""

from __future__ import annotations

import contextlib
from typing import Any
import uuid

from keystoneauth1 import exceptions
from sqlalchemy import select
import testtools
from testtools import content

from scavenger_openstack.db import connect
from scavenger_openstack.db import tables
from scavenger_openstack.tests.functional.openstack import cloud as cloud_
from scavenger_openstack.tests.functional.openstack import packages
from scavenger_openstack.tests.functional.openstack import stack

BACKGROUND = {'scavenger:priority': 'background',
              'scavenger:application': 'render',
              'scavenger:floor_memory_mb': '64',
              'resources:CUSTOM_BACKGROUND_VCPU': '0'}
"""Extra specs; a machine of tests seldom has a CPU that is idle, so memory
alone decides where such a server goes."""

LOG_CHARS = 6000

SOON_S = 60.0
"""What takes seconds; a busy machine may take longer."""


class Case(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        try:
            self.stack = stack.shared()
        except packages.Unavailable as exc:
            self.skipTest(str(exc))
        self.cloud = self.stack.cloud
        self.site = self.stack.site
        self.addOnException(self._attach)
        self.stack.wait_for_headroom()

    def _attach(self, exc_info: object) -> None:
        """Our programs' logs, and what agents say of their hosts."""
        for name, one in self.stack.services.items():
            said = one.log.read_text(errors='replace')
            if name.startswith(('agent-', 'scavenger-')):
                self.addDetail(name, content.text_content(said[-LOG_CHARS:]))
            elif errors := [line for line in said.splitlines()
                            if ' ERROR ' in line]:
                self.addDetail(f'errors of {name}', content.text_content(
                    '\n'.join(errors)[-LOG_CHARS:]))
        with contextlib.suppress(cloud_.Refused, exceptions.ClientException):
            self.addDetail('hosts', content.text_content(str(
                self.cloud.interference('GET', '/v1/hosts'))))

    def flavor(self, specs: dict[str, str] | None = None, vcpus: int = 1
               ) -> cloud_.Flavor:
        found = self.cloud.flavor(f'flavor-{uuid.uuid4().hex[:8]}', specs,
                                  vcpus)
        self.addCleanup(self.cloud.compute, 'DELETE', f'/flavors/{found.id}')
        return found

    def boot(self, name: str, specs: dict[str, str] | None = None,
             cloud: cloud_.Cloud | None = None, vcpus: int = 1, **more: Any
             ) -> str:
        """A server that runs."""
        cloud = cloud or self.cloud
        found = cloud.boot(name, self.flavor(specs, vcpus), **more)
        self.addCleanup(cloud.delete, found)
        cloud.active(found)
        return found

    def refused(self, flavor: cloud_.Flavor) -> str:
        """Why no server of a flavor starts."""
        found = self.cloud.boot('refused', flavor)
        self.addCleanup(self.cloud.delete, found)
        return self.assertRaises(cloud_.Refused, self.cloud.active,
                                 found).text

    def workload(self, server: str) -> dict[str, Any]:
        """How our API shows a server, once its agent knows it."""
        found: dict[str, Any] = self.cloud.wait(
            f'{server} is known', lambda: next(iter(self.cloud.interference(
                'GET', f'/v1/workloads?instance={server}')['workloads']),
                None), SOON_S)
        return found

    def protect(self, enabled: bool) -> None:
        """Switch all limits of the cloud on or off."""
        self.stack.headroom_known = False
        self.cloud.interference('PUT', '/v1/protection', {
            'scope': 'cloud', 'target': '', 'enabled': enabled,
            'reason': 'a test'})

    def tags(self, server: str) -> list[tuple[str, str, str]]:
        """What nova-compute has told of a server."""
        engine = connect.engine(self.site.databases['scavenger'])
        try:
            with connect.reading(engine) as connection:
                table = tables.flavor_tags.c
                return [tuple(row) for row in connection.execute(select(
                    table.priority, table.application, table.host).where(
                        table.instance == server))]
        finally:
            engine.dispose()
