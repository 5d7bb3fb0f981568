# SPDX-License-Identifier: Apache-2.0


"""What is background, and what a refused memory limit pauses or kills."""

from __future__ import annotations

import itertools
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import testtools

from scavenger_openstack.algorithms.classify import classify
from scavenger_openstack.decision import memory_shortage
from scavenger_openstack.tests.unit.algorithms import strategies
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates

SOURCES = ('instance', 'flavor', 'project', 'aggregate', 'parent')
"""The strongest first."""
TEXTS = st.one_of(
    st.sampled_from(('background', 'foreground', ' Background\n', 'FOREGROUND',
                     '', 'back ground', 'low', 'None')),
    st.text(st.sampled_from('background \n\0\u00e4'), max_size=12))
FOUND = st.dictionaries(st.sampled_from(SOURCES),
                        st.one_of(st.none(), TEXTS))

SIZES = st.integers(0, 100)


@st.composite
def populations(draw: st.DrawFn, number: st.SearchStrategy[Any],
                ) -> list[WorkloadRates]:
    names = draw(st.lists(st.sampled_from('abcdef'), unique=True))
    return [WorkloadRates(
        Workload(name, draw(st.sampled_from((
            Priority.BACKGROUND, Priority.BACKGROUND, Priority.FOREGROUND))),
            killable=draw(st.integers(0, 3)) > 0,
            created_s=float(draw(st.integers(0, 3)))),
        1.0, memory_bytes=draw(number)) for name in names]


REFUSED = st.dictionaries(st.sampled_from('abcdefg'), st.integers(-1, 50))
SHORTAGES = st.integers(-50, 300)


class ClassifyProperties(testtools.TestCase):

    def clear(self, text: str | None) -> Priority | None:
        word = (text or '').strip().lower()
        return Priority(word) if word in set(Priority) else None

    @given(FOUND)
    def test_the_first_that_speaks_wins(self, found: Any) -> None:
        wanted = [(priority, source) for source in SOURCES
                  if (priority := self.clear(found.get(source)))]
        got = classify(**found)
        self.assertEqual(
            wanted[0] if wanted else (Priority.FOREGROUND, 'default'),
            got[:2])

    @given(FOUND)
    def test_whatever_is_no_priority_is_told(self, found: Any) -> None:
        unclear = [source for source in SOURCES
                   if found.get(source) is not None
                   and not self.clear(found[source])]
        warnings = classify(**found).warnings
        self.assertEqual(unclear, [text.split()[0] for text in warnings])
        self.assertEqual([], [text for text in warnings if '\n' in text])

    @given(FOUND)
    def test_nothing_is_background_unless_something_says_so(
            self, found: Any) -> None:
        if classify(**found).priority is Priority.BACKGROUND:
            self.assertIn(Priority.BACKGROUND,
                          [self.clear(text) for text in found.values()])


class AnswerProperties(testtools.TestCase):

    @given(REFUSED, SHORTAGES, populations(strategies.weird(SIZES)))
    def test_whom_it_may_touch(self, unmet: Any, shortage: int,
                               workloads: list[WorkloadRates]) -> None:
        pause, kill = memory_shortage.pause_or_kill(unmet, shortage, workloads)
        by_name = {one.workload.id: one for one in workloads}
        refused = [name for name, size in unmet.items() if size > 0
                   and name in by_name and by_name[name].workload.priority
                   is Priority.BACKGROUND]
        for name in kill:
            one = by_name[name]
            self.assertIs(Priority.BACKGROUND, one.workload.priority)
            self.assertTrue(one.workload.killable)
            assert one.memory_bytes is not None
            self.assertTrue(0 < one.memory_bytes < math.inf)
        self.assertEqual([name for name in refused if name not in kill],
                         list(pause))
        self.assertEqual(len(kill), len(set(kill)))
        if not refused or shortage <= 0:
            self.assertEqual((), kill)

    @given(REFUSED, SHORTAGES, populations(SIZES), st.data())
    def test_no_more_than_needed_in_the_right_order(
            self, unmet: Any, shortage: int,
            workloads: list[WorkloadRates], data: st.DataObject) -> None:
        """The refused first, then the newest; without the last one killed
        the shortage would not be covered; and in whatever order the
        workloads come."""
        _, kill = memory_shortage.pause_or_kill(unmet, shortage, workloads)
        by_name = {one.workload.id: one for one in workloads}
        freed = list(itertools.accumulate(
            by_name[name].memory_bytes or 0 for name in kill))
        self.assertTrue(all(size < shortage for size in freed[:-1]))
        ranks = [(unmet.get(name, 0) <= 0,
                  -by_name[name].workload.created_s, name) for name in kill]
        self.assertEqual(sorted(ranks), ranks)
        self.assertEqual(kill, memory_shortage.pause_or_kill(
            unmet, shortage, data.draw(st.permutations(workloads)))[1])

    @given(REFUSED, populations(strategies.weird(SIZES)),
           st.sampled_from((math.nan, -math.inf, 0.0)))
    def test_without_a_known_shortage_nothing_is_killed(
            self, unmet: Any, workloads: list[WorkloadRates],
            shortage: float) -> None:
        self.assertEqual((), memory_shortage.pause_or_kill(unmet, shortage,
                                                           workloads)[1])
