# SPDX-License-Identifier: Apache-2.0

"""The page of an agent, read by Prometheus' own parser."""

from __future__ import annotations

import math
import uuid

from hypothesis import given
from hypothesis import strategies as st
import testtools

from scavenger_openstack.agent.metrics import page
from scavenger_openstack.agent.metrics import text_format
from scavenger_openstack import errors
from scavenger_openstack.tests.unit.agent.metrics.pages import check
from scavenger_openstack.tests.unit.agent.metrics.pages import document
from scavenger_openstack.tests.unit.agent.metrics.pages import parsed
from scavenger_openstack.types import Knob

ODD = ('a"b', 'a\\b', 'a\nb', 'a\\nb', 'a\rb', '\u202eabc', 'שלום', '\udc80',
       '\x00', '\x1b[31m', '}{', '\u2028', '')
METRIC = text_format.Metric('scavenger_x', 'gauge', 'A test.', ('name',))


class TextFormat(testtools.TestCase):

    def test_odd_names_are_escaped(self) -> None:
        """One sample of each, and no other; what is printable stays."""
        data = text_format.page([(METRIC, [
            [text, number] for number, text in enumerate(ODD)])])
        samples = parsed(data)
        self.assertEqual(sorted(range(len(ODD))), sorted(samples.values()))
        names = {value: dict(labels)['name']
                 for (_, labels), value in samples.items()}
        for number, text in enumerate(ODD):
            if text.isprintable():
                self.assertEqual(text, names[number])
        self.assertEqual('', check(data))

    def test_a_long_name_is_cut(self) -> None:
        [[_, [[_, name]]]] = parsed(text_format.page(
            [(METRIC, [['é' * 300, 1]])]))
        self.assertEqual('é' * 255, name)

    @given(st.lists(st.tuples(st.text(st.characters()), st.floats())))
    def test_any_names(self, rows: list[tuple[str, float]]) -> None:
        data = text_format.page([(METRIC, rows)])
        self.assertEqual(
            {number for _, number in rows if math.isfinite(number)}
            >= set(parsed(data).values()), True)

    def test_what_is_not_known_is_not_there(self) -> None:
        self.assertEqual(b'', text_format.page([(METRIC, [
            ['a', None], ['b', math.nan], ['c', math.inf]])]))

    def test_as_many_labels_as_names(self) -> None:
        self.assertRaises(ValueError, text_format.page,
                          [(METRIC, [['a', 'b', 1]])])


class Page(testtools.TestCase):

    def test_of_a_status(self) -> None:
        samples = parsed(page.page(document(
            wall_time_s=12.5, stopped=True,
            controllers={
                'attribution': {'mode': 'enforce', 'facts': {'tried': {
                    'confirmed': 3, 'refuted': 1, 'unclear': 0}}},
                'scavenger': {'mode': 'observe', 'facts': {}}},
            isolation={'mode': 'off'},
            would=[{'knob': 'cpu_cores', 'owner': 'leftover'},
                   {'knob': 'cpu_cores', 'owner': 'scavenger'}],
            incidents=[{'cause': 'disk'}, {'cause': 'disk'},
                       {'cause': 'of a plug-in'}],
            missing=('cpu: a', 'cpu: b', 'no libvirt'),
            libvirt={'since_s': 3}, conductor={'spool_bytes': 7},
            watcher={'running': False}, refused=['a', 'b'],
            metrics={'limits': [['cpu_set', 'perfiso', 2]]})))

        def value(name: str, **labels: str) -> float:
            return samples[f'scavenger_{name}', tuple(sorted(labels.items()))]

        self.assertEqual(12.5, value('agent_last_tick_timestamp_seconds'))
        self.assertEqual(1, value('agent_stopped'))
        self.assertEqual(0, value('watcher_up'))
        self.assertEqual(2, value('limits_not_restored'))
        self.assertEqual(0, value('libvirt_up'))
        self.assertEqual(7, value('spool_bytes'))
        self.assertEqual([1, 0], [value(
            'controller_mode', controller='attribution', mode=mode)
            for mode in ('enforce', 'observe')])
        self.assertEqual(1, value('controller_mode', controller='perfiso',
                                  mode='off'))
        self.assertEqual(2, value('would_be_limits', knob='cpu_cores',
                                  controller='scavenger'))
        self.assertEqual([2, 1, 0], [value('incidents_open', cause=cause)
                                     for cause in ('disk', 'other', 'core')])
        self.assertEqual([2, 1, 0], [value('missing', resource=resource)
                                     for resource in ('cpu', 'other',
                                                      'memory')])
        self.assertEqual(3, value('trials_total', controller='attribution',
                                  result='confirmed'))
        self.assertEqual(2, value('limits', knob='cpu_set',
                                  controller='perfiso'))

    def test_without_libvirt_and_conductor(self) -> None:
        names = {name for name, _ in parsed(page.page(document()))}
        self.assertFalse({'scavenger_libvirt_up', 'scavenger_spool_bytes',
                          'scavenger_background_memory_bytes'} & names)

    def test_another_version(self) -> None:
        broken = document()
        del broken['metrics']
        self.assertRaises(errors.ScavengerError, page.page, broken)

    def test_labels_are_bounded(self) -> None:
        """Whatever plug-ins and operators name."""
        names = [f'x{number}' for number in range(1000)]
        samples = parsed(page.page(document(
            would=[{'knob': Knob.CPU_CORES, 'owner': name}
                   for name in names],
            incidents=[{'cause': name} for name in names],
            missing=[f'{name}: y' for name in names])))
        self.assertLess(len(samples), 50)

    def test_promtool(self) -> None:
        """Names, units and helps by Prometheus' rules."""
        values = {name: [[*('x' for _ in metric.labels), 1]]
                  for name, metric in page.METRICS.items()}
        data = page.page(document(
            metrics=values, controllers={'attribution': {
                'mode': 'observe', 'facts': {'tried': dict.fromkeys(
                    page.RESULTS, 1)}}},
            would=[{'knob': 'cpu_cores', 'owner': 'attribution'}],
            libvirt={'since_s': None}, conductor={'spool_bytes': 7}))
        self.assertEqual('', check(data))
        self.assertEqual(
            {metric.name for metric in page.METRICS.values()},
            {name for name, _ in parsed(data)})

    def test_size_of_a_full_page(self) -> None:
        rows = [['f' * 32, str(uuid.uuid4()), 'background', 123456.789]
                for _ in range(100)]
        self.assertLess(len(page.page(document(metrics={
            name: rows for name in page.METRICS
            if name.startswith('instance_')}))), 200_000)
