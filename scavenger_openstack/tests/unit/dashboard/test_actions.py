# SPDX-License-Identifier: Apache-2.0

"""What an operator may do about an instance out of an incident."""

from __future__ import annotations

from django import urls

from scavenger_openstack.tests.unit.dashboard import cloud
from scavenger_openstack.tests.unit.dashboard import incidents

EXEMPT, EVICT = (urls.reverse(f'horizon:admin:interference:{name}')
                 for name in ('exempt', 'evict'))


class Links(cloud.TestCase):

    def page(self, **fields):
        self.api.answers['GET', f'/v1/incidents/{incidents.PK}'] = {
            'incident': incidents.whole(**fields)}
        return self.client.get(urls.reverse(
            'horizon:admin:interference:incident', args=[incidents.PK]))

    def test_background_instance(self) -> None:
        page = self.page(caps=[incidents.limit(120, None, (120, 0.5))])
        for text in (f'{EXEMPT}?instance={incidents.NOISY}&amp;name=batch',
                     f'{EVICT}?instance={incidents.NOISY}',
                     'limits/set/?host=host-one&amp;knob=cpu_cores&amp;'
                     f'workload={incidents.NOISY}'):
            self.assertContains(page, text)
        self.assertNotContains(page, 'limits/lift/?')
        page = self.page(caps=[incidents.limit(
            120, None, (120, 0.5), override='c' * 32)])
        self.assertContains(page, 'limits/lift/?')

    def test_nothing_to_do(self) -> None:
        """Limits that were removed, foreground and containers."""
        suspects = incidents.whole()['suspects']
        for changes in ({'foreground': True}, {'antagonist': False},
                        {'instance': ''}):
            page = self.page(suspects=[{**suspects[0], **changes}])
            self.assertNotContains(page, 'What you can do')


class Forms(cloud.TestCase):

    def test_exempt(self) -> None:
        self.api.answers['POST', '/v1/exemptions'] = {'exemption': {}}
        page = self.client.get(EXEMPT, {'instance': incidents.NOISY,
                                        'name': '<b>batch</b>'})
        self.assertContains(page, '&lt;b&gt;batch&lt;/b&gt;')
        self.client.post(EXEMPT, {'instance': incidents.NOISY,
                                  'reason': 'a contract'})
        (sent,) = self.api.sent('POST')
        self.assertEqual({'scope': 'instance', 'target': incidents.NOISY,
                          'reason': 'a contract'}, sent.body)

    def test_evict_is_checked_first(self) -> None:
        self.api.answers['POST', '/v1/evictions'] = {'eviction': {
            'detail': 'Nova chooses among <2> hosts'}}
        fields = {'instance': incidents.NOISY, 'how': 'live-migrate',
                  'reason': 'it disturbs'}
        page = self.client.post(EVICT, {**fields, 'what': 'check'})
        self.assertContains(page, 'Nova chooses among &lt;2&gt; hosts')
        self.assertContains(page, incidents.NOISY)
        page = self.client.post(EVICT, {**fields, 'what': 'do'})
        self.assertEqual(302, page.status_code)
        self.assertEqual([True, False], [
            sent.body['dry_run'] for sent in self.api.sent('POST')])

    def test_reason_is_needed(self) -> None:
        for url in (EXEMPT, EVICT):
            self.client.post(url, {'instance': incidents.NOISY,
                                   'how': 'stop', 'what': 'do',
                                   'reason': ' '})
        self.assertEqual([], self.api.sent('POST'))

    def test_refused_by_the_api(self) -> None:
        self.api.answers['POST', '/v1/evictions'] = (
            409, 'web is <foreground>, which is never evicted.')
        page = self.client.post(EVICT, {
            'instance': incidents.VICTIM, 'how': 'stop', 'what': 'do',
            'reason': 'r'})
        self.assertContains(page, 'is &lt;foreground&gt;, which')


class Denied(cloud.TestCase):

    role = 'reader'

    def test_a_role_that_is_missing(self) -> None:
        for url in (EXEMPT, EVICT):
            for call in (self.client.get, self.client.post):
                page = call(url, {'instance': incidents.NOISY})
                self.assertIn(page.status_code, (302, 403))
        self.assertEqual([], self.api.sent('POST'))
