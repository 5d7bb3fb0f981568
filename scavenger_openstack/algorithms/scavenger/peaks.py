# SPDX-License-Identifier: Apache-2.0

"""The highest use within the last minutes or hours, in a bounded memory."""

from __future__ import annotations

from collections.abc import Mapping
from collections import deque
import math
from typing import Any

from scavenger_openstack.algorithms.window import quantity

BLOCKS = 60
"""Blocks that a period is divided into.  A sample counts for the period, and
for up to two blocks longer."""


class Peaks:
    """The largest of the last ``size`` samples.

    Only the largest sample of each block is kept, so hours of samples take
    no more memory, and no more time per sample, than a minute of them.

    :raises ValueError: ``size`` is not above 0.
    """

    __slots__ = ('_blocks', '_block_size', '_filled', '_largest')

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f'a period needs at least 1 sample, not {size}')
        self._block_size = math.ceil(size / BLOCKS)
        # The current block is not complete, hence one more.
        self._blocks: deque[float | None] = deque(
            maxlen=math.ceil(size / self._block_size) + 1)
        self._filled = 0
        self._largest: float | None = None

    @property
    def largest(self) -> float | None:
        """The largest sample; ``None`` without samples."""
        if self._largest is None:
            self._largest = max((value for value in self._blocks
                                 if value is not None), default=None)
        return self._largest

    def add(self, value: float) -> None:
        """Take the sample of this tick."""
        if not self._filled:
            self._append(value)
        else:
            last = self._blocks[-1]
            if last is None or value > last:
                self._blocks[-1] = value
        if self._largest is not None and value > self._largest:
            self._largest = value
        self._filled = (self._filled + 1) % self._block_size

    def skip(self, ticks: float) -> None:
        """Let ``ticks`` pass without a sample."""
        left = round(min(
            ticks, (self._blocks.maxlen or 0) * self._block_size))
        while left > 0:
            if not self._filled:
                self._append(None)
            step = min(left, self._block_size - self._filled)
            self._filled = (self._filled + step) % self._block_size
            left -= step

    def _append(self, value: float | None) -> None:
        self._blocks.append(value)
        self._largest = None

    def shift(self, delta: float) -> None:
        """Add ``delta`` to all samples; none becomes less than 0."""
        for index, value in enumerate(self._blocks):
            if value is not None:
                self._blocks[index] = max(0.0, value + delta)
        self._largest = None

    def state(self) -> dict[str, Any]:
        """Plain JSON values; :meth:`load` takes them back."""
        return {'block_size': self._block_size, 'filled': self._filled,
                'largest': list(self._blocks)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take the peaks of ``state``.

        Where they are of another period, the largest of them counts as if it
        were new.

        :raises KeyError, TypeError, ValueError: it is not a state.
        """
        values = state['largest']
        if not isinstance(values, list):
            raise ValueError(f'not a list of peaks: {values!r:.80}')
        values = [None if value is None else quantity(value)
                  for value in values[-BLOCKS - 1:]]
        block_size = int(quantity(state['block_size']))
        filled = int(quantity(state['filled']))
        if block_size != self._block_size or not values:
            values = [max((value for value in values if value is not None),
                          default=None)]
        self._blocks.clear()
        self._blocks.extend(values)
        self._filled = filled % self._block_size
        self._largest = None
