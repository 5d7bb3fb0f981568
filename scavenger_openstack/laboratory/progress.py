# SPDX-License-Identifier: Apache-2.0


"""How far a long run is: a bar on a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from scavenger_openstack import text

REDRAW_S = 0.1


class Progress:
    """Tells on stderr how much is done and how long the rest will take."""

    def __init__(self, total: int, stream: TextIO = sys.stderr) -> None:
        self._total = total
        self._stream = stream
        self._began_s = time.monotonic()
        self._drawn_s = 0.0
        self._done = 0

    def step(self, label: str) -> None:
        """Count one more task as done, and show it."""
        self._done += 1
        now = time.monotonic()
        if now - self._drawn_s < REDRAW_S:
            return
        self._drawn_s = now
        share = self._done / self._total
        left_s = round((now - self._began_s) / share * (1 - share))
        text.over(self._stream, f'{text.bar(share)} {self._done}/'
                                f'{self._total}  {left_s // 60}:'
                                f'{left_s % 60:02} left  {label}')

    def end(self) -> None:
        text.over(self._stream)
