# SPDX-License-Identifier: Apache-2.0

"""The devstack plugin in a real OpenStack.

Keystone, the database, Nova's scheduler and its flavors lack what the plugin
brings; nova-compute has it.  Its phases have the stand-ins of
:mod:`.devstack`; what they ask of Keystone and of systemd is done here.
"""

from __future__ import annotations

import dataclasses
import os
import re
import socket
from typing import Any

from scavenger_openstack.tests.functional import devstack
from scavenger_openstack.tests.functional.openstack import case
from scavenger_openstack.tests.functional.openstack.case import BACKGROUND
from scavenger_openstack.tests.functional.openstack.case import SOON_S
from scavenger_openstack.tests.functional.openstack import configuration
from scavenger_openstack.tests.functional.openstack import product
from scavenger_openstack.tests.functional.openstack import services
from scavenger_openstack.tests.functional.openstack import watching
from scavenger_openstack.tests.functional.servers import process
from scavenger_openstack.tests import tiers

OURS = 'scavenger-conductor', 'scavenger-api'
SERVICES = 'keystone,nova,n-api'
FLAVORS = {'1x96': 'background.1x96'}
NO_HOST = 'No valid host'
FILTERED = 'Filter BackgroundFilter returned 0 hosts'
MORE_THAN_THERE_ARE = (os.cpu_count() or 1) + 1
OUR_SECTION = re.compile(r'^\[scavenger\]\n.*?(?=^\[|\Z)', re.M | re.S)

ENV = re.compile(r'^env = (\w+)=(.*)$', re.M)

LOCAL = """
[nova]
interval_s = 2
[placement]
interval_s = 2
smooth_s = 2
[conductor]
sync_s = 1
"""
"""What a user has in local.conf, which devstack adds to our file."""


@tiers.only_in_all('one test goes through a real Nova in the gate')
class Devstack(case.Case):

    def setUp(self) -> None:
        super().setUp()
        if not product.has_novaclient():
            self.skipTest('needs python-novaclient')
        self.addCleanup(setattr, self.stack, 'headroom_known', False)
        for name in OURS:
            self.stack.services[name].stop()
            self.addCleanup(self.stack.services[name].begin)
        self.addCleanup(self.cloud.read_catalog)
        self.addCleanup(self.cloud.make_service, product.SERVICE)
        self.addCleanup(self.cloud.forget_service, product.SERVICE)
        self.cloud.forget_service(product.SERVICE)
        self.devstack = self.useFixture(devstack.Devstack())
        self.devstack.nova.write_text(OUR_SECTION.sub('', configuration.nova(
            dataclasses.replace(self.site, extra={})))
            + f'[scavenger]\nsummary_s = {product.SUMMARY_S:g}\n')
        self.port = process.free_port()
        self.variables = {
            'SERVICE_HOST': f'127.0.0.1:{self.port}',
            'KEYSTONE_SERVICE_URI': self.site.url('keystone'),
            'TRANSPORT_URL': self.site.broker,
            'DATABASE_URL': self.stack.database.new_database(),
            'SCAVENGER_FLAVORS': ' '.join(FLAVORS)}

    def phase(self, *words: str) -> list[list[str]]:
        """What it asked devstack to do, word by word."""
        return [call.split() for call in self.devstack.phase(
            *words, services=SERVICES, **self.variables)]

    def test_phases(self) -> None:
        for call in self.phase('stack', 'post-config'):
            self.register(*call)
        self.cloud.read_catalog()
        with open(self.devstack.etc / 'scavenger.conf', 'a') as file:
            file.write(LOCAL)
        self.addCleanup(self.delete_flavors)
        started = [self.start(*words[1:])
                   for words in self.phase('stack', 'extra')]
        self.flavors_are_there()
        for one in started:
            one.wait()
        names = {socket.gethostname(),
                 *(one.hostname for one in self.stack.hypervisors)}
        self.cloud.wait('our API shows all hosts', lambda: names <= {
            one['name'] for one in self.cloud.interference(
                'GET', '/v1/hosts')['hosts']}, SOON_S)
        self.scheduled()
        for one in started:
            one.stop()
        self.assertEqual(
            sorted(one.kind for one in started),
            sorted(words[1] for words in self.phase('unstack')))
        self.phase('clean')
        self.assertFalse(self.devstack.etc.exists())
        self.assertFalse(self.devstack.state.exists())

    def register(self, function: str, *words: str) -> None:
        """What devstack's functions do with Keystone."""
        if function == 'create_service_user':
            self.cloud.make_user(words[0], 'service', 'service', *words[1:])
        elif function == 'get_or_create_service':
            self.made = self.cloud.make_type(*words[:2])
        elif function == 'get_or_create_endpoint':
            self.assertEqual(configuration.REGION, words[1])
            self.cloud.make_endpoint(self.made, 'public', words[2])

    def start(self, name: str, *command: str) -> services.Service:
        """What its systemd does."""
        ready = {
            'scavenger-api': lambda: services.answers(
                f'http://127.0.0.1:{self.port}/interference/', self.port),
            'scavenger-agent': (self.devstack.state / 'status.json').exists}
        if command[-2:] == ('root', 'root'):
            command = command[:-2]
        variables = {one: os.environ[one] for one in ('PATH', 'PYTHONPATH')
                     if one in os.environ}
        if name == 'scavenger-api':
            # uWSGI as a module of Python begins when that has read them.
            variables.update(ENV.findall(
                (self.devstack.etc / 'scavenger-uwsgi.ini').read_text()))
        service = services.Service(name, command, variables,
                                   ready.get(name, services.at_once))
        self.addCleanup(service.close)
        self.stack.services[name + ' of devstack'] = service
        self.addCleanup(self.stack.services.pop, name + ' of devstack')
        service.launch()
        return service

    def flavors_are_there(self) -> None:
        made = self.made_flavors()
        for name in FLAVORS.values():
            self.assertEqual('background', made[name]['extra_specs'][
                'scavenger:priority'])
            self.assertTrue(made[name]['os-flavor-access:is_public'])

    def made_flavors(self) -> dict[str, Any]:
        return {one['name']: one for one in self.cloud.compute(
            'GET', '/flavors/detail?is_public=None')['flavors']
            if one['name'] in FLAVORS.values()}

    def delete_flavors(self) -> None:
        for one in self.made_flavors().values():
            self.cloud.compute('DELETE', f'/flavors/{one["id"]}')

    def scheduled(self) -> None:
        """nova-scheduler has our filter, and it asks this API."""
        scheduler = self.stack.services['nova-scheduler']
        self.addCleanup(watching.restart_with, scheduler, scheduler.command)
        watching.restart_with(scheduler, [
            scheduler.command[0], '--config-file', str(self.devstack.nova)])
        began = scheduler.log.stat().st_size
        self.stack.headroom_known = False
        self.stack.wait_for_headroom()
        self.boot('batch', BACKGROUND)
        self.boot('web')
        self.assertNotIn(FILTERED, watching.since(scheduler, began))
        self.assertIn(NO_HOST, self.refused(self.flavor(
            {'scavenger:priority': 'background', 'resources:VCPU': '0'},
            MORE_THAN_THERE_ARE)))
        self.assertIn(FILTERED, watching.since(scheduler, began))
