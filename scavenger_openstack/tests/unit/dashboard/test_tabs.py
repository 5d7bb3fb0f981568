# SPDX-License-Identifier: Apache-2.0

"""What the tabs of operators show."""

from __future__ import annotations

from html import parser
from typing import Any

from django import urls
from django.utils import html

from scavenger_openstack.tests.unit.dashboard import cloud
from scavenger_openstack.tests.unit import panel_answers as answers

INDEX = urls.reverse('horizon:admin:interference:index')


class Elements(parser.HTMLParser):
    """All tags of a text, and what attributes they have."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]


class Case(cloud.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.api.answers.update(answers.ANSWERS)

    def answer(self, path: str, value: Any) -> None:
        self.api.answers['GET', path] = value

    def shown(self, tab: str, **query: str) -> str:
        found = self.client.get(
            INDEX, {'tab': f'interference__{tab}', **query},
            HTTP_X_REQUESTED_WITH='XMLHttpRequest')
        self.assertEqual(200, found.status_code)
        return found.content.decode()

    def texts(self, text: str, *expected: str) -> None:
        plain = ' '.join(html.strip_tags(text.replace('<', ' <')).split())
        for words in expected:
            self.assertIn(words, plain)

    def asked(self, path: str) -> dict[str, str]:
        """The query of the last request for this."""
        return next(seen.query for seen in reversed(self.api.requests)
                    if seen.path == path)


class Overview(Case):

    def test_figures(self) -> None:
        text = self.shown('overview')
        self.texts(
            text, '4 of 5 hosts report', '17 open incidents',
            '4 limits in force', '2 overrides', '12.5 cores that background',
            # Per day: 12,600 s, 360,000 core s, 7,200 GiB s.
            '24 hours 210 100 2 6', '7 days 30 14.3 0.286 6',
            'Enforcing 2', 'Observing 1', 'Stopped 1', 'Silent 1',
            'attribution 75 % 9 3 2', '0.9: 1', 'attribution: enforce 2',
            'Hosts that do not measure or limit all: disk: 2')
        self.assertNotIn('Protection is off', text)
        self.assertNotIn('No host sets limits', text)
        self.assertEqual(2, text.count('<svg'))
        self.assertEqual('5', self.asked('/v1/antagonists')['limit'])

    def test_an_api_of_another_version(self) -> None:
        """Is said, and no fault of the page."""
        self.answer('/v1/overview', {'cloud': {}})
        self.texts(self.shown('overview'), 'versions differ')

    def test_protection_is_off(self) -> None:
        self.answer('/v1/protection', answers.listing(
            'protection', answers.switch(),
            answers.switch(scope='cloud', target='', changed_by='bob',
                           reason='throttled customers')))
        text = self.shown('overview')
        self.texts(text, 'Off for the host host-one since '
                   '2026-11-29 03:00:00, by ann: an upgrade',
                   'Off for the whole cloud since 2026-11-29 03:00:00, by '
                   'bob: throttled customers')
        self.assertIn('?enabled=on&amp;scope=host&amp;target=host-one', text)
        self.assertEqual('false', self.asked('/v1/protection')['enabled'])

    def test_nothing_yet(self) -> None:
        self.answer('/v1/overview', {'overview': answers.NOTHING})
        self.answer('/v1/antagonists', answers.listing('antagonists'))
        self.texts(self.shown('overview'), 'No host has reported yet',
                   'No limit has been tried yet', 'not known')

    def test_nothing_enforces(self) -> None:
        hosts = {**answers.OVERVIEW['hosts'], 'enforcing': 0}
        self.answer('/v1/overview', {'overview': {
            **answers.OVERVIEW, 'hosts': hosts}})
        self.texts(self.shown('overview'), 'No host sets limits')


class Antagonists(Case):

    def test_a_row(self) -> None:
        text = self.shown('antagonists')
        self.texts(text, 'hog', 'host-one', '2.62', '3 of 4', 'core, disk',
                   'disturbs now, limited',
                   'eviction recommended at 2026-11-29 03:00')
        self.assertEqual(1, text.count('<svg'))
        self.assertIn('0, 1, 1.62', text)      # minutes, for a screen reader
        self.assertIn(f'?instance={answers.INSTANCE}&amp;name=hog', text)

    def test_one_that_disturbs_no_more(self) -> None:
        self.answer('/v1/antagonists', answers.listing(
            'antagonists', answers.antagonist(disturbs_now=False)))
        self.texts(self.shown('antagonists'), 'disturbs no more, limited')

    def test_spans(self) -> None:
        for span, parts in (('24h', '24'), ('7d', '28'), ('30d', '30'),
                            ('odd', '24'), ('', '24')):
            self.shown('antagonists', span=span, sort='victims', host='h')
            query = self.asked('/v1/antagonists')
            self.assertEqual((parts, 'victims', 'h'), tuple(
                query[name] for name in ('parts', 'sort', 'host')))

    def test_foreground(self) -> None:
        self.answer('/v1/antagonists', answers.listing(
            'antagonists', answers.antagonist(
                foreground=True, limited=False, confirmed=0, refuted=0,
                eviction_recommended_at=None)))
        text = self.shown('antagonists')
        self.texts(text, 'never limited', 'none yet')
        self.assertNotIn('eviction recommended', text)
        self.assertNotIn('?instance=', text)

    def test_pages(self) -> None:
        self.answer('/v1/antagonists', answers.listing(
            'antagonists', answers.antagonist(), next='the+rest'))
        text = self.shown('antagonists', span='7d')
        self.assertIn('antagonists_marker=the%2Brest', text)
        self.assertIn('span=7d', text)
        self.shown('antagonists', antagonists_marker='the+rest')
        self.assertEqual('the+rest', self.asked('/v1/antagonists')['marker'])

    def test_none(self) -> None:
        self.answer('/v1/antagonists', answers.listing('antagonists'))
        self.texts(self.shown('antagonists'), 'No workload was named',
                   'Of 5 hosts 4 report now; no detector runs on 1 host; '
                   'not all is measured or limited (disk on 2 hosts)')
        self.answer('/v1/overview', {'overview': answers.NOTHING})
        self.texts(self.shown('antagonists'), 'No host has reported yet.')
        self.answer('/v1/overview', (403, 'not for you'))
        self.texts(self.shown('antagonists'), 'No workload was named')
        self.texts(self.shown('antagonists', host='x'), 'matches the filter')

    def test_a_marker_that_is_gone(self) -> None:
        self.answer('/v1/antagonists', (400, 'marker is of another listing.'))
        self.texts(self.shown('antagonists', antagonists_marker='x'),
                   'marker is of another listing.')


class Limits(Case):

    def test_rows(self) -> None:
        text = self.shown('limits')
        self.texts(text, '512 MiB (memory_bytes)', 'no limit', 'attribution',
                   '0.3 cores (cpu_cores)', 'ann, 2026-11-29 03:00:00',
                   'no: the kill switch is on', 'it disturbs web')
        self.assertIn(f'data-expires-at="{answers.LATER}"', text)
        self.assertIn(answers.INCIDENT, text)
        self.assertIn('?host=host-one&amp;knob=memory_bytes&amp;workload='
                      '%2Fbatch%2Fnoisy', text)
        self.assertEqual('true', self.asked('/v1/caps')['in_force'])

    def test_each_incident_that_a_limit_answers(self) -> None:
        ids = ['a' * 32, 'b' * 32]
        for incidents in (ids, ids[:1], []):
            self.answer('/v1/caps', answers.listing('caps', answers.limit(
                incidents=incidents)))
            text = self.shown('limits')
            self.assertEqual([one in incidents for one in ids], [
                urls.reverse('horizon:admin:interference:incident',
                             args=[one]) in text for one in ids])

    def test_past(self) -> None:
        self.answer('/v1/caps', answers.listing('caps', answers.limit(
            removed_at=answers.AT, why='it helped')))
        text = self.shown('limits', limits='past', project='p2',
                          knob='cpu_cores')
        self.texts(text, '2026-11-29 03:00:00: it helped')
        self.assertEqual(
            ('false', 'p2', 'cpu_cores'),
            tuple(self.asked('/v1/caps')[name]
                  for name in ('in_force', 'project', 'knob')))

    def test_followed(self) -> None:
        for followed, words in ((True, 'yes'), (None, 'not known')):
            self.answer('/v1/caps/overrides', answers.listing(
                'overrides', answers.override(followed=followed,
                                              why_not='')))
            self.texts(self.shown('limits'), words)

    def test_none(self) -> None:
        self.answer('/v1/caps', answers.listing('caps'))
        self.answer('/v1/caps/overrides', answers.listing('overrides'))
        self.texts(self.shown('limits'), 'There are none.',
                   'No workload is limited.', '(disk on 2 hosts)')
        self.texts(self.shown('limits', host='x'), 'matches the filter')

    def test_a_limit_that_is_no_number(self) -> None:
        for knob, value, words in (('cpu_set', '0-1,4', 'CPUs 0-1,4'),
                                   ('paused', 1.0, 'yes'),
                                   ('cpu_idle', 0.0, 'no')):
            self.answer('/v1/caps', answers.listing('caps', answers.limit(
                knob=knob, value=value, original=None)))
            self.texts(self.shown('limits'), words)


class Hosts(Case):

    def test_a_row(self) -> None:
        text = self.shown('hosts')
        self.texts(text, 'enforcing', '2026-11-29 03:00:00', '1.0', 'B',
                   'CPU: background uses 0.5 cores, headroom 3.5 cores, of '
                   '8 cores',
                   'memory: background uses not known, headroom 1,024 MiB',
                   'sysctl kernel.task_delayacct=1',
                   'attribution: enforce', 'nothing is named')
        self.assertEqual(2, text.count('<svg'))
        self.assertIn('tab=interference__incidents&amp;host=host-one', text)

    def test_states(self) -> None:
        for fields, words in (
                ({'silent': True}, 'silent it has not reported'),
                ({'stopped': 'the stop file is there'},
                 'stopped the stop file is there'),
                ({'enforcing': False, 'modes': {'x': 'observe'}},
                 'observing'),
                ({'enforcing': False, 'modes': {}}, 'off')):
            self.answer('/v1/hosts', answers.listing(
                'hosts', answers.host(**fields)))
            self.texts(self.shown('hosts'), words)

    def test_by_name(self) -> None:
        self.texts(self.shown('hosts', host=answers.HOST), 'enforcing')
        self.texts(self.shown('hosts', host='h-2'), 'There is no /v1/hosts')
        self.shown('hosts', enforcing='no', aggregate='racks')
        self.assertEqual(('false', 'racks'), tuple(
            self.asked('/v1/hosts')[name]
            for name in ('enforcing', 'aggregate')))

    def test_what_is_not_known(self) -> None:
        self.answer('/v1/hosts', answers.listing('hosts', answers.host(
            capacity={}, grade='', missing=[], last_seen_at=None,
            version='')))
        self.texts(self.shown('hosts'), 'not known', 'never')

    def test_none(self) -> None:
        self.answer('/v1/hosts', answers.listing('hosts'))
        self.texts(self.shown('hosts'), 'No host has reported yet')
        self.texts(self.shown('hosts', enforcing='yes'), 'matches the filter')


class Names(Case):
    """Whatever tenants and operators call things, a page has the same tags.
    """

    def elements(self, tab: str, name: str) -> Elements:
        text = {'name': name, 'workload': name, 'project': name}
        self.answer('/v1/antagonists', answers.listing(
            'antagonists', answers.antagonist(
                **text, host=name, causes=[name], instance=name)))
        self.answer('/v1/protection', answers.listing(
            'protection', answers.switch(target=name, reason=name,
                                         changed_by=name)))
        self.answer('/v1/overview', {'overview': {
            **answers.OVERVIEW, 'limits': {name: 1},
            'precision': {name: {'confirmed': 1}},
            'victims': [{**answers.OVERVIEW['victims'][0], **text,
                         'host': name}],
            'hosts': {**answers.OVERVIEW['hosts'], 'versions': {name: 1},
                      'modes': {name: {name: 1}}}}})
        self.answer('/v1/caps', answers.listing('caps', answers.limit(
            **text, host=name, owner=name, reason=name, why=name)))
        self.answer('/v1/caps/overrides', answers.listing(
            'overrides', answers.override(
                name=name, workload=name, host=name, reason=name,
                created_by=name, why_not=name)))
        self.answer('/v1/hosts', answers.listing('hosts', answers.host(
            name=name, version=name, stopped=name, missing=[name],
            modes={name: 'enforce'}, suffering=[{
                'workload': name, 'name': name, 'why': name}])))
        return Elements(self.shown(tab))

    def test_names(self) -> None:
        for tab in ('overview', 'antagonists', 'limits', 'hosts'):
            plain = self.elements(tab, 'plain')
            for name in cloud.NAMES:
                odd = self.elements(tab, name)
                self.assertEqual(plain.tags, odd.tags, (tab, name))
                self.assertEqual(plain.attributes, odd.attributes,
                                 (tab, name))

    def test_filters(self) -> None:
        """What is in the URL is as foreign."""
        for tab in ('antagonists', 'limits', 'hosts', 'profiles'):
            plain = Elements(self.shown(tab, project='plain', knob='plain'))
            for name in cloud.NAMES:
                odd = Elements(self.shown(tab, project=name, knob=name,
                                          span=name, sort=name, target=name,
                                          enforcing=name))
                self.assertEqual(plain.tags, odd.tags, (tab, name))
