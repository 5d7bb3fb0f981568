# SPDX-License-Identifier: Apache-2.0

"""Signals that end a program, acted on only where it can stop cleanly."""

from __future__ import annotations

import signal
import time
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SLICE_S = 0.1


class Interrupted(Exception):
    """A signal asks the program to end."""


class Interrupt:
    """Remembers a signal until the next wait.

    Nothing is ever broken off in the middle: a handler that raised could
    leave a process that nothing knows of.  So the signal only sets a mark,
    and each wait looks at it ten times a second.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        for number in SIGNALS:
            # Below nohup it stays ignored.
            if (number, signal.getsignal(number)) != (
                    signal.SIGHUP, signal.SIG_IGN):
                signal.signal(number, self._remember)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.signal = number

    def check(self) -> None:
        """:raises Interrupted: a signal came."""
        if self.signal is not None:
            raise Interrupted

    def wait_until(self, when_s: float) -> None:
        """Sleep until CLOCK_MONOTONIC ``when_s``.

        :raises Interrupted: a signal came.
        """
        while True:
            self.check()
            left_s = when_s - time.monotonic()
            if left_s <= 0:
                return
            time.sleep(min(left_s, SLICE_S))
