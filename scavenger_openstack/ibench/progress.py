# SPDX-License-Identifier: Apache-2.0

"""How far a run is: a bar on a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from scavenger_openstack import text


class Progress:
    """A bar over a time or a count of steps that is expected."""

    def __init__(self, total: float, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._total = total
        self._begin_s = time.monotonic()
        self._count = 0

    def show_time(self, words: str) -> None:
        """Show the share of ``total`` seconds that is over."""
        self._show((time.monotonic() - self._begin_s) / self._total, words)

    def show_step(self, words: str) -> None:
        """Show one step of ``total`` more."""
        self._show(self._count / self._total, words)
        self._count += 1

    def show(self, words: str) -> None:
        """Show what is done in this step."""
        self._show(self._count / self._total, words)

    def skip_to(self, count: int) -> None:
        """Count so many steps as done."""
        self._count = count

    def end(self) -> None:
        """Remove the bar."""
        text.over(self._stream)

    def _show(self, share: float, words: str) -> None:
        share = min(1.0, max(0.0, share))
        text.over(self._stream, f'{text.bar(share)} {words}')
