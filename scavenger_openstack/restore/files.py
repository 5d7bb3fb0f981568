# SPDX-License-Identifier: Apache-2.0

"""Reading and writing files as a whole; standard library only."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib

FILE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def read(directory: int, name: str) -> str:
    """The text of a file of a cgroup, without the white space around it.

    :raises OSError: it cannot be read.
    """
    fd = os.open(name, os.O_RDONLY | FILE, dir_fd=directory)
    try:
        return os.read(fd, 65536).decode().strip()
    finally:
        os.close(fd)


def write(directory: int, name: str, text: str) -> None:
    """Write a file of a cgroup, with one call.

    :raises OSError: the kernel does not take the text.
    """
    fd = os.open(name, os.O_WRONLY | FILE, dir_fd=directory)
    try:
        write_once(fd, text.encode() or b'\n')
    finally:
        os.close(fd)


def write_once(fd: int, data: bytes) -> None:
    """Write a file that takes only a whole text, from its beginning.

    :raises OSError: it was not written, or not all of it.
    """
    if os.write(fd, data) != len(data):
        raise OSError(errno.EIO, 'only a part of the text was taken')


def write_all(fd: int, data: bytes, offset: int | None = None) -> None:
    """Write all of ``data``: one call writes what has room, and says so by
    the count only.

    :param offset: not where the last write ended
    :raises OSError: some of it was not written.
    """
    while data:
        if offset is None:
            data = data[os.write(fd, data):]
        else:
            count = os.pwrite(fd, data, offset)
            data, offset = data[count:], offset + count


def replace(path: pathlib.Path | str, data: bytes | None, *, draft: str,
            directory: int | None = None, mode: int = 0o600,
            sync: bool = False, public: bool = False) -> None:
    """Put a file in place of another; there is always the old or the new.

    :param data: ``None``: the draft is written already
    :param draft: what the new one is called before
    :param directory: what both are relative to
    :param sync: not without having it on the disk; its name, too, if the
        disk takes it
    :param public: with that mode whatever the umask is
    :raises OSError: it could not be written; what was there still is.
    """
    try:
        if data is None:
            flags = os.O_RDONLY
        else:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            with contextlib.suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=directory)
        fd = os.open(draft, flags | FILE, mode, dir_fd=directory)
        try:
            write_all(fd, data or b'')
            if public:
                os.fchmod(fd, mode)
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(draft, path, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(draft, dir_fd=directory)
        raise
    if sync:
        sync_names(pathlib.Path(path).parent, directory)


def sync_names(directory: pathlib.Path | str = '.', above: int | None = None
               ) -> None:
    """Put the names in a directory on the disk.

    Names outlive the process without this: only a power cut could lose one.

    :param above: what the directory is relative to
    """
    with contextlib.suppress(OSError):
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC,
                     dir_fd=above)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
