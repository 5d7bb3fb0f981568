# SPDX-License-Identifier: Apache-2.0

"""Interference profiles: the tab and the page of operators, and what tenants
see of them."""

from __future__ import annotations

from typing import Any

from django import urls
from django.utils import html

from scavenger_openstack.plot import heat
from scavenger_openstack.tests.unit.dashboard import cloud
from scavenger_openstack.tests.unit import panel_answers as answers

INDEX = urls.reverse('horizon:admin:interference:index')
SHOW = urls.reverse('horizon:admin:interference:profile',
                    args=[answers.PROFILE])
DELETE = urls.reverse('horizon:admin:interference:profile_delete')
OWN = urls.reverse('horizon:project:disturbances:profiles')
OWN_SHOW = urls.reverse('horizon:project:disturbances:profile',
                        args=[answers.PROFILE])
HOSTILE = (*cloud.NAMES, '\u05e2\u05d1')


class Case(cloud.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.answer()

    def answer(self, **fields: Any) -> None:
        self.api.answers.update(answers.ANSWERS)
        self.api.answers['GET', '/v1/profiles'] = answers.listing(
            'profiles', answers.profile(**fields))
        self.api.answers['GET', f'/v1/profiles/{answers.PROFILE}'] = {
            'profile': answers.profile(**fields)}

    def shown(self, url: str, **query: str) -> str:
        page = self.client.get(url, query)
        self.assertEqual(200, page.status_code)
        return str(page.content.decode())

    def plain(self, text: str) -> str:
        return ' '.join(html.strip_tags(text.replace('<', ' <')).split())

    def asked(self) -> dict[str, str]:
        return [seen.query for seen in self.api.requests
                if seen.path == '/v1/profiles'][-1]


class List(Case):

    def tab(self, **query: str) -> str:
        return self.shown(INDEX, tab='interference__profiles', **query)

    def test_a_row(self) -> None:
        text = self.tab()
        for words in ('shop (application)', 'measured 3 of 17 sources',
                      '2026-11-29 03:00:00', answers.HOST,
                      '40 %: 1 memory capacity', '63 %: 11 integer units'):
            self.assertIn(words, self.plain(text))
        self.assertIn(SHOW, text)

    def test_filters(self) -> None:
        self.tab(kind='flavor', target='m1', project='p1')
        self.assertEqual(
            ('flavor', 'm1', 'p1'), tuple(self.asked()[name] for name in (
                'kind', 'target', 'project')))
        self.tab(kind='odd')
        self.assertNotIn('kind', self.asked())

    def test_pages_keep_the_filters(self) -> None:
        self.api.answers['GET', '/v1/profiles'] = answers.listing(
            'profiles', answers.profile(), next='more')
        text = self.tab(kind='image')
        self.assertIn('kind=image&amp;profiles_marker=more', text.replace(
            'tab=interference__profiles&amp;', ''))
        self.tab(profiles_marker='more')
        self.assertEqual('more', self.asked()['marker'])

    def test_none(self) -> None:
        self.api.answers['GET', '/v1/profiles'] = answers.listing('profiles')
        self.assertIn('scavenger-ibench profile', self.tab())
        self.assertIn('No profile matches', self.tab(target='x'))

    def test_nothing_measured_of_one_side(self) -> None:
        self.answer(caused={}, source='estimated', host='', project='')
        text = self.plain(self.tab())
        self.assertIn('for every project', text)
        self.assertIn('estimated 2 of 17', text)


class Show(Case):

    @cloud.without_scripts
    def test_values_and_intervals_are_drawn_and_in_the_table(self) -> None:
        text = self.shown(SHOW)
        self.assertEqual(1, text.count('<svg'))
        for soi in heat.LABELS.values():
            self.assertIn(html.escape(soi), text)
        plain = self.plain(text)
        for words in ('1 memory capacity 40 % (35 to 45 %) 0 %',
                      '6 LLC capacity not measured not measured this host '
                      'has one CPU', '10 TLB 100 % not measured',
                      'p99_s: 1.1 ms alone; it breaks at 1.2 ms'):
            self.assertIn(words, plain)
        self.assertIn(f'{DELETE}?profile={answers.PROFILE}', text)

    def test_an_estimate_says_so(self) -> None:
        self.answer(source='estimated', qos=None, host='', missing={})
        plain = self.plain(self.shown(SHOW))
        self.assertIn('nothing was injected', plain)
        self.assertNotIn('quality of service is', plain)
        self.answer(form='short')
        self.assertIn('10 ms', self.plain(self.shown(SHOW)))

    def test_one_that_is_gone(self) -> None:
        del self.api.answers['GET', f'/v1/profiles/{answers.PROFILE}']
        page = self.client.get(SHOW)
        self.assertContains(page, 'or no longer', status_code=404)
        self.assertContains(page, 'tab=interference__profiles',
                            status_code=404)

    def test_an_api_of_another_version(self) -> None:
        for fields in ({'tolerated': {'tlb': 0.4}}, {'measured_s': 'now'},
                       {'tolerated': None}):
            self.answer(**fields)
            self.assertIn('versions differ', self.shown(SHOW), fields)

    def test_a_time_that_is_none(self) -> None:
        self.answer(measured_s=1e300)
        self.assertNotIn('versions differ', self.shown(SHOW))

    def test_names_are_escaped(self) -> None:
        for name in HOSTILE:
            self.answer(target=name, project=name, host=name, qos={
                'signal': name, 'alone': 1.0, 'bound': 2.0},
                missing={'tlb': name})
            for text in (self.shown(SHOW), self.shown(
                    INDEX, tab='interference__profiles')):
                for markup in ('<script>alert', '<img src=x', '\u202e'):
                    self.assertNotIn(markup, text)


class Delete(Case):

    def test_with_a_reason(self) -> None:
        page = self.client.get(DELETE, {'profile': answers.PROFILE,
                                        'name': '<b>shop</b>'})
        self.assertContains(page, '&lt;b&gt;shop&lt;/b&gt;')
        for reason in ('', ' '):
            self.client.post(DELETE, {'profile': answers.PROFILE,
                                      'reason': reason})
        self.assertEqual([], self.api.sent('DELETE'))
        path = f'/v1/profiles/{answers.PROFILE}'
        self.api.answers['DELETE', path] = None
        page = self.client.post(DELETE, {'profile': answers.PROFILE,
                                         'reason': 'it changed'})
        self.assertEqual(302, page.status_code)
        (sent,) = self.api.sent('DELETE')
        self.assertEqual((path, 'it changed'),
                         (sent.path, sent.query['reason']))

    def test_refused_by_the_api(self) -> None:
        self.api.answers['DELETE', f'/v1/profiles/{answers.PROFILE}'] = (
            404, 'There is no <such> profile.')
        page = self.client.post(DELETE, {'profile': answers.PROFILE,
                                         'reason': 'r'})
        self.assertContains(page, 'no &lt;such&gt; profile')

    def test_an_id_that_is_none(self) -> None:
        for odd in ('..', '.'):
            self.client.post(DELETE, {'profile': odd, 'reason': 'r'})
        self.assertEqual([], self.api.sent('DELETE'))


class Tenant(Case):

    role = 'reader'

    def test_own_profiles(self) -> None:
        text = self.shown(OWN)
        self.assertIn(OWN_SHOW, text)
        self.assertNotIn(answers.HOST, text)
        self.api.answers['GET', '/v1/incidents'] = answers.listing(
            'incidents')
        self.api.answers['GET', '/v1/evictions'] = answers.listing(
            'evictions')
        self.assertIn(OWN, self.shown(urls.reverse(
            'horizon:project:disturbances:index')))

    def test_nothing_of_others_whatever_the_api_answers(self) -> None:
        """An operator's token shows more."""
        self.api.answers['GET', '/v1/profiles'] = answers.listing(
            'profiles', *(answers.profile(target=name, project=project)
                          for name, project in (
                              ('own', '1'), ('shared', ''),
                              ('secret', 'other'))))
        text = self.shown(OWN)
        self.assertEqual([True, True, False], [
            f'<bdi>{name}</bdi>' in text
            for name in ('own', 'shared', 'secret')])

    @cloud.without_scripts
    def test_one_whatever_the_api_answers(self) -> None:
        for project in ('1', ''):
            self.answer(project=project)
            text = self.shown(OWN_SHOW)
            self.assertIn('<svg', text)
            for hidden in (answers.HOST, answers.PROFILE, 'Delete'):
                self.assertNotIn(hidden, text.replace(OWN_SHOW, ''))

    def test_what_the_api_hides(self) -> None:
        self.answer(host=None, missing=None, created_by=None)
        self.assertIn('<svg', self.shown(OWN_SHOW))

    def test_of_another_project_and_none_are_the_same(self) -> None:
        self.answer(project='other', target='secret')
        pages = [self.client.get(OWN_SHOW)]
        del self.api.answers['GET', f'/v1/profiles/{answers.PROFILE}']
        pages.append(self.client.get(OWN_SHOW))
        for page in pages:
            self.assertContains(page, 'or no longer', status_code=404)
            self.assertNotContains(page, 'secret', status_code=404)

    def test_no_page_of_operators(self) -> None:
        for url in (SHOW, DELETE):
            self.assertNotEqual(200, self.client.get(url).status_code)
        self.client.post(DELETE, {'profile': answers.PROFILE, 'reason': 'r'})
        self.assertEqual([], self.api.sent('DELETE'))

    def test_forbidden_and_none(self) -> None:
        self.api.answers['GET', '/v1/profiles'] = answers.listing('profiles')
        self.assertIn('no profile of this project', self.shown(OWN))
        self.api.status, self.api.error = 403, 'No.'
        self.api.answers.clear()
        self.assertContains(self.client.get(OWN), 'No.', status_code=403)
