# SPDX-License-Identifier: Apache-2.0

"""Prometheus' text format, version 0.0.4.

Not prometheus_client, which the control plane uses: with that, agents need
another package and 2 MiB more, and a page of 100 VMs three times the CPU
(``benchmarks/agent/metrics_page.py``).
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence
import math
from typing import NamedTuple

from scavenger_openstack.types import printable

MOST_LABEL = 255
"""Characters of a label's value; the rest is left out."""

Row = Sequence[str | float | None]
"""The values of the labels, and the value, last."""


class Metric(NamedTuple):
    """``kind`` is gauge or counter; ``help`` is a sentence."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()


def page(families: Iterable[tuple[Metric, Iterable[Row]]]) -> bytes:
    """Return the text of all metrics that have a value; of a label set that
    is there twice, the first.

    :raises ValueError: a row has more or fewer labels than its metric.
    """
    parts: list[str] = []
    for metric, rows in families:
        labels = ','.join(f'{name}="%s"' for name in metric.labels)
        labels = f'{{{labels}}} ' if labels else ' '
        count = len(metric.labels)
        values: dict[str, float] = {}
        for row in rows:
            if len(row) != count + 1:
                raise ValueError(f'{metric.name}: {count} labels, not '
                                 f'{len(row) - 1}')
            value = row[count]
            if isinstance(value, float | int) and math.isfinite(value):
                values.setdefault(
                    labels % tuple(map(_escaped, row[:count])), value)
        if values:
            parts.append(f'# HELP {metric.name} {metric.help}\n'
                         f'# TYPE {metric.name} {metric.kind}\n')
            parts += [f'{metric.name}{labels}{value!r}\n'
                      for labels, value in values.items()]
    return ''.join(parts).encode()


def _escaped(label: object) -> str:
    """Return a label's value: names of cgroups need not be UTF-8, and some
    characters turn what stands around them around."""
    text = str(label)[:MOST_LABEL]
    if not text.isprintable():
        text = '\n'.join(map(printable, text.split('\n')))
    return text.replace('\\', r'\\').replace('\n', r'\n').replace('"', r'\"')
