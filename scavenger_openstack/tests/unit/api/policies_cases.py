# SPDX-License-Identifier: Apache-2.0

"""Each URL as each role: who may, who may not, and what never leaks."""

from __future__ import annotations

import base64
from typing import Any

import sqlalchemy
from sqlalchemy import update

from scavenger_openstack.api import markers
from scavenger_openstack.api.routes import ROUTES
from scavenger_openstack.db import connect
from scavenger_openstack.db import tables
from scavenger_openstack.tests.unit.api import cloud
from scavenger_openstack.text import iso

ALL = tuple(cloud.ROLES)
READERS = ('admin', 'service', 'operator')

Allowed = dict[str, int]


def only(*roles: str, **others: int) -> Allowed:
    """These roles; others get 403, and those that are not known 401."""
    return {**dict.fromkeys(ALL, 403), 'anonymous': 401,
            **dict.fromkeys(roles, 200), **others}


READ, WRITE = only(*READERS), only('admin')
OWN = only(*READERS, 'reader', 'member', 'stranger')

EXPECTED: dict[str, Allowed] = {
    'list_hosts': READ, 'show_host': READ, 'show_summary': READ,
    'show_overview': READ,
    'show_report': READ,
    'update_host': WRITE,
    'show_aggregate': READ, 'update_aggregate': WRITE,
    'list_workloads': OWN,
    'list_incidents': OWN,
    'show_incident': only(*READERS, 'reader', 'member', stranger=404),
    'list_antagonists': READ,
    'list_evictions': OWN, 'show_eviction': READ, 'create_eviction': WRITE,
    'list_caps': OWN, 'list_overrides': READ, 'set_override': WRITE,
    'delete_override': WRITE,
    'list_priorities': READ, 'set_priority': WRITE, 'delete_priority': WRITE,
    'list_exemptions': READ, 'set_exemption': WRITE,
    'delete_exemption': WRITE,
    'list_profiles': OWN,
    'show_profile': only(*READERS, 'reader', 'member', stranger=404),
    'create_profile': WRITE, 'delete_profile': WRITE,
    # No aggregate allows it.
    'list_profilings': READ, 'show_profiling': READ,
    'create_profiling': only(admin=409), 'delete_profiling': WRITE,
    'list_specs': READ,
    'list_protection': READ, 'set_protection': WRITE,
    'list_governor': READ, 'set_governor': WRITE,
    'list_audit': READ,
}

BODIES: dict[str, dict[str, Any]] = {
    'create_eviction': {'instance': cloud.NOISY, 'how': 'stop',
                        'reason': 'why', 'dry_run': True},
    'update_host': {'modes': {'attribution': 'observe'}, 'reason': 'why'},
    'update_aggregate': {'modes': {'attribution': 'observe'},
                         'reason': 'why'},
    'set_override': {'value': 0.2, 'reason': 'why', 'expires_at':
                     iso(cloud.NOW_S + 86400)},
    'set_priority': {'scope': 'project', 'target': 'p', 'reason': 'why',
                     'value': 'background'},
    'set_exemption': {'scope': 'project', 'target': 'p', 'reason': 'why'},
    'create_profile': cloud.profile(),
    'create_profiling': {'host': cloud.HOST, 'workload': cloud.VICTIM,
                         'reason': 'why'},
    'set_protection': {'scope': 'cloud', 'enabled': False, 'reason': 'why'},
    'set_governor': {'scope': 'cloud', 'caps_per_minute': 5,
                     'reason': 'why'},
}


