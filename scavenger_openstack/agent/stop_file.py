# SPDX-License-Identifier: Apache-2.0

"""The stop file of the slow loop: whether it exists, or was made since the
last tick.

A file that is made and removed again between two ticks stops one tick, too:
the kernel reports which names appear in its directory.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
import struct
import weakref

# inotify(7)
_MADE = 0x80 | 0x100            # moved to there, created
_GONE = 0x400 | 0x800           # the directory: deleted, moved away
_LOST = _GONE | 0x8000          # the kernel does not watch it any more
_ONLY_DIRECTORY = 0x01000000
_EVENT = struct.Struct('iIII')
_LIBC = ctypes.CDLL(None, use_errno=True)

_READS = 16
"""Number of pieces of 64 KiB that one call reads; the next reads the rest."""


class StopFile:
    """The file, watched by inotify; without inotify only its existence counts.

    :param path: the file; its directory may be made later
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._name = os.fsencode(path.name)
        self._directory = os.fsencode(path.parent)
        self._watched = False
        self._fd = int(_LIBC.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
        if self._fd >= 0:
            self._end = weakref.finalize(self, os.close, self._fd)
        self._watch()

    def exists(self) -> bool:
        return self._path.exists()

    def appeared(self) -> bool:
        """Return whether it exists, or was made since the last call."""
        made = self._fd >= 0 and self._was_made()
        return self.exists() or made

    def close(self) -> None:
        if self._fd >= 0:
            self._end()
        self._fd = -1

    def _watch(self) -> None:
        self._watched = self._fd >= 0 and _LIBC.inotify_add_watch(
            self._fd, self._directory, _MADE | _GONE | _ONLY_DIRECTORY) >= 0

    def _was_made(self) -> bool:
        made = False
        for _ in range(_READS):
            try:
                data = os.read(self._fd, 65536)
            except BlockingIOError:
                break
            offset = 0
            while offset < len(data):
                _, mask, _, size = _EVENT.unpack_from(data, offset)
                offset += _EVENT.size
                made = made or bool(mask & _MADE) and data[
                    offset:offset + size].rstrip(b'\0') == self._name
                offset += size
                if mask & _LOST:
                    self._watched = False
        if not self._watched:
            self._watch()       # the directory may be made again, or later
        return made
