# SPDX-License-Identifier: Apache-2.0

"""The stages of tools/test.sh name tests that there are."""

from __future__ import annotations

import pathlib
import re

import testtools

TOP = pathlib.Path(__file__).parents[4]
FUNCTIONAL = TOP / 'scavenger_openstack' / 'tests' / 'functional'


class TestStages(testtools.TestCase):

    def test_each_word_is_in_the_name_of_a_module(self) -> None:
        """Else a module that was renamed runs in the last worker, beside the
        others of its kind."""
        modules = [path.stem for path in FUNCTIONAL.glob('test_*.py')]
        lines = re.findall(r'''^[a-z]+\+?=['"](.*)['"]$''',
                           (TOP / 'tools' / 'test.sh').read_text(),
                           re.MULTILINE)
        words = {word for line in lines if '|' in line
                 for word in re.findall(r'(?<![$a-z])[a-z][a-z_]+', line)}
        self.assertGreater(len(words), 30)
        self.assertEqual([], sorted(
            word for word in words
            if not any(word in module for module in modules)))
