# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""What becomes of Nova's boots when what is ours is broken."""

from __future__ import annotations

import contextlib
import functools

from scavenger_openstack.tests.functional.openstack import case
from scavenger_openstack.tests.functional.openstack.case import BACKGROUND
from scavenger_openstack.tests.functional.openstack.case import SOON_S
from scavenger_openstack.tests.functional.openstack import product
from scavenger_openstack.tests.functional.openstack import watching
from scavenger_openstack.tests.functional.servers import rabbitmq

BOUND_S = 0.05
"""So long it may keep Nova at most."""

NOT_SENT = 'The priority of an instance is not sent'


class Notifier(case.Case):

    def test_boots_go_on(self) -> None:
        """On a host whose notifier has a broker of its own: without Nova's,
        nothing boots at all."""
        if not product.has_novaclient():
            self.skipTest('needs python-novaclient')
        host = self.stack.hypervisors[0].hostname
        broker = rabbitmq.RabbitMq()
        self.addCleanup(broker.close)
        compute = self.stack.services[host]
        watched = self.useFixture(watching.Watched(
            self.stack, host, options=f'transport_url = {broker.url}'))
        began = compute.log.stat().st_size
        for what, fault in (
                ('all is well', contextlib.nullcontext()),
                ('the broker hangs', watching.frozen(broker)),
                ('the broker is down', watching.down(broker)),
                ('our code raises', watched.failing()),
                ('the broker is back', contextlib.nullcontext())):
            with fault:
                server = self.boot('batch', BACKGROUND, host=host)
                calls = self.cloud.wait(
                    f'the end of a boot, when {what}',
                    functools.partial(watched.boot, server), SOON_S)
            self.assertEqual({''}, {one.raised for one in calls}, what)
            self.assertLess(max(one.blocked_s for one in calls), BOUND_S,
                            f'{what}: {calls}')
            tags = self.cloud.wait(
                f'Nova tells the conductor, when {what}',
                functools.partial(self.tags, server), SOON_S)
            self.assertEqual([('background', 'render', host)], tags)
            self.cloud.delete(server)
        with open(compute.log, errors='replace') as log:
            log.seek(began)
            said = log.read()
        self.assertIn(f'{NOT_SENT}, the conductor learns it from Nova later: '
                      'RuntimeError: a fault of a test', said)

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
