# SPDX-License-Identifier: Apache-2.0

"""Which host a name means."""

from __future__ import annotations

import itertools

import testtools

from scavenger_openstack import host_names

FULL, SHORT, OTHER = 'c1.a.org', 'c1', 'c1.b.org'


class Same(testtools.TestCase):

    def test_with_and_without_a_domain(self) -> None:
        for one, two in itertools.permutations((FULL, SHORT, OTHER, 'c2'), 2):
            self.assertEqual({one, two} in ({FULL, SHORT}, {SHORT, OTHER}),
                             host_names.same(one, two), f'{one} {two}')
            self.assertTrue(host_names.same(one, one))

    def test_addresses(self) -> None:
        self.assertFalse(host_names.same('10.0.0.1', '10.0.0.2'))
        self.assertFalse(host_names.same(SHORT, f'{SHORT}0.a.org'))


class Index(testtools.TestCase):

    def test_one_name(self) -> None:
        for name in (FULL, SHORT):
            index = host_names.Index({name: 1.0, 'c2': 1.0})
            for asked in (FULL, SHORT):
                self.assertEqual(name, index.find(asked))
            self.assertEqual(name if name == SHORT else None,
                             index.find(OTHER))

    def test_the_exact_name_first(self) -> None:
        index = host_names.Index({FULL: 5.0, SHORT: 4.0, OTHER: 6.0})
        for name in (FULL, SHORT, OTHER):
            self.assertEqual([name], index.find_all(name))

    def test_one_that_reports_first(self) -> None:
        """The agent was given another name."""
        for old, new in itertools.permutations((FULL, SHORT)):
            index = host_names.Index({old: 1.0, new: 2 + host_names.STALE_S})
            for name in (FULL, SHORT):
                self.assertEqual(new, index.find(name))

    def test_several(self) -> None:
        index = host_names.Index({FULL: 5.0, OTHER: 4.0})
        self.assertIsNone(index.find(SHORT))
        self.assertEqual([FULL, OTHER], index.find_all(SHORT))

    def test_none(self) -> None:
        self.assertEqual([], host_names.Index({}).find_all(SHORT))
