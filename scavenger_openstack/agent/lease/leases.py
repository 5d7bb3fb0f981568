# SPDX-License-Identifier: Apache-2.0


"""Leases: how a cap outlives neither its agent nor its workload.

What is on disk when the process dies, and why that is safe:

* ``open``: the lock first, so that no other agent writes knobs or records.
  Each record of an earlier agent stays until its knob reads back as the
  original; one that does not come back keeps its record, and its original.
* ``hold``: before the rename a ``.tmp`` that is not read, and no write;
  after it the record, and a knob that may or may not have been written.
* ``replace``: the rename leaves the old original or the new, never none.
* ``remove``: the record goes last, after the read-back.  A CPU set that is
  about to be widened is noted in the record, see :mod:`.restore.records`.
* ``reopen``: as remove, but no record goes: a write that was on its way when
  we were stopped lands under a lease.  The new expiry is on disk before it
  is asked whether a limit is being restored, so a watcher at work is
  waited for, and one that comes later sees that expiry: what is set from then
  on is not restored.
* ``close``: as remove; then the heartbeat (without it all has run out), then
  the lock.  While a write is on its way the lock is left to the kernel,
  which frees it when the last thread is dead.
* the lock: see :mod:`.ownership`; the heartbeat: see :mod:`.heartbeat`.

No write to a knob is made under the lock of these objects.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import hashlib
import os
import pathlib
import threading
import time
from typing import cast

from oslo_log import log

from scavenger_openstack.agent.lease.claims import Claims
from scavenger_openstack.agent.lease import heartbeat
from scavenger_openstack.agent.lease import ownership
from scavenger_openstack.agent.lease.watched import Watched
from scavenger_openstack.drivers.base import KnobState
from scavenger_openstack.drivers.base import RestoreAction
from scavenger_openstack.drivers.base import Setting
from scavenger_openstack import errors
from scavenger_openstack.restore import abilities
from scavenger_openstack.restore.actions import Gone
from scavenger_openstack.restore.actions import Refused
from scavenger_openstack.restore.actions import RestoreError
from scavenger_openstack.restore.actions import validate
from scavenger_openstack.restore import cgroup
from scavenger_openstack.restore.files import DIRECTORY
from scavenger_openstack.restore import messages
from scavenger_openstack.restore import records
from scavenger_openstack.restore.records import boot_id
from scavenger_openstack.restore.records import Lease
from scavenger_openstack.restore.records import now_s
from scavenger_openstack.restore import restoration
from scavenger_openstack.types import Knob
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import Value

LOG = log.getLogger(__name__)

OTHERS_S = 5.0
"""So long what other threads are removing may take at the end."""


def _key(lease: Lease) -> KnobKey:
    try:
        return lease.workload, Knob(lease.knob)
    except ValueError:      # of a newer version: it can still be removed
        return lease.workload, cast(Knob, lease.knob)


def _kinds(lease: Lease, mounts: Sequence[cgroup.Mount]) -> frozenset[str]:
    return frozenset(abilities.of_action(action, mounts)
                     for action in lease.actions)


def _kinds_left(lease: Lease) -> frozenset[str]:
    """Return the kinds of limits of a lease from an earlier run, whose mounts
    may be missing."""
    try:
        return _kinds(lease, cgroup.mounts())
    except (OSError, RestoreError):
        return frozenset({'unknown'})


class Leases:
    """The leases of one agent; all of them end with one heartbeat.

    One thread at a time writes one knob; different threads may look after
    different knobs.

    :param claims: what no other agent may limit; none without
    """

    def __init__(self, state_dir: pathlib.Path, lease_s: float = 15.0,
                 claims: Claims | None = None) -> None:
        self.state_dir = state_dir
        self.lease_s = lease_s
        self._mutex = threading.Lock()
        self._records: Mapping[KnobKey, Lease] = {}
        self._states: Mapping[KnobKey, KnobState] = {}
        self._kinds: Mapping[KnobKey, frozenset[str]] = {}
        self._busy: dict[KnobKey, int] = {}
        self._removing: set[KnobKey] = set()
        self._own = ownership.Ownership(state_dir)
        self._beat = heartbeat.Heartbeat(lease_s, self._own.settled)
        self._claims = claims or Claims((), ())
        self._watched = Watched(self._own, lease_s)
        self._lost: set[KnobKey] = set()
        self._lost_of: tuple[object, object] = (None, None)
        self._say = messages.Say(LOG.warning)

    def open(self) -> None:
        """Own the state directory; remove limits that an earlier agent left.

        :raises AlreadyRunning: another agent has it, or its claims.
        :raises LeaseError: it cannot be used; the message says why.
        """
        try:
            self._own.take()
            self._claims.take(ownership.LOCK_TIMEOUT_S)
            left = self._remove_leftovers()
            self._watched.write()
            self._beat.open(self.state_dir / 'heartbeat')
        except OSError as exc:
            self.close_files()
            raise errors.LeaseError(
                f'state directory {self.state_dir}: {exc}: no limit '
                'is set without it; make it writable, with some free space'
            ) from exc
        except errors.ScavengerError:
            self.close_files()
            raise
        with self._mutex:
            for lease in left:
                self._show(_key(lease), lease, _kinds_left(lease))

    def renew(self, now: float) -> None:
        """Move the end of all leases; ``now`` is CLOCK_BOOTTIME in seconds.

        :raises LeaseError: they have run out, or the directory is gone.
        """
        if self._beat.expired(now):
            raise errors.LeaseError(self._beat.ran_out())
        if self._own.moved(self._beat.fd):
            raise errors.LeaseError(
                f'state directory {self.state_dir} was removed or made '
                'again: all limits are removed when the leases run out')
        self._renew(now)

    def check(self) -> None:
        """Raise when no write may start; call it right before each write to a
        knob, and after it.

        :raises LeaseError: no time is left; do not write, and after a
            write call :meth:`reopen`.
        """
        self._beat.check()

    def expired(self) -> bool:
        """Whether :meth:`check` would raise: time for :meth:`reopen`."""
        try:
            self._beat.check()
        except errors.LeaseError:
            return True
        return False

    @contextlib.contextmanager
    def writing(self, workload: str, knob: Knob) -> Iterator[None]:
        """Check before and after one write, as :meth:`check` does.

        Until it ends, the record of the knob stays on disk whatever removes
        the limit, and :meth:`close` leaves the lock to the kernel.

        :raises LeaseError: no time is left, or the knob is not held.
        """
        key = (workload, knob)
        with self._mutex:
            if key not in self._records or key in self._removing:
                raise errors.LeaseError(
                    f'{knob} of {workload} has no lease')
            self._busy[key] = self._busy.get(key, 0) + 1
        try:
            self.check()
            yield
            self.check()
        finally:
            with self._mutex:
                self._busy[key] -= 1
                if not self._busy[key]:
                    del self._busy[key]

    def hold(self, workload: str, knob: Knob, actions: Sequence[RestoreAction],
             original: Value | None) -> None:
        """Make the durable record that must be there before a first write.

        Nothing happens when the knob is held already.

        :raises NotRestorable: no watcher could restore it; do not write.
        :raises LeaseError: there is no record; do not write.
        """
        with self._mutex:
            if (workload, knob) in self._removing:
                raise errors.LeaseError(
                    f'the limit on {knob} of {workload} is being removed')
            if (workload, knob) not in self._records:
                try:
                    self._claims.take()
                except (errors.AlreadyRunning, OSError) as exc:
                    raise errors.LeaseError(str(exc)) from exc
                self._record(workload, knob, actions, original, new=True)

    def replace(self, workload: str, knob: Knob,
                actions: Sequence[RestoreAction],
                original: Value | None) -> None:
        """Another program wrote the knob: that is what it goes back to.

        To be called after that was read.

        :raises LeaseError: a restorer may have written it, the knob is not
            held, or the record could not be made: the old one is in force.
        """
        with self._mutex:
            if ((workload, knob) not in self._records
                    or (workload, knob) in self._removing):
                raise errors.LeaseError(
                    f'{knob} of {workload} has no lease')
            self.check()
            self._record(workload, knob, actions, original)

    def wrote(self, workload: str, knob: Knob, ours: Setting | None) -> None:
        """Remember what a knob holds after our write; in memory only.

        :param ours: ``None``: what is there may be another program's, or
            half of a write
        """
        key = (workload, knob)
        with self._mutex:
            state = self._states.get(key)
            if state is not None and state.ours is not ours:
                self._states = {**self._states, key: state._replace(ours=ours)}

    def held(self) -> Mapping[KnobKey, KnobState]:
        """Return all that is held now: what each knob held before us, and what
        we wrote.  Later changes do not show in it."""
        return self._states

    def remove(self, workload: str, knob: Knob) -> None:
        """Remove the limit on a knob: restore its original, end its lease.

        :raises DriverError: not restored, or a write is on its way: it
            stays held, try again.
        """
        key = (workload, knob)
        with self._mutex:
            lease = self._records.get(key)
            if lease is None:
                return
            if key in self._removing:
                raise errors.DriverError(f'{knob} of {workload} is being '
                                         'removed by another thread')
            self._removing.add(key)
        try:
            self._restore(lease)
            with self._mutex:
                if key in self._busy:
                    raise errors.DriverError(
                        f'{knob} of {workload}: the kernel has not finished '
                        'a write to it, it is removed when that is done')
                self._delete(lease)
        finally:
            with self._mutex:
                self._removing.discard(key)

    def prepare(self, keys: Iterable[KnobKey]) -> None:
        """Begin what takes a while, for many limits that are about to be
        removed at once."""
        with self._mutex:       # other threads remove some meanwhile
            recorded = [self._records[key] for key in keys
                        if key in self._records]
        restoration.prepare(recorded)

    def remove_all(self) -> list[str]:
        """Remove every limit; return what did not come back, and why."""
        problems: dict[KnobKey, str] = {}
        self.prepare(self._records)
        for attempt in range(2):        # a parent may free its children
            until_s = time.monotonic() + OTHERS_S
            while problems and self._removing and time.monotonic() < until_s:
                time.sleep(0.01)
            for key in list(problems) if attempt else sorted(self._records):
                problems.pop(key, None)
                try:
                    self.remove(*key)
                except errors.ScavengerError as exc:
                    problems[key] = str(exc)
        return list(problems.values())

    def reopen(self) -> None:
        """Restore all after standing still past the leases, then go on.

        Everything stays held, with its original: remove what is not wanted.
        While a limit is being restored, :meth:`expired` stays true.

        :raises LeaseError: the state directory cannot be used.
        """
        for lease in list(self._records.values()):
            try:
                self._restore(lease)
            except errors.DriverError as exc:
                LOG.warning('%s', exc)
        for key in self._states:
            self.wrote(*key, None)
        if self._own.moved(self._beat.fd):
            self.close_files()
            again = list(self._records.values())
            self.open()
            with self._mutex:
                for lease in again:
                    self._record(*_key(lease), lease.actions, lease.original)
            return
        self._renew(now_s())

    def watched(self) -> bool:
        """Whether a ``scavenger-restore --watch`` turns here.

        From then on no new limit is set of a kind that it cannot restore.
        """
        return self._watched.refresh()

    def want(self, kinds: Iterable[str]) -> None:
        """Have the watcher try these kinds before they are needed."""
        self._watched.want(kinds)

    def lost(self) -> set[KnobKey]:
        """Return what is held, and the watcher could no longer restore."""
        kinds, can = self._kinds, self._watched.can
        if kinds is not self._lost_of[0] or can is not self._lost_of[1]:
            self._lost_of = kinds, can
            self._lost = {key for key, these in kinds.items()
                          if self._watched.missing(these)}
        return self._lost

    def close(self) -> None:
        """Remove every limit; the watcher restores what did not come back."""
        if self._own.records < 0:
            return
        for problem in self.remove_all():
            LOG.error('not removed, scavenger-restore tries again: %s',
                      problem)
        with self._mutex:
            (self.state_dir / 'heartbeat').unlink(missing_ok=True)
            self.close_files(keep_lock=bool(self._busy or self._removing))

    def _remove_leftovers(self) -> list[Lease]:
        fd = os.open(self.state_dir, DIRECTORY)
        try:
            messages.starting()
            left = restoration.restore_all(
                fd, self._say, delete=True, progress=messages.starting)
        finally:
            os.close(fd)
        if self._say.unread:
            raise errors.LeaseError(
                f'{self._say.unread} leases in {self.state_dir}/leases cannot '
                'be read now, see above: no limit is set before they can be, '
                'since what they are about may be limited; start again')
        return left

    def _restore(self, lease: Lease) -> None:
        what = f'{lease.knob} of {lease.workload}'
        try:
            restoration.restore(lease, directory=self._own.records,
                                others=self._records.values())
        except Gone as exc:
            LOG.debug('%s: nothing to restore, %s', what, exc)
        except Exception as exc:    # whatever it is, the others are removed
            raise errors.DriverError(f'{what}: NOT restored: {exc}') from exc

    def _record(self, workload: str, knob: Knob,
                actions: Sequence[RestoreAction],
                original: Value | None, *, new: bool = False) -> None:
        # Tenants name their cgroups, and not always in UTF-8.
        key = os.fsencode(f'{workload}\0{knob}')
        name = hashlib.sha256(key).hexdigest()[:32] + '.json'
        lease = Lease(str(workload), str(knob), boot_id(),
                      [dict(action) for action in actions], original, now_s(),
                      os.getpid(), name)
        try:
            mounts = cgroup.mounts()
            for action in lease.actions:
                validate(action, mounts)
            kinds = _kinds(lease, mounts)
            if new:
                self._watched.require(kinds)
            records.save(self._own.records, lease)
        except (OSError, Refused, RestoreError) as exc:
            raise errors.LeaseError(
                f'no lease for {knob} of {workload} in '
                f'{self.state_dir}/leases: {exc}: it is not limited'
                + ('; make that directory writable, with free space'
                   if isinstance(exc, OSError) else '')) from exc
        self._show((workload, knob), lease, kinds)

    def _delete(self, lease: Lease) -> None:
        try:
            records.delete(self._own.records, lease)
        except OSError as exc:
            raise errors.DriverError(
                f'{lease.knob} of {lease.workload}: restored, but its lease '
                f'stays: {exc}') from exc
        self._show(_key(lease), None)

    def _show(self, key: KnobKey, lease: Lease | None,
              kinds: frozenset[str] = frozenset()) -> None:
        """Bring what :meth:`held` returns up to date; never change it."""
        held, every = dict(self._records), dict(self._kinds)
        states = dict(self._states)
        for mapping in held, every, states:
            mapping.pop(key, None)
        if lease is not None:
            held[key], every[key] = lease, kinds
            before = self._states.get(key)
            states[key] = KnobState(
                Setting(lease.original, lease.actions),
                before.ours if before is not None else None)
        self._records, self._kinds, self._states = held, every, states

    def _renew(self, now: float) -> None:
        try:
            self._beat.beat(now)
        except OSError as exc:
            raise errors.LeaseError(
                f'heartbeat in {self.state_dir}: {exc}') from exc

    def close_files(self, keep_lock: bool = False) -> None:
        if not keep_lock:
            self._claims.release()
        self._beat.close()
        self._own.release(keep_lock)
