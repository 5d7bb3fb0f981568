# SPDX-License-Identifier: Apache-2.0


"""How much of the time this process could not run although it was due.

For tests of what is promised within some time: where the CPUs have no room for
the test itself, they may have had none for what it waits for.
"""

from __future__ import annotations

import threading
import time

import fixtures

STEP_S = 0.02
USUAL_S = 0.02
"""So late a thread may be on a machine that has room."""


class Stalls(fixtures.Fixture):
    """A thread that is due every :data:`STEP_S`, and when it was late."""

    def _setUp(self) -> None:
        self._late: list[tuple[float, float]] = []
        self._end = threading.Event()
        thread = threading.Thread(target=self._watch, daemon=True)
        self.addCleanup(thread.join, 10)
        self.addCleanup(self._end.set)
        thread.start()

    def _watch(self) -> None:
        last = time.monotonic()
        while not self._end.wait(STEP_S):
            now = time.monotonic()
            late_s = now - last - STEP_S
            if late_s > USUAL_S:
                self._late.append((now, late_s))
            last = now

    def share(self, since: float) -> float:
        """The part of the time, 0 to 1, in which it was late.

        :param since: as of :func:`time.monotonic`
        """
        late_s = sum(late_s for at, late_s in list(self._late) if at > since)
        return min(1.0, late_s / max(STEP_S, time.monotonic() - since))
