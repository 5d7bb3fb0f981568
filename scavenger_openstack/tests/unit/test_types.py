# SPDX-License-Identifier: Apache-2.0


"""CPU lists, the ids of incidents, and what is spread over an interval."""

from __future__ import annotations

import random

import testtools

from scavenger_openstack.restore import grammar
from scavenger_openstack.types import format_cpus
from scavenger_openstack.types import incident_id
from scavenger_openstack.types import MAX_CPU
from scavenger_openstack.types import parse_cpus
from scavenger_openstack.types import phase


class CpusTest(testtools.TestCase):

    def test_parse(self) -> None:
        for text, cpus in (('', set()), ('\n', set()), ('0', {0}),
                           ('0-1,4\n', {0, 1, 4}), ('3,1', {1, 3}),
                           ('0-3,2-5', {0, 1, 2, 3, 4, 5}), ('7-7', {7})):
            self.assertEqual(cpus, parse_cpus(text), text)

    def test_garbage(self) -> None:
        for text in ('x', '1-', '-1', '3-1', '1-2-3', '0x1', '1 2',
                     '0-6:2/4'):
            self.assertRaises(ValueError, parse_cpus, text)

    def test_one_that_would_fill_the_memory(self) -> None:
        self.assertEqual(MAX_CPU + 1, len(parse_cpus(f'0-{MAX_CPU}')))
        for text in ('0-4294967295', f'{MAX_CPU + 1}', f'0-{MAX_CPU + 1}',
                     '1,0-99999999999999999999', ',' + '9' * 4000,
                     '0-65535-4294967295'):
            exc = self.assertRaises(ValueError, parse_cpus, text)
            self.assertLess(len(str(exc)), 200)

    def test_each_cpu_is_taken_once(self) -> None:
        """A hundred thousand times 65,536 of them would take hours."""
        self.assertEqual(frozenset(range(65536)), parse_cpus(
            '3-9,' + ','.join(['0-65535'] * 100_000)))

    def test_one_reader_for_all(self) -> None:
        """Also for what restores, which imports nothing else of ours."""
        self.assertIs(grammar.parse_cpus, parse_cpus)

    def test_format(self) -> None:
        for cpus, text in (((), ''), ({0}, '0'), ({0, 1, 4}, '0-1,4'),
                           ([4, 1, 0, 1], '0-1,4'), ({1, 3, 5}, '1,3,5'),
                           (range(8), '0-7')):
            self.assertEqual(text, format_cpus(cpus))

    def test_there_and_back(self) -> None:
        dice = random.Random(1)
        for _ in range(300):
            cpus = frozenset(dice.sample(range(70), dice.randrange(70)))
            self.assertEqual(cpus, parse_cpus(format_cpus(cpus)))


class IncidentIdTest(testtools.TestCase):

    def test_every_part_counts(self) -> None:
        parts = ('host', 'boot', 'web', 'cpi')
        found = {incident_id(*parts, 10.0), incident_id(*parts, 10.5)}
        for place in range(4):
            host, boot_id, victim, signal = (
                part + 'x' if n == place else part
                for n, part in enumerate(parts))
            found.add(incident_id(host, boot_id, victim, signal, 10.0))
        self.assertEqual(6, len(found))
        self.assertEqual(incident_id(*parts, 10.0),
                         incident_id(*parts, 10.0))

    def test_names_that_are_not_utf_8(self) -> None:
        self.assertEqual(32, len(incident_id('h', 'b', 'web\udcff', 'cpi',
                                             1.0)))


class PhaseTest(testtools.TestCase):

    def test_the_same_in_each_process(self) -> None:
        for name, expected in (
                ('', 0.0), ('/batch/a', 0.8177759), ('/batch/b', 0.2824795),
                ('/a/\udcff', 0.18054)):
            self.assertAlmostEqual(expected, phase(name), 5, name)

    def test_of_many_some_are_in_each_part(self) -> None:
        parts = [int(4 * phase(f'/batch/job-{number}'))
                 for number in range(1000)]
        for part in range(4):
            self.assertTrue(200 < parts.count(part) < 300, parts.count(part))
