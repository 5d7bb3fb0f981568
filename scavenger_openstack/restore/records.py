# SPDX-License-Identifier: Apache-2.0


"""Lease files: one JSON line, then blanks that a note may be written over.

Standard library only, like all that ``scavenger-restore`` runs on.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import errno
import functools
import json
import os
import re
import stat
import time
from typing import Any

from scavenger_openstack.restore import actions
from scavenger_openstack.restore.actions import Refused
from scavenger_openstack.restore import cgroup
from scavenger_openstack.restore import files
from scavenger_openstack.restore.files import FILE

MAX_BYTES = 1024 * 1024
"""512 vCPUs, each on every other of 512 CPUs, take half of it."""
NOTE_BYTES = 256


@dataclasses.dataclass
class Lease:
    """The way back of one knob of one workload.

    ``note`` is the action whose CPU set was being widened and the set that
    it had before, for what carries on after a crash.
    """

    workload: str
    knob: str
    boot_id: str
    actions: Sequence[Mapping[str, Any]]
    original: Any = None
    created_s: float = 0.0
    pid: int = 0
    name: str = ''
    note: tuple[int, str] | None = None
    note_at: int = 0


def now_s() -> float:
    """CLOCK_BOOTTIME, the clock of leases: it counts suspended time."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@functools.cache
def boot_id() -> str:
    """Which boot of the machine this is."""
    with open('/proc/sys/kernel/random/boot_id') as file:
        return file.read().strip()


def dump(lease: Lease) -> bytes:
    """The bytes of a lease file; sets ``lease.note_at``."""
    line = json.dumps({
        'schema': 1, 'workload': lease.workload, 'knob': lease.knob,
        'boot_id': lease.boot_id, 'pid': lease.pid,
        'created_s': lease.created_s, 'original': lease.original,
        'steps': [dict(action) for action in lease.actions]}).encode() + b'\n'
    lease.note_at = len(line)
    return line + b' ' * (NOTE_BYTES - 1) + b'\n'


def parse(data: bytes, name: str = '') -> Lease:
    """Read the bytes of a lease file.

    :raises Refused: they do not hold a lease of schema 1.
    """
    line, _, rest = data.partition(b'\n')
    try:
        record = json.loads(line)
        lease = Lease(record['workload'], record['knob'], record['boot_id'],
                      record['steps'], record.get('original'),
                      float(record.get('created_s', 0)),
                      int(record.get('pid', 0)), name)
        texts = (lease.workload, lease.knob, lease.boot_id)
        if not (record['schema'] == 1 and isinstance(lease.actions, list)
                and all(isinstance(text, str) and '\n' not in text
                        for text in texts)
                and lease.actions):
            raise ValueError('schema, workload, knob, boot_id or steps')
        for text in texts:
            os.fsencode(text)       # what is no name cannot be logged
        # All of the shape is looked at here, so that nothing later trips.
        for action in lease.actions:
            actions.check(action)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError,
            RecursionError) as exc:
        raise Refused(f'not a lease ({type(exc).__name__}: {exc!s:.99})'
                      ) from None
    if len(rest) >= NOTE_BYTES:
        lease.note_at = len(line) + 1
        note = re.fullmatch('([0-9]{1,5}) (' + cgroup.CPUS + ')',
                            rest.decode(errors='replace').strip())
        lease.note = (int(note[1]), note[2]) if note else None
    return lease


def save(directory: int, lease: Lease) -> None:
    """Write a lease durably; there is always the old file or the new one.

    :raises OSError: it could not be written; what was there still is.
    :raises Refused: it could not be read again, so it is not written.
    """
    data = dump(lease)
    parse(data)
    if len(data) > MAX_BYTES:
        raise Refused(f'{len(data)} bytes of actions, at most {MAX_BYTES}')
    files.replace(lease.name, data, directory=directory, sync=True,
                  draft=lease.name.removesuffix('.json') + '.tmp')


def delete(directory: int, lease: Lease) -> None:
    """Delete the file of a lease; one that is gone already is fine.

    :raises OSError: it is still there.
    """
    with contextlib.suppress(FileNotFoundError):
        os.unlink(lease.name, dir_fd=directory)
    files.sync_names(above=directory)


def open_or_make(name: str, directory: int) -> int:
    """Open a file in an open directory for reading and writing.

    One that root makes belongs to the owner of the directory, who may have
    to write it; the owner of one that is there stays.

    :raises OSError: it cannot be had.
    """
    try:
        fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | FILE, 0o600,
                     dir_fd=directory)
    except FileExistsError:
        return os.open(name, os.O_RDWR | FILE, dir_fd=directory)
    if os.geteuid() == 0:
        owner = os.fstat(directory)
        with contextlib.suppress(OSError):
            os.fchown(fd, owner.st_uid, owner.st_gid)
    return fd


def load(directory: int, name: str, owners: set[int]) -> Lease:
    """Read the file ``name`` in an open directory, if it can be trusted.

    :raises Refused: wrong kind, owner, mode, size or content.
    :raises FileNotFoundError: it was deleted meanwhile.
    :raises OSError: it cannot be read now.
    """
    try:
        fd = os.open(name, os.O_RDONLY | FILE, dir_fd=directory)
    except OSError as exc:
        if exc.errno in (errno.ELOOP, errno.ENXIO):
            raise Refused(f'cannot be opened ({exc.strerror})') from None
        raise               # out of descriptors, or of memory: not now
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            raise Refused('not a regular file')
        if info.st_uid not in owners or info.st_mode & 0o022:
            raise Refused(f'owner {info.st_uid}, mode '
                          f'{stat.S_IMODE(info.st_mode):o}: others may '
                          'have written it')
        if info.st_size > MAX_BYTES:
            raise Refused(f'{info.st_size} bytes, at most {MAX_BYTES}')
        return parse(os.read(fd, MAX_BYTES), name)
    finally:
        os.close(fd)


def remember(lease: Lease, index: int, directory: int | None,
             cpus: str) -> None:
    """Note a set about to be widened: over blanks, so on a full disk too."""
    lease.note = (index, cpus)
    text = f'{index} {cpus}'.encode().ljust(NOTE_BYTES - 1)
    if directory is None or not lease.note_at or len(text) >= NOTE_BYTES:
        return
    try:
        fd = os.open(lease.name, os.O_RDWR | FILE, dir_fd=directory)
    except OSError:
        return          # only a crash in the next microseconds would need it
    try:
        if os.pread(fd, 1, lease.note_at - 1) == b'\n':
            files.write_all(fd, text, lease.note_at)
    except OSError:
        pass
    finally:
        os.close(fd)
