# SPDX-License-Identifier: Apache-2.0

"""What tenants see of their instances, and what they do not."""

from __future__ import annotations

import datetime
from types import SimpleNamespace

from django.conf import settings
from django.test import client
from django import urls
from django.utils import timezone
from horizon import tabs
from openstack_auth import utils
from openstack_dashboard.dashboards.admin.instances import tabs as admin_tabs
from openstack_dashboard.dashboards.project.instances \
    import tabs as project_tabs

from scavenger_openstack.dashboard.project import instance_tab
from scavenger_openstack.tests.unit.dashboard import cloud
from scavenger_openstack.tests.unit import panel_incidents as incidents
from scavenger_openstack.tests.unit.panel_incidents import at

INDEX = urls.reverse('horizon:project:disturbances:index')
OTHERS = (incidents.NOISY, incidents.OTHER, 'host-one', 'batch', '/batch',
          'it ran during', 'is well again', 'limit batch')
"""What is of others, or tells where an instance is."""
MONTH_S = 30 * 86400


class Base(cloud.TestCase):

    def answer(self, *found, workloads=(), evictions=(), next_=None):
        for noun, rows in (('incidents', found), ('workloads', workloads),
                           ('evictions', evictions)):
            self.api.answers['GET', f'/v1/{noun}'] = {
                noun: list(rows), 'next': next_ if noun == 'incidents'
                else None}

    def asked(self, noun='incidents'):
        return [seen for seen in self.api.requests
                if seen.path == f'/v1/{noun}'][-1].query


class IndexTest(Base):

    role = 'reader'

    def test_own_instances_in_words(self) -> None:
        self.answer(incidents.as_project(incidents.listed()))
        page = self.client.get(INDEX)
        for text in ('web', 'had to wait for a CPU', '5 min', 'recovered'):
            self.assertContains(page, text)
        for noun in ('incidents', 'workloads', 'evictions'):
            self.assertEqual('1', self.asked(noun)['project'])
        self.assertEqual(('background', 'true'), tuple(
            self.asked('workloads')[name] for name in ('priority',
                                                       'limits')))

    @cloud.without_scripts
    def test_nothing_of_others_whatever_the_api_answers(self) -> None:
        """An operator's token shows more."""
        self.answer(incidents.listed(), workloads=[
            {**incidents.workload(), 'host': 'host-one'}], evictions=[
                incidents.eviction(host='host-one', reason='it ran during',
                         detail='batch', created_by=incidents.OTHER)])
        self.api.answers['GET', f'/v1/incidents/{incidents.PK}'] = {
            'incident': incidents.whole()}
        for url in (INDEX, urls.reverse('horizon:project:disturbances:'
                                        'incident', args=[incidents.PK])):
            page = self.client.get(url)
            self.assertEqual(200, page.status_code)
            for text in OTHERS:
                self.assertNotContains(page, text)

    def test_background(self) -> None:
        self.answer(workloads=[
            incidents.workload('nightly', ('cpu_cores', MONTH_S / 20, 0.25,
                                 'attribution'),
                     ('memory_bytes', MONTH_S / 4, None, None),
                     ('io_bytes_per_s', 60.0, 5e6, 'scavenger'),
                     ('egress_bytes_per_s', 60.0, 5e6, 'operator')),
            incidents.workload('calm')])
        page = self.client.get(INDEX)
        for text in ('yes, to 0.25 cores', '5.0 %', '25.0 %',
                     'it disturbed another instance', 'yes, to 5 MB/s',
                     'other instances need the capacity',
                     'set by the operator', '2026-11-23 03:00:00',
                     'not limited in the last 30 days'):
            self.assertContains(page, text)

    def test_limits_on_one_resource_are_one_row(self) -> None:
        self.answer(workloads=[incidents.workload(
            'nightly', ('cpu_cores', MONTH_S / 10, 0.5, 'attribution'),
            ('cpu_idle', MONTH_S / 2, 1.0, 'leftover'),
            ('cpu_set', MONTH_S / 5, '0-1', 'attribution'))])
        page = self.client.get(INDEX)
        self.assertContains(page, '<td>CPU</td>', 1)
        self.assertContains(page, 'yes, to 0.5 cores, what others leave '
                                  'idle, CPUs 0-1')
        self.assertContains(page, '50.0 %')
        self.assertContains(page, 'it disturbed another instance; other '
                                  'instances need the capacity')

    def test_notice_of_an_eviction(self) -> None:
        self.answer(
            incidents.listed(signal='', cause='eviction', value=None,
                             threshold=None, outcome='recommended'),
            evictions=[incidents.eviction(), incidents.eviction(
                name='old', created_at='2020-01-01T00:00:00Z')])
        page = self.client.get(INDEX)
        self.assertContains(page, 'nightly has to leave its host (shut down)')
        self.assertContains(page, 'may be taken away from its host')
        self.assertNotContains(page, 'old has to leave')

    def test_nothing_at_all(self) -> None:
        self.answer()
        page = self.client.get(INDEX)
        self.assertContains(page, 'No disturbance is recorded')
        self.assertNotContains(page, 'Background instances')

    def test_pages(self) -> None:
        self.answer(incidents.listed(), next_='older')
        page = self.client.get(INDEX)
        self.assertContains(page, '?marker=older')
        page = self.client.get(INDEX, {'marker': 'older'})
        self.assertEqual('older', self.asked()['marker'])
        self.assertContains(page, 'First page')

    def test_names_are_escaped(self) -> None:
        for name in (*cloud.NAMES, '\u05e2\u05d1'):
            self.answer(incidents.listed(name),
                        workloads=[incidents.workload(
                            name, (name, 1.0, 0.5, name))],
                        evictions=[incidents.eviction(name=name, how=name,
                                            state=name)])
            page = self.client.get(INDEX).content.decode()
            for text in ('<script>alert', '<img src=x', '\u202e'):
                self.assertNotIn(text, page)

    def test_slow_down_expired_and_forbidden(self) -> None:
        self.api.status, self.api.error = 403, 'No.'
        self.assertContains(self.client.get(INDEX), 'No.', status_code=403)
        self.api.status = 500
        self.assertContains(self.client.get(INDEX), 'HTTP 500')
        self.api.status = 401
        page = self.client.get(INDEX)
        self.assertEqual(302, page.status_code)
        self.assertIn('/auth/login', page['Location'])


