# SPDX-License-Identifier: Apache-2.0

"""Interference profiles: stored, shown, replaced and refused."""

from __future__ import annotations

import json
from typing import Any

from scavenger_openstack.db import connect
from scavenger_openstack.db.resources import profiles
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
    assertEqual: Any
    assertIn: Any
    assertIsNone: Any
    assertLess: Any

    def ids(self, query: str = '', **role: str) -> list[str]:
        return [row['id'] for row in self.ok('GET', URL + query, **role)[
            'profiles']]

    def test_a_profile_that_is_stored(self) -> None:
        """Comes back field by field."""
        made = self.ok('POST', URL, {**cloud.profile(), 'reason': 'why'})[
            'profile']
        self.assertEqual({
            **cloud.profile(), 'id': made['id'], 'created_by': 'ann',
            'created_at': cloud.at(0)}, made)
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
        for role in ('reader', 'member'):
            rows = self.ok('GET', URL, role=role)['profiles']
            self.assertEqual(own, [row['id'] for row in rows])
            self.assertEqual(rows[1], self.ok(
                'GET', f'{URL}/{cloud.PROFILE}', role=role)['profile'])
            self.assertEqual((None, None, None), tuple(
                rows[1][name] for name in ('host', 'missing', 'created_by')))
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

    def test_a_project_that_the_caller_may_not_write(self) -> None:
        for role in ('reader', 'member', 'operator', 'service', 'stranger'):
            self.refused(403, 'POST', URL, cloud.profile(), role=role)
            self.refused(403, 'DELETE', f'{URL}/{cloud.PROFILE}', role=role)
            self.refused(403, 'DELETE', f'{URL}/{"0" * 32}', role=role)
