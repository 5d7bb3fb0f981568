# SPDX-License-Identifier: Apache-2.0

"""OpenStack, started and ended as one fixture.

::

    cloud = self.useFixture(stack.Stack(stack.prepared())).cloud
    cloud.compute('GET', '/servers')

All of it ends with the fixture, and with the process that has it, also when
that is killed: each program ends with its starter, and what they leave is
cleared away by processes that wait for just that.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable
from collections.abc import Mapping
import functools
import os
import pathlib
import signal
import subprocess
import time
from typing import Any

import fixtures

from scavenger_openstack.tests.functional import domain_image
from scavenger_openstack.tests.functional import hypervisor
from scavenger_openstack.tests.functional.openstack import cloud
from scavenger_openstack.tests.functional.openstack import compute
from scavenger_openstack.tests.functional.openstack import configuration
from scavenger_openstack.tests.functional.openstack import network_stub
from scavenger_openstack.tests.functional.openstack import packages
from scavenger_openstack.tests.functional.openstack import panel
from scavenger_openstack.tests.functional.openstack import product
from scavenger_openstack.tests.functional.openstack import services
from scavenger_openstack.tests.functional.servers import mariadb
from scavenger_openstack.tests.functional.servers import process
from scavenger_openstack.tests.functional.servers import rabbitmq
from scavenger_openstack.text import iso

COMMAND_S = 600.0
READY_S = 300.0
READ_S = 1.0
"""So long our API takes at most to answer nova-scheduler."""
ROOM = 4 * cloud.MEMORY_MIB * 2 ** 20
"""What guests of a test take on one host, in bytes."""
PROGRAMS = 'nova-conductor', 'nova-scheduler'
PLUGINS = 'plugins'
"""Below the top of a site: what has our package for Python."""
PROGRAMS_OF_OTHERS = 'mariadbd', 'mariadb-install-db', 'epmd', 'qemu-img'


class Site(process.Server):
    """The directory of what is not one program's; no process."""

    user = None


def prepared(say: Callable[[str], None] = lambda line: None
             ) -> pathlib.Path:
    """See to all that a stack needs; the directory of its programs.

    :param say: gets a line when it takes a while
    :raises packages.Unavailable: there can be none; why, and what to do.
    """
    if why := hypervisor.unavailable():
        raise packages.Unavailable(why)
    try:
        for program in PROGRAMS_OF_OTHERS:
            process.program(program)
        process.program('rabbitmq-server', rabbitmq.SCRIPTS)
        domain_image.image()
    except (process.Missing, domain_image.Unavailable) as exc:
        raise packages.Unavailable(str(exc)) from None
    return packages.environment(say)


@functools.cache
def shared() -> Stack:
    """The one of this process, for its tests one after another.

    :raises packages.Unavailable: there can be none.
    """
    found = Stack(prepared())
    found.setUp()
    atexit.register(found.cleanUp)
    return found


