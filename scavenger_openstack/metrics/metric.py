# SPDX-License-Identifier: Apache-2.0

"""What describes a metric, of agents and of the control plane."""

from __future__ import annotations

from typing import NamedTuple

PREFIX = 'scavenger_'
GAUGE, COUNTER, HISTOGRAM = 'gauge', 'counter', 'histogram'

OTHER = 'other'
"""Stands for what is not foreseen, so that no label has any number of
values."""


class Metric(NamedTuple):
    """``kind`` is gauge, counter or histogram; ``help`` is a sentence."""

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
