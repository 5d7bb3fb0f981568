# SPDX-License-Identifier: Apache-2.0



"""Balloons under way: what guests have not given back yet, or never will.

A guest gives memory back in its own time, or not at all: without a driver,
or because it needs what it has.  On the way its balloon is neither where it
was nor where it has to be, so what is read back is where it goes to, and what
is missing is another number.  The guest itself reports how large its
balloon is, so what QEMU holds is compared with that.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
import contextlib
import dataclasses
import logging
import time

from scavenger_openstack.algorithms.flavor import BYTES_PER_MIB
from scavenger_openstack.drivers import base
from scavenger_openstack.drivers.libvirt.domain_cache import Snapshot
from scavenger_openstack.drivers.libvirt import knobs
from scavenger_openstack.drivers.libvirt import xml
from scavenger_openstack import log_once

LOG = logging.getLogger(__name__)

STILL_S = 30.0
"""A balloon that has not moved for so long does not move any more."""

MOVED = 0.02
"""Part of what is missing from which a step is one: a guest that gives back a
page now and then gives nothing back."""

SILENT_S = 120.0
"""A balloon driver that has answered nothing for so long under a limit is
logged: most guests have booted by then."""

OVERHEAD_BYTES = 256 * BYTES_PER_MIB
OVERHEAD_SHARE = 1 / 16
EMULATED_BYTES = 1024 * BYTES_PER_MIB
"""What QEMU may hold beside the memory of its guest: its own, a share of that
of the guest, and without KVM the code that it translated."""

STILL = f'its balloon has not moved for {STILL_S:.0f} s'
SILENT = f'its balloon driver has not answered for {SILENT_S:.0f} s'
HIDES = ('its guest reports that it gave memory back, and QEMU holds it still')
"""What can be the matter with a guest that has more than its limit."""

REPORTED_S = 3.0
"""QEMU tells of a balloon once a second: so long after a limit was removed,
what is known may be from before that."""


def whole(snapshot: Snapshot, inactive: str) -> Snapshot:
    """The domain with no less memory than it starts with.

    Without a limit of ours, less may be on its way up after one that an
    agent before us set.

    :param inactive: the persistent definition, '' for none
    """
    with contextlib.suppress(ValueError):
        if inactive:
            return _with(snapshot, max(
                snapshot.domain.balloon_bytes,
                xml.parse(inactive).balloon_bytes))
    return snapshot


def full(snapshot: Snapshot) -> Snapshot:
    """The domain with all the memory that it may have.

    A guest writes how large its balloon is.  By saying that it has little it
    would keep the memory that it has: a limit would not be tighter.
    """
    return _with(snapshot, snapshot.domain.memory_allotment_bytes)


class _Way:
    """One guest that has more than it may, in the same ``state``, and since
    when."""

    __slots__ = ('identity', 'since_s', 'size', 'state')

    def __init__(self, snapshot: Snapshot, state: str, size: int,
                 now_s: float) -> None:
        self.state = state
        self.identity = snapshot.identity
        self.size = size
        self.since_s = now_s


class _Run:
    """One run of a domain: how large its balloon was at the first look, and
    whether it has changed since, which is the guest's driver at work."""

    __slots__ = ('answered', 'identity', 'size')

    def __init__(self, snapshot: Snapshot) -> None:
        self.answered = False
        self.identity = snapshot.identity
        self.size = snapshot.domain.balloon_bytes


