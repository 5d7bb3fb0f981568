# SPDX-License-Identifier: Apache-2.0

"""What the watcher (:func:`.program.watch`) publishes: that it turns, and
what it can restore.

A file in the state directory, written in place: a line with the time
(CLOCK_BOOTTIME), a checksum and the length of the rest, then JSON.  Every
turn writes the line; the rest only when it changed.  Who reads between two
writes sees a wrong checksum, and reads again.  Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
import json
import os
import pathlib
import stat
import zlib

from scavenger_openstack.restore import actions
from scavenger_openstack.restore import files
from scavenger_openstack.restore.files import FILE
from scavenger_openstack.restore.records import boot_id
from scavenger_openstack.restore.records import open_or_make

NAME = 'watcher'
WANTED = 'wanted'
"""The kinds that the agent asks the watcher to try: a list in JSON."""
MAX_BYTES = 2 ** 20
OTHER_VERSION = ('it is of another version than the agent: restart both '
                 'units')
BEAT_S = 1.0
"""The longest time between two beats of a watcher that is idle."""
_HEAD = 38
_AHEAD_S = 1.0
_TRIES = 3


def stale_s(lease_s: float) -> float:
    """A watcher that has not turned for so long does not count."""
    return min(5.0, max(2.0, lease_s / 3))


class Publisher:
    """The watcher's end; it belongs to one state directory."""

    def __init__(self, directory: int) -> None:
        """:raises OSError: the file cannot be made."""
        self._fd = open_or_make(NAME, directory)
        self._kinds: Mapping[str, str] | None = None
        self._body = b''
        try:
            info = os.fstat(self._fd)
            if not stat.S_ISREG(info.st_mode) or info.st_nlink != 1:
                raise OSError(f'{NAME} is not a file of its own: delete it')
            os.fchmod(self._fd, 0o600)
        except OSError:
            self.close()
            raise

    def beat(self, kinds: Mapping[str, str], now: float) -> None:
        """Publish; ``now`` is CLOCK_BOOTTIME in seconds.

        :param kinds: kind -> why not; the same object while nothing changed
        :raises OSError: it cannot be written.
        """
        if kinds is self._kinds:
            files.write_all(self._fd, first_line(now, self._body), 0)
            return
        self._kinds = None
        self._body = json.dumps({'boot_id': boot_id(), 'pid': os.getpid(),
                                 'closed_set': actions.CLOSED_SET,
                                 'kinds': dict(kinds)}).encode()
        data = first_line(now, self._body) + self._body
        files.write_all(self._fd, data, 0)
        os.ftruncate(self._fd, len(data))
        self._kinds = kinds

    def close(self) -> None:
        os.close(self._fd)


class Reader:
    """The agent's end."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        self._body = b''
        self._kinds: Mapping[str, str] | None = None

    def read(self, now: float, stale: float) -> Mapping[str, str] | None:
        """Kind -> why it cannot be restored, '' when it can; ``None`` when
        there is no watcher, or nothing from it that can be believed.  One of
        another version can restore nothing.

        :param stale: seconds after which what is published is too old
        :raises OSError: it cannot be read now, out of descriptors.
        """
        try:
            fd = os.open(self._path, os.O_RDONLY | FILE)
        except FileNotFoundError:
            return None
        try:
            info = os.fstat(fd)
            # Root reads the directory of an agent with a user of its own.
            if (not stat.S_ISREG(info.st_mode) or info.st_mode & 0o022
                    or info.st_uid not in (0, os.geteuid(), os.stat(
                        os.path.dirname(self._path)).st_uid)):
                return None
            for _ in range(_TRIES):
                data = os.pread(fd, MAX_BYTES + 1, 0)
                head, body = data[:_HEAD], data[_HEAD:]
                beat_s = _beat_s(head)
                if beat_s is not None and head == first_line(beat_s, body):
                    return (self._parse(body)
                            if now - stale < beat_s < now + _AHEAD_S
                            and len(data) <= MAX_BYTES else None)
            return None
        finally:
            os.close(fd)

    def _parse(self, body: bytes) -> Mapping[str, str] | None:
        if body != self._body:
            self._body, self._kinds = body, None
            try:
                answer = json.loads(body)
                kinds = answer['kinds']
                if answer['boot_id'] == boot_id() and all(
                        isinstance(why, str) for why in kinds.values()):
                    self._kinds = kinds
                    if answer.get('closed_set') != actions.CLOSED_SET:
                        self._kinds = dict.fromkeys(kinds, OTHER_VERSION)
            except (ValueError, KeyError, TypeError, AttributeError,
                    RecursionError):
                pass        # not of a watcher of ours
        return self._kinds


def write_wanted(directory: pathlib.Path, kinds: list[str]) -> None:
    """The agent's wish; there is always the old file or the new one.

    :raises OSError: it cannot be written.
    """
    files.replace(directory / WANTED, json.dumps(kinds).encode(),
                  draft=str(directory / (WANTED + '.tmp')))


class Wanted:
    """The wish, read again when it was replaced."""

    def __init__(self) -> None:
        self._version = (0, 0)
        self._kinds: object = []

    def read(self, directory: int) -> object:
        """What is in the file: anything, it has to be checked."""
        try:
            info = os.stat(WANTED, dir_fd=directory, follow_symlinks=False)
            version = info.st_ino, info.st_mtime_ns
            if version != self._version:
                self._version, self._kinds = version, _read(directory)
        except OSError:
            self._version, self._kinds = (0, 0), []
        return self._kinds


def _read(directory: int) -> object:
    fd = os.open(WANTED, os.O_RDONLY | FILE, dir_fd=directory)
    try:
        info, owner = os.fstat(fd), os.fstat(directory)
        if (not stat.S_ISREG(info.st_mode) or info.st_mode & 0o022
                or info.st_uid not in (0, os.geteuid(), owner.st_uid)):
            return []
        return json.loads(os.pread(fd, MAX_BYTES, 0))
    except (ValueError, RecursionError):
        return []
    finally:
        os.close(fd)


def first_line(beat_s: float, body: bytes) -> bytes:
    text = b'%020.6f' % beat_s
    return b'%s %08x %7d\n' % (text, zlib.crc32(body, zlib.crc32(text)),
                               len(body))


def _beat_s(head: bytes) -> float | None:
    try:
        return float(head[:20])
    except ValueError:
        return None
