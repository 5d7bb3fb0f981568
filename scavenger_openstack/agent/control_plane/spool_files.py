# SPDX-License-Identifier: Apache-2.0

"""The files of the spool, and the directory that they are in.

Another user must not be able to put something into them.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import stat

ENDS = ('', '-wal', '-shm')
"""SQLite has three files."""


class Unusable(Exception):
    """A file is there and must not be used."""


def of(path: pathlib.Path) -> list[pathlib.Path]:
    return [path.with_name(path.name + end) for end in ENDS]


def make_directory(directory: pathlib.Path) -> str:
    """Make the directory if there is none.

    Its owner is this user, root, or the owner of what it is in, which could
    put another one there anyway.

    :return: why it must not be used, '' if it may
    :raises OSError: there is none and none can be made.
    """
    above = directory.parent
    above.mkdir(mode=0o755, parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
        owner = above.stat()
        if os.geteuid() == 0:
            os.chown(directory, owner.st_uid, owner.st_gid,
                     follow_symlinks=False)
    info = directory.lstat()
    if stat.S_ISDIR(info.st_mode) and _only_owners_write(info, directory):
        return ''
    return f'{_who(info)}: others may have written there'


def make(path: pathlib.Path) -> bool:
    """Make an empty file if there is none; whether that was so.

    :raises OSError: none can be made.
    :raises Unusable: others may have written it.
    """
    there = False
    for one in of(path):
        try:
            info = one.lstat()
        except FileNotFoundError:
            continue
        if (not stat.S_ISREG(info.st_mode) or info.st_nlink != 1
                or not _only_owners_write(info, path.parent)):
            raise Unusable(f'{one.name}: {_who(info)}: others may have '
                           'written it')
        there = there or one == path
    if not there:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL
                     | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        if os.geteuid() == 0:
            owner = path.parent.stat()
            os.fchown(fd, owner.st_uid, owner.st_gid)
        os.close(fd)
    return not there


def _only_owners_write(found: os.stat_result, directory: pathlib.Path
                       ) -> bool:
    return not found.st_mode & 0o022 and found.st_uid in (
        0, os.geteuid(), directory.parent.stat().st_uid)


def _who(found: os.stat_result) -> str:
    return f'owner {found.st_uid}, mode {stat.filemode(found.st_mode)}'
