# SPDX-License-Identifier: Apache-2.0

"""Lines about what takes minutes, so that none of them is silent."""

from __future__ import annotations

from collections.abc import Callable
import threading
import time
from types import TracebackType

QUIET_S = 10.0
"""After so long without a line there is one that says how long it takes."""


class Progress:
    """Writes lines, and one more whenever there was none for a while.

    ::

        with Progress(print) as progress:
            progress.say('libvirt')
    """

    def __init__(self, write: Callable[[str], None],
                 quiet_s: float = QUIET_S) -> None:
        self._write = write
        self._quiet_s = quiet_s
        self._began_s = self._last_s = time.monotonic()
        self._last = 'the start'
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True,
                                        name='progress')

    def __enter__(self) -> Progress:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None,
                 exc: BaseException | None, trace: TracebackType | None
                 ) -> None:
        self._ended.set()
        self._thread.join()

    def say(self, line: str) -> None:
        """Write a line about what is done now."""
        self._last, self._last_s = line.strip(), time.monotonic()
        self._write(line)

    def _run(self) -> None:
        told_s = 0.0
        while not self._ended.wait(self._quiet_s / 5):
            now = time.monotonic()
            if now - max(self._last_s, told_s) >= self._quiet_s:
                told_s = now
                self._write(f'{now - self._began_s:6.1f} s  still at work; '
                            f'{now - self._last_s:.0f} s since: {self._last}')
