# SPDX-License-Identifier: Apache-2.0

"""The fast loop: moves the background's CPU set every millisecond or so.

Polling and updating are apart (PerfIso, section 4.1): each poll reads who
runs on each CPU and asks the controller; only a new answer is written.

The thread may run on any CPU.  It is not pinned away from those that it
watches: what is left over are CPUs that foreground workloads have for
themselves, the last place to disturb, and it need not be, because the
reader does not show it to itself (``SchedSwitch.observe``).
"""

from __future__ import annotations

from collections.abc import Callable
import logging
import sys
import threading
import time
from typing import Any
from typing import Protocol

from oslo_log import log

from scavenger_openstack.algorithms.perfiso import perfiso
from scavenger_openstack.drivers import calls
from scavenger_openstack import errors
from scavenger_openstack.restore import scheduling
from scavenger_openstack.types import format_cpus

LOG = log.getLogger(__name__)

SHORTEST_S, LONGEST_S = 0.0001, 0.01
"""Bounds of the poll interval."""

RETRY_S = 1.0
"""After a problem nothing is written for so long.  Also how often the set is
written unchanged: one that was restored behind our back is set again."""

LOOK_S = 0.02
"""How often to find out which CPUs are online."""

GROW_FACTOR = 20.0
"""After a set was written, so many times what that took pass before one with
more CPUs is: the sets of 100 VMs in cgroups of version 1 take 36 ms of CPU
time.  One with fewer does not wait."""

STOP_TIMEOUT_S, STOP_AGAIN_S = 5.0, 0.5
"""How long to wait for a write that hangs in the kernel, at first and again:
the tick waits, too."""

USUAL_SWITCH_INTERVAL_S = sys.getswitchinterval()

SWITCH_INTERVAL_S = 0.0001
"""How long another Python thread may keep this one waiting (CPython's
``sys.setswitchinterval``) while the loop runs.  Beside a thread that computes
3 ms at a stretch, polling each 1 ms, 'foreground wakes' to 'set shrunk' took
(p50/p99): 1.0/11.6 ms with CPython's 5 ms, 0.7/2.0 with 0.5 ms, 0.5/1.1 with
this; alone 0.5/1.0 (``benchmarks/agent/fast_loop.py --busy``)."""


class IdleCpus(Protocol):
    """What it needs of
    :class:`scavenger_openstack.drivers.kernel.sched_switch.SchedSwitch`"""

    def idle_count(self, cpus: frozenset[int]) -> int:
        ...

    def refresh(self) -> None:
        ...

    def observe(self) -> None:
        ...

    def close(self) -> None:
        ...


