# SPDX-License-Identifier: Apache-2.0


"""How each limit of a domain is read and set through libvirt: one table.

What libvirt holds for a knob are a few texts by the keys of
:mod:`.metadata`: its restore action, our record in the domain, and what is
set, are the same kind of thing.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
import math
from typing import NamedTuple

from scavenger_openstack.drivers.cgroup.knobs import number
from scavenger_openstack.drivers.cgroup.knobs import quota_of
from scavenger_openstack.drivers.libvirt.domain_cache import Snapshot
from scavenger_openstack.drivers.libvirt import handle as domain_handle
from scavenger_openstack.drivers.libvirt.metadata import Values
from scavenger_openstack.drivers.libvirt.xml import Disk
from scavenger_openstack import errors
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Value

DEFAULT_PERIOD_US = 100_000
MAX_PERIOD_US = 1_000_000
MIN_QUOTA_US = 1000
"""libvirt takes no smaller quota, and no longer period."""

BYTES_PER_KIB = 1024

GROUP = 'scavenger-openstack'
"""The disks of a domain that are in this throttle group share its cap."""


class Rule(NamedTuple):
    """How one knob works.

    ``values`` are what is in force, as texts; ``value`` is the same in the
    words of the controllers, ``None`` for no limit; ``plan`` makes of the
    original texts, and of a cap, those that are to be set.
    """

    values: Callable[[Snapshot], dict[str, str]]
    value: Callable[[Snapshot], Value | None]
    plan: Callable[[Snapshot, Values, Value], dict[str, str]]


def apply(handle: domain_handle.Handle, knob: Knob, values: Values, *,
          groups: Mapping[str, str] | None = None,
          inactive: bool = False) -> None:
    """Set what ``values`` say.

    :param groups: disks and the throttle groups that they come into; the
        others stay where they are, and one whose limits are all removed is
        in none
    :param inactive: in what the domain starts with the next time, instead
        of in the domain as it runs
    :raises DriverError: libvirt does not take it.
    """
    if knob is Knob.CPU_CORES:
        handle.set_quota(int(values['vcpu_quota']),
                         int(values['vcpu_period']), inactive=inactive)
    elif knob is Knob.MEMORY_BYTES:
        handle.set_balloon(int(values['balloon_kib']), inactive=inactive)
    elif knob is Knob.PAUSED:
        if not inactive:
            _pause(handle, values['state'] == 'paused')
    else:
        for disk, texts in parts(knob, values).items():
            limits: dict[str, int | str] = {
                key.partition('.')[2]: int(text)
                for key, text in texts.items()}
            if groups and disk in groups:
                limits['group_name'] = groups[disk]
            handle.set_iotune(disk, limits, inactive=inactive)


def _pause(handle: domain_handle.Handle, wanted: bool) -> None:
    """Pause or resume; never resumes what another program paused."""
    domain = handle.read()
    if domain is not None and domain.held != wanted:
        handle.pause(wanted)


# --- CPU

def _quota_values(snapshot: Snapshot) -> dict[str, str]:
    domain = snapshot.domain
    if domain.realtime is not None:
        raise errors.Unsupported(
            f'domain {domain.name} has real-time vCPUs ({domain.realtime}), '
            'which heed no CPU quota: none is set')
    return _quota(snapshot)


def _quota(snapshot: Snapshot) -> dict[str, str]:
    quota = snapshot.domain.quota_us
    return {'vcpu_quota': str(-1 if quota is None else quota),
            'vcpu_period': str(snapshot.domain.period_us or DEFAULT_PERIOD_US)}


def _cores(values: Values, vcpus: int) -> float:
    quota = int(values['vcpu_quota'])
    return (math.inf if quota <= 0
            else vcpus * quota / int(values['vcpu_period']))


def _quota_value(snapshot: Snapshot) -> Value | None:
    cores = _cores(_quota_values(snapshot), snapshot.domain.vcpus)
    return None if cores == math.inf else cores


def _quota_plan(snapshot: Snapshot, original: Values, value: Value
                ) -> dict[str, str]:
    """The quota is of each vCPU: so that all together get the cap.

    A small cap needs a longer period; below what the longest allows it is
    that.
    """
    vcpus = snapshot.domain.vcpus
    wanted = number(Knob.CPU_CORES, value)
    if _cores(original, vcpus) <= wanted:
        return dict(original)
    share = wanted / vcpus
    period = int(original['vcpu_period'])
    if share * period < MIN_QUOTA_US:
        period = (MAX_PERIOD_US if share * MAX_PERIOD_US <= MIN_QUOTA_US
                  else math.ceil(MIN_QUOTA_US / share))
    return {'vcpu_quota': str(quota_of(share, period)),
            'vcpu_period': str(period)}


def for_libvirt(values: Values, no_quota_us: int) -> dict[str, str]:
    """The same with what this libvirtd takes for no quota."""
    return {key: str(no_quota_us) if (key, text) == ('vcpu_quota', '-1')
            else text for key, text in values.items()}


# --- memory

def _balloon_values(snapshot: Snapshot) -> dict[str, str]:
    if snapshot.domain.memory_kept:
        raise errors.Unsupported(snapshot.domain.memory_kept)
    return _balloon(snapshot)


def _balloon(snapshot: Snapshot) -> dict[str, str]:
    if not snapshot.domain.has_balloon:
        raise errors.Unsupported(snapshot.domain.memory_kept)
    return {'balloon_kib': str(snapshot.domain.balloon_bytes // BYTES_PER_KIB)}


def _balloon_value(snapshot: Snapshot) -> Value | None:
    """Never ``None``: the RAM of a VM is its own limit, so a limit above
    it is not tighter than the original and is not set."""
    return int(_balloon_values(snapshot)['balloon_kib']) * BYTES_PER_KIB


def _balloon_plan(snapshot: Snapshot, original: Values, value: Value
                  ) -> dict[str, str]:
    wanted = int(number(Knob.MEMORY_BYTES, value)) // BYTES_PER_KIB
    return {'balloon_kib': str(min(wanted, int(original['balloon_kib'])))}


# --- disks

def groups(snapshot: Snapshot, knob: Knob, original: Values) -> dict[str, str]:
    """Disk -> the throttle group that it has to be in under a cap.

    The members of a group are all set as the one that was set last: so only
    disks without any limit or group of their own come into ours, and one on
    which another program sets a limit leaves it.  One that is plugged in while
    the group holds limits of the other kind stays outside: it would remove
    them.
    """
    if knob not in (Knob.IO_BYTES_PER_S, Knob.IO_OPS_PER_S):
        return {}
    what = 'bytes_sec' if knob is Knob.IO_BYTES_PER_S else 'iops_sec'
    limited = {key.partition('.')[0] for key, text in original.items()
               if int(text)}
    disks = _disks(snapshot)
    is_open = not any(what not in name for disk in disks
                      if disk.group == GROUP for name in disk.iotune)
    by_disk = {}
    for disk in disks:
        if disk.group == GROUP:
            by_disk[disk.target] = (disk.target if disk.target in limited
                                    else GROUP)
        elif is_open and not disk.iotune and disk.group is None:
            by_disk[disk.target] = GROUP
    return by_disk


def _disks(snapshot: Snapshot) -> list[Disk]:
    """Return the disks that libvirt can limit, as far as it was asked."""
    return [disk for disk in snapshot.domain.disks
            if disk.target not in snapshot.unlimited]


def _io_rule(knob: Knob) -> Rule:
    what = 'bytes_sec' if knob is Knob.IO_BYTES_PER_S else 'iops_sec'
    base = tuple(f'{way}_{what}' for way in ('total', 'read', 'write'))

    def limits(disk: Disk) -> dict[str, int]:
        held = {name: disk.iotune.get(name, 0) for name in base}
        for name in base:
            for burst in (f'{name}_max', f'{name}_max_length'):
                if burst in disk.iotune:
                    held[burst] = disk.iotune[burst]
        return held

    def values(snapshot: Snapshot) -> dict[str, str]:
        disks = _disks(snapshot)
        if not disks:
            raise errors.Unsupported(
                f'domain {snapshot.domain.name} has no disks'
                + ' that libvirt can limit' * bool(snapshot.domain.disks))
        return {f'{disk.target}.{name}': str(limit)
                for disk in disks for name, limit in limits(disk).items()}

    def value(snapshot: Snapshot) -> Value | None:
        values(snapshot)
        loosest = 0.0
        for disk in _disks(snapshot):
            total, read, write = (disk.iotune.get(name) or math.inf
                                  for name in base)
            loosest = max(loosest, min(total, max(read, write)))
        return None if loosest == math.inf else loosest

    def plan(snapshot: Snapshot, original: Values, cap: Value
             ) -> dict[str, str]:
        """In the family of the original: libvirt takes a total limit, or
        one for each direction, not both.  Without one it is a total, so
        that reads and writes together get the cap.  Bursts would go beyond
        it.
        """
        wanted = max(1, int(number(knob, cap)))
        split = {disk for key, text in original.items() if int(text)
                 for disk, _, name in [key.partition('.')]
                 if name in base[1:]}
        planned = {}
        for key, text in original.items():
            disk, _, name = key.partition('.')
            if name in base and (name == base[0]) != (disk in split):
                planned[key] = str(min(int(text) or wanted, wanted))
            else:
                planned[key] = '0'
        for key in list(planned):     # an original that is tighter keeps all
            disk, _, name = key.partition('.')
            if name not in base and all(
                    planned.get(sibling) == original.get(sibling)
                    for sibling in (f'{disk}.{n}' for n in base)):
                planned[key] = original[key]
        return planned

    return Rule(values, value, plan)


# --- pause

def _state_values(snapshot: Snapshot) -> dict[str, str]:
    return {'state': 'paused' if snapshot.paused else 'running'}


def _state_plan(snapshot: Snapshot, original: Values, value: Value
                ) -> dict[str, str]:
    return ({'state': 'paused'} if number(Knob.PAUSED, value)
            else dict(original))


RULES: Mapping[Knob, Rule] = {
    Knob.CPU_CORES: Rule(_quota_values, _quota_value, _quota_plan),
    Knob.MEMORY_BYTES: Rule(_balloon_values, _balloon_value, _balloon_plan),
    Knob.IO_BYTES_PER_S: _io_rule(Knob.IO_BYTES_PER_S),
    Knob.IO_OPS_PER_S: _io_rule(Knob.IO_OPS_PER_S),
    Knob.PAUSED: Rule(_state_values, lambda snapshot: int(snapshot.paused),
                      _state_plan)}
"""What is set through libvirt."""


_UNCHECKED: Mapping[Knob, Callable[[Snapshot], dict[str, str]]] = {
    Knob.CPU_CORES: _quota, Knob.MEMORY_BYTES: _balloon}


def rule(knob: Knob) -> Rule:
    """Return what to do about a knob.

    :raises Unsupported: it is no limit of a domain.
    """
    if knob not in RULES:
        raise errors.Unsupported(f'{knob} is no limit of a domain')
    return RULES[knob]


def identity(snapshot: Snapshot, knob: Knob) -> tuple[object, ...]:
    """Return what is limited: this run of a domain, and where disks are
    limited one by one, these; what comes later is under no lease."""
    if knob in (Knob.IO_BYTES_PER_S, Knob.IO_OPS_PER_S):
        return (*snapshot.identity,
                *(disk.target for disk in snapshot.domain.disks))
    return snapshot.identity


# --- without a cap of ours

def in_force(snapshot: Snapshot, knob: Knob) -> dict[str, str]:
    """Return what libvirt holds, also for a domain that is never limited."""
    try:
        return (_UNCHECKED.get(knob) or RULES[knob].values)(snapshot)
    except errors.Unsupported:
        return {}


def free(snapshot: Snapshot, knob: Knob) -> dict[str, str]:
    """Return what libvirt holds for a knob without any limit."""
    domain = snapshot.domain
    if knob is Knob.CPU_CORES:
        return {'vcpu_quota': '-1', 'vcpu_period': str(DEFAULT_PERIOD_US)}
    if knob is Knob.PAUSED:
        return {'state': 'running'}
    text = '0'
    if knob is Knob.MEMORY_BYTES:
        text = str(domain.memory_allotment_bytes // BYTES_PER_KIB)
    return dict.fromkeys(in_force(snapshot, knob), text)


def part(knob: Knob, key: str) -> str:
    """Return what is set or left alone as a whole: a disk, else all."""
    if knob in (Knob.IO_BYTES_PER_S, Knob.IO_OPS_PER_S):
        return key.partition('.')[0]
    return ''


def parts(knob: Knob, values: Values) -> dict[str, dict[str, str]]:
    """The texts by what is set as a whole."""
    by_part: dict[str, dict[str, str]] = {}
    for key, text in values.items():
        by_part.setdefault(part(knob, key), {})[key] = text
    return by_part


def recorded(snapshot: Snapshot, knob: Knob, record: Values
             ) -> tuple[dict[str, str], set[str]]:
    """Return what a record says of the domain as it is, and the parts of
    which it does not say enough.

    Of disks that are gone nothing is set.  Those that a record does not
    name, while it names others, came later: no cap was on them.
    """
    there = {part(knob, key) for key in free(snapshot, knob)}
    named = {part(knob, key) for key in record} & there
    lacking = {part(knob, key) for key in free(snapshot, knob)
               if '_max' not in key and key not in record}
    lacking &= named if record else there
    return {key: text for key, text in record.items()
            if part(knob, key) in named - lacking}, lacking
