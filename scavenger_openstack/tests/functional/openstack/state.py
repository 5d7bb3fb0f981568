# SPDX-License-Identifier: Apache-2.0

"""Where the stack of ``tools/openstack.sh`` is, for its other commands."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import pathlib
import tempfile
from typing import Any


class State:
    """A directory for each user, who has one stack at most.

    The process that has the stack holds the lock as long as it lives.
    """

    def __init__(self) -> None:
        self.directory = pathlib.Path(
            tempfile.gettempdir(), f'scavenger-openstack-{os.getuid()}')
        self._file = self.directory / 'stack.json'
        self._lock = self.directory / 'lock'
        self.log = self.directory / 'log'

    def lock(self) -> io.TextIOWrapper | None:
        """The lock, ``None`` when another process has it.

        :raises PermissionError: the directory is another user's.
        """
        self.directory.mkdir(mode=0o700, exist_ok=True)
        if self.directory.stat().st_uid != os.getuid():
            raise PermissionError(f'{self.directory} is another user\'s')
        while True:
            file = open(self._lock, 'a')
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(file.fileno()),
                                    self._lock.stat()):
                    return file
            except BlockingIOError:
                file.close()
                return None
            except FileNotFoundError:
                pass        # removed meanwhile
            file.close()
            self.directory.mkdir(mode=0o700, exist_ok=True)

    def starting(self) -> bool:
        """Whether a stack comes up, or goes down."""
        if not self._lock.exists():
            return False
        lock = self.lock()
        if lock is None:
            return not self._file.exists()
        lock.close()
        return False

    def read(self) -> dict[str, Any]:
        """What is known of the stack that runs; nothing without one."""
        if not self._lock.exists():
            return {}
        lock = self.lock()
        if lock is not None:
            lock.close()
            return {}
        try:
            found: dict[str, Any] = json.loads(self._file.read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return found

    def write(self, **what: Any) -> None:
        """Say what :meth:`read` returns from now on."""
        draft = self._file.with_suffix('.new')
        draft.write_text(json.dumps(what))
        draft.replace(self._file)

    def clear(self) -> None:
        """Say that there is no stack.  The log stays: it tells why."""
        self._file.unlink(missing_ok=True)

    def remove(self) -> None:
        """Leave nothing, unless another process has begun one."""
        if not self.directory.exists():
            return
        lock = self.lock()
        if lock is not None:
            with lock:
                for path in (self._file, self.log, self._lock):
                    path.unlink(missing_ok=True)
                with contextlib.suppress(OSError):  # another lock is there
                    self.directory.rmdir()
