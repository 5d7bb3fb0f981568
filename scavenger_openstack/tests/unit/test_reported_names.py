# SPDX-License-Identifier: Apache-2.0

"""What a host calls its work, over the control plane and back."""

from __future__ import annotations

import pathlib
import time
import urllib.parse

import fixtures

from scavenger_openstack.agent.control_plane import sync as agent
from scavenger_openstack.agent.events import store
from scavenger_openstack.algorithms.cpi2 import cpi2
from scavenger_openstack.conductor import directives
from scavenger_openstack.conductor import sync as conductor
from scavenger_openstack.db import claims
from scavenger_openstack.db import connect
from scavenger_openstack.db import directives as rows
from scavenger_openstack.db import generation
from scavenger_openstack.db import tables
from scavenger_openstack.decision import orders
from scavenger_openstack.tests.unit.api import cloud
from scavenger_openstack.text import iso
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import THE_BACKGROUND
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates
from scavenger_openstack.types import WorkloadSample
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import fit
from scavenger_openstack.wire import report

HOST, BOOT = 'node-odd', 'boot'
LONG = '/docker/' + 'c' * 64 + '/kubelet' + '/kubepods' * 25 + '/ab123'
OTHER = LONG[:-1] + '4'
PROJECT = 'p' * 70
CPU_MODEL = 'an old CPU '
NAMES = (LONG, OTHER, '/batch/a', '/batch/a ', '/batch/b\udcff',
         '/batch/\ufffd', r'/batch/c\x2d')

VMS = tuple(f'{number}6666666-7777-4888-8999-aaaaaaaaaaaa'
            for number in range(5))


class Odd(cloud.Api):
    """An agent of containers with odd names, and one with an application,
    a conductor and an API on one database."""

    def setUp(self) -> None:
        super().setUp()
        self.wishes = directives.Wishes()
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.agent = agent.make(
            self.answer, directory, store.Store(
                directory / 'history', 2 ** 20, 2 ** 20), host=HOST,
            boot_id=BOOT, version='1', sync_s=10.0)
        self.addCleanup(self.agent.store.close)
        self.workloads = [
            *(Workload(name, Priority.BACKGROUND) for name in NAMES),
            # As many as make a specification.
            *(Workload(name, Priority.BACKGROUND, project=PROJECT,
                       application=f'{PROJECT}/web ', instance=name)
              for name in VMS)]
        self.rates = Rates(1.0, 1.0, tuple(
            WorkloadRates(one, 1.0) for one in self.workloads))
        self.turn()

    def answer(self, data: bytes) -> bytes:
        told = codec.decode(data, report.Report, report.MAX_REPORT_BYTES)
        with connect.writing(self.engine) as connection:
            return codec.encode(conductor.sync(
                connection, told, time.time(), wishes=self.wishes))

    def turn(self) -> None:
        self.agent.update(HostSample(
            HOST, BOOT, 1.0, time.time(), tuple(
                map(WorkloadSample, self.workloads)), CPU_MODEL), {}, (), {})
        self.assertTrue(self.agent.turn())

    def override(self, name: str, knob: str = 'cpu_cores',
                 method: str = 'PUT') -> None:
        self.ok(method, f'/v1/caps/{HOST}/{knob}/'
                + urllib.parse.quote(name, safe=''), None
                if method == 'DELETE' else {
                    'value': 0.5, 'reason': 'asked',
                    'expires_at': iso(cloud.NOW_S + 3600)})

    def limited(self) -> list[str]:
        self.turn()
        found = orders.resolve(1.0, self.rates, self.agent.orders)
        self.assertEqual({}, found.refused)
        return [name for name, _ in found.overrides]

    def test_overrides_of_names_that_are_shown(self) -> None:
        shown = [row['id'] for row in self.ok(
            'GET', f'/v1/workloads?host={HOST}')['workloads']]
        self.assertEqual(set(map(fit.name, NAMES)), set(shown) - {*VMS})
        by_name = {fit.name(name): name for name in NAMES}
        for name in sorted(by_name):
            self.override(name)
            self.assertEqual([by_name[name]], self.limited())
            [found] = self.ok('GET', '/v1/caps/overrides?host='
                              + HOST)['overrides']
            self.assertEqual(name, found['workload'])
            self.override(name, method='DELETE')

    def test_overrides_of_names_as_the_host_has_them(self) -> None:
        for name in NAMES:
            if name != fit.name(name) and name.isprintable() and (
                    '\ufffd' not in name):
                self.override(name)
                self.assertEqual([name], self.limited())
                self.override(name, method='DELETE')

    def test_an_exempt_project(self) -> None:
        [project] = {row['project'] for row in self.ok(
            'GET', f'/v1/workloads?host={HOST}')['workloads']} - {''}
        self.ok('POST', '/v1/exemptions', {
            'scope': 'project', 'target': project, 'reason': 'asked'})
        self.turn()
        # What all background work has together is limited for none, too.
        self.assertEqual({*VMS, THE_BACKGROUND}, orders.exempt(
            self.workloads, self.agent.orders))

    def test_what_an_application_usually_is(self) -> None:
        """Of another name it would be that of no workload."""
        with connect.writing(self.engine) as connection:
            vm = connection.execute(tables.workloads.select().where(
                tables.workloads.c.instance == VMS[0])).mappings().one()
            connection.execute(tables.workloads.insert(), [
                {**vm, 'id': vm['id'] + 1000 + i, 'name': f'other {i}'}
                for i in range(cpi2.Params().min_tasks - 1)])
            [cpu_model] = connection.execute(
                tables.hosts.select().where(tables.hosts.c.name == HOST)
                .with_only_columns(tables.hosts.c.facts)).one()
            connection.execute(tables.specs.insert().values(
                project=vm['project'], application=vm['application'],
                cpu_model=cpu_model['cpu_model'], signal='cpi', mean=1.5,
                stddev=0.1, n=10 ** 6, m2=10 ** 4, day_s=0))
            claims.count(connection, rows.SPECS_CHANGED)
            generation.count(connection)
        self.turn()
        detector = cpi2.Controller(cpi2.Params())
        detector.compare(self.agent.orders.specs)
        detector.step(1.0, Rates(1.0, 1.0, (), cpu_model=CPU_MODEL))
        found = detector.spec(VMS[0], (PROJECT, f'{PROJECT}/web '))
        assert found is not None
        self.assertEqual((1.5, 'directive'), (found.mean, found.source))
