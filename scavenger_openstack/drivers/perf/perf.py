# SPDX-License-Identifier: Apache-2.0


"""Hardware counters of each workload: what to measure, and when.

Every measured workload has one group of counters on each CPU, in counting
mode and never pinned, so that guests' virtual PMUs and others come first.
The counts are raw: what wants totals scales them by the time enabled over
the time run.  They grow only over ticks that were measured well: those in
which the counters ran for at least ``min_running_share`` of the time in
which the workload did.  Over any other tick nothing grows, not even the
times, and that means *not measured*.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
import contextlib
import errno
import logging
import os
import resource
import time
from typing import NamedTuple

from scavenger_openstack.algorithms import sampling
from scavenger_openstack.drivers.kernel import cgroup_files
from scavenger_openstack.drivers.kernel import online_cpus
from scavenger_openstack.drivers.kernel import perf_event
from scavenger_openstack.drivers.kernel.perf_event import Place
from scavenger_openstack.drivers.perf import grade as perf_grade
from scavenger_openstack.drivers.perf.grade import Grade
from scavenger_openstack.drivers.perf import standstill
from scavenger_openstack.drivers.qemu import domain_cgroup
from scavenger_openstack import errors
from scavenger_openstack import log_once
from scavenger_openstack.types import Priority
from scavenger_openstack.types import WorkloadSample

LOG = logging.getLogger(__name__)

AUTO, ON, OFF = 'auto', 'on', 'off'

OPENING_S = 0.02
"""One tick opens groups for so long and leaves the rest to the next: on a
large host a hundred new workloads would take a second."""

RETRY_S = 30.0
"""After this a workload that could not be measured is tried again, and a
host that had no counters: what is in the way may be gone."""

FD_SHARE = 0.5
"""Of the descriptors of this process; the rest is for everything else."""

PlaceOf = Callable[[str], Place | None]
"""Where a workload is counted whose id is not the path of a cgroup."""

_ENABLED, _RUNNING = WorkloadSample._fields.index('counter_enabled_s'), \
    WorkloadSample._fields.index('counter_running_s')


def _nowhere(workload: str) -> None:
    """Return no place: without VMs all workloads are cgroups."""


class Settings(NamedTuple):
    """See the options of the section ``[perf]``."""

    enabled: str = AUTO
    sample_s: float = 10.0
    period_s: float = 0.0
    max_counters: int = 4
    min_running_share: float = 0.2


class _Measured:
    """One workload: its groups, and what they counted in measured ticks."""

    __slots__ = ('base', 'counters', 'created_s', 'retry_s', 'totals')

    def __init__(self, created_s: float) -> None:
        self.created_s = created_s
        self.counters: perf_event.CgroupCounters | None = None
        self.base: list[int] | None = None
        self.totals: list[int] = []
        self.retry_s = 0.0

    def forget(self) -> None:
        """Close the groups; what was counted stays."""
        if self.counters is not None:
            self.counters.close()
        self.counters = self.base = None


class Duty:
    """Which ticks are measured: the last ``sample_s`` of each period.

    The same rule as that of algorithms/sampling, on the same ticks, so that
    what is measured here is what CPI2 looks at.
    """

    def __init__(self, sample_s: float, period_s: float) -> None:
        self._sample_s = sample_s
        self._period_s = period_s
        self._began_s: float | None = None

    def next_is_measured(self, now: float) -> bool:
        """Return whether the tick that begins ``now`` is."""
        if self._period_s <= self._sample_s:
            return True
        if self._began_s is None or not (
                0 <= now - self._began_s <= self._period_s + self._sample_s):
            self._began_s = now     # the first, or the clock jumped
        if now - self._began_s >= self._period_s - sampling.SLACK_S:
            self._began_s = now
        return now - self._began_s > (self._period_s - self._sample_s
                                      - sampling.SLACK_S)


class Perf:
    """Adds hardware counters to the samples of workloads.

    :param events: what to count, in the order of a group
    :param logged: what was logged of this host
    :raises ConfigError: counters are demanded, and there are none.
    :raises DriverError: the list of mounts cannot be read.
    """

    def __init__(self, settings: Settings, root_dir: str = '/',
                 events: Sequence[perf_event.Event] = perf_grade.EVENTS,
                 logged: log_once.LogOnce | None = None) -> None:
        self._settings = settings
        self._root_dir = root_dir.rstrip('/')
        self._events = tuple(events)
        self._duty = Duty(settings.sample_s, settings.period_s)
        self._measuring = False
        self._measured: dict[str, _Measured] = {}
        self._logged = logged or log_once.LogOnce()
        self._cpus = online_cpus.OnlineCpus(self._root_dir, self._logged)
        self._standstill = standstill.Standstill(settings.min_running_share)
        self._retry_s = 0.0
        self._of = 0
        self._mount = None
        self._clock: perf_event.CgroupCounters | None = None
        if settings.enabled == OFF:
            self._grade = perf_grade.none('[perf] enabled is off')
            return
        self._mount = perf_event.find_mount(self._root_dir, self._logged)
        self._cpus.refresh()
        self._grade = self._find_grade()
        self._start_clock()
        if settings.enabled == ON and not self._grade.events:
            raise errors.ConfigError(
                f'[perf] enabled = on, but: {self._grade.why}; set it to '
                'auto to go without')

    @property
    def grade(self) -> Grade:
        """Return what this host can tell at this moment."""
        if self._standstill.why:
            return perf_grade.none(self._standstill.why)
        return self._grade

    @property
    def measured(self) -> int:
        """Return how many workloads have counters now."""
        return sum(entry.counters is not None
                   for entry in self._measured.values())

    def facts(self) -> dict[str, object]:
        """The grade and its reasons, for the status."""
        grade = self.grade
        return {'letter': grade.letter, 'text': str(grade),
                'signals': grade.signals, 'why': grade.why,
                'measured_workloads': self.measured, 'workloads': self._of}

    def _log_grade(self) -> None:
        """Log the grade at the first tick, and when it changes."""
        grade = self.grade
        if self._logged.due(('perf', 'grade'), grade):
            LOG.log(logging.WARNING if self._standstill.why else logging.INFO,
                    'grade %s', grade)

    def _find_grade(self) -> Grade:
        if self._mount is None:
            with contextlib.suppress(errors.DriverError):
                self._mount = perf_event.find_mount(self._root_dir,
                                                    self._logged)
        if self._mount is None:
            return perf_grade.none(
                'no cgroup hierarchy that perf can count by is mounted: '
                'mount cgroup2, or perf_event of version 1')
        return perf_grade.grade(
            self._root_dir, cpu=min(self._cpus.now), events=self._events,
            max_counters=self._settings.max_counters)

    def _start_clock(self) -> None:
        """Have the kernel keep the times of cgroups from now on.

        It does so while there are counters of any cgroup.  Those of a
        workload alone on its CPU would be known only once something else
        ran there: these come first, and are never disabled.
        """
        if self._mount is None or not self._grade.events:
            return
        try:
            self._clock = self._clock or perf_event.CgroupCounters(
                Place(self._mount), (perf_event.DUMMY,))
            self._clock.cover(self._cpus.now, enabled=True)
        except OSError as exc:
            self._warn('clock', 'cannot keep the clock of hardware counters '
                       'running: %s; a workload alone on a CPU is measured '
                       'late', perf_grade.advice(exc.errno, self._root_dir))

    @property
    def _clock_files(self) -> int:
        """Descriptors that keep the clock running."""
        return self._clock.descriptors if self._clock is not None else 0

    def _warn(self, key: str, text: str, *args: object) -> None:
        """Warn about one thing once."""
        if self._logged.due(('perf', key)):
            LOG.warning(text, *args)

    # --- a tick

    def add(self, samples: tuple[WorkloadSample, ...], now: float,
            place_of: PlaceOf | None = None) -> tuple[WorkloadSample, ...]:
        """The samples with what the counters say, where they do.

        While the duty cycle rests nothing is added: unknown.

        :param now: the time of these samples, CLOCK_BOOTTIME
        :param place_of: asked about each workload whose id is not the path
            of a cgroup, until its counters are open
        """
        self._of = len(samples)
        self._log_grade()
        if not self._grade.events:
            if self._settings.enabled == OFF or now < self._retry_s:
                return samples
            self._retry_s = now + RETRY_S
            self._grade = self._find_grade()
            self._log_grade()
            if not self._grade.events:
                return samples
            self._start_clock()
        self._follow(samples)
        was = self._measuring
        self._measuring = self._duty.next_is_measured(now)
        if not was and not self._measuring:
            return samples
        if self._cpus.refresh():
            self._cover_all()
        if not was:
            self._enable(True)
        self._open_new(samples, now, place_of or _nowhere)
        measured = self._read(samples)
        if not self._measuring:
            self._enable(False)
        return measured

    def _follow(self, samples: Sequence[WorkloadSample]) -> None:
        """Forget what is gone or was made again, take down what is new."""
        entries = self._measured
        for name in entries.keys() - {s[0].id for s in samples}:
            entries.pop(name).forget()
        for sample in samples:
            workload = sample[0]
            entry = entries.get(workload.id)
            if entry is None or entry.created_s != workload.created_s:
                if entry is not None:
                    entry.forget()
                entries[workload.id] = _Measured(workload.created_s)

    def _enable(self, on: bool) -> None:
        for entry in self._measured.values():
            if entry.counters is not None:
                entry.counters.enable(on)
                entry.base = None

    def _cover_all(self) -> None:
        """Count on the CPUs that are online now, and on no other."""
        self._start_clock()
        for name, entry in self._measured.items():
            if entry.counters is not None:
                entry.base = None
                try:
                    entry.counters.cover(self._cpus.now,
                                         enabled=self._measuring)
                except OSError as exc:
                    self._not_measured(name, entry, exc)

    # --- opening

    def _place(self, name: str, place_of: PlaceOf) -> Place | None:
        """Return where a workload is counted; log a workload that cannot be
        counted anywhere."""
        if name.startswith('/'):
            return Place(f'{self._mount}{name}',
                         domain_cgroup.is_machine(name))
        place = place_of(name)
        if place is None:
            self._warn('place', '%s: hardware counters: libvirt put it into '
                       'no cgroup of its own below %s; not measured until '
                       'that changes%s', name, self._mount,
                       log_once.SAME_CAUSE)
        return place

    def _open_new(self, samples: Sequence[WorkloadSample], now: float,
                  place_of: PlaceOf) -> None:
        """Open groups, those of the foreground first."""
        waiting = [s[0] for s in samples
                   if self._measured[s[0].id].counters is None
                   and self._measured[s[0].id].retry_s <= now]
        if not waiting:
            return
        waiting.sort(key=lambda w: w.priority is not Priority.FOREGROUND)
        until = time.monotonic() + OPENING_S
        each = 1 + len(self._cpus.now) * len(self._grade.events)
        room = int(FD_SHARE * resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        room -= self._clock_files + sum(
            entry.counters.descriptors for entry in self._measured.values()
            if entry.counters is not None)
        for workload in waiting:
            entry = self._measured[workload.id]
            entry.retry_s = now + RETRY_S
            if room < each:
                self._out_of_files(each)
                continue
            place = self._place(workload.id, place_of)
            if place is None:
                continue
            try:
                entry.counters = perf_event.CgroupCounters(
                    place, self._grade.events)
                entry.counters.cover(self._cpus.now, enabled=True)
            except OSError as exc:
                self._not_measured(workload.id, entry, exc)
                continue
            room -= each
            if time.monotonic() > until:
                break

    def _out_of_files(self, each: int) -> None:
        need = int((self._clock_files + each * self._of) / FD_SHARE) + 1
        self._warn(
            'files', 'only %s of %s workloads are measured: each takes %s '
            'descriptors for its hardware counters; raise LimitNOFILE of '
            'the agent to %s', self.measured, self._of, each, need)

    def _not_measured(self, name: str, entry: _Measured, exc: OSError) -> None:
        path = entry.counters.path if entry.counters is not None else None
        entry.forget()
        if exc.errno in cgroup_files.OUT_OF_FILES:
            self._out_of_files(1 + len(self._cpus.now)
                               * len(self._grade.events))
            return
        why = perf_grade.advice(exc.errno, self._root_dir)
        if exc.errno in cgroup_files.ABSENT:
            if path is None and name.startswith('/'):
                why = (f'there is no such cgroup below {self._mount}; its '
                       'creator has to make it there, too')
            elif (path is None or not os.path.isdir(path)
                    or exc.errno == errno.ENODEV):
                entry.retry_s = 0.0   # it vanished meanwhile, or a CPU did
                return
            else:
                why = ('perf does not know this cgroup; enable any '
                       'controller for it, such as echo +cpu > '
                       f'{self._mount}/cgroup.subtree_control')
        self._warn(f'{exc.errno} {path is None}', '%s: hardware counters: %s; '
                   'not measured until that changes, as others with the same '
                   'fault', name, why)

    # --- reading

    def _read(self, samples: Sequence[WorkloadSample]
              ) -> tuple[WorkloadSample, ...]:
        share = self._settings.min_running_share
        fields = [WorkloadSample._fields.index(event.field)
                  for event in self._grade.events]
        instructions = 2 + [event.field for event in self._grade.events
                            ].index('instructions')
        sums = [0, 0, 0]
        measured = []
        for sample in samples:
            entry = self._measured[sample[0].id]
            if entry.counters is None:
                measured.append(sample)
                continue
            words = entry.counters.read()
            if words is None:       # its CPU went away and came back
                entry.forget()
                entry.retry_s = 0.0
                measured.append(sample)
                continue
            totals = entry.totals = entry.totals or [0] * len(words)
            base, entry.base = entry.base, words
            if base is not None:
                growth = [after - before for before, after
                          in zip(base, words, strict=True)]
                if min(growth) >= 0:
                    enabled, running = growth[:2]
                    sums[0] += enabled
                    sums[1] += running
                    sums[2] += growth[instructions]
                    if running and running >= share * enabled:
                        entry.totals = totals = [
                            a + b for a, b in zip(totals, growth,
                                                  strict=True)]
            values = list(sample)
            values[_ENABLED] = totals[0] / 1e9
            values[_RUNNING] = totals[1] / 1e9
            for field, total in zip(fields, totals[2:], strict=True):
                values[field] = total
            measured.append(WorkloadSample._make(values))
        if self._standstill.judge(*sums):
            self._log_grade()
        return tuple(measured)

    def close(self) -> None:
        """Close what is kept open."""
        for entry in self._measured.values():
            entry.forget()
        self._measured = {}
        if self._clock is not None:
            self._clock.close()
            self._clock = None
        self._cpus.close()
