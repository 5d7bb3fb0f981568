# SPDX-License-Identifier: Apache-2.0

"""Incidents of operators: the tab, and the page of one."""

from __future__ import annotations

import datetime
import json
import re

from django import urls
from django.utils import timezone

from scavenger_openstack.dashboard.admin import incidents as tab
from scavenger_openstack.dashboard import client
from scavenger_openstack import grounds
from scavenger_openstack.tests.unit.dashboard import cloud
from scavenger_openstack.tests.unit import panel_answers
from scavenger_openstack.tests.unit import panel_incidents as incidents
from scavenger_openstack.tests.unit.panel_incidents import at

INDEX = urls.reverse('horizon:admin:interference:index')
TAB = 'interference__incidents'
HOSTILE = (*cloud.NAMES, '\u05e2\u05d1\u05e8\u05d9\u05ea')


class ListTest(cloud.TestCase):

    def page(self, **query):
        return self.client.get(INDEX, {'tab': TAB, **query})

    def answer(self, *found, next_=None):
        self.api.answers['GET', '/v1/incidents'] = {
            'incidents': list(found), 'next': next_}

    def asked(self):
        return [seen for seen in self.api.requests
                if seen.path == '/v1/incidents'][-1].query

    def test_row(self) -> None:
        self.answer(incidents.listed())
        page = self.page()
        for text in ('web', 'host-one', 'core', 'batch', 'direct',
                     'confirmed', '5 min', '2026-11-23 03:00:00'):
            self.assertContains(page, text)
        self.assertContains(page, urls.reverse(
            'horizon:admin:interference:incident', args=[incidents.PK]))

    def test_filters_are_asked_for_and_kept(self) -> None:
        self.answer(next_='more')
        query = {'host': 'h"1', 'project': 'p', 'victim': 'v',
                 'antagonist': 'a', 'cause': 'disk', 'outcome': 'open',
                 'evidence_kind': 'experiment'}
        page = self.page(**query, marker='here')
        asked = self.asked()
        self.assertEqual(str(tab.PAGE), asked.pop('limit'))
        self.assertEqual({**query, 'marker': 'here'}, asked)
        self.assertContains(page, 'value="h&quot;1"')
        self.assertContains(page, '<option value="disk" selected>')
        for cause in (*grounds.CAUSES, grounds.EVICTION):
            self.assertContains(page, f'<option value="{cause}"')
        self.assertContains(page, '<option value="experiment" selected>')
        older = re.search(r'href="(\?[^"]*marker=more[^"]*)"',
                          page.content.decode())
        assert older is not None
        self.client.get(INDEX + older[1].replace('&amp;', '&'))
        self.assertEqual({**query, 'marker': 'more',
                          'limit': str(tab.PAGE)}, self.asked())

    def test_times(self) -> None:
        self.answer()
        before = timezone.now()
        self.page(since='2h', until='2026-11-23T10:00+02:00')
        asked = self.asked()
        since = datetime.datetime.fromisoformat(asked['since'])
        self.assertLess(abs(before - datetime.timedelta(hours=2) - since),
                        datetime.timedelta(seconds=60))
        self.assertEqual('2026-11-23T08:00:00.000Z', asked['until'])

    def test_a_time_without_a_zone_is_in_that_of_the_user(self) -> None:
        now = timezone.now()
        with timezone.override('Asia/Kolkata'):
            self.assertEqual('2026-11-23T04:30:00.000Z',
                             tab.moment('2026-11-23 10:00', now))
        for text in ('yesterday', '', '9' * 300 + 'd',
                     '0001-01-01T00:00+23:00', '\x00'):
            self.assertRaises(client.Refused, tab.moment, text, now)

    def test_a_wrong_time_asks_nothing(self) -> None:
        page = self.page(since='<b>soon</b>')
        self.assertContains(page, '&lt;b&gt;soon&lt;/b&gt;')
        self.assertContains(page, 'neither a duration')
        self.assertContains(page, 'ng-non-bindable', 2)
        self.assertNotIn('/v1/incidents', [
            seen.path for seen in self.api.requests])

    def test_none_at_all_and_none_that_matches(self) -> None:
        self.answer()
        self.api.answers['GET', '/v1/overview'] = {
            'overview': panel_answers.OVERVIEW}
        for page in (self.page(), self.page(cause='disk')):
            self.assertContains(page, '(disk on 2 hosts)')
        self.assertContains(self.page(), 'No incident is recorded')
        self.assertContains(self.page(cause='disk'), 'No incident matches')

    def test_names_are_escaped(self) -> None:
        for name in HOSTILE:
            self.answer(incidents.listed(
                name, host=name, cause=name, outcome=name,
                evidence_kind=name, antagonists=[
                    {'workload': name, 'name': name}]))
            page = self.page().content.decode()
            self.assertNotIn('<script>alert', page)
            self.assertNotIn('<img src=x', page)
            self.assertNotIn('\u202e', page)

    def test_a_host_that_names_as_much_as_it_may(self) -> None:
        """Does not hide what it does."""
        suspect = {**incidents.listed()['antagonists'][0],
                   'workload': '\u00fc' * 255, 'name': '\u00fc' * 255}
        self.answer()
        self.api.raw = json.dumps({'next': None, 'incidents': [
            incidents.listed(antagonists=[suspect] * 64)] * tab.PAGE}).encode()
        self.assertContains(self.page(), '\u00fc' * 255)

    def test_refused_by_the_api(self) -> None:
        self.api.answers['GET', '/v1/incidents'] = (
            400, 'cause is none of <core>.')
        self.assertContains(self.page(cause='x'),
                            'cause is none of &lt;core&gt;.')

    def test_a_role_that_is_missing(self) -> None:
        self.api.answers['GET', '/v1/incidents'] = (403, 'No.')
        page = self.page()
        self.assertEqual(200, page.status_code)
        self.assertContains(page, 'No.')

    def test_a_token_that_expired(self) -> None:
        self.api.status = 401
        page = self.page()
        self.assertEqual(302, page.status_code)
        self.assertIn('/auth/login', page['Location'])

    def test_part_for_the_script(self) -> None:
        self.answer(incidents.listed())
        page = self.client.get(INDEX, {'tab': TAB, 'cause': 'core'},
                               headers={'X-Requested-With':
                                        'XMLHttpRequest'})
        self.assertNotContains(page, '<html')
        self.assertContains(page, 'interference-fragment')
        self.assertEqual('core', self.asked()['cause'])


