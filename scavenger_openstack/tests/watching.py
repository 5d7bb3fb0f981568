# SPDX-License-Identifier: Apache-2.0

"""What a watcher publishes, without one: kinds that a test chooses."""

from __future__ import annotations

from collections.abc import Mapping
import fcntl
import os
import pathlib
import threading

import fixtures

from scavenger_openstack.restore import abilities
from scavenger_openstack.restore import cgroup
from scavenger_openstack.restore import records
from scavenger_openstack.restore import watcher


class Watching(fixtures.Fixture):
    """Holds the watcher's lock of a state directory, and publishes.

    ``kinds`` may be replaced: from then on that is what is published.  It
    begins with all that can be restored here without libvirt.
    """

    def __init__(self, state_dir: pathlib.Path) -> None:
        super().__init__()
        self._path = state_dir
        self._mutex = threading.Lock()
        mounts = [mount[0] for mount in cgroup.mounts()]
        self._kinds: Mapping[str, str] = dict.fromkeys(
            (*map(abilities.of_mount, mounts), abilities.of_network()), '')

    def _setUp(self) -> None:
        lock = os.open(self._path / 'watcher.lock',
                       os.O_RDWR | os.O_CREAT, 0o600)
        self.addCleanup(os.close, lock)
        fcntl.flock(lock, fcntl.LOCK_EX)
        directory = os.open(self._path, os.O_RDONLY)
        self.addCleanup(os.close, directory)
        owner = os.fstat(directory)     # as the watcher does
        os.fchown(lock, owner.st_uid, owner.st_gid)
        self._publisher = watcher.Publisher(directory)
        self.addCleanup(self._publisher.close)
        self._ending = threading.Event()
        self._beat()
        thread = threading.Thread(target=self._turn, daemon=True)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self._ending.set)

    @property
    def kinds(self) -> Mapping[str, str]:
        return self._kinds

    @kinds.setter
    def kinds(self, kinds: Mapping[str, str]) -> None:
        self._kinds = kinds
        self._beat()

    def _turn(self) -> None:
        while not self._ending.wait(0.2):
            self._beat()

    def _beat(self) -> None:
        with self._mutex:
            self._publisher.beat(self._kinds, records.now_s())
