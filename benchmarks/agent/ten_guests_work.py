# SPDX-License-Identifier: Apache-2.0

"""What the guests of :mod:`ten_guests` do."""

from __future__ import annotations

from collections.abc import Sequence
import math
import random
import threading
import time
from typing import Any
from typing import NamedTuple

from scavenger_openstack.tests.functional import domain_console

ON_S, OFF_S = 25.0, 20.0
IRREGULAR = (0.4, 1.6)
"""Bounds of how long a hog works and rests, as parts of the mean: a shifted
periodic one would fit as well as the real one, and be no evidence."""

REPORT_TIMEOUT_S = 20.0


class Turn(NamedTuple):
    """A hog works from the one to the other, in seconds since the start."""

    from_s: float
    to_s: float


def turns(name: str, seed: str, first_s: float, end_s: float) -> list[Turn]:
    rng = random.Random(f'{seed} {name}')
    found, at_s = [], first_s
    while at_s < end_s:
        rest_s = at_s + ON_S * rng.uniform(*IRREGULAR)
        found.append(Turn(at_s, min(rest_s, end_s)))
        at_s = rest_s + OFF_S * rng.uniform(*IRREGULAR)
    return found


class Worker:
    """A thread that has the console of one guest."""

    def __init__(self, name: str, console: domain_console.Console) -> None:
        self.name = name
        self.console = console
        self.failed = ''
        self.reports: list[dict[str, Any]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._try, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._thread.join(REPORT_TIMEOUT_S)

    def _try(self) -> None:
        try:
            self.run()
        except (domain_console.ConsoleError, OSError) as exc:
            self.failed = f'{self.name}: {exc}'

    def run(self) -> None:
        raise NotImplementedError

    def take(self) -> None:
        """The report of the next second."""
        for one in self.console.reports(1, REPORT_TIMEOUT_S):
            self.reports.append({**one, 'until_s': time.monotonic()})


class Victim(Worker):
    """Takes down what a guest says of its own work."""

    def run(self) -> None:
        while not self._ended.is_set():
            self.take()


class Hog(Worker):
    """Tells a guest when to work and when to rest; takes down the same."""

    def __init__(self, name: str, console: domain_console.Console,
                 work: str, wanted: Sequence[Turn], start_s: float) -> None:
        super().__init__(name, console)
        self._work = work
        self._wanted = wanted
        self._start_s = start_s
        self.worked: list[tuple[float, float]] = []

    def run(self) -> None:
        works = False
        while not self._ended.is_set():
            at_s = time.monotonic() - self._start_s
            wanted = any(turn.from_s <= at_s < turn.to_s
                         for turn in self._wanted)
            if wanted and not works:
                self.console.tell(self._work)
                self.worked.append((time.monotonic(), math.inf))
            elif works and not wanted:
                self.console.tell('rest')
                self.worked[-1] = self.worked[-1][0], time.monotonic()
            works = wanted
            self.take()