class FastLoop:
    """A thread that keeps the background off the buffer of idle CPUs.

    ``problem`` says why nothing is written at the moment, '' otherwise.

    :param running: what runs where; taken over, and closed by :meth:`stop`
    :param set_cpus: puts a CPU set in force, or raises DriverError
    :param leases_check: raises LeaseError when nothing may be written
    :param bounds: the CPUs to choose from, those whose idleness counts, and
        those that the background has besides
    :param interval_s: time from one poll to the next
    :param quiet: what fails did so before, and was logged
    :raises ConfigError: the interval is out of bounds
    """

    def __init__(self, running: IdleCpus, controller: perfiso.Controller,
                 set_cpus: Callable[[frozenset[int]], None],
                 leases_check: Callable[[], None],
                 bounds: perfiso.Bounds, interval_s: float, *,
                 quiet: bool = False) -> None:
        if not SHORTEST_S <= interval_s <= LONGEST_S:
            running.close()
            raise errors.ConfigError(
                f'the fast loop cannot poll every {interval_s * 1e3:g} ms; '
                f'choose {SHORTEST_S * 1e3:g} to {LONGEST_S * 1e3:g} ms')
        self._running = running
        self._step = controller.step
        self._set_cpus = set_cpus
        self._leases_check = leases_check
        self._interval_s = interval_s
        self._quiet = quiet
        self._stop = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._main, daemon=True,
                                        name='fast-loop')
        self._written: frozenset[int] | None = None
        self._polls = self._shrinks = self._grows = 0
        self._controller = controller
        self._shortage = perfiso.Shortage()
        self._shortage.update(0, controller.short_steps)
        self._longest_gap_s = 0.0
        self._scheduled = ''
        self.problem = ''
        self.bounds = bounds

    @property
    def bounds(self) -> perfiso.Bounds:
        """What it may do; may be replaced at any time, and then the set is
        written, too."""
        return self._bounds

    @bounds.setter
    def bounds(self, bounds: perfiso.Bounds) -> None:
        if not bounds.allowed:
            raise errors.DriverError('blind isolation: no CPU is allowed to '
                                     'the background; it needs at least one')
        self._bounds = bounds

    @property
    def cpus(self) -> frozenset[int] | None:
        """The set that was written last, ``None`` before the first."""
        return self._written

    @property
    def stopping(self) -> bool:
        return self._stop

    def start(self) -> None:
        """Begin.

        :raises DriverError: no thread can be started.
        """
        calls.start(self._thread)
        sys.setswitchinterval(SWITCH_INTERVAL_S)

    def stop(self) -> None:
        """End the thread; when this returns nothing more is written.

        The set stays as it is: remove the limit next.

        :raises DriverError: the thread hangs in a write; call again
        """
        timeout_s = STOP_AGAIN_S if self._stop else STOP_TIMEOUT_S
        self._stop = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                raise errors.DriverError(
                    'blind isolation: the write of a CPU set has not come '
                    f'back from the kernel for {STOP_TIMEOUT_S:g} s; its '
                    'lease is kept, the next tick tries again')
        sys.setswitchinterval(USUAL_SWITCH_INTERVAL_S)
        self._running.close()

    def short(self) -> bool:
        """See :class:`.perfiso.Shortage`; asked once per tick."""
        return self._shortage.update(self._polls,
                                     self._controller.short_steps)

    def facts(self) -> dict[str, Any]:
        """Counts for the status, plain JSON.

        ``longest_gap_s`` is the longest time between two polls since these
        facts were asked for last.
        """
        written = self._written
        longest, self._longest_gap_s = self._longest_gap_s, 0.0
        return {'polls': self._polls, 'shrinks': self._shrinks,
                'grows': self._grows, 'interval_s': self._interval_s,
                'cpus': None if written is None else len(written),
                'cpu_set': None if written is None else format_cpus(written),
                'scheduled': self._scheduled,
                'longest_gap_s': round(longest, 6), 'problem': self.problem}

    def _main(self) -> None:
        self._scheduled = scheduling.thread()
        while not self._stop:
            try:
                self._running.observe()
                self._poll()
            except errors.ScavengerError as exc:
                self._fail(str(exc))
            except Exception as exc:
                # The last line of a thread: unseen otherwise.
                LOG.exception('blind isolation: unexpected failure')
                self._fail(f'unexpected failure: {exc!r}')

    def _fail(self, problem: str) -> None:
        if problem != self.problem:
            LOG.log(logging.DEBUG if self._quiet else logging.WARNING,
                    'blind isolation: the CPU set is not moved, tried again '
                    'every %g s: %s', RETRY_S, problem)
        self.problem = problem
        self._wake.wait(RETRY_S)

    def _poll(self) -> None:
        """Poll until told to stop, or until something goes wrong."""
        interval_s = self._interval_s
        clock, sleep = time.monotonic, time.sleep
        step, idle_count = self._step, self._running.idle_count
        read_online = self._running.refresh
        before: frozenset[int] | None = None
        bounds_before: perfiso.Bounds | None = None
        before_s = due_s = clock()
        again_s = look_s = grow_s = due_s
        while not self._stop:
            due_s += interval_s
            now = clock()
            if now < due_s:
                # CPython sleeps until an absolute time (clock_nanosleep).
                sleep(due_s - now)
                now = clock()
            else:
                due_s = now
            if now - before_s > self._longest_gap_s:
                self._longest_gap_s = now - before_s
            before_s = now
            self._polls += 1
            if now >= look_s:
                read_online()
                look_s = now + LOOK_S
            bounds = self._bounds
            cpus = step(now, idle_count(bounds.watched), bounds.allowed,
                        buffer=bounds.buffer, least=int(not bounds.beside))
            if (cpus is not before or bounds is not bounds_before
                    or now >= again_s):
                if (now < grow_s and bounds is bounds_before
                        and before is not None and before < cpus):
                    continue
                self._write(cpus | bounds.beside)
                before, bounds_before = cpus, bounds
                again_s = now + RETRY_S
                grow_s = now + GROW_FACTOR * (clock() - now)

    def _write(self, cpus: frozenset[int]) -> None:
        if self._stop:
            return
        self._leases_check()
        self._set_cpus(cpus)
        # The process may have been stopped between check and write.
        self._leases_check()
        before = self._written
        if before is not None:
            self._shrinks += len(cpus) < len(before)
            self._grows += len(cpus) > len(before)
        self._written = cpus
        self.problem = ''
