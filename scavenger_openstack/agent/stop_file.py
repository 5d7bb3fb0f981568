# SPDX-License-Identifier: Apache-2.0

"""The stop file as the slow loop sees it: there, or there since last looked.

One that is made and removed again between two ticks stops one tick, too: the
kernel tells which names appear in its directory.
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
_LOST = _GONE | 0x8000          # the kernel follows it no more
_ONLY_DIRECTORY = 0x01000000
_EVENT = struct.Struct('iIII')
_LIBC = ctypes.CDLL(None, use_errno=True)

_READS = 16
"""So many pieces of 64 KiB are read at once; the rest at the next look."""


class StopFile:
    """Where the kernel cannot tell, only what is there counts.

    :param path: the file; its directory may be made later
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._name = os.fsencode(path.name)
        self._directory = os.fsencode(path.parent)
        self._follows = False
        self._fd = int(_LIBC.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
        if self._fd >= 0:
            self._end = weakref.finalize(self, os.close, self._fd)
        self._follow()

    def exists(self) -> bool:
        return self._path.exists()

    def appeared(self) -> bool:
        """Whether it is there, or was made since this was last asked."""
        made = self._fd >= 0 and self._made()
        return self.exists() or made

    def close(self) -> None:
        if self._fd >= 0:
            self._end()
        self._fd = -1

    def _follow(self) -> None:
        self._follows = self._fd >= 0 and _LIBC.inotify_add_watch(
            self._fd, self._directory, _MADE | _GONE | _ONLY_DIRECTORY) >= 0

    def _made(self) -> bool:
        made = False
        for _ in range(_READS):
            try:
                data = os.read(self._fd, 65536)
            except BlockingIOError:
                break
            at = 0
            while at < len(data):
                _, mask, _, size = _EVENT.unpack_from(data, at)
                at += _EVENT.size
                made = made or bool(mask & _MADE) and data[
                    at:at + size].rstrip(b'\0') == self._name
                at += size
                if mask & _LOST:
                    self._follows = False
        if not self._follows:
            self._follow()      # one that is there again, or not yet
        return made
