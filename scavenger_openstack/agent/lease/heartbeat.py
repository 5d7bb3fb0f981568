# SPDX-License-Identifier: Apache-2.0


"""The heartbeat: until when the leases of an agent last, and what says so.

The expiry is on disk before memory knows of it, so the agent thinks that
its leases run out no later than the watcher does.  Renewing is one write in
place: it needs no disk space.
"""

from __future__ import annotations

from collections.abc import Callable
import json
import os
import pathlib
import threading
import time
from typing import Protocol

from oslo_log import log

from scavenger_openstack.drivers import calls
from scavenger_openstack import errors
from scavenger_openstack import log_once
from scavenger_openstack.restore import files
from scavenger_openstack.restore.files import FILE
from scavenger_openstack.restore.records import boot_id
from scavenger_openstack.restore.records import now_s

LOG = log.getLogger(__name__)

SIZE = 128
EXPIRY_SHARE = 0.9
"""A renewal lasts this share of ``lease_s``: the rest is for restoring."""
MARGIN_SHARE = 0.1
"""No write starts in the last part of a lease, this share of it."""
RENEWALS = 3
_BOOTTIME = time.CLOCK_BOOTTIME
_clock = time.clock_gettime


class Heartbeat:
    """One line in one file, kept open.  Safe to use from many threads.

    :param settled: whether no limit is being restored by an expiry that has
        passed; asked after the next expiry is on disk
    """

    def __init__(self, lease_s: float,
                 settled: Callable[[], bool] = lambda: True) -> None:
        self._lease_s = lease_s
        self._settled = settled
        self._mutex = threading.Lock()
        self._expires_s = self._last_write_s = 0.0
        self.fd = -1

    def open(self, path: pathlib.Path) -> None:
        """Begin: the leases last from now on.

        :raises OSError: the file cannot be written.
        """
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | FILE, 0o600)
        self._expires_s = self._last_write_s = 0.0
        self.beat(now_s())
        os.ftruncate(self.fd, SIZE)

    def beat(self, now: float) -> None:
        """Move the expiry, even when it has passed; never back.

        It moves on disk only, and the leases have run out here, after a stop
        in between, and while a limit is being restored.

        :raises OSError: the file cannot be written.
        """
        with self._mutex:
            expires_s = now + EXPIRY_SHARE * self._lease_s
            if expires_s <= self._expires_s:
                return
            line = json.dumps({'boot_id': boot_id(), 'pid': os.getpid(),
                               'expires_s': round(expires_s, 6)}).encode()
            files.write_all(self.fd, line.ljust(SIZE - 1) + b'\n', 0)
            if self._expires_s <= now_s() and (
                    now < self._expires_s or not self._settled()):
                return
            self._last_write_s = expires_s - MARGIN_SHARE * self._lease_s
            self._expires_s = expires_s

    def check(self) -> None:
        """Whether a write may start.

        :raises LeaseError: no time is left.
        """
        if _clock(_BOOTTIME) >= self._last_write_s:
            raise errors.LeaseError(self.ran_out())

    def expired(self, now: float) -> bool:
        """Whether the watcher may be restoring by now."""
        return now >= self._expires_s

    def ran_out(self) -> str:
        late_s = now_s() - self._last_write_s
        return (f'the leases ran out {late_s:.3f} s ago: the agent was '
                'stopped or starved; all limits are removed')

    def close(self) -> None:
        self._expires_s = self._last_write_s = 0.0
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1


class Renewable(Protocol):
    """The leases that a :class:`Renewer` renews."""

    lease_s: float

    def renew(self, now: float) -> None:
        ...


class Renewer(threading.Thread):
    """Renews the leases while the main loop makes progress.

    :param progress: CLOCK_BOOTTIME of the last tick that ended, in seconds
    :param interval_s: how often the main loop ticks
    """

    def __init__(self, leases: Renewable, progress: Callable[[], float],
                 interval_s: float) -> None:
        super().__init__(name='lease-renewer', daemon=True)
        self._leases = leases
        self._progress = progress
        self._patience_s = max(leases.lease_s, 3 * interval_s)
        self._ending = threading.Event()
        self._logged = log_once.LogOnce()

    def begin(self) -> None:
        """Start, unless it has; where no thread can be started, renew once.

        For each tick.
        """
        if self.ident is None:
            try:
                calls.start(self)
            except calls.NoThread:
                self._renew()

    def run(self) -> None:
        while not self._ending.wait(self._leases.lease_s / RENEWALS):
            self._renew()

    def _renew(self) -> None:
        now = now_s()
        stalled_s = now - self._progress()
        if stalled_s > self._patience_s:
            self._complain('stalled', f'no tick has ended for '
                           f'{stalled_s:.1f} s: the leases are not '
                           'renewed until one does')
            return
        try:
            self._leases.renew(now)
        except errors.LeaseError as exc:
            self._complain('failed', str(exc))
        else:
            self._logged.over('leases')

    def _complain(self, kind: str, text: str) -> None:
        if self._logged.due('leases', kind):
            LOG.error('%s', text)

    def stop(self) -> None:
        """End the thread; the leases then run out by themselves."""
        self._ending.set()
        if self.is_alive():
            self.join(5)
