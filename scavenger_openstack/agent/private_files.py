# SPDX-License-Identifier: Apache-2.0

"""Directories and files that no other user may have written."""

from __future__ import annotations

from collections.abc import Callable
import contextlib
import os
import pathlib
import stat
import uuid

from oslo_log import log

from scavenger_openstack.restore import files

LOG = log.getLogger(__name__)


def make_directory(directory: pathlib.Path,
                   warn: Callable[[str], None] = LOG.warning,
                   is_ours: Callable[[str], bool] = bool) -> None:
    """Make the directory if there is none; one that others may have written
    to is moved aside, unless it is for other files, such as /tmp.

    Its owner is this user, root, or the owner of the directory above, which
    could replace it anyway.

    :param is_ours: whether a file of that name is one of this program
    :raises OSError: there is none that may be used, and none can be made.
    """
    above = directory.parent
    above.mkdir(mode=0o755, parents=True, exist_ok=True)
    for _ in range(2):
        with contextlib.suppress(FileExistsError):
            directory.mkdir(mode=0o700)
            _give_directory(directory)
        info = directory.lstat()
        if stat.S_ISDIR(info.st_mode) and _only_owners_write(info, directory):
            return
        if stat.S_ISDIR(info.st_mode) and not all(
                map(is_ours, os.listdir(directory))):
            raise OSError(0, 'others may write there, and it has other files; '
                             'name a directory for this alone')
        move_aside(directory, _foreign(info), warn)
    raise OSError(0, 'others write there')


def _give_directory(directory: pathlib.Path) -> None:
    """As :func:`_give`; the owner of what it is in may have put something
    else there by now, which stays as it is."""
    with contextlib.suppress(OSError):
        fd = os.open(directory, files.DIRECTORY)
        try:
            if os.fstat(fd).st_uid == os.geteuid():
                _give(fd, directory.parent)
        finally:
            os.close(fd)


def _give(fd: int, directory: pathlib.Path) -> None:
    """Give what was made the owner of the directory that it is in, if this
    process may: an agent may be another user's later."""
    with contextlib.suppress(PermissionError):
        owner = directory.stat()
        if os.geteuid() == 0:
            os.chown(fd, owner.st_uid, owner.st_gid)


def why_not(path: pathlib.Path) -> str:
    """Return why a file must not be used, '' if it may.

    :raises OSError: there is none.
    """
    info = path.lstat()
    return '' if (stat.S_ISREG(info.st_mode) and info.st_nlink == 1
                  and _only_owners_write(info, path.parent)) else (
        _foreign(info))


def create(path: pathlib.Path) -> int:
    """Create a file to append to, with the owner of its directory; return its
    descriptor.

    :raises OSError: it cannot be, or there is one.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND
                 | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    _give(fd, path.parent)
    return fd


def replace(path: pathlib.Path, data: bytes, *, sync: bool) -> None:
    """Put a file, with the owner of its directory, in place of another;
    there is always the old or the new.

    :param sync: see :func:`.files.replace`
    :raises OSError: it could not be written; what was there still is.
    """
    draft = path.with_name(f'{path.name}.new')
    draft.unlink(missing_ok=True)
    fd = create(draft)
    try:
        files.write_all(fd, data)
    except OSError:
        draft.unlink()
        raise
    finally:
        os.close(fd)
    files.replace(path, None, draft=str(draft), sync=sync)


def move_aside(path: pathlib.Path, why: str,
               warn: Callable[[str], None] = LOG.warning) -> None:
    """Rename a file that must not be used; it stays for an operator.

    :raises OSError: it cannot be renamed.
    """
    aside = path.with_name(path.name + '.unusable')
    with contextlib.suppress(FileNotFoundError):
        if os.path.lexists(aside) and (
                path.is_dir() or aside.is_dir() or path.is_symlink()):
            aside = path.with_name(f'{aside.name}.{uuid.uuid4().hex}')
        os.rename(path, aside)
    warn(f'{path}: {why}. It is now {aside.name}, and a new one is begun; '
         'what it held is not reported')


def _only_owners_write(info: os.stat_result, directory: pathlib.Path
                       ) -> bool:
    return not info.st_mode & 0o022 and info.st_uid in (
        0, os.geteuid(), directory.parent.stat().st_uid)


def _foreign(info: os.stat_result) -> str:
    return (f'owner {info.st_uid}, mode {stat.filemode(info.st_mode)}: others '
            'may have written it')
