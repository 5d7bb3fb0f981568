# SPDX-License-Identifier: Apache-2.0

"""Real-time scheduling of what must not wait: agent, watcher, fast loop.

On a full host an ordinary process can stand still for seconds, whatever its
weight (``benchmarks/agent/starvation.py``); an agent that does loses its
leases, and a watcher that does restores late.  Standard library only.
"""

from __future__ import annotations

import os
import resource
import threading

PRIORITY = 1
"""The lowest of the real-time priorities: before all ordinary threads."""

RUNAWAY_S = 5.0
"""If a real-time thread ever computed so long without a pause, the kernel
ends the process (RLIMIT_RTTIME) and the watcher restores every limit."""

NICE = -20


def process() -> str:
    """Put all threads of this process before ordinary ones; say how.

    What they start, threads and programs, inherits it.  It needs
    CAP_SYS_NICE or a limit on real-time priority (LimitRTPRIO= in a unit),
    and a share of real-time where the kernel hands that out by cgroup.

    :returns: ``real-time``, or ``normal`` where that is refused.
    """
    try:
        for task in os.listdir('/proc/self/task'):
            _schedule(int(task), os.SCHED_RR)
    except OSError:
        return 'normal'
    return 'real-time'


def thread() -> str:
    """Let the calling thread run as soon as it wakes up; say how.

    On a full machine, just when it matters, an ordinary thread waits for
    milliseconds: a thread that slept 1 ms beside two busy ones started
    63 us late in the median and 1.5-3 ms in the 90th percentile, nice -20 or
    a slice of 0.1 ms changed nothing (Linux 6.18), the lowest real-time
    priority gave 10 and 17 us.

    :returns: ``real-time``, else ``nice``, else ``normal``; see
        :func:`process` for what it needs.
    """
    try:
        _schedule(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK)
        return 'real-time'
    except OSError:
        pass
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
    except OSError:
        return 'normal'
    return 'nice'


def _schedule(task: int, policy: int) -> None:
    try:
        os.sched_setscheduler(task, policy, os.sched_param(PRIORITY))
    except ProcessLookupError:
        return      # a thread that has ended
    limit = round(RUNAWAY_S * 1e6)
    _, hard = resource.getrlimit(resource.RLIMIT_RTTIME)
    if hard == resource.RLIM_INFINITY or hard > limit:
        resource.setrlimit(resource.RLIMIT_RTTIME, (limit, hard))
