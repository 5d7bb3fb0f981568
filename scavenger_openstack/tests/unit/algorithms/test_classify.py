# SPDX-License-Identifier: Apache-2.0


"""What is background, and what said so."""

from __future__ import annotations

import itertools

import testtools

from scavenger_openstack.algorithms.classify import Classified
from scavenger_openstack.algorithms.classify import classify
from scavenger_openstack.types import Priority

SOURCES = ('instance', 'flavor', 'project', 'aggregate', 'parent')


class ClassifyTest(testtools.TestCase):

    def test_untagged_is_foreground(self) -> None:
        self.assertEqual(Classified(Priority.FOREGROUND, 'default'),
                         classify())

    def test_the_first_that_speaks(self) -> None:
        for said in itertools.product(
                (None, 'foreground', 'background', 'batch'), repeat=5):
            found = classify(**dict(zip(SOURCES, said, strict=True)))
            wanted = next(
                ((text, source) for source, text
                 in zip(SOURCES, said, strict=True)
                 if text in ('foreground', 'background')),
                ('foreground', 'default'))
            self.assertEqual(wanted, (found.priority.value, found.source))
            self.assertEqual(said.count('batch'), len(found.warnings))

    def test_spelling(self) -> None:
        self.assertEqual(Priority.BACKGROUND,
                         classify(flavor=' Background\n').priority)

    def test_warning_says_where_and_what_to_do(self) -> None:
        found = classify(instance='', parent='background')
        self.assertEqual((Priority.BACKGROUND, 'parent'), found[:2])
        self.assertIn("instance says priority ''", found.warnings[0])
        self.assertIn('use foreground or background', found.warnings[0])
