# SPDX-License-Identifier: Apache-2.0

"""What is asked for and not followed is in the answer that asks for it."""

from __future__ import annotations

from typing import Any
from typing import TYPE_CHECKING

from sqlalchemy import insert
from sqlalchemy import update

from scavenger_openstack.db import connect
from scavenger_openstack.db import generation
from scavenger_openstack.db import tables
from scavenger_openstack.tests.unit.api import cloud
from scavenger_openstack.text import iso

if TYPE_CHECKING:
    Base = cloud.Api
else:
    Base = object

CAP = f'/v1/caps/{cloud.HOST}/cpu_cores/{cloud.BATCH}'
WISH = {'value': 0.2, 'reason': 'a test',
        'expires_at': iso(cloud.NOW_S + 86400)}
GONE = '99999999-9999-4999-8999-999999999999'


class Following(Base):

    def report(self, host: str = cloud.HOST, seen_s: float = cloud.NOW_S + 20,
               enforcing: bool = True, **facts: Any) -> None:
        """What an agent reports later."""
        with connect.writing(self.engine) as connection:
            connection.execute(update(tables.hosts).where(
                tables.hosts.c.name == host).values(
                    facts=facts, last_seen_s=seen_s, enforcing=enforcing))

    def generation(self) -> int:
        with connect.reading(self.engine) as connection:
            return generation.current(connection)

    def override(self) -> tuple[Any, str]:
        found, = self.ok('GET', f'/v1/caps/overrides?workload={cloud.BATCH}'
                         )['overrides']
        return found['followed'], found['why_not']

    def test_an_override(self) -> None:
        before = self.generation()
        made = self.ok('PUT', CAP, WISH)['override']
        self.assertIsNone(made['followed'])
        self.assertIn(f'{cloud.HOST} gets it with its next report',
                      made['why_not'])
        self.assertEqual((None, made['why_not']), self.override())
        # It has reported since, but got the directives before, whatever the
        # clock of its conductor says.
        for later_s in (-1, 0, 3600):
            self.report(followed=before, followed_s=cloud.NOW_S + later_s)
            self.assertIsNone(self.override()[0])
        holds = self.generation()
        for later_s in (10, -3600):
            self.report(followed=holds, followed_s=cloud.NOW_S + later_s)
            self.assertEqual((True, ''), self.override())
        part = f'override {made["id"]}'
        self.report(followed=holds, refused={part: 'no such'})
        self.assertEqual((False, 'no such'), self.override())
        self.report(followed=holds, stopped='the stop file')
        followed, why_not = self.override()
        self.assertIs(False, followed)
        self.assertIn('the stop file', why_not)
        self.report(followed=holds, refused={
            f'override {number}': 'no such' for number in range(200)})
        self.assertIsNone(self.override()[0])
        stored = self.audited()[0]['after']
        self.assertEqual(made['id'], stored['id'])
        self.assertNotIn('followed', stored)

    def test_a_knob_that_the_host_does_not_limit(self) -> None:
        self.report(limited=['cpu_cores', 'cpu_set'])
        self.ok('PUT', CAP, WISH)
        for knob, limited in (('memory_bytes', ['cpu_cores', 'cpu_set']),
                              ('cpu_cores', [])):
            self.report(limited=limited)
            error = self.refused(
                409, 'PUT', f'/v1/caps/{cloud.HOST}/{knob}/{cloud.BATCH}',
                {**WISH, 'value': 2.0 ** 30})
            self.assertEqual('knob', error['field'])
            for words in (f'{cloud.HOST} does not limit {knob}',
                          'cpu_cores, cpu_set' if limited else 'nothing',
                          '[agent] protect'):
                self.assertIn(words, error['detail'])
        # An agent of before does not tell.
        self.report()
        self.ok('PUT', f'/v1/caps/{cloud.HOST}/memory_bytes/{cloud.BATCH}',
                {**WISH, 'value': 2.0 ** 30})

    def not_followed(self, **body: Any) -> dict[str, str]:
        found: dict[str, str] = self.ok('PATCH', f'/v1/hosts/{cloud.HOST}', {
            **body, 'reason': 'try'})['host']['not_followed']
        return found

    def test_modes_of_a_host(self) -> None:
        """One that is less careful than the file is not followed."""
        self.report(own_modes={'attribution': 'observe',
                               'scavenger': 'enforce'}, enforcing=False)
        found = self.not_followed(modes={'attribution': 'enforce',
                                         'scavenger': 'observe',
                                         'cpi2': 'observe'})
        self.assertEqual({'mode attribution', 'mode cpi2'}, found.keys())
        self.assertIn('says observe', found['mode attribution'])
        self.assertIn('[attribution] mode = enforce',
                      found['mode attribution'])
        self.assertIn('no controller of that name', found['mode cpi2'])
        shown = self.ok('GET', f'/v1/hosts/{cloud.HOST}')['host']
        self.assertEqual(found, shown['not_followed'])
        self.assertEqual({}, self.not_followed(modes={
            'attribution': 'off', 'cpi2': None}))

    def test_a_mode_of_a_later_release(self) -> None:
        self.report(own_modes={'attribution': 'observe', 'bus': 'advise'},
                    modes={'bus': 'advise'}, enforcing=False)
        self.assertEqual({'mode attribution'}, self.not_followed(
            modes={'attribution': 'enforce'}).keys())
        shown = self.ok('GET', f'/v1/hosts/{cloud.HOST}')['host']
        self.assertEqual({'bus': 'advise'}, shown['modes'])

    def test_modes_of_an_aggregate(self) -> None:
        self.report(own_modes={'attribution': 'observe'}, enforcing=False,
                    refused={'parameter cpi2.f': 'no controller of it'})
        body = {'modes': {'attribution': 'enforce'}, 'reason': 'try'}
        found = self.ok('PATCH', '/v1/aggregates/racks', body)['aggregate']
        self.assertEqual(['mode attribution'], list(found['not_followed']))
        self.assertIn(f'1 of 1 host: {cloud.HOST}: ',
                      found['not_followed']['mode attribution'])
        self.assertEqual(found, self.ok('GET', '/v1/aggregates/racks')[
            'aggregate'])
        # It is the host's that is told, too, and what it reported itself.
        self.assertEqual(
            {'mode attribution', 'parameter cpi2.f'},
            self.ok('GET', f'/v1/hosts/{cloud.HOST}')['host'][
                'not_followed'].keys() - {'protection'})

    def test_a_switch(self) -> None:
        """How many hosts it is for, and when they reported last."""
        body = {'scope': 'cloud', 'enabled': False, 'reason': 'we look'}
        at = iso(cloud.NOW_S - 5)
        for scope, target, hosts, silent, last in (
                ('cloud', '', 2, 1, at), ('aggregate', 'racks', 1, 0, at),
                ('host', cloud.SILENT, 1, 1,
                 iso(cloud.NOW_S - 9000))):
            for enabled in (True, False):
                found = self.ok('PUT', '/v1/protection', {
                    **body, 'scope': scope, 'target': target,
                    'enabled': enabled})['protection']
                self.assertEqual((hosts, silent, last), tuple(
                    found[name] for name in ('hosts', 'silent',
                                             'last_seen_at')))
        # No conductor runs: it still enforces, and says that it should not.
        host = self.ok('GET', f'/v1/hosts/{cloud.HOST}')['host']
        self.assertTrue(host['enforcing'])
        self.assertIn('switched off for the cloud: we look',
                      host['not_followed']['protection'])
        self.assertIn(at, host['not_followed']['protection'])
        self.report(enforcing=False, followed_s=cloud.NOW_S + 10)
        host = self.ok('GET', f'/v1/hosts/{cloud.HOST}')['host']
        self.assertEqual({}, host['not_followed'])
        self.assertEqual(iso(cloud.NOW_S + 10), host['followed_at'])

    def test_a_priority(self) -> None:
        def made(target: str, scope: str = 'instance') -> tuple[Any, ...]:
            found = self.ok('POST', '/v1/priorities', {
                'scope': scope, 'target': target, 'value': 'background',
                'reason': 'x'})['priority']
            return tuple(found[name] for name in (
                'workloads', 'followed', 'why_not'))

        count, followed, why_not = made(cloud.NOISY)
        self.assertEqual((1, None), (count, followed))
        self.assertIn('gets it with its next report', why_not)
        self.assertEqual((0, None, 'no host reports this instance now'),
                         made(GONE))
        self.assertEqual((1, None, ''), made(cloud.OTHER, 'project'))
        self.assertEqual((0, None, ''), made('unknown', 'project'))
        self.assertEqual((2, None, ''), made('racks', 'aggregate'))
        self.report(followed=self.generation(), refused={
            f'priority {cloud.NOISY}': 'only a flavor makes a VM so'})
        listed = {row['target']: (row['followed'], row['why_not'])
                  for row in self.ok('GET', '/v1/priorities')['priorities']}
        self.assertEqual((False, 'only a flavor makes a VM so'),
                         listed[cloud.NOISY])
        self.report(followed=self.generation())
        listed = {row['target']: row['followed'] for row in self.ok(
            'GET', '/v1/priorities')['priorities']}
        self.assertIs(True, listed[cloud.NOISY])

    def test_what_was_left_out(self) -> None:
        """Directives did not fit: what was in that part is not followed, of
        a part that was cut that is not known."""
        self.ok('PUT', CAP, WISH)
        self.ok('POST', '/v1/priorities', {
            'scope': 'instance', 'target': cloud.NOISY, 'reason': 'x',
            'value': 'background'})
        self.ok('POST', '/v1/exemptions', {
            'scope': 'instance', 'target': cloud.NOISY, 'reason': 'x'})
        self.ok('PATCH', f'/v1/hosts/{cloud.HOST}', {
            'parameters': {'scavenger.memory_c': 3.0}, 'reason': 'x'})
        fields = 'overrides', 'tags', 'exempt'
        for field, part, followed in (
                *((name, name, False) for name in fields),
                *((name, f'more {name}', None) for name in fields),
                ('', 'parameters', True)):
            self.report(followed=self.generation(),
                        refused={part: 'too many'})
            states = {
                'overrides': self.override(),
                **{name: next((row['followed'], row['why_not'])
                              for row in self.ok('GET', f'/v1/{kind}')[kind]
                              if row['target'] == cloud.NOISY)
                   for name, kind in (('tags', 'priorities'),
                                      ('exempt', 'exemptions'))}}
            for name, state in states.items():
                if name == field:
                    self.assertIs(followed, state[0], part)
                    self.assertIn('too many', state[1])
                else:
                    self.assertEqual((True, ''), state, part)
            host = self.ok('GET', f'/v1/hosts/{cloud.HOST}')['host']
            self.assertEqual('too many', host['not_followed'][part])
        self.assertEqual('too many',
                         host['not_followed'][
                             'parameter scavenger.memory_c'])

    def forecast(self, how: str) -> str:
        found = self.ok('POST', '/v1/evictions', {
            'instance': cloud.NOISY, 'how': how, 'reason': 'it disturbs',
            'dry_run': True})['eviction']
        self.assertEqual('dry run', found['state'])
        detail: str = found['detail']
        return detail

    def test_where_a_migration_would_go(self) -> None:
        self.assertIn(f'{cloud.SILENT}: its agent is silent',
                      self.forecast('live-migrate'))
        free: Any = {'headroom': {'cpu': 8.0, 'memory': 2.0 ** 34}}
        self.report(cloud.SILENT, enforcing=False, **free)
        self.assertIn(f'{cloud.SILENT}: its agent sets no limits',
                      self.forecast('live-migrate'))
        self.report(cloud.SILENT, **free)
        detail = self.forecast('live-migrate')
        self.assertIn(f'{cloud.SILENT} (8.0 cores free)', detail)
        self.assertNotIn(cloud.HOST, detail)
        self.report(cloud.SILENT, headroom={'cpu': 0.5, 'memory': 2.0 ** 34})
        self.assertIn('headroom of 0.5 cores is less than 2',
                      self.forecast('live-migrate'))
        self.assertIn(f'it would be paused on {cloud.HOST}',
                      self.forecast('pause'))
        with connect.writing(self.engine) as connection:
            connection.execute(insert(tables.hosts), [
                {'name': f'full-{number:02}', 'facts': {}, 'settings': {},
                 'first_seen_s': 0.0, 'last_seen_s': cloud.NOW_S}
                for number in range(20)])
        self.assertIn('and 11 more', self.forecast('live-migrate'))

    def test_amounts_have_units(self) -> None:
        self.report(headroom={'cpu': 3.5, 'memory': 1024.0},
                    capacity={'cpu': 8.0, 'network': 1e9},
                    used={'cpu': 0.5}, sent_s=cloud.NOW_S, followed_s=0.0,
                    followed=7,
                    cpu_model='EPYC', missing=['disk: nothing is measured'])
        host = self.ok('GET', f'/v1/hosts/{cloud.HOST}')['host']
        self.assertEqual({'cpu_cores': 3.5, 'memory_bytes': 1024.0},
                         host['headroom'])
        self.assertEqual({'cpu_cores': 8.0, 'network_bytes_per_s': 1e9},
                         host['capacity'])
        self.assertEqual(['disk: nothing is measured'], host['missing'])
        self.assertEqual({'cpu_cores': 0.5}, host['used'])
        self.assertEqual({'cpu_model': 'EPYC',
                          'sent_at': iso(cloud.NOW_S)}, host['facts'])
        self.assertIsNone(host['followed_at'])
        summary = {row['name']: row for row in self.ok(
            'GET', '/v1/summary')['hosts']}
        self.assertEqual(host['headroom'], summary[cloud.HOST]['headroom'])

    def test_reasons(self) -> None:
        """Each change has one."""
        self.ok('PUT', CAP, WISH)
        self.ok('DELETE', f'{CAP}?reason=it+is+done')
        self.ok('DELETE', f'/v1/priorities/{cloud.PRIORITY}?reason=it+moved')
        self.ok('DELETE', f'/v1/exemptions/{cloud.EXEMPTION}?reason=it+ended')
        self.assertEqual(
            ['it ended', 'it moved', 'it is done'],
            [row['reason'] for row in self.audited()[:3]])
        self.refused(400, 'DELETE', f'{CAP}?reason=')
        self.refused(400, 'PATCH', f'/v1/hosts/{cloud.HOST}',
                     {'modes': {'scavenger': 'off'}})

    def test_the_name_of_a_user(self) -> None:
        user, name = '0123456789abcdef' * 2, 'ann of the desk'
        answer = self.call('PUT', CAP, WISH, headers={
            'X-User-Id': user, 'X-User-Name': name})
        self.assertEqual(name, cloud.document(answer)['override'][
            'created_by'])
        entry = self.audited()[0]
        self.assertEqual((user, name), (entry['actor'], entry['actor_name']))
        for actor in (user, name):
            self.assertEqual([entry], self.ok(
                'GET', f'/v1/audit?actor={actor}')['audit'])

    def test_what_nothing_ever_has(self) -> None:
        for url, field in (('/v1/incidents?cause=cor', 'cause'),
                           ('/v1/incidents?outcome=foo', 'outcome'),
                           ('/v1/audit?action=protection', 'action'),
                           ('/v1/specs?signal=foo', 'signal'),
                           ('/v1/evictions?host=nowhere', 'host'),
                           ('/v1/evictions?state=foo', 'state'),
                           ('/v1/antagonists?sort=foo', 'sort'),
                           ('/v1/caps?knob=foo', 'knob'),
                           ('/v1/workloads?priority=foo', 'priority'),
                           ('/v1/priorities?scope=foo', 'scope')):
            error = self.refused(400, 'GET', url)
            self.assertEqual(field, error['field'])
            self.assertIn('allowed', error)
        # What a newer agent has reported is no mistake.
        self.assertEqual(2, len(self.ok(
            'GET', '/v1/incidents?cause=cpu')['incidents']))
        self.assertEqual([], self.ok(
            'GET', '/v1/incidents?cause=cpu&until=2001-01-01')['incidents'])
        self.assertEqual([], self.ok(
            'GET', '/v1/incidents?cause=disk')['incidents'])