class Stack(fixtures.Fixture):
    """Keystone, Placement, Glance and Nova with hypervisors.

    :param environment: from :func:`prepared`
    :param hypervisors: how many, each with a nova-compute and an agent
    :param extra: more of ``nova.conf``, by section
    :param say: gets a line about each thing that has come up

    Once it is set up: ``site`` says where everything is, ``hypervisors``
    are :class:`.hypervisor.Hypervisor`, ``services`` the programs by name
    (nova-compute by its host), ``cloud`` is the administrator's client.
    ``headroom_known`` is to be false after what changes the headroom.
    """

    site: configuration.Site
    cloud: cloud.Cloud
    headroom_known: bool

    def __init__(self, environment: pathlib.Path, hypervisors: int = 2,
                 extra: Mapping[str, str] | None = None,
                 say: Callable[[str], None] = lambda line: None) -> None:
        super().__init__()
        self._environment = environment
        self._count = hypervisors
        self._extra = {**product.nova(), **(extra or {})}
        self._tell = say
        self.headroom_known = False
        self._headroom_s = 0.0
        self.services: dict[str, services.Service] = {}
        self.hypervisors: list[hypervisor.Hypervisor] = []

    def _setUp(self) -> None:
        self._began = time.monotonic()
        place = Site('openstack')
        self.addCleanup(place.close)
        database = mariadb.MariaDb()
        self.addCleanup(database.close)
        broker = rabbitmq.RabbitMq()
        self.addCleanup(broker.close)
        self.broker, self.database = broker, database
        self.say('MariaDB and RabbitMQ')
        stub = self.useFixture(network_stub.NetworkStub())
        self.site = configuration.Site(
            top=place.directory, environment=self._environment,
            ports={'neutron': stub.port, **{
                name: process.free_port()
                for name in (*services.APPLICATIONS, product.SERVICE,
                             panel.SERVICE)}},
            databases={name: database.new_database()
                       for name in configuration.DATABASES},
            broker=broker.url, extra=self._extra)
        self.plugins = packages.plugins(self.site.top / PLUGINS)
        self._configure()
        compute.prepare(self.site)
        self._fill_databases()
        self.say('the databases')
        self._begin(services.application(self.site, 'keystone',
                                         self.plugins))
        self.cloud = cloud.Cloud(self.site)
        self.cloud.make_catalog()
        self.say('Keystone')
        started = [
            *(services.application(self.site, name, self.plugins)
              for name in services.APPLICATIONS if name != 'keystone'),
            *(services.daemon(
                self.site, name, self.site.directory('nova') / 'nova.conf',
                self.plugins) for name in PROGRAMS),
            *self._control_plane()]
        self._begin(*started)
        self.say('Placement, Glance, Nova, our conductor and API')
        for _ in range(self._count):
            host = self.useFixture(hypervisor.Hypervisor())
            self.hypervisors.append(host)
        self.say('libvirt')
        self._begin(*(service for host in self.hypervisors
                      for service in (self._compute(host),
                                      self._agent(host))))
        hosts = {one.hostname for one in self.hypervisors}
        self.cloud.wait('the hypervisors are known', lambda: hosts <= {
            one['hypervisor_hostname'] for one in self.cloud.compute(
                'GET', '/os-hypervisors')['hypervisors']}, READY_S)
        self.say(f'{self._count} hypervisors: {", ".join(sorted(hosts))}')

    def panel(self) -> str:
        """Return the URL of Horizon, which the first call starts.

        :raises packages.Unavailable: it cannot be installed; why.
        """
        if panel.SERVICE not in self.services:
            self._begin(panel.service(self.site, self.plugins))
        return self.site.url(panel.SERVICE)

    def host(self, host: str) -> hypervisor.Hypervisor:
        """The one that Nova knows by this name."""
        return next(one for one in self.hypervisors if one.hostname == host)

    def agent_began(self) -> None:
        """An agent was started: what our API shows is of the one before until
        this one knows of headroom and has reported."""
        self.headroom_known = False
        self._headroom_s = time.time() + product.WINDOW_S

    def wait_for_headroom(self) -> None:
        """Return when nova-scheduler knows of headroom on all hosts: before,
        it refuses background servers."""
        if not self.headroom_known:
            since = iso(self._headroom_s)
            names = {one.hostname for one in self.hypervisors}
            self.cloud.wait('each agent has reported', lambda: names <= {
                host['name'] for host in self.cloud.interference(
                    'GET', '/v1/hosts')['hosts']
                if (host['last_seen_at'] or '') > since}, READY_S)
            self.wait_for_scheduler('each host has headroom', lambda host: (
                host['enforcing'] and not host['silent']
                and 'cpu_cores' in host['headroom']
                and host['headroom'].get('memory_bytes', 0) >= ROOM))
            self.headroom_known = True

    def wait_for_scheduler(self, what: str,
                           holds: Callable[[Mapping[str, Any]], bool]
                           ) -> None:
        """Return when nova-scheduler has read that something holds for all
        hosts, each as the summary has it."""
        names = {one.hostname for one in self.hypervisors}
        self.cloud.wait(what, lambda: names <= {
            host['name'] for host in self.cloud.interference(
                'GET', '/v1/summary')['hosts'] if holds(host)}, READY_S)
        time.sleep(product.SUMMARY_S + READ_S)

    @property
    def conductor(self) -> product.Program:
        """Ours."""
        return product.Program(
            self.services['scavenger-conductor'],
            self.site.directory('scavenger') / 'scavenger.conf')

    def agents(self) -> list[product.Program]:
        """One for each hypervisor."""
        return [product.Program(
            self.services[f'agent-{one.hostname}'],
            self.agent_directory(one.hostname) / 'scavenger.conf')
            for one in self.hypervisors]

    def agent_directory(self, host: str) -> pathlib.Path:
        """With the file of an agent, and what it keeps."""
        return self.site.top / 'agents' / host

    def configuration(self, host: str) -> pathlib.Path:
        """The file of the nova-compute of a host."""
        return self.site.directory('nova') / f'{host}.conf'

    def say(self, what: str) -> None:
        """A line about what has come up."""
        self._tell(f'{time.monotonic() - self._began:6.1f} s  {what}')

    def _begin(self, *started: services.Service) -> None:
        """Start these side by side, and wait for all."""
        for service in started:
            self.addCleanup(service.close)
            self.services[service.kind] = service
        for service in started:
            service.launch()
        for service in started:
            service.wait()

    def _compute(self, host: hypervisor.Hypervisor) -> services.Service:
        path = self.configuration(host.hostname)
        path.write_text(configuration.compute(
            self.site, host.hostname, host.uri, host.address))
        return compute.Compute(self.site, host, path, self.plugins)

    def _control_plane(self) -> list[services.Service]:
        file = self.site.directory('scavenger') / 'scavenger.conf'
        file.parent.mkdir(parents=True)
        file.write_text(product.control(self.site))
        self._commands(product.make_tables(file))
        port = self.site.ports[product.SERVICE]
        return [
            product.program('scavenger-conductor', 'conductor', file),
            product.program('scavenger-api', 'api', file, ready=lambda:
                            services.answers(
                                f'{self.site.url(product.SERVICE)}/', port))]

    def _agent(self, host: hypervisor.Hypervisor) -> services.Service:
        directory = self.agent_directory(host.hostname)
        directory.mkdir(parents=True)
        host.tree.make('/batch')
        file = directory / 'scavenger.conf'
        file.write_text(product.agent(self.site, host, directory))
        return product.program(
            f'agent-{host.hostname}', 'standalone', file, '--state-dir',
            str(directory / 'state'),
            ready=(directory / 'state/status.json').exists)

    def _configure(self) -> None:
        """Write the files; those of the computes come with them."""
        site = self.site
        for name in ('images', 'staging', 'tasks', 'locks',
                     'nova/control', 'fernet', 'credential'):
            (site.top / name).mkdir(parents=True, mode=0o700)
        for name, text in (('keystone', configuration.keystone(site)),
                           ('placement', configuration.placement(site)),
                           ('glance', configuration.glance(site)),
                           ('nova', configuration.nova(site))):
            directory = site.directory(name)
            directory.mkdir(parents=True)
            file = 'glance-api.conf' if name == 'glance' else f'{name}.conf'
            (directory / file).write_text(text)
        paste = site.environment / 'etc/nova/api-paste.ini'
        (site.directory('nova') / 'api-paste.ini').write_bytes(
            paste.read_bytes())
        (site.top / 'openrc').write_text(configuration.openrc(site))

    def _fill_databases(self) -> None:
        """Make all tables, what does not depend on each other at a time."""
        site = self.site
        programs = str(site.environment / 'bin') + '/'
        keystone = [programs + 'keystone-manage', '--config-file',
                    str(site.directory('keystone') / 'keystone.conf')]
        nova = [programs + 'nova-manage', '--config-file',
                str(site.directory('nova') / 'nova.conf')]
        keys = ['--keystone-user', 'root', '--keystone-group', 'root']
        self._commands(
            [*keystone, 'db_sync'],
            [programs + 'placement-manage', '--config-file',
             str(site.directory('placement') / 'placement.conf'), 'db',
             'sync'],
            [programs + 'glance-manage', '--config-file',
             str(site.directory('glance') / 'glance-api.conf'), 'db_sync'],
            [*nova, 'api_db', 'sync'],
            [*keystone, 'fernet_setup', *keys],
            [*keystone, 'credential_setup', *keys])
        bootstrap = [word for kind in ('admin', 'public', 'internal')
                     for word in (f'--bootstrap-{kind}-url', site.keystone)]
        self._commands(
            [*keystone, 'bootstrap', '--bootstrap-password',
             configuration.PASSWORD,
             '--bootstrap-region-id', configuration.REGION, *bootstrap],
            [*nova, 'cell_v2', 'map_cell0', '--database_connection',
             site.databases['nova_cell0']])
        self._commands([*nova, 'cell_v2', 'create_cell', '--name', 'cell1'])
        self._commands([*nova, 'db', 'sync'])

    def _commands(self, *commands: list[str]) -> None:
        """Run them side by side.

        :raises RuntimeError: one failed, with its last lines.
        """
        running: list[tuple[list[str], pathlib.Path,
                            subprocess.Popen[bytes]]] = []
        try:
            for command in commands:
                log = self.site.top / f'command-{len(running)}.log'
                with open(log, 'wb') as out:
                    running.append((command, log, subprocess.Popen(
                        ['setpriv', '--pdeathsig', 'KILL', '--',
                         *command],
                        stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                        env={**services.environment(self.site, self.plugins),
                             'HOME': str(self.site.top), 'LC_ALL': 'C.UTF-8'},
                        cwd=self.site.top)))
            deadline = time.monotonic() + COMMAND_S
            for command, log, one in running:
                if one.wait(max(0.1, deadline - time.monotonic())):
                    raise RuntimeError(
                        f'{" ".join(command[:6])} ended with '
                        f'{one.returncode}: {log.read_text()[-2000:]}')
        finally:
            for _, _, one in running:
                if one.poll() is None:
                    one.kill()
                    one.wait()

    def restart_compute(self, host: str) -> None:
        """As after a crash, with what its file says now."""
        service = self.services[host]
        service.stop(signal.SIGKILL)
        self.begin_compute(host)

    def begin_compute(self, host: str) -> None:
        """Start one that was stopped, and wait until it says that it is
        there."""
        before = self.cloud.reported(host)
        self.services[host].begin()
        self.cloud.wait(f'the nova-compute of {host} has started', lambda:
                        self.cloud.reported(host) > before, READY_S)

    def pids(self) -> dict[str, list[int]]:
        """The processes of each program."""
        return {'mariadb': self.database.pids, 'rabbitmq': self.broker.pids,
                **{name: one.pids for name, one in self.services.items()},
                **{one.hostname + ' libvirtd': [one.pid]
                   for one in self.hypervisors}, 'this': [os.getpid()]}