class Balloons:
    """Where each balloon goes to, and how long it has stood still.

    :ivar kept: why the memory of a domain does not follow its limit, by UUID
    """

    def __init__(self) -> None:
        self._ways: dict[str, _Way] = {}
        self._rising: dict[str, tuple[tuple[object, ...], int, float]] = {}
        self._runs: dict[str, _Run] = {}
        self.kept: Mapping[str, str] = {}
        self._logged = log_once.LogOnce()

    def rises(self, uuid: str, identity: tuple[object, ...],
              state: base.KnobState) -> None:
        """The limit of a run of a domain was removed."""
        self._rising[uuid] = (identity, _original(state),
                              time.monotonic() + REPORTED_S)

    def forget(self, uuid: str) -> None:
        """Forget a domain that has ended."""
        self._rising.pop(uuid, None)
        self._runs.pop(uuid, None)

    def update(self, snapshot: Snapshot) -> bool:
        """Return whether the balloon driver has answered in this run of the
        domain.

        A guest that boots has none yet: its balloon stays as it is.
        """
        self.follow(snapshot)
        uuid = snapshot.domain.uuid
        run = self._runs.get(uuid)
        if run is None or run.identity != snapshot.identity:
            run = self._runs[uuid] = _Run(snapshot)
        elif run.size != snapshot.domain.balloon_bytes:
            run.answered = True
        return run.answered

    def follow(self, snapshot: Snapshot) -> int | None:
        """Return where a balloon rises to, in bytes, until it is there."""
        uuid = snapshot.domain.uuid
        rising = self._rising.get(uuid)
        if rising is None:
            return None
        identity, size, reported_s = rising
        if identity == snapshot.identity and (
                snapshot.domain.balloon_bytes < size
                or time.monotonic() < reported_s):
            return size
        if self._rising.get(uuid) is rising:
            self._rising.pop(uuid, None)
        return None

    def settled(self, snapshot: Snapshot, state: base.KnobState | None
                ) -> Snapshot:
        """The domain as it will be when its balloon has arrived."""
        if state is None:
            size = self.follow(snapshot)
        elif state.ours is None:    # nor is less an original
            size = max(self.follow(snapshot) or 0, _original(state),
                       snapshot.domain.balloon_bytes)
        else:
            # Whatever it says: what libvirt knows of a balloon its guest has
            # written, so less is not another program's limit.
            size = int(state.ours.value or 0)
        return snapshot if size is None else _with(snapshot, size)

    def unmet(self, limits: Iterable[tuple[Snapshot, int, int | None]],
              now_s: float) -> dict[str, int]:
        """Bytes above the limit, by domain, of those that stand still.

        Only of a guest whose balloon driver has answered in this run, and
        :data:`STILL_S` after that at the earliest: one that boots, or has no
        driver, is never paused for it, nor one that can give nothing back,
        or of which the balloon alone says that it did: the limits of those
        do not hold (:attr:`kept`).  A paused guest gives nothing back:
        so it runs for as long as it was paused, and has another try.

        :param limits: domains, how many bytes each may have, and how many
            QEMU uses, ``None`` if that is not known
        """
        before, self._ways = self._ways, {}
        by_uuid, kept = {}, {}
        for snapshot, cap, used in limits:
            domain = snapshot.domain
            if domain.fixed_memory is not None:
                continue
            answered = self.update(snapshot)
            size, least = domain.balloon_bytes, cap
            state = STILL if answered else SILENT
            if size <= cap and used is not None:
                size, least, state = used, cap + overhead(domain), HIDES
            missing = size - least
            if missing <= 0:
                continue
            way = before.get(domain.uuid)
            if (way is None or way.identity != snapshot.identity
                    or way.state != state):
                way = _Way(snapshot, state, size, now_s)
            elif way.size - size >= MOVED * (way.size - least):
                way.size, way.since_s = size, now_s
            elif snapshot.paused and now_s - way.since_s >= 2 * STILL_S:
                way.since_s = now_s
            self._ways[domain.uuid] = way
            if now_s - way.since_s < (SILENT_S if state == SILENT
                                      else STILL_S):
                continue
            if state == STILL:
                by_uuid[domain.uuid] = missing
            else:
                kept[domain.uuid] = f'domain {domain.name}: {state}'
            if self._logged.due(domain.uuid, (way.identity, state)):
                _warn(snapshot, missing, cap, state)
        self.kept = kept
        for uuid in before.keys() - self._ways.keys():
            self._logged.forget(uuid)
        return by_uuid


def overhead(domain: xml.Domain) -> int:
    """Return what QEMU may hold beside the memory of its guest, in bytes."""
    return int(OVERHEAD_BYTES
               + OVERHEAD_SHARE * domain.memory_allotment_bytes
               + EMULATED_BYTES * (domain.virt_type != 'kvm'))


def _warn(snapshot: Snapshot, missing: int, cap: int, state: str) -> None:
    domain = snapshot.domain
    LOG.warning(
        'domain %s (%s) has %.0f MiB more than its memory limit of %.0f MiB, '
        'and %s: see that its guest has the driver (virtio_balloon) and can '
        'spare them, or raise scavenger:floor_memory_mb of its flavor',
        domain.name, domain.uuid, missing / BYTES_PER_MIB,
        cap / BYTES_PER_MIB, state + (
            '' if state == STILL else ', so the limit does not hold; the '
            'domain is not paused for it'))


def _with(snapshot: Snapshot, size: int) -> Snapshot:
    return snapshot._replace(domain=dataclasses.replace(
        snapshot.domain, balloon_bytes=size))


def _original(state: base.KnobState) -> int:
    values = state.original.actions[0]['values']
    return int(values['balloon_kib']) * knobs.BYTES_PER_KIB
