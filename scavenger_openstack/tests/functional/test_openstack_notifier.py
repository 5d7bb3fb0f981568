# SPDX-License-Identifier: Apache-2.0

"""What nova-compute tells the conductor, and what becomes of Nova's boots when
what is ours is broken."""

from __future__ import annotations

import functools

from scavenger_openstack.tests.functional.openstack import case
from scavenger_openstack.tests.functional.openstack.case import BACKGROUND
from scavenger_openstack.tests.functional.openstack.case import SOON_S
from scavenger_openstack.tests.functional.openstack import product
from scavenger_openstack.tests.functional.openstack import services
from scavenger_openstack.tests.functional.openstack import watching
from scavenger_openstack.tests.functional.servers import rabbitmq
from scavenger_openstack.tests import tiers

BOUND_S = 0.05
"""So long it may keep Nova at most."""

NOT_SENT = 'The priority of an instance is not sent'


@tiers.only_in_all('one test goes through a real Nova in the gate')
class Notifier(case.Case):

    watched: watching.Watched

    def test_boots_go_on(self) -> None:
        """On a host whose notifier has a broker of its own, with a conductor:
        without Nova's, nothing boots at all.

        Meanwhile no conductor reads from Nova; what was lost is there once
        one does.
        """
        if not product.has_novaclient():
            self.skipTest('needs python-novaclient')
        host, other = (one.hostname for one in self.stack.hypervisors)
        broker = rabbitmq.RabbitMq()
        self.addCleanup(broker.close)
        conductor = self.conductor(broker.url)
        compute = self.stack.services[host]
        self.watched = self.useFixture(watching.Watched(
            self.stack, host, options=f'transport_url = {broker.url}'))
        began = compute.log.stat().st_size
        with watching.not_reconciling(self.stack):
            self.tells_of_boot_and_deletion(other)
            servers = [self.boot_on(host, 'all is well')]
            self.told(servers[0], host)
            for what, fault in (
                    ('the broker hangs', watching.frozen(broker)),
                    ('the broker is down', watching.down(broker)),
                    ('our code raises', self.watched.failing())):
                with fault:
                    servers.append(self.boot_on(host, what))
            watching.restart(product.TAKEN, conductor)  # connects at once
            servers.append(self.boot_on(host, 'the broker is back'))
            self.told(servers[-1], host)
        for server in servers:
            self.told(server, host)
        self.assertIn(f'{NOT_SENT}, the conductor learns it from Nova later: '
                      'RuntimeError: a fault of a test',
                      watching.since(compute, began))

    def conductor(self, broker: str) -> services.Service:
        """One more, on another broker; it works."""
        file = self.site.top / 'conductor-of-tags.conf'
        file.write_text(product.conductor_of_tags(self.site, broker))
        found = product.program('conductor-of-tags', 'conductor', file)
        self.addCleanup(found.close)
        watching.restart(product.TAKEN, found)
        return found

    def boot_on(self, host: str, what: str) -> str:
        """Boot a server on the host that is watched: its notifier keeps Nova
        for no longer than it may, and raises nothing."""
        server = self.boot('batch', BACKGROUND, host=host)
        calls = self.cloud.wait(
            f'the end of a boot, when {what}',
            functools.partial(self.watched.boot, server), SOON_S)
        self.assertEqual({''}, {one.raised for one in calls}, what)
        self.assertLess(max(one.blocked_s for one in calls), BOUND_S,
                        f'{what}: {calls}')
        return server

    def told(self, server: str, host: str) -> None:
        """Wait until the conductor knows what a server is."""
        tags = self.cloud.wait('the tag', lambda: self.tags(server), SOON_S)
        self.assertEqual([('background', 'render', host)], tags)

    def tells_of_boot_and_deletion(self, host: str) -> None:
        """On a host as shipped: over Nova's own broker."""
        server = self.boot('batch', BACKGROUND, host=host)
        self.told(server, host)
        self.cloud.act(server, 'os-stop')
        self.cloud.state(server, 'SHUTOFF')
        self.cloud.delete(server)
        self.cloud.wait('no tag', lambda: not self.tags(server), SOON_S)

    def test_our_api(self) -> None:
        """The scheduler asks it, of both hosts."""
        api = self.stack.services['scavenger-api']
        for fault in (watching.hanging(api), watching.down(api)):
            with fault:
                for name, specs in (('web', None), ('batch', BACKGROUND)):
                    found = self.cloud.boot(name, self.flavor(specs))
                    self.addCleanup(self.cloud.delete, found)
                    self.cloud.active(found, SOON_S)
                    self.cloud.delete(found)
        self.cloud.wait('our API answers', lambda: self.cloud.interference(
            'GET', '/v1/summary')['hosts'], SOON_S)
