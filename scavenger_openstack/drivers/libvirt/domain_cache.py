# SPDX-License-Identifier: Apache-2.0


"""What libvirt knows of each domain, kept current by its events.

A thread of its own asks; all others read the last answer, which
is there at once.  While libvirt cannot be reached the last answers stay:
QEMU goes on without it.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import logging
import threading
import time
from typing import NamedTuple

from scavenger_openstack.drivers import calls
from scavenger_openstack.drivers.kernel import proc
from scavenger_openstack.drivers.libvirt import client
from scavenger_openstack.drivers.libvirt import handle
from scavenger_openstack.drivers.libvirt import health as domain_health
from scavenger_openstack.drivers.libvirt.metadata import Values
from scavenger_openstack.drivers.libvirt import xml
from scavenger_openstack.drivers.qemu import process
from scavenger_openstack import errors
from scavenger_openstack import log_once
from scavenger_openstack.types import Instance
from scavenger_openstack.types import Knob

LOG = logging.getLogger(__name__)

FIRST_RETRY_S = 0.5
LAST_RETRY_S = 5.0

LOOK_S = 1.0
"""For what its guest can make, in a loop, a domain is looked at once in so
long.  For what only the host can it is at once: another program may have set a
knob that we are about to write."""


MOST_ENDS = 1024
"""So many domains that have ended are remembered."""

AGAIN = 'the VM was started again'


class Snapshot(NamedTuple):
    """One domain as it was when it was last looked at; never changed.

    ``started`` is when its QEMU did, in clock ticks since boot: with
    ``pid`` that is the identity of this run of the domain.  ``paused``: by
    an operator, on purpose.  ``unlimited`` are disks that libvirt cannot
    limit, by its own answer.  ``records`` are ours of what knobs held before
    the caps that are on them.
    """

    domain: xml.Domain
    pid: int
    started: int
    paused: bool
    unlimited: frozenset[str] = frozenset()

    @property
    def records(self) -> Mapping[Knob, Values]:
        return self.domain.record.records

    @property
    def identity(self) -> tuple[int, int]:
        return self.pid, self.started


class DomainCache:
    """Keeps a snapshot of each running domain.

    :param run_dir: where libvirt keeps the PID of each
    :param parse: makes a domain of its XML; raises ``DriverError``
    """

    def __init__(self, connection: client.Libvirt,
                 health: domain_health.Health,
                 executor: calls.Executor, *, run_dir: str,
                 root_dir: str,
                 parse: Callable[[str], xml.Domain]) -> None:
        self._libvirt = connection
        self._health = health
        self._run_dir = run_dir
        self._root_dir = root_dir
        self._parse = parse
        self.snapshots: Mapping[str, Snapshot] = {}
        self.ends = Ends()
        self._listed: Mapping[str, Snapshot] = {}
        self._instances: Sequence[Instance] = ()
        self._turn = threading.Condition()
        self._todo: dict[str, bool] = {}    # whether it may wait
        self._read_s: dict[str, float] = {}
        self._missing: dict[str, float] = {}    # processes, since when
        self._broken = self._hangs = self._closed = False
        self._synced = threading.Event()
        self._mutex = threading.Lock()
        self._locks: dict[str, tuple[threading.Lock, int]] = {}
        self._logged = log_once.LogOnce()
        self._calls = executor
        self._thread = threading.Thread(target=self._run, daemon=True,
                                        name='domain-cache')

    def instances(self) -> Sequence[Instance]:
        """Return all domains that run; the same object until one changes."""
        listed = self.snapshots
        if listed is not self._listed:
            self._instances = [snapshot.domain.instance
                               for snapshot in listed.values()]
            self._listed = listed
        return self._instances

    def start(self, wait_s: float) -> None:
        """Begin, and wait that long for the first answers."""
        self.begin()
        if self._thread.ident is not None:
            self._synced.wait(wait_s)

    def begin(self) -> None:
        """Begin, unless it has; without a thread a later call does."""
        if self._thread.ident is None:
            with contextlib.suppress(calls.NoThread):
                calls.start(self._thread)

    def changed(self, uuid: str, by_guest: bool = True) -> None:
        """Have a domain looked at soon.

        :param by_guest: at the earliest :data:`LOOK_S` after the last time
            that it was for such a reason
        """
        with self._turn:
            self._todo[uuid] = by_guest and self._todo.get(uuid, True)
            self._turn.notify()

    def refresh(self, uuid: str,
                read: Callable[[], handle.DomainReading | None]
                ) -> Snapshot | None:
        """Look at a domain and publish what is seen.

        One look at a time, so that what is published last was also seen
        last.

        :raises DriverError: nothing can be seen; what was known stays.
        """
        with self._locked(uuid):
            answer = read()
            if answer is None:
                self._logged.forget(uuid)
                self._logged.forget(('warnings', uuid))
                self._missing.pop(uuid, None)
            snapshot = None if answer is None else self._snapshot(answer)
            with self._mutex:
                snapshots = dict(self.snapshots)
                before = snapshots.pop(uuid, None)
                if snapshot is not None:
                    if before is not None \
                            and before.identity == snapshot.identity:
                        # One that was plugged in later is another disk.
                        snapshot = snapshot._replace(unlimited=frozenset(
                            disk.target for disk in snapshot.domain.disks
                            if disk.target in before.unlimited))
                    snapshots[uuid] = snapshot
                self.snapshots = snapshots
            return snapshot

    def cannot_limit(self, uuid: str, disks: Mapping[str, Exception]
                     ) -> Snapshot | None:
        """Leave disks of this run of a domain out of its limits.

        :param disks: and what libvirt says of each
        """
        with self._mutex:
            snapshot = self.snapshots.get(uuid)
            if snapshot is None:
                return None
            snapshot = snapshot._replace(
                unlimited=snapshot.unlimited | disks.keys())
            self.snapshots = {**self.snapshots, uuid: snapshot}
        for disk, why in disks.items():
            LOG.warning('domain %s (%s): disk %s is left out of its limits, '
                        'libvirt cannot set any there: %s',
                        snapshot.domain.name, uuid, disk, why)
        return snapshot

    @contextlib.contextmanager
    def _locked(self, uuid: str) -> Iterator[None]:
        with self._mutex:
            lock, users = self._locks.get(uuid, (threading.Lock(), 0))
            self._locks[uuid] = lock, users + 1
        try:
            with lock:
                yield
        finally:
            with self._mutex:
                lock, users = self._locks.pop(uuid)
                if users > 1:
                    self._locks[uuid] = lock, users - 1

    def close(self) -> None:
        """End the thread; not while a call to libvirt hangs."""
        with self._turn:
            self._closed = True
            self._turn.notify()
        if self._thread.ident is not None:
            self._thread.join(1.0)

    def _snapshot(self, answer: handle.DomainReading) -> Snapshot | None:
        try:
            domain = self._parse(answer.xml)
            pid = process.pid_of(domain.name, self._run_dir)
            started = proc.started_ticks(pid, self._root_dir)
        except errors.WorkloadGone as exc:
            # One that is just ending has no process either, for a moment.
            now_s = time.monotonic()
            if now_s - self._missing.setdefault(answer.uuid, now_s) >= LOOK_S:
                if self._logged.due(answer.uuid, str(exc), exc.cause):
                    LOG.warning('%s', exc)
            else:
                self.changed(answer.uuid)
            return None
        except (errors.DriverError, ValueError) as exc:
            self._warn(answer.uuid, (f'domain {answer.uuid}: {exc}; it is not '
                                     'looked at, its load counts as '
                                     'foreground',))
            return None
        if domain.uuid != answer.uuid:
            self._warn(answer.uuid, (f'domain {answer.uuid} has the XML of '
                                     f'{domain.uuid}; it is not looked at',))
            return None
        self._missing.pop(answer.uuid, None)
        self._logged.over(answer.uuid)
        self._warn(answer.uuid, (*domain.warnings, *(
            f'domain {answer.uuid}: {problem}'
            for problem in domain.record.problems)))
        return Snapshot(domain, pid, started, answer.held)

    def _warn(self, uuid: str, warnings: tuple[str, ...]) -> None:
        if self._logged.due(('warnings', uuid), warnings):
            for warning in warnings:
                LOG.warning('%s', warning)

    # --- the thread

    def _lost(self, hangs: bool) -> None:
        with self._turn:
            self._hangs = hangs
            self._broken = True
            self._turn.notify()

    def _run(self) -> None:
        retry_s = FIRST_RETRY_S
        while not self._closed:
            watch = None
            why = (f'{self._libvirt.uri}: the connection broke; see that '
                   'libvirtd (or virtqemud) runs')
            self._broken = self._hangs = False
            try:
                watch = self._libvirt.watch(self.changed, self._lost,
                                            self.ends.record)
                self._sync(watch)
                self._health.back()
                retry_s = FIRST_RETRY_S
                self._synced.set()
                self._libvirt.log_versions(watch)
                self._follow(watch)
            except errors.DriverError as exc:
                why = str(exc)
            except Exception:
                LOG.exception('libvirt: unexpected failure')
            finally:
                if watch is not None:
                    watch.close()
            if self._closed:
                break
            if self._hangs:
                self._health.silent()
            else:
                self._health.lost(why)
            with self._turn:
                self._turn.wait_for(lambda: self._closed, retry_s)
            retry_s = min(2 * retry_s, LAST_RETRY_S)

    def _sync(self, watch: client.Watch) -> None:
        running = watch.running()
        for uuid in dict.fromkeys((*self.snapshots, *self._missing, *running)):
            self._read_in_time(watch, uuid)

    def _follow(self, watch: client.Watch) -> None:
        while (uuid := self._next()) is not None:
            self._read_in_time(watch, uuid)

    def _next(self) -> str | None:
        """Wait for a domain that is to be read; ``None`` at the end."""
        with self._turn:
            while not (self._broken or self._closed):
                now_s, due_s = time.monotonic(), None
                self._read_s = {uuid: at_s for uuid, at_s
                                in self._read_s.items()
                                if now_s - at_s < LOOK_S}
                for uuid, may_wait in self._todo.items():
                    if not (may_wait and uuid in self._read_s):
                        # Not after the look: what changes meanwhile is new.
                        del self._todo[uuid]
                        if may_wait:
                            self._read_s[uuid] = now_s
                        return uuid
                    at_s = self._read_s[uuid] + LOOK_S
                    due_s = at_s if due_s is None else min(due_s, at_s)
                self._turn.wait(None if due_s is None else due_s - now_s)
            return None

    def _read_in_time(self, watch: client.Watch, uuid: str) -> None:
        call = self._calls.submit(domain_health.LOOK + uuid,
                                  lambda: self._read(watch, uuid), brief=True)
        if not self._calls.wait(call, self._calls.patience_s) or isinstance(
                call.error, calls.NotCalled):
            # One that hangs is left behind: the other domains go on.
            self._health.suspect()
            self.changed(uuid)      # in a second
        elif isinstance(call.error, calls.NoThread):
            # Rather one that may hold up the others than none.
            self._read(watch, uuid)
        elif call.error is not None:
            raise call.error

    def _read(self, watch: client.Watch, uuid: str) -> None:
        """Read a domain now.

        :raises Unreachable: libvirt is gone.
        """
        try:
            self.refresh(uuid, lambda: watch.read(uuid))
        except client.Unreachable:
            raise
        except errors.DriverError as exc:
            self._warn(uuid, (f'{exc}; it is looked at again when it '
                              'changes',))
        except Exception as exc:
            # What is odd about one is no matter of the others.
            LOG.debug('domain %s', uuid, exc_info=True)
            self._warn(uuid, (f'domain {uuid} cannot be understood '
                              f'({type(exc).__name__}); it is looked at again '
                              'when it changes',))


class Ends:
    """Remembers why each domain ended."""

    def __init__(self) -> None:
        self._last: dict[str, str] = {}
        self._before: dict[str, str] = {}
        self._running: set[str] = set()

    def record(self, uuid: str, why: str) -> None:
        """Note that a run of a domain ended."""
        self._last[uuid] = why

    def begins(self, uuid: str) -> None:
        """Note that another run of a domain is there."""
        if len(self._last) + len(self._before) > MOST_ENDS:
            self._last, self._before = {}, {}
        self._running.add(uuid)
        self._before[uuid] = self._last.pop(uuid, AGAIN)

    def over(self, uuid: str) -> None:
        """Note that a domain does not run any more."""
        self._running.discard(uuid)

    def why(self, uuid: str) -> str | None:
        """Return why the last run that ended did; ``None``: not known yet."""
        return (self.again(uuid) if uuid in self._running
                else self._last.get(uuid))

    def again(self, uuid: str) -> str:
        """Return why a domain that runs is not the run that it was."""
        why = self._last.get(uuid) or self._before.get(uuid, AGAIN)
        return why if why == AGAIN else f'{why}, and was started again'
