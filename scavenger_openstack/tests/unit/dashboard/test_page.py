# SPDX-License-Identifier: Apache-2.0

"""The page of operators, whatever its API and its user are like."""

from __future__ import annotations

import pathlib
import re
import shutil
import tempfile
import time

from django.conf import settings
from django import urls
from openstack_auth import policy

from scavenger_openstack.tests.unit.dashboard import cloud
from scavenger_openstack.tests.unit import panel_answers as answers

INDEX = urls.reverse('horizon:admin:interference:index')
TABS = ('overview', 'incidents', 'antagonists', 'limits', 'hosts',
        'profiles')


class Operators(cloud.TestCase):
    """A user with all that a page asks for."""

    def setUp(self) -> None:
        super().setUp()
        self.api.answers.update(answers.ANSWERS)

    def fragment(self, tab: str, **query: str) -> str:
        """What the script of the page loads again."""
        answer = self.client.get(
            INDEX, {'tab': f'interference__{tab}', **query},
            HTTP_X_REQUESTED_WITH='XMLHttpRequest')
        self.assertEqual(200, answer.status_code)
        return answer.content.decode()


class Page(Operators):

    def test_only_what_is_open_is_asked_for(self) -> None:
        self.assertContains(self.client.get(INDEX), 'interference__limits')
        asked = {seen.path for seen in self.api.requests}
        self.assertEqual({'/v1/overview', '/v1/protection',
                          '/v1/antagonists'}, asked)

    def test_each_tab_is_bounded(self) -> None:
        for tab in TABS:
            self.api.requests.clear()
            self.fragment(tab)
            self.assertNotEqual([], self.api.requests, tab)
            for seen in self.api.requests:
                if seen.path != '/v1/overview':
                    self.assertLessEqual(int(seen.query['limit']), 50, seen)

    def test_slow(self) -> None:
        self.fragment('overview')   # Horizon reads all policies once
        self.api.delay_s = 4
        for tab in TABS:
            begun_s = time.monotonic()
            text = self.fragment(tab)
            self.assertLess(time.monotonic() - begun_s, 3.5, tab)
            self.assertIn('did not answer within 2 s', text)
            self.assertIn('data-problem', text)

    def test_one_tab_fails(self) -> None:
        self.api.answers['GET', '/v1/hosts'] = (500, 'secret of the API')
        for tab in TABS:
            text = self.fragment(tab)
            self.assertEqual(tab == 'hosts', 'data-problem' in text, tab)
            self.assertNotIn('secret', text)

    def test_a_role_is_missing_in_the_api(self) -> None:
        self.api.status, self.api.error = 403, 'The policy does not allow it.'
        for tab in TABS:
            text = self.fragment(tab)
            self.assertIn('The policy does not allow it.', text)
            self.assertIn('alert-info', text)

    def test_the_token_expires(self) -> None:
        self.api.status = 401
        answer = self.client.get(INDEX)
        self.assertEqual(302, answer.status_code)
        self.assertIn('/auth/login/', answer['location'])
        for tab in TABS:
            answer = self.client.get(
                INDEX, {'tab': f'interference__{tab}'},
                HTTP_X_REQUESTED_WITH='XMLHttpRequest')
            self.assertEqual(401, answer.status_code, tab)

    def test_where_it_is_loaded_again(self) -> None:
        """With the filters of the page, and of this tab alone."""
        text = self.fragment('limits', host='a&b', knob='cpu_cores')
        (url,) = re.findall('data-refresh-url="([^"]*)"', text)
        self.assertEqual('?host=a%26b&amp;knob=cpu_cores'
                         '&amp;tab=interference__limits', url)
        self.assertRegex(text, r'data-loaded-at="[0-9-]+T[0-9:]+Z"')

    def test_angular_reads_no_names(self) -> None:
        for tab in TABS:
            self.assertIn('ng-non-bindable', self.fragment(tab))

    def test_in_the_zone_of_the_user(self) -> None:
        self.client.cookies['django_timezone'] = 'Asia/Tokyo'
        self.assertIn('2026-11-29 12:00:00', self.fragment('hosts'))
        self.client.cookies['django_timezone'] = 'UTC'
        self.assertIn('2026-11-29 03:00:00', self.fragment('hosts'))


class OwnRules(Operators):
    """An administrator, where the operator's own rules allow reading only."""

    def setUp(self) -> None:
        super().setUp()
        directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, directory)
        file = pathlib.Path(directory, 'policy.yaml')
        file.write_text(''.join(f'"interference:{name}": "!"\n' for name in (
            'overrides:set', 'overrides:delete', 'protection:set',
            'antagonists:list', 'profiles:delete')))
        self.addCleanup(settings.POLICY_FILES.update,
                        interference=settings.POLICY_FILES['interference'])
        settings.POLICY_FILES['interference'] = str(file)
        # Horizon reads its rules once.
        policy.reset()
        self.addCleanup(policy.reset)

    def test_nothing_to_change(self) -> None:
        self.api.answers['GET', '/v1/protection'] = answers.listing(
            'protection', answers.switch())
        for tab in ('overview', 'limits'):
            text = self.fragment(tab)
            self.assertNotIn('data-problem', text)
            self.assertNotIn('ajax-modal', text)

    def test_no_tab(self) -> None:
        text = self.client.get(INDEX).content.decode()
        self.assertIn('interference__limits', text)
        self.assertNotIn('interference__antagonists', text)

    def test_no_forms(self) -> None:
        self.api.requests.clear()
        for name in ('cap_set', 'cap_unset', 'protection', 'profile_delete'):
            url = urls.reverse(f'horizon:admin:interference:{name}')
            for answer in (self.client.get(url), self.client.post(url, {})):
                self.assertEqual(403, answer.status_code, name)
        self.assertEqual([], self.api.requests)


class Reader(Operators):
    """May look, and change nothing."""

    role = 'reader'

    def test_no_panel(self) -> None:
        """Horizon does not know the projects of operators."""
        self.assertNotEqual(200, self.client.get(INDEX).status_code)

    def test_no_forms(self) -> None:
        for name in ('cap_set', 'cap_unset', 'protection', 'profile_delete'):
            url = urls.reverse(f'horizon:admin:interference:{name}')
            for answer in (self.client.get(url), self.client.post(url, {})):
                self.assertNotEqual(200, answer.status_code, name)
        self.assertEqual([], self.api.requests)
