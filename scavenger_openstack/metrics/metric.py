# SPDX-License-Identifier: Apache-2.0

"""The description of a metric, of agents and of the control plane."""

from __future__ import annotations

from typing import NamedTuple

PREFIX = 'scavenger_'
GAUGE, COUNTER, HISTOGRAM = 'gauge', 'counter', 'histogram'

OTHER = 'other'
"""The label value for unexpected names, so that the number of values of each
label is bounded."""


class Metric(NamedTuple):
    """A metric; ``kind`` is gauge, counter or histogram, ``help`` a sentence.
    """

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()


def table(*rows: tuple[str, str, str, tuple[str, ...]]) -> dict[str, Metric]:
    """Return metrics by their names without :data:`PREFIX`.

    :param rows: name, kind, help and labels of each
    """
    return {name: Metric(PREFIX + name, kind, text, labels)
            for name, kind, text, labels in rows}
