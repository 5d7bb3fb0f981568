# SPDX-License-Identifier: Apache-2.0

"""What operators change by the page, and what the API gets of it."""

from __future__ import annotations

import datetime
from typing import Any

from django import urls

from scavenger_openstack.tests.unit.dashboard import cloud
from scavenger_openstack.tests.unit import panel_answers as answers

SET, UNSET, PROTECTION = (
    urls.reverse(f'horizon:admin:interference:{name}')
    for name in ('cap_set', 'cap_unset', 'protection'))
WHERE = {'host': answers.HOST, 'workload': answers.BATCH,
         'knob': 'cpu_cores'}
OVERRIDE = f'/v1/caps/{answers.HOST}/cpu_cores/%2Fbatch%2Fnoisy'


class Case(cloud.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.api.answers.update(answers.ANSWERS)

    def refused(self, url: str, data: dict[str, str], *words: str) -> str:
        """The form comes back, with why and with what was typed."""
        answer = self.client.post(url, data)
        self.assertEqual(200, answer.status_code)
        for text in words:
            self.assertContains(answer, text)
        return str(answer.content.decode())


class Links(Case):

    @cloud.without_scripts
    def test_a_link_confirms_nothing(self) -> None:
        """It may say what a form is about, and no more."""
        evil = {'reason': 'evil words', 'sure': 'on', 'value': '0.7654',
                'hours': '168', 'what': 'do', 'how': 'shelve'}
        for url in (SET, UNSET, PROTECTION, *(
                urls.reverse(f'horizon:admin:interference:{name}')
                for name in ('exempt', 'evict', 'profile_delete'))):
            page = self.client.get(url, {
                **WHERE, 'instance': answers.INSTANCE, 'scope': 'cloud',
                'enabled': 'off', **evil})
            for text in ('evil words', '0.7654', ' checked',
                         'value="do" selected', 'value="shelve" selected',
                         'value="168" selected'):
                self.assertNotContains(page, text)


class SetLimit(Case):

    typed = {**WHERE, 'value': '0.5', 'hours': '2', 'reason': 'a backup'}

    def test_the_floor_is_shown(self) -> None:
        answer = self.client.get(SET, WHERE)
        self.assertContains(answer, '0.1 cores')
        self.assertContains(answer, '64 MiB')
        self.assertNotContains(answer, 'not known')
        self.assertEqual({'host': answers.HOST, 'name': answers.BATCH,
                          'limit': '1'}, self.api.requests[-1].query)

    def test_the_floor_is_not_known(self) -> None:
        for answer, words in (((500, ''), 'failed'),
                              (answers.listing('workloads'), 'no such')):
            self.api.answers['GET', '/v1/workloads'] = answer
            answer = self.client.get(SET, WHERE)
            self.assertContains(answer, words)
            self.assertContains(answer, 'floor is not known')

    def test_foreground(self) -> None:
        self.api.answers['GET', '/v1/workloads'] = answers.listing(
            'workloads', answers.workload(priority='foreground', floor={}))
        self.assertContains(self.client.get(SET, WHERE), 'never limited')

    def test_choose_first(self) -> None:
        answer = self.client.get(SET)
        self.assertNotContains(answer, 'name="value"')
        answer = self.client.post(SET, {**WHERE, 'workload': '/b/ü&x'})
        self.assertEqual(302, answer.status_code)
        answer = self.client.get(answer['location'])
        self.assertContains(answer, 'name="value"')
        self.assertEqual('/b/ü&x', self.api.requests[-1].query['name'])
        self.assertEqual([], self.api.sent('PUT'))

    def test_set(self) -> None:
        before = datetime.datetime.now(datetime.UTC)
        answer = self.client.post(SET, self.typed)
        self.assertEqual(302, answer.status_code, answer.content)
        self.assertIn('interference__limits', answer['location'])
        (seen,) = self.api.sent('PUT')
        self.assertEqual(OVERRIDE, seen.path)
        body: dict[str, Any] = seen.body
        self.assertEqual((0.5, 'a backup'), (body['value'], body['reason']))
        expires = datetime.datetime.fromisoformat(body['expires_at'])
        self.assertLess(abs((expires - before).total_seconds() - 7200), 60)

    def test_values(self) -> None:
        for knob, typed, value in (
                ('memory_bytes', '64MiB', 2 ** 26), ('cpu_cores', 'none',
                                                     None),
                ('cpu_set', '0-1,4', '0-1,4')):
            path = OVERRIDE.replace('cpu_cores', knob)
            self.api.answers['PUT', path] = {'override': answers.override()}
            self.client.post(SET, {**self.typed, 'knob': knob,
                                   'value': typed})
            self.assertEqual((path, value), (
                self.api.sent('PUT')[-1].path,
                self.api.sent('PUT')[-1].body['value']))

    def test_what_is_no_value(self) -> None:
        for name, value in (('value', 'much'), ('value', ''),
                            ('value', '64MiB'), ('value', '-1'),
                            ('reason', ''), ('reason', 'x' * 2001),
                            ('hours', '1e9'), ('knob', 'paused'),
                            ('knob', 'nothing'), ('host', 'x' * 256)):
            self.refused(SET, {**self.typed, name: value})
        self.assertEqual([], self.api.sent('PUT'))

    def test_below_the_floor(self) -> None:
        why = '0.05 is below the floor of cpu_cores, which is 0.1.'
        self.api.answers['PUT', OVERRIDE] = (400, why)
        text = self.refused(SET, {**self.typed, 'value': '0.05'}, why)
        self.assertIn('value="a backup"', text)

    def test_no_answer(self) -> None:
        self.api.answers['PUT', OVERRIDE] = (500, '')
        self.refused(SET, self.typed, 'may have been made all the same')

    def test_odd_names(self) -> None:
        for name in cloud.NAMES:
            answer = self.client.get(SET, {**WHERE, 'workload': name,
                                           'host': name})
            self.assertNotContains(answer, '<img src=x')
            self.assertNotContains(answer, 'alert(1)</script>')


class UnsetLimit(Case):

    def test_lift(self) -> None:
        self.assertContains(self.client.get(UNSET, WHERE), answers.BATCH)
        self.api.answers['DELETE', OVERRIDE] = None
        answer = self.client.post(UNSET, {**WHERE, 'reason': 'it is done'})
        self.assertEqual(302, answer.status_code, answer.content)
        (seen,) = self.api.sent('DELETE')
        self.assertEqual((OVERRIDE, {'reason': 'it is done'}),
                         (seen.path, seen.query))

    def test_it_is_gone(self) -> None:
        self.api.answers['DELETE', OVERRIDE] = (404, 'There is no override.')
        self.refused(UNSET, {**WHERE, 'reason': 'x'}, 'There is no override.')

    def test_a_reason_is_needed(self) -> None:
        self.refused(UNSET, {**WHERE, 'reason': ' '})
        self.assertEqual([], self.api.sent('DELETE'))


class Protection(Case):

    off = {'scope': 'cloud', 'target': '', 'enabled': 'off',
           'reason': 'customers are throttled', 'sure': 'on'}

    def test_off_and_on(self) -> None:
        answer = self.client.post(PROTECTION, self.off, follow=True)
        texts = ' '.join(map(str, answer.context['messages']))
        self.assertIn('Protection is off. 5 hosts', texts)
        self.assertIn('1 host silent', texts)
        self.client.post(PROTECTION, {
            'scope': 'host', 'target': answers.HOST, 'enabled': 'on',
            'reason': 'it is over'})
        self.assertEqual([
            {'scope': 'cloud', 'target': '', 'enabled': False,
             'reason': 'customers are throttled'},
            {'scope': 'host', 'target': answers.HOST, 'enabled': True,
             'reason': 'it is over'}],
            [seen.body for seen in self.api.sent('PUT')])

    def test_it_is_confirmed(self) -> None:
        unsure = {**self.off}
        del unsure['sure']
        self.refused(PROTECTION, unsure, 'Confirm')
        for name, value in (('reason', ''), ('target', 'a host'),
                            ('scope', 'galaxy'), ('scope', 'host'),
                            ('enabled', '')):
            self.refused(PROTECTION, {**self.off, name: value})
        self.assertEqual([], self.api.sent('PUT'))

    def test_what_is_asked_for_is_filled_in(self) -> None:
        answer = self.client.get(PROTECTION, {
            'enabled': 'on', 'scope': 'aggregate', 'target': 'racks'})
        self.assertContains(answer, 'value="racks"')
        self.assertEqual([], self.api.requests)

    def test_refused(self) -> None:
        for status, words in ((403, 'not allowed'), (400, 'no host'),
                              (500, 'may have been made')):
            self.api.answers['PUT', '/v1/protection'] = (status, words)
            self.refused(PROTECTION, self.off, words)
