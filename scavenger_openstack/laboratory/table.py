# SPDX-License-Identifier: Apache-2.0


"""Comparisons as tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping

from scavenger_openstack.laboratory import summary
from scavenger_openstack.laboratory.summary import Range
from scavenger_openstack.laboratory.summary import Row
from scavenger_openstack import text

TITLES = ('policy', 'foreground P99 x alone', 'worst service',
          'seeds above', 'background work x unmanaged', 'of oracle',
          'short of memory s', 'kills', 'result')

LEGEND = (f'{summary.STATISTICS} seeds above: share of the seeds in which '
          f'the foreground P99 is above {summary.LIMIT:g} x alone. of '
          'oracle: background work over the oracle\'s; it may be more than '
          'all where a policy hurts, or where it follows the load.')

SMALL = ('The fast loop does not act here: some machines have too few CPUs. '
         'There perfiso is its disk part alone, and ours runs without it.')


def number(value: float) -> str:
    """Three digits that count, two behind the point at the most."""
    if value >= 99.95:
        return f'{value:.0f}'
    return f'{value:.1f}' if value >= 9.995 else f'{value:.2f}'


def range_(value: Range | None) -> str:
    if value is None:
        return '-'
    return (f'{number(value.value)} [{number(value.low)}, '
            f'{number(value.high)}]')


def result(row: Row) -> str:
    """The verdict; the best of those that hurt still hurts."""
    hurts = row.p99_ratio and row.p99_ratio.value > summary.LIMIT
    return f'{row.verdict}, yet hurts' if hurts and row.verdict in (
        summary.BEST, summary.TIED) else row.verdict


def cells(name: str, row: Row | None) -> tuple[str, ...]:
    """Return the cells of one line below :data:`TITLES`."""
    if row is None:
        return (name, 'n/a', *[''] * (len(TITLES) - 2))
    return (name, range_(row.p99_ratio), range_(row.p99_ratio_worst),
            f'{100 * row.hurt:.0f} %', range_(row.work_ratio),
            '-' if row.of_oracle is None
            else f'{100 * row.of_oracle.value:.0f} %',
            f'{row.violation_s:.1f}', f'{row.kills:.1f}', result(row))


def plain(rows: Mapping[str, Row | None]) -> list[str]:
    """Columns for a terminal, the first and last to the left."""
    return text.columns(TITLES, [cells(name, row)
                                 for name, row in rows.items()],
                        left=(0, len(TITLES) - 1))