class ShowTest(cloud.TestCase):

    def page(self, incident=None, pk=incidents.PK, **options):
        if incident is not None:
            self.api.answers['GET', f'/v1/incidents/{pk}'] = {
                'incident': incident}
        return self.client.get(urls.reverse(
            'horizon:admin:interference:incident', args=[pk]), **options)

    def test_names_that_disturb_no_more_stand_apart(self) -> None:
        now, before = ({**incidents.listed()['antagonists'][0], 'name': name,
                        'earlier': name == 'before'}
                       for name in ('now', 'before'))
        page = self.page(incidents.whole(antagonists=[now, before]))
        self.assertContains(page, 'Named: now.')
        self.assertContains(page, 'Disturbed it earlier, and no more: before.')
        page = self.page(incidents.whole(antagonists=[before]))
        self.assertContains(page, 'No workload is named')

    def test_why_it_was_limited(self) -> None:
        page = self.page(incidents.whole())
        for text in ('web suffered: the CPU wait was 0.9 s waited per s of '
                     'CPU time; the threshold is 0.2 s', 'Named: batch.',
                     'Confirmed', 'Direct evidence', 'during 61 %',
                     'Timing', 'r = 0.93',
                     'cpu_cores = 0.5 cores, no limit before; by '
                     'attribution: it ran during 61 % of the wait of web',
                     'cpu_cores = 0.25 cores, 0.5 cores before',
                     'cpu_cores = no limit again, 0.25 cores before: web '
                     'is well again', '<svg'):
            self.assertContains(page, text)
        content = page.content.decode()
        steps = [content.index(text) for text in (
            'The harm began', 'Limit set', 'Limit changed', 'Limit removed',
            'The incident ended')]
        self.assertEqual(sorted(steps), steps)
        self.assertContains(page, urls.reverse(
            'horizon:admin:instances:detail', args=[incidents.VICTIM]))
        self.assertContains(page, 'tab=interference__hosts&amp;host=host-one')
        self.assertContains(page, 'disk: waits are not measured')

    def test_table_has_the_numbers_of_the_picture(self) -> None:
        page = self.page(incidents.whole())
        self.assertContains(page, '<td>0.9 s waited per s of CPU time</td>',
                            12)
        self.assertContains(page, '<td>3 cores</td>', 12)

    def test_names_are_escaped(self) -> None:
        for name in HOSTILE:
            fields = incidents.whole(
                name, name, host=name, cause=name, controller=name,
                action=name, project=name, signal=name)
            fields['caps'][0].update(reason=name, why=name, owner=name)
            page = self.page(fields)
            self.assertEqual(200, page.status_code)
            content = page.content.decode()
            for text in ('<script>alert', '<img src=x', '\u202e'):
                self.assertNotIn(text, content)

    def test_an_incident_with_nothing(self) -> None:
        page = self.page(incidents.whole(
            suspects=[], grounds=[], evidence=[], caps=[], antagonists=[],
            value=None, threshold=None, action='', outcome='open',
            ended_at=None, host='', victim_instance=''))
        for text in ('No measurements', 'no evidence', 'No workload is named',
                     'was unknown', 'so far', 'No limit has been judged'):
            self.assertContains(page, text)

    def test_the_host_itself(self) -> None:
        fields = incidents.whole(antagonists=[], suspects=[])
        fields['grounds'] = [{**fields['grounds'][0], 'workload': '',
                              'name': '', 'threads': ['kswapd0']}]
        page = self.page(fields)
        self.assertContains(page, 'The host itself (kswapd0) ran')
        self.assertContains(page, 'The host itself is named')

    def test_a_clock_that_is_ahead(self) -> None:
        ahead = timezone.now() + datetime.timedelta(hours=3)
        page = self.page(incidents.whole(
            begun_at=at(0, ahead), ended_at=None, outcome='open'))
        self.assertContains(page, 'the clock of its host is ahead')

    def test_times_that_no_calendar_has(self) -> None:
        fields = incidents.whole(begun_at=None, changed_at=None,
                                 ended_at=None)
        fields['caps'][0].update(set_at=None, steps=[])
        fields['evidence'][0]['times_at'][3] = None
        self.assertEqual(200, self.page(fields).status_code)

    def test_times_that_another_zone_does_not_have(self) -> None:
        self.addCleanup(timezone.deactivate)
        for zone, time in (('Asia/Tokyo', '9999-12-31T23:59:59.999Z'),
                           ('America/New_York', '0001-01-01T00:00:00.000Z')):
            self.client.cookies['django_timezone'] = zone
            fields = incidents.whole(begun_at=time, changed_at=time,
                                     ended_at=time)
            fields['caps'][0].update(set_at=time, removed_at=time, steps=[
                {'at': time, 'value': 1.0}])
            fields['evidence'][0]['times_at'][3] = time
            self.assertEqual(200, self.page(fields).status_code)

    def test_a_bookmark_to_what_was_purged(self) -> None:
        page = self.page()
        self.assertEqual(404, page.status_code)
        self.assertContains(page, 'or no longer', status_code=404)
        self.assertContains(page, f'tab={TAB}', status_code=404)

    def test_names_that_are_no_ids(self) -> None:
        for pk in ('..', '.', '%2e', 'x' * 300, '<b>'):
            page = self.page(pk=pk)
            self.assertEqual(404, page.status_code, pk)

    def test_a_role_that_is_missing(self) -> None:
        self.api.answers['GET', f'/v1/incidents/{incidents.PK}'] = (
            403, 'The policy does not allow this.')
        page = self.page()
        self.assertContains(page, 'does not allow', status_code=403)

    def test_a_token_that_expired(self) -> None:
        self.api.status = 401
        page = self.page()
        self.assertEqual(302, page.status_code)

    def test_slow(self) -> None:
        self.api.delay_s = 3
        self.assertContains(self.page(incidents.whole()),
                            'did not answer within 2 s')

    def test_times_are_those_of_the_user(self) -> None:
        """Also in the part that the script asks for."""
        self.client.cookies['django_timezone'] = 'Asia/Kolkata'
        self.addCleanup(timezone.deactivate)
        for headers in ({'X-Requested-With': 'XMLHttpRequest'}, {}):
            timezone.deactivate()
            page = self.page(incidents.whole(), headers=headers)
            self.assertContains(page, '2026-11-23 08:30:00')
            self.assertContains(page, '>08:31</text>')

    def test_part_for_the_script(self) -> None:
        page = self.page(incidents.whole(),
                         headers={'X-Requested-With': 'XMLHttpRequest'})
        self.assertNotContains(page, '<html')
        self.assertContains(page, '<svg')
