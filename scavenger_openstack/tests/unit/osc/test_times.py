# SPDX-License-Identifier: Apache-2.0

"""Times of the commands: what people type, and what they read."""

from __future__ import annotations

import argparse
import time

import fixtures
import testtools

from scavenger_openstack.osc import times

NOW = 1_795_000_000.0    # 2026-11-18 11:06:40 UTC


class Points(testtools.TestCase):

    def test_durations(self) -> None:
        for text, seconds in (('90s', 90), ('30m', 1800), ('2h', 7200),
                              ('3d', 259200), ('1w', 604800),
                              ('1h30m', 5400), ('0.5h', 1800)):
            self.assertEqual(NOW - seconds,
                             times.point(text, now=NOW, sign=-1), text)
            self.assertEqual(NOW + seconds,
                             times.point(text, now=NOW, sign=+1), text)

    def test_iso_is_utc_unless_it_has_an_offset(self) -> None:
        """Wherever the client is."""
        self.addCleanup(time.tzset)
        self.useFixture(fixtures.EnvironmentVariable('TZ', 'EST5'))
        time.tzset()
        for text in ('2026-11-18T11:06:40', '2026-11-18 11:06:40Z',
                     '2026-11-18T13:06:40+02:00', '20261118T110640'):
            self.assertEqual(NOW, times.point(text, now=0, sign=-1), text)
        self.assertEqual(NOW - NOW % 86400,
                         times.point('2026-11-18', now=0, sign=+1))

    def test_neither(self) -> None:
        for text in ('', '2', 'h', '2 h', '-2h', '2h-', '2x', '1e3s', 'nan',
                     'yesterday', '2026-13-01', '٣h', '99999999999d'):
            error = self.assertRaises(argparse.ArgumentTypeError,
                                      times.since, text)
            self.assertIn(repr(text), str(error))
            self.assertIn('30m, 2h or 3d', str(error))

    def test_as_the_api_takes_it(self) -> None:
        self.assertEqual('2026-11-18T11:06:40Z', times.iso(NOW))
        self.assertEqual('2026-11-18T09:00:00Z',
                         times.since('2026-11-18T11:00+02:00'))

    def test_from_now(self) -> None:
        self.assertLess(times.since('1h'), times.until('1h'))


class Human(testtools.TestCase):

    def test_times(self) -> None:
        self.assertEqual('2026-11-18 11:06:40',
                         times.human('2026-11-18T11:06:40Z'))
        self.assertEqual('2026-11-18 11:06:40',
                         times.human('2026-11-18T11:06:40.250000+00:00'))
        self.assertEqual('soon', times.human('soon'))
