# SPDX-License-Identifier: Apache-2.0

"""Interference profiles: stored, shown, refused, and in the summary."""

from __future__ import annotations

import json
import tempfile
import threading
from typing import Any

from sqlalchemy import insert
from sqlalchemy import select
from sqlalchemy import update
from werkzeug.test import Client

from scavenger_openstack.api import app
from scavenger_openstack.api import policies
from scavenger_openstack.db import connect
from scavenger_openstack.db.resources import profiles
from scavenger_openstack.db import tables
from scavenger_openstack.tests.unit.api import cloud
from scavenger_openstack.wire import profile

URL = '/v1/profiles'
ESTIMATE = cloud.estimate(0.25)


class Profiles:
    """On whatever database :attr:`engine` is."""

    engine: Any
    ok: Any
    refused: Any
    audited: Any
    call: Any
    assertEqual: Any
    assertIn: Any
    assertIsNone: Any
    assertLess: Any
    assertNotIn: Any
    later_s: float

    def ids(self, query: str = '', **role: str) -> list[str]:
        return [row['id'] for row in self.ok('GET', URL + query, **role)[
            'profiles']]

    def test_a_profile_that_is_stored(self) -> None:
        """Comes back field by field."""
        made = self.ok('POST', URL, {**cloud.profile(), 'reason': 'why'})[
            'profile']
        self.assertEqual({
            **cloud.profile(), 'id': made['id'], 'created_by': 'ann',
            'created_at': cloud.at(0), 'stale_at': None}, made)
        self.assertEqual(made, self.ok('GET', f'{URL}/{made["id"]}')[
            'profile'])
        self.assertEqual(made, self.ok('GET', f'{URL}?target=db')[
            'profiles'][0])
        entry = self.audited()[0]
        self.assertEqual(
            ('profile.set', f'application/{cloud.ONE}/db', None, made,
             'why'), tuple(entry[name] for name in (
                 'action', 'target', 'before', 'after', 'reason')))

    def test_what_is_left_out(self) -> None:
        body = cloud.profile()
        for name in ('project', 'form', 'host', 'qos', 'tolerated',
                     'missing'):
            del body[name]
        made = self.ok('POST', URL, body)['profile']
        self.assertEqual(('', 'long', '', None, {}, {}), tuple(
            made[name] for name in ('project', 'form', 'host', 'qos',
                                    'tolerated', 'missing')))

    def test_a_newer_profile_replaces_an_older_one(self) -> None:
        """Which then is in the audit alone; one of another project or kind
        stays."""
        first = self.ok('POST', URL, cloud.profile())['profile']
        others = [self.ok('POST', URL, cloud.profile(**changes))['profile']
                  for changes in ({'project': ''}, {'kind': 'flavor'},
                                  {'target': 'Db'})]
        second = self.ok('POST', URL, cloud.profile(
            tolerated={'tlb': ESTIMATE}))['profile']
        self.assertEqual(first['id'], second['id'])
        self.assertEqual({'tlb': ESTIMATE}, second['tolerated'])
        entry = self.audited()[0]
        self.assertEqual((first, second), (entry['before'], entry['after']))
        self.assertEqual(
            [second['id'], *(row['id'] for row in reversed(others))],
            self.ids()[:4])

    def test_no_estimate_replaces_what_was_measured(self) -> None:
        estimated = cloud.profile(source='estimated')
        del estimated['qos']
        estimate = self.ok('POST', URL, estimated)['profile']
        self.assertEqual(estimate['id'], self.ok('POST', URL, estimated)[
            'profile']['id'])
        measured = self.ok('POST', URL, cloud.profile())['profile']
        self.assertEqual((estimate['id'], 'measured'),
                         (measured['id'], measured['source']))
        before = len(self.audited())
        error = self.refused(409, 'POST', URL, estimated)
        self.assertEqual('source', error['field'])
        self.assertEqual(measured, self.ok(
            'GET', f'{URL}/{measured["id"]}')['profile'])
        self.assertEqual(before, len(self.audited()))

    def test_what_a_conductor_stores(self) -> None:
        """Is refused in the same way, without an exception."""
        with connect.writing(self.engine) as connection:
            def set_(**changes: Any) -> profiles.Change | None:
                return profiles.set_profile(
                    connection, profile.of_json(cloud.profile(**changes)),
                    created_by='conductor', now_s=cloud.NOW_S)

            change = set_(source='estimated')
            assert change is not None
            self.assertIsNone(change.before)
            change = set_()
            assert change is not None and change.before is not None
            self.assertEqual('estimated',
                             change.before['document']['source'])
            self.assertIsNone(set_(source='estimated'))
            row = profiles.show(connection, change.after['uuid'])
        self.assertEqual(change.after, row)

    def test_a_profile_that_is_deleted(self) -> None:
        shown = self.ok('GET', f'{URL}/{cloud.PROFILE}')['profile']
        self.ok('DELETE', f'{URL}/{cloud.PROFILE}?reason=old')
        self.refused(404, 'GET', f'{URL}/{cloud.PROFILE}')
        self.refused(404, 'DELETE', f'{URL}/{cloud.PROFILE}')
        entry = self.audited()[0]
        self.assertEqual(('profile.delete', shown, None, 'old'), tuple(
            entry[name] for name in ('action', 'before', 'after', 'reason')))

    def test_profiles_that_are_refused(self) -> None:
        """Each with the field that is wrong, and nothing is stored."""
        stored = self.ids()
        for changes, field in (
                ({'kind': 'disk'}, 'kind'), ({'target': ''}, 'target'),
                ({'target': 'x' * 256}, 'target'),
                ({'target': 'a\x1b[2J'}, 'target'),
                ({'target': 'a\nb'}, 'target'), ({'target': 'a '}, 'target'),
                ({'target': 'a\u202eb'}, 'target'),
                ({'target': 'a\x00'}, 'target'),
                ({'project': 'x' * 65}, 'project'),
                ({'project': 'a\tb'}, 'project'),
                ({'source': 'guessed'}, 'source'), ({'form': 1}, 'form'),
                ({'measured_s': 'now'}, 'measured_s'),
                ({'measured_s': -1}, 'measured_s'),
                ({'measured_s': 1e15}, 'measured_s'),
                ({'host': 'a b'}, 'host'),
                ({'qos': {'signal': 'x'}}, 'qos.alone'),
                ({'tolerated': {'disk': ESTIMATE}}, 'tolerated.disk'),
                ({'caused': {'l1d': {**ESTIMATE, 'value': 1.5}}},
                 'caused.l1d.value'),
                ({'caused': {'l1d': {**ESTIMATE, 'low': -0.1}}},
                 'caused.l1d.low'),
                ({'caused': {'l1d': {**ESTIMATE, 'low': 0.9}}}, 'caused.l1d'),
                ({'caused': {'l1d': {'value': 0.5, 'low': 0.5}}},
                 'caused.l1d.high'),
                ({'tolerated': {}, 'caused': {}}, 'tolerated'),
                ({'missing': {'l1d': 'a\x1bb'}}, 'missing.l1d'),
                ({'missing': dict.fromkeys(profile.SOI_NAMES, 'x' * 1900)},
                 None),
                ({'more': 1}, 'more'), ({'reason': ' '}, 'reason')):
            error = self.refused(400, 'POST', URL, cloud.profile(**changes))
            self.assertEqual(field, error.get('field'), error)
            self.assertLess(len(error['detail']), 400)
        for name in ('kind', 'target', 'source', 'measured_s'):
            body = cloud.profile()
            del body[name]
            self.assertEqual(name, self.refused(400, 'POST', URL, body)[
                'field'])
        text = json.dumps(cloud.profile()).replace('0.25', 'NaN')
        self.assertIn('NaN', self.refused(400, 'POST', URL, text.encode())[
            'detail'])
        self.refused(413, 'POST', URL, cloud.profile(missing={
            'l1d': 'x' * 70_000}))
        self.assertEqual(stored, self.ids())

    def test_filters(self) -> None:
        for query, ids in (
                ('', [cloud.PROFILE_OF_ALL, cloud.PROFILE_OF_OTHER,
                      cloud.PROFILE]),
                ('?kind=flavor', [cloud.PROFILE_OF_ALL]),
                ('?kind=image', []), ('?target=web', [cloud.PROFILE]),
                (f'?project={cloud.OTHER}', [cloud.PROFILE_OF_OTHER]),
                (f'?project={cloud.OTHER}&target=web', []),
                ('?target=WEB', [])):
            self.assertEqual(ids, self.ids(query), query)
        self.assertEqual('kind', self.refused(400, 'GET', f'{URL}?kind=x')[
            'field'])

    def test_what_readers_of_a_project_see(self) -> None:
        """Its own and those for all, and nothing of hosts."""
        own = [cloud.PROFILE_OF_ALL, cloud.PROFILE]
        with connect.writing(self.engine) as connection:
            connection.execute(update(tables.profiles).values(
                stale_s=cloud.NOW_S))
        for role in ('reader', 'member'):
            rows = self.ok('GET', URL, role=role)['profiles']
            self.assertEqual(own, [row['id'] for row in rows])
            self.assertEqual(rows[1], self.ok(
                'GET', f'{URL}/{cloud.PROFILE}', role=role)['profile'])
            self.assertEqual((None, None, None), tuple(
                rows[1][name] for name in ('host', 'missing', 'created_by')))
            # One for all may be of a workload of another project.
            self.assertEqual([None, None], [
                rows[0][name] for name in ('qos', 'stale_at')])
            self.assertNotIn(None, [
                rows[1][name] for name in ('qos', 'stale_at')])
            self.refused(404, 'GET', f'{URL}/{cloud.PROFILE_OF_OTHER}',
                         role=role)
            self.assertEqual([cloud.PROFILE], self.ids(
                f'?project={cloud.ONE}', role=role))
            self.assertEqual('project', self.refused(
                400, 'GET', f'{URL}?project={cloud.OTHER}', role=role)[
                    'field'])
        self.assertEqual([cloud.PROFILE_OF_ALL], self.ids(role='stranger'))
        first = self.ok('GET', f'{URL}?limit=1', role='reader')
        self.assertEqual(own[:1], [row['id'] for row in first['profiles']])
        self.assertEqual(own[1:], self.ids(
            f'?limit=1&marker={first["next"]}', role='reader'))
        marker = self.ok('GET', f'{URL}?limit=1')['next']
        self.refused(400, 'GET', f'{URL}?marker={marker}', role='reader')

    def test_the_last_of_a_page_is_replaced(self) -> None:
        """What a reader has seen does not begin again."""
        new = {**cloud.profile(), 'kind': 'flavor', 'project': ''}
        self.ok('POST', URL, {**new, 'target': 'm1.small'})
        first = self.ok('GET', f'{URL}?limit=2', role='reader')
        self.assertEqual(['m1.small', 'm1.large'], [
            row['target'] for row in first['profiles']])
        self.later_s = 1.0
        self.ok('POST', URL, {**new, 'target': 'm1.large'})
        self.assertEqual('marker', self.refused(
            400, 'GET', f'{URL}?marker={first["next"]}', role='reader')[
                'field'])

    def test_a_project_that_the_caller_may_not_write(self) -> None:
        for role in ('reader', 'member', 'operator', 'service', 'stranger'):
            self.refused(403, 'POST', URL, cloud.profile(), role=role)
            self.refused(403, 'DELETE', f'{URL}/{cloud.PROFILE}', role=role)
            self.refused(403, 'DELETE', f'{URL}/{"0" * 32}', role=role)

    def test_several_at_once(self) -> None:
        """One profile is there, and each change is audited."""
        before, statuses = len(self.audited()), []

        def create(level: float) -> None:
            statuses.append(self.call('POST', URL, cloud.profile(
                caused={'tlb': cloud.estimate(level)})).status_code)

        threads = [threading.Thread(target=create, args=(number / 4,))
                   for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([200] * 4, statuses)
        (row,) = self.ok('GET', f'{URL}?target=db')['profiles']
        entries = self.audited()[:4]
        self.assertEqual(before + 4, len(self.audited()))
        self.assertEqual(row, entries[0]['after'])
        self.assertEqual([entry['after'] for entry in entries[1:]],
                         [entry['before'] for entry in entries[:-1]])

    def test_policies_that_let_projects_write(self) -> None:
        """Each its own profiles, and not those for all."""
        with tempfile.NamedTemporaryFile('w', suffix='.yaml') as file:
            for verb in ('create', 'delete'):
                file.write(f'"interference:profiles:{verb}": "role:member '
                           'and project_id:%(project_id)s"\n')
            file.flush()
            conf = cloud.configuration()
            policies.enforcer(conf)     # registers its options
            conf.set_override('policy_file', file.name, 'oslo_policy')
            client = Client(app.create(self.engine, conf, 'noauth'))

            def status(method: str, url: str, **changes: Any) -> int:
                return client.open(
                    url, method=method, headers=cloud.ROLES['member'],
                    json=cloud.profile(**changes) if changes else None
                    ).status_code

            self.assertEqual([200, 403, 403], [
                status('POST', URL, project=project)
                for project in (cloud.ONE, cloud.OTHER, '')])
            self.assertEqual([204, 403, 403, 403], [
                status('DELETE', f'{URL}/{id_}') for id_ in (
                    cloud.PROFILE, cloud.PROFILE_OF_OTHER,
                    cloud.PROFILE_OF_ALL, '0' * 32)])

    def summary(self) -> Any:
        """It is cached for some seconds."""
        self.later_s += 60.0
        return self.ok('GET', '/v1/summary')

    def host(self) -> Any:
        (host,) = (host for host in self.summary()['hosts']
                   if host['name'] == cloud.HOST)
        return host

    def levels(self) -> tuple[Any, Any]:
        host = self.host()
        return host.get('tolerated'), host.get('caused')

    def report(self, digest: str, **workload: Any) -> None:
        """Let the host report that it has one workload more."""
        with connect.writing(self.engine) as connection:
            host_id = connection.scalar(select(tables.hosts.c.id).where(
                tables.hosts.c.name == cloud.HOST))
            if workload:
                connection.execute(insert(tables.workloads).values(**{
                    'host_id': host_id, 'kind': 'instance', 'vcpus': 1.0,
                    'since_s': 0.0, 'name': digest, 'project': cloud.ONE,
                    'priority': 'foreground', 'floor': {}, **workload}))
            connection.execute(update(tables.hosts).where(
                tables.hosts.c.id == host_id).values(
                    workloads_digest=digest))

    def store(self, **changes: Any) -> str:
        id_: str = self.ok('POST', URL, cloud.profile(**changes))[
            'profile']['id']
        return id_

    def test_the_summary_has_all_profiles(self) -> None:
        """As values alone, and hosts what theirs are together."""
        answer = self.summary()
        self.assertEqual(
            [{'kind': kind, 'target': target, 'project': project,
              'tolerated': {'llc_capacity': 0.25},
              'caused': {'llc_capacity': 0.5, 'l1d': 0.0}}
             for kind, target, project in (
                 ('application', 'web', cloud.ONE),
                 ('application', 'noisy', cloud.OTHER),
                 ('flavor', 'm1.large', ''))], answer['profiles'])
        for host in answer['hosts']:
            levels = {'tolerated': {'llc_capacity': 0.25},
                      'caused': {'llc_capacity': 0.5, 'l1d': 0.0}}
            self.assertEqual(
                levels if host['name'] == cloud.HOST else {},
                {name: host[name] for name in levels if name in host})
        with connect.writing(self.engine) as connection:
            connection.execute(tables.profiles.delete())
        answer = self.summary()
        self.assertEqual([], answer['profiles'])
        for host in answer['hosts']:
            self.assertNotIn('tolerated', host)
            self.assertNotIn('caused', host)

    def test_what_workloads_on_a_host_cause_adds_up(self) -> None:
        """And what they tolerate is what the others leave."""
        self.store(target='db', tolerated={'llc_capacity': cloud.estimate(
            0.75)}, caused={'llc_capacity': cloud.estimate(0.125)})
        self.report('a', application='db')
        self.assertEqual(({'llc_capacity': 0.125},
                          {'llc_capacity': 0.625, 'l1d': 0.0}),
                         self.levels())
        self.report('b', application='db')
        self.report('c', application='db')
        self.report('d', application='db')
        self.report('e', application='none')
        self.assertEqual(1.0, self.levels()[1]['llc_capacity'])
        self.assertEqual(0.0, self.levels()[0]['llc_capacity'])

    def test_which_profile_a_workload_has(self) -> None:
        """That of its application, else of its flavor; of its own project
        before that of all."""
        with connect.writing(self.engine) as connection:
            connection.execute(tables.profiles.delete())
        self.report('a', application='db', flavor='m1.small')
        self.report('b', project='', flavor='m1.small')
        level = 0.5
        stored: list[float] = []
        for changes, own, other in (
                ({'kind': 'image', 'target': 'db'}, None, None),
                ({'kind': 'flavor', 'target': 'db'}, None, None),
                ({'kind': 'flavor', 'target': 'm1.small', 'project': ''},
                 0, 0),
                ({'kind': 'flavor', 'target': 'm1.small'}, 1, 0),
                ({'kind': 'application', 'project': ''}, 2, 0),
                ({'kind': 'application', 'project': cloud.OTHER}, 2, 0),
                ({'kind': 'application'}, 3, 0)):
            level /= 2
            if own is not None and own == len(stored):
                stored.append(level)
            self.store(tolerated={}, caused={'tlb': cloud.estimate(level)},
                       **changes)
            self.assertEqual(
                (None, None) if own is None or other is None else (
                    {}, {'tlb': round(stored[own] + stored[other], 4)}),
                self.levels(), str(changes))

    def test_a_summary_follows_profiles_and_workloads(self) -> None:
        """Also where nothing else of a host changed."""
        id_ = self.store(target='web', tolerated={}, caused={
            'tlb': cloud.estimate(0.25)})
        self.report('a')
        self.assertEqual(({}, {'tlb': 0.25}), self.levels())
        self.assertEqual(({}, {'tlb': 0.25}), self.levels())
        self.store(target='web', tolerated={}, caused={
            'tlb': cloud.estimate(0.5)})
        self.assertEqual(({}, {'tlb': 0.5}), self.levels())
        with connect.writing(self.engine) as connection:
            connection.execute(update(tables.workloads).where(
                tables.workloads.c.application == 'web').values(until_s=1.0))
        self.report('b')
        self.assertEqual((None, None), self.levels())
        self.report('c', application='web')
        self.assertEqual(({}, {'tlb': 0.5}), self.levels())
        self.ok('DELETE', f'{URL}/{id_}')
        self.assertEqual((None, None), self.levels())
        self.store(target='web', tolerated={}, caused={
            'l1d': cloud.estimate(0.5)})
        self.assertEqual(({}, {'l1d': 0.5}), self.levels())

    def test_hosts_that_report_no_digest_are_read_each_time(self) -> None:
        self.store(target='db', tolerated={}, caused={
            'tlb': cloud.estimate(0.25)})
        self.report('a')
        self.host()
        self.report('', application='db')
        self.assertEqual(0.25, self.levels()[1]['tlb'])
        self.report('', application='db', name='another')
        self.assertEqual(0.5, self.levels()[1]['tlb'])
