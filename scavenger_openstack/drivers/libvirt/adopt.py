# SPDX-License-Identifier: Apache-2.0


"""Limits that came with a domain: from another host, or out of a save.

What set them had a lease where it was.  Our record in the domain says
what was there before; by it the limit is removed in the domain as it runs,
and, where Nova made the live definition the persistent one, in that.  A
record goes only after its limit, also one that tells too little.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
import functools
import logging

from scavenger_openstack.drivers import calls
from scavenger_openstack.drivers.libvirt import client
from scavenger_openstack.drivers.libvirt import domain_cache
from scavenger_openstack.drivers.libvirt.domain_cache import Snapshot
from scavenger_openstack.drivers.libvirt import handle as domain_handle
from scavenger_openstack.drivers.libvirt import health as domain_health
from scavenger_openstack.drivers.libvirt import knobs as domain_knobs
from scavenger_openstack.drivers.libvirt import metadata
from scavenger_openstack.drivers.libvirt import xml
from scavenger_openstack import errors
from scavenger_openstack import log_once
from scavenger_openstack.types import Knob

LOG = logging.getLogger(__name__)

OF_ALL = (errors.WorkloadGone, domain_handle.Busy, client.Unreachable)
"""What fails for one limit of a domain and would for all of them."""

NOT_OURS = 'without a lease: it is being removed'


def foreign(name: str, knob: Knob) -> errors.DriverError:
    """Return what to raise of a knob with a record of ours that we did not
    make."""
    return errors.DriverError(
        f'domain {name} came with a limit on {knob} {NOT_OURS}')


class Remover:
    """Removes them, each domain for itself: one may hang.

    :param ours: whether we hold a knob of a domain by now: while a call
        hung, it may have been started again
    """

    def __init__(self, health: domain_health.Health,
                 cache: domain_cache.DomainCache,
                 executor: calls.Executor, ours: Callable[[str, Knob], bool]
                 ) -> None:
        self._health = health
        self._cache = cache
        self._ours = ours
        self._calls = executor
        self._logged = log_once.LogOnce()
        self._astray: set[tuple[str, Knob]] = set()
        self._closed = False

    def astray(self, uuid: str, knob: Knob) -> None:
        """Note that a limit of ours is being set: if the domain is started
        again meanwhile, the new run gets it."""
        self._astray.add((uuid, knob))

    def arrived(self, uuid: str, knob: Knob) -> None:
        """Note that a limit is in the run that it was meant for."""
        self._astray.discard((uuid, knob))

    def forget(self, uuid: str) -> None:
        """Forget a domain that does not run any more."""
        for key in list(self._astray):      # other threads add to it
            if key[0] == uuid:
                self._astray.discard(key)

    def remove(self, uuid: str, knobs: Collection[Knob]) -> None:
        """Begin to remove these limits, unless a call is at that domain."""
        if not self._closed and uuid not in self._calls.busy:
            self._calls.submit(uuid, lambda: self._run(uuid, knobs))

    def close(self) -> None:
        """Begin nothing more."""
        self._closed = True

    def _run(self, uuid: str, knobs: Collection[Knob]) -> None:
        try:
            with self._health.domain(uuid) as handle:
                self._remove(uuid, knobs, handle)
            self._logged.over(uuid)
        except errors.WorkloadGone:
            self._logged.forget(uuid)
            self._cache.changed(uuid)
        except (errors.DriverError, ValueError) as exc:
            if self._logged.due(uuid, str(exc)):
                self._health.failed(
                    (uuid, next(iter(knobs))),
                    f'domain {uuid} came with a limit without a lease; it is '
                    f'not removed yet, the next tick tries again: {exc}',
                    functools.partial(self._logged.forget, uuid))

    def _remove(self, uuid: str, knobs: Collection[Knob],
                handle: domain_handle.Handle) -> None:
        live = self._cache.refresh(uuid, handle.read)
        if live is None:
            return
        text = handle.inactive()
        saved = live._replace(domain=xml.parse(text),
                              paused=False) if text else None
        definitions = ((live, saved, False), (saved, live, True))
        removed, guesses = [], []
        failed: errors.DriverError | None = None
        for knob in knobs:
            if knob not in live.records or self._ours(uuid, knob):
                continue
            there = []
            try:
                for snapshot, other, inactive in definitions:
                    if snapshot is None or knob not in snapshot.records \
                            or self._ours(uuid, knob):
                        continue
                    values, guess = way_back(knob, snapshot, other)
                    if values:
                        _set_each(handle, snapshot, knob, values,
                                  inactive=inactive)
                        there.append(knob)
                    if guess:
                        guesses.append((knob, guess))
                for snapshot, _, inactive in reversed(definitions):
                    if snapshot is not None and knob in snapshot.records \
                            and not self._ours(uuid, knob):
                        handle.set_record(metadata.uri(knob),
                                          metadata.KEY, None,
                                          inactive=inactive)
            except OF_ALL:
                raise
            except errors.DriverError as exc:
                failed = failed or exc
                continue
            removed += there[:1]
        self._cache.refresh(uuid, handle.read)
        for guess in dict.fromkeys(guess for _, guess in guesses):
            LOG.warning('domain %s (%s): the record in it does not say what '
                        '%s was before the limit: %s', live.domain.name, uuid,
                        ', '.join(dict.fromkeys(
                            knob for knob, reason in guesses
                            if reason == guess)),
                        guess)
        again = [knob for knob in removed if (uuid, knob) in self._astray]
        for knob in again:
            self.arrived(uuid, knob)
            removed.remove(knob)
        if again:
            LOG.info('domain %s (%s) was started again while its limit on '
                     '%s was set: removed from the new run',
                     live.domain.name, uuid, ', '.join(again))
        if removed:
            LOG.warning('domain %s (%s) came with a limit on %s and without a '
                        'lease, from another host or out of a save: '
                        'removed', live.domain.name, uuid, ', '.join(removed))
        if failed is not None:
            raise failed


def _set_each(handle: domain_handle.Handle, snapshot: Snapshot, knob: Knob,
              values: metadata.Values, *, inactive: bool) -> None:
    """Set all disks, or pins; one that fails does not keep the others from
    it.

    :param snapshot: what they hold now
    :raises DriverError: libvirt does not take what one of them does not hold.
    """
    held = domain_knobs.in_force(snapshot, knob)
    failed: errors.DriverError | None = None
    for texts in domain_knobs.parts(knob, values).values():
        try:
            domain_knobs.apply(handle, knob, texts, inactive=inactive)
        except OF_ALL:
            raise
        except errors.DriverError as exc:
            if texts.items() - held.items():
                failed = failed or exc
    if failed is not None:
        raise failed


def way_back(knob: Knob, snapshot: Snapshot, other: Snapshot | None
             ) -> tuple[dict[str, str], str]:
    """Return what to set in a definition of a domain that has our record of a
    knob, and what to tell the operator.

    What the record does not tell comes from the ``other`` definition: from
    its record, or, without one, from what it holds, since a cap of ours never
    is where no record is.  What is not told has no limit afterwards: too
    much for a background VM until its next hard reboot is the lesser evil, a
    cap that is never removed is for ever.
    """
    values, lacking = domain_knobs.recorded(snapshot, knob,
                                            snapshot.records[knob])
    if not lacking:
        return values, ''
    texts: metadata.Values = {}
    if other is not None:
        texts = (other.records[knob] if knob in other.records
                 else domain_knobs.in_force(other, knob))
    filled = {key: text for key, text in domain_knobs.recorded(
        snapshot, knob, texts)[0].items()
        if domain_knobs.part(knob, key) in lacking}
    lacking -= {domain_knobs.part(knob, key) for key in filled}
    guess = 'it is now what the other definition of the domain says'
    if lacking:
        filled.update((key, text) for key, text in domain_knobs.free(
            snapshot, knob).items() if domain_knobs.part(knob, key) in lacking)
        guess = ('it has no limit now; if its flavor or its volumes have one, '
                 'openstack server reboot --hard sets that again')
    now = domain_knobs.in_force(snapshot, knob)
    if all(now.get(key) == text for key, text in filled.items()):
        return values, ''
    return {**values, **filled}, guess
