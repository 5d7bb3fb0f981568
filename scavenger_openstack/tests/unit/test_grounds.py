# SPDX-License-Identifier: Apache-2.0

"""Why a workload is named: in words, and when that is another reason."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import testtools

from scavenger_openstack import amounts
from scavenger_openstack import grounds
from scavenger_openstack.grounds import Ground
from scavenger_openstack.grounds import GroundKind
from scavenger_openstack.tests.unit.agent.statuses import GROUNDS
from scavenger_openstack.types import Knob
from scavenger_openstack.types import THE_HOST

DIRECT = Ground('render-a', GroundKind.DIRECT, 0.86, 1.9, 2.0)
TIMING = Ground('render-a', GroundKind.TIMING, 0.93, chance=0.0004)
EXPERIMENT = Ground('render-a', GroundKind.EXPERIMENT, before=0.41, after=0.08)
SIGNALS = ('run_delay', 'io_wait', 'link_use', 'memory_wait')
"""Of CPU, disk, link and memory."""


def sentence(ground: Ground, signal: str = 'run_delay', **names: str) -> str:
    return amounts.of_ground(ground, 'web-2', signal, names)


class SentenceTest(testtools.TestCase):

    def test_direct(self) -> None:
        self.assertEqual(
            'render-a ran during 86 % of the 1.9 s that web-2 waited for a '
            'CPU (within 2 s)', sentence(DIRECT))

    def test_a_link(self) -> None:
        self.assertEqual(
            'the link sent data of render-a during 86 % of the 1.9 s that '
            'web-2 sent over the full link (within 2 s)',
            sentence(DIRECT, 'link_use'))
        self.assertEqual(sentence(DIRECT, 'link_use'),
                         sentence(DIRECT, 'egress_bytes_per_s eth0'))

    def test_a_cache(self) -> None:
        """Its evidence is of the cache; timing and trials by cpi are not."""
        self.assertEqual(
            'render-a used 86 % of the last-level cache and the memory bus '
            'in the 1.9 s that web-2 ran (within 2 s): taken from shares of '
            'use', sentence(DIRECT._replace(kind=GroundKind.SHARE), 'cpi'))
        self.assertNotIn('cache', sentence(TIMING, 'cpi'))

    def test_each_kind_of_each_resource_has_its_own(self) -> None:
        texts = [sentence(DIRECT._replace(kind=kind), signal)
                 for kind in (GroundKind.DIRECT, GroundKind.SHARE)
                 for signal in SIGNALS]
        self.assertEqual(8, len(set(texts)))
        for text in texts:
            for fact in ('render-a', '86 %', '1.9 s', 'web-2', '2 s'):
                self.assertIn(fact, text)
        for noun, *found in zip(('CPU', 'disk', 'link', 'memory'), texts[:4],
                                texts[4:], strict=True):
            self.assertTrue(all(noun in text for text in found), found)

    def test_all_causes_of_a_signal_have_numbers_with_units(self) -> None:
        self.assertIn('0.0004', sentence(TIMING))
        self.assertIn('r = 0.93', sentence(TIMING))
        self.assertIn('0.41 s ', sentence(EXPERIMENT))
        self.assertIn('80 ms/operation', sentence(EXPERIMENT, 'io_wait'))
        self.assertIn('0.08 cycles', sentence(EXPERIMENT, 'cpi'))

    def test_the_host_itself(self) -> None:
        text = sentence(DIRECT._replace(workload=THE_HOST,
                                        threads=('kworker', 'ksmd')))
        self.assertTrue(text.startswith(
            'the host itself (kworker, ksmd) ran during 86 %'), text)

    def test_names(self) -> None:
        text = sentence(DIRECT, **{'render-a': 'A', 'web-2': 'W'})
        self.assertTrue(text.startswith('A ran'), text)
        self.assertIn('that W waited', text)
        self.assertTrue(sentence(DIRECT, **{'render-a': ''}).startswith(
            'render-a ran'))

    def test_what_is_not_known(self) -> None:
        for kind in GroundKind:
            for number in (None, math.nan, math.inf):
                text = sentence(Ground(
                    'a', kind, number, number, number, (), number, number,
                    number))
                self.assertNotRegex(text, 'None|nan|inf')
                self.assertIn('web-2', text)

    def test_signals_have_names_for_readers(self) -> None:
        for signal in ('run_delay', 'cpi', 'io_wait', 'throttled_share',
                       'link_use', 'memory_wait', 'llc_misses_per_s'):
            for ground in (TIMING, EXPERIMENT, EXPERIMENT._replace(
                    before=None, after=None)):
                text = sentence(ground, signal)
                self.assertNotIn(signal, text)
                self.assertIn(amounts.name_of_signal(signal), text)
        self.assertEqual(('the disk wait (vda)', 'new_signal'), (
            amounts.name_of_signal('io_wait vda'),
            amounts.name_of_signal('new_signal')))

    @settings(max_examples=300, deadline=None)
    @given(GROUNDS, st.text(st.characters(), max_size=30),
           st.sampled_from([*SIGNALS, *Knob, 'cpi', 'x\ny', '']))
    def test_printable(self, ground: Ground, name: str, signal: str) -> None:
        text = amounts.of_ground(ground, name, signal,
                                 {ground.workload: name})
        self.assertTrue(text.isprintable(), text)

    def test_a_kind_of_another_version(self) -> None:
        text = sentence(Ground('a{0}%s\x1b[2J', 'guess\n'))  # type: ignore
        self.assertTrue(text.isprintable())
        self.assertIn('guess', text)


class DifferTest(testtools.TestCase):

    def test_materially(self) -> None:
        for differs, *now in (
                (False, DIRECT), (False, DIRECT._replace(share=0.9)),
                (False, DIRECT._replace(waited_s=9.0, threads=('a',))),
                (False, DIRECT._replace(share=math.nan)),
                (True, DIRECT._replace(share=0.7)),
                (True, DIRECT._replace(share=None)),
                (True, DIRECT._replace(workload='b')),
                (True, DIRECT._replace(kind=GroundKind.SHARE)),
                (True, DIRECT, TIMING), (True,)):
            self.assertEqual(differs, grounds.differ([DIRECT], now),
                             str(now))

    def test_the_order_is_nothing(self) -> None:
        self.assertFalse(grounds.differ([DIRECT, TIMING], [TIMING, DIRECT]))
