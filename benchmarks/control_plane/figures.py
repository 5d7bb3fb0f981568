# SPDX-License-Identifier: Apache-2.0

"""Figures of a run, printed beside those of another one."""

from __future__ import annotations

import json
import pathlib


class Figures:
    """Figures by name, in their order.

    :param beside: those of another run, by name
    """

    def __init__(self, beside: dict[str, float]) -> None:
        self.values: dict[str, float] = {}
        self._beside = beside

    def add(self, name: str, value: float, note: str = '') -> None:
        """Keep and print a figure.

        :param name: with its unit at the end
        :param note: what was measured, where the figure is for more
        """
        self.values[name] = value
        other = self._beside.get(name)
        beside = '' if other is None else f'{shown(other):>14}'
        print(f'  {name:<58}{shown(value):>14}{beside}'
              + (f'  ({note})' if note else ''), flush=True)


def shown(value: float) -> str:
    """Three digits, and thousands."""
    return (f'{value:,.0f}' if abs(value) >= 100 or value == int(value)
            else f'{value:.3g}')


def read(file: str) -> dict[str, dict[str, float]]:
    """Figures by database that a run kept."""
    figures: dict[str, dict[str, float]] = json.loads(
        pathlib.Path(file).read_text()) if file else {}
    return figures
