# SPDX-License-Identifier: Apache-2.0

"""Amounts of the commands: what people type, and what they read."""

from __future__ import annotations

import testtools

from scavenger_openstack import amounts
from scavenger_openstack.knobs import OVERRIDABLE
from scavenger_openstack import typed_amounts


class Parse(testtools.TestCase):

    def test_values(self) -> None:
        for knob, text, value in (
                ('cpu_cores', '0.5', 0.5), ('cpu_cores', '2', 2),
                ('cpu_cores', '0.5 cores', 0.5),
                ('io_ops_per_s', '10 operations/s', 10),
                ('cpu_set', '0-1,4', '0-1,4'),
                ('memory_bytes', '512MiB', 512 * 2 ** 20),
                ('memory_bytes', '1 G', 10 ** 9),
                ('memory_bytes', '64Mi', 64 * 2 ** 20),
                ('io_bytes_per_s', '20MB/s', 20_000_000),
                ('egress_bytes_per_s', '1.5M', 1_500_000),
                ('io_ops_per_s', '2k', 2000), ('paused', '1', 1),
                ('cpu_cores', 'none', None), ('cpu_set', 'none', None)):
            self.assertEqual(value, typed_amounts.parse(knob, text),
                             f'{knob} {text}')

    def test_no_values(self) -> None:
        for knob, text in (
                ('cpu_cores', '2k'), ('cpu_cores', '50%'),
                ('cpu_cores', '-1'), ('cpu_cores', 'nan'),
                ('cpu_cores', 'inf'), ('cpu_cores', ''),
                ('cpu_cores', 'cores'), ('io_ops_per_s', '5 cores'),
                ('cpu_cores', '1e3'), ('memory_bytes', '1MB/s'),
                ('memory_bytes', '1i'), ('memory_bytes', '٣'),
                ('io_ops_per_s', '5B'),
                ('cpu_set', ''), ('cpu_set', '3-1'), ('cpu_set', 'a')):
            error = self.assertRaises(ValueError, typed_amounts.parse, knob,
                                      text)
            self.assertIn(repr(text), str(error))
            self.assertIn('such as', str(error))

    def test_each_knob(self) -> None:
        for knob in OVERRIDABLE:
            self.assertEqual(1 if knob != 'cpu_set' else '1',
                             typed_amounts.parse(knob, '1'), knob)
            self.assertIn(knob, typed_amounts.how())


class Human(testtools.TestCase):

    def test_units(self) -> None:
        for name, value, text in (
                ('cpu_cores', 0.5, '0.5 cores'),
                ('cpu_set', '0-1', 'CPUs 0-1'),
                ('memory_bytes', 2 ** 26, '64 MiB'),
                ('memory_bytes', 2 ** 34, '16,384 MiB'),
                ('io_bytes_per_s', 2e7, '20 MB/s'),
                ('net_tx_bytes_per_s', 2e7, '20 MB/s'),
                ('io_ops_per_s', 200.0, '200 operations/s'),
                ('io_ops_per_s', 12345.0, '12,345 operations/s'),
                ('cpu_idle', 1, 'yes'), ('paused', 0, 'no'),
                ('cpi', 1.2345, '1.23'), ('run_delay', 0.5, '0.5'),
                ('io_wait', 0.0123, '12.3 ms/operation'),
                ('io_wait', 12.3, '12,300 ms/operation'),
                ('llc_misses_per_s', 3.2e6, '3.2 M misses/s'),
                ('memory', 2 ** 30, '1,024 MiB'),
                ('cpu', 3.0, '3 cores'), ('network', 125e6, '125 MB/s'),
                ('cpu_cores', None, 'no limit')):
            self.assertEqual(text, typed_amounts.human(name, value))

    def test_durations(self) -> None:
        for seconds, text in (
                (0, '0 s'), (0.25, '0.25 s'), (1.5, '1.5 s'), (45, '45 s'),
                (59.9, '60 s'), (60, '1 min'), (90, '1.5 min'),
                (180, '3 min'), (3599, '60 min'), (3600, '1 h'),
                (86400, '1 d'), (12 * 86400, '12 d')):
            self.assertEqual(text, amounts.of_duration(seconds))
