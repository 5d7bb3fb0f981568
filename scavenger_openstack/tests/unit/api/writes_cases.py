# SPDX-License-Identifier: Apache-2.0

"""What the API changes, on any database."""

from __future__ import annotations

import threading
from typing import Any

from sqlalchemy import delete
from sqlalchemy import update

from scavenger_openstack.api.routes import ROUTES
from scavenger_openstack.db import connect
from scavenger_openstack.db import generation
from scavenger_openstack.db.resources import notifications
from scavenger_openstack.db import tables
from scavenger_openstack.tests.unit.api import cloud
from scavenger_openstack.tests.unit.api.policies_cases import BODIES
from scavenger_openstack.text import iso

CAPS = f'/v1/caps/{cloud.HOST}'


def wish(value: Any = 0.2, **changes: Any) -> dict[str, Any]:
    return {'value': value, 'reason': 'a test',
            'expires_at': iso(cloud.NOW_S + 86400), **changes}


class Writes:
    """On whatever database :attr:`engine` is."""

    engine: Any
    ok: Any
    call: Any
    refused: Any
    audited: Any
    assertEqual: Any
    assertIn: Any
    assertIsNone: Any
    assertNotEqual: Any

    def test_an_override(self) -> None:
        url = f'{CAPS}/cpu_cores/%2Fbatch%2Fnoisy'
        made = self.ok('PUT', url, wish())['override']
        self.assertEqual(
            (cloud.HOST, cloud.BATCH, 'cpu_cores', 0.2, 'ann', 'a test'),
            tuple(made[name] for name in ('host', 'workload', 'knob', 'value',
                                          'created_by', 'reason')))
        self.assertNotEqual(cloud.OVERRIDE, made['id'])
        listed = self.ok('GET', '/v1/caps/overrides')['overrides']
        self.assertEqual([made], listed)
        entry = self.audited()[0]
        self.assertEqual(
            ('override.set', f'{cloud.HOST}/cpu_cores/{cloud.BATCH}', 'ann',
             'a test', 0.3, 0.2),
            (*(entry[name] for name in ('action', 'target', 'actor',
                                        'reason')),
             entry['before']['value'], entry['after']['value']))
        self.assertIn('req-', entry['request_id'])
        self.assertEqual(None, self.ok('DELETE', url))
        self.assertEqual([], self.ok('GET', '/v1/caps/overrides')[
            'overrides'])
        entry = self.audited()[0]
        self.assertEqual(('override.delete', None),
                         (entry['action'], entry['after']))
        self.refused(404, 'DELETE', url)

    def test_an_override_by_every_spelling_of_a_container(self) -> None:
        for path in ('//batch/noisy', '/batch/noisy', '/%2Fbatch/noisy'):
            made = self.ok('PUT', f'{CAPS}/cpu_cores{path}', wish())
            self.assertEqual(cloud.BATCH, made['override']['workload'])
            self.ok('DELETE', f'{CAPS}/cpu_cores{path}')

    def test_overrides_that_are_taken(self) -> None:
        for knob, value, stored in (
                ('cpu_cores', None, None), ('cpu_cores', 1, 1.0),
                ('cpu_cores', 0.1, 0.1),    # the floor itself
                ('cpu_set', '0-1,4', '0-1,4'), ('cpu_idle', 1, 1.0),
                ('memory_bytes', 2 ** 40, 2.0 ** 40)):
            made = self.ok('PUT', f'{CAPS}/{knob}/{cloud.BATCH}', wish(value))
            self.assertEqual(stored, made['override']['value'])

    def test_overrides_that_are_not(self) -> None:
        batch = f'{CAPS}/cpu_cores/{cloud.BATCH}'
        before = len(self.audited())
        for status, url, body, field in (
                (400, batch, wish(reason=''), 'reason'),
                (400, batch, wish(reason=' \n'), 'reason'),
                (400, batch, {'value': 1, 'reason': 'x'}, 'expires_at'),
                (400, batch, {'reason': 'x', 'expires_at': '2099-01-01'},
                 'value'),
                (400, batch, wish(expires_at='2001-01-01T00:00:00Z'),
                 'expires_at'),
                (400, batch, wish(expires_at='9999-12-31T00:00:00Z'),
                 'expires_at'),
                (400, batch, wish(expires_at='tomorrow'), 'expires_at'),
                (400, batch, wish(value=0.05), 'value'),
                (400, batch, wish(value=-1), 'value'),
                (400, batch, wish(value='much'), 'value'),
                (400, batch, wish(value=True), 'value'),
                (400, batch, wish(value=2 ** 60), 'value'),
                (400, batch, wish(more=1), 'more'),
                (400, f'{CAPS}/cpu_set/{cloud.BATCH}', wish('4-'), 'value'),
                (400, f'{CAPS}/cpu_set/{cloud.BATCH}', wish(''), 'value'),
                (400, f'{CAPS}/cpu_idle/{cloud.BATCH}', wish(0.5), 'value'),
                (400, f'{CAPS}/paused/{cloud.BATCH}', wish(1), 'knob'),
                (400, f'{CAPS}/nice/{cloud.BATCH}', wish(1), 'knob'),
                (409, f'{CAPS}/cpu_cores/{cloud.VICTIM}', wish(2.0),
                 'workload'),
                (409, f'{CAPS}/cpu_cores/{cloud.VICTIM}', wish(None),
                 'workload'),
                (404, f'{CAPS}/cpu_cores//batch/gone', wish(), None),
                (404, f'/v1/caps/nowhere/cpu_cores/{cloud.BATCH}', wish(),
                 None)):
            error = self.refused(status, 'PUT', url, body)
            self.assertEqual(field, error.get('field'), error)
            if status == 400:
                self.assertIn('allowed', error)
        floor = self.refused(400, 'PUT', batch, wish(0.05))
        self.assertEqual(
            ('0.05 is below the floor of cpu_cores, which is 0.1.',
             'a number from 0.1, or null'),
            (floor['detail'], floor['allowed']))
        self.assertEqual(before, len(self.audited()))

    def test_priorities(self) -> None:
        body = {'scope': 'instance', 'target': cloud.NOISY,
                'value': 'foreground', 'application': 'db', 'reason': 'paid'}
        made = self.ok('POST', '/v1/priorities', body)['priority']
        again = self.ok('POST', '/v1/priorities',
                        {**body, 'value': 'background'})['priority']
        self.assertEqual((made['id'], 'foreground', 'background'),
                         (again['id'], made['value'], again['value']))
        self.assertEqual(['priority.set', 'priority.set'],
                         [row['action'] for row in self.audited()[:2]])
        self.refused(404, 'DELETE', f'/v1/exemptions/{made["id"]}')
        self.ok('DELETE', f'/v1/priorities/{made["id"]}')
        self.refused(404, 'DELETE', f'/v1/priorities/{made["id"]}')

    def test_exemptions(self) -> None:
        body = {'scope': 'aggregate', 'target': 'racks', 'reason': 'paid'}
        made = self.ok('POST', '/v1/exemptions', body)['exemption']
        self.assertEqual(2, made.pop('workloads'))
        self.assertIn(made, self.ok('GET', '/v1/exemptions')['exemptions'])
        self.ok('DELETE', f'/v1/exemptions/{made["id"]}')
        for changes, field in (({'target': 'nowhere'}, 'target'),
                               ({'scope': 'instance'}, 'target'),
                               ({'scope': 'instance', 'target':
                                 cloud.VICTIM + '\n'}, 'target'),
                               ({'scope': 'cloud'}, 'scope'),
                               ({'target': ''}, 'target'),
                               ({'value': 'background'}, 'value'),
                               ({'scope': 'project', 'target': 'x' * 65},
                                'target')):
            error = self.refused(400, 'POST', '/v1/exemptions',
                                 {**body, **changes})
            self.assertEqual(field, error['field'])

    def test_protection(self) -> None:
        off = {'scope': 'cloud', 'enabled': False, 'reason': 'we look'}
        self.assertEqual(
            (False, 'we look', 'ann'),
            tuple(self.ok('PUT', '/v1/protection', off)['protection'][name]
                  for name in ('enabled', 'reason', 'changed_by')))
        rows = self.ok('GET', '/v1/protection')['protection']
        self.assertEqual([('cloud', False), ('host', False)], sorted(
            (row['scope'], row['enabled']) for row in rows))
        self.ok('PUT', '/v1/protection', {**off, 'enabled': True})
        entry = self.audited()[0]
        self.assertEqual(
            ('protection.set', 'cloud', False, True),
            (entry['action'], entry['target'], entry['before']['enabled'],
             entry['after']['enabled']))
        for changes, field in (
                ({'scope': 'host'}, 'target'),
                ({'scope': 'host', 'target': 'nowhere'}, 'target'),
                ({'scope': 'aggregate', 'target': 'nowhere'}, 'target'),
                ({'target': cloud.HOST}, 'target'),
                ({'enabled': 'no'}, 'enabled'), ({'reason': ''}, 'reason')):
            error = self.refused(400, 'PUT', '/v1/protection',
                                 {**off, **changes})
            self.assertEqual(field, error['field'])

    def test_an_aggregate_that_has_lost_its_hosts(self) -> None:
        """What was set for it can be taken back."""
        where = {'scope': 'aggregate', 'target': 'racks', 'reason': 'we look'}
        settings = {'modes': {'attribution': 'off'}, 'profiling': True,
                    'reason': 'we look'}
        url = '/v1/aggregates/racks'
        self.ok('PUT', '/v1/protection', {**where, 'enabled': False})
        self.ok('PUT', '/v1/governor', {**where, 'caps_per_minute': 0})
        self.ok('PATCH', url, settings)
        with connect.writing(self.engine) as connection:
            connection.execute(delete(tables.aggregate_hosts))
        self.assertEqual((True, 0), tuple(
            self.ok('PUT', '/v1/protection', {**where, 'enabled': True})[
                'protection'][name] for name in ('enabled', 'hosts')))
        self.assertIsNone(self.ok('PUT', '/v1/governor', {
            **where, 'caps_per_minute': None})['governor']['caps_per_minute'])
        shown = self.ok('GET', url)['aggregate']
        self.assertEqual(([], True),
                         (shown['hosts'], shown['settings']['profiling']))
        self.assertEqual(
            {'modes': {}, 'parameters': {}, 'profiling': False},
            self.ok('PATCH', url, {
                'modes': {'attribution': None}, 'profiling': None,
                'reason': 'enough'})['aggregate']['settings'])

    def test_the_switch_of_a_name_that_a_host_had(self) -> None:
        """It is changed by that name, and no other one is made."""
        with connect.writing(self.engine) as connection:
            connection.execute(update(tables.hosts).where(
                tables.hosts.c.name == cloud.HOST).values(
                    name=f'{cloud.HOST}.example.org'))
        body = {'scope': 'host', 'target': cloud.HOST, 'enabled': True,
                'reason': 'it is over'}
        self.assertEqual((cloud.HOST, True, 1), tuple(
            self.ok('PUT', '/v1/protection', body)['protection'][name]
            for name in ('target', 'enabled', 'hosts')))
        self.assertEqual([cloud.HOST], [
            row['target'] for row in self.ok('GET', '/v1/protection')[
                'protection'] if row['scope'] == 'host'])

    def test_notifications(self) -> None:
        """Of what an operator changes, once for each change."""
        self.engine.update_execution_options(**{connect.NOTIFIES: True})
        url = f'{CAPS}/cpu_cores/%2Fbatch%2Fnoisy'
        self.ok('PUT', url, wish())
        self.ok('DELETE', url)
        switch = {'scope': 'cloud', 'reason': 'we look'}
        for enabled in (True, False, False, True):
            self.ok('PUT', '/v1/protection', {**switch, 'enabled': enabled})
        with self.engine.begin() as connection:
            waiting = notifications.oldest(connection, 10)
        self.assertEqual([
            ('interference.limit.overridden', True),
            ('interference.limit.overridden', False),
            ('interference.protection.changed', False),
            ('interference.protection.changed', True)], [
                (row['event'], row['payload'].get(
                    'set', row['payload'].get('enabled')))
                for row in waiting])
        self.assertEqual(
            (cloud.HOST, cloud.BATCH, 0.2, 'ann'),
            tuple(waiting[0]['payload'][name] for name in (
                'host', 'workload', 'value', 'created_by')))

    def test_a_host_by_its_name_with_a_domain(self) -> None:
        full = f'{cloud.HOST}.example.org'
        body = {'scope': 'host', 'target': full, 'reason': 'more',
                'caps_per_minute': 7}
        self.assertEqual(cloud.HOST, self.ok('PUT', '/v1/governor', body)[
            'governor']['target'])
        self.assertEqual(cloud.HOST, self.ok(
            'GET', f'/v1/hosts/{full}')['host']['name'])
        self.assertEqual(
            self.ok('GET', f'/v1/workloads?host={cloud.HOST}'),
            self.ok('GET', f'/v1/workloads?host={full}'))

    def test_the_governor_leaves_the_kill_switch(self) -> None:
        body = {'scope': 'host', 'target': cloud.HOST, 'reason': 'more',
                'caps_per_minute': 7}
        self.assertEqual(7, self.ok('PUT', '/v1/governor', body)[
            'governor']['caps_per_minute'])
        (row,) = (row for row in self.ok('GET', '/v1/protection')[
            'protection'] if row['scope'] == 'host')
        self.assertEqual((False, 'an upgrade'),
                         (row['enabled'], row['reason']))
        for number in (-1, 1.5, 'x', 10 ** 7):
            error = self.refused(400, 'PUT', '/v1/governor',
                                 {**body, 'caps_per_minute': number})
            self.assertEqual('caps_per_minute', error['field'])

    def test_settings_of_a_host(self) -> None:
        url = f'/v1/hosts/{cloud.HOST}'
        changed = self.ok('PATCH', url, {
            'reason': 'try',
            'modes': {'attribution': 'enforce', 'scavenger': 'off'},
            'parameters': {'scavenger.memory_c': 3,
                           'scavenger.use_ipc': False}})['host']
        self.assertEqual(
            {'modes': {'attribution': 'enforce', 'scavenger': 'off'},
             'parameters': {'scavenger.memory_c': 3,
                            'scavenger.use_ipc': 'false'}},
            changed['settings'])
        changed = self.ok('PATCH', url, {
            'modes': {'scavenger': None}, 'reason': 'back',
            'parameters': {'scavenger.memory_c': None}})['host']
        self.assertEqual(
            {'modes': {'attribution': 'enforce'},
             'parameters': {'scavenger.use_ipc': 'false'}},
            changed['settings'])
        self.assertEqual(changed, self.ok('GET', url)['host'])
        self.assertEqual(['back', 'try'],
                         [row['reason'] for row in self.audited()[:2]])
        for body, field in (
                ({'modes': {'attribution': 'full'}}, 'modes.attribution'),
                ({'modes': {'magic': 'off'}}, 'modes.magic'),
                ({'parameters': {'scavenger.magic': 1}},
                 'parameters.scavenger.magic'),
                ({'parameters': {'scavenger.memory_c': 'much'}},
                 'parameters.scavenger.memory_c'),
                ({'parameters': {'scavenger.memory_c': -1}},
                 'parameters.scavenger.memory_c'),
                ({'parameters': []}, 'parameters'), ([], 'body')):
            error = self.refused(
                400, 'PATCH', url, {**body, 'reason': 'x'}
                if isinstance(body, dict) else body)
            self.assertEqual(field, error['field'])
            self.assertIn('allowed', error)
        self.refused(404, 'PATCH', '/v1/hosts/nowhere', {'reason': 'x'})

    def test_settings_of_an_aggregate(self) -> None:
        url = '/v1/aggregates/racks'
        self.assertEqual(
            {'name': 'racks', 'hosts': [cloud.HOST], 'not_followed': {},
             'settings': {'modes': {}, 'parameters': {}, 'profiling': False}},
            self.ok('GET', url)['aggregate'])
        self.ok('PATCH', url, {
            'modes': {'attribution': 'observe', 'scavenger': 'off'},
            'parameters': {'scavenger.use_ipc': False}, 'reason': 'try'})
        changed = self.ok('PATCH', url, {
            'modes': {'scavenger': None}, 'reason': 'enough'})
        self.assertEqual({'modes': {'attribution': 'observe'},
                          'parameters': {'scavenger.use_ipc': 'false'},
                          'profiling': False},
                         changed['aggregate']['settings'])
        self.assertEqual(changed, self.ok('GET', url))
        self.assertEqual(
            [('aggregate.update', 'racks', 'enough'),
             ('aggregate.update', 'racks', 'try')],
            [(row['action'], row['target'], row['reason'])
             for row in self.audited()[:2]])
        # No row where nothing changes.
        self.ok('PATCH', url, {'reason': 'x'})
        self.assertEqual('aggregate.update', self.audited()[1]['action'])
        for body, field in (
                ({'modes': {'attribution': 'full'}}, 'modes.attribution'),
                ({'parameters': {'scavenger.memory_c': -1}},
                 'parameters.scavenger.memory_c'),
                ({'profiling': 'yes'}, 'profiling'),
                ({'hosts': []}, 'hosts')):
            self.assertEqual(field, self.refused(
                400, 'PATCH', url, {**body, 'reason': 'x'})['field'])
        for url in ('/v1/aggregates/nowhere', '/v1/aggregates/' + 'x' * 5000):
            self.refused(404, 'GET', url)
            self.refused(404, 'PATCH', url, {
                'modes': {'attribution': 'off'}, 'reason': 'x'})

    def generation(self) -> int:
        with self.engine.connect() as connection:
            return generation.current(connection)

    def test_conductors_notice_each_write(self) -> None:
        for route in sorted(ROUTES, key=lambda route: (
                route.method == 'DELETE', route.id)):
            if route.id == 'create_profiling':      # not allowed here
                continue
            before, body = self.generation(), BODIES.get(route.id)
            if body is not None and 'dry_run' in body:
                body = {**body, 'dry_run': False}
            self.ok(route.method, cloud.url(route), body)
            self.assertEqual(route.method != 'GET',
                             self.generation() > before, route.id)

    def test_two_at_once(self) -> None:
        """One override holds, one rule is there, and all are audited."""
        before = len(self.audited())
        statuses: list[int] = []

        def change(number: int) -> None:
            for method, url, body in (
                    ('PUT', f'{CAPS}/cpu_cores/{cloud.BATCH}',
                     wish(0.2 + number / 100)),
                    ('POST', '/v1/exemptions', {
                        'scope': 'project', 'target': 'new',
                        'reason': 'x'})):
                statuses.append(self.call(method, url, body).status_code)

        threads = [threading.Thread(target=change, args=(number,))
                   for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([200] * 8, statuses)
        self.assertEqual(1, len(self.ok('GET', '/v1/caps/overrides')[
            'overrides']))
        self.assertEqual(1, len(self.ok(
            'GET', '/v1/exemptions?target=new')['exemptions']))
        self.assertEqual(before + 8, len(self.audited()))
