# SPDX-License-Identifier: Apache-2.0


"""What many seeds say together: means, their intervals, and what is best."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
import random
from typing import Any
from typing import NamedTuple

from scavenger_openstack.laboratory.compare import ORACLE
from scavenger_openstack.laboratory.oracle import LIMIT
from scavenger_openstack.laboratory.oracle import NEAR

RESAMPLES = 1000
CONFIDENCE = 0.95
SEED = 1
"""The same records give the same intervals."""

STATISTICS = ('Mean over seeds, with the 95 % percentile interval of '
              f'{RESAMPLES} bootstrap resamples of the seeds.')

RULE = (f'Best or tied: of the policies whose foreground P99 is at most '
        f'{LIMIT:g} x alone (if none is: within {NEAR:g} of the least), '
        'those whose background work is the largest, or less by at most '
        f'{100 * NEAR:.0f} points or by a difference whose interval over the '
        'same seeds reaches zero.')

BEST = 'best'
TIED = 'tied'
HURTS = 'hurts'
"""The foreground feels it more than it may."""
LESS = 'less work'

Draws = Sequence[Sequence[int]]


class Range(NamedTuple):
    """A mean and its interval."""

    value: float
    low: float
    high: float


class Row(NamedTuple):
    """One controller on one scenario; fields as in
    :class:`~scavenger_openstack.laboratory.score.Score`.

    ``seeds``: how many it was played on; ``hurt``: share of those whose
    foreground P99 is above the limit; ``of_oracle``: background work over
    the oracle's; ``verdict``: one of :data:`BEST`, :data:`TIED`,
    :data:`LESS`, :data:`HURTS`, or nothing for the oracle, which does not
    compete.
    """

    p99_ratio: Range | None
    p99_ratio_worst: Range | None
    mean_ratio: Range | None
    mean_ratio_worst: Range | None
    work_ratio: Range | None
    violation_s: float
    violations: float
    kills: float
    writes: float
    seeds: int
    hurt: float
    of_oracle: Range | None
    verdict: str

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Row:
        """The row that :meth:`as_dict` was made from."""
        fields: dict[str, Any] = {
            key: Range(**value) if isinstance(value, dict) else value
            for key, value in values.items()}
        return cls(**fields)

    def as_dict(self) -> dict[str, Any]:
        return {key: value._asdict() if isinstance(value, Range) else value
                for key, value in self._asdict().items()}


RANGES = ('p99_ratio', 'p99_ratio_worst', 'mean_ratio', 'mean_ratio_worst',
          'work_ratio')
COUNTS = ('violation_s', 'violations', 'kills', 'writes')


def rows(records: Sequence[Mapping[str, Any]]) -> dict[str, Row | None]:
    """One row per controller, ``None`` where it does not apply.

    :param records: of :func:`~.compare.record`, all of one scenario; some
        may lack a controller
    """
    names = {name: None for record in records for name in record['scores']}
    draws = resamples(len(records))
    columns = {name: [record['scores'].get(name) for record in records]
               for name in names}
    verdicts = _verdicts({name: scores for name, scores in columns.items()
                          if name != ORACLE and any(scores)}, draws)
    best = _values(columns.get(ORACLE, [None] * len(records)), 'work_ratio')
    by_name: dict[str, Row | None] = {}
    for name, scores in columns.items():
        played = [score for score in scores if score is not None]
        if not played:
            by_name[name] = None
            continue
        values: dict[str, Any] = {
            key: interval(_values(scores, key), draws) for key in RANGES}
        for key in COUNTS:
            values[key] = sum([score[key] for score in played]) / len(played)
        by_name[name] = Row(
            **values, seeds=len(played),
            hurt=sum([(score['p99_ratio'] or 1.0) > LIMIT
                      for score in played]) / len(played),
            of_oracle=quotient(_values(scores, 'work_ratio'), best, draws),
            verdict=verdicts.get(name, ''))
    return by_name


Column = Sequence[Mapping[str, Any] | None]


def _values(scores: Column, key: str) -> list[float | None]:
    return [score[key] if score is not None else None for score in scores]


def _verdicts(columns: Mapping[str, Column],
              draws: Draws) -> dict[str, str]:
    """See :data:`RULE`."""
    hurts, work = {}, {}
    for name, scores in columns.items():
        hurt = interval(_values(scores, 'p99_ratio'), draws)
        hurts[name] = hurt.value if hurt else 1.0
        done = interval(_values(scores, 'work_ratio'), draws)
        work[name] = done.value if done else 0.0
    if not columns:
        return {}
    least = min(hurts.values())
    most = LIMIT if least <= LIMIT else least + NEAR
    fit = [name for name in columns if hurts[name] <= most]
    best = max(fit, key=work.__getitem__)
    verdicts = dict.fromkeys(columns, HURTS)
    for name in fit:
        lost = interval(
            [None if a is None or b is None else a - b for a, b in zip(
                _values(columns[best], 'work_ratio'),
                _values(columns[name], 'work_ratio'), strict=True)], draws)
        if lost is None or lost.value <= NEAR or lost.low <= 0:
            verdicts[name] = TIED
        else:
            verdicts[name] = LESS
    if list(verdicts.values()).count(TIED) == 1:
        verdicts[best] = BEST
    return verdicts


def resamples(count: int) -> Draws:
    """Return which seeds to take, with replacement, each time."""
    rng = random.Random(SEED)
    return [rng.choices(range(count), k=count) for _ in range(RESAMPLES)]


def interval(values: Sequence[float | None], draws: Draws) -> Range | None:
    """Mean of the values that are known; ``None`` without any."""
    return quotient(values, [None if value is None else 1.0
                             for value in values], draws)


def quotient(over: Sequence[float | None], under: Sequence[float | None],
             draws: Draws) -> Range | None:
    """Sum over sum, where both are known; ``None`` without any."""
    pairs = [(0.0, 0.0) if a is None or b is None else (a, b)
             for a, b in zip(over, under, strict=True)]
    below = sum([b for _, b in pairs])
    if not below:
        return None
    value = sum([a for a, _ in pairs]) / below
    quotients = []
    for draw in draws:
        taken = [pairs[place] for place in draw]
        below = sum([b for _, b in taken])
        if below:
            quotients.append(sum([a for a, _ in taken]) / below)
    quotients.sort()
    tail = (1 - CONFIDENCE) / 2
    return Range(value, quotients[int(tail * len(quotients))],
                 quotients[int((1 - tail) * len(quotients)) - 1])
