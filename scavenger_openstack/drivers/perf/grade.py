# SPDX-License-Identifier: Apache-2.0


"""What the hardware of a host can tell: its grade.

==  ==============  ==============================================
A   PMU + resctrl   counters, and the cache can be watched as well
B   PMU             cycles per instruction, misses in the cache
C   no PMU          neither; rules that need them are off
==  ==============  ==============================================

Events that this PMU does not have, or that do not fit on it together, take
away the signals that they make, not the others.
"""

from __future__ import annotations

from collections.abc import Sequence
import errno
import os
from typing import NamedTuple

from scavenger_openstack.drivers.base import NO_CURE
from scavenger_openstack.drivers.kernel import perf_event
from scavenger_openstack.drivers.kernel.perf_event import Event
from scavenger_openstack.drivers.resctrl import tree

EVENTS = (Event('cycles', perf_event.HARDWARE, 0),
          Event('ref_cycles', perf_event.HARDWARE, 9),
          Event('instructions', perf_event.HARDWARE, 1),
          Event('llc_misses', perf_event.HARDWARE, 3))
"""In the order of a group; the first that is there leads it."""

NOT_PERMITTED = frozenset((errno.EACCES, errno.EPERM))
BUSY = frozenset((errno.EBUSY, errno.EMFILE, errno.ENFILE, errno.ENOMEM))
"""What may be over later."""

ADVICE = {
    errno.EACCES: 'not permitted: give the agent CAP_PERFMON, or type '
                  '"sysctl -w kernel.perf_event_paranoid=0"',
    errno.EBUSY: 'another program has the hardware counters for itself',
    errno.EMFILE: 'too many open files: raise LimitNOFILE of the agent',
    errno.ENFILE: 'too many open files on this host: raise fs.file-max',
    errno.ENOSYS: 'this kernel or machine has no perf_event_open; '
                  + NO_CURE,
    errno.ENOENT: f'this machine has no hardware counters; {NO_CURE} (a '
                  'virtual machine gets a virtual PMU from its hypervisor)',
    errno.EINVAL: 'the PMU does not take these events as one group',
}
ADVICE[errno.EPERM] = ADVICE[errno.EACCES]
ADVICE[errno.ENODEV] = ADVICE[errno.EOPNOTSUPP] = ADVICE[errno.ENOENT]


class Grade(NamedTuple):
    """The grade of a host: letter, signals, and the reason."""

    letter: str
    signals: tuple[str, ...]
    why: str
    events: tuple[Event, ...] = ()

    def __str__(self) -> str:
        kind = {'A': 'PMU and resctrl', 'B': 'PMU', 'C': 'no PMU'}
        return (f'{self.letter} ({kind[self.letter]}): '
                + (', '.join(self.signals) or
                   'no cpi, no LLC misses: rules that need them are off')
                + (f'; {self.why}' if self.why else ''))


def choose(events: Sequence[Event], max_counters: int) -> tuple[Event, ...]:
    """Return which of the events that are there to count, in their order.

    Most wanted first: instructions, clock cycles to divide by them
    (reference cycles: these do not follow the frequency), misses, the other
    kind of cycles.  Empty without the first two.
    """
    there = {event.field: event for event in events}
    clock = 'ref_cycles' if 'ref_cycles' in there else 'cycles'
    if clock not in there or 'instructions' not in there:
        return ()
    wanted = [field for field in ('instructions', clock, 'llc_misses',
                                  'cycles') if field in there]
    wanted = list(dict.fromkeys(wanted))[:max_counters]
    return tuple(event for event in events if event.field in wanted)


def signals(events: Sequence[Event]) -> tuple[str, ...]:
    """Return what these events tell, for people."""
    fields = {event.field for event in events}
    names = []
    if 'ref_cycles' in fields:
        names.append('cpi')
    elif 'cycles' in fields:
        names.append('cpi of core cycles (follows the clock frequency)')
    if 'llc_misses' in fields:
        names.append('llc_misses')
    return tuple(names)


def none(why: str) -> Grade:
    """The grade of a host whose counters cannot be used."""
    return Grade('C', (), why)


def advice(number: int | None, root_dir: str) -> str:
    """Return what an operator should know about an error of the system
    call."""
    more = number in NOT_PERMITTED and perf_event.demands_more(root_dir)
    if more:
        return f'not permitted: {more}'
    return ADVICE.get(number or 0, os.strerror(number or 0))


def grade(root_dir: str, *, cpu: int, max_counters: int,
          events: Sequence[Event] = EVENTS) -> Grade:
    """Try every event on one CPU, then those that are chosen as a group.

    :param cpu: one that is online
    """
    there, missing = [], []
    for event in events:
        try:
            perf_event.close([perf_event.open_event(event, cpu=cpu)])
        except OSError as exc:
            if (exc.errno in NOT_PERMITTED or exc.errno in BUSY
                    or exc.errno == errno.ENOSYS):
                return none(advice(exc.errno, root_dir))
            missing.append(event.field)
            problem = exc
        else:
            there.append(event)
    chosen = choose(there, max_counters)
    if not chosen:
        return none(advice(problem.errno, root_dir) if not there else
                    f'the PMU has no {" and no ".join(missing)}; {NO_CURE}')
    try:
        chosen = _fitting(there, len(chosen), cpu)
    except OSError as exc:
        return none(advice(exc.errno, root_dir))
    why = [f'no {field}' for field in missing]
    why += [f'{event.field} left out: {max_counters} counters at most'
            if len(chosen) == max_counters else
            f'{event.field} left out: the PMU does not take all at once'
            for event in there if event not in chosen]
    return Grade('A' if tree.has_resctrl(root_dir) else 'B',
                 signals(chosen), ', '.join(why), chosen)


def _fitting(there: Sequence[Event], most: int, cpu: int
             ) -> tuple[Event, ...]:
    """The largest choice that the PMU takes as one group.

    :raises OSError: not even the smallest.
    """
    while True:
        chosen = choose(there, most)
        try:
            perf_event.close(perf_event.open_group(chosen, cpu=cpu))
            return chosen
        except OSError:
            if most <= 2:
                raise
        most = len(chosen) - 1
