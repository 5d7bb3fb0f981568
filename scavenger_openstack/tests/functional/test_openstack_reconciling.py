# SPDX-License-Identifier: Apache-2.0

"""What the conductor reads from Nova, in a real OpenStack."""

from __future__ import annotations

import uuid

from sqlalchemy import delete

from scavenger_openstack.db import connect
from scavenger_openstack.db import tables
from scavenger_openstack.tests.functional.openstack import case
from scavenger_openstack.tests.functional.openstack.case import BACKGROUND
from scavenger_openstack.tests.functional.openstack.case import SOON_S
from scavenger_openstack.tests.functional.openstack import cloud
from scavenger_openstack.tests.functional.openstack import product
from scavenger_openstack.tests import tiers


@tiers.only_in_all('one test goes through a real Nova in the gate')
class Reconciling(case.Case):

    def setUp(self) -> None:
        super().setUp()
        if not product.has_novaclient():
            self.skipTest('needs python-novaclient')

    def test_a_tag_that_was_lost(self) -> None:
        hog = self.boot('hog', BACKGROUND)
        host = self.cloud.server(hog)['OS-EXT-SRV-ATTR:host']
        tags = [('background', 'render', host)]
        self.cloud.wait('the tag', lambda: self.tags(hog) == tags, SOON_S)
        self.lose_tag(hog)
        self.cloud.wait('the tag again', lambda: self.tags(hog) == tags,
                        SOON_S)
        self.cloud.delete(hog)
        self.cloud.wait('no tag', lambda: not self.tags(hog), SOON_S)

    def lose_tag(self, server: str) -> None:
        engine = connect.engine(self.site.databases['scavenger'])
        self.addCleanup(engine.dispose)
        with connect.writing(engine) as connection:
            connection.execute(delete(tables.flavor_tags).where(
                tables.flavor_tags.c.instance == server))

    def test_a_flavor_and_a_project_that_are_deleted(self) -> None:
        """Their servers go on as what they were made."""
        owner = self.cloud.in_new_project(f'gone-{uuid.uuid4().hex[:8]}')
        flavor = self.cloud.flavor(f'gone-{uuid.uuid4().hex[:8]}', BACKGROUND)
        hog = owner.boot('hog', flavor)
        self.addCleanup(self.cloud.delete, hog)
        found = owner.active(hog)
        project, host = found['tenant_id'], found['OS-EXT-SRV-ATTR:host']
        tags = [('background', 'render', host)]
        self.cloud.wait('the tag', lambda: self.tags(hog) == tags, SOON_S)
        self.cloud.compute('DELETE', f'/flavors/{flavor.id}')
        self.cloud.identity('DELETE', f'/projects/{project}')
        self.lose_tag(hog)
        self.cloud.wait('the tag again', lambda: self.tags(hog) == tags,
                        SOON_S)
        shown = self.workload(hog)
        self.assertEqual(('background', f'{project}/render'),
                         (shown['priority'], shown['application']))

    def test_a_server_group_is_an_application(self) -> None:
        # Whatever it is called, and whatever tags say.
        name = f'scavenger:priority=background-{uuid.uuid4().hex[:8]}'
        group = self.cloud.compute('POST', '/os-server-groups', {
            'server_group': {'name': name, 'policy': 'anti-affinity'}}
            )['server_group']['id']
        self.addCleanup(self.cloud.compute, 'DELETE',
                        f'/os-server-groups/{group}')
        web = self.boot('web', hints={'group': group},
                        tags=['scavenger:priority=background'])
        host = self.cloud.server(web)['OS-EXT-SRV-ATTR:host']
        self.cloud.wait('its application', lambda: self.tags(web) == [
            ('foreground', name, host)], SOON_S)
        self.cloud.wait('its agent knows', lambda: self.workload(web)[
            'application'].endswith('/' + name), SOON_S)
        self.assertEqual('foreground', self.workload(web)['priority'])

    def test_a_stack_is_an_application(self) -> None:
        """As Heat's templates write it; it is no way to a priority."""
        name = str(uuid.uuid4())
        web = self.boot('web', metadata={
            'metering.stack': name, 'scavenger:priority': 'background'})
        host = self.cloud.server(web)['OS-EXT-SRV-ATTR:host']
        self.cloud.wait('its application', lambda: self.tags(web) == [
            ('foreground', name, host)], SOON_S)
        self.cloud.wait('its agent knows', lambda: self.workload(web)[
            'application'].endswith('/' + name), SOON_S)
        self.assertEqual('foreground', self.workload(web)['priority'])

    def test_a_host_aggregate(self) -> None:
        """Its hosts, and the priority of instances whose flavor says
        none."""
        web = self.boot('web')
        host = self.cloud.server(web)['OS-EXT-SRV-ATTR:host']
        name = f'batch-{uuid.uuid4().hex[:8]}'
        made = self.cloud.compute('POST', '/os-aggregates', {
            'aggregate': {'name': name}})['aggregate']['id']
        self.addCleanup(self.cloud.compute, 'DELETE',
                        f'/os-aggregates/{made}')
        self.change(made, 'add_host', host=host)
        self.addCleanup(self.change, made, 'remove_host', host=host)
        self.cloud.wait('its host', lambda: self.hosts(name) == [host],
                        SOON_S)
        self.change(made, 'set_metadata', metadata={
            'scavenger:priority': 'background'})
        self.cloud.wait('its priority', lambda: self.workload(web)[
            'priority'] == 'background', SOON_S)
        self.assertEqual(
            [({'hosts': 0}, {'hosts': 1, 'added': [host]})],
            [(one['before'], one['after']) for one in self.cloud.interference(
                'GET', f'/v1/audit?actor=nova&target={name}')['audit']])
        self.change(made, 'set_metadata', metadata={
            'scavenger:priority': None})
        self.cloud.wait('its priority before', lambda: self.workload(web)[
            'priority'] == 'foreground', SOON_S)

    def change(self, aggregate: int, action: str, **more: object) -> None:
        self.cloud.compute('POST', f'/os-aggregates/{aggregate}/action',
                           {action: more})

    def hosts(self, aggregate: str) -> list[str]:
        """Those of an aggregate, as our API has them."""
        try:
            found: list[str] = self.cloud.interference(
                'GET', f'/v1/aggregates/{aggregate}')['aggregate']['hosts']
        except cloud.Refused:
            return []
        return found
