# SPDX-License-Identifier: Apache-2.0


from __future__ import annotations

import random
import statistics
from typing import Any

import testtools

from scavenger_openstack.laboratory import summary
from scavenger_openstack.laboratory import table


def scored(p99: float | None, work: float | None) -> dict[str, Any]:
    return {'p99_ratio': p99, 'p99_ratio_worst': p99, 'mean_ratio': p99,
            'mean_ratio_worst': p99, 'work_ratio': work, 'violations': 0,
            'violation_s': 0.0, 'kills': 0, 'writes': 4}


def played(**policies: list[tuple[float | None, float | None] | None]
           ) -> list[dict[str, Any]]:
    """Records from (foreground P99, background work) of each seed."""
    return [{'scores': {name: one and scored(*one) for name, one
                        in zip(policies, seed, strict=True)}}
            for seed in zip(*policies.values(), strict=True)]


def verdicts(records: list[dict[str, Any]]) -> dict[str, str | None]:
    return {name: row and row.verdict
            for name, row in summary.rows(records).items()}


class IntervalTest(testtools.TestCase):

    def test_close_to_theory(self) -> None:
        rng = random.Random(3)
        values = [rng.gauss(5, 2) for _ in range(400)]
        found = summary.interval(values, summary.resamples(400))
        assert found is not None
        self.assertAlmostEqual(statistics.mean(values), found.value)
        half = 1.96 * statistics.stdev(values) / 20
        self.assertAlmostEqual(found.value - half, found.low, delta=0.03)
        self.assertAlmostEqual(found.value + half, found.high, delta=0.03)

    def test_unknown_values_are_left_out(self) -> None:
        found = summary.interval([1.0, None, 3.0], summary.resamples(3))
        assert found is not None
        self.assertEqual(2.0, found.value)
        self.assertIsNone(summary.interval([None], summary.resamples(1)))


class VerdictTest(testtools.TestCase):

    def test_most_work_of_those_that_do_not_hurt(self) -> None:
        self.assertEqual(
            {'none': summary.HURTS, 'static': summary.LESS,
             'ours': summary.BEST},
            verdicts(played(none=[(2.0, 1.0)] * 5, static=[(1.0, 0.5)] * 5,
                            ours=[(1.04, 0.8)] * 5)))

    def test_two_points_are_a_tie(self) -> None:
        self.assertEqual(
            {'a': summary.TIED, 'b': summary.TIED, 'c': summary.LESS},
            verdicts(played(a=[(1.0, 0.80)] * 5, b=[(1.0, 0.79)] * 5,
                            c=[(1.0, 0.77)] * 5)))

    def test_the_same_seeds_are_compared(self) -> None:
        """Seeds differ far more than policies, which differ each time."""
        work = [0.1 * i for i in range(1, 10)]
        self.assertEqual(
            {'a': summary.BEST, 'b': summary.LESS},
            verdicts(played(a=[(1.0, one) for one in work],
                            b=[(1.0, one - 0.03) for one in work])))

    def test_a_difference_that_may_be_none_is_a_tie(self) -> None:
        self.assertEqual(
            {'a': summary.TIED, 'b': summary.TIED},
            verdicts(played(a=[(1.0, 0.9), (1.0, 0.2), (1.0, 0.7)],
                            b=[(1.0, 0.3), (1.0, 0.5), (1.0, 0.8)])))

    def test_when_all_hurt_the_least_counts(self) -> None:
        records = played(a=[(1.20, 0.3)] * 4, b=[(1.21, 0.6)] * 4,
                         c=[(1.30, 1.0)] * 4)
        self.assertEqual({'a': summary.LESS, 'b': summary.BEST,
                          'c': summary.HURTS}, verdicts(records))
        row = summary.rows(records)['b']
        assert row is not None
        self.assertEqual('best, yet hurts', table.result(row))

    def test_the_oracle_does_not_compete(self) -> None:
        rows = summary.rows(played(ours=[(1.0, 0.4)] * 3,
                                   oracle=[(1.0, 0.8)] * 3))
        assert rows['ours'] is not None and rows['oracle'] is not None
        self.assertEqual(summary.BEST, rows['ours'].verdict)
        self.assertEqual('', rows['oracle'].verdict)
        self.assertEqual((0.5, 0.5, 0.5), rows['ours'].of_oracle)

    def test_the_oracle_may_have_fewer_seeds(self) -> None:
        records = played(ours=[(1.0, 0.4), (1.0, 9.0)],
                         oracle=[(1.0, 0.8), None])
        del records[1]['scores']['oracle']
        rows = summary.rows(records)
        assert rows['ours'] is not None and rows['oracle'] is not None
        self.assertEqual((2, 1), (rows['ours'].seeds, rows['oracle'].seeds))
        assert rows['ours'].of_oracle is not None
        self.assertEqual(0.5, rows['ours'].of_oracle.value)

    def test_what_does_not_apply(self) -> None:
        rows = summary.rows(played(perfiso=[None] * 3,
                                   ours=[(1.0, 0.4)] * 3))
        self.assertIsNone(rows['perfiso'])
        self.assertEqual('n/a', table.cells('perfiso', None)[1])

    def test_seeds_above_the_limit_are_counted(self) -> None:
        rows = summary.rows(played(ours=[(1.0, 0.4), (1.06, 0.4)] * 2))
        assert rows['ours'] is not None
        self.assertEqual(0.5, rows['ours'].hurt)


class RowTest(testtools.TestCase):

    def test_survives_json(self) -> None:
        for row in summary.rows(played(
                ours=[(1.0, 0.4)] * 2, oracle=[(None, None)] * 2)).values():
            assert row is not None
            self.assertEqual(row, summary.Row.of(row.as_dict()))

    def test_columns_fit_their_titles(self) -> None:
        rows = summary.rows(played(
            ours=[(1.0, 0.4)] * 2, perfiso=[None] * 2,
            none=[(123.4, 12.34)] * 2))
        for name, row in rows.items():
            self.assertEqual(len(table.TITLES),
                             len(table.cells(name, row)))
        lines = table.plain(rows)
        self.assertIn('1.00 [1.00, 1.00]', lines[1])
        self.assertIn('123 [123, 123]', lines[3])
        self.assertIn('12.3 [12.3, 12.3]', lines[3])
