# SPDX-License-Identifier: Apache-2.0

"""A report as a page."""

from __future__ import annotations

import html.parser
from typing import Any

import testtools

from scavenger_openstack.osc.commands import report
from scavenger_openstack.osc import report_page

ODD = '<script>alert("x")</script>&\u202e\x1b[31m' + 'n' * 255


def a_report(name: str = 'shop') -> dict[str, Any]:
    sums = {'incidents': 3, 'interference_s': 7200.0}
    work = {'background_core_s': 360_000.0,
            'background_byte_s': 3600.0 * 2 ** 30}
    return {
        'since_at': '2026-11-22T10:00:00.000Z',
        'until_at': '2026-11-29T10:00:00.000Z', **sums, **work,
        'projects': [{'project': name, 'application': name, 'workloads': 2,
                      **sums}],
        'hosts': [{'host': name, **sums, **work}],
        'antagonists': [{'host': name, 'workload': name, 'instance': '',
                         'project': name, 'application': name, **sums,
                         'confirmed': 2, 'refuted': 1}],
        'precision': [{'controller': name, 'confirmed': 2, 'refuted': 1,
                       'unclear': 0}]}


class Elements(html.parser.HTMLParser):
    """What is on a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ''
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += f'{data}\n'


class Page(testtools.TestCase):

    def page(self, row: dict[str, Any]) -> Elements:
        return Elements(report_page.page(row, report.totals(row),
                                         report.COLUMNS))

    def test_numbers(self) -> None:
        page = self.page(a_report())
        for text in ('3 incidents', '2 h', '100.0 core-h', '1.0 GiB-h',
                     'shop'):
            self.assertIn(text, page.text)
        self.assertEqual((4, 3), (page.tags.count('table'),
                                  page.tags.count('svg')))

    def test_names_that_are_markup(self) -> None:
        page = self.page(a_report(ODD))
        self.assertEqual(set(self.page(a_report()).tags), set(page.tags))
        self.assertNotIn('\x1b', page.text)
        self.assertNotIn('\u202e', page.text)

    def test_nothing(self) -> None:
        """Says so, for each list; a sum of 0 has no bar without end."""
        empty = {**a_report(), **dict.fromkeys(report.COLUMNS, [])}
        self.assertNotIn('table', self.page(empty).tags)
        zero = a_report()
        zero['hosts'][0]['background_core_s'] = 0.0
        self.assertIn('svg', self.page(zero).tags)

    def test_it_needs_nothing_else(self) -> None:
        tags = set(self.page(a_report()).tags)
        self.assertEqual(set(), tags & {'script', 'link', 'img', 'iframe'})
