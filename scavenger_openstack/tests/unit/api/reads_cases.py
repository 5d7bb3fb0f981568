# SPDX-License-Identifier: Apache-2.0

"""What the API shows, on any database."""

from __future__ import annotations

import threading
from typing import Any

import fixtures
from sqlalchemy import delete
from sqlalchemy import event
from sqlalchemy import insert
from sqlalchemy import select
from sqlalchemy import update

from scavenger_openstack.api import cached
from scavenger_openstack.db import connect
from scavenger_openstack.db import reports
from scavenger_openstack.db.resources import hosts
from scavenger_openstack.db import tables
from scavenger_openstack.db import totals
from scavenger_openstack.tests.unit.api import cloud

at = cloud.at


class Reads:
    """On whatever database :attr:`engine` is."""

    ok: Any
    engine: Any
    assertAlmostEqual: Any
    assertEqual: Any
    assertIn: Any
    assertLess: Any
    assertNotEqual: Any
    addCleanup: Any
    call: Any
    later_s: float
    refused: Any
    start: Any
    useFixture: Any

    def listed(self, url: str, field: str) -> list[Any]:
        answer = self.ok('GET', url)
        self.assertEqual(None, answer.pop('next'))
        (rows,) = answer.values()
        return [row[field] for row in rows]

    def test_a_host_that_was_removed(self) -> None:
        """It is proposed in no answer, not even in place of itself."""
        with connect.writing(self.engine) as connection:
            hosts.remove(connection, name=cloud.SILENT, actor='op',
                         now_s=cloud.NOW_S)
        for status, url in ((404, f'/v1/hosts/{cloud.SILENT}'),
                            (400, f'/v1/incidents?host={cloud.SILENT}')):
            detail = self.refused(status, 'GET', url)['detail']
            self.assertEqual(1, detail.count(cloud.SILENT), detail)

    def test_hosts(self) -> None:
        hosts = {host['name']: host
                 for host in self.ok('GET', '/v1/hosts')['hosts']}
        one, silent = hosts[cloud.HOST], hosts[cloud.SILENT]
        self.assertEqual((True, False, 'A', ''), tuple(
            one[name] for name in ('enforcing', 'silent', 'grade',
                                   'stopped')))
        self.assertEqual(at(-5), one['last_seen_at'])
        self.assertEqual((False, True, 'the stop file is there'), tuple(
            silent[name] for name in ('enforcing', 'silent', 'stopped')))
        for query, names in (('enforcing=true', [cloud.HOST]),
                             ('enforcing=false', [cloud.SILENT]),
                             ('aggregate=racks', [cloud.HOST]),
                             ('aggregate=racks&enforcing=false', [])):
            self.assertEqual(names, self.listed(f'/v1/hosts?{query}',
                                                'name'), query)

    def test_what_suffers_without_an_incident(self) -> None:
        with connect.writing(self.engine) as connection:
            connection.execute(update(tables.hosts).where(
                tables.hosts.c.name == cloud.HOST).values(facts={
                    'suffering': {cloud.VICTIM: 'nothing to compare with '
                                                'yet'}}))
        for host in (self.ok('GET', f'/v1/hosts/{cloud.HOST}')['host'],
                     *(one for one in self.ok('GET', '/v1/hosts')['hosts']
                       if one['name'] == cloud.HOST)):
            self.assertEqual([{
                'workload': cloud.VICTIM, 'name': 'web',
                'why': 'nothing to compare with yet'}], host['suffering'])

    def test_what_is_only_remembered(self) -> None:
        """Apart from what disturbs now, with its age."""
        with connect.writing(self.engine) as connection:
            connection.execute(update(tables.hosts).where(
                tables.hosts.c.name == cloud.HOST).values(facts={
                    'remembered': {cloud.NOISY: 340.0}}))
        host = self.ok('GET', f'/v1/hosts/{cloud.HOST}')['host']
        self.assertEqual([{'workload': cloud.NOISY, 'name': 'CPU hog',
                           'age_s': 340.0}], host['remembered'])

    def test_names_beside_uuids(self) -> None:
        """In sentences, and of what only has an id."""
        with connect.writing(self.engine) as connection:
            connection.execute(update(tables.caps).values(
                reason=f'cpi of {cloud.VICTIM} rises',
                why=f'{cloud.NOISY} rests'))
            connection.execute(update(tables.incidents).values(
                action=f'limit {cloud.NOISY}'))
            connection.execute(update(tables.overrides).values(
                instance=cloud.NOISY))
        for cap in self.ok('GET', '/v1/caps')['caps']:
            self.assertEqual(f'cpi of web ({cloud.VICTIM}) rises',
                             cap['reason'])
            self.assertEqual(f'CPU hog ({cloud.NOISY}) rests', cap['why'])
        self.assertEqual(
            f'limit CPU hog ({cloud.NOISY})',
            self.ok('GET', f'/v1/incidents/{cloud.INCIDENT}')['incident'][
                'action'])
        self.assertIn('CPU hog', self.listed('/v1/caps/overrides', 'name'))

    def test_workloads(self) -> None:
        for query, ids in (
                ('', [cloud.BATCH, cloud.NOISY, cloud.VICTIM]),
                ('gone=true', ['/batch/gone']),
                (f'host={cloud.SILENT}', []),
                (f'project={cloud.OTHER}', [cloud.NOISY]),
                (f'instance={cloud.VICTIM}', [cloud.VICTIM]),
                ('application=web', [cloud.VICTIM]),
                ('priority=background', [cloud.BATCH, cloud.NOISY])):
            self.assertEqual(ids, self.listed(f'/v1/workloads?{query}',
                                              'id'), query)
        (noisy,) = self.ok(
            'GET', f'/v1/workloads?project={cloud.OTHER}')['workloads']
        self.assertEqual(('CPU hog', {'cpu_cores': 0.5}, at(-900), None),
                         (noisy['name'], noisy['floor'], noisy['since_at'],
                          noisy['until_at']))

    def test_what_limited_an_instance_for_30_days(self) -> None:
        own = cloud.add_background(self.engine)
        month = 30 * 86400
        with connect.writing(self.engine) as connection:
            old = {'host_id': self.host_id(), 'workload': own,
                   'instance': own, 'project': cloud.ONE, 'value': 1.0,
                   'knob': 'memory_bytes', 'owner': 'scavenger',
                   'reason': '', 'why': ''}
            for begin, end in ((-month - 50, -month + 10),
                               (-month - 90, -month - 60), (60, 70)):
                connection.execute(insert(tables.caps).values(
                    **old, set_s=cloud.NOW_S + begin,
                    changed_s=cloud.NOW_S + begin,
                    removed_s=cloud.NOW_S + end))
        limits = {one['instance']: one['limits'] for one in self.ok(
            'GET', '/v1/workloads?limits=true&limit=100')['workloads']}
        self.assertEqual([], limits[cloud.NOISY])
        cores, memory = limits[own]
        self.assertEqual(
            ('cpu_cores', True, 0.25, 'attribution', at(-500)), tuple(
                cores[name] for name in ('knob', 'in_force', 'value', 'owner',
                                         'set_at')))
        self.assertAlmostEqual(800.0, cores['limited_s'], places=3)
        self.assertEqual(('memory_bytes', False, None), tuple(
            memory[name] for name in ('knob', 'in_force', 'value')))
        # That by a clock which is ahead counts as it lasted.
        self.assertAlmostEqual(20.0, memory['limited_s'], places=3)
        self.assertEqual(None, self.ok('GET', '/v1/workloads')['workloads'][
            0]['limits'])
        self.assertEqual('limit', self.refused(
            400, 'GET', '/v1/workloads?limits=true&limit=101')['field'])

    def test_a_limit_is_in_each_incident_that_it_answers(self) -> None:
        """With its steps, and with the ids of all."""
        own = cloud.add_background(self.engine)
        with connect.writing(self.engine) as connection:
            connection.execute(update(tables.caps).where(
                tables.caps.c.workload == own).values(
                    incidents=f'{"0" * 32} {cloud.INCIDENT}'))
            connection.execute(update(tables.caps).where(
                tables.caps.c.removed_s.is_not(None)).values(
                    removed_s=cloud.NOW_S - 100))
        caps = self.ok('GET', f'/v1/incidents/{cloud.INCIDENT}'
                       )['incident']['caps']
        self.assertEqual([['0' * 32, cloud.INCIDENT]] * 4, [
            one['incidents'] for one in caps if one['workload'] == own])
        steps = {one['set_at']: one['steps'] for one in caps}
        self.assertEqual([{'at': at(-500), 'value': 1.0},
                          {'at': at(-400), 'value': 0.25}], steps[at(-500)])
        self.assertEqual([{'at': at(-800), 'value': 0.5}], steps[at(-800)])

    def test_an_incident_has_what_its_host_does_not_measure(self) -> None:
        """Operators see it; a host that was removed has nothing."""
        url = f'/v1/incidents/{cloud.INCIDENT}'
        with connect.writing(self.engine) as connection:
            connection.execute(update(tables.hosts).where(
                tables.hosts.c.name == cloud.HOST).values(
                    facts={'missing': ['cpu: a']}))
        self.assertEqual(['cpu: a'], self.ok('GET', url)['incident'][
            'missing'])
        self.assertEqual([], self.ok(
            'GET', url, role='reader')['incident'][
                'missing'])
        with connect.writing(self.engine) as connection:
            hosts.remove(connection, name=cloud.HOST, actor='op',
                         now_s=cloud.NOW_S)
        self.assertEqual([], self.ok('GET', url)['incident']['missing'])

    def test_incidents_by_kind_of_evidence(self) -> None:
        with connect.writing(self.engine) as connection:
            connection.execute(update(tables.incidents).where(
                tables.incidents.c.uuid == cloud.INCIDENT).values(
                    evidence_kind='direct'))
        for query, ids in (
                ('evidence_kind=direct', [cloud.INCIDENT]),
                ('evidence_kind=experiment', []),
                (f'evidence_kind=direct&host={cloud.HOST}',
                 [cloud.INCIDENT]),
                (f'evidence_kind=direct&antagonist={cloud.BATCH}',
                 [cloud.INCIDENT])):
            self.assertEqual(ids, self.listed(f'/v1/incidents?{query}',
                                              'id'), query)
        self.assertEqual(['', 'direct'], self.listed('/v1/incidents',
                                                     'evidence_kind'))
        self.refused(400, 'GET', '/v1/incidents?evidence_kind=guess')

    def test_incidents(self) -> None:
        one, other = cloud.INCIDENT, cloud.INCIDENT_OF_OTHER
        for query, ids in (
                ('', [other, one]), (f'host={cloud.HOST}', [one]),
                (f'project={cloud.OTHER}', [other]),
                (f'victim={cloud.VICTIM}', [one]),
                ('victim=/batch/x', []),
                (f'antagonist={cloud.BATCH}', [other, one]),
                (f'antagonist={cloud.NOISY}', []),      # suspected only
                ('cause=cpu', [other, one]), ('cause=disk', []),
                ('outcome=confirmed', [other, one]), ('outcome=open', []),
                (f'since={at(-301)}', [other, one]),
                (f'since={at(-299)}', []), (f'until={at(-301)}', []),
                (f'since={at(-301)}&until={at(-299)}', [other, one])):
            self.assertEqual(ids, self.listed(f'/v1/incidents?{query}',
                                              'id'), query)
        incident = self.ok('GET', f'/v1/incidents/{one}')['incident']
        self.assertEqual(
            [(cloud.BATCH, 0.99, True), (cloud.NOISY, 0.77, False)],
            [(suspect['workload'], suspect['score'], suspect['antagonist'])
             for suspect in incident['suspects']])
        self.assertEqual([cloud.BATCH], [
            antagonist['workload'] for antagonist in incident['antagonists']])
        self.assertEqual('CPU hog', incident['suspects'][1]['name'])
        self.assertEqual(
            [('direct', cloud.BATCH, '', '', 0.61, 1.9, []),
             ('direct', cloud.NOISY, 'CPU hog', cloud.OTHER, 0.23, 1.9, []),
             ('direct', '', '', '', 0.14, 1.9, ['kvm-noisy']),
             ('timing', cloud.NOISY, 'CPU hog', cloud.OTHER, 0.77, None, []),
             ('share', cloud.VICTIM, 'web', cloud.ONE, 0.02, None, [])],
            [tuple(ground[name] for name in (
                'kind', 'workload', 'name', 'project', 'share', 'waited_s',
                'threads')) for ground in incident['grounds']])
        self.assertEqual('web', incident['victim_name'])
        self.assertEqual('attribution', incident['controller'])
        self.assertEqual([None, at(-800)],
                         [incident['ended_at'],
                          incident['caps'][0]['set_at']])
        self.assertEqual(
            [[at(-290), at(-280)], [1.0, None]],
            [incident['evidence'][2][name] for name in ('times_at',
                                                        'values')])

    def test_an_antagonist_that_is_foreground(self) -> None:
        with connect.writing(self.engine) as connection:
            connection.execute(update(tables.suspects).where(
                tables.suspects.c.workload == cloud.NOISY).values(
                    antagonist=True, foreground=True))
            connection.execute(update(tables.workloads).where(
                tables.workloads.c.name == cloud.NOISY).values(
                    priority='foreground'))
        incident = self.ok('GET', f'/v1/incidents/{cloud.INCIDENT}')[
            'incident']
        for found in (incident['antagonists'], incident['suspects'], self.ok(
                'GET', '/v1/antagonists')['antagonists']):
            self.assertEqual(
                {cloud.BATCH: False, cloud.NOISY: True},
                {one['workload']: one['foreground'] for one in found})

    def test_what_limits_an_antagonist(self) -> None:
        """What all background has does not answer what one does."""
        for owner, incident, limited in (
                ('scavenger', '', False), ('leftover', '', False),
                ('operator', '', True), ('attribution', cloud.INCIDENT, True)):
            with connect.writing(self.engine) as connection:
                host = hosts.by_name(connection, cloud.HOST)
                assert host is not None
                of_noisy = tables.caps.c.workload == cloud.NOISY
                connection.execute(delete(tables.caps).where(of_noisy))
                connection.execute(insert(tables.caps).values(
                    host_id=host['id'], workload=cloud.NOISY,
                    knob='cpu_idle', value=1, owner=owner, reason='r',
                    why='', incidents=incident, set_s=cloud.NOW_S - 9,
                    changed_s=cloud.NOW_S - 9))
            self.assertEqual([True, limited], self.listed(
                '/v1/antagonists', 'limited'), owner)

    def test_antagonists(self) -> None:
        first, second = self.ok('GET', '/v1/antagonists')['antagonists']
        self.assertEqual(
            {'workload': cloud.BATCH, 'instance': '', 'name': '',
             'host': cloud.HOST, 'project': '', 'application': '',
             'incidents': 3, 'victims': 2, 'interference_s': 157.5,
             'causes': ['cpu'], 'confirmed': 3, 'refuted': 0,
             'limited': True, 'disturbs_now': True, 'foreground': False,
             'history': [], 'eviction_recommended_at': None}, first)
        self.assertEqual((cloud.NOISY, 'CPU hog', 20.0, False), tuple(
            second[name] for name in ('workload', 'name', 'interference_s',
                                      'limited')))
        for query, ids in (
                ('sort=victims', [cloud.BATCH, cloud.NOISY]),
                ('sort=incidents', [cloud.BATCH, cloud.NOISY]),
                (f'since={at(-100 * 86400)}', [cloud.NOISY, cloud.BATCH]),
                (f'until={at(-2 * 86400)}', []),
                (f'host={cloud.SILENT}', []),
                (f'project={cloud.OTHER}', [cloud.NOISY]),
                (f'victim_project={cloud.OTHER}', [])):
            self.assertEqual(ids, self.listed(f'/v1/antagonists?{query}',
                                              'workload'), query)

    def test_what_disturbs_now_stands_apart(self) -> None:
        """Of those that were named an open incident may name some no more."""
        url = '/v1/antagonists?since=' + at(-100 * 86400)
        named = tables.suspects.c
        of_open = named.incident_id.in_(select(tables.incidents.c.id).where(
            tables.incidents.c.uuid == cloud.INCIDENT))

        def change(table: Any, where: Any, **values: Any) -> None:
            with connect.writing(self.engine) as connection:
                connection.execute(update(table).where(where).values(**values))

        self.assertEqual([False, True], self.listed(url, 'disturbs_now'))
        self.assertEqual([cloud.BATCH], self.listed(f'{url}&now=true',
                                                    'workload'))
        change(tables.suspects, of_open, earlier=True)
        self.assertEqual([], self.listed(
            f'{url}&now=true&project={cloud.OTHER}', 'workload'))
        # It is limited because it did.
        self.assertEqual([cloud.BATCH], self.listed(f'{url}&now=true',
                                                    'workload'))
        change(tables.suspects, of_open, antagonist=True, earlier=False)
        for sort in ('interference_s', 'incidents', 'victims'):
            ranked = f'{url}&sort={sort}'
            self.assertEqual(self.listed(ranked, 'workload'), self.listed(
                f'{ranked}&now=true', 'workload'), sort)
        first = self.ok('GET', f'{url}&now=true&limit=1')
        second = self.ok('GET', f'{url}&now=true&limit=1&marker='
                         + first['next'])
        self.assertEqual([cloud.NOISY, cloud.BATCH, None], [
            first['antagonists'][0]['workload'],
            second['antagonists'][0]['workload'], second['next']])
        for query, number in ((f'project={cloud.OTHER}', 1),
                              (f'host={cloud.SILENT}', 0),
                              (f'victim_project={cloud.OTHER}', 0)):
            self.assertEqual(number, len(self.listed(
                f'{url}&now=true&{query}', 'workload')), query)
        change(tables.suspects, of_open & (named.workload == cloud.BATCH),
               earlier=True)
        self.assertEqual([True, False], self.listed(url, 'disturbs_now'))
        shown = self.ok('GET', f'/v1/incidents/{cloud.INCIDENT}')['incident']
        for field in ('antagonists', 'suspects'):
            self.assertEqual([(cloud.NOISY, False), (cloud.BATCH, True)], [
                (one['workload'], one['earlier']) for one in shown[field]])
        change(tables.incidents, tables.incidents.c.uuid == cloud.INCIDENT,
               ended_s=cloud.NOW_S)
        self.assertEqual([False, False], self.listed(url, 'disturbs_now'))
        change(tables.caps, tables.caps.c.workload == cloud.BATCH,
               removed_s=cloud.NOW_S)
        self.assertEqual([], self.listed(f'{url}&now=true', 'workload'))
        shown = self.ok('GET', f'/v1/incidents/{cloud.INCIDENT}')['incident']
        self.assertEqual([False, False], [
            one['earlier'] for one in shown['antagonists']])

    def test_limits(self) -> None:
        (cap,) = self.ok('GET', '/v1/caps')['caps']
        self.assertEqual((0.5, None, None, cloud.OVERRIDE), tuple(
            cap[name] for name in ('value', 'original', 'removed_at',
                                   'override')))
        for query, number in (('in_force=false', 1), ('knob=cpu_set', 0),
                              (f'host={cloud.SILENT}', 0),
                              (f'project={cloud.ONE}', 0),
                              (f'instance={cloud.NOISY}', 0)):
            self.assertEqual(number, len(self.listed(f'/v1/caps?{query}',
                                                     'id')), query)
        self.assertEqual([0.3], self.listed('/v1/caps/overrides', 'value'))
        self.assertEqual([], self.listed(
            '/v1/caps/overrides?workload=/other', 'value'))

    def test_the_rest(self) -> None:
        for url, field, values in (
                ('/v1/priorities', 'target', [cloud.OTHER]),
                ('/v1/priorities?scope=aggregate', 'target', []),
                ('/v1/exemptions', 'target', [cloud.VICTIM]),
                ('/v1/specs', 'mean', [1.2]),
                ('/v1/specs?application=x', 'mean', []),
                ('/v1/protection', 'enabled', [False, True]),
                ('/v1/protection?enabled=false', 'target', [cloud.HOST]),
                ('/v1/protection?enabled=true', 'scope', ['cloud']),
                ('/v1/governor', 'caps_per_minute', [3, None]),
                ('/v1/audit', 'actor', ['ann']),
                ('/v1/audit?by_agent=false', 'actor', ['ann']),
                ('/v1/audit?by_agent=true', 'actor', []),
                (f'/v1/audit?since={at(-10)}', 'actor', [])):
            self.assertEqual(values, self.listed(url, field), url)

    def test_pages(self) -> None:
        """Each row once, though others come meanwhile."""
        ids = self._incidents(10)
        seen: list[str] = []
        url = '/v1/incidents?limit=3&cause=disk'
        answer = self.ok('GET', url)
        while True:
            seen += [row['id'] for row in answer['incidents']]
            if answer['next'] is None:
                break
            self.assertEqual(3, len(answer['incidents']))
            self._incidents(1, start=100 + len(seen))
            answer = self.ok('GET', f'{url}&marker={answer["next"]}')
        self.assertEqual(ids[::-1], seen)

    def test_the_last_of_a_page_is_deleted(self) -> None:
        """A listing of incidents goes on after what was purged meanwhile."""
        ids = self._incidents(7)[::-1]
        url = '/v1/incidents?limit=3&cause=disk'
        first = self.ok('GET', url)
        self.assertEqual(ids[:3], [row['id'] for row in first['incidents']])
        with connect.writing(self.engine) as connection:
            connection.execute(delete(tables.incidents).where(
                tables.incidents.c.uuid.in_(ids[:3])))
        following = self.ok('GET', f'{url}&marker={first["next"]}')
        self.assertEqual(ids[3:6],
                         [row['id'] for row in following['incidents']])

    def test_pages_of_a_ranking(self) -> None:
        """Also among those that are equal; out of hours and of totals."""
        hour_s = int(cloud.NOW_S // 3600 * 3600)
        host_id = self.host_id()
        with connect.writing(self.engine) as connection:
            connection.execute(insert(tables.antagonist_hours), [
                {'host_id': host_id, 'hour_s': hour_s,
                 'workload': f'/even/{n}', 'victim': 'v', 'cause': 'disk',
                 'incidents': 1,
                 'interference_s': 0.1 + n // 4 / 3, 'confirmed': 0,
                 'refuted': 0} for n in range(9)])
        for made in (False, True):
            if made:
                self._make_totals()
            self._pages_of_a_ranking()

    def _pages_of_a_ranking(self) -> None:
        whole = self.listed('/v1/antagonists', 'workload')
        self.assertEqual(11, len(whole))
        for sort in ('interference_s', 'incidents', 'victims'):
            url, seen, marker = f'/v1/antagonists?sort={sort}&limit=2', [], ''
            while marker is not None:
                answer = self.ok('GET', url + (
                    f'&marker={marker}' if marker else ''))
                seen += [row['workload'] for row in answer['antagonists']]
                marker = answer['next']
            self.assertEqual(sorted(whole), sorted(seen))
            if sort == 'interference_s':
                self.assertEqual(whole, seen)

    def test_totals_answer_as_hours_do(self) -> None:
        urls = [f'/v1/antagonists?since={at(-days * 86400)}&{query}'
                for days in (1, 7, 30) for query in (
                    'sort=incidents', 'sort=victims', f'host={cloud.HOST}',
                    f'host={cloud.SILENT}', f'project={cloud.OTHER}',
                    f'project={cloud.ONE}', f'victim_project={cloud.ONE}',
                    f'victim_project={cloud.OTHER}', 'limit=1')]
        urls.append('/v1/antagonists')
        of_hours = [self.ok('GET', url) for url in urls]
        self._make_totals()
        with connect.writing(self.engine) as connection:
            connection.execute(delete(tables.antagonist_hours))
        self.assertEqual(of_hours, [self.ok('GET', url) for url in urls])
        # What nothing is kept of is summed, and so are totals that are old.
        self.start()
        nothing: list[str] = []
        for more in ('since=' + at(-3 * 86400), 'until=' + at(-60),
                     f'project={cloud.OTHER}&victim_project={cloud.ONE}'):
            self.assertEqual(nothing, self.listed(
                f'/v1/antagonists?{more}', 'workload'), more)
        with connect.writing(self.engine) as connection:
            connection.execute(update(tables.hosts).values(
                totals_hour_s=tables.hosts.c.totals_hour_s - 7200))
        self.assertEqual(nothing, self.listed('/v1/antagonists', 'workload'))

    def test_a_ranking_from_the_cache(self) -> None:
        """What was deleted since is left out, and a page leads to the next.
        """
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.db.resources.rankings.SLOW_S', 0.0))
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.db.resources.rankings.FACTOR', 1e9))
        url = f'/v1/antagonists?since={at(-3 * 86400)}&limit=1'
        page = self.ok('GET', url)
        (first,) = page['antagonists']
        following = f'{url}&marker={page["next"]}'
        (second,) = self.listed(following, 'workload')
        with connect.writing(self.engine) as connection:
            connection.execute(delete(tables.antagonist_hours).where(
                tables.antagonist_hours.c.workload == first['workload']))
        self.assertEqual({**page, 'antagonists': []}, self.ok('GET', url))
        self.assertEqual([second], self.listed(following, 'workload'))
        self.start()
        self.assertEqual([second], self.listed(url, 'workload'))

    def _make_totals(self) -> None:
        while connect.retried(self.engine, lambda connection: totals.advance(
                connection, reports.hour(cloud.NOW_S))):
            pass

    def test_markers_of_others(self) -> None:
        marker = self.ok('GET', '/v1/workloads?limit=1')['next']
        ranking = self.ok('GET', '/v1/antagonists?limit=1')['next']
        for url, text in (('/v1/caps', marker), ('/v1/incidents', marker),
                          ('/v1/antagonists', marker),
                          ('/v1/antagonists?sort=victims', ranking),
                          ('/v1/hosts', 'xyz'), ('/v1/hosts', '%c3%28'),
                          ('/v1/hosts', 'WyJob3N0cyIsLTFd'),
                          ('/v1/hosts', 'WyJob3N0cyIsMWU5OTld')):
            error = self.refused(
                400, 'GET',
                url + ('&' if '?' in url else '?') + f'marker={text}')
            self.assertEqual('marker', error['field'], url)

    def test_history_of_antagonists(self) -> None:
        """The seconds of each part of the span; none unless asked for."""
        for row in self.ok('GET', '/v1/antagonists')['antagonists']:
            self.assertEqual([], row['history'])
        rows = {row['workload']: row for row in self.ok(
            'GET', '/v1/antagonists?parts=24')['antagonists']}
        for name, row in rows.items():
            self.assertEqual(24, len(row['history']))
            self.assertAlmostEqual(row['interference_s'],
                                   sum(row['history']), 6, name)
        self.assertAlmostEqual(107.0, rows[cloud.BATCH]['history'][-1])
        (whole,) = self.ok('GET', f'/v1/antagonists?parts=1&limit=1&project='
                                  f'{cloud.OTHER}')['antagonists']
        self.assertEqual([20.0], whole['history'])
        self.refused(400, 'GET', '/v1/antagonists?parts=61')

    def test_an_eviction_that_is_recommended(self) -> None:
        with connect.writing(self.engine) as connection:
            connection.execute(insert(tables.recommendations).values(
                instance=cloud.NOISY, time_s=cloud.NOW_S - 60))
        self.assertEqual(
            {cloud.NOISY: at(-60), cloud.BATCH: None},
            {row['workload']: row['eviction_recommended_at']
             for row in self.ok('GET', '/v1/antagonists')['antagonists']})

    def test_a_workload_by_its_name(self) -> None:
        url = f'/v1/workloads?name={cloud.BATCH}'
        self.assertEqual([{'cpu_cores': 0.1}], self.listed(
            f'{url}&host={cloud.HOST}', 'floor'))
        self.assertEqual([], self.listed(
            f'{url}&host={cloud.SILENT}', 'floor'))
        self.assertEqual('host', self.refused(400, 'GET', url)['field'])

    def test_overview(self) -> None:
        hour_s = reports.hour(cloud.NOW_S)
        with connect.writing(self.engine) as connection:
            (one, two) = connection.scalars(
                select(tables.hosts.c.id).order_by(tables.hosts.c.id)).all()
            connection.execute(
                update(tables.hosts).where(tables.hosts.c.id == one).values(
                    background={'hour_s': hour_s, 'core_s': 100.0,
                                'byte_s': 8.0},
                    facts={'grade': 'A', 'used': {'cpu': 1.5},
                           'missing': ['cpu: a', 'disk: b', 'disk: c'],
                           'modes': {'scavenger': 'enforce'},
                           'precision': {'attribution': {'confirmed': 3}}}))
            for hours, seconds in ((0, 30.0), (2, 60.0), (24, 90.0),
                                   (25, 600.0), (168, 1.0), (169, 7777.0)):
                at_s = hour_s - 3600 * hours
                connection.execute(insert(tables.victim_hours).values(
                    host_id=one, hour_s=at_s, victim=cloud.VICTIM,
                    instance=cloud.VICTIM, project=cloud.ONE, incidents=1,
                    interference_s=seconds))
                connection.execute(insert(tables.background_hours).values(
                    host_id=two, hour_s=at_s, core_s=10 * seconds,
                    byte_s=seconds))
        found = self.ok('GET', '/v1/overview')['overview']
        self.assertEqual(
            {'all': 2, 'silent': 1, 'enforcing': 1, 'observing': 0,
             'stopped': 0, 'grades': {'A': 1, '': 1}, 'versions': {'1': 2},
             'missing': {'cpu': 1, 'disk': 1}, 'undetecting': 2,
             'modes': {'scavenger': {'enforce': 1}}}, found['hosts'])
        self.assertEqual((2, {'attribution': 1}, 1, 1.5),
                         tuple(found[name] for name in (
                             'incidents_open', 'limits', 'overrides',
                             'background_cores')))
        self.assertEqual({'attribution': {'confirmed': 3}},
                         found['precision'])
        self.assertEqual(
            [(86400, 3, 180.0, 1900.0), (7 * 86400, 5, 781.0, 7910.0)],
            [(span['span_s'], span['incidents'], span['interference_s'],
              span['background_core_s']) for span in found['spans']])
        self.assertEqual(25, len(found['hours']))
        self.assertEqual((30.0, 400.0), tuple(
            found['hours'][-1][name]
            for name in ('interference_s', 'background_core_s')))
        (victim,) = found['victims']
        self.assertEqual((cloud.VICTIM, 'web', cloud.ONE, 180.0), tuple(
            victim[name] for name in ('workload', 'name', 'project',
                                      'interference_s')))
        self.refused(403, 'GET', '/v1/overview', role='reader')

    def test_report(self) -> None:
        """Of full hours, the worst first; totals are of all rows."""
        hour_s = reports.hour(cloud.NOW_S)
        with connect.writing(self.engine) as connection:
            one, two = connection.scalars(
                select(tables.hosts.c.id).order_by(tables.hosts.c.id)).all()
            for hours, host, victim, project, seconds in (
                    (0, one, 'web', 'p1', 7777.0), (1, one, 'web', 'p1', 60.0),
                    (2, one, 'web', 'p1', 30.0), (2, two, 'web', 'p1', 5.0),
                    (3, two, 'db', 'p2', 10.0),
                    (24 * 7 + 1, two, 'db', 'p2', 9999.0)):
                at_s = hour_s - 3600 * hours
                connection.execute(insert(tables.victim_hours).values(
                    host_id=host, hour_s=at_s, victim=victim,
                    project=project, application='shop', incidents=1,
                    interference_s=seconds))
                connection.execute(insert(tables.background_hours).values(
                    host_id=host, hour_s=at_s, core_s=10 * seconds,
                    byte_s=seconds))
        found = self.ok('GET', '/v1/report')['report']
        self.assertEqual((4, 105.0, 1050.0, 105.0), tuple(
            found[name] for name in (
                'incidents', 'interference_s', 'background_core_s',
                'background_byte_s')))
        self.assertEqual(
            [('p1', 'shop', 2, 3, 95.0), ('p2', 'shop', 1, 1, 10.0)],
            [tuple(row.values()) for row in found['projects']])
        self.assertEqual(
            [(cloud.HOST, 2, 90.0, 900.0, 90.0),
             (cloud.SILENT, 2, 15.0, 150.0, 15.0)],
            [tuple(row.values()) for row in found['hosts']])
        self.assertEqual([(cloud.BATCH, 50.5)], [
            (row['workload'], row['interference_s'])
            for row in found['antagonists']])
        with connect.writing(self.engine) as connection:
            connection.execute(update(tables.incidents).values(
                begun_s=hour_s - 3600))
        self.assertEqual(
            [('attribution', 2, 0, 0)], [tuple(row.values()) for row in
                                         self.ok('GET', '/v1/report')[
                                             'report']['precision']])
        ever = self.ok('GET', '/v1/report?since=0001-01-01T00:00:00%2B14:00')
        self.assertEqual('1970-01-01T00:00:00.000Z',
                         ever['report']['since_at'])
        some = self.ok('GET', '/v1/report?limit=1')['report']
        self.assertEqual((1, 1, 105.0), (
            len(some['projects']), len(some['hosts']),
            some['interference_s']))
        for query, field in ((f'since={cloud.at(0)}', 'since'),
                             ('since=soon', 'since'), ('limit=0', 'limit')):
            self.assertEqual(field, self.refused(
                400, 'GET', f'/v1/report?{query}')['field'])

    def test_names_that_a_host_invents(self) -> None:
        """One host makes no answer long, and hides no name of all hosts."""
        with connect.writing(self.engine) as connection:
            one, two = connection.scalars(
                select(tables.hosts.c.id).order_by(tables.hosts.c.id)).all()
            names = [f'{i:03d}' for i in range(300)]
            for host, some in ((one, [*names, 'real']), (two, ['real'])):
                connection.execute(update(tables.hosts).where(
                    tables.hosts.c.id == host).values(version='v', facts={
                        'modes': dict.fromkeys(some, 'observe'),
                        'precision': {name: {'confirmed': 9 if host == one
                                             else 1} for name in some}}))
                for name in some:
                    number = f'{host}-{name}'
                    connection.execute(insert(tables.caps).values(
                        host_id=host, workload=number, knob='cpu_cores',
                        owner=name, reason='', why='', set_s=1.0,
                        changed_s=1.0))
                    connection.execute(insert(tables.incidents).values(
                        host_id=host, uuid=number, victim='v', signal='cpi',
                        cause='cpu', controller=name, action='',
                        outcome='confirmed', evidence=[],
                        begun_s=cloud.NOW_S - 7200,
                        changed_s=cloud.NOW_S))
            for name in names:
                connection.execute(insert(tables.antagonist_hours).values(
                    host_id=one, workload='batch', victim='v', cause=name,
                    hour_s=reports.hour(cloud.NOW_S), incidents=1,
                    interference_s=9e9, confirmed=0, refuted=0))
        found = self.ok('GET', '/v1/overview')['overview']
        for counts in (found['limits'], found['precision'],
                       found['hosts']['modes']):
            self.assertIn('real', counts)
            self.assertEqual(21, len(counts))
        self.assertEqual((2, 300 + 2 + 1), (
            found['limits']['real'], sum(found['limits'].values())))
        precision = self.ok('GET', '/v1/report?limit=5')['report'][
            'precision']
        self.assertEqual(5, len(precision))
        self.assertIn('real', [one['controller'] for one in precision[:2]])
        for query in ('', f'?since={cloud.at(-7200)}'):
            found = self.ok('GET', f'/v1/antagonists{query}')
            self.assertEqual([], [
                one for one in found['antagonists']
                if len(one['causes']) > 20])

    def test_overview_of_nothing(self) -> None:
        with connect.writing(self.engine) as connection:
            for table in reversed(tables.METADATA.sorted_tables):
                if table.name != 'claims':
                    connection.execute(delete(table))
        found = self.ok('GET', '/v1/overview')['overview']
        self.assertEqual((0, 0, None, []), (
            found['hosts']['all'], found['incidents_open'],
            found['background_cores'], found['victims']))

    def test_summary(self) -> None:
        hosts = {host['name']: host
                 for host in self.ok('GET', '/v1/summary')['hosts']}
        shown = {host['name']: host
                 for host in self.ok('GET', '/v1/hosts')['hosts']}
        self.assertEqual({cloud.HOST, cloud.SILENT}, set(hosts))
        for name, host in hosts.items():
            self.assertEqual(
                {field: shown[name][field]
                 for field in ('silent', 'enforcing', 'headroom',
                               'capacity')},
                {field: host[field]
                 for field in ('silent', 'enforcing', 'headroom',
                               'capacity')})
        now = [incident for incident in self.ok(
            'GET', '/v1/incidents')['incidents']
            if incident['ended_at'] is None]
        there = self.ok('GET', '/v1/workloads?priority=background&gone=false'
                        )['workloads']
        for name, host in hosts.items():
            self.assertEqual(
                (sum(one['host'] == name for one in now),
                 sum(one['vcpus'] for one in there if one['host'] == name)),
                (host['incidents'], host['background_vcpus']))
        self.assertLess(0, hosts[cloud.HOST]['background_vcpus'])
        self.assertLess(0, hosts[cloud.HOST]['incidents'])
        with connect.writing(self.engine) as connection:
            connection.execute(update(tables.incidents).values(
                ended_s=cloud.NOW_S))
        self.later_s = cached.KEEP_S
        self.assertEqual({0}, {
            host['incidents']
            for host in self.ok('GET', '/v1/summary')['hosts']})

    def test_a_summary_is_made_once_in_a_while(self) -> None:
        """For all that ask, at the same time or within seconds; one that has
        it gets no other copy."""
        read: list[str] = []

        def before(connection: Any, cursor: Any, statement: str, *more: Any
                   ) -> None:
            if 'FROM hosts' in statement:
                read.append(statement)

        event.listen(self.engine, 'before_cursor_execute', before)
        self.addCleanup(event.remove, self.engine, 'before_cursor_execute',
                        before)
        threads = [threading.Thread(target=self.ok,
                                    args=('GET', '/v1/summary'))
                   for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        answer = self.call('GET', '/v1/summary')
        self.assertEqual(1, len(read))
        etag = answer.headers['ETag']
        again = self.call('GET', '/v1/summary',
                          headers={'If-None-Match': etag})
        self.assertEqual((304, ''), (again.status_code, again.text))
        self.refused(403, 'GET', '/v1/summary', role='stranger')
        self.later_s = cached.KEEP_S
        again = self.call('GET', '/v1/summary',
                          headers={'If-None-Match': etag})
        self.assertEqual((304, 2), (again.status_code, len(read)))
        with connect.writing(self.engine) as connection:
            connection.execute(update(tables.incidents).values(
                ended_s=cloud.NOW_S))
        self.later_s = 2 * cached.KEEP_S
        again = self.call('GET', '/v1/summary',
                          headers={'If-None-Match': etag})
        self.assertEqual((200, 3), (again.status_code, len(read)))
        self.assertNotEqual(etag, again.headers['ETag'])

    def test_what_agents_cannot_have_measured(self) -> None:
        """It is null, and the answer is JSON."""
        with connect.writing(self.engine) as connection:
            connection.execute(update(tables.incidents).values(
                begun_s=1e300))
        shown = self.ok('GET', '/v1/incidents')['incidents'][0]
        self.assertEqual(None, shown['begun_at'])

    def host_id(self) -> int:
        with connect.reading(self.engine) as connection:
            found = hosts.by_name(connection, cloud.HOST)
        assert found is not None
        return found['id']

    def _incidents(self, number: int, start: int = 0) -> list[str]:
        host_id = self.host_id()
        rows = [{'host_id': host_id, 'uuid': f'{start + n:032x}',
                 'victim': 'v', 'signal': 'cpi', 'action': '',
                 'outcome': 'open', 'cause': 'disk',
                 'begun_s': 1000.0 + (start + n) // 3,
                 'changed_s': 1.0, 'evidence': []} for n in range(number)]
        with connect.writing(self.engine) as connection:
            connection.execute(insert(tables.incidents), rows)
        return [str(row['uuid']) for row in rows]
