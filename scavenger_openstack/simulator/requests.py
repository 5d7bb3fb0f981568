# SPDX-License-Identifier: Apache-2.0


"""Requests that wait for CPU time inside a service.

Work is in CPU seconds at the speed that the service has alone on the
machine.  Two models of the same queue: in steps much longer than a request
it is a fluid, in steps of a millisecond each request is followed.
"""

from __future__ import annotations

import collections
import random

PATIENCE_S = 10.0
"""What has waited so long is gone."""


class Fluid:
    """A backlog without single requests, for steps of a second."""

    __slots__ = ('backlog_s', '_owed', '_arrivals', '_random')

    def __init__(self, arrivals: float, random_: random.Random) -> None:
        self.backlog_s = 0.0
        self._owed = 0.0
        self._arrivals = arrivals
        self._random = random_

    def arrive(self, now: float, mean: float, cpu_s: float) -> float:
        """Let about ``mean`` requests come; how many came."""
        owed = self._owed + self._random.gauss(
            mean, (self._arrivals * mean) ** 0.5)
        # Fewer than none cannot come: the next step has to make up for it,
        # or more would come in all than were meant to.
        number = max(0.0, owed)
        self._owed = owed - number
        self.backlog_s += number * cpu_s
        return number

    def wanted(self, dt_s: float, speed: float) -> float:
        """Cores that would do all the work within the step."""
        return self.backlog_s / (dt_s * speed)

    def serve(self, now: float, cores: float, vcpus: int, dt_s: float,
              speed: float) -> tuple[float, float]:
        """Run for one step.

        Returns the cores that were used, and the seconds that a request
        which came in this step waits for those before it.
        """
        work_s = min(self.backlog_s, cores * speed * dt_s)
        room = max(cores, 1e-3) * speed
        self.backlog_s = min(max(0.0, self.backlog_s - work_s),
                             PATIENCE_S * room)
        return work_s / (dt_s * speed), self.backlog_s / room


class Followed:
    """Each request by itself, first come first served."""

    __slots__ = ('backlog', '_arrivals', '_random', 'done')

    def __init__(self, arrivals: float, random_: random.Random) -> None:
        self.backlog: collections.deque[list[float]] = collections.deque()
        self._arrivals = arrivals
        self._random = random_
        self.done: list[float] = []

    @property
    def backlog_s(self) -> float:
        return sum([work_s for _, work_s in self.backlog])

    def arrive(self, now: float, mean: float, cpu_s: float) -> float:
        """Batches come at random; their size makes the arrivals bursty.

        Geometric batches of mean m have a variance over mean of 2 m - 1.
        """
        batch = (self._arrivals + 1) / 2
        rate = mean / batch
        number = 0
        random_ = self._random
        passed = random_.expovariate(1.0) if rate > 0 else 1.0
        while passed < rate:
            size = 1
            while random_.random() > 1 / batch:
                size += 1
            for _ in range(size):
                self.backlog.append(
                    [now, cpu_s * random_.lognormvariate(-0.043, 0.294)])
            number += size
            passed += random_.expovariate(1.0)
        return number

    def wanted(self, dt_s: float, speed: float) -> float:
        """Threads that have something to do."""
        return float(len(self.backlog))

    def serve(self, now: float, cores: float, vcpus: int, dt_s: float,
              speed: float) -> tuple[float, float]:
        """As :meth:`Fluid.serve`; what waits does so in its latency."""
        before_s = self.backlog_s
        self._run(now, cores, vcpus, dt_s, speed)
        done_s = max(0.0, before_s - self.backlog_s)
        return min(cores, done_s / (dt_s * speed)), 0.0

    def _run(self, now: float, cores: float, vcpus: int, dt_s: float,
             speed: float) -> None:
        """Run the first requests for one step; note the latencies."""
        running = min(len(self.backlog), vcpus)
        if not running or cores <= 0:
            return
        each_s = min(1.0, cores / running) * dt_s * speed
        backlog = self.backlog
        finished = 0
        spare_s = 0.0
        for position, request in enumerate(backlog):
            if position < running:
                request[1] -= each_s
            elif spare_s <= 0:
                break
            else:
                # What was done early leaves the rest to the next.
                given_s = min(spare_s, each_s)
                spare_s -= given_s
                request[1] -= given_s
            if request[1] <= 0:
                # It ended somewhere inside of the step.
                self.done.append(max(
                    now + dt_s - request[0] + request[1] / speed, 1e-6))
                spare_s -= request[1]
                finished += 1
        if finished:
            kept = [r for r in backlog if r[1] > 0]
            backlog.clear()
            backlog.extend(kept)
        while backlog and now - backlog[0][0] > PATIENCE_S:
            backlog.popleft()
            self.done.append(PATIENCE_S)