class Policies:
    """On whatever database :attr:`engine` is."""

    assertEqual: Any
    assertGreater: Any
    assertIn: Any
    assertNotEqual: Any
    assertNotIn: Any
    assertNotRegex: Any
    call: Any
    engine: Any
    ok: Any
    refused: Any

    def test_each_route_has_a_row(self) -> None:
        self.assertEqual(sorted(EXPECTED), sorted(
            route.id for route in ROUTES))
        bodies = {route.id for route in ROUTES if route.body is not None}
        self.assertEqual(sorted(BODIES), sorted(bodies))

    def test_each_route_and_role(self) -> None:
        for route in ROUTES:
            for role in reversed(ALL):      # the admin deletes last
                body = BODIES.get(route.id)
                answer = self.call(route.method, cloud.url(route), body,
                                   role=role)
                status = EXPECTED[route.id][role]
                where = f'{route.id} as {role}: {answer.text[:300]}'
                if status == 200 and route.answer is None:
                    status = 204
                self.assertEqual(status, answer.status_code, where)
                if status == 200:
                    assert route.answer is not None
                    cloud.validate(answer, route.answer)

    def test_tokens_of_a_domain_or_the_system_are_for_no_route(self) -> None:
        """The answer tells them from a role that is not enough."""
        for url in ('/v1/hosts', '/v1/incidents'):
            role = self.refused(403, 'GET', url, role='nobody')['detail']
            for scope in ('a domain', 'the system'):
                detail = self.refused(403, 'GET', url,
                                      role=f'of {scope}')['detail']
                self.assertNotEqual(role, detail)
                self.assertIn(scope, detail)

    def test_which_cpus_of_the_host_are_chosen(self) -> None:
        """Is for those who see the host."""
        own = cloud.add_background(self.engine)
        with connect.writing(self.engine) as connection:
            connection.execute(sqlalchemy.update(tables.caps).where(
                tables.caps.c.instance == own).values(
                    knob='cpu_set', value='4-5', original='0-7'))
        (limit,) = self.ok('GET', '/v1/caps', role='reader')['caps']
        self.assertEqual(('cpu_set', None, None), tuple(
            limit[name] for name in ('knob', 'value', 'original')))
        self.assertNotIn('4-5', str(self.ok(
            'GET', '/v1/workloads?limits=true', role='reader')))
        self.assertIn(('4-5', '0-7'), [
            (limit['value'], limit['original'])
            for limit in self.ok('GET', '/v1/caps')['caps']])

    def test_own_instances_and_nothing_of_where_they_are(self) -> None:
        own = cloud.add_background(self.engine)
        for role in ('reader', 'member'):
            self.assertEqual({own, cloud.VICTIM}, {
                one['instance'] for one in self.ok(
                    'GET', '/v1/workloads', role=role)['workloads']})
            (limit,) = self.ok('GET', '/v1/caps', role=role)['caps']
            self.assertEqual(
                (own, 'cpu_cores', 0.25, 'attribution', None, None, None,
                 None, None, None), tuple(limit[name] for name in (
                     'instance', 'knob', 'value', 'owner', 'id', 'host',
                     'reason', 'why', 'incidents', 'override')))
            (eviction,) = self.ok('GET', '/v1/evictions?state=asked',
                                  role=role)['evictions']
            self.assertEqual(
                (own, 'stop', 'asked', None, None, None, None), tuple(
                    eviction[name] for name in (
                        'instance', 'how', 'state', 'host', 'reason',
                        'created_by', 'detail')))
            # Those of others are none.
            for noun in ('workloads', 'caps', 'evictions'):
                self.assertEqual([], self.ok(
                    'GET', f'/v1/{noun}?instance={cloud.NOISY}', role=role)[
                        noun])
        for noun in ('workloads', 'caps', 'evictions'):
            self.assertEqual([], self.ok('GET', f'/v1/{noun}',
                                         role='stranger')[noun])
            self.refused(403, 'GET', f'/v1/{noun}', role='unscoped')

    def test_pages_of_own_things_tell_no_numbers(self) -> None:
        cloud.add_background(self.engine)
        for noun, key, number in (('workloads', 'instance', 2),
                                  ('caps?in_force=false', 'set_at', 3),
                                  ('evictions', 'id', 2)):
            join = '&' if '?' in noun else '?'
            url, seen, marker = f'/v1/{noun}{join}limit=1', [], ''
            while marker is not None:
                answer = self.ok('GET', url + (
                    f'&marker={marker}' if marker else ''), role='reader')
                (row,) = answer[noun.partition('?')[0]]
                seen.append(row[key])
                marker = answer['next']
                if marker is not None:
                    data = base64.urlsafe_b64decode(marker + '==').decode()
                    self.assertNotRegex(data, r'[\[,]\d{1,6}\]')
            self.assertEqual(number, len(set(seen)), noun)
            # One of an operator is none, and tells nothing.
            marker = self.ok('GET', url)['next']
            self.assertEqual('marker', self.refused(
                400, 'GET', f'{url}&marker={marker}', role='reader')['field'])

    def test_nothing_of_others_in_what_a_reader_sees(self) -> None:
        cloud.add_background(self.engine)
        for role in ('reader', 'member', 'stranger', 'nobody'):
            for route in ROUTES:
                if route.method != 'GET':
                    continue
                answer = self.call('GET', cloud.url(route), role=role)
                for text in cloud.OTHER_SIDE:
                    self.assertNotIn(text, answer.text, f'{route.id} {role}')

    def test_those_of_others_and_those_that_are_not_are_the_same(
            self) -> None:
        for role in ('reader', 'stranger'):
            there = self.refused(
                404, 'GET', f'/v1/incidents/{cloud.INCIDENT_OF_OTHER}',
                role=role)
            nothing = self.refused(404, 'GET', f'/v1/incidents/{"0" * 32}',
                                   role=role)
            for error in (there, nothing):
                del error['request_id']
            there['detail'] = there['detail'].replace(
                cloud.INCIDENT_OF_OTHER, '0' * 32)
            self.assertEqual(nothing, there)

    def test_those_of_others_take_no_longer(self) -> None:
        """The same statements, so the same time."""
        found: list[str] = []
        sqlalchemy.event.listen(
            self.engine, 'before_cursor_execute',
            lambda *arguments: found.append(arguments[2]))
        for incident in (cloud.INCIDENT_OF_OTHER, '0' * 32):
            self.refused(404, 'GET', f'/v1/incidents/{incident}',
                         role='reader')
        half = len(found) // 2
        self.assertGreater(half, 0)
        self.assertEqual(found[:half], found[half:])

    def test_markers_tell_readers_nothing(self) -> None:
        """One of an incident of others is one of none."""
        for later_s, ids in ((-9000.0, []), (9000.0, [cloud.INCIDENT])):
            for uuid in (cloud.INCIDENT_OF_OTHER, '0' * 32):
                marker = markers.write('incidents', [
                    uuid, round(1e6 * (cloud.NOW_S + later_s))])
                answer = self.ok('GET', f'/v1/incidents?marker={marker}',
                                 role='reader')
                self.assertEqual(ids, [
                    row['id'] for row in answer['incidents']])

    def test_filters_tell_readers_nothing(self) -> None:
        for filter_ in (f'antagonist={cloud.NOISY}', f'host={cloud.HOST}',
                        'host=nowhere', f'project={cloud.OTHER}'):
            error = self.refused(400, 'GET', f'/v1/incidents?{filter_}',
                                 role='reader')
            self.assertEqual(['cause', 'evidence_kind', 'outcome', 'since',
                              'until', 'victim'], error['allowed'])
        for noun in ('workloads', 'caps', 'evictions'):
            for host in (cloud.HOST, 'nowhere'):
                error = self.refused(400, 'GET', f'/v1/{noun}?host={host}',
                                     role='reader')
                self.assertNotIn('host', error['allowed'])
        for noun in ('workloads', 'caps', 'evictions', 'incidents'):
            self.refused(400, 'GET', f'/v1/{noun}?project={cloud.OTHER}',
                         role='reader')
            self.assertEqual(
                self.ok('GET', f'/v1/{noun}', role='reader'),
                self.ok('GET', f'/v1/{noun}?project={cloud.ONE}',
                        role='reader'))

    def test_the_victims_side_is_whole(self) -> None:
        shown = self.ok('GET', f'/v1/incidents/{cloud.INCIDENT}',
                        role='reader')['incident']
        self.assertEqual(
            (cloud.VICTIM, 'web', cloud.ONE, 'confirmed', 0.9),
            tuple(shown[name] for name in (
                'victim', 'victim_name', 'project', 'outcome', 'value')))
        self.assertEqual([cloud.VICTIM],
                         [one['workload'] for one in shown['evidence']])
        self.assertEqual(
            [{'workload': None, 'instance': None, 'name': None,
              'project': None, 'score': 0.99, 'foreground': None,
              'antagonist': True, 'earlier': None}],
            shown['suspects'])
        self.assertEqual([], shown['caps'])

    def test_grounds_name_no_other(self) -> None:
        """The others, and the host itself, count as one, whose correlation
        is the score of one of them."""
        def grounds() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = self.ok(
                'GET', f'/v1/incidents/{cloud.INCIDENT}',
                role='reader')['incident']['grounds']
            return found

        own, other = grounds()
        self.assertEqual(('share', cloud.VICTIM, 0.02), (
            own['kind'], own['workload'], own['share']))
        nothing: dict[str, Any] = {
            'workload': None, 'instance': None, 'name': None,
            'project': None, 'threads': [], 'before': None, 'after': None,
            'chance': None}
        self.assertEqual({**nothing, 'kind': 'direct', 'share': 0.6,
                          'waited_s': 1.9, 'window_s': 2.0}, other)
        with connect.writing(self.engine) as connection:
            connection.execute(update(tables.incidents).values(grounds=[
                {'kind': 'timing', 'workload': workload, 'share': 0.77,
                 'chance': 0.0004} for workload in (cloud.NOISY, 'gone')]))
        self.assertEqual([{**nothing, 'kind': 'timing', 'share': None,
                           'waited_s': None, 'window_s': None}], grounds())
        with connect.writing(self.engine) as connection:    # a later release
            connection.execute(update(tables.incidents).values(grounds=[
                {'kind': 'rumour', 'workload': 'gone', 'weight': 1}]))
        self.assertEqual(['rumour'], [each['kind'] for each in grounds()])

    def test_a_project_that_is_not_named_is_nobodys(self) -> None:
        """Not that of containers, whose project is empty, too."""
        self.refused(403, 'GET', '/v1/incidents', role='unscoped')
