# SPDX-License-Identifier: Apache-2.0

"""Reports of kernels as documents, tables and pages."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import testtools

from scavenger_openstack import errors
from scavenger_openstack.ibench import arguments
from scavenger_openstack.ibench import catalogue
from scavenger_openstack.ibench import page
from scavenger_openstack.ibench import report
from scavenger_openstack.ibench import run
from scavenger_openstack.ibench.validation import measure

CALIBRATED = {'event': 'calibrated', 'chunk_s': 0.001,
              'operations_per_s': 1000.0}


def level(percent: float, seconds: float, operations: int) -> dict[str, Any]:
    return {'event': 'level', 'percent': percent, 'seconds': seconds,
            'operations': operations}


def result(*events: dict[str, Any]) -> run.Result:
    made = run.Result(arguments.Start(catalogue.find_soi('11'), (),
                                      'all <of> it'))
    for number, event in enumerate(events):
        made.add(event, 0.1 * number)
    return made


def ramp() -> dict[str, Any]:
    return {'command': 'ramp', 'notes': [], 'sois': [report.of_result(
        result(CALIBRATED, level(50, 0.1, 40), level(50, 0.2, 80),
               level(100, 0.1, 100)), CALIBRATED)]}


def row(number: str, values: list[float], **more: Any) -> measure.Row:
    return measure.Row(
        catalogue.find_soi(number), meter='meter', unit='bytes',
        points=list(zip(measure.LEVELS, values, strict=False)), **more)


def validation(*rows: measure.Row) -> dict[str, Any]:
    return {'command': 'validate', 'notes': [], 'pair_percent': 40.0,
            'sois': [report.of_row(one) for one in rows],
            'pairs': [{'first': 'memory_capacity', 'second': 'tlb',
                       'first_reached': 0.9, 'second_reached': 0.8}]}


class Results(testtools.TestCase):

    def test_the_last_report_of_each_level(self) -> None:
        made = result(CALIBRATED, level(50, 0.1, 4), level(50, 0.2, 9),
                      level(50, 0.1, 5), level(60, 0.2, 6), {'event': 'end'})
        self.assertEqual([9, 5, 6], [one['operations']
                                     for one in made.levels])
        self.assertEqual(4, len(made.samples))
        self.assertEqual(CALIBRATED, made.calibrated)

    def test_an_unknown_event(self) -> None:
        self.assertRaises(errors.DriverError, result, {'event': 'x'})

    def test_reached(self) -> None:
        """80 operations in 0.2 s are 400 per s, of 1000 alone."""
        levels = ramp()['sois'][0]['levels']
        self.assertEqual([40.0, 100.0], [round(one['reached_percent'], 6)
                                         for one in levels])
        self.assertIsNone(report.reached_percent(level(0, 0.0, 0),
                                                 CALIBRATED))

    def test_table(self) -> None:
        lines = report.result_lines(ramp())
        self.assertIn('40 %', lines[3])
        self.assertIn('400', lines[3])


class Validation(testtools.TestCase):

    def test_a_line_and_none(self) -> None:
        linear, flat = validation(
            row('1', [float(at) for at in measure.LEVELS], independent=True),
            row('2', [1.0] * 10, reason='no <probe>'))['sois']
        self.assertEqual((1.0, True), (round(linear['r2'], 9),
                                       linear['monotone']))
        self.assertEqual((None, None), (flat['r2'], flat['monotone']))

    def test_what_was_not_measured_has_a_reason(self) -> None:
        text = '\n'.join(report.validation_lines(validation(
            row('13', [], reason='nothing to measure with'))))
        self.assertIn('none here', text)
        self.assertIn('prefetcher: nothing to measure with', text)

    def test_each_pair_both_ways(self) -> None:
        text = report.validation_lines(validation(row('1', [])))
        self.assertTrue(text[-2].endswith('90'), text)
        self.assertIn('80', text[-1])


class Page(testtools.TestCase):

    def svgs(self, document: dict[str, Any]) -> list[str]:
        """The pictures, each of which is XML."""
        text = page.page(document)
        self.assertNotIn('<of>', text)
        self.assertNotIn('<probe>', text)
        found = ['<svg' + part.partition('</svg>')[0] + '</svg>'
                 for part in text.split('<svg')[1:]]
        for svg in found:
            ElementTree.fromstring(svg)
        return found

    def test_ramp(self) -> None:
        self.assertEqual(2, len(self.svgs(ramp())))

    def test_validation(self) -> None:
        self.assertEqual(2, len(self.svgs(validation(
            row('1', [float(at) for at in measure.LEVELS]),
            row('6', [-0.01] * 10, reason='no <probe>'),
            row('13', [], reason='none')))))