class SlowTest(Base):

    role = 'reader'

    def test_slow(self) -> None:
        self.answer()
        self.api.delay_s = 3
        self.assertContains(self.client.get(INDEX),
                            'did not answer within 2 s')

    def test_it_expires_between_two_calls(self) -> None:
        self.answer(incidents.listed())
        self.api.answers['GET', '/v1/workloads'] = (401, 'expired')
        self.assertEqual(302, self.client.get(INDEX).status_code)


class ShowTest(Base):

    role = 'reader'

    def page(self, incident=None):
        if incident is not None:
            self.api.answers['GET', f'/v1/incidents/{incidents.PK}'] = {
                'incident': incident}
        return self.client.get(urls.reverse(
            'horizon:project:disturbances:incident', args=[incidents.PK]))

    def test_in_words(self) -> None:
        page = self.page(incidents.as_project(incidents.whole()))
        for text in ('web had to wait for a CPU.', 'Another workload on the '
                     'same host', 'and it recovered', '<svg', '0.9 s waited'):
            self.assertContains(page, text)

    def test_outcomes_and_causes(self) -> None:
        for fields, text in (
                ({'outcome': 'open', 'ended_at': None}, 'It goes on'),
                ({'outcome': 'refuted'}, 'did not help'),
                ({'outcome': 'unclear'}, 'no clear difference'),
                ({'outcome': 'ended'}, 'ended by itself'),
                ({'cause': 'own_limit'}, 'larger flavor'),
                ({'cause': 'overcommitted'}, 'was promised'),
                ({'signal': 'io_wait'}, 'wait for the disk'),
                ({'signal': 'new_signal'}, 'was disturbed'),
                ({'antagonists': []}, 'is not known'),
                ({'signal': '', 'value': None, 'threshold': None,
                  'cause': 'eviction', 'outcome': 'recommended',
                  'evidence': []}, 'Save what you need')):
            self.assertContains(self.page(incidents.as_project(
                incidents.whole(**fields))), text)

    def test_disturbed_by_an_own_one(self) -> None:
        page = self.page(incidents.whole(antagonists=[
            {'workload': 'x', 'name': 'my own', 'project': incidents.PROJECT,
             'score': 0.9, 'foreground': False}]))
        self.assertContains(page, 'your own: my own')

    def test_of_another_project_and_none_are_the_same(self) -> None:
        pages = [self.page(incidents.whole('secret', project=project))
                 for project in (incidents.OTHER, '')]
        self.api.answers.clear()
        pages.append(self.page())
        for page in pages:
            self.assertContains(page, 'or no longer', status_code=404)
            self.assertNotContains(page, 'secret', status_code=404)

    def test_a_clock_that_is_ahead(self) -> None:
        ahead = timezone.now() + datetime.timedelta(hours=3)
        self.assertContains(self.page(incidents.whole(
            begun_at=at(0, ahead), ended_at=None)), 'clock of its host')


class InstanceTest(Base):

    def tab(self, of, catalog=True):
        """The tab alone: others ask Nova and Neutron."""
        class Details(tabs.DetailTabsGroup):
            slug = 'instance_details'
            tabs = (of,)

        request = client.RequestFactory().get('/')
        request.session = self.client.session
        request.user = utils.get_user(request)
        if not catalog:
            request.user.service_catalog = []
        made = Details(request, instance=SimpleNamespace(id=incidents.VICTIM))
        return made.get_tab(of.slug)

    def test_tab_of_the_project(self) -> None:
        self.answer(incidents.as_project(incidents.listed()),
                    workloads=[incidents.workload('nightly', (
                        'cpu_cores', 60.0, 0.25, 'attribution'))])
        text = self.tab(instance_tab.Disturbed).render()
        self.assertIn('had to wait for a CPU', text)
        self.assertIn('yes, to 0.25 cores', text)
        self.assertIn(f'/project/disturbances/{incidents.PK}/', text)
        for noun in ('workloads', 'evictions'):
            self.assertEqual(incidents.VICTIM, self.asked(noun)['instance'])
        self.assertEqual(incidents.VICTIM, self.asked()['victim'])

    def test_tab_of_operators(self) -> None:
        self.answer(incidents.listed())
        self.assertIn(f'/admin/interference/incidents/{incidents.PK}/',
                      self.tab(instance_tab.DisturbedOfAll).render())

    def test_both_pages_of_an_instance_have_it(self) -> None:
        extra = settings.HORIZON_CONFIG['extra_tabs']
        for dashboard, group in (
                ('project', project_tabs.InstanceDetailTabs),
                ('admin', admin_tabs.AdminInstanceDetailTabs)):
            self.assertIn(f'openstack_dashboard.dashboards.{dashboard}.'
                          f'instances.tabs.{group.__name__}', extra)

    def test_no_tab_without_the_api(self) -> None:
        self.assertIsNone(self.tab(instance_tab.Disturbed,
                                   catalog=False))
