# SPDX-License-Identifier: Apache-2.0


"""How each limit is read and written in cgroup v1 and v2: one table.

A knob is a few entries of one cgroup.  Its restore actions are the texts that
these hold, in an order in which they can be written back.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
import contextlib
import errno
import logging
import math
import os
from typing import NamedTuple

from scavenger_openstack.drivers import base
from scavenger_openstack.drivers.cgroup import available_cpus
from scavenger_openstack.drivers.cgroup import memory
from scavenger_openstack.drivers.kernel.cgroup_files import CgroupDirectory
from scavenger_openstack.drivers.kernel.cgroup_files import Entry
from scavenger_openstack.drivers.kernel.cgroup_files import explain
from scavenger_openstack.drivers.kernel.cgroup_files import NO_MEMORY_LIMIT
from scavenger_openstack import errors
from scavenger_openstack import log_once
from scavenger_openstack.types import format_cpus
from scavenger_openstack.types import Knob
from scavenger_openstack.types import parse_cpus
from scavenger_openstack.types import Value

_QUOTA, _PERIOD = 'cpu.cfs_quota_us', 'cpu.cfs_period_us'

LOG = logging.getLogger(__name__)

MIN_QUOTA_US = 1000
"""The kernel takes no smaller quota."""

MIB = 2 ** 20
_PAGE = os.sysconf('SC_PAGE_SIZE')

ROUNDING_US = 1e-6
"""By so much a product of floats may miss a whole number."""

MOST_IOPS = 2 ** 32 - 2
"""The kernel has 32 bits for operations, all of them for no limit.  Version 1
cuts a larger number off: of 2**32 it leaves 0, and no operation ends."""

IO = (Knob.IO_BYTES_PER_S, Knob.IO_OPS_PER_S)
"""The limits of disks."""

_HIGH = Entry('memory.high')
_MAX = Entry('memory.max')

MEMORY_ROOM = 64 * MIB
"""memory.max is so much, and an eighth of the limit, above memory.high: at an
eighth the kernel lets a thread sleep for about one second per 64 pages that it
charges.  So growth waits for the limit of a later tick, not for the OOM
killer, which nothing here may call."""


def write_quota(d: CgroupDirectory, entry: Entry, text: str, *,
                quota_us: int, period_us: int) -> None:
    """Write a CPU quota.

    :raises DriverError: the kernel does not take it; the message says why.
    """
    try:
        d.put(entry, text)
    except errors.DriverError as exc:
        why = _quota_hindrance(d, quota_us, period_us)
        if not why:
            raise
        raise errors.Denied(f'cannot write {text!r} to {d.path}/{entry.file} '
                            f'{why}') from exc


def _quota_hindrance(d: CgroupDirectory, quota_us: int, period_us: int) -> str:
    """Return what the kernel compares a quota with and what keeps it out."""
    burst_file = 'cpu.cfs_burst_us' if d.version == 1 else 'cpu.max.burst'
    try:
        burst_us = d.read_int(burst_file)
    except errors.DriverError:
        burst_us = 0    # kernels before 5.14 have none
    if burst_us > quota_us:
        return (f'while {burst_file} there is {burst_us}: the kernel takes no '
                'quota below the burst; write 0 to that file')
    if d.version != 1:
        return ''
    try:
        inside = d.subdirectories()
    except errors.DriverError:
        inside = []
    for where, name in (('..', 'the parent cgroup'),
                        *((name, f'the cgroup {name} inside it')
                          for name in inside)):
        try:
            other_us = d.read_int(f'{where}/{_QUOTA}')
            cores = other_us / d.read_int(f'{where}/{_PERIOD}')
        except (errors.DriverError, ZeroDivisionError):
            continue    # the root has none
        more = cores > quota_us / period_us
        if other_us > 0 and more == (where != '..') \
                and cores != quota_us / period_us:
            return (f'while {name} has a quota of {cores:g} cores: cgroup v1 '
                    f'takes no {"lower" if more else "higher"} one')
    return ''


class Rule(NamedTuple):
    """The way to read and write one knob with one version of cgroups.

    ``read`` gets the state of the knob's lease, too, ``write`` its actions.
    """

    controller: str
    read: Callable[[CgroupDirectory, base.KnobState | None], Value | None]
    write: Callable[[CgroupDirectory, Value, Sequence[base.RestoreAction]],
                    None]
    entries: Callable[[CgroupDirectory], list[Entry]]


def number(knob: Knob, value: Value) -> float:
    """``value`` as a number.

    :raises DriverError: it is none.
    """
    try:
        parsed = float(value)
        if math.isfinite(parsed) and parsed >= 0:
            return parsed
    except ValueError:
        pass
    raise errors.DriverError(f'{knob} = {value!r}: not a number >= 0')


class Limit(NamedTuple):
    """A knob of one cgroup."""

    rule: Rule
    directory: CgroupDirectory

    def read(self, state: base.KnobState | None = None) -> Value | None:
        """Return its value; see :class:`Rule`."""
        return self.rule.read(self.directory, state)

    def actions(self) -> list[base.RestoreAction]:
        """Return what restores it as it is now."""
        return self.directory.actions(self.rule.entries(self.directory))

    def write(self, value: Value, state: base.KnobState | None = None
              ) -> Value | None:
        """Set it and return it, or leave all that it is made of as it was.

        :raises Refused: a part of it holds: see :func:`_write_memory_v2`.
        :raises DriverError: it failed.
        """
        before = self.actions()
        try:
            self.rule.write(self.directory, value,
                            state.original.actions if state else ())
        except (errors.Refused, errors.WorkloadGone):
            raise
        except errors.DriverError:
            put_back(self.directory, before)
            raise
        return self.read(state)


def put_back(directory: CgroupDirectory,
             actions: Sequence[base.RestoreAction]) -> None:
    """Write what was there before, as far as the kernel takes it."""
    for action in actions:
        with contextlib.suppress(errors.DriverError):
            directory.put(Entry(action['file'], action.get('device', '')),
                          action['text'])


def _only(*files: str) -> Callable[[CgroupDirectory], list[Entry]]:
    entries = [Entry(file) for file in files]
    return lambda directory: entries


# --- CPU

def quota_of(cores: float, period_us: int) -> int:
    """The quota of a cap, in microseconds: what is read back is not above
    the cap, or it would be tightened again and again."""
    return max(MIN_QUOTA_US, math.floor(cores * period_us + ROUNDING_US))


def _quota(d: CgroupDirectory) -> tuple[int, int]:
    """Return quota, -1 for none, and period in microseconds."""
    if d.version == 1:
        return d.read_int(_QUOTA), d.read_int(_PERIOD)
    text = d.read('cpu.max')
    try:
        us, period = text.split()
        return -1 if us == 'max' else int(us), int(period)
    except ValueError as exc:
        raise errors.DriverError(
            f'{d.path}/cpu.max holds {text[:40]!r}, not a quota') from exc


def _read_quota(d: CgroupDirectory) -> Value | None:
    us, period = _quota(d)
    return None if us < 0 else us / period


def _write_quota(d: CgroupDirectory, value: Value) -> None:
    _, period = _quota(d)
    us = quota_of(number(Knob.CPU_CORES, value), period)
    entry, text = ((Entry(_QUOTA), str(us)) if d.version == 1
                   else (Entry('cpu.max'), f'{us} {period}'))
    write_quota(d, entry, text, quota_us=us, period_us=period)


def _idle_entries(weight: str) -> Callable[[CgroupDirectory], list[Entry]]:
    def entries(d: CgroupDirectory) -> list[Entry]:
        # Leaving idle resets the weight, so the weight comes after; an idle
        # cgroup has none that could be written.
        idle = [Entry('cpu.idle')]
        return idle if d.read_int('cpu.idle') else [*idle, Entry(weight)]
    return entries


def _read_set_v2(d: CgroupDirectory) -> Value | None:
    return d.read('cpuset.cpus') or None


def _write_set_v2(d: CgroupDirectory, value: Value) -> None:
    cpus = available_cpus.obtainable(d, parse_cpus(str(value)))
    d.put(Entry('cpuset.cpus'), format_cpus(cpus))


# --- memory

def _read_memory_v1(d: CgroupDirectory) -> Value | None:
    limit = d.read_int('memory.limit_in_bytes')
    return None if limit >= NO_MEMORY_LIMIT else limit


def _write_memory_v1(d: CgroupDirectory, value: Value) -> None:
    limit = int(number(Knob.MEMORY_BYTES, value))
    try:
        d.write('memory.limit_in_bytes', str(limit))
    except OSError as exc:
        if exc.errno == errno.EBUSY:
            use = d.read_int('memory.usage_in_bytes')
            if use - memory.droppable_bytes(d) <= limit:
                # Page cache that has to be written first: until the next
                # tick tries again, there comes no more.
                return d.put(Entry('memory.limit_in_bytes'),
                             str(max(limit, use)))
            raise _refused(d, limit, use) from exc
        if exc.errno == errno.EINVAL:
            # None above the one of memory and swap, which holds anyway.
            most = d.read_int('memory.memsw.limit_in_bytes')
            if most < limit:
                return d.put(Entry('memory.limit_in_bytes'), str(most))
        raise explain(exc, f'cannot write {limit} to '
                           f'{d.path}/memory.limit_in_bytes') from exc


def _refused(d: CgroupDirectory, limit: int, use: int) -> errors.Refused:
    unmet = max(1, use - limit)
    return errors.Refused(
        f'{d.path} uses {use / MIB:.1f} MiB that cannot be reclaimed, '
        f'{unmet / MIB:.1f} more than the limit of {limit / MIB:.1f}; let it '
        'shrink, or end it',
        unmet_bytes=unmet)


def _limits_v2(d: CgroupDirectory) -> tuple[float, float]:
    high, most = d.read_int(_HIGH.file), d.read_int(_MAX.file)
    return (math.inf if high < 0 else high, math.inf if most < 0 else most)


def _memory_max(d: CgroupDirectory, limit: int,
                original: Sequence[base.RestoreAction]) -> int:
    """Return memory.max for a memory.high, never above that before us; of a
    limit the same before and after the kernel made whole pages of it."""
    own = d.before(_MAX, original)
    pages = limit // _PAGE
    most = (pages + pages // 8) * _PAGE + MEMORY_ROOM
    return most if own == 'max' else max(limit, min(most, int(own)))


def _read_memory_v2(d: CgroupDirectory, state: base.KnobState | None
                    ) -> Value | None:
    high, most = _limits_v2(d)
    # A memory.high of ours alone, with more than that in use, is what a
    # refused write left: it slows growth, but the limit is not met.
    refused = False
    if state is not None and state.ours is None and high < most:
        original = state.original.actions
        refused = d.read(_HIGH.file) != d.before(_HIGH, original) and (
            most != _memory_max(d, int(high), original)
            or _excess_bytes(d, int(high)) > 0)
    in_force = most if refused else min(high, most)
    return None if in_force == math.inf else int(in_force)


def _excess_bytes(d: CgroupDirectory, limit: int) -> int:
    """Return what is in use above a limit, 0 where the kernel could drop as
    much."""
    use = d.read_int('memory.current')
    return (use - limit if use > limit
            and use - memory.droppable_bytes(d) > limit else 0)


def _write_memory_v2(d: CgroupDirectory, value: Value,
                     original: Sequence[base.RestoreAction]) -> None:
    limit = int(number(Knob.MEMORY_BYTES, value))
    _, before = _limits_v2(d)
    most = _memory_max(d, limit, original)
    if most > before:  # so that high never stands above max on the way up
        d.put(_MAX, str(most))
    d.put(_HIGH, str(limit))
    if excess := _excess_bytes(d, limit):
        raise _refused(d, limit, limit + excess)
    # memory.max below what is in use could call the OOM killer, and killing
    # is not what a limit was asked for.  What is above it (reclaimable slab,
    # mostly) is no use in the sense of memory_bytes: nothing to refuse.
    if d.read_int('memory.current') <= most < before:
        d.put(_MAX, str(most))


# --- block I/O

def _limit_of(d: CgroupDirectory, entry: Entry, text: str) -> float:
    number_ = text.rpartition('=')[2]
    if number_ in ('max', '0'):
        return math.inf
    try:
        return float(number_)
    except ValueError as exc:
        raise errors.DriverError(
            f'{d.path}/{entry.file} holds {text[:40]!r} for {entry.device}, '
            'not a limit') from exc


def _io_rule(knob: Knob, version: int,
             devices: Callable[[], tuple[str, ...]],
             logged: log_once.LogOnce) -> Rule:
    unit = 'bps' if knob is Knob.IO_BYTES_PER_S else 'iops'

    def entries(d: CgroupDirectory) -> list[Entry]:
        if not d.devices:
            d.devices = devices()
        if not d.devices:
            raise errors.Unsupported(
                f'{knob}: no disk found; name some in [cgroups]io_devices',
                cause='no disk')
        if version == 1:
            return [Entry(f'blkio.throttle.{way}_{unit}_device', device)
                    for device in d.devices for way in ('read', 'write')]
        return [Entry('io.max', device, f'{way}{unit}')
                for device in d.devices for way in 'rw']

    def read(d: CgroupDirectory, _: base.KnobState | None) -> Value | None:
        # The loosest: a workload's own limit on one disk must not hide that
        # another disk has none.
        loosest = max(_limit_of(d, entry, d.get(entry))
                      for entry in entries(d))
        return None if loosest == math.inf else loosest

    def write(d: CgroupDirectory, value: Value,
              original: Sequence[base.RestoreAction]) -> None:
        wanted = max(1, int(number(knob, value)))
        if unit == 'iops':
            wanted = min(wanted, MOST_IOPS)
        absent: dict[str, errors.Unsupported] = {}
        for entry in entries(d):
            if entry.device in absent:
                continue
            # A direction that the workload's own limit holds lower stays so.
            limit = int(min(wanted, _limit_of(
                d, entry, d.before(entry, original))))
            try:
                d.put(entry, f'{entry.field}={limit}' if entry.field
                      else str(limit))
            except errors.Unsupported as exc:   # the others can be limited
                absent[entry.device] = exc
        d.devices = tuple(device for device in d.devices
                          if device not in absent)
        if absent and not d.devices:
            raise next(iter(absent.values()))
        for device, why in absent.items():
            if logged.due(device):
                LOG.warning('disk %s cannot be limited, the others are: %s',
                            device, why)

    return Rule('blkio', read, write, entries)


def _alone(controller: str, read: Callable[[CgroupDirectory], Value | None],
           write: Callable[[CgroupDirectory, Value], None],
           entries: Callable[[CgroupDirectory], list[Entry]]) -> Rule:
    """A knob whose values do not depend on what it held before us."""
    return Rule(controller, lambda d, _: read(d),
                lambda d, value, _: write(d, value), entries)


def _switch(controller: str, knob: Knob, file: str,
            entries: Callable[[CgroupDirectory], list[Entry]], *,
            read: str = '', on: str = '1', off: str = '0') -> Rule:
    """A knob that is on or off.

    :param read: the file that says so, if that is not the one to write
    """
    return _alone(controller, lambda d: d.read_int(read or file),
                  lambda d, value: d.put(
                      Entry(file), on if number(knob, value) else off),
                  entries)


def rules(devices: Callable[[], tuple[str, ...]]
          ) -> dict[tuple[Knob, int], Rule]:
    """Return how each knob works, by knob and cgroup version.

    ``cpu_set`` of v1 is not here, it is a matter of whole subtrees: see
    :mod:`scavenger_openstack.drivers.cgroup.cpuset_tree`.

    :param devices: the disks that I/O limits are about
    """
    table = {
        # The quota is a number only with its period, so that comes first.
        (Knob.CPU_CORES, 1): _alone('cpu', _read_quota, _write_quota,
                                    _only(_PERIOD, _QUOTA)),
        (Knob.CPU_CORES, 2): _alone('cpu', _read_quota, _write_quota,
                                    _only('cpu.max')),
        (Knob.CPU_IDLE, 1): _switch('cpu', Knob.CPU_IDLE, 'cpu.idle',
                                    _idle_entries('cpu.shares')),
        (Knob.CPU_IDLE, 2): _switch('cpu', Knob.CPU_IDLE, 'cpu.idle',
                                    _idle_entries('cpu.weight')),
        (Knob.CPU_SET, 2): _alone('cpuset', _read_set_v2, _write_set_v2,
                                  _only('cpuset.cpus')),
        (Knob.MEMORY_BYTES, 1): _alone('memory', _read_memory_v1,
                                       _write_memory_v1,
                                       _only('memory.limit_in_bytes')),
        (Knob.MEMORY_BYTES, 2): Rule(
            'memory', _read_memory_v2, _write_memory_v2,
            _only('memory.max', 'memory.high')),
        # What is read back is the order to freeze.  A process inside the
        # kernel stops when that ends; no tick waits for it.
        (Knob.PAUSED, 1): _switch(
            'freezer', Knob.PAUSED, 'freezer.state', _only('freezer.state'),
            read='freezer.self_freezing', on='FROZEN', off='THAWED'),
        (Knob.PAUSED, 2): _switch('freezer', Knob.PAUSED, 'cgroup.freeze',
                                  _only('cgroup.freeze')),
    }
    logged = log_once.LogOnce()
    for knob in IO:
        for version in (1, 2):
            table[knob, version] = _io_rule(knob, version, devices, logged)
    return table
